//! Finds or builds the C library; the crate's documentation lists what it reads.
//! Standard library only: a build script that needs other crates is a burden on every dependent.

#[cfg(feature = "bindgen")]
#[path = "build/bindings.rs"]
mod bindings;
#[path = "build/installed.rs"]
mod installed;
#[path = "build/link.rs"]
mod link;
#[path = "build/sources.rs"]
mod sources;
#[path = "build/target.rs"]
mod target;

use std::env;
use std::error::Error;
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The variables that decide where the library is taken from. `sources.rs` lists those of CMake.
const ENVIRONMENT: &[&str] = &[
    "DOCS_RS",
    "TRIBUTARY_LIB_DIR",
    "TRIBUTARY_INCLUDE_DIR",
    "TRIBUTARY_USE_PKG_CONFIG",
    "TRIBUTARY_STATIC",
    "PKG_CONFIG",
    "PKG_CONFIG_PATH",
    "PKG_CONFIG_LIBDIR",
    "PKG_CONFIG_SYSROOT_DIR",
];

/// Public for the test that drives this file.
pub fn main() {
    if let Err(error) = run() {
        // Cargo shows all output of a failed build script; people read its last lines.
        eprintln!("\ntributary-sys: {error}\n");
        std::process::exit(1);
    }
}

fn run() -> Result<()> {
    for name in ENVIRONMENT {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");

    #[cfg(feature = "bindgen")]
    bindings::write()?;

    if env::var_os("DOCS_RS").is_some() {
        return Ok(());
    }
    if let Some(folder) = env::var_os("TRIBUTARY_LIB_DIR") {
        return installed::in_folder(Path::new(&folder));
    }
    if is_on("TRIBUTARY_USE_PKG_CONFIG") || has_feature("SYSTEM") {
        return installed::by_pkg_config();
    }
    sources::build()
}

fn is_on(name: &str) -> bool {
    env::var(name).is_ok_and(|value| !value.is_empty() && value != "0")
}

/// `name`: in capitals, as cargo writes it.
fn has_feature(name: &str) -> bool {
    env::var_os(format!("CARGO_FEATURE_{name}")).is_some()
}
