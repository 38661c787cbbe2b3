//! A sparse state of C, and whether its calls were applied.

use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::prelude::*;
use tributary_sys as sys;

use crate::failure::{check, Failure, Outcome};
use crate::owner::{without_gil, Owner};
use crate::work::Applied;

/// A state of C. It holds its communicator: "`comm` must outlive the state".
pub struct SparseState {
    pub raw: NonNull<sys::trib_sparse>,
    pub owner: Arc<Owner>,
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

/// Its strings are not looked at any more.
pub struct Statistics(pub sys::trib_sparse_statistics);

// SAFETY: see above.
unsafe impl Send for Statistics {}

pub fn statistics(state: *mut sys::trib_sparse) -> Outcome<sys::trib_sparse_statistics> {
    let mut raw = sys::TRIB_SPARSE_STATISTICS_INIT;
    // SAFETY: the caller has the turn, or the lock inside; the struct has its size set.
    check(unsafe { sys::trib_sparse_statistics_get(&mut raw, state) }).map(|()| raw)
}

/// Calls that have run and were not applied: all, and those with values that were not finite.
pub fn not_applied(state: &SparseState) -> Outcome<(u64, u64)> {
    let raw = statistics(state.get())?;
    Ok((raw.calls - raw.calls_applied, raw.calls_non_finite))
}

pub fn applied(state: &Arc<SparseState>, before: (u64, u64)) -> Applied {
    let state = Arc::clone(state);
    Arc::new(move || {
        let now = match state.owner.peek(|_| not_applied(&state)).transpose()? {
            None => return Ok(None),
            Some(now) if now == before => return Ok(Some(())),
            Some(now) => now,
        };
        let (status, why) = if now.1 > before.1 {
            let why = "a rank's gradient or residual, or the result, held an infinity or a NaN; \
                       lower the loss scale";
            (sys::TRIB_ERR_NON_FINITE, why)
        } else {
            let why = "the ranks' calls were not of the same state; call the states in one order \
                       on all ranks";
            (sys::TRIB_ERR_MISMATCH, why)
        };
        let who = state.owner.who("sparse_allreduce");
        Err(Failure::new(
            status,
            format!(
                "{who}: this call, or one that was queued with it, was not applied, and no rank's \
                 residual has changed: {why}"
            ),
        ))
    })
}
