//! The flight recorder's dumps.
//!
//! The recorder keeps the newest 256 calls of each rank. A dump is a JSON file with those of every
//! open communicator of the process. The program `tributary-blame` reads the dumps of several
//! processes and says which rank is to blame for a hang, and why.

use std::path::Path;
use std::ptr;

use tributary_sys as sys;

use crate::error::{c_string, check, Result};

/// Writes a dump to `path` now.
///
/// ```
/// use tributary::{dump, Group, Options};
/// let group = Group::with_options(2, &Options::new().backend("host"))?;
/// let path = std::env::temp_dir().join(format!("dump-{}.json", std::process::id()));
/// dump::write(&path)?;
/// assert!(std::fs::read_to_string(&path).unwrap().contains("\"reason\": \"request\""));
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), tributary::Error>(())
/// ```
pub fn write(path: impl AsRef<Path>) -> Result<()> {
    let path = c_string("path", &path.as_ref().to_string_lossy())?;
    // SAFETY: the string lives through the call. "Any thread."
    check(unsafe { sys::trib_dump(path.as_ptr()) })
}

/// Writes a dump whenever a communicator ends by a deadline, an abort or a failure, from now on: to
/// `prefix` followed by `HOST-PROCESS-N.json`, at most 16 times. Initially the prefix is the value
/// of `TRIBUTARY_DUMP` in the environment.
pub fn set(prefix: &str) -> Result<()> {
    let prefix = c_string("prefix", prefix)?;
    // SAFETY: the string is copied. "Any thread."
    check(unsafe { sys::trib_dump_set(prefix.as_ptr()) })
}

/// Writes no more dumps but those of [`write()`].
pub fn off() -> Result<()> {
    // SAFETY: "NULL or "": none". "Any thread."
    check(unsafe { sys::trib_dump_set(ptr::null()) })
}
