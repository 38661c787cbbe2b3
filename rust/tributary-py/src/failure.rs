//! Statuses of C as Python's exceptions.

use std::ffi::CStr;

use pyo3::prelude::*;
use tributary_sys as sys;

/// A status with its detail. Made on the thread that got the status, also without the GIL.
#[derive(Clone)]
pub struct Failure {
    pub status: sys::trib_status,
    pub detail: String,
}

pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub fn new(status: sys::trib_status, detail: impl Into<String>) -> Failure {
        Failure { status, detail: detail.into() }
    }

    /// "A call that returns a status of the family "your mistake" has queued nothing and changed
    /// nothing."
    pub fn is_mistake(&self) -> bool {
        (1..10).contains(&self.status.0)
    }
}

/// The detail is the calling thread's last: call this on the thread that got `status`.
pub fn check(status: sys::trib_status) -> Outcome<()> {
    if status == sys::TRIB_OK {
        return Ok(());
    }
    // SAFETY: "Valid until the next call of this thread that fails"; it is copied at once.
    let detail = unsafe { text(sys::trib_last_detail()) };
    Err(Failure::new(status, detail))
}

/// # Safety
/// `text` is a string of C that lives through the call.
pub unsafe fn text(text: *const std::ffi::c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

pub fn argument(detail: impl Into<String>) -> Failure {
    Failure::new(sys::TRIB_ERR_INVALID_ARGUMENT, detail)
}

pub fn buffer(detail: impl Into<String>) -> Failure {
    Failure::new(sys::TRIB_ERR_INVALID_BUFFER, detail)
}

pub fn usage(detail: impl Into<String>) -> Failure {
    Failure::new(sys::TRIB_ERR_INVALID_USAGE, detail)
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        Python::attach(|py| {
            let make = || py.import("tributary._errors")?.getattr("make");
            let made = make().and_then(|make| make.call1((failure.status.0, failure.detail)));
            made.map_or_else(|error| error, PyErr::from_value)
        })
    }
}
