//! The C reducer behind a [`Reducer`](crate::Reducer).

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use tributary_sys as sys;

use crate::abort::AbortHandle;
use crate::error::check;

/// A C reducer, until its owner or its communicator destroys it, and what is known afterwards.
pub(crate) struct ReducerHandle {
    raw: NonNull<sys::trib_reducer>,
    abort: AbortHandle,
    /// A gradient of the current step is ready, so the other ranks wait for the step's end.
    open: AtomicBool,
    /// Once destroyed: whether no step is queued any more.
    idle: OnceLock<bool>,
}

// SAFETY: C gets the reducer only under the lock of its communicator, and only while it lives.
unsafe impl Send for ReducerHandle {}
// SAFETY: as above.
unsafe impl Sync for ReducerHandle {}

impl ReducerHandle {
    pub(crate) fn new(raw: NonNull<sys::trib_reducer>, abort: AbortHandle) -> ReducerHandle {
        ReducerHandle { raw, abort, open: AtomicBool::new(false), idle: OnceLock::new() }
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::trib_reducer {
        self.raw.as_ptr()
    }

    pub(crate) fn abort(&self) -> &AbortHandle {
        &self.abort
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    pub(crate) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Release);
    }

    /// Whether the reducer is destroyed, and no step of it was queued any more by then.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle.get() == Some(&true)
    }

    /// Destroys the C reducer. A step that was forgotten in the middle ends its communicator: other
    /// ranks wait for it, and "in the middle of a step: [...] nothing happens, unless the
    /// communicator has ended".
    ///
    /// # Safety
    /// The caller has the lock of the communicator, which is alive, and nobody calls this again.
    pub(crate) unsafe fn destroy(&self) {
        if self.is_open() {
            self.abort
                .abort("a step of a reducer was forgotten: it neither finished nor was dropped");
        }
        // SAFETY: the caller's promise. "Waits for queued steps, at most as long as
        // trib_comm_destroy".
        let destroyed = check(unsafe { sys::trib_reducer_destroy(self.raw.as_ptr()) });
        let _ = self.idle.set(destroyed.is_ok());
    }
}
