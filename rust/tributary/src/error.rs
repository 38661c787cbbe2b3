//! Errors.

use std::ffi::{c_char, CStr, CString};
use std::fmt;

use tributary_sys as sys;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed: a kind for the program, and a sentence for a person. The sentence names the
/// operation, its argument, rank and device, what was expected, what was found, and what to do.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    status: sys::trib_status,
    detail: Box<str>,
}

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is outside what the function accepts.
    InvalidArgument,
    /// A buffer is not memory that this rank may use in that way.
    InvalidBuffer,
    /// A stream cannot be used with this rank's device.
    InvalidStream,
    /// The call is not allowed at this point.
    InvalidUsage,
    /// This backend or build cannot do that.
    Unsupported,
    /// No backend or algorithm has that name.
    UnknownName,
    /// The ranks did not make the same call.
    Mismatch,
    /// A gradient holds infinities or NaNs; nothing was changed.
    NonFinite,
    /// The communicator was aborted, or had been ended by a mistake; see [`Error::is_aborted`].
    Aborted,
    /// The communicator is closed.
    Closed,
    /// A deadline passed.
    Timeout,
    /// Memory could not be allocated.
    OutOfMemory,
    /// There is no such device.
    NoDevice,
    /// A CUDA call failed.
    Cuda,
    /// An NCCL call failed.
    Nccl,
    /// An operating system call failed.
    System,
    /// A defect in Tributary; please report it.
    Internal,
    /// This version of the crate does not know the status; see [`Error::status`].
    Other,
}

impl Error {
    /// The error of this thread's last call, which returned `status`.
    #[cold]
    pub(crate) fn last(status: sys::trib_status) -> Error {
        // SAFETY: "Explanation of the calling thread's last failure [...] Valid until the next call of
        // this thread that fails": it is copied before there can be one.
        let detail = unsafe { CStr::from_ptr(sys::trib_last_detail()) };
        Error { status, detail: detail.to_string_lossy().into() }
    }

    #[cold]
    pub(crate) fn new(status: sys::trib_status, detail: impl Into<Box<str>>) -> Error {
        Error { status, detail: detail.into() }
    }

    #[cold]
    pub(crate) fn argument(detail: impl Into<Box<str>>) -> Error {
        Error::new(sys::TRIB_ERR_INVALID_ARGUMENT, detail)
    }

    #[cold]
    pub(crate) fn buffer(detail: impl Into<Box<str>>) -> Error {
        Error::new(sys::TRIB_ERR_INVALID_BUFFER, detail)
    }

    /// Adds a consequence to the detail.
    #[cold]
    pub(crate) fn with(self, consequence: &str) -> Error {
        Error::new(self.status, format!("{}; {consequence}", self.detail))
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        match self.status {
            sys::TRIB_ERR_INVALID_ARGUMENT => ErrorKind::InvalidArgument,
            sys::TRIB_ERR_INVALID_BUFFER => ErrorKind::InvalidBuffer,
            sys::TRIB_ERR_INVALID_STREAM => ErrorKind::InvalidStream,
            sys::TRIB_ERR_INVALID_USAGE => ErrorKind::InvalidUsage,
            sys::TRIB_ERR_UNSUPPORTED => ErrorKind::Unsupported,
            sys::TRIB_ERR_UNKNOWN_NAME => ErrorKind::UnknownName,
            sys::TRIB_ERR_MISMATCH => ErrorKind::Mismatch,
            sys::TRIB_ERR_NON_FINITE => ErrorKind::NonFinite,
            sys::TRIB_ERR_ABORTED => ErrorKind::Aborted,
            sys::TRIB_ERR_CLOSED => ErrorKind::Closed,
            sys::TRIB_ERR_TIMEOUT => ErrorKind::Timeout,
            sys::TRIB_ERR_OUT_OF_MEMORY => ErrorKind::OutOfMemory,
            sys::TRIB_ERR_NO_DEVICE => ErrorKind::NoDevice,
            sys::TRIB_ERR_CUDA => ErrorKind::Cuda,
            sys::TRIB_ERR_NCCL => ErrorKind::Nccl,
            sys::TRIB_ERR_SYSTEM => ErrorKind::System,
            sys::TRIB_ERR_INTERNAL => ErrorKind::Internal,
            _ => ErrorKind::Other,
        }
    }

    /// Returns the number of the C API's status, for logs and for statuses newer than this crate.
    pub fn status(&self) -> i32 {
        self.status.0
    }

    /// Returns the name of the status, such as `TRIB_ERR_ABORTED`.
    pub fn name(&self) -> &'static str {
        // SAFETY: "never NULL, not even for unknown numbers"; it stays "valid for ever".
        unsafe { text(sys::trib_status_name(self.status)) }
    }

    /// Returns the sentence of the status.
    pub fn message(&self) -> &'static str {
        // SAFETY: "The sentence of TRIB_STATUS_MAP; never NULL"; it lives for ever.
        unsafe { text(sys::trib_status_message(self.status)) }
    }

    /// Returns what exactly was wrong, and what to do. May be empty.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns whether the call failed because the communicator was aborted, by an
    /// [`AbortHandle`](crate::AbortHandle) or a [`shrink`](crate::Communicator::shrink), in this
    /// process or another; a failure of NCCL is not an abort. Calls also fail like this after a
    /// mistake, such as a [mismatch](ErrorKind::Mismatch), has ended the communicator, and the
    /// detail then tells of it. Which of the two it was, a program that rebuilds asks
    /// [`Communicator::status`](crate::Communicator::status): it returns the mistake itself, and so
    /// do the waits and [`Work::wait`](crate::Work::wait).
    pub fn is_aborted(&self) -> bool {
        self.kind() == ErrorKind::Aborted
    }

    /// Returns whether a deadline passed.
    pub fn is_timeout(&self) -> bool {
        self.kind() == ErrorKind::Timeout
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.status.0)?;
        if !self.detail.contains(self.message()) {
            write!(f, ": {}", self.message())?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.kind())
            .field("status", &self.status.0)
            .field("detail", &self.detail)
            .finish()
    }
}

impl std::error::Error for Error {}

/// A status as a result.
#[inline]
pub(crate) fn check(status: sys::trib_status) -> Result<()> {
    if status == sys::TRIB_OK {
        Ok(())
    } else {
        Err(Error::last(status))
    }
}

/// A name of the library.
///
/// # Safety
/// `name` is not NULL and lives for ever.
pub(crate) unsafe fn text(name: *const c_char) -> &'static str {
    // SAFETY: the caller's promise. The library's names are ASCII.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("?")
}

/// `value` for C; `what` it is, for the error.
pub(crate) fn c_string(what: &str, value: &str) -> Result<CString> {
    CString::new(value)
        .map_err(|_| Error::argument(format!("{what} {value:?} has a NUL in it; take it out")))
}

/// A rank, size, device or root for C.
pub(crate) fn number(what: &str, value: usize) -> Result<i32> {
    i32::try_from(value).map_err(|_| {
        Error::argument(format!("{what} is {value}, which is more than a rank can be"))
    })
}
