//! The target and compiler for CMake, which by itself would compile for the machine it runs on.

use std::env;
use std::path::Path;

use super::Result;

/// Variables that name compilers, as in the cc crate; the form with the target's name is read
/// first.
const COMPILER: &[&str] = &["CC", "CFLAGS", "AR", "RANLIB", "CMAKE_TOOLCHAIN_FILE"];

/// The arguments and environment of CMake for cargo's target.
#[derive(Default)]
pub struct Target {
    /// Whether it is another machine than this one.
    pub foreign: bool,
    /// `-D...`
    pub definitions: Vec<String>,
    /// For CMake's environment.
    pub variables: Vec<(&'static str, String)>,
}

/// All variables that may give `name` for this target, the most specific first.
fn names(name: &str, target: &str, foreign: bool) -> Vec<String> {
    let mut names =
        vec![format!("{name}_{target}"), format!("{name}_{}", target.replace('-', "_"))];
    names.push(format!("{}_{name}", if foreign { "TARGET" } else { "HOST" }));
    if !foreign || name == "CMAKE_TOOLCHAIN_FILE" {
        names.push(name.to_owned()); // elsewhere it is this machine's
    }
    names
}

/// Reads the target from the environment, and watches its variables.
pub fn target() -> Result<Target> {
    let (target, host) = (env::var("TARGET")?, env::var("HOST")?);
    let mut found = Target { foreign: target != host, ..Target::default() };
    for &variable in COMPILER {
        let names = names(variable, &target, found.foreign);
        names.iter().for_each(|name| println!("cargo:rerun-if-env-changed={name}"));
        if let Some(value) = names.iter().find_map(|name| env::var(name).ok()) {
            found.variables.push((variable, value));
        }
    }
    let has = |name: &str| found.variables.iter().any(|(variable, _)| *variable == name);
    if found.foreign && !has("CMAKE_TOOLCHAIN_FILE") {
        if !has("CC") {
            return Err(refusal(&target, &host).into());
        }
        found.definitions = system()?;
    }
    for (variable, value) in &found.variables {
        match *variable {
            "AR" | "RANLIB" => {
                found.definitions.push(format!("-DCMAKE_{variable}={}", whole(value)))
            }
            _ => {}
        }
    }
    Ok(found)
}

/// The path of a tool, which CMake requires.
fn whole(tool: &str) -> String {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join(tool)).find(|file| file.is_file());
    match found {
        Some(file) if Path::new(tool).components().count() == 1 => file.display().to_string(),
        _ => tool.to_owned(),
    }
}

fn refusal(target: &str, host: &str) -> String {
    let name = target.replace('-', "_");
    format!(
        "this is {host}, and the C library is to be built for {target}: name a C compiler for it in \
         CC_{name}, or a file for CMake in CMAKE_TOOLCHAIN_FILE_{name}; or link a library that was \
         built for it, with TRIBUTARY_LIB_DIR"
    )
}

/// The system and processor by CMake's names.
fn system() -> Result<Vec<String>> {
    let (os, processor) = (env::var("CARGO_CFG_TARGET_OS")?, env::var("CARGO_CFG_TARGET_ARCH")?);
    let system = match os.as_str() {
        "linux" => "Linux",
        "android" => "Android",
        "freebsd" => "FreeBSD",
        "macos" => "Darwin",
        other => other,
    };
    Ok(vec![
        format!("-DCMAKE_SYSTEM_NAME={system}"),
        format!("-DCMAKE_SYSTEM_PROCESSOR={processor}"),
    ])
}
