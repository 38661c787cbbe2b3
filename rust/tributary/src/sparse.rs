//! Sparse allreduce with error feedback.

use std::cell::Cell;
use std::ffi::{c_char, c_void, CStr};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use tributary_sys as sys;

use crate::buffer::{DeviceBuffer, DeviceSlice};
use crate::call_counters::CallCounters;
use crate::check::Check;
use crate::communicator::{Communicator, Shared};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{check, text, Error, ErrorKind, Result};
use crate::sparse_options::{above_0, SparseOptions};
use crate::stream::Stream;

/// One tensor's sparse allreduce on one rank.
///
/// Each call sends the k largest entries of `acc = gradient + residual`. The rest becomes the
/// residual, which the next call adds to its gradient, so nothing is lost: over all ranks, the sum
/// of `acc` is the result plus the sum of the residuals. Every rank gets the same bits. The page
/// [`guide`](crate::guide) helps to choose an algorithm.
///
/// If any rank's gradient holds an infinity or a NaN, no rank's call is applied: the result is 0
/// and the residuals stay as they were. The scope, the [`Work`](crate::Work) or, until the next
/// call has run, [`status`](SparseAllReduce::status) returns an error of kind
/// [`ErrorKind::NonFinite`](crate::ErrorKind::NonFinite). The next call may well succeed.
///
/// ```
/// use tributary::{DType, DeviceVec, SparseAllReduce, SparseOptions, Stream};
/// # use tributary::{Communicator, Group, Options, Result};
/// # fn rank(comm: &mut Communicator) -> Result<()> {
/// let stream = Stream::new(comm.device())?;
/// let options = SparseOptions::new().algorithm("topka").k(1);
/// let mut sparse = SparseAllReduce::new(comm, 4, DType::F32, &options)?;
///
/// let gradient = DeviceVec::from_slice(comm.device(), &[1.0_f32, -8.0, 2.0, 0.0])?;
/// let mut sum = DeviceVec::<f32>::zeros(comm.device(), 4)?;
/// comm.scope(&stream, |s| s.sparse_allreduce(&mut sparse, &gradient, &mut sum))?;
/// assert_eq!(sum.download(&stream)?, [0.0, -16.0, 0.0, 0.0]); // two ranks
///
/// // The residual, 2 at index 2, is added to the next gradient: 2 + 2 is the largest now.
/// let gradient = DeviceVec::from_slice(comm.device(), &[1.0_f32, 3.0, 2.0, 0.0])?;
/// comm.scope(&stream, |s| s.sparse_allreduce(&mut sparse, &gradient, &mut sum))?;
/// assert_eq!(sum.download(&stream)?, [0.0, 0.0, 8.0, 0.0]);
/// # Ok(())
/// # }
/// # Group::with_options(2, &Options::new().backend("host"))?.run(rank)?;
/// # Ok::<(), tributary::Error>(())
/// ```
///
/// A state ends with its communicator at the latest: later calls return
/// [`ErrorKind::Closed`](crate::ErrorKind::Closed). Like the communicator it may move to another
/// thread, and one thread at a time uses it.
pub struct SparseAllReduce {
    counters: Arc<CallCounters>,
    shared: Arc<Shared>,
    rank: usize,
    size: usize,
    device: Device,
    len: usize,
    dtype: DType,
    /// Type of results.
    result: DType,
    entries: bool,
    in_place: bool,
    one_thread: PhantomData<Cell<()>>,
}

// SAFETY: the C state is used under the lock of its communicator only, which makes "from one thread
// at a time" true of both.
unsafe impl Send for SparseAllReduce {}

impl SparseAllReduce {
    /// Creates a state for tensors of `len` elements of `dtype` (f16, bf16, f32 or f64), with a
    /// residual of 0. All ranks make this call, which waits for them. If their arguments differ,
    /// all return [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch).
    pub fn new(
        comm: &mut Communicator,
        len: usize,
        dtype: DType,
        options: &SparseOptions,
    ) -> Result<SparseAllReduce> {
        comm.not_batching("SparseAllReduce::new")?;
        let raw = options.raw();
        let shared = Arc::clone(comm.shared());
        let counters = shared.adopt(|comm| {
            let mut state = ptr::null_mut();
            // SAFETY: all pointers live through the call, under the lock; `*out` is ours to
            // destroy, and is not NULL after a success.
            unsafe {
                let (dtype, options) = (dtype.raw(), raw.as_ptr());
                check(sys::trib_sparse_create(&mut state, comm, len, dtype, options))?;
                Ok(NonNull::new_unchecked(state))
            }
        });
        Ok(SparseAllReduce {
            counters: raw.explain(counters.unwrap_or_else(|| Err(gone())))?,
            shared,
            rank: comm.rank(),
            size: comm.size(),
            device: comm.device(),
            len,
            dtype,
            result: if options.has(sys::TRIB_SPARSE_F32_RESULT) { DType::F32 } else { dtype },
            entries: options.has(sys::TRIB_SPARSE_ENTRIES),
            in_place: options.has(sys::TRIB_SPARSE_IN_PLACE),
            one_thread: PhantomData,
        })
    }

    /// Returns the names of all algorithms, `auto` first. The page [`guide`](crate::guide)
    /// describes them.
    pub fn algorithms() -> impl Iterator<Item = &'static str> {
        // SAFETY: "Any thread" and no object; the names live for ever.
        (0..).map_while(|index| unsafe {
            let name = sys::trib_sparse_algorithm_name(index);
            (!name.is_null()).then(|| text(name))
        })
    }

    /// Returns the number of elements of the tensor.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns how many elements each rank chooses in a call.
    pub fn k(&self) -> Result<u64> {
        // SAFETY: alive under the lock.
        self.look(|state| unsafe { sys::trib_sparse_k(state) })
    }

    /// Sets the fraction of the elements that a rank chooses, from the next call on. All ranks make
    /// this call, which waits for them. The residual stays.
    pub fn set_density(&mut self, density: f64) -> Result<()> {
        // As in the options, 0 is an error. C fails too, so that the other ranks learn of it.
        let zero = density == 0.0;
        let density = if zero { f64::NAN } else { density };
        // SAFETY: as in `call`.
        let result = self.call(|state| unsafe { sys::trib_sparse_set_density(state, density) });
        match result {
            Err(error) if zero && error.kind() == ErrorKind::InvalidArgument => {
                Err(above_0("density"))
            }
            result => result,
        }
    }

    /// Sets the number of elements that a rank chooses, like
    /// [`set_density`](SparseAllReduce::set_density).
    pub fn set_k(&mut self, k: u64) -> Result<()> {
        // SAFETY: as in `call`.
        self.call(|state| unsafe { sys::trib_sparse_set_k(state, k) })
    }

    /// Queues a call with a dense result. `result` may be `gradient`, except with
    /// [`in_place`](SparseOptions::in_place), where `gradient` is the accumulator.
    ///
    /// # Safety
    /// Both buffers stay alive and untouched until `stream` has passed this call, and may be
    /// written. All ranks make the same calls.
    pub unsafe fn allreduce(
        &mut self,
        gradient: &dyn DeviceBuffer,
        result: &dyn DeviceBuffer,
        stream: &Stream,
    ) -> Result<()> {
        self.counters.stop_counting();
        // SAFETY: the caller's promise.
        unsafe { self.queue(gradient, result, stream) }
    }

    /// Queues [`allreduce`](SparseAllReduce::allreduce) for a caller that counts the call.
    ///
    /// # Safety
    /// The same.
    pub(crate) unsafe fn queue(
        &mut self,
        gradient: &dyn DeviceBuffer,
        result: &dyn DeviceBuffer,
        stream: &Stream,
    ) -> Result<()> {
        let check = self.check("sparse_allreduce", stream)?;
        let gradient = self.whole(&check, "gradient", gradient, self.dtype)?;
        let result = self.whole(&check, "result", result, self.result)?;
        let stream = stream.as_raw();
        // SAFETY: "keep them alive and untouched until the stream has passed that point": the
        // caller's promise. They hold `count` elements of the state's type.
        self.call(|state| unsafe {
            sys::trib_sparse_allreduce(state, gradient.ptr(), result.ptr(), stream)
        })
    }

    /// Queues a call of a state with [`entries`](SparseOptions::entries). Its result is `count`
    /// (one `u32`) entries: ascending `index` (`u32`), and `value`. Both arrays hold
    /// [`capacity`](SparseAllReduce::capacity) elements.
    ///
    /// # Safety
    /// As for [`allreduce`](SparseAllReduce::allreduce), for all four buffers.
    pub unsafe fn allreduce_entries(
        &mut self,
        gradient: &dyn DeviceBuffer,
        index: &dyn DeviceBuffer,
        value: &dyn DeviceBuffer,
        count: &dyn DeviceBuffer,
        stream: &Stream,
    ) -> Result<()> {
        self.counters.stop_counting();
        // SAFETY: the caller's promise.
        unsafe { self.queue_entries(gradient, index, value, count, stream) }
    }

    /// Queues [`allreduce_entries`](SparseAllReduce::allreduce_entries) for a caller that counts
    /// the call.
    ///
    /// # Safety
    /// The same.
    pub(crate) unsafe fn queue_entries(
        &mut self,
        gradient: &dyn DeviceBuffer,
        index: &dyn DeviceBuffer,
        value: &dyn DeviceBuffer,
        count: &dyn DeviceBuffer,
        stream: &Stream,
    ) -> Result<()> {
        let check = self.check("sparse_allreduce_entries", stream)?;
        let gradient = self.whole(&check, "gradient", gradient, self.dtype)?;
        let room = usize::try_from(self.capacity()?).unwrap_or(usize::MAX);
        let index = fits(&check, "index", index, DType::U32, room)?;
        let value = fits(&check, "value", value, self.result, room)?;
        let count = fits(&check, "count", count, DType::U32, 1)?;
        let stream = stream.as_raw();
        // SAFETY: as in `allreduce`; the arrays have room for every result.
        self.call(|state| unsafe {
            let (index, count) = (index.ptr().cast(), count.ptr().cast());
            sys::trib_sparse_allreduce_entries(
                state,
                gradient.ptr(),
                index,
                value.ptr(),
                count,
                stream,
            )
        })
    }

    /// Returns how many entries a result can have at most.
    pub fn capacity(&self) -> Result<u64> {
        // SAFETY: alive under the lock.
        self.look(|state| unsafe { sys::trib_sparse_capacity(state) })
    }

    /// Returns `Ok` if the last call that has run was applied, and otherwise the reason. Never
    /// waits for a stream.
    pub fn status(&mut self) -> Result<()> {
        // SAFETY: as in `call`. "Never waits."
        self.call(|state| unsafe { sys::trib_sparse_status(state) })
    }

    /// Returns the address of a `u32` in device memory: 1 if the last call was applied, 0 if not. A
    /// kernel can read it to skip a step. It lives as long as this state.
    pub fn outcome(&self) -> Result<*const u32> {
        // SAFETY: alive under the lock.
        self.look(|state| unsafe { sys::trib_sparse_outcome(state) })
    }

    /// Returns the statistics of the calls that have ended. Never waits for a stream.
    pub fn statistics(&mut self) -> Result<SparseStatistics> {
        let mut raw = sys::TRIB_SPARSE_STATISTICS_INIT;
        let live = self.shared.with_states(|| {
            // SAFETY: alive under the lock; `raw` lives through the call, with its size set; its
            // strings, not NULL after a success, live as long as the state and are copied here.
            unsafe {
                check(sys::trib_sparse_statistics_get(&mut raw, self.counters.state().as_ptr()))?;
                Ok(SparseStatistics::new(&raw))
            }
        });
        live.unwrap_or_else(|| Err(gone()))
    }

    /// Queues a copy of this rank's residual to `out`, after the calls queued before. `out` holds
    /// `len` elements of f64 for a state of f64, otherwise of f32. Fails for a state that is
    /// [`in_place`](SparseOptions::in_place) without [`momentum`](SparseOptions::momentum), whose
    /// residual is the caller's accumulator.
    ///
    /// # Safety
    /// `out` stays alive and untouched until `stream` has passed this call, and may be written.
    pub unsafe fn residual(&mut self, out: &dyn DeviceBuffer, stream: &Stream) -> Result<()> {
        let check = self.check("sparse_residual", stream)?;
        let dtype = if self.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let out = self.whole(&check, "out", out, dtype)?;
        let stream = stream.as_raw();
        // SAFETY: as in `allreduce`; `out` holds `count` elements of the residual's type.
        self.call(|state| unsafe { sys::trib_sparse_residual(state, out.ptr(), stream) })
    }

    /// Returns residual, velocity, thresholds and schedule (the step counter), for a later
    /// [`import`](SparseAllReduce::import). Waits for the stream.
    pub fn export(&mut self, stream: &Stream) -> Result<Vec<u8>> {
        self.check("sparse_export", stream)?;
        // SAFETY: alive under the lock.
        let bytes = self.look(|state| unsafe { sys::trib_sparse_export_bytes(state) })?;
        let bytes = usize::try_from(bytes)
            .map_err(|_| Error::argument("the export is larger than the address space"))?;
        let mut data = vec![0_u8; bytes];
        let out: *mut c_void = data.as_mut_ptr().cast();
        // SAFETY: as in `call`; `out` has room for `bytes` bytes. "Blocking".
        self.call(|state| unsafe { sys::trib_sparse_export(state, out, bytes, stream.as_raw()) })?;
        Ok(data)
    }

    /// Takes over an [`export`](SparseAllReduce::export) of a state with the same length and type.
    /// Algorithm, k and number of ranks may differ. All ranks make this call, which waits for them.
    pub fn import(&mut self, data: &[u8], stream: &Stream) -> Result<()> {
        self.take(data, 0, stream)
    }

    /// Adds residual and velocity of an export to these, for example of a rank that has left to one
    /// that stays. A call of this rank alone.
    pub fn import_added(&mut self, data: &[u8], stream: &Stream) -> Result<()> {
        self.take(data, 1, stream)
    }

    /// Queues a reset of residual, velocity, thresholds and schedule. Every rank calls it at the same
    /// point.
    pub fn reset(&mut self, stream: &Stream) -> Result<()> {
        self.check("sparse_reset", stream)?;
        // SAFETY: as in `call`.
        self.call(|state| unsafe { sys::trib_sparse_reset(state, stream.as_raw()) })
    }

    pub(crate) fn counters(&self) -> &Arc<CallCounters> {
        &self.counters
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Fails if `comm` is not the state's communicator: a scope waits for its own alone.
    pub(crate) fn of(&self, comm: &Communicator) -> Result<()> {
        if Arc::ptr_eq(&self.shared, comm.shared()) {
            return Ok(());
        }
        Err(Error::new(
            sys::TRIB_ERR_INVALID_USAGE,
            format!("{self:?} belongs to another communicator than the scope's, {comm:?}"),
        ))
    }

    /// Fails as `of` does, and if an accumulator is not `writable`.
    pub(crate) fn accepts(&self, comm: &Communicator, writable: bool) -> Result<()> {
        if self.in_place && !writable {
            return Err(Error::new(
                sys::TRIB_ERR_INVALID_USAGE,
                format!("{self:?} is in place and writes the gradient: lend it as `&mut`"),
            ));
        }
        self.of(comm)
    }

    fn take(&mut self, data: &[u8], add: i32, stream: &Stream) -> Result<()> {
        self.check("sparse_import", stream)?;
        let from: *const c_void = data.as_ptr().cast();
        // SAFETY: as in `call`; `from` holds `len` bytes. "Blocking".
        self.call(|state| unsafe {
            sys::trib_sparse_import(state, from, data.len(), add, stream.as_raw())
        })
    }

    fn check(&self, operation: &'static str, stream: &Stream) -> Result<Check> {
        let check = Check::of_rank(operation, self.rank, self.size, self.device);
        check.stream(stream)?;
        if (operation == "sparse_allreduce" && self.entries)
            || (operation == "sparse_allreduce_entries" && !self.entries)
        {
            return Err(Error::new(
                sys::TRIB_ERR_INVALID_USAGE,
                format!(
                    "{check}: this state was made with entries({}); use the other of allreduce and \
                     allreduce_entries",
                    self.entries
                ),
            ));
        }
        Ok(check)
    }

    /// Checks a buffer as long as the tensor and of `dtype`.
    fn whole(
        &self,
        check: &Check,
        name: &str,
        buffer: &dyn DeviceBuffer,
        dtype: DType,
    ) -> Result<DeviceSlice> {
        let view = check.buffer(name, buffer)?;
        if view.len() != self.len || view.dtype() != dtype {
            return Err(Error::buffer(format!(
                "{check}: `{name}` is {} elements of {}; this state takes {} of {}",
                view.len(),
                view.dtype(),
                self.len,
                dtype
            )));
        }
        Ok(view)
    }

    /// Calls C with the state.
    fn call(
        &mut self,
        function: impl FnOnce(*mut sys::trib_sparse) -> sys::trib_status,
    ) -> Result<()> {
        let state = self.counters.state().as_ptr();
        // Under the lock of its communicator the state is alive, and this thread alone uses it.
        self.shared.with_states(|| check(function(state))).unwrap_or_else(|| Err(gone()))
    }

    fn look<T>(&self, function: impl FnOnce(*const sys::trib_sparse) -> T) -> Result<T> {
        let state = self.counters.state().as_ptr();
        self.shared.with_states(|| function(state)).ok_or_else(gone)
    }
}

impl Drop for SparseAllReduce {
    fn drop(&mut self) {
        self.shared.destroy_sparse(&self.counters);
    }
}

impl fmt::Debug for SparseAllReduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SparseAllReduce { rank, size, device, len, dtype, .. } = self;
        write!(f, "SparseAllReduce({len} of {dtype}, rank {rank} of {size} on {device})")
    }
}

/// Checks a buffer of at least `room` elements of `dtype`.
fn fits(
    check: &Check,
    name: &str,
    buffer: &dyn DeviceBuffer,
    dtype: DType,
    room: usize,
) -> Result<DeviceSlice> {
    let view = check.buffer(name, buffer)?;
    if view.len() < room || view.dtype() != dtype {
        return Err(Error::buffer(format!(
            "{check}: `{name}` is {} elements of {}; give room for {room} of {dtype}",
            view.len(),
            view.dtype()
        )));
    }
    Ok(view)
}

#[cold]
fn gone() -> Error {
    Error::new(sys::TRIB_ERR_CLOSED, "the communicator of this sparse allreduce has been destroyed")
}

/// # Safety
/// `name` is not NULL and lives through the call.
unsafe fn owned(name: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// Statistics of a [`SparseAllReduce`] on one rank, or sums over the buckets of a
/// [`Reducer`](crate::Reducer).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SparseStatistics {
    /// The algorithm that runs.
    pub algorithm: String,
    /// Why `auto` chose it, with the measured speed of the link and the time that each rival was
    /// guessed to take; empty if the options named it.
    pub reason: String,
    /// Elements of the tensor.
    pub count: u64,
    /// Entries that the algorithm chooses in a call.
    pub k: u64,
    /// Calls that have ended.
    pub calls: u64,
    /// Of those, calls that were applied.
    pub calls_applied: u64,
    /// Calls that were not applied because a value was infinite or NaN.
    pub calls_non_finite: u64,
    /// Entries that this rank chose in the last applied call.
    pub selected: u64,
    /// Of those, entries in the result.
    pub applied: u64,
    /// Entries that this rank chose in all applied calls. The counts below cover the same calls.
    pub total_selected: u64,
    /// Of those, entries in the results.
    pub total_applied: u64,
    /// Words of 4 bytes sent, of entries alone.
    pub words_sent: u64,
    /// Words of 4 bytes received, of entries alone.
    pub words_received: u64,
    /// Bytes sent, headers and padding included.
    pub bytes_sent: u64,
    /// Bytes received, headers and padding included.
    pub bytes_received: u64,
    /// Selections that took longer because the first guess of the threshold missed. The result is
    /// the same.
    pub fallbacks: u64,
    /// The residual's norm at its last measurement, if there was one.
    pub residual_norm: Option<f64>,
}

impl SparseStatistics {
    /// # Safety
    /// C has filled `raw`, and what its strings live as long as is alive.
    pub(crate) unsafe fn new(raw: &sys::trib_sparse_statistics) -> Self {
        // SAFETY: the caller's promise; after a success the strings are not NULL.
        let (algorithm, reason) = unsafe { (owned(raw.algorithm), owned(raw.reason)) };
        SparseStatistics {
            algorithm,
            reason,
            count: raw.count,
            k: raw.k,
            calls: raw.calls,
            calls_applied: raw.calls_applied,
            calls_non_finite: raw.calls_non_finite,
            selected: raw.selected,
            applied: raw.applied,
            total_selected: raw.total_selected,
            total_applied: raw.total_applied,
            words_sent: raw.words_sent,
            words_received: raw.words_received,
            bytes_sent: raw.bytes_sent,
            bytes_received: raw.bytes_received,
            fallbacks: raw.fallbacks,
            residual_norm: (raw.residual_norm >= 0.0).then_some(raw.residual_norm),
        }
    }
}
