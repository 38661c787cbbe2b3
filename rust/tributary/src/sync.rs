//! When memory that queued work may use is free again.
//!
//! Memory is free once the stream was seen to pass that work. A *failed wait* has seen nothing:
//! CUDA refuses a wait while another thread captures a graph, or in a callback, and the work goes
//! on. Only a failure of the device itself ([`ErrorKind::Cuda`]) means that nothing runs any more.

use std::fmt::Display;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::time::Duration;

use crate::abort::AbortHandle;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::run::{blame, message};
use crate::stream::Stream;

/// How long a failed scope lets the other ranks join what it had queued, before it aborts and so
/// gives them the reason.
const GRACE: Duration = Duration::from_secs(1);

/// A point in a stream that a thread can wait for.
pub(crate) trait Point {
    fn wait(&self) -> Result<()>;
    fn is_done(&self) -> Result<bool>;
}

impl Point for Stream {
    fn wait(&self) -> Result<()> {
        Stream::wait(self)
    }
    fn is_done(&self) -> Result<bool> {
        Stream::is_done(self)
    }
}

impl Point for Event {
    fn wait(&self) -> Result<()> {
        Event::wait(self)
    }
    fn is_done(&self) -> Result<bool> {
        Event::is_done(self)
    }
}

/// "If a wait or a query for a stream or an event fails with TRIB_ERR_CUDA, the device has failed
/// and runs nothing any more. After any other failure queued work may still run and use its
/// buffers".
fn device_failed(error: &Error) -> bool {
    error.kind() == ErrorKind::Cuda
}

/// Whether the work has run, or never will. Never waits.
pub(crate) fn is_idle(point: &impl Point) -> bool {
    passed(point).is_some()
}

/// How the work has ended. `None`: it may still run. Never waits.
pub(crate) fn passed(point: &impl Point) -> Option<Result<()>> {
    match point.is_done() {
        Ok(done) => done.then_some(Ok(())),
        Err(error) => device_failed(&error).then_some(Err(error)),
    }
}

/// Waits, and repeats a refused wait until `deadline`. `Ok` holds the result of the wait: the work
/// has ended. `Err` says why that is unknown: the work may still run.
pub(crate) fn wait(point: &impl Point, deadline: Deadline) -> Result<Result<()>> {
    let mut last = Ok(());
    let over = deadline.poll(|| {
        last = point.wait();
        last.as_ref().map_or_else(device_failed, |()| true)
    });
    match last {
        Err(error) if !over => Err(error),
        last => Ok(last),
    }
}

/// Waits without a deadline, for memory that is only borrowed. If waits are refused for longer than
/// `timeout`, raises `aborts`, so that the work does not depend on other ranks.
pub(crate) fn synchronize(
    point: &impl Point,
    timeout: Duration,
    aborts: &[AbortHandle],
) -> Result<()> {
    let refused = match wait(point, Deadline::after(timeout)) {
        Ok(waited) => return waited,
        Err(refused) => refused,
    };
    for abort in aborts {
        abort.abort(&format!("a stream with borrowed buffers cannot be waited for: {refused}"));
    }
    wait(point, Deadline::NEVER).and_then(|waited| waited)
}

/// Synchronizes streams when it is dropped, so that nothing queued on them uses borrowed memory.
pub(crate) struct SyncGuard<'a, P: Point = Stream> {
    points: &'a [&'a P],
    aborts: Vec<AbortHandle>,
    timeout: Duration,
    finished: bool,
}

impl<'a, P: Point> SyncGuard<'a, P> {
    /// `aborts`: of every communicator whose calls the points are behind.
    pub(crate) fn new(points: &'a [&'a P], aborts: Vec<AbortHandle>, timeout: Duration) -> Self {
        SyncGuard { points, aborts, timeout, finished: false }
    }

    /// Calls `queue`. If it fails or panics, waits for the calls it had queued, and aborts those
    /// that the other ranks never join, with that failure of `who` as the reason.
    pub(crate) fn watch<T>(
        mut self,
        who: &dyn Display,
        queue: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Self)> {
        match catch_unwind(AssertUnwindSafe(queue)) {
            Ok(Ok(value)) => Ok((value, self)),
            Ok(Err(error)) => {
                self.give_up(&format!("{who} left a scope early: {error}"));
                Err(error)
            }
            Err(panic) => {
                self.give_up(&format!("{who} panicked in a scope: {}", message(&*panic)));
                resume_unwind(panic)
            }
        }
    }

    /// Waits without a deadline.
    pub(crate) fn finish(mut self) -> Result<()> {
        let waited = self.synchronize();
        self.finished = true;
        waited
    }

    /// Leaves the waiting to the caller.
    pub(crate) fn disarm(mut self) {
        self.finished = true;
    }

    /// Aborts work that takes longer than the timeout, or a second, and then waits for it.
    fn give_up(&mut self, reason: &str) {
        self.finished = true;
        let idle = || self.points.iter().all(|point| is_idle(*point));
        if !Deadline::after(self.timeout.min(GRACE)).poll(idle) {
            blame();
            self.aborts.iter().for_each(|abort| abort.abort(reason));
        }
        let _ = self.synchronize();
    }

    /// Waits for all points, also if a device has failed.
    fn synchronize(&self) -> Result<()> {
        let synchronize = |point: &&P| synchronize(*point, self.timeout, &self.aborts);
        self.points.iter().map(synchronize).fold(Ok(()), Result::and)
    }
}

impl<P: Point> Drop for SyncGuard<'_, P> {
    fn drop(&mut self) {
        if !self.finished {
            self.give_up("a scope was left early");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Instant;

    use super::*;
    use crate::{Group, Options};
    use tributary_sys as sys;

    const TIMEOUT: Duration = Duration::from_millis(20);

    /// Work that ends after `runs`, and whose waits fail until `refuses`.
    struct Fake {
        start: Instant,
        runs: Duration,
        refuses: Duration,
        with: sys::trib_status,
        waits: Cell<u32>,
    }

    impl Fake {
        fn new(runs: u64, refuses: u64, with: sys::trib_status) -> Fake {
            let [runs, refuses] = [runs, refuses].map(Duration::from_millis);
            Fake { start: Instant::now(), runs, refuses, with, waits: Cell::new(0) }
        }

        fn ask(&self) -> Result<bool> {
            if self.start.elapsed() < self.refuses {
                return Err(Error::new(self.with, "not now"));
            }
            Ok(self.start.elapsed() >= self.runs)
        }
    }

    impl Point for Fake {
        fn wait(&self) -> Result<()> {
            self.waits.set(self.waits.get() + 1);
            let done = self.ask()?;
            if !done {
                std::thread::sleep(self.runs.saturating_sub(self.start.elapsed()));
            }
            Ok(())
        }
        fn is_done(&self) -> Result<bool> {
            self.ask()
        }
    }

    fn abort_handle() -> AbortHandle {
        Group::with_options(1, &Options::new().backend("host")).unwrap().abort_handle()
    }

    #[test]
    fn a_wait_that_is_refused_is_no_wait() {
        for dropped in [false, true] {
            let (short, long) = (Fake::new(5, 0, sys::TRIB_OK), Fake::new(60, 40, NOT_PERMITTED));
            let points = [&short, &long];
            let abort = abort_handle();
            let guard = SyncGuard::new(&points, vec![abort.clone()], TIMEOUT);
            if dropped {
                drop(guard);
            } else {
                guard.finish().unwrap();
            }
            assert!(long.start.elapsed() >= long.runs);
            assert!(abort.is_aborted(), "it took longer than the timeout");
        }
    }

    const NOT_PERMITTED: sys::trib_status = sys::TRIB_ERR_INVALID_USAGE;

    #[test]
    fn a_device_that_failed_runs_nothing() {
        let failed = Fake::new(u64::MAX, u64::MAX, sys::TRIB_ERR_CUDA);
        let running = Fake::new(30, 0, sys::TRIB_OK);
        let points = [&failed, &running];
        let error = SyncGuard::new(&points, vec![abort_handle()], TIMEOUT).finish().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cuda);
        assert!(running.start.elapsed() >= running.runs, "the other device still ran");
        drop(SyncGuard::new(&points, vec![abort_handle()], TIMEOUT));
        assert_eq!(failed.waits.get(), 2);
    }

    #[test]
    fn what_may_be_kept_is_not_waited_for_for_ever() {
        let stuck = Fake::new(u64::MAX, u64::MAX, NOT_PERMITTED);
        let error = wait(&stuck, Deadline::after(TIMEOUT)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUsage);
        assert!(!is_idle(&stuck));
    }
}
