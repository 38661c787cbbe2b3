//! Stopping a communicator from anywhere.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use tributary::AbortHandle;

use crate::Error;

/// Aborts a communicator, from any thread and at any time, also after the communicator is gone.
///
/// An abort frees nothing under a running call, so it needs no lock around the calls, and no claim
/// that it shares with the drop. It ends the communicator for all ranks of the process.
pub struct NcclAbortHandle {
    handle: AbortHandle,
    /// Whether the communicator was dropped.
    gone: AtomicBool,
}

impl NcclAbortHandle {
    pub(crate) fn new(handle: AbortHandle) -> NcclAbortHandle {
        NcclAbortHandle { handle, gone: AtomicBool::new(false) }
    }

    /// Aborts the communicator; later aborts do nothing. Waits for nothing and never fails: the result
    /// is there so that flodl's `handle.abort()?` goes on as it is.
    pub fn abort(&self) -> Result<(), Error> {
        self.handle.abort("NcclAbortHandle::abort was called");
        Ok(())
    }

    /// Returns whether the communicator was aborted, has failed or was dropped.
    pub fn is_aborted(&self) -> bool {
        self.gone.load(Ordering::Acquire) || self.handle.is_aborted()
    }

    /// Returns Tributary's handle, which takes a reason, tells the status and defers deadlines.
    pub fn handle(&self) -> &AbortHandle {
        &self.handle
    }

    pub(crate) fn mark_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }
}

impl fmt::Debug for NcclAbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NcclAbortHandle").field("is_aborted", &self.is_aborted()).finish()
    }
}
