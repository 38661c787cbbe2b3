//! Memory of all ranks, which each of them reaches.

use std::ffi::c_void;
use std::fmt;
use std::mem::size_of;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use tributary_sys as sys;

use crate::buffer::{DeviceBuffer, DeviceSlice, DeviceVec, UniqueBuffer};
use crate::check::Check;
use crate::communicator::{gone, Communicator, Shared};
use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::{number, Error, Result};
use crate::stream::Stream;
use crate::sync;
use crate::work::Failed;

/// Memory that all ranks of a communicator have allocated together, as many elements of type `T` each:
/// the device of each rank reads and writes that of all others where it lies, at the addresses that
/// [`peer`](Symmetric::peer) gives.
///
/// A [`Scope`](crate::Scope) takes it as what a collective reads or writes on every rank, but cannot
/// [`hold`](crate::Scope::hold) it, and [`copy`](crate::Scope::copy) gets values in and out. Calls
/// that take [`CallOptions`](crate::CallOptions) may ask for
/// [`Variant::Symmetric`](crate::Variant::Symmetric): the header says which of them that makes faster.
///
/// ```
/// use tributary::{CallOptions, DeviceVec, InPlace, ReduceOp, Stream, Symmetric, Variant};
/// # use tributary::{Communicator, Error, Group, Options, Result};
/// # fn rank(comm: &mut Communicator) -> Result<()> {
/// let stream = Stream::new(comm.device())?;
/// let mut values = DeviceVec::from_slice(comm.device(), &[comm.rank() as f32; 1000])?;
/// let mut memory = Symmetric::<f32>::import(comm, &values, &stream)?;
/// let options = CallOptions::new().variant(Variant::Symmetric);
/// comm.scope(&stream, |s| s.allreduce_with(InPlace, &mut memory, ReduceOp::Sum, options))?;
/// comm.scope(&stream, |s| s.copy(&memory, &mut values))?;
/// assert_eq!(values.download(&stream)?, [1.0; 1000]); // two ranks
/// memory.free()?;
/// # Ok(())
/// # }
/// # Group::with_options(2, &Options::new().backend("host"))?.run(rank)?;
/// # Ok::<(), tributary::Error>(())
/// ```
///
/// # Whose it is
///
/// The memory is the communicator's, and goes when that is dropped, on all ranks of the process. So only
/// the communicator's own calls use it in safe code, and it is no [`UniqueBuffer`]:
///
/// ```compile_fail,E0277
/// # use tributary::{Symmetric, UniqueBuffer};
/// fn any_buffer<B: UniqueBuffer>(_: &B) {}
/// fn passed(memory: &Symmetric<f32>) {
///     any_buffer(memory);
/// }
/// ```
///
/// [`free`](Symmetric::free) frees it, on all ranks. What is dropped instead stays until the
/// communicator's end: a drop waits for nobody, and frees nothing.
pub struct Symmetric<T: Element> {
    shared: Arc<Shared>,
    data: NonNull<T>,
    len: usize,
    rank: usize,
    size: usize,
    device: Device,
}

// SAFETY: an address, which Rust does not follow; C gets it under the lock of the communicator, and
// elements are Send.
unsafe impl<T: Element> Send for Symmetric<T> {}
// SAFETY: as above; elements are Sync.
unsafe impl<T: Element> Sync for Symmetric<T> {}

impl<T: Element> Symmetric<T> {
    /// Allocates `len` elements on each rank, at least one. All ranks make this call, which waits for
    /// them within [`Options::timeout`](crate::Options::timeout), outside of a batch. It succeeds on all
    /// or on none: [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if their sizes differ, or those of
    /// another rank are invalid; [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the ranks do
    /// not reach each other's memory, and the error says why.
    ///
    /// # Safety
    /// The elements are not initialised. The caller, or a call of the communicator, writes each of them
    /// before it is read.
    pub unsafe fn uninit(comm: &mut Communicator, len: usize) -> Result<Symmetric<T>> {
        let bytes = bytes_of::<T>(len);
        Symmetric::make(comm, len, |out, comm| {
            // SAFETY: `*out` lives through the call; the lock keeps other threads out.
            unsafe { sys::trib_symmetric_alloc(out, comm, bytes) }
        })
    }

    /// Allocates `len` zeros on each rank: see [`uninit`](Symmetric::uninit). For the time of the call it
    /// takes as much memory again.
    pub fn zeros(comm: &mut Communicator, len: usize) -> Result<Symmetric<T>> {
        let zeros = DeviceVec::<T>::zeros(comm.device(), len);
        let stream = Stream::new(comm.device());
        match (zeros, stream) {
            (Ok(zeros), Ok(stream)) => Symmetric::import(comm, &zeros, &stream),
            (Err(error), _) | (_, Err(error)) => Err(Symmetric::<T>::decline(comm, error)),
        }
    }

    /// Allocates as many elements on each rank as `buffer` has, which holds elements of type `T`, and
    /// copies this rank's `buffer` to its own. Queues the copy on `stream`, and waits for it. Otherwise
    /// like [`uninit`](Symmetric::uninit): all ranks make this call. When it returns, others may still
    /// copy to theirs.
    pub fn import<B: UniqueBuffer + ?Sized>(
        comm: &mut Communicator,
        buffer: &B,
        stream: &Stream,
    ) -> Result<Symmetric<T>> {
        let view = match importable::<T>(comm, &DeviceSlice::of(buffer), stream) {
            Ok(view) => view,
            Err(error) => return Err(Symmetric::<T>::decline(comm, error)),
        };
        let (from, bytes) = (view.ptr().cast_const(), bytes_of::<T>(view.len()));
        let imported = Symmetric::make(comm, view.len(), |out, comm| {
            // SAFETY: as in `uninit`; `buffer` is borrowed until the copy has run: the wait below.
            unsafe { sys::trib_symmetric_import(out, comm, from, bytes, stream.as_raw()) }
        });
        let waited = sync::synchronize(stream, comm.timeout(), &[comm.abort_handle()]);
        let imported = imported?;
        waited.and(comm.status()).map(|()| imported)
    }

    /// Takes part without success, so that the other ranks fail instead of waiting. Returns `error`.
    fn decline(comm: &mut Communicator, error: Error) -> Error {
        let nothing = Symmetric::<T>::make(comm, 0, |out, comm| {
            // SAFETY: as in `uninit`. No memory has 0 bytes: C refuses.
            unsafe { sys::trib_symmetric_alloc(out, comm, 0) }
        });
        debug_assert!(nothing.is_err());
        error
    }

    fn make(
        comm: &mut Communicator,
        len: usize,
        call: impl FnOnce(*mut *mut c_void, *mut sys::trib_comm) -> sys::trib_status,
    ) -> Result<Symmetric<T>> {
        let mut out = ptr::null_mut();
        comm.call(|comm| call(&mut out, comm))?;
        let data = NonNull::new(out.cast()).expect("a call that succeeds has set it");
        Ok(Symmetric {
            shared: Arc::clone(comm.shared()),
            data,
            len,
            rank: comm.rank(),
            size: comm.size(),
            device: comm.device(),
        })
    }

    /// Returns the number of elements of each rank.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no elements, which is never so.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        T::DTYPE
    }

    /// Returns the device of this rank.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the address of this rank's first element, aligned to 256 bytes. Who uses it sees to it that
    /// no call does meanwhile, and that the memory is there: that it has not been freed, nor the communicator
    /// dropped. An abort leaves it there.
    pub fn as_ptr(&self) -> *mut T {
        self.data.as_ptr()
    }

    /// Returns the address at which this rank's device (on host: any thread) reaches the first element of
    /// `rank`; of this rank itself it is [`as_ptr`](Symmetric::as_ptr). What is said there holds for the
    /// memory of all ranks, whose scopes take theirs for their own. Waits for nobody.
    pub fn peer(&self, rank: usize) -> Result<*mut T> {
        let (rank, mut out) = (number("Symmetric::peer: `rank`", rank)?, ptr::null_mut());
        let (data, bytes) = (self.data.as_ptr().cast_const().cast(), bytes_of::<T>(self.len));
        // SAFETY: `out` lives through the call; the lock keeps other threads out. C compares the address
        // with what there is.
        let found = self
            .shared
            .call(|comm| unsafe { sys::trib_symmetric_query(&mut out, comm, data, bytes, rank) });
        found.unwrap_or_else(|| Err(gone()))?;
        if out.is_null() {
            return Err(Error::new(
                sys::TRIB_ERR_INVALID_USAGE,
                format!("Symmetric::peer: {self:?} was freed"),
            ));
        }
        Ok(out.cast())
    }

    /// Frees the memory of all ranks. All of them make this call, which waits for them within
    /// [`Options::timeout`](crate::Options::timeout), outside of a batch; they free what they have
    /// allocated together, or nothing: [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch). An error returns
    /// the memory.
    ///
    /// By then nobody uses an address of [`peer`](Symmetric::peer) any more.
    pub fn free(self) -> Result<(), Failed<Symmetric<T>>> {
        let data = self.data.as_ptr().cast();
        // SAFETY: the lock keeps other threads out. "Your work that uses it has ended on all ranks": scopes
        // and works have given it back, when "no other rank accesses its buffers any more"; of addresses
        // their users have promised it.
        let freed = self.shared.call(|comm| unsafe { sys::trib_symmetric_free(comm, data) });
        match freed.unwrap_or_else(|| Err(gone())) {
            Ok(()) => Ok(()),
            Err(error) => Err(Failed { error, buffers: Some(self) }),
        }
    }

    /// For a call of `comm`, if that is its communicator: C refuses the call once it has ended.
    pub(crate) fn lend(&self, comm: Option<&Communicator>) -> Result<DeviceSlice> {
        if !comm.is_some_and(|comm| Arc::ptr_eq(&self.shared, comm.shared())) {
            return Err(Error::new(
                sys::TRIB_ERR_INVALID_USAGE,
                format!("{self:?} is memory of another communicator: only its own calls take it"),
            ));
        }
        let data = self.data.as_ptr().cast();
        // SAFETY: `len` elements of this device, which are there as long as a call of the communicator
        // may use them.
        Ok(unsafe { DeviceSlice::new(data, self.len, T::DTYPE, Some(self.device)) })
    }
}

/// More than memory holds is for C to refuse, so that it tells the other ranks.
fn bytes_of<T>(len: usize) -> usize {
    len.saturating_mul(size_of::<T>())
}

fn importable<T: Element>(
    comm: &Communicator,
    buffer: &DeviceSlice,
    stream: &Stream,
) -> Result<DeviceSlice> {
    let check = Check::new("symmetric_import", comm, stream)?;
    let view = check.buffer("buffer", buffer)?;
    if view.dtype() == T::DTYPE {
        return Ok(view);
    }
    Err(Error::buffer(format!(
        "{check}: `buffer` holds {}; give one of {}",
        view.dtype(),
        T::DTYPE
    )))
}

impl<T: Element> fmt::Debug for Symmetric<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Symmetric { len, rank, size, device, .. } = self;
        write!(f, "Symmetric<{}>[{len}], rank {rank} of {size} on {device}", T::DTYPE)
    }
}
