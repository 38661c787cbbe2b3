//! Deadlines.

use std::thread;
use std::time::{Duration, Instant};

/// A point in time, or never: a timeout that the clock cannot represent has no end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub(crate) const NEVER: Deadline = Deadline(None);

    /// `timeout` from now.
    pub(crate) fn after(timeout: Duration) -> Deadline {
        Deadline(Instant::now().checked_add(timeout))
    }

    fn passed(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }

    /// Calls `done` at least once, and again with growing pauses, until it returns `true` or the
    /// deadline has passed. Returns the last answer.
    pub(crate) fn poll(self, mut done: impl FnMut() -> bool) -> bool {
        let mut pause = Duration::from_micros(10);
        loop {
            if done() {
                return true;
            }
            if self.passed() {
                return false;
            }
            thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_beyond_the_clock_never_ends() {
        assert!(!Deadline::after(Duration::MAX).passed());
        assert!(!Deadline::NEVER.passed());
        assert!(Deadline::after(Duration::ZERO).passed());
    }

    #[test]
    fn asks_once_and_until_the_end() {
        assert!(Deadline::after(Duration::ZERO).poll(|| true));
        let mut asked = 0;
        let start = Instant::now();
        assert!(!Deadline::after(Duration::from_millis(5)).poll(|| {
            asked += 1;
            false
        }));
        assert!(asked > 1 && start.elapsed() >= Duration::from_millis(5));
    }
}
