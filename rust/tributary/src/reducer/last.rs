//! Whether the last step of a reducer has run.

use tributary_sys as sys;

use super::Reducer;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{self, Point};

/// What is known of the last step that has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LastStep {
    /// There was none.
    None,
    /// It uses the gradients until `end` has passed.
    Queued,
    /// Something went wrong, so `end` may pass while the step runs: "After a failure `stream` may
    /// not wait for the step". The reducer tells.
    Failed,
}

impl<B: 'static> Reducer<B> {
    /// Returns whether the last step has run. Never waits.
    pub fn is_done(&self) -> Result<bool> {
        match self.last {
            LastStep::None => Ok(true),
            LastStep::Queued => self.end.is_done(),
            LastStep::Failed => Ok(self.handle.is_idle() || Asked(self).is_done()?),
        }
    }

    /// Waits until the device leaves the gradients alone.
    pub(crate) fn wait_until_passed(&mut self) -> Result<()> {
        let deadline = Deadline::after(self.timeout);
        match self.last {
            LastStep::None => Ok(()),
            LastStep::Queued => sync::wait(&self.end, deadline)?,
            LastStep::Failed if self.handle.is_idle() => Ok(()),
            LastStep::Failed => {
                self.look(|_| ())?; // nobody can be asked any more
                sync::wait(&Asked(self), deadline).map_err(|last| self.still_runs(last))?
            }
        }
    }

    /// `last`: the answer when the deadline passed. It tells of one question, not of the wait.
    #[cold]
    fn still_runs(&self, last: Error) -> Error {
        if last.kind() != ErrorKind::Timeout {
            return last;
        }
        let (check, waited) = (self.check("reducer_wait"), self.timeout.as_millis());
        let why = format!(
            "{check}: after {waited} ms a step of this reducer is still queued, and uses its \
             gradients; the communicator is as before: wait again, or abort it"
        );
        Error::new(sys::TRIB_ERR_TIMEOUT, why)
    }
}

/// The C reducer, asked for the steps that it has queued.
struct Asked<'a, B: 'static>(&'a Reducer<B>);

impl<B: 'static> Point for Asked<'_, B> {
    /// Asks only: the lock that keeps the reducer alive is not for waiting.
    fn wait(&self) -> Result<()> {
        // SAFETY: alive under the lock. "With 0 it asks once".
        self.0.call(|raw| unsafe { sys::trib_reducer_wait(raw, 0) })
    }

    fn is_done(&self) -> Result<bool> {
        match self.wait() {
            Err(error) if error.kind() == ErrorKind::Timeout => Ok(false),
            asked => asked.map(|()| true),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use super::*;
    use crate::{Event, Group, Options, ReducerOptions, Stream};

    /// The event behind a finish that fails says nothing of its step, nor does one that is not
    /// recorded.
    #[test]
    fn after_a_finish_that_fails_the_reducer_is_asked() {
        let group = Group::with_options(1, &Options::new().backend("host")).unwrap();
        let run = |comm: &mut crate::Communicator| -> Result<()> {
            let stream = Stream::new(comm.device())?;
            let mut reducer = Reducer::new(comm, vec![vec![1.0_f32; 10]], &ReducerOptions::new())?;
            let abort = comm.abort_handle();
            reducer.step(comm)?.finish(&stream)?;
            assert!(reducer.last == LastStep::Queued);
            reducer.wait()?;
            let step = reducer.step(comm)?;
            step.ready(0, &stream)?;
            abort.abort("between ready and finish");
            assert_eq!(step.finish(&stream).unwrap_err().kind(), ErrorKind::Aborted);
            assert!(reducer.last == LastStep::Failed);
            assert_eq!(reducer.wait().unwrap_err().kind(), ErrorKind::Aborted);
            assert!(reducer.is_done()?);
            assert_eq!(reducer.gradient(comm, 0)?.as_slice::<f32>().unwrap(), [0.0; 10]);
            Ok(())
        };
        group.run(run).unwrap();
    }

    /// Rank 0 ends a step that waits for rank 1, and nothing that rank 0 could ask waits for it: so
    /// it is after a finish that could not order its stream.
    #[test]
    fn a_step_that_no_stream_waits_for_keeps_its_gradients() {
        const SHORT: Duration = Duration::from_millis(20);
        let (ended, looked) = (Barrier::new(2), Barrier::new(2));
        let group = Group::with_options(2, &Options::new().backend("host")).unwrap();
        let run = |comm: &mut crate::Communicator| -> Result<()> {
            let stream = Stream::new(comm.device())?;
            let mine = vec![vec![(comm.rank() + 1) as f32; 1000]];
            let mut reducer = Reducer::new(comm, mine, &ReducerOptions::new())?;
            if comm.rank() == 1 {
                ended.wait();
                looked.wait();
            }
            let step = reducer.step(comm)?;
            step.ready(0, &stream)?;
            step.finish(&stream)?;
            if comm.rank() == 0 {
                reducer.last = LastStep::Failed;
                reducer.end = Event::new(comm.device())?;
                reducer.end.record(&Stream::new(comm.device())?)?;
                let timeout = std::mem::replace(&mut reducer.timeout, SHORT);
                ended.wait();
                let lent = reducer.gradient(comm, 0).map(|_| ());
                let done = reducer.is_done();
                looked.wait();
                let late = lent.unwrap_err();
                assert_eq!(late.kind(), ErrorKind::Timeout);
                assert!(late.detail().contains("rank 0"), "{late}");
                assert!(late.detail().contains(": after 20 ms a step"), "{late}");
                assert!(!done?);
                reducer.timeout = timeout;
            }
            reducer.wait()?;
            assert!(reducer.is_done()?);
            assert_eq!(reducer.gradient(comm, 0)?.as_slice::<f32>().unwrap(), [1.5; 1000]);
            assert_eq!(reducer.into_gradients()?[0], [1.5; 1000]);
            Ok(())
        };
        group.run(run).unwrap();
    }
}
