//! Has everything that was queued been applied?
//!
//! A collective that has run on a communicator whose status is good has written its result. Two kinds
//! may have done nothing all the same, on all ranks alike, without a mistake that ends the
//! communicator: a sparse call whose gradients were not finite, and a weighted average with a weight
//! that is not valid. Who is told "Ok" would not look for that, so they are asked when their stream
//! has passed.

use std::ptr::NonNull;

use tributary_sys as sys;

use crate::communicator::{Communicator, Shared};
use crate::counters::Counters;
use crate::error::{check, Error, Result};

/// What has to be asked.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    sparse: Vec<NonNull<sys::trib_sparse>>,
    /// Weighted averages that had been refused before the first one.
    refused: Option<u64>,
}

// SAFETY: the states are only passed to C under the lock of their communicator, and only those that
// it still has.
unsafe impl Send for Applied {}

impl Applied {
    /// A call of `state` is about to be queued.
    pub(crate) fn sparse(&mut self, state: NonNull<sys::trib_sparse>) {
        if !self.sparse.contains(&state) {
            self.sparse.push(state);
        }
    }

    /// A weighted average is about to be queued.
    pub(crate) fn average(&mut self, comm: &mut Communicator) -> Result<()> {
        if self.refused.is_none() {
            self.refused = Some(comm.counters()?.lists_refused);
        }
        Ok(())
    }

    /// All of it has run, and the communicator is good.
    pub(crate) fn check(&self, shared: &Shared) -> Result<()> {
        for &state in &self.sparse {
            // SAFETY: alive, under the lock. "Never waits."
            let status = || check(unsafe { sys::trib_sparse_status(state.as_ptr()) });
            shared.with_adopted(state, status).unwrap_or(Ok(()))?;
        }
        match (self.refused, shared.counters()) {
            (Some(before), Some(Ok(Counters { lists_refused, .. }))) if lists_refused > before => {
                Err(refused())
            }
            _ => Ok(()),
        }
    }
}

#[cold]
fn refused() -> Error {
    Error::new(
        sys::TRIB_ERR_NON_FINITE,
        "weighted_average: a rank's weight is negative or not finite, or their sum is more than an \
         f32 holds, so no rank's tensors were written; look at the weights",
    )
}
