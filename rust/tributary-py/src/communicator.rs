//! The life of a communicator.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tributary_sys as sys;

use crate::abort::AbortHandle;
use crate::batch::Batch;
use crate::failure::{argument, check, usage, Outcome};
use crate::id::UniqueId;
use crate::options::Options;
use crate::owner::Owner;
use crate::retired::sweep;
use crate::stream::OnStream;
use crate::wait::{milliseconds, Seconds};

/// One rank of a communicator.
///
/// `Communicator(id, rank, size)` waits until all ranks have called it; `Group.split` makes all
/// those of one process. One thread at a time uses it: a call of another thread meanwhile raises
/// ArgumentError. Keywords: those of Group.
///
/// Collectives are queued on a stream, and return a Work; the tensor is used in place unless `out`
/// is given. `stream` is a tributary.Stream or the stream of a framework; by default torch's
/// current stream on nccl if torch has used CUDA, else the device's default stream.
///
/// As a context it closes at the end. If an exception leaves it, it aborts, so that other ranks do
/// not wait for this one.
///
/// >>> import tributary, array
/// >>> def rank(comm):
/// ...     with comm:
/// ...         data = array.array("f", [comm.rank, 1])
/// ...         comm.allreduce(data).wait()
/// ...         return list(data)
/// >>> tributary.Group(3, backend="host").run(rank)
/// [[3.0, 3.0], [3.0, 3.0], [3.0, 3.0]]
#[pyclass(frozen, module = "tributary")]
pub struct Communicator {
    pub owner: Arc<Owner>,
}

/// A communicator of C on its way to its owner.
pub struct New(pub *mut sys::trib_comm);

// SAFETY: one thread at a time has it.
unsafe impl Send for New {}

impl New {
    pub fn own(self) -> Outcome<Option<Communicator>> {
        // SAFETY: C has given it away, and no other thread has it.
        let own = |comm| unsafe { Owner::new(comm) }.map(|owner| Communicator { owner });
        NonNull::new(self.0).map(own).transpose()
    }
}

#[pymethods]
impl Communicator {
    #[new]
    #[pyo3(signature = (id, rank, size, *, device=None, **options))]
    fn new(
        py: Python<'_>,
        id: &UniqueId,
        rank: i32,
        size: i32,
        device: Option<i32>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Communicator> {
        let options = Options::new("Communicator", options)?;
        let id = sys::trib_id { bytes: id.bytes };
        let made = py.detach(|| {
            let mut out = ptr::null_mut();
            let device = device.unwrap_or(rank);
            // SAFETY: id and options live through the call; `*out` is given away.
            check(unsafe {
                sys::trib_comm_create(&mut out, &id, rank, size, device, &options.raw())
            })?;
            New(out).own()
        })?;
        made.ok_or_else(|| usage("Communicator: none was made").into())
    }

    /// A communicator over an `ncclComm_t`, whose address is `nccl_comm`, and which stays the
    /// caller's: keep it until this one is gone. All its ranks call this. What cannot hold then, in
    /// an abort above all, `trib_comm_adopt` in tributary.h says. Keywords: those of Group.
    #[staticmethod]
    #[pyo3(signature = (nccl_comm, **options))]
    fn adopt(
        py: Python<'_>,
        nccl_comm: usize,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Communicator> {
        let options = Options::new("Communicator.adopt", options)?;
        let made = py.detach(|| {
            let (mut out, nccl_comm) = (ptr::null_mut(), nccl_comm as *mut c_void);
            // SAFETY: the options live through the call; `*out` is given away; that the address is
            // that of an ncclComm_t the caller promises.
            check(unsafe { sys::trib_comm_adopt(&mut out, nccl_comm, &options.raw()) })?;
            New(out).own()
        })?;
        made.ok_or_else(|| usage("Communicator.adopt: none was made").into())
    }

    /// This rank's number, 0 to size - 1.
    #[getter]
    fn rank(&self) -> i32 {
        self.owner.rank
    }

    /// The number of ranks.
    #[getter]
    fn size(&self) -> i32 {
        self.owner.size
    }

    /// The ordinal of this rank's device.
    #[getter]
    fn device(&self) -> i32 {
        self.owner.place.ordinal()
    }

    /// The name of the backend.
    #[getter]
    fn backend(&self) -> &'static str {
        self.owner.place.backend()
    }

    /// `name` of the options.
    #[getter]
    fn name(&self) -> String {
        self.owner.name()
    }

    /// Raise what ended the communicator, if something has. Never waits.
    fn status(&self, py: Python<'_>) -> PyResult<()> {
        // SAFETY: this thread has the turn. "Never waits."
        self.owner.call(py, "status", |comm| check(unsafe { sys::trib_comm_status(comm) }))
    }

    /// The ranks that were found missing when the communicator ended.
    fn lost(&self, py: Python<'_>) -> PyResult<Vec<i32>> {
        let size = self.owner.size;
        self.owner.call(py, "lost", |comm| {
            let (mut ranks, mut n) = (vec![0; size as usize], 0);
            // SAFETY: this thread has the turn; there is room for `size` ranks.
            check(unsafe { sys::trib_comm_lost(&mut n, comm, ranks.as_mut_ptr(), size) })?;
            ranks.truncate(n.max(0) as usize);
            Ok(ranks)
        })
    }

    /// Wait until everything queued on `stream` so far has run, at most `timeout` seconds. Returns
    /// if the results are valid. It raises DeadlineError with the ranks that are missing if
    /// `timeout` passed first, and the communicator is as before; what ended the communicator,
    /// as soon as it does.
    ///
    /// Meanwhile the communicator is in use by this thread; the wait of a Work leaves it free.
    #[pyo3(signature = (stream=None, timeout=None))]
    fn wait(
        &self,
        py: Python<'_>,
        stream: Option<&Bound<'_, PyAny>>,
        timeout: Seconds,
    ) -> PyResult<()> {
        let who = self.owner.who("wait");
        let stream = OnStream::new(py, self.owner.place, stream, &who)?;
        crate::slices::wait(py, &self.owner, &stream, timeout)
    }

    /// The deadline of calls made from now on, in seconds, and whether each is timed by itself.
    #[pyo3(signature = (timeout, *, timed=false))]
    fn set_call_timeout(&self, py: Python<'_>, timeout: Seconds, timed: bool) -> PyResult<()> {
        let ms = milliseconds("timeout", timeout)?;
        self.owner.call(py, "set_call_timeout", |comm| {
            // SAFETY: this thread has the turn.
            check(unsafe { sys::trib_comm_set_call_timeout(comm, ms, i32::from(timed)) })
        })
    }

    /// One communicator for each `color`, its ranks ordered by `key`; None for `color=None`. All
    /// ranks call it.
    #[pyo3(signature = (color, key=0))]
    fn split(
        &self,
        py: Python<'_>,
        color: Option<i32>,
        key: i32,
    ) -> PyResult<Option<Communicator>> {
        if let Some(color @ ..=-1) = color {
            return Err(argument(format!(
                "{}: `color` is {color}; expected 0 or more, or None for a rank that is in no part",
                self.owner.who("split")
            ))
            .into());
        }
        self.owner.call(py, "split", |comm| {
            let mut out = ptr::null_mut();
            let color = color.unwrap_or(sys::TRIB_NO_COLOR);
            // SAFETY: this thread has the turn; `*out` is given away.
            check(unsafe { sys::trib_comm_split(&mut out, comm, color, key) })?;
            New(out).own()
        })
    }

    /// A communicator of the ranks that are not in `excluded`, made anew; this one ends. Every rank
    /// that is not excluded calls it with the same ranks.
    #[pyo3(signature = (excluded, timeout=None))]
    fn shrink(
        &self,
        py: Python<'_>,
        excluded: Vec<i32>,
        timeout: Seconds,
    ) -> PyResult<Communicator> {
        let ms = milliseconds("timeout", timeout)?;
        let made = self.owner.call(py, "shrink", |comm| {
            let mut out = ptr::null_mut();
            let n = excluded.len() as i32;
            // SAFETY: this thread has the turn; `n` ranks; `*out` is given away.
            check(unsafe { sys::trib_comm_shrink(&mut out, comm, excluded.as_ptr(), n, ms) })?;
            New(out).own()
        })?;
        made.ok_or_else(|| usage("shrink: no communicator was made").into())
    }

    /// A handle that aborts this communicator from any thread.
    fn abort_handle(&self) -> AbortHandle {
        AbortHandle::new(self.owner.abort.clone())
    }

    /// Abort all ranks, from any thread. The first `reason` is in the errors that follow.
    #[pyo3(signature = (reason="aborted by Communicator.abort"))]
    fn abort(&self, py: Python<'_>, reason: &str) {
        py.detach(|| self.owner.abort.raise(reason));
    }

    /// Wait until what was queued has run on all ranks of this process, then release the backend's
    /// resources. Later calls raise StateError, but for another close, which does nothing.
    #[pyo3(signature = (timeout=None))]
    fn close(&self, py: Python<'_>, timeout: Seconds) -> PyResult<()> {
        if self.owner.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let ms = milliseconds("timeout", Some(timeout.unwrap_or(5.0)))?;
        self.owner.call(py, "close", |comm| {
            // SAFETY: this thread has the turn; the owner's drop destroys.
            check(unsafe { sys::trib_comm_close(comm, ms) })
        })?;
        self.owner.closed.store(true, Ordering::Release);
        sweep(py);
        Ok(())
    }

    /// Counters of this rank: calls, bytes, and so on.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let raw = self.owner.call(py, "counters", |comm| {
            let mut raw = sys::TRIB_COUNTERS_INIT;
            // SAFETY: this thread has the turn; the struct has its size set.
            check(unsafe { sys::trib_comm_counters(&mut raw, comm) }).map(|()| raw)
        })?;
        let all = PyDict::new(py);
        all.set_item("calls", raw.calls)?;
        all.set_item("bytes", raw.bytes)?;
        all.set_item("backend_calls", raw.backend_calls)?;
        all.set_item("workspace_bytes", raw.workspace_bytes)?;
        all.set_item("lists_queued", raw.lists_queued)?;
        all.set_item("lists_committed", raw.lists_committed)?;
        all.set_item("lists_refused", raw.lists_refused)?;
        all.set_item("staged_calls", raw.staged_calls)?;
        Ok(all)
    }

    /// A batch: `with comm.batch() as work:` queues the calls inside as one, at its end. They
    /// return `work`, too. If an exception leaves it, nothing is queued.
    #[pyo3(signature = (stream=None))]
    fn batch(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<Batch> {
        let stream = OnStream::new(py, self.owner.place, stream, &self.owner.who("batch"))?;
        Ok(Batch::new(&self.owner, stream))
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    #[pyo3(signature = (kind, value, traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = traceback;
        if kind.is_none() {
            return self.close(py, None);
        }
        let name = kind.getattr("__name__")?;
        self.abort(py, &format!("rank {} left with {name}: {value}", self.owner.rank));
        Ok(())
    }

    fn __repr__(&self) -> String {
        let Owner { rank, size, place, .. } = &*self.owner;
        format!("<tributary.Communicator rank {rank} of {size} on {place}>")
    }
}
