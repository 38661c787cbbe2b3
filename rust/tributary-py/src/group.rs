//! All ranks of a communicator, driven by one thread.

use std::ffi::CStr;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt};
use tributary_sys as sys;

use crate::abort::{Abort, AbortHandle};
use crate::communicator::{Communicator, New};
use crate::failure::{argument, check, usage, Failure, Outcome};
use crate::group_call::GroupCall;
use crate::options::Options;
use crate::owner::without_gil;
use crate::place::Place;
use crate::retired::sweep;
use crate::slices::{explain, sliced};
use crate::turn::{Taken, Turn};
use crate::view::op_of;
use crate::wait::{milliseconds, Seconds};
use crate::work::Work;

pub type Any<'a, 'py> = &'a Bound<'py, PyAny>;

/// All ranks of a communicator in this process.
///
/// `Group(size)` uses the devices 0 to size - 1, `Group([0, 2])` those; on nccl a rank is a GPU, on
/// host a thread. `split` gives a communicator to each thread, and `run` starts these threads. The
/// collectives of a group itself take a list with the tensor of each rank, and return a list of
/// works.
///
/// Keywords: `backend` ("nccl" or "host"); `timeout`, `close_timeout` and `call_timeout` in
/// seconds, math.inf for none; `name`, for logs and dumps; `match_calls` and `compared`, by which
/// ranks compare their calls; `timed`, `recorded`, `side_channel`; `min_ctas`, `max_ctas`,
/// `cta_policy` and `network`, which are NCCL's; `peer_bytes`, the device memory that kernels between
/// GPUs may take on each rank, 0 for none; `windows`: `Symmetric` memory is registered with
/// NCCL, and an abort ends its calls there ("abortable"), or need not ("unabortable").
///
/// >>> import tributary, array
/// >>> group = tributary.Group(2, backend="host")
/// >>> data = [array.array("f", [1, 2]), array.array("f", [10, 20])]
/// >>> for work in group.allreduce(data, "sum"):
/// ...     work.wait()
/// >>> data[0]
/// array('f', [11.0, 22.0])
#[pyclass(frozen, module = "tributary")]
pub struct Group {
    /// NULL once it was split.
    raw: AtomicPtr<sys::trib_group>,
    turn: Turn,
    pub abort: Abort,
    pub places: Vec<Place>,
}

pub struct Raw(*mut sys::trib_group);

// SAFETY: one thread at a time uses it, which has the turn.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

impl Raw {
    pub fn get(&self) -> *mut sys::trib_group {
        self.0
    }
}

#[pymethods]
impl Group {
    #[new]
    #[pyo3(signature = (devices, **options))]
    fn new(
        py: Python<'_>,
        devices: Any<'_, '_>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Group> {
        let devices = ordinals(devices)?;
        let options = Options::new("Group", options)?;
        Ok(py.detach(|| create(&devices, &options))?)
    }

    /// The number of ranks.
    #[getter]
    fn size(&self) -> usize {
        self.places.len()
    }

    /// The ordinal of each rank's device.
    #[getter]
    fn devices(&self) -> Vec<i32> {
        self.places.iter().map(|place| place.ordinal()).collect()
    }

    /// The name of the backend.
    #[getter]
    fn backend(&self) -> &'static str {
        self.places[0].backend()
    }

    /// `Communicator.allreduce` on every rank: tensors[i] is that of rank i, outs[i] its result.
    #[pyo3(signature = (tensors, op="sum", *, outs=None, streams=None))]
    fn allreduce(
        &self,
        py: Python<'_>,
        tensors: Vec<Bound<'_, PyAny>>,
        op: &str,
        outs: Option<Vec<Bound<'_, PyAny>>>,
        streams: Option<Vec<Bound<'_, PyAny>>>,
    ) -> PyResult<Vec<Work>> {
        let op = op_of(op, "allreduce of a group")?;
        let mut call = GroupCall::new(py, self, "allreduce", streams)?;
        let pairs = call.pairs(&tensors, outs.as_deref())?;
        call.queue(py, |group, streams| {
            let (send, recv) = pairs.get();
            // SAFETY: an entry for each rank, `count` elements each, which the works keep.
            unsafe {
                sys::trib_group_allreduce(group, send, recv, pairs.count, pairs.dtype, op, streams)
            }
        })
    }

    /// `Communicator.broadcast` on every rank.
    #[pyo3(signature = (tensors, root=0, *, outs=None, streams=None))]
    fn broadcast(
        &self,
        py: Python<'_>,
        tensors: Vec<Bound<'_, PyAny>>,
        root: i32,
        outs: Option<Vec<Bound<'_, PyAny>>>,
        streams: Option<Vec<Bound<'_, PyAny>>>,
    ) -> PyResult<Vec<Work>> {
        let mut call = GroupCall::new(py, self, "broadcast", streams)?;
        let pairs = call.pairs(&tensors, outs.as_deref())?;
        call.queue(py, |group, streams| {
            let (send, recv) = pairs.get();
            // SAFETY: as in `allreduce`.
            unsafe {
                sys::trib_group_broadcast(
                    group,
                    send,
                    recv,
                    pairs.count,
                    pairs.dtype,
                    root,
                    streams,
                )
            }
        })
    }

    /// `Communicator.allreduce_list` on every rank: tensors[i] is the list of rank i.
    #[pyo3(signature = (tensors, op="sum", *, streams=None))]
    fn allreduce_list(
        &self,
        py: Python<'_>,
        tensors: Vec<Vec<Bound<'_, PyAny>>>,
        op: &str,
        streams: Option<Vec<Bound<'_, PyAny>>>,
    ) -> PyResult<Vec<Work>> {
        let op = op_of(op, "allreduce_list of a group")?;
        let mut call = GroupCall::new(py, self, "allreduce_list", streams)?;
        let lists = call.lists(&tensors)?;
        call.queue(py, |group, streams| {
            let each = lists.each();
            // SAFETY: a list of `n` tensors for each rank, which the works keep.
            unsafe { sys::trib_group_allreduce_list(group, each.as_ptr(), lists.n, op, streams) }
        })
    }

    /// `Communicator.broadcast_list` on every rank.
    #[pyo3(signature = (tensors, root=0, *, streams=None))]
    fn broadcast_list(
        &self,
        py: Python<'_>,
        tensors: Vec<Vec<Bound<'_, PyAny>>>,
        root: i32,
        streams: Option<Vec<Bound<'_, PyAny>>>,
    ) -> PyResult<Vec<Work>> {
        let mut call = GroupCall::new(py, self, "broadcast_list", streams)?;
        let lists = call.lists(&tensors)?;
        call.queue(py, |group, streams| {
            let each = lists.each();
            // SAFETY: as in `allreduce_list`.
            unsafe { sys::trib_group_broadcast_list(group, each.as_ptr(), lists.n, root, streams) }
        })
    }

    /// A communicator for each rank, for a thread each. The group cannot be used any more.
    fn split(&self, py: Python<'_>) -> PyResult<Vec<Communicator>> {
        let (turn, raw) = self.take("split")?;
        let split = py.detach(|| {
            let _inside = turn.lock();
            let mut out = vec![ptr::null_mut(); self.places.len()];
            // SAFETY: this thread has the turn; there is room for every rank.
            check(unsafe { sys::trib_group_split(out.as_mut_ptr(), raw.get()) })?;
            self.raw.store(ptr::null_mut(), Ordering::Release);
            // All are owned before one that failed is looked at, so that none is lost.
            let ranks: Vec<_> = out.into_iter().map(|comm| New(comm).own()).collect();
            let ranks: Outcome<Vec<_>> = ranks.into_iter().collect();
            Outcome::Ok(ranks?.into_iter().flatten().collect())
        });
        Ok(split?)
    }

    /// Split the group, call `function(comm)` on a thread for each rank, and return their results,
    /// by rank. If it raises on a rank, the communicator is aborted, so that the others do not
    /// wait, and the first exception is raised here.
    fn run<'py>(&self, py: Python<'py>, function: Any<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let ranks = self.split(py)?;
        py.import("tributary._run")?.call_method1("run", (ranks, function))
    }

    /// Wait until everything queued on `streams` so far has run, at most `timeout` seconds for all.
    #[pyo3(signature = (streams=None, timeout=None))]
    fn wait(
        &self,
        py: Python<'_>,
        streams: Option<Vec<Bound<'_, PyAny>>>,
        timeout: Seconds,
    ) -> PyResult<()> {
        let ms = milliseconds("timeout", timeout.or(Some(f64::INFINITY)))?;
        let call = GroupCall::new(py, self, "wait", streams)?;
        let (turn, raw) = self.take("wait")?;
        let _streams = call.take()?;
        let streams = call.streams();
        let waited = sliced(
            py,
            ms,
            || self.abort.is_raised(),
            |ms| {
                let _inside = turn.lock();
                // SAFETY: this thread has the turns; a stream for each rank.
                check(unsafe { sys::trib_group_wait(raw.get(), streams.get(), ms) })
            },
        )?;
        sweep(py);
        Ok(explain(&self.abort, waited)?)
    }

    /// A handle that aborts all ranks from any thread.
    fn abort_handle(&self) -> AbortHandle {
        AbortHandle::new(self.abort.clone())
    }

    /// Raise what ended the group, if something has.
    fn status(&self, py: Python<'_>) -> PyResult<()> {
        let (_turn, raw) = self.take("status")?;
        // SAFETY: this thread has the turn.
        Ok(py.detach(|| check(unsafe { sys::trib_group_status(raw.get()) }))?)
    }

    fn __repr__(&self) -> String {
        format!("<tributary.Group of {} ranks on {}>", self.places.len(), self.backend())
    }
}

/// More ranks than any process has devices: a larger number is a mistake, and its list would take
/// all memory.
const MOST: i64 = 65536;

/// A number of ranks, or the ordinal of each one's device.
fn ordinals(given: Any<'_, '_>) -> PyResult<Vec<i32>> {
    if !given.is_instance_of::<PyInt>() && given.extract::<i64>().is_err() {
        return given.extract();
    }
    match given.extract::<i64>().unwrap_or(i64::MAX) {
        size @ 1..=MOST => Ok((0..size as i32).collect()),
        _ => Err(argument(format!(
            "Group: {given} ranks; expected 1 or more, and at most as many as there are devices"
        ))
        .into()),
    }
}

fn create(devices: &[i32], options: &Options) -> Outcome<Group> {
    if devices.is_empty() {
        return Err(argument("Group: the list of devices is empty; expected one for each rank"));
    }
    let mut out = ptr::null_mut();
    let n = devices.len() as i32;
    // SAFETY: `n` devices, and options, which live through the call.
    check(unsafe { sys::trib_group_create(&mut out, devices.as_ptr(), n, &options.raw()) })?;
    let destroy = |_: &Failure| {
        // SAFETY: it is ours, and nobody has seen it.
        unsafe { sys::trib_group_destroy(out) };
    };
    // SAFETY: it is alive; the name of its backend lives for ever.
    let backend = unsafe { CStr::from_ptr(sys::trib_group_backend(out)) };
    let places: Outcome<Vec<_>> =
        devices.iter().map(|&device| Place::get(Some(backend), device)).collect();
    let places = places.inspect_err(destroy)?;
    // SAFETY: it is alive, and nobody else has it.
    let abort = Abort::new(|handle| unsafe { sys::trib_group_abort_handle(handle, out) })
        .inspect_err(destroy)?;
    Ok(Group { raw: AtomicPtr::new(out), turn: Turn::default(), abort, places })
}

impl Group {
    pub fn take(&self, operation: &str) -> Outcome<(Taken<'_>, Raw)> {
        let turn = self.turn.take(operation, self)?;
        let raw = self.raw.load(Ordering::Acquire);
        if raw.is_null() {
            return Err(usage(format!(
                "{operation}: the group has been split; use its communicators"
            )));
        }
        Ok((turn, Raw(raw)))
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the group of {} ranks", self.places.len())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let raw = Raw(*self.raw.get_mut());
        without_gil(move || {
            // SAFETY: it is ours, and this is the last use. "NULL is allowed", and "never blocks
            // for ever".
            unsafe { sys::trib_group_destroy(raw.get()) };
        });
    }
}
