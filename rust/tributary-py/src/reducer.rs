//! The gradients of a training step, averaged while the backward pass makes the others.

use std::ffi::c_void;
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tributary_sys as sys;

use crate::call::{or_null, Call, Tensor};
use crate::communicator::Communicator;
use crate::failure::{check, Outcome};
use crate::options::{Keywords, SparseOptions};
use crate::outcome;
use crate::owner::{without_gil, Owner};
use crate::place::Place;
use crate::statistics::Statistics;
use crate::stream::OnStream;
use crate::work::{Applied, Kept, Last, Work};

/// The gradients of a training, reduced in buckets while the backward pass makes the others.
///
/// `Reducer(comm, gradients)` waits for all ranks; they pass the same. Then, in each step,
/// `ready(i)` when what makes gradient i is queued (any thread, several at once), and `finish()`.
/// All gradients are averaged, or, if the step is not applied, none is written.
///
/// Keywords: `average` (else sums); `order`, a permutation of the gradients' numbers, in which buckets
/// are filled; or `learn_order`, by which the first step decides it; `in_place`, for gradients that lie
/// in buckets already, one right behind the other: how many each bucket has, in the order. They are
/// reduced there, and are 0 after a step that is not applied; `weight`, one float in device memory, for
/// weighted averages; `bucket_bytes`, and `first_bytes` of the first bucket and the last; `sparse`, a dict of SparseAllReduce's keywords,
/// {} for the defaults.
///
/// >>> import tributary, array
/// >>> def rank(comm):
/// ...     gradients = [array.array("f", [comm.rank]), array.array("f", [2, 4])]
/// ...     reducer = tributary.Reducer(comm, gradients)
/// ...     for i in (1, 0):
/// ...         reducer.ready(i)
/// ...     reducer.finish().wait()
/// ...     return list(gradients[0]) + list(gradients[1])
/// >>> tributary.Group(2, backend="host").run(rank)
/// [[0.5, 2.0, 4.0], [0.5, 2.0, 4.0]]
#[pyclass(frozen, module = "tributary")]
pub struct Reducer {
    state: Arc<ReducerState>,
}

/// A reducer of C, with the memory of its gradients. It holds its communicator: "`comm` must
/// outlive the reducer".
pub struct ReducerState {
    raw: NonNull<sys::trib_reducer>,
    owner: Arc<Owner>,
    kept: Mutex<Kept>,
    last: Last,
    /// "Streams of one step must live until its finish."
    streams: Mutex<Kept>,
}

// SAFETY: it is used in the turn of its communicator only, which trib_reducer_ready shares.
unsafe impl Send for ReducerState {}
// SAFETY: as above.
unsafe impl Sync for ReducerState {}

impl ReducerState {
    fn get(&self) -> *mut sys::trib_reducer {
        self.raw.as_ptr()
    }

    pub fn place(&self) -> Place {
        self.owner.place
    }

    /// "Borrowed": as long as the reducer lives.
    pub fn outcome(&self) -> *const u32 {
        // SAFETY: the reducer is alive, and its word stays where it is.
        unsafe { sys::trib_reducer_outcome(self.get()) }
    }

    fn call<T: Send>(
        &self,
        py: Python<'_>,
        operation: &str,
        function: impl FnOnce(*mut sys::trib_reducer) -> Outcome<T> + Send,
    ) -> PyResult<T> {
        self.owner.call(py, operation, |_| function(self.get()))
    }

    /// A step that was left in the middle ends the communicator: other ranks wait for it, and "in
    /// the middle of a step: TRIB_ERR_INVALID_USAGE and nothing happens, unless the
    /// communicator has ended".
    fn destroy(&self) -> sys::trib_status {
        let _inside = self.owner.turn.inside();
        // SAFETY: this is the last use, but for the next one where nothing has happened.
        let destroyed = unsafe { sys::trib_reducer_destroy(self.get()) };
        if destroyed != sys::TRIB_ERR_INVALID_USAGE {
            return destroyed;
        }
        self.owner.abort.raise("a reducer was dropped in the middle of a step");
        // SAFETY: nothing has happened above; this is the last use.
        unsafe { sys::trib_reducer_destroy(self.get()) }
    }
}

impl Drop for ReducerState {
    fn drop(&mut self) {
        let mut destroyed = sys::TRIB_OK;
        without_gil(|| destroyed = self.destroy());
        if destroyed != sys::TRIB_OK {
            // Queued steps may still use the gradients.
            mem::forget(mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner)));
            mem::forget(mem::take(
                &mut *self.streams.lock().unwrap_or_else(PoisonError::into_inner),
            ));
        }
    }
}

/// `trib_reducer_options`, which may go to another thread.
struct Options {
    raw: sys::trib_reducer_options,
    sparse: Option<SparseOptions>,
    order: Option<Vec<u64>>,
    buckets: Option<Vec<u64>>,
}

// SAFETY: its pointers are NULL, or an address of a device.
unsafe impl Sync for Options {}

impl Options {
    fn new(call: &mut Call<'_>, given: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
        let keywords = Keywords::new("Reducer", given)?;
        let mut raw = sys::TRIB_REDUCER_OPTIONS_INIT;
        raw.flags = keywords.unless("average", sys::TRIB_REDUCER_SUM)?
            | keywords.flag("learn_order", sys::TRIB_REDUCER_LEARN_ORDER)?;
        raw.bucket_bytes = keywords.take("bucket_bytes")?.unwrap_or(0);
        raw.first_bytes = keywords.take("first_bytes")?.unwrap_or(0);
        let weight = keywords.take::<Bound<'_, PyAny>>("weight")?;
        let weight = weight.map(|weight| call.read("weight", &weight)).transpose()?;
        if let Some(weight) = &weight {
            call.same("weight", weight, 1, sys::TRIB_F32)?;
        }
        raw.device_weight = or_null(weight.as_ref()).get().cast_const().cast();
        let sparse = keywords.take::<Bound<'_, PyDict>>("sparse")?;
        let sparse = sparse
            .map(|sparse| SparseOptions::new("Reducer(sparse=...)", Some(&sparse)))
            .transpose()?;
        let order = keywords.take("order")?;
        let buckets = keywords.take("in_place")?;
        keywords.finish()?;
        Ok(Options { raw, sparse, order, buckets })
    }

    /// C reads a number for each gradient.
    fn check(&self, n: usize) -> PyResult<()> {
        let Some(order) = self.order.as_ref().filter(|order| order.len() != n) else {
            return Ok(());
        };
        Err(PyValueError::new_err(format!(
            "Reducer: `order` has {} numbers; expected {n}, one a gradient",
            order.len()
        )))
    }

    /// Without `sparse`.
    fn raw(&self) -> sys::trib_reducer_options {
        let pointer =
            |numbers: &Option<Vec<u64>>| numbers.as_ref().map_or(ptr::null(), Vec::as_ptr);
        sys::trib_reducer_options {
            order: pointer(&self.order),
            buckets: pointer(&self.buckets),
            nbuckets: self.buckets.as_ref().map_or(0, |buckets| buckets.len() as u64),
            ..self.raw
        }
    }

    fn sparse(&self) -> Option<&SparseOptions> {
        self.sparse.as_ref()
    }
}

#[pymethods]
impl Reducer {
    #[new]
    #[pyo3(signature = (comm, gradients, **options))]
    fn new(
        py: Python<'_>,
        comm: &Communicator,
        gradients: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Reducer> {
        let owner = &comm.owner;
        let mut call = Call::new(py, owner, "Reducer", None)?;
        let options = Options::new(&mut call, options)?;
        let list = call.list(gradients)?;
        options.check(list.get().1)?;
        let raw = owner.call(py, "Reducer", |comm| {
            let (mut out, (tensors, n)) = (ptr::null_mut(), list.get());
            let sparse = options.sparse().map(SparseOptions::raw);
            let sparse = sparse.as_ref().map_or(ptr::null(), ptr::from_ref);
            let raw = sys::trib_reducer_options { sparse, ..options.raw() };
            // SAFETY: this thread has the turn; the options and `n` tensors live through the call,
            // and the memory of the tensors as long as the state, which keeps it.
            check(unsafe { sys::trib_reducer_create(&mut out, comm, tensors, n, &raw) })?;
            Ok(Made(NonNull::new(out).expect("a call that succeeds has set it")))
        })?;
        let (raw, owner, kept) = (raw.0, Arc::clone(owner), Mutex::new(call.into_kept()));
        Ok(Reducer {
            state: Arc::new(ReducerState {
                raw,
                owner,
                kept,
                last: Last::default(),
                streams: Mutex::default(),
            }),
        })
    }

    /// Gradient `i` is complete once what is queued on `stream` by now has run; leave it alone
    /// until the step is over. Any thread, several at once.
    #[pyo3(signature = (i, *, stream=None))]
    fn ready(&self, py: Python<'_>, i: usize, stream: Tensor<'_, '_>) -> PyResult<()> {
        let owner = &self.state.owner;
        let mut stream = OnStream::new(py, owner.place, stream, &owner.who("Reducer.ready"))?;
        let raw = stream.raw;
        let state = &self.state;
        owner.share_on(py, "Reducer.ready", &stream, || {
            // SAFETY: this thread shares the turn, and no other call runs beside it.
            check(unsafe { sys::trib_reducer_ready(state.get(), i, raw.get()) })
        })?;
        self.streams().extend(stream.object.take());
        Ok(())
    }

    /// End the step: later work on `stream` sees the averages. The wait of the work raises
    /// NON_FINITE if the step was not applied on any rank.
    #[pyo3(signature = (*, stream=None))]
    fn finish(&self, py: Python<'_>, stream: Tensor<'_, '_>) -> PyResult<Work> {
        let mut call = Call::new(py, &self.state.owner, "Reducer.finish", stream)?;
        let streams: Kept = self.streams().iter().map(|stream| stream.clone_ref(py)).collect();
        let n = streams.len();
        call.keep_objects(streams);
        let state = Arc::clone(&self.state);
        let work = call.queue_last(py, &self.state.last, move |_, stream| {
            // SAFETY: this thread has the turns.
            check(unsafe { sys::trib_reducer_finish(state.get(), stream) })?;
            Ok(Some(applied(&state)))
        })?;
        // The work keeps them now. If the finish failed, the step goes on.
        let ended: Kept = self.streams().drain(..n).collect();
        drop(ended); // not under the lock: a stream's end may run code of Python
        Ok(work)
    }

    /// Raise if the newest step that has run was not applied, or the communicator has ended.
    fn status(&self, py: Python<'_>) -> PyResult<()> {
        // SAFETY: this thread has the turn. "Never waits."
        self.state
            .call(py, "Reducer.status", |state| check(unsafe { sys::trib_reducer_status(state) }))
    }

    /// In memory of the device: was the newest step applied? See `Outcome`.
    #[getter]
    fn outcome(&self) -> outcome::Outcome {
        outcome::Outcome::new(&self.state)
    }

    /// The number of buckets.
    #[getter]
    fn buckets(&self, py: Python<'_>) -> PyResult<u64> {
        // SAFETY: this thread has the turn.
        self.state
            .call(py, "Reducer.buckets", |state| Ok(unsafe { sys::trib_reducer_buckets(state) }))
    }

    /// Change the density of every bucket, with `sparse`. All ranks call it, between steps.
    fn set_density(&self, py: Python<'_>, density: f64) -> PyResult<()> {
        self.state.call(py, "Reducer.set_density", |state| {
            // SAFETY: this thread has the turn.
            check(unsafe { sys::trib_reducer_set_density(state, density) })
        })
    }

    /// The sums of what `SparseAllReduce.statistics` has, over all buckets, with `sparse`.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = self.state.call(py, "Reducer.statistics", |state| {
            let mut raw = sys::TRIB_SPARSE_STATISTICS_INIT;
            // SAFETY: this thread has the turn. "Never waits."
            check(unsafe { sys::trib_reducer_statistics(&mut raw, state) })?;
            // SAFETY: strings that live as long as the reducer.
            Ok(unsafe { Statistics::new(raw) })
        })?;
        found.to_dict(py)
    }

    /// Residuals and velocities of all gradients, for a checkpoint; empty without `sparse`.
    fn export_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let data = self.state.call(py, "Reducer.export_state", |state| {
            // SAFETY: this thread has the turn; the place has as many bytes as it says.
            unsafe {
                let mut data = vec![0_u8; sys::trib_reducer_export_bytes(state) as usize];
                if data.is_empty() {
                    return Ok(data);
                }
                let out = data.as_mut_ptr().cast::<c_void>();
                check(sys::trib_reducer_export(state, out, data.len())).map(|()| data)
            }
        })?;
        Ok(PyBytes::new(py, &data))
    }

    /// Take over an export of a reducer of gradients of the same counts and types; all ranks call
    /// it. With `add` this rank alone adds it to what it has.
    #[pyo3(signature = (data, *, add=false))]
    fn import_state(&self, py: Python<'_>, data: &[u8], add: bool) -> PyResult<()> {
        self.state.call(py, "Reducer.import_state", |state| {
            let (from, bytes) = (data.as_ptr().cast(), data.len());
            // SAFETY: this thread has the turn; bytes of Python never change.
            check(unsafe { sys::trib_reducer_import(state, from, bytes, i32::from(add)) })
        })
    }

    fn __repr__(&self) -> String {
        let owner = &self.state.owner;
        format!("<tributary.Reducer on rank {} ({})>", owner.rank, owner.place)
    }
}

impl Reducer {
    fn streams(&self) -> MutexGuard<'_, Kept> {
        self.state.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reducer on its way to its state.
struct Made(NonNull<sys::trib_reducer>);

// SAFETY: one thread at a time has it.
unsafe impl Send for Made {}

fn applied(state: &Arc<ReducerState>) -> Applied {
    let state = Arc::clone(state);
    Arc::new(move || {
        // SAFETY: the lock inside keeps other threads out. "Never waits."
        state.owner.peek(|_| check(unsafe { sys::trib_reducer_status(state.get()) })).transpose()
    })
}
