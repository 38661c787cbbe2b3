//! Aborting a communicator from any thread.

use std::ffi::{c_char, CString};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use pyo3::prelude::*;
use tributary_sys as sys;

use crate::failure::{check, text, Outcome};
use crate::wait::{milliseconds, Seconds};

/// A reference of C, released when the last clone is dropped.
#[derive(Clone)]
pub struct Abort(Arc<Reference>);

struct Reference(NonNull<sys::trib_abort>);

// SAFETY: "an abort handle works from any thread at any time".
unsafe impl Send for Reference {}
// SAFETY: as above.
unsafe impl Sync for Reference {}

impl Drop for Reference {
    fn drop(&mut self) {
        // SAFETY: this reference is ours, and this is its last use.
        unsafe { sys::trib_abort_release(self.0.as_ptr()) };
    }
}

impl Abort {
    /// `get` writes a reference that it gives away, as trib_comm_abort_handle does.
    pub fn new(get: impl FnOnce(*mut *mut sys::trib_abort) -> sys::trib_status) -> Outcome<Abort> {
        let mut out = ptr::null_mut();
        check(get(&mut out))?;
        let out = NonNull::new(out).expect("a call that succeeds has set it");
        Ok(Abort(Arc::new(Reference(out))))
    }

    fn raw(&self) -> *mut sys::trib_abort {
        self.0 .0.as_ptr()
    }

    pub fn raise(&self, reason: &str) {
        let reason = CString::new(reason.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the reference is alive, and the reason lives through the call. It fails for a
        // NULL handle only.
        unsafe { sys::trib_abort_raise(self.raw(), reason.as_ptr()) };
    }

    pub fn is_raised(&self) -> bool {
        // SAFETY: the reference is alive. "Any thread."
        unsafe { sys::trib_abort_raised(self.raw()) != 0 }
    }

    /// Never waits.
    pub fn status(&self) -> Outcome<()> {
        // SAFETY: the reference is alive. "Any thread at any time, also after the communicator is
        // gone".
        check(unsafe { sys::trib_abort_status(self.raw()) })
    }
}

/// Aborts a communicator from any thread, at any time, also after the communicator is gone.
///
/// >>> import tributary
/// >>> group = tributary.Group(2, backend="host")
/// >>> handle = group.abort_handle()
/// >>> handle.raised()
/// False
/// >>> handle.abort("enough")
/// >>> group.status()  # doctest: +ELLIPSIS
/// Traceback (most recent call last):
///     ...
/// tributary.StateError: TRIB_ERR_ABORTED: ...: the communicator was aborted: enough
#[pyclass(frozen, module = "tributary")]
pub struct AbortHandle {
    abort: Abort,
}

impl AbortHandle {
    pub fn new(abort: Abort) -> AbortHandle {
        AbortHandle { abort }
    }
}

#[pymethods]
impl AbortHandle {
    /// Abort all ranks of the communicator: what waits ends, and later calls fail. The first
    /// `reason` is in their errors. Returns at once.
    #[pyo3(signature = (reason="aborted by an abort handle"))]
    fn abort(&self, py: Python<'_>, reason: &str) {
        py.detach(|| self.abort.raise(reason));
    }

    /// Whether the communicator was aborted or has failed.
    fn raised(&self, py: Python<'_>) -> bool {
        py.detach(|| self.abort.is_raised())
    }

    /// Raise the error that ended the communicator, if one has. Never waits.
    fn status(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.abort.status())?)
    }

    /// For `seconds` from now no late call ends the communicator: for a slow phase that one rank
    /// knows of.
    fn defer(&self, py: Python<'_>, seconds: Seconds) -> PyResult<()> {
        let ms = milliseconds("seconds", seconds)?;
        // SAFETY: the reference is alive. "Any thread."
        Ok(py.detach(|| check(unsafe { sys::trib_abort_defer(self.abort.raw(), ms) }))?)
    }

    /// How far the end of the communicator has come ("live", "aborting", "aborted", "parked" or
    /// "reclaimed"), and what the next state waits for.
    fn state(&self, py: Python<'_>) -> PyResult<(&'static str, String)> {
        let mut waits_for: [c_char; 160] = [0; 160];
        let mut state = sys::TRIB_COMM_LIVE;
        py.detach(|| {
            let (text, bytes) = (waits_for.as_mut_ptr(), waits_for.len());
            // SAFETY: the reference is alive; "a string of up to `bytes` bytes", which has room.
            check(unsafe { sys::trib_abort_state(&mut state, text, bytes, self.abort.raw()) })
        })?;
        let name = match state {
            sys::TRIB_COMM_LIVE => "live",
            sys::TRIB_COMM_ABORTING => "aborting",
            sys::TRIB_COMM_PARKED => "parked",
            sys::TRIB_COMM_RECLAIMED => "reclaimed",
            _ => "aborted", // "A newer library may have more states"
        };
        // SAFETY: the string ends inside the array, which was zeroes.
        Ok((name, unsafe { text(waits_for.as_ptr()) }))
    }
}
