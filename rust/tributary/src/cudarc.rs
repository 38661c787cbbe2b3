//! Memory and streams of the [cudarc](https://docs.rs/cudarc) crate: the feature `cudarc`.
//!
//! ```no_run
//! use cudarc::driver::CudaContext;
//! use tributary::cudarc::Lent;
//! use tributary::{Communicator, InPlace, ReduceOp, Stream};
//!
//! fn average(comm: &mut Communicator) -> Result<(), Box<dyn std::error::Error>> {
//!     let cuda = CudaContext::new(comm.device().ordinal())?.default_stream();
//!     let mut gradient = cuda.clone_htod(&[1.0_f32; 1000])?;
//!     // ... kernels of cudarc change it ...
//!     let stream = Stream::new(comm.device())?;
//!     let mut lent = Lent::new(&mut gradient)?;
//!     comm.scope(&stream, |s| s.allreduce(InPlace, &mut lent, ReduceOp::Avg))?;
//!     let _mean = cuda.clone_dtoh(&gradient)?; // the scope has waited
//!     Ok(())
//! }
//! ```
//!
//! Both crates use the primary context of a device, so memory, streams and errors are shared.
//!
//! # Without a wait of the host
//!
//! cudarc orders the uses of a slice on several streams by events, which [`Lent`] replaces by a wait
//! of the host. The `unsafe` collectives need none, on a stream that cudarc knows:
//!
//! ```no_run
//! # use std::sync::Arc;
//! use cudarc::driver::{CudaSlice, CudaStream, DevicePtrMut};
//! use tributary::{Communicator, DType, DeviceSlice, ReduceOp};
//!
//! fn average(
//!     comm: &mut Communicator, gradient: &mut CudaSlice<f32>, cuda: &Arc<CudaStream>,
//! ) -> tributary::Result<()> {
//!     let len = gradient.len();
//!     // SAFETY: the stream is not captured meanwhile.
//!     let stream = unsafe { tributary::cudarc::stream(cuda) }?;
//!     // `cuda` waits for earlier uses; later ones wait for what it has queued when `used` is dropped.
//!     let (address, used) = gradient.device_ptr_mut(cuda);
//!     // SAFETY: the memory of the slice, which is not freed before `cuda` has passed.
//!     let view = unsafe { DeviceSlice::new(address as *mut _, len, DType::F32, Some(comm.device())) };
//!     // SAFETY: cudarc orders other uses of the slice.
//!     unsafe { comm.allreduce(&view, &view, ReduceOp::Avg, &stream) }?;
//!     drop(used);
//!     Ok(())
//! }
//! ```

use std::ffi::c_void;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use ::cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaViewMut, DevicePtrMut, DeviceSlice, DriverError,
};
use tributary_sys as sys;

use crate::buffer::{DeviceBuffer, UniqueBuffer};
use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::stream::Stream;

mod sealed {
    use super::*;

    pub trait Sealed {
        type Element: Element;

        /// Waits for all work that cudarc has queued with the memory. Returns the address.
        fn settle(&mut self) -> Result<u64, DriverError>;
        fn place(&self) -> (usize, &Arc<CudaStream>);
    }
}
use sealed::Sealed;

/// Memory of cudarc that a [`Lent`] takes: a [`CudaSlice`], owned or `&mut`, or a [`CudaViewMut`].
pub trait CudaMemory: Sealed {}

/// Memory of cudarc as a buffer of all collectives, the safe ones included.
///
/// While it is lent, nothing else uses the memory, and work of cudarc from before has ended:
/// [`new`](Lent::new) waits for it. A [work](crate::Communicator::start) takes a `Lent` that owns
/// its slice.
pub struct Lent<B> {
    memory: B,
    address: *mut c_void,
    len: usize,
    dtype: DType,
    device: Device,
}

// SAFETY: the address is that of `memory`; CUDA has one address space for all threads.
unsafe impl<B: Send> Send for Lent<B> {}
// SAFETY: as above; through `&self` the memory is only read.
unsafe impl<B: Sync> Sync for Lent<B> {}

impl<B: CudaMemory> Lent<B> {
    /// Takes `memory`, and waits until work that cudarc has queued with it has ended. (Like every
    /// call of cudarc this may change the thread's current device.) Fails for memory of a context
    /// that is not the primary one of its device.
    ///
    /// cudarc knows that work from the events of the slice and from its stream. A program that
    /// disables event tracking has promised cudarc to wait for the rest by itself.
    pub fn new(mut memory: B) -> Result<Lent<B>> {
        let (len, stream) = memory.place();
        let device = device(stream.context())?;
        let address = memory.settle().map_err(|error| driver("Lent::new", &error))?;
        let dtype = <B::Element as Element>::DTYPE;
        Ok(Lent { memory, address: address as *mut c_void, len, dtype, device })
    }

    /// Returns the memory.
    pub fn into_inner(self) -> B {
        self.memory
    }
}

impl<T: Element> Sealed for CudaSlice<T> {
    type Element = T;

    fn settle(&mut self) -> Result<u64, DriverError> {
        let stream = Arc::clone(self.stream());
        settle(self, &stream)
    }
    fn place(&self) -> (usize, &Arc<CudaStream>) {
        (self.len(), self.stream())
    }
}
impl<T: Element> CudaMemory for CudaSlice<T> {}

impl<T: Element> Sealed for CudaViewMut<'_, T> {
    type Element = T;

    fn settle(&mut self) -> Result<u64, DriverError> {
        let stream = Arc::clone(self.stream());
        settle(self, &stream)
    }
    fn place(&self) -> (usize, &Arc<CudaStream>) {
        (self.len(), self.stream())
    }
}
impl<T: Element> CudaMemory for CudaViewMut<'_, T> {}

impl<B: Sealed> Sealed for &mut B {
    type Element = B::Element;

    fn settle(&mut self) -> Result<u64, DriverError> {
        (**self).settle()
    }
    fn place(&self) -> (usize, &Arc<CudaStream>) {
        (**self).place()
    }
}
impl<B: CudaMemory> CudaMemory for &mut B {}

/// Makes `stream`, which is that of `memory`, wait for all earlier uses, and waits for it.
fn settle<T>(
    memory: &mut impl DevicePtrMut<T>,
    stream: &Arc<CudaStream>,
) -> Result<u64, DriverError> {
    let (address, used) = memory.device_ptr_mut(stream);
    drop(used);
    stream.synchronize()?;
    Ok(address)
}

// SAFETY: the address and length of `memory`, which this value owns or borrows solely. cudarc's
// slices are contiguous and initialised (`alloc` is unsafe), and never moved or resized.
unsafe impl<B: CudaMemory> DeviceBuffer for Lent<B> {
    fn ptr(&self) -> *mut c_void {
        self.address
    }
    fn len(&self) -> usize {
        self.len
    }
    fn dtype(&self) -> DType {
        self.dtype
    }
    fn device(&self) -> Option<Device> {
        Some(self.device)
    }
}

// SAFETY: nothing but this value reaches the memory, and earlier work of cudarc has ended. Later work
// needs the slice back, which a borrow of this value prevents.
unsafe impl<B: CudaMemory> UniqueBuffer for Lent<B> {
    fn ptr_mut(&mut self) -> *mut c_void {
        self.address
    }
}

impl<B> fmt::Debug for Lent<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent<{}>[{}] on {}", self.dtype, self.len, self.device)
    }
}

/// A [`CudaStream`] as a [`Stream`], which it keeps alive.
#[derive(Debug)]
pub struct OfCudarc {
    stream: Stream,
    _owner: Arc<CudaStream>,
}

impl Deref for OfCudarc {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.stream
    }
}

/// Returns `stream` for the calls of this crate. Fails for a per-thread stream, and for one of a
/// context that is not the primary one of its device.
///
/// # Safety
/// The stream is not being captured while a scope, a work or a step uses it.
pub unsafe fn stream(stream: &Arc<CudaStream>) -> Result<OfCudarc> {
    let device = device(stream.context())?;
    let raw: *mut c_void = stream.cu_stream().cast();
    if raw == PER_THREAD {
        return Err(Error::new(
            sys::TRIB_ERR_INVALID_STREAM,
            "a per-thread stream of cudarc is another one on each thread; pass one of new_stream",
        ));
    }
    // SAFETY: `_owner` keeps the stream alive, and CUDA runs the work of one that is destroyed to its
    // end. The rest is the caller's promise.
    let of = unsafe { Stream::from_raw(device, raw) };
    Ok(OfCudarc { stream: of, _owner: Arc::clone(stream) })
}

/// `cudaStreamPerThread`.
const PER_THREAD: *mut c_void = 2 as *mut c_void;

/// The device of a primary context, which is the one that CUDA's runtime uses.
fn device(context: &CudaContext) -> Result<Device> {
    if !context.is_primary() {
        return Err(Error::new(
            sys::TRIB_ERR_UNSUPPORTED,
            format!(
                "a context of cudarc on GPU {} that is not the primary one; use CudaContext::new",
                context.ordinal()
            ),
        ));
    }
    Device::get("nccl", context.ordinal())
}

#[cold]
fn driver(operation: &str, error: &DriverError) -> Error {
    Error::new(sys::TRIB_ERR_CUDA, format!("{operation}: {error}"))
}
