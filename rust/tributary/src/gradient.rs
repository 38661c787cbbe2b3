//! One gradient of a reducer, lent while no step uses it.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{align_of, size_of_val};
use std::ptr::NonNull;
use std::slice;

use crate::buffer::{self, DeviceBuffer, DeviceSlice, UniqueBuffer};
use crate::check;
use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::stream::Stream;

/// A gradient that a [`Reducer`](crate::Reducer) lends, to be read and written: it is no part of a
/// step that is still queued, and nothing else uses it while the loan lasts.
///
/// It is a [`UniqueBuffer`], so scopes take it.
pub struct Gradient<'a> {
    view: DeviceSlice,
    device: Device,
    lent: PhantomData<&'a mut ()>,
}

// SAFETY: a sole borrow of elements, as a `&mut [T]` of them: they are Send, and nothing else uses
// them. The owner of the memory is not reached.
unsafe impl Send for Gradient<'_> {}
// SAFETY: as above; through `&self` they are only read, and are Sync.
unsafe impl Sync for Gradient<'_> {}

impl Gradient<'_> {
    /// # Safety
    /// `view` is memory of `device` that lives, and that nothing else uses, while the loan lasts.
    pub(crate) unsafe fn new(view: DeviceSlice, device: Device) -> Self {
        Gradient { view, device, lent: PhantomData }
    }

    /// Lends it on.
    pub(crate) fn lend(&mut self) -> Gradient<'_> {
        Gradient { lent: PhantomData, ..*self }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `values`, one for each element, to the device. Queues the copy on `stream`, which
    /// belongs to the same device, and waits for it.
    pub fn upload<T: Element>(&mut self, values: &[T], stream: &Stream) -> Result<()> {
        self.fits::<T>("Gradient::upload", values.len(), stream)?;
        let (to, from) = (self.view.ptr(), values.as_ptr().cast());
        // SAFETY: both hold as many elements of one type, and nothing else uses either: the loan.
        unsafe { buffer::copy(self.device, to, from, size_of_val(values), stream) }
    }

    /// Copies the elements to `values`, which has the same length. Queues the copy on `stream`,
    /// which belongs to the same device, and waits for it.
    pub fn download_into<T: Element>(&self, values: &mut [T], stream: &Stream) -> Result<()> {
        self.fits::<T>("Gradient::download", values.len(), stream)?;
        let (to, from) = (values.as_mut_ptr().cast(), self.view.ptr().cast_const());
        // SAFETY: as in `upload`.
        unsafe { buffer::copy(self.device, to, from, size_of_val(values), stream) }
    }

    /// Returns a copy of the elements. Queues it on `stream`, which belongs to the same device, and
    /// waits for it.
    pub fn download<T: Element>(&self, stream: &Stream) -> Result<Vec<T>> {
        // SAFETY: all bits zero is a value of every element type.
        let mut values = vec![unsafe { std::mem::zeroed::<T>() }; self.len()];
        self.download_into(&mut values, stream)?;
        Ok(values)
    }

    /// Returns the elements if they are of type `T` and in host memory, as on the host backend.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        // SAFETY: host memory of `len` elements, aligned, initialised, and nothing writes to it
        // during the loan.
        self.on_host::<T>()
            .map(|first| unsafe { slice::from_raw_parts(first.as_ptr(), self.len()) })
    }

    /// Returns the elements if they are of type `T` and in host memory, as on the host backend.
    pub fn as_mut_slice<T: Element>(&mut self) -> Option<&mut [T]> {
        let len = self.len();
        // SAFETY: as in `as_slice`, and the loan is borrowed solely.
        self.on_host::<T>().map(|first| unsafe { slice::from_raw_parts_mut(first.as_ptr(), len) })
    }

    /// The first element, if Rust can use it. A gradient without elements may lie nowhere.
    fn on_host<T: Element>(&self) -> Option<NonNull<T>> {
        if self.device.backend() != "host" || self.dtype() != T::DTYPE {
            return None;
        }
        let first = NonNull::new(self.view.ptr().cast::<T>()).filter(|_| !self.is_empty());
        let first = first.unwrap_or(NonNull::dangling());
        (first.as_ptr() as usize % align_of::<T>() == 0).then_some(first)
    }

    fn fits<T: Element>(&self, operation: &str, len: usize, stream: &Stream) -> Result<()> {
        check::stream_of(&operation, stream, self.device)?;
        if len != self.len() || self.dtype() != T::DTYPE {
            return Err(Error::argument(format!(
                "{operation}: {len} elements of {} for a gradient of {} of {}; give as many of its \
                 type",
                T::DTYPE,
                self.len(),
                self.dtype()
            )));
        }
        Ok(())
    }
}

// SAFETY: the promise of `new`; elements lie one behind the other.
unsafe impl DeviceBuffer for Gradient<'_> {
    fn ptr(&self) -> *mut c_void {
        self.view.ptr()
    }
    fn len(&self) -> usize {
        self.view.len()
    }
    fn dtype(&self) -> DType {
        self.view.dtype()
    }
    fn device(&self) -> Option<Device> {
        Some(self.device)
    }
}

// SAFETY: nothing else uses the memory while the loan lasts, and it is lent by Rust's rules.
unsafe impl UniqueBuffer for Gradient<'_> {
    fn ptr_mut(&mut self) -> *mut c_void {
        self.view.ptr()
    }
}

impl fmt::Debug for Gradient<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gradient({} of {} on {})", self.len(), self.dtype(), self.device)
    }
}
