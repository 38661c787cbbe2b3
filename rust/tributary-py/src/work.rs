//! Queued calls, and the memory that they use until they have run.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use tributary_sys as sys;

use crate::abort::Abort;
use crate::event::Mark;
use crate::failure::{check, usage, Failure, Outcome};
use crate::owner::Owner;
use crate::retired::{retire, sweep};
use crate::stream::OnStream;
use crate::wait::{self, Seconds};

/// How long the wait of a work goes on for its memory after its communicator has ended.
const GRACE: Duration = Duration::from_secs(5);

/// What a queued call uses, and must outlive it.
pub type Kept = Vec<Py<PyAny>>;

/// Whether a call that has run was applied, asked by any thread, without the GIL. `None` if the
/// communicator is in use: ask again. It keeps what it asks, so that a failure is not lost with the
/// object that was called; what it keeps may wait when it is dropped, so not under a lock.
pub type Applied = Arc<dyn Fn() -> Outcome<Option<()>> + Send + Sync>;

/// The calls of an open batch.
pub struct Recording {
    pub work: Arc<Queued>,
    pub stream: OnStream,
    pub kept: Kept,
}

/// Queued calls of one stream.
pub struct Queued {
    who: String,
    abort: Abort,
    owner: Weak<Owner>,
    state: Mutex<State>,
}

enum State {
    /// Of a batch that has not ended.
    Recording,
    Queued {
        mark: Arc<Mark>,
        stream: OnStream,
        kept: Kept,
        applied: Option<Applied>,
    },
    /// They have run, and no wait has asked whether they were applied.
    Ran {
        applied: Option<Applied>,
    },
    /// What every wait returns: later calls change nothing of it.
    Over(Outcome<()>),
    /// Of a CUDA graph: they run when that is launched, on memory that the graph's owner keeps.
    Captured,
}

/// Queued calls, and the tensors that they use.
///
/// `wait` returns when they have run, and raises if they failed. A work may be dropped: its tensors
/// stay alive until the calls have run, and never is anything freed that is still in use.
#[pyclass(frozen, module = "tributary")]
pub struct Work {
    pub queued: Arc<Queued>,
}

#[pymethods]
impl Work {
    /// Wait until the calls have run: without the GIL, on any thread, at most `timeout` seconds.
    ///
    /// Returns if the results are valid. Raises what ended the communicator otherwise; NON_FINITE
    /// if a sparse call or a weighted average was not applied on any rank, after which
    /// everything goes on; DeadlineError if `timeout` passed first, after which it can be
    /// waited for again.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Seconds) -> PyResult<()> {
        self.queued.wait(py, timeout)
    }

    /// Whether the calls have run. Never waits, and says nothing of their success.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(py.detach(|| self.queued.passed())?)
    }

    /// Make later work on `stream` wait for the calls; the host waits for nothing.
    fn wait_on(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        self.queued.wait_on(py, stream)
    }

    fn __repr__(&self) -> String {
        format!("<tributary.Work of {}>", self.queued.who)
    }
}

impl Queued {
    /// Of a batch.
    pub fn recording(owner: &Arc<Owner>, who: String) -> Arc<Queued> {
        Queued::new(owner, who, State::Recording)
    }

    fn new(owner: &Arc<Owner>, who: String, state: State) -> Arc<Queued> {
        let (abort, owner) = (owner.abort.clone(), Arc::downgrade(owner));
        Arc::new(Queued { who, abort, owner, state: Mutex::new(state) })
    }

    /// Of one rank of a group, until `end`.
    pub fn of_group(abort: Abort, who: String) -> Arc<Queued> {
        Arc::new(Queued { who, abort, owner: Weak::new(), state: Mutex::new(State::Recording) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark(&self) -> Outcome<Option<Arc<Mark>>> {
        match &*self.state() {
            State::Recording => Err(usage(format!(
                "the work of {}: its batch has not ended; wait for it after the `with`",
                self.who
            ))),
            State::Queued { mark, .. } => Ok(Some(Arc::clone(mark))),
            State::Ran { .. } | State::Over(_) => Ok(None),
            State::Captured => Err(usage(format!(
                "the work of {}: a CUDA graph has captured it; wait for the stream on which that \
                 is launched, with Communicator.wait",
                self.who
            ))),
        }
    }

    /// Never waits.
    fn passed(&self) -> Outcome<bool> {
        self.mark()?.map_or(Ok(true), |mark| mark.passed())
    }

    pub fn wait(&self, py: Python<'_>, timeout: Seconds) -> PyResult<()> {
        if let Some(mark) = self.mark()? {
            if !wait::until(py, "timeout", timeout, self.passed_or_ended(&mark))? {
                return Err(self.late(py, timeout.unwrap_or_default()).into());
            }
            self.finish(py, mark);
            sweep(py);
        }
        self.outcome(py)
    }

    /// Whether the stream has passed `mark`. An error once the communicator has ended, and the
    /// stream has not reached that point for a while.
    fn passed_or_ended<'a>(&'a self, mark: &'a Mark) -> impl FnMut() -> Outcome<bool> + Send + 'a {
        let mut ended: Option<Instant> = None;
        move || {
            if mark.passed()? {
                return Ok(true);
            }
            if ended.is_none() && self.abort.is_raised() {
                ended = Some(Instant::now());
            }
            match ended.is_some_and(|ended| ended.elapsed() >= GRACE) {
                true => self.abort.status().map(|()| false),
                false => Ok(false),
            }
        }
    }

    /// The calls have run: nothing uses the memory any more.
    fn finish(&self, py: Python<'_>, mark: Arc<Mark>) {
        let mut state = self.state();
        let old = match mem::replace(&mut *state, State::Captured) {
            State::Queued { mark, stream, kept, applied } => {
                *state = State::Ran { applied };
                Some((mark, stream, kept))
            }
            other => {
                *state = other;
                None
            }
        };
        drop(state); // the end of a tensor or stream may run code of Python, which may ask this work
        let old = old.map(|(own, stream, kept)| {
            py.detach(|| drop(own));
            (stream, kept)
        });
        py.detach(|| drop(mark));
        drop(old);
    }

    /// "after a wait for the stream, results are valid if and only if trib_comm_status() is
    /// TRIB_OK", which an abort handle says, too.
    fn outcome(&self, py: Python<'_>) -> PyResult<()> {
        let applied = match &*self.state() {
            State::Over(outcome) => return Ok(outcome.clone()?),
            State::Ran { applied } => applied.clone(),
            _ => None,
        };
        py.detach(|| self.abort.status())?;
        let outcome = match &applied {
            Some(applied) => {
                let mut found = Ok(());
                wait::until(py, "timeout", None, || {
                    found = match applied() {
                        Ok(None) => return Ok(false),
                        Ok(Some(())) => Ok(()),
                        Err(failure) => Err(failure),
                    };
                    Ok(true)
                })?;
                found
            }
            None => Ok(()),
        };
        let old = mem::replace(&mut *self.state(), State::Over(outcome.clone()));
        drop((old, applied)); // not under the lock
        Ok(outcome?)
    }

    /// The communicator's own detail, which names who is missing, if nobody uses it now.
    fn late(&self, py: Python<'_>, seconds: f64) -> Failure {
        let plain = || {
            let who = &self.who;
            Failure::new(
                sys::TRIB_ERR_TIMEOUT,
                format!(
                    "the work of {who} has not run after {seconds} s; the communicator is as \
                     before: wait again, or abort it"
                ),
            )
        };
        let (stream, owner) = match (&*self.state(), self.owner.upgrade()) {
            (State::Queued { stream, .. }, Some(owner)) => (stream.clone_ref(py), owner),
            _ => return plain(),
        };
        let (raw, turn) = (stream.raw, stream.take("Work.wait"));
        let asked = turn.ok().and_then(|_turn| {
            // SAFETY: both live, and nobody else uses them now. It waits for 1 ms.
            let ask = |comm| check(unsafe { sys::trib_comm_wait(comm, raw.get(), 1) });
            py.detach(|| owner.peek(ask))
        });
        match asked {
            Some(Err(failure)) => failure,
            _ => plain(),
        }
    }

    fn wait_on(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(mark) = self.mark()? else { return Ok(()) };
        // Not the communicator's place: that may be gone, and works of a group have none.
        let who = format!("Work.wait_on of {}", self.who);
        let stream = OnStream::new(py, mark.place(), Some(stream), &who)?;
        let _turn = stream.take("Work.wait_on")?;
        let raw = stream.raw;
        Ok(py.detach(move || {
            let _state = self.state(); // keeps other threads from the event
            mark.order_before(mark.place(), raw)
        })?)
    }
}

/// The work of the newest call of an object that tells of its newest call alone.
#[derive(Default)]
pub struct Last(Mutex<Weak<Queued>>);

impl Last {
    fn lock(&self) -> MutexGuard<'_, Weak<Queued>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, queued: &Arc<Queued>) {
        let old = mem::replace(&mut *self.lock(), Arc::downgrade(queued));
        drop(old);
    }

    /// Before the next call: the work keeps the outcome of its own, whatever that is. One that was
    /// dropped is waited for by nobody. An interrupt is the caller's.
    pub fn settle(&self, py: Python<'_>) -> PyResult<()> {
        let last = self.lock().upgrade();
        match last.map_or(Ok(()), |last| last.wait(py, None)) {
            Err(error) if !error.is_instance_of::<PyException>(py) => Err(error),
            _ => Ok(()),
        }
    }
}

/// How the queueing of a call went, after it.
pub enum End {
    /// The point of its stream behind it.
    Marked(Mark),
    Captured,
}

impl Queued {
    /// Of a call that C has taken, or of a batch that has ended.
    pub fn after(
        owner: &Arc<Owner>,
        who: String,
        end: End,
        stream: OnStream,
        kept: Kept,
        applied: Option<Applied>,
    ) -> Arc<Queued> {
        let work = Queued::recording(owner, who);
        work.end(end, stream, kept, applied);
        work
    }

    /// The batch has ended.
    pub fn end(&self, end: End, stream: OnStream, kept: Kept, applied: Option<Applied>) {
        *self.state() = match end {
            End::Marked(mark) => State::Queued { mark: Arc::new(mark), stream, kept, applied },
            End::Captured => State::Captured,
        };
    }

    /// The batch has been cancelled, or has failed: there is nothing to wait for.
    pub fn cancel(&self, why: Failure) {
        *self.state() = State::Over(Err(why));
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let State::Queued { mark, stream, mut kept, .. } = mem::replace(state, State::Captured) {
            kept.extend(stream.object);
            retire(mark, kept);
        }
    }
}
