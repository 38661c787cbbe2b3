//! The debug switch: where things are.
//!
//! While it is on, the [log](crate::log) tells at [`Level::Info`](crate::log::Level::Info) where each
//! new communicator and sparse state is, and of each block of memory that the library allocates or
//! frees on a device its bytes, its address and its owner. [Dumps](crate::dump) list all blocks.
//! Nothing is logged per call.
//!
//! # NVTX
//!
//! With `TRIBUTARY_NVTX=1` in the environment, calls are NVTX ranges on the thread that queues them,
//! which Nsight Systems shows; the C header describes them.

use tributary_sys as sys;

use crate::error::{check, Result};

/// Switches it on or off. Initially it is on if `TRIBUTARY_DEBUG` is set in the environment, and
/// neither empty nor `0`.
///
/// ```
/// use tributary::{debug, dump, Group, Options};
/// debug::set(true)?;
/// let group = Group::with_options(2, &Options::new().backend("host"))?;
/// let path = std::env::temp_dir().join(format!("debug-{}.json", std::process::id()));
/// dump::write(&path)?;
/// assert!(std::fs::read_to_string(&path).unwrap().contains("\"blocks\": []"));
/// # std::fs::remove_file(&path).unwrap();
/// debug::set(false)?;
/// # Ok::<(), tributary::Error>(())
/// ```
pub fn set(on: bool) -> Result<()> {
    // SAFETY: "Any thread."
    check(unsafe { sys::trib_debug_set(i32::from(on)) })
}
