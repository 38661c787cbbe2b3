//! Queued calls, and the memory that they use until they have run.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tributary_sys as sys;

use crate::abort::Abort;
use crate::failure::{check, usage, Failure, Outcome};
use crate::owner::Owner;
use crate::stream::{Mark, OnStream};
use crate::wait::{self, Seconds};

/// How long the wait of a work goes on for its memory after its communicator has ended.
const GRACE: Duration = Duration::from_secs(5);

/// What a queued call uses, and must outlive it.
pub type Kept = Vec<Py<PyAny>>;

/// Whether a call that has run was applied, asked by any thread, without the GIL. `None` if the
/// communicator is in use: ask again.
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
    /// They have run, or never will.
    Over {
        applied: Option<Applied>,
    },
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
            State::Over { .. } => Ok(None),
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

    fn wait(&self, py: Python<'_>, timeout: Seconds) -> PyResult<()> {
        if let Some(mark) = self.mark()? {
            let mut ended: Option<Instant> = None;
            let passed = wait::until(py, "timeout", timeout, || {
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
            })?;
            if !passed {
                return Err(self.late(py, timeout.unwrap_or_default()).into());
            }
            drop(self.finish());
        }
        self.outcome(py)
    }

    /// The calls have run: nothing uses the memory any more, which the caller lets go.
    fn finish(&self) -> Kept {
        let mut state = self.state();
        match mem::replace(&mut *state, State::Captured) {
            State::Queued { kept, applied, .. } => {
                *state = State::Over { applied };
                kept
            }
            other => {
                *state = other;
                Kept::new()
            }
        }
    }

    /// "after a wait for the stream, results are valid if and only if trib_comm_status() is
    /// TRIB_OK", which an abort handle says, too.
    fn outcome(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.abort.status())?;
        // Not under the lock: what is asked may be destroyed with the question, which takes the
        // GIL.
        let applied = match &*self.state() {
            State::Over { applied: Some(applied) } => Arc::clone(applied),
            _ => return Ok(()),
        };
        wait::until(py, "timeout", None, || Ok(applied()?.is_some())).map(drop)
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
        let (Some(mark), Some(owner)) = (self.mark()?, self.owner.upgrade()) else {
            return Ok(());
        };
        let stream = OnStream::new(py, owner.place, Some(stream), "Work.wait_on")?;
        let _turn = stream.take("Work.wait_on")?;
        // The state's lock keeps other threads from the event.
        let raw = stream.raw;
        Ok(py.detach(|| {
            let _state = self.state();
            mark.order_before(owner.place, raw)
        })?)
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
    pub fn cancel(&self) {
        *self.state() = State::Over { applied: None };
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

/// What dropped works used, until they have run.
static RETIRED: Mutex<VecDeque<(Arc<Mark>, Kept)>> = Mutex::new(VecDeque::new());

/// Keeps `kept` until the stream has passed `mark`: a later call looks.
pub fn retire(mark: Arc<Mark>, kept: Kept) {
    if !mark.passed().unwrap_or(false) {
        RETIRED.lock().unwrap_or_else(PoisonError::into_inner).push_back((mark, kept));
    }
}

/// Lets go what has run: the oldest first, and all of them where they have become many. The device
/// may have failed, or a capture may have taken a stream: what cannot be asked is kept.
pub fn sweep() {
    const MANY: usize = 256;
    let mut free = Vec::new();
    let mut retired = RETIRED.lock().unwrap_or_else(PoisonError::into_inner);
    let passed = |(mark, _): &(Arc<Mark>, Kept)| mark.passed().unwrap_or(false);
    while retired.front().is_some_and(passed) {
        free.extend(retired.pop_front());
    }
    if retired.len() >= MANY && retired.len().is_power_of_two() {
        let all = mem::take(&mut *retired);
        let (over, left): (VecDeque<_>, VecDeque<_>) = all.into_iter().partition(passed);
        *retired = left;
        free.extend(over);
    }
    drop(retired); // what is freed may run code of Python, which may come here again
    drop(free);
}
