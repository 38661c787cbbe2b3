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
/// Each call sends the k largest entries of `acc = gradient + residual`; the rest becomes the
/// residual, which is added to the next gradient. Nothing is lost: over all ranks, the sum of `acc`
/// is the result plus the sum of the residuals. Every rank gets the same bits.
///
/// If any rank's gradient holds an infinity or a NaN, no rank's call applies: the result is 0,
/// residuals stay as they were, and the scope, the [`Work`](crate::Work) or, until the next call has
/// run, [`status`](SparseAllReduce::status) gives an error of kind
/// [`ErrorKind::NonFinite`](crate::ErrorKind::NonFinite). The next step may well succeed.
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
/// // What was not chosen is added to the next gradient: 2 + 2 is the largest now.
/// let gradient = DeviceVec::from_slice(comm.device(), &[1.0_f32, 3.0, 2.0, 0.0])?;
/// comm.scope(&stream, |s| s.sparse_allreduce(&mut sparse, &gradient, &mut sum))?;
/// assert_eq!(sum.download(&stream)?, [0.0, 0.0, 8.0, 0.0]);
/// # Ok(())
/// # }
/// # Group::with_options(2, &Options::new().backend("host"))?.run(rank)?;
/// # Ok::<(), tributary::Error>(())
/// ```
///
/// It belongs to its communicator, and ends with it at the latest: calls after that give
/// [`ErrorKind::Closed`](crate::ErrorKind::Closed). Like the communicator it may move to another
/// thread, and is used by one at a time.
pub struct SparseAllReduce {
    counters: Arc<CallCounters>,
    shared: Arc<Shared>,
    rank: usize,
    size: usize,
    device: Device,
    len: usize,
    dtype: DType,
    /// Of results.
    result: DType,
    entries: bool,
    in_place: bool,
    one_thread: PhantomData<Cell<()>>,
}

// SAFETY: the C state is used under the lock of its communicator only, which makes "from one thread
// at a time" true of both.
unsafe impl Send for SparseAllReduce {}

impl SparseAllReduce {
    /// A state for tensors of `len` elements of `dtype` (f16, bf16, f32 or f64) with a residual of
    /// 0. A call of all ranks, which waits for them: all get
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if one passes something else.
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
            // SAFETY: all pointers live through the call, under the lock; `*out` is ours to destroy,
            // and is not NULL after a success.
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

    /// The names of all algorithms, `auto` first.
    pub fn algorithms() -> impl Iterator<Item = &'static str> {
        // SAFETY: "Any thread" and no object; the names live for ever.
        (0..).map_while(|index| unsafe {
            let name = sys::trib_sparse_algorithm_name(index);
            (!name.is_null()).then(|| text(name))
        })
    }

    /// Number of elements of the tensor.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No elements?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of elements that each rank chooses in a call from now on.
    pub fn k(&self) -> Result<u64> {
        // SAFETY: alive under the lock.
        self.look(|state| unsafe { sys::trib_sparse_k(state) })
    }

    /// Choose that fraction of the elements from the next call on. A call of all ranks, which waits
    /// for them. The residual stays.
    pub fn set_density(&mut self, density: f64) -> Result<()> {
        // As in the options: 0 is refused, by C as well, so that the other ranks are told.
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

    /// [`set_density`](SparseAllReduce::set_density) as a number of elements.
    pub fn set_k(&mut self, k: u64) -> Result<()> {
        // SAFETY: as in `call`.
        self.call(|state| unsafe { sys::trib_sparse_set_k(state, k) })
    }

    /// Queue a call with a dense result. `result` may be `gradient`, unless
    /// [`in_place`](SparseOptions::in_place), where `gradient` is the accumulator.
    ///
    /// # Safety
    /// Both stay alive and untouched until `stream` has passed this call, and may be written to. All
    /// ranks make the same calls.
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

    /// [`allreduce`](SparseAllReduce::allreduce) for who counts the call.
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
        // SAFETY: "must live, untouched, until the stream has passed that point": the caller's
        // promise. They hold `count` elements of the state's type.
        self.call(|state| unsafe {
            sys::trib_sparse_allreduce(state, gradient.ptr(), result.ptr(), stream)
        })
    }

    /// Queue a call whose result is `count` entries (one `u32`): ascending `index` (`u32`) and
    /// `value`, which have room for [`capacity`](SparseAllReduce::capacity) elements each. For states
    /// with [`entries`](SparseOptions::entries).
    ///
    /// # Safety
    /// As for [`allreduce`](SparseAllReduce::allreduce), of all four buffers.
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

    /// [`allreduce_entries`](SparseAllReduce::allreduce_entries) for who counts the call.
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
        // SAFETY: as in `allreduce`; the arrays have room for what can come.
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

    /// The most entries that the result of a call can have, now.
    pub fn capacity(&self) -> Result<u64> {
        // SAFETY: alive under the lock.
        self.look(|state| unsafe { sys::trib_sparse_capacity(state) })
    }

    /// Whether the last completed call was applied, and if not, why. Never waits for a stream.
    pub fn status(&mut self) -> Result<()> {
        // SAFETY: as in `call`. "Never waits."
        self.call(|state| unsafe { sys::trib_sparse_status(state) })
    }

    /// One `u32` in device memory: 1 after a call that was applied, 0 after one that did not. For
    /// kernels that skip a step; it lives as long as this state.
    pub fn outcome(&self) -> Result<*const u32> {
        // SAFETY: alive under the lock.
        self.look(|state| unsafe { sys::trib_sparse_outcome(state) })
    }

    /// What has ended so far. Never waits for a stream.
    pub fn statistics(&mut self) -> Result<SparseStatistics> {
        let mut raw = sys::TRIB_SPARSE_STATISTICS_INIT;
        let live = self.shared.with_sparse(|| {
            // SAFETY: alive under the lock; `raw` lives through the call, with its size set; its
            // strings, not NULL after a success, live as long as the state and are copied here.
            unsafe {
                check(sys::trib_sparse_statistics_get(&mut raw, self.counters.state().as_ptr()))?;
                Ok(SparseStatistics::new(&raw, owned(raw.algorithm), owned(raw.reason)))
            }
        });
        live.unwrap_or_else(|| Err(gone()))
    }

    /// Queue a copy of this rank's residual, as the calls queued before leave it, to `out`: as many
    /// elements of f64 where the state is f64, of f32 otherwise. Not of a state that is
    /// [`in_place`](SparseOptions::in_place), whose residual is in the caller's accumulator.
    ///
    /// # Safety
    /// `out` stays alive and untouched until `stream` has passed this call, and may be written to.
    pub unsafe fn residual(&mut self, out: &dyn DeviceBuffer, stream: &Stream) -> Result<()> {
        let check = self.check("sparse_residual", stream)?;
        let dtype = if self.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let out = self.whole(&check, "out", out, dtype)?;
        let stream = stream.as_raw();
        // SAFETY: as in `allreduce`; `out` holds `count` elements of the residual's type.
        self.call(|state| unsafe { sys::trib_sparse_residual(state, out.ptr(), stream) })
    }

    /// What a later [`import`](SparseAllReduce::import) needs: residual, thresholds and schedule.
    /// Waits for the stream.
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

    /// Take over an [`export`](SparseAllReduce::export) of a state of the same length and type, of
    /// any algorithm, k and number of ranks.
    pub fn import(&mut self, data: &[u8], stream: &Stream) -> Result<()> {
        self.take(data, 0, stream)
    }

    /// Add the residual of an export to the one that is here: so the residuals of ranks that are
    /// gone can be given to those that stay.
    pub fn import_added(&mut self, data: &[u8], stream: &Stream) -> Result<()> {
        self.take(data, 1, stream)
    }

    /// Queue: residual, thresholds and schedule as new. Every rank does it at the same point.
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

    /// A scope waits for its own communicator alone: is that the state's?
    pub(crate) fn of(&self, comm: &Communicator) -> Result<()> {
        if Arc::ptr_eq(&self.shared, comm.shared()) {
            return Ok(());
        }
        Err(Error::new(
            sys::TRIB_ERR_INVALID_USAGE,
            format!("{self:?} belongs to another communicator than the scope's, {comm:?}"),
        ))
    }

    /// As `of`, and an accumulator must be `writable`.
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

    /// A buffer as long as the tensor and of `dtype`.
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

    /// Call C with the state.
    fn call(
        &mut self,
        function: impl FnOnce(*mut sys::trib_sparse) -> sys::trib_status,
    ) -> Result<()> {
        let state = self.counters.state().as_ptr();
        // The state is alive and nobody else's inside: the lock of its communicator is held.
        self.shared.with_sparse(|| check(function(state))).unwrap_or_else(|| Err(gone()))
    }

    fn look<T>(&self, function: impl FnOnce(*const sys::trib_sparse) -> T) -> Result<T> {
        let state = self.counters.state().as_ptr();
        self.shared.with_sparse(|| function(state)).ok_or_else(gone)
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

/// A buffer of at least `room` elements of `dtype`.
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

/// What a [`SparseAllReduce`] has done on this rank.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SparseStatistics {
    /// The algorithm that runs.
    pub algorithm: String,
    /// Why `auto` chose it; empty if it was asked for.
    pub reason: String,
    /// Elements of the tensor.
    pub count: u64,
    /// Entries that a rank chooses in a call.
    pub k: u64,
    /// Calls that have ended.
    pub calls: u64,
    /// Of those, how many were applied.
    pub calls_applied: u64,
    /// Of those, how many have not because of infinities or NaNs.
    pub calls_non_finite: u64,
    /// Entries that this rank chose in the last call that was applied.
    pub selected: u64,
    /// Of those, how many are part of the result.
    pub applied: u64,
    /// As `selected`, over all calls that was applied; so are all that follow.
    pub total_selected: u64,
    /// As `applied`.
    pub total_applied: u64,
    /// Entries sent, in words of 4 bytes.
    pub words_sent: u64,
    /// Entries received, in words of 4 bytes.
    pub words_received: u64,
    /// All bytes sent.
    pub bytes_sent: u64,
    /// All bytes received.
    pub bytes_received: u64,
    /// Selections whose first guess missed: slower, not different.
    pub fallbacks: u64,
    /// The residual's norm when it was measured last, if it ever was.
    pub residual_norm: Option<f64>,
}

impl SparseStatistics {
    fn new(raw: &sys::trib_sparse_statistics, algorithm: String, reason: String) -> Self {
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
