//! Buffers of one element type on one device.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::mem::size_of;
use std::ops::{Bound, RangeBounds};
use std::ptr::{self, NonNull};
use std::time::Duration;

use tributary_sys as sys;

use crate::check;
use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::{check as checked, Error, Result};
use crate::stream::Stream;
use crate::sync;

/// A tensor as a collective sees it: a pointer, a length, a type and a device.
///
/// Implement it for the tensor type of a framework. Tensors may share storage and change it through
/// `&self`: collectives write through [`ptr`](DeviceBuffer::ptr) without a `&mut`. For that reason
/// the methods that take `&dyn DeviceBuffer` are `unsafe`; the safe ones take a [`UniqueBuffer`].
///
/// The example `foreign_tensor` adapts a tensor whose clones share their storage.
///
/// # Safety
/// While the value lives and is not moved, `ptr` points to `len` elements of type `dtype`, which
/// the device can use, whichever thread queues the work; they are contiguous if `is_contiguous`. All
/// methods return the same values until the value is changed through `&mut` or moved.
pub unsafe trait DeviceBuffer {
    /// Returns the address of the first element.
    fn ptr(&self) -> *mut c_void;

    /// Returns the number of elements.
    fn len(&self) -> usize;

    /// Returns the type of the elements.
    fn dtype(&self) -> DType;

    /// Returns the device that the memory belongs to. With `None` the library determines it.
    fn device(&self) -> Option<Device> {
        None
    }

    /// Returns whether the elements are contiguous. The collectives refuse buffers that are not.
    fn is_contiguous(&self) -> bool {
        true
    }

    /// Returns whether there are no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A buffer that obeys Rust's rules of borrowing, as slices, vectors and [`DeviceVec`] do. The safe
/// collectives take it. A tensor whose clones share their storage is not one:
///
/// ```compile_fail,E0277
/// # use tributary::{Communicator, DeviceSlice, InPlace, ReduceOp, Stream};
/// fn shared(comm: &mut Communicator, stream: &Stream, view: &mut DeviceSlice) -> tributary::Result<()> {
///     comm.scope(stream, |s| s.allreduce(InPlace, view, ReduceOp::Sum))
/// }
/// ```
///
/// # Safety
/// While a `&` borrow of the value lasts, nothing on host or device writes its elements. While a
/// `&mut` borrow lasts, nothing uses them except through that borrow.
/// [`ptr_mut`](UniqueBuffer::ptr_mut) returns the same address as [`ptr`](DeviceBuffer::ptr), and
/// may be written through.
pub unsafe trait UniqueBuffer: DeviceBuffer {
    /// Returns the address of the first element.
    fn ptr_mut(&mut self) -> *mut c_void;
}

// SAFETY: a slice owns or borrows `len` initialised elements of T, one behind the other.
unsafe impl<T: Element> DeviceBuffer for [T] {
    fn ptr(&self) -> *mut c_void {
        self.as_ptr().cast_mut().cast()
    }
    fn len(&self) -> usize {
        <[T]>::len(self)
    }
    fn dtype(&self) -> DType {
        T::DTYPE
    }
}

// SAFETY: a slice is borrowed by Rust's rules.
unsafe impl<T: Element> UniqueBuffer for [T] {
    fn ptr_mut(&mut self) -> *mut c_void {
        self.as_mut_ptr().cast()
    }
}

/// Types that are a slice in all but name.
macro_rules! like_slice {
    ($([$($generics:tt)*] $type:ty),* $(,)?) => {$(
        // SAFETY: as for the slice that it holds.
        unsafe impl<$($generics)*> DeviceBuffer for $type {
            fn ptr(&self) -> *mut c_void {
                DeviceBuffer::ptr(&self[..])
            }
            fn len(&self) -> usize {
                self[..].len()
            }
            fn dtype(&self) -> DType {
                T::DTYPE
            }
        }
        // SAFETY: as for the slice that it holds.
        unsafe impl<$($generics)*> UniqueBuffer for $type {
            fn ptr_mut(&mut self) -> *mut c_void {
                self[..].ptr_mut()
            }
        }
    )*};
}

like_slice! {
    [T: Element] Vec<T>,
    [T: Element] Box<[T]>,
    [T: Element] &mut [T],
    [T: Element, const N: usize] [T; N],
}

/// A view of device memory by pointer and length, for the `unsafe` collectives: of foreign memory,
/// or of a part of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSlice {
    ptr: *mut c_void,
    len: usize,
    dtype: DType,
    device: Option<Device>,
    contiguous: bool,
}

impl DeviceSlice {
    /// Creates a view of `len` elements of type `dtype` at `ptr`.
    ///
    /// # Safety
    /// The promise of [`DeviceBuffer`] holds while the view or a copy of it is in use. The memory
    /// may be written if a collective that writes gets the view.
    pub unsafe fn new(
        ptr: *mut c_void,
        len: usize,
        dtype: DType,
        device: Option<Device>,
    ) -> DeviceSlice {
        DeviceSlice { ptr, len, dtype, device, contiguous: true }
    }

    /// The whole of `buffer`. A view does not keep it alive.
    pub(crate) fn of<B: DeviceBuffer + ?Sized>(buffer: &B) -> DeviceSlice {
        DeviceSlice {
            ptr: buffer.ptr(),
            len: buffer.len(),
            dtype: buffer.dtype(),
            device: buffer.device(),
            contiguous: buffer.is_contiguous(),
        }
    }

    /// The whole of `buffer`, to write to.
    pub(crate) fn of_mut<B: UniqueBuffer + ?Sized>(buffer: &mut B) -> DeviceSlice {
        // The pointer last: it must come from the `&mut`, after every use of a `&`.
        let view = DeviceSlice::of(&*buffer);
        DeviceSlice { ptr: buffer.ptr_mut(), ..view }
    }

    /// Returns a view of a part. Panics if the range is not inside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> DeviceSlice {
        const BEYOND: &str = "the range ends beyond the address space";
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.checked_add(1).expect(BEYOND),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.checked_add(1).expect(BEYOND),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len,
        };
        assert!(start <= end && end <= self.len, "{start}..{end} is not inside 0..{}", self.len);
        let ptr = self.ptr.cast::<u8>().wrapping_add(start * self.dtype.size()).cast();
        DeviceSlice { ptr, len: end - start, ..*self }
    }

    /// Whether both views cover the same elements, so that a call on them runs in place.
    pub(crate) fn is(&self, other: &DeviceSlice) -> bool {
        (self.ptr, self.len, self.dtype) == (other.ptr, other.len, other.dtype)
    }

    /// The addresses that it covers.
    pub(crate) fn addresses(&self) -> std::ops::Range<usize> {
        let start = self.ptr as usize;
        start..start + self.len * self.dtype.size()
    }

    pub(crate) fn tensor(&self) -> sys::trib_tensor {
        sys::trib_tensor { data: self.ptr, count: self.len, dtype: self.dtype.raw(), reserved: 0 }
    }
}

// SAFETY: the promise of `DeviceSlice::new`.
unsafe impl DeviceBuffer for DeviceSlice {
    fn ptr(&self) -> *mut c_void {
        self.ptr
    }
    fn len(&self) -> usize {
        self.len
    }
    fn dtype(&self) -> DType {
        self.dtype
    }
    fn device(&self) -> Option<Device> {
        self.device
    }
    fn is_contiguous(&self) -> bool {
        self.contiguous
    }
}

/// Copies between host and device, and waits.
///
/// # Safety
/// Both sides hold `bytes` bytes that nothing else uses meanwhile; one is memory of `device`, and
/// `stream` belongs to it.
pub(crate) unsafe fn copy(
    device: Device,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    stream: &Stream,
) -> Result<()> {
    if bytes == 0 {
        return Ok(()); // one side may lie nowhere
    }
    // SAFETY: the caller's promise. "Leave host memory untouched until the stream has passed this
    // point": the wait below.
    checked(unsafe { sys::trib_device_copy(device.raw(), to, from, bytes, stream.as_raw()) })?;
    sync::synchronize(stream, Duration::MAX, &[])
}

/// Owned device memory for elements of type `T`.
///
/// It serves tests and programs without a framework. On the host backend plain slices and vectors
/// are buffers as well.
pub struct DeviceVec<T: Element> {
    data: NonNull<c_void>,
    len: usize,
    device: Device,
    element: PhantomData<T>,
}

// SAFETY: it owns its memory, which any thread may use and free; elements are Send.
unsafe impl<T: Element> Send for DeviceVec<T> {}
// SAFETY: through `&self` it is only read; elements are Sync.
unsafe impl<T: Element> Sync for DeviceVec<T> {}

impl<T: Element> DeviceVec<T> {
    /// Allocates `len` elements.
    ///
    /// # Safety
    /// The elements are not initialised. The caller writes each of them before it is read.
    pub unsafe fn uninit(device: Device, len: usize) -> Result<DeviceVec<T>> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .ok_or_else(|| Error::argument(format!("{len} elements are more than memory holds")))?;
        let mut data = ptr::null_mut();
        // SAFETY: `*out` is ours to free, with the device that is kept beside it.
        checked(unsafe { sys::trib_device_alloc(&mut data, device.raw(), bytes) })?;
        // SAFETY: a call that succeeds has set `*out`: "0 bytes give a unique pointer".
        let data = unsafe { NonNull::new_unchecked(data) };
        Ok(DeviceVec { data, len, device, element: PhantomData })
    }

    /// Allocates `len` zeros.
    pub fn zeros(device: Device, len: usize) -> Result<DeviceVec<T>> {
        // SAFETY: all bits zero is a value of every element type.
        let zeros = vec![unsafe { std::mem::zeroed::<T>() }; len];
        DeviceVec::from_slice(device, &zeros)
    }

    /// Copies `values` to new device memory.
    pub fn from_slice(device: Device, values: &[T]) -> Result<DeviceVec<T>> {
        // SAFETY: every element is written here, or the value is dropped.
        let mut data = unsafe { DeviceVec::uninit(device, values.len()) }?;
        let stream = Stream::new(device)?;
        data.upload(values, &stream)?;
        Ok(data)
    }

    /// Copies `values`, one for each element, to the device. Queues the copy on `stream`, which
    /// belongs to the same device, and waits for it.
    pub fn upload(&mut self, values: &[T], stream: &Stream) -> Result<()> {
        let (to, from) = (self.data.as_ptr(), values.as_ptr().cast());
        self.copy("DeviceVec::upload", to, from, values.len(), stream)
    }

    /// Copies the elements to `values`, which has the same length. Queues the copy on `stream`,
    /// which belongs to the same device, and waits for it.
    pub fn download_into(&self, values: &mut [T], stream: &Stream) -> Result<()> {
        let (to, from) = (values.as_mut_ptr().cast(), self.data.as_ptr());
        self.copy("DeviceVec::download", to, from, values.len(), stream)
    }

    /// Returns a copy of the elements. Queues it on `stream`, which belongs to the same device, and
    /// waits for it.
    pub fn download(&self, stream: &Stream) -> Result<Vec<T>> {
        // SAFETY: all bits zero is a value of every element type.
        let mut values = vec![unsafe { std::mem::zeroed::<T>() }; self.len];
        self.download_into(&mut values, stream)?;
        Ok(values)
    }

    /// One of `to` and `from` is the memory of `self`, the other `len` elements in host memory.
    fn copy(
        &self,
        operation: &str,
        to: *mut c_void,
        from: *const c_void,
        len: usize,
        stream: &Stream,
    ) -> Result<()> {
        check::stream_of(&operation, stream, self.device)?;
        if len != self.len {
            return Err(Error::argument(format!(
                "{operation}: {len} elements for a vector of {}; give as many",
                self.len
            )));
        }
        // SAFETY: both sides hold `len` elements; the host's are borrowed until the copy has run.
        unsafe { copy(self.device, to, from, len * size_of::<T>(), stream) }
    }

    /// Returns the elements if they are in host memory, as on the host backend.
    pub fn as_slice(&self) -> Option<&[T]> {
        // SAFETY: host memory of `len` elements, aligned to 256, initialised (see `uninit`), and
        // not written to while `self` is borrowed (see `UniqueBuffer`).
        (self.device.backend() == "host")
            .then(|| unsafe { std::slice::from_raw_parts(self.data.as_ptr().cast(), self.len) })
    }

    /// Returns the elements if they are in host memory, as on the host backend.
    pub fn as_mut_slice(&mut self) -> Option<&mut [T]> {
        // SAFETY: as in `as_slice`, and `self` is borrowed solely.
        (self.device.backend() == "host")
            .then(|| unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr().cast(), self.len) })
    }
}

// SAFETY: it owns `len` initialised elements, one behind the other.
unsafe impl<T: Element> DeviceBuffer for DeviceVec<T> {
    fn ptr(&self) -> *mut c_void {
        self.data.as_ptr()
    }
    fn len(&self) -> usize {
        self.len
    }
    fn dtype(&self) -> DType {
        T::DTYPE
    }
    fn device(&self) -> Option<Device> {
        Some(self.device)
    }
}

// SAFETY: it is the sole owner of its memory, and lends it by Rust's rules.
unsafe impl<T: Element> UniqueBuffer for DeviceVec<T> {
    fn ptr_mut(&mut self) -> *mut c_void {
        self.data.as_ptr()
    }
}

impl<T: Element> Drop for DeviceVec<T> {
    fn drop(&mut self) {
        // SAFETY: the memory is ours. "Queued work must no longer use it": the safe operations
        // borrow or own the vector until their work is done; of the others their callers have
        // promised it.
        unsafe { sys::trib_device_free(self.device.raw(), self.data.as_ptr()) };
    }
}

impl<T: Element> fmt::Debug for DeviceVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceVec<{}>[{}] on {}", T::DTYPE, self.len, self.device)
    }
}
