//! What the calls of one sparse state have come to, call by call as far as that can be known.
//!
//! C counts the calls of a state that have ended and those that delivered, and tells how the last one
//! went. Calls of one state run in the order in which they were queued, so two such looks say how many
//! of the calls between them delivered nothing. Looks are kept: the more there are, the fewer calls
//! lie between two.

use std::collections::VecDeque;
use std::mem;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tributary_sys as sys;

use crate::communicator::Shared;
use crate::deadline::Deadline;
use crate::error::{check, Error, ErrorKind, Result};

const LOOKS: usize = 32;

/// Calls that have ended, and of those the ones that delivered nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    ended: u64,
    missed: u64,
    non_finite: u64,
}

/// A sparse state, and what is known of its calls; it outlives the state.
pub(crate) struct Tally {
    state: NonNull<sys::trib_sparse>,
    known: Mutex<Known>,
}

// SAFETY: the state is passed to C under the lock of its communicator only, and only while it lives.
unsafe impl Send for Tally {}
// SAFETY: as above; the rest is behind a lock of its own.
unsafe impl Sync for Tally {}

#[derive(Default)]
struct Known {
    /// Calls queued: the number of the last one.
    queued: u64,
    /// Calls were made that nobody has counted: they have no numbers.
    uncounted: bool,
    /// In the order of `ended`.
    looks: VecDeque<Look>,
    /// How the last call that has ended went.
    last: Option<Error>,
    /// The state has been destroyed: there will be no other look.
    gone: bool,
}

/// The calls of one state that one scope or work has queued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    /// A look before the first one was queued.
    before: Look,
    first: u64,
    last: u64,
}

/// How calls went that have all been passed.
pub(crate) enum Verdict {
    Delivered,
    Missed {
        why: Option<Error>,
        non_finite: bool,
        certain: bool,
    },
    /// The state went before they had run.
    Unknown,
}

impl Tally {
    pub(crate) fn new(state: NonNull<sys::trib_sparse>) -> Tally {
        Tally { state, known: Mutex::default() }
    }

    pub(crate) fn state(&self) -> NonNull<sys::trib_sparse> {
        self.state
    }

    /// Calls are made that are not counted, maybe ones that are captured, and run never or often.
    pub(crate) fn give_up_counting(&self) {
        self.lock().uncounted = true;
    }

    /// A look, for who is about to queue a call.
    pub(crate) fn before(&self, shared: &Shared) -> Look {
        self.look(shared);
        self.lock().looks.back().copied().unwrap_or_default()
    }

    /// A call has been queued.
    pub(crate) fn queued(&self, before: Look, calls: Option<Calls>) -> Calls {
        let mut known = self.lock();
        known.queued += 1;
        let number = known.queued;
        let Calls { before, first, .. } = calls.unwrap_or(Calls { before, first: number, last: 0 });
        Calls { before, first, last: number }
    }

    /// How `calls`, all of which the stream has passed, went; if the state is gone, `passed` says
    /// whether they had been passed then.
    pub(crate) fn judge(&self, calls: &Calls, shared: &Shared, passed: bool) -> Verdict {
        self.look(shared);
        let known = self.lock();
        let now = known.looks.back().copied().unwrap_or_default();
        let counted = !known.uncounted && now.ended >= calls.last;
        if known.gone && !passed && !counted {
            return Verdict::Unknown;
        }
        let (mut below, mut above) = (calls.before, now);
        for look in known.looks.iter().filter(|_| counted) {
            if look.ended < calls.first && look.ended > below.ended {
                below = *look;
            }
            if look.ended >= calls.last && look.ended < above.ended {
                above = *look;
            }
        }
        if above.missed == below.missed {
            return Verdict::Delivered;
        }
        Verdict::Missed {
            why: known.last.clone().filter(|_| counted && calls.last == now.ended),
            non_finite: above.non_finite > below.non_finite,
            certain: counted && below.ended + 1 == calls.first && above.ended == calls.last,
        }
    }

    /// Have all calls that were counted ended?
    fn is_idle(&self) -> bool {
        let known = self.lock();
        known.uncounted || known.looks.back().map_or(0, |look| look.ended) >= known.queued
    }

    /// The state is about to be destroyed. Waits, at most for `patience`, for what was queued: after
    /// that nobody can tell any more how it went.
    pub(crate) fn settle(&self, shared: &Shared, patience: Duration) {
        Deadline::after(patience)
            .poll(|| !shared.is_good() || !self.look(shared) || self.is_idle());
    }

    /// The state is destroyed now, under the lock of its communicator.
    pub(crate) fn close(&self) {
        self.note();
        self.lock().gone = true;
    }

    /// `false` if there is nothing to see any more: the state or its communicator is gone or has
    /// failed.
    fn look(&self, shared: &Shared) -> bool {
        shared.with_sparse(|| !self.lock().gone && self.note()).unwrap_or(false)
    }

    /// Under the lock of the communicator, the state alive.
    fn note(&self) -> bool {
        let Ok(mut look) = self.ask() else { return false };
        let mut status = Ok(());
        // Asked until nothing ends between the two answers.
        let certain = (0..8).any(|_| {
            // SAFETY: alive, under the lock. "Never waits."
            status = check(unsafe { sys::trib_sparse_status(self.state.as_ptr()) });
            let after = self.ask().unwrap_or(look);
            mem::replace(&mut look, after) == after
        });
        let missed = match &status {
            Ok(()) => Some(0),
            Err(error) if error.kind() == ErrorKind::NonFinite => Some(1),
            Err(_) => None, // maybe the communicator's, and no word about the call
        };
        let mut known = self.lock();
        known.last = None;
        if let (true, true, Some(missed)) = (certain, look.ended > 0, missed) {
            known.last = status.err();
            known.push(Look {
                ended: look.ended - 1,
                missed: look.missed - missed,
                non_finite: look.non_finite - missed,
            });
        }
        known.push(look);
        true
    }

    /// Under the lock of the communicator, the state alive.
    fn ask(&self) -> Result<Look> {
        let mut raw = sys::TRIB_SPARSE_STATISTICS_INIT;
        // SAFETY: alive, under the lock; `raw` lives through the call, with its size set. "Never
        // waits."
        check(unsafe { sys::trib_sparse_statistics_get(&mut raw, self.state.as_ptr()) })?;
        Ok(Look {
            ended: raw.calls,
            missed: raw.calls - raw.calls_delivered,
            non_finite: raw.calls_non_finite,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn push(&mut self, look: Look) {
        if self.looks.back().is_some_and(|last| last.ended >= look.ended) {
            return;
        }
        if self.looks.len() == LOOKS {
            self.looks.pop_front();
        }
        self.looks.push_back(look);
    }
}
