//! Arguments of the linker.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::Result;

/// The text after `name` in a pkg-config file. CMake wrote the file, so `Libs.private:`, the
/// dependencies of a static library, names NCCL and the CUDA runtime, with their folders, exactly
/// if they were built in.
pub fn field(description: &Path, name: &str) -> Result<String> {
    println!("cargo:rerun-if-changed={}", description.display());
    let text = fs::read_to_string(description)
        .map_err(|error| format!("{} cannot be read: {error}", description.display()))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.unwrap_or_default().trim().to_owned())
}

/// Links an installed library: the form that TRIBUTARY_STATIC names, or else the shared one if
/// there is one.
pub fn installed(folder: &Path, private: &str) -> Result<()> {
    println!("cargo:libdir={}", folder.display());
    let has = |name: &str| folder.join(name).is_file();
    let shared = has("libtributary.so") || has("libtributary.dylib");
    let asked = env::var("TRIBUTARY_STATIC").ok().filter(|value| !value.is_empty());
    let wants_static = asked.as_ref().map_or(!shared, |value| value != "0");
    if wants_static && has("libtributary.a") {
        return statically(folder, private);
    }
    if wants_static || !shared {
        return Err(missing(folder, asked.as_deref()).into());
    }
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=dylib=tributary");
    find_when_run(folder, "libtributary")
}

/// The error if the form that TRIBUTARY_STATIC, `asked`, names is missing.
fn missing(folder: &Path, asked: Option<&str>) -> String {
    let folder = folder.display();
    match asked {
        None => format!(
            "there is no libtributary in {folder}, neither shared nor static; name the folder that \
             holds it, such as lib or lib64 below the prefix of its installation"
        ),
        Some(asked) => format!(
            "there is no {} libtributary in {folder}, and TRIBUTARY_STATIC={asked} asks for it; cmake \
             -DBUILD_SHARED_LIBS=ON makes and installs the shared library, OFF the static one",
            if asked == "0" { "shared" } else { "static" },
        ),
    }
}

/// Links libtributary.a in `folder` and its dependencies `private`.
pub fn statically(folder: &Path, private: &str) -> Result<()> {
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=static=tributary");
    for word in private.split_whitespace() {
        if let Some(path) = word.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={path}");
        } else if let Some(name) = word.strip_prefix("-l") {
            library(name);
        } else if word.starts_with('/') {
            file(Path::new(word))?;
        }
        // Anything else (-pthread) is an option of a compiler driver that Rust's linker line has.
    }
    Ok(())
}

/// `name` as after `-l`: a leading colon means that it is a file name (`:libnccl.so.2`).
fn library(name: &str) {
    match name.strip_prefix(':') {
        _ if name == "tributary" => {}
        Some(file) if file.ends_with(".a") => {
            println!("cargo:rustc-link-lib=static:+verbatim={file}");
        }
        Some(file) => println!("cargo:rustc-link-lib=dylib:+verbatim={file}"),
        None => println!("cargo:rustc-link-lib=dylib={name}"),
    }
}

/// Links a library by its path.
fn file(path: &Path) -> Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str()))
    else {
        return Err(format!("{} is not a library", path.display()).into());
    };
    println!("cargo:rustc-link-search=native={}", folder.display());
    library(&format!(":{name}"));
    match name.split_once(".so") {
        Some((stem, _)) => find_when_run(folder, stem),
        None => Ok(()),
    }
}

/// Links a shared library through OUT_DIR as well. Cargo puts such folders into the search path of
/// the programs it runs, so `cargo run` and `cargo test` find a library outside the system's
/// folders.
fn find_when_run(folder: &Path, stem: &str) -> Result<()> {
    let near = PathBuf::from(env::var("OUT_DIR")?).join("near");
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

/// Links the run-time libraries of the C library's sanitizers, for its own tests. If rustc itself
/// sanitizes, it links one that serves both; a program with two of them does not start.
pub fn sanitizers() {
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
