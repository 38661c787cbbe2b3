//! Sparse allreduces with error feedback.

use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tributary_sys as sys;

use crate::call::{Call, Tensor};
use crate::communicator::Communicator;
use crate::failure::{argument, check, usage};
use crate::options::SparseOptions;
use crate::sparse_state::{applied, statistics, SparseState};
use crate::statistics::Statistics;
use crate::stream::OnStream;
use crate::view::{dtype_name, dtype_of};
use crate::work::{Last, Work};

/// One tensor's sparse allreduce on one rank: each call sends the largest entries of gradient +
/// residual, and keeps the rest as the residual of the next.
///
/// `SparseAllReduce(comm, count, dtype)` waits for all ranks; they pass the same. Keywords:
/// `algorithm` ("auto", "topka", "chunked", ...: `tributary.sparse_algorithms()`), `density` (0.01)
/// or `k`, `average`, `momentum`, `masking`, `clip_norm`, `in_place`, `entries`, `f32_result`,
/// `decay`, `wire` ("bf16"), `chunk`, `constants`, `norm_every`.
///
/// >>> import tributary, array
/// >>> def rank(comm):
/// ...     sparse = tributary.SparseAllReduce(comm, 4, algorithm="topka", k=1)
/// ...     gradient, result = array.array("f", [1, -8, 2, 0]), array.array("f", 4 * [0])
/// ...     sparse.allreduce(gradient, result).wait()
/// ...     return list(result)
/// >>> tributary.Group(2, backend="host").run(rank)[0]
/// [0.0, -16.0, 0.0, 0.0]
#[pyclass(frozen, module = "tributary")]
pub struct SparseAllReduce {
    state: Arc<SparseState>,
    count: usize,
    dtype: sys::trib_dtype,
    /// Of results.
    result: sys::trib_dtype,
    in_place: bool,
}

#[pymethods]
impl SparseAllReduce {
    #[new]
    #[pyo3(signature = (comm, count, dtype="f32", **options))]
    fn new(
        py: Python<'_>,
        comm: &Communicator,
        count: usize,
        dtype: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<SparseAllReduce> {
        let (dtype, options) =
            (dtype_of(dtype, "dtype")?, SparseOptions::new("SparseAllReduce", options)?);
        let owner = &comm.owner;
        let state = owner.call(py, "SparseAllReduce", |comm| {
            let mut out = std::ptr::null_mut();
            // SAFETY: this thread has the turn; the options live through the call.
            check(unsafe {
                sys::trib_sparse_create(&mut out, comm, count, dtype, &options.raw())
            })?;
            let raw = NonNull::new(out).expect("a call that succeeds has set it");
            Ok(SparseState { raw, owner: Arc::clone(owner), last: Last::default() })
        })?;
        let wide = options.has(sys::TRIB_SPARSE_F32_RESULT);
        let result = if wide { sys::TRIB_F32 } else { dtype };
        let in_place = options.has(sys::TRIB_SPARSE_IN_PLACE);
        Ok(SparseAllReduce { state: Arc::new(state), count, dtype, result, in_place })
    }

    /// The number of elements of the tensor.
    #[getter]
    fn count(&self) -> usize {
        self.count
    }

    /// The type of its elements: "f32".
    #[getter]
    fn dtype(&self) -> &'static str {
        dtype_name(self.dtype)
    }

    /// The number of entries that each rank selects.
    #[getter]
    fn k(&self, py: Python<'_>) -> PyResult<u64> {
        // SAFETY: this thread has the turn.
        self.state.call(py, "k", |state| Ok(unsafe { sys::trib_sparse_k(state) }))
    }

    /// The largest number of entries that a result can have.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<u64> {
        // SAFETY: this thread has the turn.
        self.state.call(py, "capacity", |state| Ok(unsafe { sys::trib_sparse_capacity(state) }))
    }

    /// Queue one sparse allreduce of `gradient`, and write all elements of `result` (by default,
    /// and not with `in_place`, `gradient` itself). The wait of the work raises NON_FINITE if
    /// this call was not applied on any rank, because a value was not finite: nothing has
    /// changed then, but that the result is 0.
    #[pyo3(signature = (gradient, result=None, *, stream=None))]
    fn allreduce(
        &self,
        py: Python<'_>,
        gradient: &Bound<'_, PyAny>,
        result: Tensor<'_, '_>,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let mut call = Call::new(py, &self.state.owner, "sparse_allreduce", stream)?;
        let result = result.filter(|result| !result.is_none());
        if result.is_none() && self.in_place {
            return Err(argument(format!(
                "{}: `result` is None; with `in_place` `gradient` is the accumulator, so expected \
                 another tensor",
                call.who()
            ))
            .into());
        }
        let written = self.in_place || result.is_none();
        let from = if written {
            call.write("gradient", gradient)?
        } else {
            call.read("gradient", gradient)?
        };
        call.same("gradient", &from, self.count, self.dtype)?;
        let to = result.map(|result| call.write("result", result)).transpose()?;
        let to = to.as_ref().unwrap_or(&from);
        call.same("result", to, self.count, self.result)?;
        let (gradient, result, state) = (from.data, to.data, Arc::clone(&self.state));
        call.queue_last(py, &self.state.last, move |_, stream| {
            let (gradient, result) = (gradient.get(), result.get());
            // SAFETY: this thread has the turn; both have `count` elements, which the work keeps.
            check(unsafe { sys::trib_sparse_allreduce(state.get(), gradient, result, stream) })?;
            Ok(Some(applied(&state)))
        })
    }

    /// The same for a state with `entries`: `count` (one u32) entries, with ascending `index` (u32)
    /// and their `value`; both arrays hold `capacity` elements.
    #[pyo3(signature = (gradient, index, value, count, *, stream=None))]
    fn allreduce_entries(
        &self,
        py: Python<'_>,
        gradient: &Bound<'_, PyAny>,
        index: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        count: &Bound<'_, PyAny>,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let room = self.capacity(py)? as usize;
        let mut call = Call::new(py, &self.state.owner, "sparse_allreduce_entries", stream)?;
        let from = if self.in_place {
            call.write("gradient", gradient)?
        } else {
            call.read("gradient", gradient)?
        };
        call.same("gradient", &from, self.count, self.dtype)?;
        let index = call.write("index", index)?;
        let value = call.write("value", value)?;
        let count = call.write("count", count)?;
        call.same("index", &index, index.count.max(room), sys::TRIB_U32)?;
        call.same("value", &value, value.count.max(room), self.result)?;
        call.same("count", &count, 1, sys::TRIB_U32)?;
        let (from, index, value, count) = (from.data, index.data, value.data, count.data);
        let state = Arc::clone(&self.state);
        call.queue_last(py, &self.state.last, move |_, stream| {
            // SAFETY: this thread has the turn.
            if room as u64 != unsafe { sys::trib_sparse_capacity(state.get()) } {
                return Err(usage(
                    "sparse_allreduce_entries: another thread has changed k meanwhile",
                ));
            }
            let (from, value) = (from.get(), value.get());
            let (index, count) = (index.get().cast(), count.get().cast());
            // SAFETY: as in `allreduce`; both arrays have room for every result.
            check(unsafe {
                sys::trib_sparse_allreduce_entries(state.get(), from, index, value, count, stream)
            })?;
            Ok(Some(applied(&state)))
        })
    }

    /// The fraction of the elements that a rank selects, from the next call on. All ranks call it.
    fn set_density(&self, py: Python<'_>, density: f64) -> PyResult<()> {
        self.state.call(py, "set_density", |state| {
            // SAFETY: this thread has the turn.
            check(unsafe { sys::trib_sparse_set_density(state, density) })
        })
    }

    /// The same as a number of elements.
    fn set_k(&self, py: Python<'_>, k: u64) -> PyResult<()> {
        // SAFETY: this thread has the turn.
        self.state.call(py, "set_k", |state| check(unsafe { sys::trib_sparse_set_k(state, k) }))
    }

    /// Raise if the last call that has run was not applied, or the communicator has ended.
    fn status(&self, py: Python<'_>) -> PyResult<()> {
        // SAFETY: this thread has the turn. "Never waits."
        self.state.call(py, "status", |state| check(unsafe { sys::trib_sparse_status(state) }))
    }

    /// Statistics of the calls that have run: algorithm and why it was chosen, entries, bytes.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = self.state.call(py, "statistics", |state| {
            // SAFETY: the state is alive.
            Ok(unsafe { Statistics::new(statistics(state)?) })
        })?;
        found.to_dict(py)
    }

    /// Queue a copy of this rank's residual to `out`: `count` elements of f32 (f64 of an f64
    /// state).
    #[pyo3(signature = (out, *, stream=None))]
    fn residual(
        &self,
        py: Python<'_>,
        out: &Bound<'_, PyAny>,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let mut call = Call::new(py, &self.state.owner, "sparse_residual", stream)?;
        let out = call.write("out", out)?;
        let dtype = if self.dtype == sys::TRIB_F64 { self.dtype } else { sys::TRIB_F32 };
        call.same("out", &out, self.count, dtype)?;
        let (out, state) = (out.data, Arc::clone(&self.state));
        call.queue(py, move |_, stream| {
            // SAFETY: as in `allreduce`.
            unsafe { sys::trib_sparse_residual(state.get(), out.get(), stream) }
        })
    }

    /// Residual, velocity, thresholds and schedule, for a checkpoint. Waits for queued calls.
    #[pyo3(signature = (*, stream=None))]
    fn export_state<'py>(
        &self,
        py: Python<'py>,
        stream: Tensor<'_, 'py>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let stream = self.stream(py, "sparse_export", stream)?;
        let raw = stream.raw;
        let data = self.state.owner.call_on(py, "sparse_export", &stream, |_| {
            let state = self.state.get();
            // SAFETY: this thread has the turns; the place has as many bytes as it says.
            unsafe {
                let mut data = vec![0_u8; sys::trib_sparse_export_bytes(state) as usize];
                let out = data.as_mut_ptr().cast();
                check(sys::trib_sparse_export(state, out, data.len(), raw.get())).map(|()| data)
            }
        })?;
        Ok(PyBytes::new(py, &data))
    }

    /// Take over an export of a state of the same count and type; all ranks call it. With `add`
    /// this rank alone adds it to what it has.
    #[pyo3(signature = (data, *, add=false, stream=None))]
    fn import_state(
        &self,
        py: Python<'_>,
        data: &[u8],
        add: bool,
        stream: Tensor<'_, '_>,
    ) -> PyResult<()> {
        let stream = self.stream(py, "sparse_import", stream)?;
        let raw = stream.raw;
        self.state.owner.call_on(py, "sparse_import", &stream, |_| {
            let (from, bytes) = (data.as_ptr().cast(), data.len());
            // SAFETY: this thread has the turns; bytes of Python never change.
            check(unsafe {
                sys::trib_sparse_import(self.state.get(), from, bytes, i32::from(add), raw.get())
            })
        })
    }

    /// Queue a reset of residual, velocity, thresholds and schedule. All ranks call it.
    #[pyo3(signature = (*, stream=None))]
    fn reset(&self, py: Python<'_>, stream: Tensor<'_, '_>) -> PyResult<Work> {
        let call = Call::new(py, &self.state.owner, "sparse_reset", stream)?;
        let state = Arc::clone(&self.state);
        // SAFETY: the caller of this closure has the turns.
        call.queue(py, move |_, stream| unsafe { sys::trib_sparse_reset(state.get(), stream) })
    }

    fn __repr__(&self) -> String {
        let (count, dtype, owner) = (self.count, self.dtype(), &self.state.owner);
        format!(
            "<tributary.SparseAllReduce of {count} {dtype} on rank {} ({})>",
            owner.rank, owner.place
        )
    }
}

impl SparseAllReduce {
    fn stream(
        &self,
        py: Python<'_>,
        operation: &str,
        stream: Tensor<'_, '_>,
    ) -> PyResult<OnStream> {
        let owner = &self.state.owner;
        OnStream::new(py, owner.place, stream, &owner.who(operation))
    }
}
