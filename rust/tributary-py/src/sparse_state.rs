//! A sparse state of C, and whether its calls were applied.

use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::prelude::*;
use tributary_sys as sys;

use crate::failure::{check, Outcome};
use crate::owner::{without_gil, Owner};
use crate::work::{Applied, Last};

/// A state of C. It holds its communicator: "`comm` must outlive the state".
pub struct SparseState {
    pub raw: NonNull<sys::trib_sparse>,
    pub owner: Arc<Owner>,
    pub last: Last,
}

// SAFETY: it is used in the turn of its communicator only.
unsafe impl Send for SparseState {}
// SAFETY: as above.
unsafe impl Sync for SparseState {}

impl SparseState {
    pub fn get(&self) -> *mut sys::trib_sparse {
        self.raw.as_ptr()
    }

    pub fn call<T: Send>(
        &self,
        py: Python<'_>,
        operation: &str,
        function: impl FnOnce(*mut sys::trib_sparse) -> Outcome<T> + Send,
    ) -> PyResult<T> {
        self.owner.call(py, operation, |_| function(self.get()))
    }
}

impl Drop for SparseState {
    fn drop(&mut self) {
        let alone: &SparseState = self;
        without_gil(|| {
            // A look of another thread may still hold the lock inside; no call can, for each holds
            // this state.
            let _inside = alone.owner.turn.inside();
            // SAFETY: this is the last use. "Waits for queued calls, at most as long as
            // trib_comm_destroy"; its memory is its own.
            unsafe { sys::trib_sparse_destroy(alone.get()) };
        });
    }
}

pub fn statistics(state: *mut sys::trib_sparse) -> Outcome<sys::trib_sparse_statistics> {
    let mut raw = sys::TRIB_SPARSE_STATISTICS_INIT;
    // SAFETY: the caller has the turn, or the lock inside; the struct has its size set.
    check(unsafe { sys::trib_sparse_statistics_get(&mut raw, state) }).map(|()| raw)
}

/// Of the newest call that has run, which is that of the work that asks: see `Last`.
pub fn applied(state: &Arc<SparseState>) -> Applied {
    let state = Arc::clone(state);
    Arc::new(move || {
        // SAFETY: the lock inside keeps other threads out. "Never waits."
        state.owner.peek(|_| check(unsafe { sys::trib_sparse_status(state.get()) })).transpose()
    })
}
