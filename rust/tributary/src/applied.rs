//! Whether every queued call was applied.
//!
//! A collective that has run on a communicator with a good status has written its result. Two kinds
//! of call may have done nothing all the same, on all ranks alike and without ending the
//! communicator: a sparse call whose gradients were not finite, and a weighted average with an
//! invalid weight. A program that gets `Ok` would not look for that, so this module counts such
//! calls, from before the first until the stream has passed the last.

use std::sync::Arc;

use tributary_sys as sys;

use crate::call_counters::{CallCounters, CallRange, Outcome};
use crate::communicator::{Communicator, Shared};
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::sparse::SparseAllReduce;

/// The calls whose outcome to check.
#[derive(Default)]
pub(crate) struct Applied {
    sparse: Vec<(Arc<CallCounters>, CallRange)>,
    averages: Option<Averages>,
}

/// Weighted averages, which C counts as lists.
struct Averages {
    /// The counters before the first one was queued.
    before: Counters,
    /// The last one, as a number among the lists.
    last: u64,
}

impl Applied {
    /// Whether no call could have done nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.sparse.is_empty() && self.averages.is_none()
    }

    pub(crate) fn uses(&self, counters: &Arc<CallCounters>) -> bool {
        self.sparse.iter().any(|(other, _)| Arc::ptr_eq(other, counters))
    }

    /// Queues a call of `sparse`, and counts it.
    pub(crate) fn sparse(
        &mut self,
        sparse: &mut SparseAllReduce,
        queue: impl FnOnce(&mut SparseAllReduce) -> Result<()>,
    ) -> Result<()> {
        let counters = Arc::clone(sparse.counters());
        let before = counters.snapshot(sparse.shared());
        queue(sparse)?;
        match self.sparse.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &counters)) {
            Some((counters, calls)) => *calls = counters.queued(before, Some(*calls)),
            None => {
                let calls = counters.queued(before, None);
                self.sparse.push((counters, calls));
            }
        }
        Ok(())
    }

    /// Queues a weighted average of `comm`, and counts it.
    pub(crate) fn average(
        &mut self,
        comm: &mut Communicator,
        queue: impl FnOnce(&mut Communicator) -> Result<()>,
    ) -> Result<()> {
        let before = comm.counters()?;
        queue(comm)?;
        let last = before.lists_queued + 1;
        self.averages.get_or_insert(Averages { before, last }).last = last;
        Ok(())
    }

    /// Fails if a call was not applied. The stream has passed all of them, and the communicator's
    /// status is good. If the communicator or a state is destroyed, `passed` says whether the
    /// stream had passed all calls before that.
    pub(crate) fn check(&self, shared: &Shared, passed: bool) -> Result<()> {
        for (counters, calls) in &self.sparse {
            match counters.outcome(calls, shared, passed) {
                Outcome::Applied => (),
                Outcome::Skipped { why: Some(error), .. } => return Err(error),
                Outcome::Skipped { non_finite, certain, .. } => {
                    return Err(skipped(non_finite, certain))
                }
                Outcome::Unknown => return Err(unknown("a sparse allreduce")),
            }
        }
        self.averages.as_ref().map_or(Ok(()), |averages| averages.check(shared, passed))
    }
}

impl Averages {
    fn check(&self, shared: &Shared, passed: bool) -> Result<()> {
        let now = match shared.counters() {
            Some(now) => now?,
            None => match shared.last_counters().filter(|_| passed) {
                Some(now) => now,
                None => return Err(unknown("a weighted average")),
            },
        };
        if now.lists_refused == self.before.lists_refused {
            return Ok(());
        }
        let Counters { lists_queued, lists_committed, lists_refused, .. } = self.before;
        let alone = lists_committed + lists_refused == lists_queued;
        Err(refused(alone && now.lists_queued == self.last))
    }
}

#[cold]
fn skipped(non_finite: bool, certain: bool) -> Error {
    let (status, why) = if non_finite {
        let why =
            "numbers that are not finite: a rank's gradient or residual, or the result, held an \
                   infinity or a NaN; lower the loss scale, and go on with the next gradient";
        (sys::TRIB_ERR_NON_FINITE, why)
    } else {
        let why =
            "the ranks' calls were not of the same state; call the states in the same order on \
                   all ranks";
        (sys::TRIB_ERR_MISMATCH, why)
    };
    let which = if certain { "a call" } else { "a call, this or another that was queued with it," };
    Error::new(
        status,
        format!("sparse_allreduce: {which} was not applied, and changed no rank's residual: {why}"),
    )
}

#[cold]
fn refused(certain: bool) -> Error {
    let which = if certain { "" } else { " (this or another weighted average queued with it)" };
    Error::new(
        sys::TRIB_ERR_NON_FINITE,
        format!(
            "weighted_average{which}: a rank's weight is negative or not finite, or their sum is more \
             than an f32 holds, so no rank's tensors were written; look at the weights"
        ),
    )
}

#[cold]
fn unknown(what: &str) -> Error {
    Error::new(
        sys::TRIB_ERR_CLOSED,
        format!(
            "{what} had not run when its communicator, or its state, was dropped, so its outcome is \
             unknown; wait for works before that"
        ),
    )
}
