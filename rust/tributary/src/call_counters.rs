//! Which calls of a sparse state were applied, as far as its counters show.
//!
//! C counts the calls of a state that have ended and those that were applied, and keeps the status
//! of the last one. Calls of one state run in the order in which they were queued, so two snapshots
//! of the counters say how many of the calls between them were skipped. The more snapshots are
//! kept, the fewer calls lie between two.

use std::collections::VecDeque;
use std::mem;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tributary_sys as sys;

use crate::communicator::Shared;
use crate::deadline::Deadline;
use crate::error::{check, Error, ErrorKind, Result};

const SNAPSHOTS: usize = 32;

/// Counts of calls that have ended, that were skipped, and that were skipped as not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    ended: u64,
    skipped: u64,
    non_finite: u64,
}

/// A sparse state and the history of its calls. It outlives the state.
pub(crate) struct CallCounters {
    state: NonNull<sys::trib_sparse>,
    history: Mutex<History>,
}

// SAFETY: C gets the state only under the lock of its communicator, and only while the state lives.
unsafe impl Send for CallCounters {}
// SAFETY: as above; a lock guards the history.
unsafe impl Sync for CallCounters {}

#[derive(Default)]
struct History {
    /// Calls queued; the last one has this number.
    queued: u64,
    /// Some calls were not counted, and have no number.
    uncounted: bool,
    /// In the order of `ended`.
    snapshots: VecDeque<Snapshot>,
    /// The error of the last call that has ended, if it was skipped.
    last: Option<Error>,
    /// The state has been destroyed, so there will be no other snapshot.
    destroyed: bool,
}

/// The calls of one state that one scope or work has queued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallRange {
    /// A snapshot before the first one was queued.
    before: Snapshot,
    first: u64,
    last: u64,
}

/// The outcome of calls that the stream has passed.
pub(crate) enum Outcome {
    Applied,
    Skipped {
        why: Option<Error>,
        non_finite: bool,
        certain: bool,
    },
    /// The state was destroyed before they had run.
    Unknown,
}

impl CallCounters {
    pub(crate) fn new(state: NonNull<sys::trib_sparse>) -> CallCounters {
        CallCounters { state, history: Mutex::default() }
    }

    pub(crate) fn state(&self) -> NonNull<sys::trib_sparse> {
        self.state
    }

    /// Numbers no further calls: a captured call may run never or often.
    pub(crate) fn stop_counting(&self) {
        self.lock().uncounted = true;
    }

    /// A snapshot to take before a call is queued.
    pub(crate) fn snapshot(&self, shared: &Shared) -> Snapshot {
        self.refresh(shared);
        self.lock().snapshots.back().copied().unwrap_or_default()
    }

    /// Numbers the call that has just been queued, and adds it to `calls`.
    pub(crate) fn queued(&self, before: Snapshot, calls: Option<CallRange>) -> CallRange {
        let mut history = self.lock();
        history.queued += 1;
        let number = history.queued;
        let CallRange { before, first, .. } =
            calls.unwrap_or(CallRange { before, first: number, last: 0 });
        CallRange { before, first, last: number }
    }

    /// The outcome of `calls`, all of which the stream has passed. If the state is destroyed,
    /// `passed` says whether the stream had passed them before that.
    pub(crate) fn outcome(&self, calls: &CallRange, shared: &Shared, passed: bool) -> Outcome {
        self.refresh(shared);
        let history = self.lock();
        let now = history.snapshots.back().copied().unwrap_or_default();
        let counted = !history.uncounted && now.ended >= calls.last;
        if history.destroyed && !passed && !counted {
            return Outcome::Unknown;
        }
        let (mut below, mut above) = (calls.before, now);
        for snapshot in history.snapshots.iter().filter(|_| counted) {
            if snapshot.ended < calls.first && snapshot.ended > below.ended {
                below = *snapshot;
            }
            if snapshot.ended >= calls.last && snapshot.ended < above.ended {
                above = *snapshot;
            }
        }
        if above.skipped == below.skipped {
            return Outcome::Applied;
        }
        Outcome::Skipped {
            why: history.last.clone().filter(|_| counted && calls.last == now.ended),
            non_finite: above.non_finite > below.non_finite,
            certain: counted && below.ended + 1 == calls.first && above.ended == calls.last,
        }
    }

    /// Whether all counted calls have ended.
    fn is_idle(&self) -> bool {
        let history = self.lock();
        history.uncounted
            || history.snapshots.back().map_or(0, |snapshot| snapshot.ended) >= history.queued
    }

    /// Waits up to `timeout` for the queued calls: once the state is destroyed, their outcome is
    /// lost.
    pub(crate) fn wait_idle(&self, shared: &Shared, timeout: Duration) {
        Deadline::after(timeout)
            .poll(|| !shared.is_good() || !self.refresh(shared) || self.is_idle());
    }

    /// Takes the last snapshot. Called under the lock of the communicator, which destroys the state
    /// next.
    pub(crate) fn close(&self) {
        self.record();
        self.lock().destroyed = true;
    }

    /// Takes a snapshot. `false` if the state or its communicator is destroyed or has failed.
    fn refresh(&self, shared: &Shared) -> bool {
        shared.with_states(|| !self.lock().destroyed && self.record()).unwrap_or(false)
    }

    /// The caller holds the lock of the communicator, and the state is alive.
    fn record(&self) -> bool {
        let Ok(mut snapshot) = self.read() else { return false };
        let mut status = Ok(());
        // Repeat until no call ends between the two reads.
        let certain = (0..8).any(|_| {
            // SAFETY: alive, under the lock. "Never waits."
            status = check(unsafe { sys::trib_sparse_status(self.state.as_ptr()) });
            let after = self.read().unwrap_or(snapshot);
            mem::replace(&mut snapshot, after) == after
        });
        let skipped = match &status {
            Ok(()) => Some(0),
            Err(error) if error.kind() == ErrorKind::NonFinite => Some(1),
            Err(_) => None, // possibly the communicator's status, not the call's
        };
        let mut history = self.lock();
        history.last = None;
        if let (true, true, Some(skipped)) = (certain, snapshot.ended > 0, skipped) {
            history.last = status.err();
            history.push(Snapshot {
                ended: snapshot.ended - 1,
                skipped: snapshot.skipped - skipped,
                non_finite: snapshot.non_finite - skipped,
            });
        }
        history.push(snapshot);
        true
    }

    /// The caller holds the lock of the communicator, and the state is alive.
    fn read(&self) -> Result<Snapshot> {
        let mut raw = sys::TRIB_SPARSE_STATISTICS_INIT;
        // SAFETY: alive, under the lock; `raw` lives through the call, with its size set. "Never
        // waits."
        check(unsafe { sys::trib_sparse_statistics_get(&mut raw, self.state.as_ptr()) })?;
        Ok(Snapshot {
            ended: raw.calls,
            skipped: raw.calls - raw.calls_applied,
            non_finite: raw.calls_non_finite,
        })
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl History {
    fn push(&mut self, snapshot: Snapshot) {
        if self.snapshots.back().is_some_and(|last| last.ended >= snapshot.ended) {
            return;
        }
        if self.snapshots.len() == SNAPSHOTS {
            self.snapshots.pop_front();
        }
        self.snapshots.push_back(snapshot);
    }
}
