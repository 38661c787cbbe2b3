//! The build script, run as cargo runs it, with a CMake that only writes down how it was called.
//!
//! This program runs itself: one test is the build script, the others start it in an environment of
//! their own.
#![cfg(all(unix, not(feature = "bindgen")))]

#[path = "../build.rs"]
mod script;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
#[ignore = "it is what the other tests start"]
fn as_build_script() {
    script::main();
}

/// Our CMake. `$OUT_DIR/log` gets a line a call.
const CMAKE: &str = r#"#!/bin/sh
echo "CC=$CC CFLAGS=$CFLAGS CMAKE_TOOLCHAIN_FILE=$CMAKE_TOOLCHAIN_FILE $*" >>"$OUT_DIR/log"
case "$1" in
--version) ;;
-S)
    if [ -n "$NO_NCCL" ]; then
        echo "CMake Error at TributaryNccl.cmake:98 (message):" >&2
        printf '  TRIBUTARY_NCCL=ON, but no\n  CUDA compiler found (set CUDACXX)\n' >&2
        echo "Call Stack (most recent call first):" >&2
        exit 1
    fi
    mkdir -p "$4" && touch "$4/CMakeCache.txt" ;;
--install)
    mkdir -p "$OUT_DIR/install/lib/pkgconfig"
    touch "$OUT_DIR/install/lib/libtributary.a"
    echo "Libs.private: -pthread -lm" >"$OUT_DIR/install/lib/pkgconfig/tributary.pc" ;;
esac
"#;

const HERE: &str = "x86_64-unknown-linux-gnu";

/// A place to build in, and how cargo calls.
struct Place {
    folder: PathBuf,
    variables: Vec<(String, String)>,
}

impl Place {
    fn new() -> Place {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tributary-build-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let place = Place { folder, variables: Vec::new() };
        place.program("cmake", CMAKE);
        let cmake = place.path("cmake");
        place.with("CMAKE", &cmake).with("TARGET", HERE)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    fn program(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn with(mut self, name: &str, value: &str) -> Place {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.into(), value.into()));
        self
    }

    fn without(mut self, name: &str) -> Place {
        self.variables.retain(|(known, _)| known != name);
        self
    }

    fn run(&self) -> Output {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["as_build_script", "--exact", "--ignored", "--nocapture"]);
        command.env_clear();
        for name in ["PATH", "LD_LIBRARY_PATH"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.env("OUT_DIR", &self.folder).env("HOST", HERE);
        command.env("CARGO_MANIFEST_DIR", env!("CARGO_MANIFEST_DIR"));
        command.env("CARGO_PKG_VERSION", env!("CARGO_PKG_VERSION"));
        command.env("CARGO_CFG_TARGET_OS", "linux").env("CARGO_CFG_TARGET_ARCH", "aarch64");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.output().unwrap()
    }

    /// How CMake was called to configure, the last time.
    fn configured(&self) -> String {
        let output = self.run();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let log = fs::read_to_string(self.path("log")).unwrap();
        log.lines().rfind(|line| line.contains(" -S ")).unwrap().to_owned()
    }

    /// What is printed for cargo.
    fn said(&self) -> String {
        let output = self.run();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn refusal(&self) -> String {
        let output = self.run();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn calls(&self) -> bool {
        Path::new(&self.path("log")).exists()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn what_was_set_once_does_not_stay() {
    let place = Place::new().with("TRIBUTARY_NCCL", "OFF").with("TRIBUTARY_SANITIZE", "thread");
    let first = place.configured();
    assert!(
        first.contains("-DTRIBUTARY_NCCL=OFF") && first.contains("-DTRIBUTARY_SANITIZE=thread")
    );
    let mark = place.folder.join("build/mark");
    fs::write(&mark, "").unwrap();
    place.configured();
    assert!(mark.exists(), "the same settings: the tree is used again");
    let mut place = place.without("TRIBUTARY_NCCL").without("TRIBUTARY_SANITIZE");
    let second = place.configured();
    assert!(second.contains("-DTRIBUTARY_NCCL=AUTO") && second.ends_with("-DTRIBUTARY_SANITIZE="));
    assert!(!mark.exists(), "other settings: CMake's cache is gone");
    for name in ["CC", "CUDAARCHS", "CUDA_HOME", "NCCL_HOME", "CMAKE_TOOLCHAIN_FILE"] {
        fs::write(&mark, "").unwrap();
        place = place.with(name, "/another");
        assert!(place.said().contains(&format!("cargo:rerun-if-env-changed={name}\n")), "{name}");
        assert!(!mark.exists(), "{name}");
    }
}

#[test]
fn another_machine_needs_a_compiler_of_its_own() {
    let arm = Place::new().with("TARGET", "aarch64-unknown-linux-gnu").with("CC", "cc");
    let refusal = arm.refusal();
    assert!(refusal.contains("CC_aarch64_unknown_linux_gnu"), "{refusal}");
    assert!(!arm.calls());
    for name in ["CC_aarch64-unknown-linux-gnu", "CC_aarch64_unknown_linux_gnu", "TARGET_CC"] {
        let arm = Place::new().with("TARGET", "aarch64-unknown-linux-gnu");
        let call = arm.with("CC", "cc").with(name, "arm-cc").configured();
        assert!(call.starts_with("CC=arm-cc "), "{call}");
        assert!(
            call.contains("-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64"),
            "{call}"
        );
        assert!(call.contains("-DTRIBUTARY_NCCL=OFF"), "what is found here is for here: {call}");
    }
    let arm = Place::new().with("TARGET", "aarch64-unknown-linux-gnu");
    let call =
        arm.with("CMAKE_TOOLCHAIN_FILE_aarch64_unknown_linux_gnu", "/arm.cmake").configured();
    assert!(call.contains("CMAKE_TOOLCHAIN_FILE=/arm.cmake "), "{call}");
    assert!(!call.contains("-DCMAKE_SYSTEM_NAME"), "{call}");
}

#[test]
fn this_machine_takes_the_compiler_that_is_named() {
    assert!(Place::new().with("CC", "clang").configured().starts_with("CC=clang "));
    let named = Place::new().with("CC", "cc").with("CC_x86_64_unknown_linux_gnu", "clang");
    assert!(named.configured().starts_with("CC=clang "));
}

#[test]
fn the_feature_nccl_is_a_promise() {
    let asked = || Place::new().with("CARGO_FEATURE_NCCL", "1");
    assert!(asked().configured().contains("-DTRIBUTARY_NCCL=ON"));
    assert!(asked().with("TRIBUTARY_NCCL", "OFF").refusal().contains("switches it off"));
    let refusal = asked().with("NO_NCCL", "1").refusal();
    let (_, last) = refusal.split_once("tributary-sys: ").unwrap();
    assert!(last.contains("no CUDA compiler found (set CUDACXX)."), "{last}");
    assert!(last.contains("nvidia-nccl-cu13") && !last.contains("Call Stack"), "{last}");
}

/// An installation: which libraries there are, and for which backends.
fn installed(libraries: &[&str], backends: &str) -> Place {
    let place = Place::new();
    fs::create_dir_all(place.folder.join("lib/pkgconfig")).unwrap();
    for library in libraries {
        fs::write(place.folder.join("lib").join(library), "").unwrap();
    }
    let text = format!("backends={backends}\nLibs.private: -pthread -lm\n");
    fs::write(place.folder.join("lib/pkgconfig/tributary.pc"), text).unwrap();
    let folder = place.path("lib");
    place.with("TRIBUTARY_LIB_DIR", &folder)
}

const SHARED: &str = "cargo:rustc-link-lib=dylib=tributary\n";
const STATIC: &str = "cargo:rustc-link-lib=static=tributary\n";

#[test]
fn an_installed_library_is_linked_as_it_is() {
    let (so, a) = ("libtributary.so", "libtributary.a");
    for (libraries, asked, expected) in [
        (&[so][..], "", SHARED),
        (&[a], "", STATIC),
        (&[so, a], "", SHARED),
        (&[so, a], "1", STATIC),
        (&[so, a], "0", SHARED),
    ] {
        let place = installed(libraries, "host").with("TRIBUTARY_STATIC", asked);
        let said = place.said();
        assert!(said.contains(expected), "{libraries:?}, asked for {asked:?}: {said}");
        assert!(!place.calls());
    }
    for (libraries, asked) in [(&[so], "1"), (&[a], "0")] {
        let refusal = installed(libraries, "host").with("TRIBUTARY_STATIC", asked).refusal();
        assert!(refusal.contains("-DBUILD_SHARED_LIBS=ON"), "{refusal}");
    }
    assert!(installed(&[], "host").refusal().contains("neither shared nor static"));
    let promise = |backends| installed(&[so], backends).with("CARGO_FEATURE_NCCL", "1");
    assert!(promise("host").refusal().contains("installed without it"));
    assert!(promise("host nccl").said().contains(SHARED));
}

#[test]
fn the_feature_system_takes_what_pkg_config_finds() {
    let place = installed(&["libtributary.so"], "host").without("TRIBUTARY_LIB_DIR");
    let text = "#!/bin/sh\n[ -z \"$NOTHING\" ] || exit 1\ncase \"$1\" in\n--modversion) echo \
                \"$VERSION\" ;;\n--variable=libdir) echo \"$OUT_DIR/lib\" ;;\nesac\n";
    place.program("pkg-config", text);
    let program = place.path("pkg-config");
    let place = place.with("PKG_CONFIG", &program).with("CARGO_FEATURE_SYSTEM", "1");
    let place = place.with("VERSION", env!("CARGO_PKG_VERSION"));
    assert!(place.said().contains(SHARED) && !place.calls());
    let place = place.with("VERSION", "0.0.1");
    assert!(place.refusal().contains("found libtributary 0.0.1"));
    assert!(place.with("NOTHING", "1").refusal().contains("PKG_CONFIG_PATH"));
}
