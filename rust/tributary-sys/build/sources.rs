//! Builds the C sources of this crate into OUT_DIR, with CMake.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::target::{target, Target};
use super::{has_feature, link, Result};

/// The variables that CMake or this file reads. A tree configured with other values is not used
/// again, because CMake remembers most of them.
const ENVIRONMENT: &[&str] = &[
    "TRIBUTARY_NCCL",
    "TRIBUTARY_SANITIZE",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDACXX",
    "CUDAFLAGS",
    "CUDAHOSTCXX",
    "CUDAARCHS",
    "NCCL_ROOT",
    "NCCL_HOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "LDFLAGS",
    "CMAKE",
    "CMAKE_CUDA_ARCHITECTURES",
    "CMAKE_GENERATOR",
    "CMAKE_PREFIX_PATH",
];

const SOURCES: &[&str] = &["CMakeLists.txt", "include", "csrc", "kernels"];

/// The folders of one build.
struct Folders {
    source: PathBuf,
    tree: PathBuf,
    prefix: PathBuf,
    /// The settings of the tree.
    settings: PathBuf,
}

/// Configure, compile, install, link.
pub fn build() -> Result<()> {
    ENVIRONMENT.iter().for_each(|name| println!("cargo:rerun-if-env-changed={name}"));
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let folders = Folders {
        source: PathBuf::from(env::var("CARGO_MANIFEST_DIR")?),
        tree: out.join("build"),
        prefix: out.join("install"),
        settings: out.join("settings.txt"),
    };
    for path in SOURCES {
        watch(&folders.source.join(path))?;
    }
    let target = target()?;
    let nccl = nccl(&target)?;
    let summary = configure(&folders, &target, &nccl)?;
    if nccl == "AUTO" {
        say_what_is_missing(&summary);
    }
    compile(&folders)?;
    finish(&folders)
}

/// The backend nccl: ON, OFF or AUTO.
fn nccl(target: &Target) -> Result<String> {
    let said = env::var("TRIBUTARY_NCCL").ok();
    if has_feature("NCCL") {
        return match said.as_deref() {
            Some("OFF" | "off" | "0" | "FALSE" | "NO" | "") => Err(
                "the feature `nccl` asks for that backend, and TRIBUTARY_NCCL switches it off; \
                     take one of the two away"
                    .into(),
            ),
            _ => Ok("ON".into()),
        };
    }
    if said.is_none() && target.foreign {
        println!(
            "cargo:warning=the host backend alone is built, for another machine than this one; the \
             feature `nccl` or TRIBUTARY_NCCL=ON asks for the other"
        );
        return Ok("OFF".into());
    }
    Ok(said.unwrap_or_else(|| "AUTO".into()))
}

/// All arguments; CMake would remember those left out.
fn arguments(folders: &Folders, target: &Target, nccl: &str) -> Vec<String> {
    let sanitizers = env::var("TRIBUTARY_SANITIZE").unwrap_or_default();
    let mut arguments: Vec<String> = [
        "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_INSTALL_LIBDIR=lib",
        "-DCMAKE_INSTALL_INCLUDEDIR=include",
        "-DBUILD_SHARED_LIBS=OFF",
        "-DTRIBUTARY_TESTS=OFF",
        "-DTRIBUTARY_BENCHES=OFF",
    ]
    .map(String::from)
    .into();
    arguments.push(format!("-DCMAKE_INSTALL_PREFIX={}", folders.prefix.display()));
    arguments.push(format!("-DTRIBUTARY_NCCL={nccl}"));
    arguments.push(format!("-DTRIBUTARY_SANITIZE={sanitizers}"));
    if let Ok(architectures) = env::var("CMAKE_CUDA_ARCHITECTURES") {
        arguments.push(format!("-DCMAKE_CUDA_ARCHITECTURES={architectures}"));
    }
    arguments.extend(target.definitions.iter().cloned());
    if env::var_os("CMAKE_GENERATOR").is_none() && !runs("make") && runs("ninja") {
        arguments.extend(["-G".into(), "Ninja".into()]);
    }
    arguments
}

/// Configures, and returns what CMake prints. First removes a tree of other settings, or of another
/// checkout that shares the target folder; then one that CMake refuses.
fn configure(folders: &Folders, target: &Target, nccl: &str) -> Result<String> {
    let arguments = arguments(folders, target, nccl);
    let settings = settings(&arguments, target);
    if fs::read_to_string(&folders.settings).ok().as_ref() != Some(&settings) {
        wipe(folders)?;
    }
    let mut command = cmake();
    command.arg("-S").arg(&folders.source).arg("-B").arg(&folders.tree).args(&arguments);
    command.envs(target.variables.iter().map(|(name, value)| (name, value)));
    let left = folders.tree.join("CMakeCache.txt").is_file();
    let what = "configuring the C library";
    let mut summary = run_tool(&mut command, what);
    if left && summary.is_err() {
        wipe(folders)?;
        summary = run_tool(&mut command, what);
    }
    fs::write(&folders.settings, settings)?;
    summary
}

/// Everything that the tree depends on, one line each.
fn settings(arguments: &[String], target: &Target) -> String {
    let environment = ENVIRONMENT
        .iter()
        .filter_map(|name| env::var(name).ok().map(|value| format!("{name}={value}")));
    let compiler = target.variables.iter().map(|(name, value)| format!("{name}={value}"));
    let lines: Vec<String> = arguments.iter().cloned().chain(environment).chain(compiler).collect();
    lines.join("\n")
}

fn wipe(folders: &Folders) -> Result<()> {
    for path in [&folders.tree, &folders.prefix] {
        if path.exists() {
            fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}

/// The reason from CMake why the requested nccl backend cannot be built, and the remedy.
fn remedy(complaints: &str) -> Option<String> {
    let text = complaints.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, rest) = text.split_once("TRIBUTARY_NCCL=")?;
    let (_, why) = rest.split_once(", but ")?;
    let why = why.split(" Call Stack").next().unwrap_or(why);
    Some(format!(
        "the build requires the backend nccl (feature `nccl` or TRIBUTARY_NCCL), which cannot be \
         built: {why}. It needs a CUDA compiler, 12 or newer, and NCCL, 2.22 or newer: of the \
         system, by CUDA_HOME and NCCL_HOME, or of an active Python environment with the wheels \
         nvidia-cuda-nvcc and nvidia-nccl-cu13. The backend host needs none of them: \
         build without the feature `nccl`, and without TRIBUTARY_NCCL=ON"
    ))
}

fn compile(folders: &Folders) -> Result<()> {
    let mut compile = cmake();
    compile.arg("--build").arg(&folders.tree).args(["--config", "Release"]);
    compile.args(["--parallel", &env::var("NUM_JOBS").unwrap_or_else(|_| "1".into())]);
    run_tool(&mut compile, "compiling the C library")?;
    let mut install = cmake();
    install.arg("--install").arg(&folders.tree).args(["--config", "Release"]);
    run_tool(&mut install, "installing the C library")?;
    Ok(())
}

fn finish(folders: &Folders) -> Result<()> {
    println!("cargo:root={}", folders.prefix.display());
    println!("cargo:include={}", folders.prefix.join("include").display());
    let library = folders.prefix.join("lib");
    let private = link::field(&library.join("pkgconfig/tributary.pc"), "Libs.private:")?;
    link::statically(&library, &private)?;
    link::sanitizers();
    Ok(())
}

fn cmake() -> Command {
    Command::new(env::var_os("CMAKE").unwrap_or_else(|| "cmake".into()))
}

/// Whether a program of this name runs.
fn runs(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Runs `command` and returns its output, which cargo shows if the build fails.
fn run_tool(command: &mut Command, what: &str) -> Result<String> {
    let output = command.output().map_err(|error| {
        format!(
            "{what} needs CMake 3.25 or newer and a C compiler; {:?} cannot be run: {error}",
            command.get_program()
        )
    })?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    eprintln!("{complaints}");
    if !output.status.success() {
        let failed = format!("{what} failed ({}); its messages are above", output.status);
        return Err(remedy(&complaints).unwrap_or(failed).into());
    }
    Ok(said)
}

/// Warns that the host backend alone is built, although nobody asked for that, and why.
fn say_what_is_missing(summary: &str) {
    for line in summary.lines() {
        if let Some((_, why)) = line.split_once("backend nccl: not built: ") {
            println!(
                "cargo:warning=the host backend alone is built: {why}; TRIBUTARY_NCCL=OFF silences \
                 this, and the feature `nccl` makes it an error"
            );
        }
    }
}

/// Rebuilds when a file below `path` changes. Watches folders too, for new and removed files.
fn watch(path: &Path) -> Result<()> {
    println!("cargo:rerun-if-changed={}", path.display());
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            watch(&entry?.path())?;
        }
    }
    Ok(())
}
