//! Finds or builds the C library; the crate's documentation has the table of what is looked at.
//! Standard library only: a build script that needs other crates is a burden on every dependent.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What decides between the ways to get the library, and what CMake reads.
const ENVIRONMENT: &[&str] = &[
    "TRIBUTARY_LIB_DIR",
    "TRIBUTARY_INCLUDE_DIR",
    "TRIBUTARY_USE_PKG_CONFIG",
    "TRIBUTARY_STATIC",
    "TRIBUTARY_NCCL",
    "TRIBUTARY_SANITIZE",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDACXX",
    "NCCL_ROOT",
    "NCCL_HOME",
    "CMAKE_CUDA_ARCHITECTURES",
    "CMAKE",
    "PKG_CONFIG",
    "PKG_CONFIG_PATH",
    "DOCS_RS",
];

const SOURCES: &[&str] = &["CMakeLists.txt", "include", "csrc", "kernels"];

fn main() {
    if let Err(error) = run() {
        // Cargo shows the whole output of a failed build script; the last lines are what is read.
        eprintln!("\ntributary-sys: {error}\n");
        std::process::exit(1);
    }
}

fn run() -> Result<()> {
    for name in ENVIRONMENT {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");

    #[cfg(feature = "bindgen")]
    generate::bindings()?;

    if env::var_os("DOCS_RS").is_some() {
        return Ok(());
    }
    if let Some(folder) = env::var_os("TRIBUTARY_LIB_DIR") {
        return use_folder(Path::new(&folder));
    }
    if is_on("TRIBUTARY_USE_PKG_CONFIG") {
        return use_pkg_config();
    }
    build()
}

/// A library that somebody built: the folder holds it, and `pkgconfig/tributary.pc` where it was
/// installed in the usual way.
fn use_folder(folder: &Path) -> Result<()> {
    if let Some(include) = env::var_os("TRIBUTARY_INCLUDE_DIR") {
        println!("cargo:include={}", Path::new(&include).display());
    }
    let description = folder.join("pkgconfig/tributary.pc");
    let private = if description.is_file() { libs_private(&description)? } else { String::new() };
    link(folder, &private)
}

/// An installed library, if it has exactly this version: a stale one is never taken silently.
fn use_pkg_config() -> Result<()> {
    let found = pkg_config(&["--modversion"])?;
    let wanted = env::var("CARGO_PKG_VERSION")?;
    if found != wanted {
        return Err(format!(
            "pkg-config found libtributary {found}, but this crate is for {wanted}; install that \
             version, or unset TRIBUTARY_USE_PKG_CONFIG to build the library from this crate"
        )
        .into());
    }
    println!("cargo:include={}", pkg_config(&["--variable=includedir"])?);
    let folder = PathBuf::from(pkg_config(&["--variable=libdir"])?);
    link(&folder, &pkg_config(&["--static", "--libs"])?)
}

fn pkg_config(arguments: &[&str]) -> Result<String> {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let output = Command::new(&program)
        .args(arguments)
        .arg("tributary")
        .output()
        .map_err(|error| format!("{} cannot be run: {error}", program.to_string_lossy()))?;
    if !output.status.success() {
        return Err(format!(
            "TRIBUTARY_USE_PKG_CONFIG is set, but pkg-config does not know libtributary: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )
        .into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Build the sources that come with this crate into OUT_DIR.
fn build() -> Result<()> {
    let source = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    for path in SOURCES {
        watch(&source.join(path))?;
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let (tree, prefix) = (out.join("build"), out.join("install"));

    let mut configure = cmake();
    configure.arg("-S").arg(&source).arg("-B").arg(&tree).args([
        "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_INSTALL_LIBDIR=lib",
        "-DCMAKE_INSTALL_INCLUDEDIR=include",
        "-DBUILD_SHARED_LIBS=OFF",
        "-DTRIBUTARY_TESTS=OFF",
        "-DTRIBUTARY_BENCHES=OFF",
    ]);
    configure.arg(format!("-DCMAKE_INSTALL_PREFIX={}", prefix.display()));
    for name in ["TRIBUTARY_NCCL", "TRIBUTARY_SANITIZE", "CMAKE_CUDA_ARCHITECTURES"] {
        if let Ok(value) = env::var(name) {
            configure.arg(format!("-D{name}={value}"));
        }
    }
    if env::var_os("CMAKE_GENERATOR").is_none() && !runs("make") && runs("ninja") {
        configure.args(["-G", "Ninja"]);
    }
    let summary = configured(&mut configure, &tree)?;
    if env::var_os("TRIBUTARY_NCCL").is_none() {
        say_what_is_missing(&summary);
    }

    let mut compile = cmake();
    compile.arg("--build").arg(&tree).args(["--config", "Release"]);
    compile.args(["--parallel", &env::var("NUM_JOBS").unwrap_or_else(|_| "1".into())]);
    run_tool(&mut compile, "compiling the C library")?;
    let mut install = cmake();
    install.arg("--install").arg(&tree).args(["--config", "Release"]);
    run_tool(&mut install, "installing the C library")?;

    println!("cargo:root={}", prefix.display());
    println!("cargo:include={}", prefix.join("include").display());
    let folder = prefix.join("lib");
    let private = libs_private(&folder.join("pkgconfig/tributary.pc"))?;
    link(&folder, &private)?;
    link_sanitizers();
    Ok(())
}

/// Configure. What an earlier build left in `tree` may be of another checkout that shares the target
/// folder, or of another generator; CMake refuses to go on from there, so it begins anew.
fn configured(configure: &mut Command, tree: &Path) -> Result<String> {
    let what = "configuring the C library";
    let left = tree.join("CMakeCache.txt").is_file();
    match run_tool(configure, what) {
        Err(_) if left => {
            fs::remove_dir_all(tree)?;
            run_tool(configure, what)
        }
        result => result,
    }
}

/// The run-time libraries of the sanitizers that the C library was compiled with, for its own tests.
/// Where rustc itself sanitizes, it links a run-time library that serves both, and two of them in one
/// program do not start.
fn link_sanitizers() {
    if env::var_os("CARGO_CFG_SANITIZE").is_some() {
        return;
    }
    let sanitizers = env::var("TRIBUTARY_SANITIZE").unwrap_or_default();
    for sanitizer in sanitizers.split([',', ';']) {
        match sanitizer {
            "address" => println!("cargo:rustc-link-lib=dylib=asan"),
            "thread" => println!("cargo:rustc-link-lib=dylib=tsan"),
            "undefined" => println!("cargo:rustc-link-lib=dylib=ubsan"),
            _ => {}
        }
    }
}

fn cmake() -> Command {
    Command::new(env::var_os("CMAKE").unwrap_or_else(|| "cmake".into()))
}

/// Does a program of this name answer?
fn runs(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Run, and give back what it printed, which cargo shows if the build fails.
fn run_tool(command: &mut Command, what: &str) -> Result<String> {
    let output = command.output().map_err(|error| {
        format!(
            "{what} needs CMake 3.25 or newer and a C compiler; {:?} cannot be run: {error}",
            command.get_program()
        )
    })?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{said}");
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(format!("{what} failed ({}); its messages are above", output.status).into());
    }
    Ok(said)
}

/// Nobody asked for one backend alone: say it, and why.
fn say_what_is_missing(summary: &str) {
    for line in summary.lines() {
        if let Some((_, why)) = line.split_once("backend nccl: not built: ") {
            println!(
                "cargo:warning=the host backend alone is built: {why}; TRIBUTARY_NCCL=OFF silences \
                 this"
            );
        }
    }
}

/// Rebuild when a file below `path` changes. Folders are named too, for files that come and go.
fn watch(path: &Path) -> Result<()> {
    println!("cargo:rerun-if-changed={}", path.display());
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            watch(&entry?.path())?;
        }
    }
    Ok(())
}

/// The `Libs.private` line: what a static library needs beside itself. CMake wrote it, so it names
/// NCCL and the CUDA runtime exactly if they were built in, and where they are.
fn libs_private(description: &Path) -> Result<String> {
    println!("cargo:rerun-if-changed={}", description.display());
    let text = fs::read_to_string(description)
        .map_err(|error| format!("{} cannot be read: {error}", description.display()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Libs.private:"));
    Ok(line.unwrap_or_default().trim().to_owned())
}

/// Link the library in `folder`, and what a linker line says beside it.
fn link(folder: &Path, private: &str) -> Result<()> {
    println!("cargo:rustc-link-search=native={}", folder.display());
    if env::var("TRIBUTARY_STATIC").as_deref() == Ok("0") {
        println!("cargo:rustc-link-lib=dylib=tributary");
        return Ok(());
    }
    println!("cargo:rustc-link-lib=static=tributary");
    for word in private.split_whitespace() {
        if let Some(path) = word.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={path}");
        } else if let Some(name) = word.strip_prefix("-l") {
            link_library(name);
        } else if word.starts_with('/') {
            link_file(Path::new(word))?;
        }
        // Anything else (-pthread) is an option of a compiler driver that Rust's linker line has.
    }
    Ok(())
}

/// `name` as after `-l`: a leading colon means that it is a file name (`:libnccl.so.2`).
fn link_library(name: &str) {
    match name.strip_prefix(':') {
        _ if name == "tributary" => {}
        Some(file) if file.ends_with(".a") => {
            println!("cargo:rustc-link-lib=static:+verbatim={file}");
        }
        Some(file) => println!("cargo:rustc-link-lib=dylib:+verbatim={file}"),
        None => println!("cargo:rustc-link-lib=dylib={name}"),
    }
}

/// A library by its path. One that the loader will look for is linked through OUT_DIR as well: cargo
/// puts such folders into the search path of what it runs, so that `cargo run` and `cargo test` find
/// an NCCL that is not where the system's libraries are.
fn link_file(path: &Path) -> Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str()))
    else {
        return Err(format!("{} is not a library", path.display()).into());
    };
    println!("cargo:rustc-link-search=native={}", folder.display());
    link_library(&format!(":{name}"));
    let Some((stem, _)) = name.split_once(".so") else { return Ok(()) };
    let near = PathBuf::from(env::var("OUT_DIR")?).join("engine");
    fs::create_dir_all(&near)?;
    println!("cargo:rustc-link-search=native={}", near.display());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&format!("{stem}.so")) {
            let link = near.join(entry.file_name());
            if link.symlink_metadata().is_ok() {
                fs::remove_file(&link)?;
            }
            #[cfg(unix)]
            std::os::unix::fs::symlink(entry.path(), link)?;
        }
    }
    Ok(())
}

fn is_on(name: &str) -> bool {
    env::var(name).is_ok_and(|value| !value.is_empty() && value != "0")
}

#[cfg(feature = "bindgen")]
mod generate {
    use super::{env, Path, PathBuf, Result};

    /// The anonymous enums of the header, each known by its first constant, and the type that its
    /// constants get: C gives them all `int`, the functions take the newtypes.
    const ENUMS: &[(&str, &str)] = &[
        ("TRIB_OK", "trib_status"),
        ("TRIB_F16", "trib_dtype"),
        ("TRIB_SUM", "trib_op"),
        ("TRIB_UNCHECKED", "u32"),
        ("TRIB_CALL_FACTOR", "u32"),
        ("TRIB_SPARSE_AVERAGE", "u32"),
        ("TRIB_LOG_ERROR", "i32"),
    ];

    /// Write OUT_DIR/bindings.rs.
    pub fn bindings() -> Result<()> {
        let header = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("include/tributary.h");
        println!("cargo:rerun-if-changed={}", header.display());
        let generated = bindgen::Builder::default()
            .header(header.to_str().ok_or("the path of the header is not UTF-8")?)
            .allowlist_item("(trib|TRIB)_.*")
            .new_type_alias("trib_(status|dtype|op)")
            .derive_eq(true)
            .derive_hash(true)
            .prepend_enum_name(false)
            .default_macro_constant_type(bindgen::MacroTypeVariation::Unsigned)
            .use_core()
            .merge_extern_blocks(true)
            .sort_semantically(false)
            .rust_target(bindgen::RustTarget::stable(77, 0).map_err(|error| error.to_string())?)
            .disable_header_comment()
            .raw_line("// Made from include/tributary.h by bindings.sh; do not edit.")
            .generate()?
            .to_string();
        let path = PathBuf::from(env::var("OUT_DIR")?).join("bindings.rs");
        std::fs::write(path, typed(&generated)?)?;
        Ok(())
    }

    /// Give the constants of the anonymous enums the types of ENUMS.
    fn typed(generated: &str) -> Result<String> {
        // In C, a comment behind what it describes begins with a mark that rustdoc does not know.
        let generated = generated.replace("#[doc = \"< ", "#[doc = \" ");
        let mut out = String::with_capacity(generated.len());
        let mut current = ("", "");
        for line in generated.lines() {
            if line.starts_with("pub type _bindgen_ty_") {
                continue;
            }
            let Some((name, alias, value)) = anonymous(line) else {
                out += line;
                out += "\n";
                continue;
            };
            if current.0 != alias {
                let (_, kind) =
                    ENUMS.iter().find(|(first, _)| *first == name).ok_or_else(|| {
                        format!("no type is known for the enum that begins with {name}")
                    })?;
                current = (alias, kind);
            }
            out += &match current.1 {
                kind if kind.starts_with("trib_") => {
                    format!("pub const {name}: {kind} = {kind}({value});\n")
                }
                kind => format!("pub const {name}: {kind} = {value};\n"),
            };
        }
        Ok(out)
    }

    /// The parts of `pub const NAME: _bindgen_ty_N = VALUE;`
    fn anonymous(line: &str) -> Option<(&str, &str, &str)> {
        let (name, rest) = line.strip_prefix("pub const ")?.split_once(": ")?;
        let (alias, value) = rest.strip_suffix(';')?.split_once(" = ")?;
        alias.starts_with("_bindgen_ty_").then_some((name, alias, value))
    }
}
