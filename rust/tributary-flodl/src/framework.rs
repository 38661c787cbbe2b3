//! What this crate needs of a framework: its tensors, its streams, and a few facts.

use std::ffi::c_void;

use tributary::{DType, Device, DeviceBuffer};

use crate::error::Error;

/// A framework's tensor: a handle, whose clones share one storage.
///
/// # Safety
/// While the value or a clone of it lives, [`data_ptr`](Tensor::data_ptr) points to
/// [`numel`](Tensor::numel) elements of [`dtype`](Tensor::dtype), which lie on the device of
/// [`device_index`](Tensor::device_index) and are contiguous if
/// [`is_contiguous`](Tensor::is_contiguous). Clones return the same values.
///
/// Queued work uses the elements after a call has returned. Safe code of the framework makes no
/// references to them, and where it reads or writes them from the host, it waits for the device
/// first. (Work of two streams that nothing orders makes values wrong, which is the program's
/// mistake, and nothing else.)
pub unsafe trait Tensor: Clone + Send + 'static {
    /// Returns the address of the first element.
    fn data_ptr(&self) -> *mut c_void;

    /// Returns the number of elements.
    fn numel(&self) -> usize;

    /// Returns the type of the elements.
    fn dtype(&self) -> DType;

    /// Returns the number of the device that holds the elements, `None` for memory of the host.
    fn device_index(&self) -> Option<usize>;

    /// Returns whether the elements are contiguous. The collectives refuse tensors that are not.
    fn is_contiguous(&self) -> bool;
}

/// A framework's stream.
///
/// # Safety
/// [`raw`](Stream::raw) is a stream of device [`device_index`](Stream::device_index): a
/// `cudaStream_t` other than `cudaStreamPerThread`, and not being captured. Work that was queued on
/// it runs to its end also after this value is gone, as on a stream of CUDA.
pub unsafe trait Stream {
    /// Returns the handle, NULL for the default stream.
    fn raw(&self) -> *mut c_void;

    /// Returns the number of its device.
    fn device_index(&self) -> usize;
}

/// A framework: its types, and what it alone knows.
pub trait Framework: 'static {
    /// Its tensors.
    type Tensor: Tensor;
    /// Its streams.
    type Stream: Stream;
    /// Its devices.
    type Device: Copy + Send;
    /// Its errors.
    type Error: From<Error>;

    /// Returns the name of the backend of Tributary: `nccl`, unless tests want `host`.
    fn backend() -> &'static str {
        "nccl"
    }

    /// Returns the number of a GPU, `None` for other devices.
    fn device_index(device: Self::Device) -> Option<usize>;

    /// Returns the number of the calling thread's current GPU.
    fn current_device() -> usize;

    /// Returns the calling thread's current stream of a GPU, `None` for the default stream.
    fn current_stream(device_index: usize) -> Option<Self::Stream> {
        let _ = device_index;
        None
    }
}

/// A tensor as a buffer of Tributary.
pub(crate) struct View<'a, T> {
    tensor: &'a T,
    device: Option<Device>,
}

impl<'a, T: Tensor> View<'a, T> {
    /// Fails if there is no such device.
    pub(crate) fn new<F: Framework>(tensor: &'a T) -> Result<Self, Error> {
        let device = tensor.device_index().map(|index| Device::get(F::backend(), index));
        Ok(View { tensor, device: device.transpose()? })
    }
}

// SAFETY: the promise of `Tensor`, of a tensor that lives as long as the view at least.
unsafe impl<T: Tensor> DeviceBuffer for View<'_, T> {
    fn ptr(&self) -> *mut c_void {
        self.tensor.data_ptr()
    }
    fn len(&self) -> usize {
        self.tensor.numel()
    }
    fn dtype(&self) -> DType {
        self.tensor.dtype()
    }
    fn device(&self) -> Option<Device> {
        self.device
    }
    fn is_contiguous(&self) -> bool {
        self.tensor.is_contiguous()
    }
}

/// The views as a list of Tributary.
pub(crate) fn list<'a, T: Tensor>(views: &'a [View<'_, T>]) -> Vec<&'a dyn DeviceBuffer> {
    views.iter().map(|view| view as &dyn DeviceBuffer).collect()
}

/// A view of each tensor.
pub(crate) fn views<'a, F: Framework>(
    tensors: &[&'a F::Tensor],
) -> Result<Vec<View<'a, F::Tensor>>, Error> {
    tensors.iter().map(|&tensor| View::new::<F>(tensor)).collect()
}

/// The framework's stream, or the default stream of `device`.
pub(crate) fn stream<S: Stream>(
    device: Device,
    given: Option<&S>,
) -> Result<tributary::Stream, Error> {
    let Some(given) = given else { return Ok(tributary::Stream::default_of(device)) };
    let its_own = Device::get(device.backend(), given.device_index())?;
    // SAFETY: the promise of `Stream`. The wrapper lives through one call.
    Ok(unsafe { tributary::Stream::from_raw(its_own, given.raw()) })
}
