//! Stopping a communicator from anywhere.

use std::ffi::{c_char, CStr, CString};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use tributary_sys as sys;

use crate::error::{check, Result};
use crate::options::milliseconds;

/// How far the end of a communicator has come in this process, from [`AbortHandle::state`]. A state
/// never goes back, but `Aborted` and `Parked` may alternate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommState {
    /// Neither aborted nor failed. A close, or a drop, changes nothing before `Reclaimed`.
    Live,
    /// The reason is set. A call has not returned yet, or a stream may still wait inside a
    /// collective. The string tells for what the communicator waits, if that is known.
    Aborting(String),
    /// All calls have returned, and no stream waits inside a collective. The backend still holds
    /// resources.
    Aborted,
    /// The same, but releasing the resources waits for something outside the library, for instance
    /// `"3 live CUDA graphs that captured its calls, for 12.3 s"`.
    Parked(String),
    /// The backend has released everything but symmetric memory, after an abort or in good order.
    Reclaimed,
}

/// Aborts a communicator, from any thread and at any time, also after the communicator is gone.
///
/// An abort frees nothing and waits for nothing. After it every call on the ranks of this process
/// returns an error that [is aborted](crate::Error::is_aborted), and streams that were waiting
/// inside a collective go on, with garbage in its outputs (but a list of tensors is written wholly
/// or not at all). Ranks in other processes hear of it over the
/// [side channel](crate::Options::side_channel), a few ms later.
///
/// ```
/// use tributary::{Group, Options};
/// let mut ranks = Group::with_options(2, &Options::new().backend("host"))?.split()?;
/// let handle = ranks[0].abort_handle();
/// std::thread::spawn(move || handle.abort("rank 7 left")).join().unwrap();
/// let error = ranks[1].status().unwrap_err();
/// assert!(error.is_aborted() && error.detail().contains("rank 7 left"));
/// # Ok::<(), tributary::Error>(())
/// ```
#[derive(Clone)]
pub struct AbortHandle(Arc<Reference>);

/// One reference to the C handle.
struct Reference(NonNull<sys::trib_abort>);

// SAFETY: "an abort handle works from any thread at any time".
unsafe impl Send for Reference {}
// SAFETY: as above.
unsafe impl Sync for Reference {}

impl Drop for Reference {
    fn drop(&mut self) {
        // SAFETY: "Release one reference; aborts nothing": this one is ours.
        unsafe { sys::trib_abort_release(self.0.as_ptr()) };
    }
}

impl AbortHandle {
    /// # Safety
    /// `raw` is a reference that the caller owns and gives away.
    pub(crate) unsafe fn from_raw(raw: NonNull<sys::trib_abort>) -> AbortHandle {
        AbortHandle(Arc::new(Reference(raw)))
    }

    /// Aborts every rank of the communicator in this process. The errors that follow contain
    /// `reason`; of several aborts, the first reason stays.
    pub fn abort(&self, reason: &str) {
        let reason = CString::new(reason.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the reference is alive; "Any thread, any number of times, also after the
        // communicator is gone."
        let status = unsafe { sys::trib_abort_raise(self.0 .0.as_ptr(), reason.as_ptr()) };
        // It fails for a NULL handle only.
        debug_assert_eq!(check(status), Ok(()));
    }

    /// Returns `Ok` while the communicator is usable, and the reason once it is not. A watchdog may
    /// call it from any thread; after the communicator is gone it returns the last status. The call
    /// fetches the asynchronous errors of NCCL on all ranks of this process, which end the
    /// communicator. Never waits.
    pub fn status(&self) -> Result<()> {
        // SAFETY: the reference is alive; "Any thread at any time". "Never waits".
        check(unsafe { sys::trib_abort_status(self.0 .0.as_ptr()) })
    }

    /// Extends all deadlines of queued calls: for `time` from now no late call ends the
    /// communicator, on any rank of this process. A shorter time than before changes nothing;
    /// [`Duration::MAX`]: for good.
    pub fn defer(&self, time: Duration) {
        // SAFETY: the reference is alive; "Any thread."
        let status = unsafe { sys::trib_abort_defer(self.0 .0.as_ptr(), milliseconds(time)) };
        // It fails for a NULL handle only.
        debug_assert_eq!(check(status), Ok(()));
    }

    /// Returns how far the end of the communicator has come. On nccl an aborted communicator is
    /// reclaimed in the background, on host when all its ranks were dropped and the calls queued on
    /// them have run. Any thread may call it at any time. Never waits.
    pub fn state(&self) -> CommState {
        let mut text: [c_char; 160] = [0; 160];
        let mut state = sys::TRIB_COMM_LIVE;
        // SAFETY: the reference is alive; "a string of up to `bytes` bytes", which `text` has room
        // for; "Any thread at any time".
        let status = unsafe {
            sys::trib_abort_state(&mut state, text.as_mut_ptr(), text.len(), self.0 .0.as_ptr())
        };
        // It fails for a NULL pointer only.
        debug_assert_eq!(check(status), Ok(()));
        // SAFETY: `text` was zeroes, and the library ends the string that it writes.
        let waits_for = || unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned();
        match state {
            sys::TRIB_COMM_LIVE => CommState::Live,
            sys::TRIB_COMM_ABORTING => CommState::Aborting(waits_for()),
            sys::TRIB_COMM_PARKED => CommState::Parked(waits_for()),
            sys::TRIB_COMM_RECLAIMED => CommState::Reclaimed,
            // "A newer library may have more states": of one that was aborted.
            _ => CommState::Aborted,
        }
    }

    /// Returns whether the communicator was aborted or has failed.
    pub fn is_aborted(&self) -> bool {
        // SAFETY: the reference is alive; "Any thread."
        unsafe { sys::trib_abort_raised(self.0 .0.as_ptr()) != 0 }
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle").field("is_aborted", &self.is_aborted()).finish()
    }
}
