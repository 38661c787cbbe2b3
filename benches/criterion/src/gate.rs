//! Where ranks wait for each other.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::yield_now;

use crate::Result;

/// A barrier that can be broken, so that nobody waits for a rank that has failed. Ranks spin in it,
/// so that they leave it together.
pub struct Gate {
    ranks: usize,
    arrivals: AtomicUsize,
    broken: AtomicBool,
}

impl Gate {
    pub fn new(ranks: usize) -> Gate {
        Gate { ranks, arrivals: AtomicUsize::new(0), broken: AtomicBool::new(false) }
    }

    /// Wait until all ranks have come.
    pub fn pass(&self) -> Result<()> {
        let before = self.arrivals.fetch_add(1, Ordering::AcqRel);
        // Nobody comes for the next time before this time's arrivals are complete.
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

    /// Let everybody go, now and later.
    pub fn open_for_ever(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }
}
