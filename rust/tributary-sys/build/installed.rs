//! Links an installed library.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{has_feature, link, Result};

/// Links the library in `folder`, which holds `pkgconfig/tributary.pc` after a usual installation.
pub fn in_folder(folder: &Path) -> Result<()> {
    if let Some(include) = env::var_os("TRIBUTARY_INCLUDE_DIR") {
        println!("cargo:include={}", Path::new(&include).display());
    }
    let description = folder.join("pkgconfig/tributary.pc");
    let (mut private, mut backends) = (String::new(), String::new());
    if description.is_file() {
        private = link::field(&description, "Libs.private:")?;
        backends = link::field(&description, "backends=")?;
    }
    check_backends(&backends, &folder.display().to_string())?;
    link::installed(folder, &private)
}

/// Links the library that pkg-config finds. Fails if it has another version.
pub fn by_pkg_config() -> Result<()> {
    let found = pkg_config(&["--modversion"])?;
    let wanted = env::var("CARGO_PKG_VERSION")?;
    if found != wanted {
        return Err(format!(
            "pkg-config found libtributary {found}, but this crate is for {wanted}; install that \
             version, or leave the feature `system` (TRIBUTARY_USE_PKG_CONFIG) away to build the \
             library from this crate"
        )
        .into());
    }
    println!("cargo:include={}", pkg_config(&["--variable=includedir"])?);
    let folder = PathBuf::from(pkg_config(&["--variable=libdir"])?);
    check_backends(&pkg_config(&["--variable=backends"])?, &folder.display().to_string())?;
    link::installed(&folder, &pkg_config(&["--static", "--libs"])?)
}

fn pkg_config(arguments: &[&str]) -> Result<String> {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let output =
        Command::new(&program).args(arguments).arg("tributary").output().map_err(|error| {
            format!(
            "{} cannot be run ({error}), and an installed libtributary is to be found with it; \
             install it, or set TRIBUTARY_LIB_DIR to the folder of the library",
            program.to_string_lossy()
        )
        })?;
    if !output.status.success() {
        return Err(format!(
            "the build requires an installed library (feature `system` or \
             TRIBUTARY_USE_PKG_CONFIG), but pkg-config knows no libtributary. Install it (cmake \
             --preset release && cmake --build --preset release && cmake --install build/release) \
             and name the folder of tributary.pc in PKG_CONFIG_PATH (PREFIX/lib/pkgconfig), or set \
             TRIBUTARY_LIB_DIR. It said: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )
        .into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Fails if the feature `nccl` is set and the library lacks that backend.
fn check_backends(backends: &str, place: &str) -> Result<()> {
    if !has_feature("NCCL") || backends.split_whitespace().any(|name| name == "nccl") {
        return Ok(());
    }
    Err(format!(
        "the feature `nccl` asks for that backend, but the library in {place} was installed without \
         it (it says: \"{backends}\"); install one that was built with -DTRIBUTARY_NCCL=ON, or \
         leave the feature away"
    )
    .into())
}
