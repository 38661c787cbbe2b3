//! The barrier of the rank threads.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::yield_now;

use crate::Result;

/// A barrier that can be broken, so that no rank waits for one that has failed. Ranks spin in it,
/// so that they leave it together.
pub struct Barrier {
    ranks: usize,
    arrivals: AtomicUsize,
    broken: AtomicBool,
}

impl Barrier {
    pub fn new(ranks: usize) -> Barrier {
        Barrier { ranks, arrivals: AtomicUsize::new(0), broken: AtomicBool::new(false) }
    }

    /// Waits until all ranks have arrived.
    pub fn wait(&self) -> Result<()> {
        let before = self.arrivals.fetch_add(1, Ordering::AcqRel);
        // No rank arrives for the next round before this round is complete.
        let complete = (before / self.ranks + 1) * self.ranks;
        let mut spins = 0;
        while self.arrivals.load(Ordering::Acquire) < complete {
            if self.broken.load(Ordering::Relaxed) {
                return Err("another rank failed".into());
            }
            spins += 1;
            if spins < 200 {
                spin_loop();
            } else {
                yield_now();
            }
        }
        Ok(())
    }

    /// Breaks the barrier: every wait fails, now and later.
    pub fn break_up(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }
}
