//! Lists of tensors: one collective for all of them, and their weighted average.

use std::ptr;

use tributary_sys as sys;

use crate::buffer::{DeviceBuffer, DeviceSlice};
use crate::call_options::CallOptions;
use crate::check::Check;
use crate::communicator::Communicator;
use crate::dtype::DType;
use crate::error::{number, Error, Result};
use crate::op::ReduceOp;
use crate::stream::Stream;

/// The weight of a rank in [`Communicator::weighted_average`]: finite and not negative.
pub enum Weight<'a, B: ?Sized = dyn DeviceBuffer + 'a> {
    /// A number that the caller knows now.
    Host(f32),
    /// One `f32` in device memory, which the stream reads when it runs the call.
    Device(&'a B),
}

impl<B: ?Sized> From<f32> for Weight<'_, B> {
    fn from(weight: f32) -> Self {
        Weight::Host(weight)
    }
}

impl<B: ?Sized> Clone for Weight<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: ?Sized> Copy for Weight<'_, B> {}

impl<B: ?Sized> std::fmt::Debug for Weight<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Weight::Host(weight) => write!(f, "Host({weight})"),
            Weight::Device(_) => f.write_str("Device(..)"),
        }
    }
}

/// # Lists
///
/// One kernel packs the tensors of a list into one buffer for each element type, one collective
/// reduces it, and one kernel unpacks it. Unpacking is all or nothing on each rank: an aborted or
/// failed call leaves every tensor bit for bit as it was, and
/// [`Counters::lists_committed`](crate::Counters::lists_committed) tells which happened. So a
/// program can repeat the call without a snapshot.
///
/// Order, lengths and types are the same on all ranks. Tensors do not overlap. A batch holds no
/// lists.
impl Communicator {
    /// Replaces every rank's tensors by their reductions.
    ///
    /// # Safety
    /// The tensors stay alive and untouched until `stream` has passed this call, and may be
    /// written. All ranks pass equal lengths and types.
    pub unsafe fn allreduce_list(
        &mut self,
        tensors: &[&dyn DeviceBuffer],
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<()> {
        let list = Check::new("allreduce_list", self, stream)?.list(tensors)?;
        // SAFETY: "keep them alive and untouched until the stream has passed that point": the
        // caller's promise; "The call reads `tensors` before it returns".
        self.call(|comm| unsafe {
            sys::trib_allreduce_list(comm, list.as_ptr(), list.len(), op.raw(), stream.as_raw())
        })
    }

    /// Does what [`allreduce_list`](Communicator::allreduce_list) does, with `options`.
    ///
    /// # Safety
    /// As for [`allreduce_list`](Communicator::allreduce_list), a factor on the device included.
    pub unsafe fn allreduce_list_with(
        &mut self,
        tensors: &[&dyn DeviceBuffer],
        op: ReduceOp,
        options: CallOptions<'_>,
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("allreduce_list_with", self, stream)?;
        let list = check.list(tensors)?;
        let options = options.raw(&check)?;
        // SAFETY: as in `allreduce_list`; of the options: "Read during the call".
        self.call(|comm| unsafe {
            let (list, n, op) = (list.as_ptr(), list.len(), op.raw());
            sys::trib_allreduce_list_with(comm, list, n, op, &options, stream.as_raw())
        })
    }

    /// Replaces every rank's tensors by those of rank `root`.
    ///
    /// # Safety
    /// As for [`allreduce_list`](Communicator::allreduce_list).
    pub unsafe fn broadcast_list(
        &mut self,
        tensors: &[&dyn DeviceBuffer],
        root: usize,
        stream: &Stream,
    ) -> Result<()> {
        let list = Check::new("broadcast_list", self, stream)?.list(tensors)?;
        let root = number("broadcast_list: `root`", root)?;
        // SAFETY: as in `allreduce_list`.
        self.call(|comm| unsafe {
            sys::trib_broadcast_list(comm, list.as_ptr(), list.len(), root, stream.as_raw())
        })
    }

    /// Replaces every rank's tensors by their weighted average, `sum(w_i * x_i) / sum(w_i)`.
    ///
    /// A rank of weight 0 contributes nothing (the call ignores its values, NaN included) and
    /// receives the average like the others. If the weights sum to 0, or one is invalid, every
    /// tensor stays as it was.
    ///
    /// `total`, one `f32` in device memory, receives the sum of the weights: above 0 if the tensors
    /// were written, 0 or NaN if not. The host does not wait, and each type takes one collective.
    /// The types are f16, bf16, f32 and f64.
    ///
    /// # Safety
    /// As for [`allreduce_list`](Communicator::allreduce_list), `weight` and `total` included.
    pub unsafe fn weighted_average(
        &mut self,
        tensors: &[&dyn DeviceBuffer],
        weight: Weight<'_>,
        total: Option<&dyn DeviceBuffer>,
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("weighted_average", self, stream)?;
        let list = check.list(tensors)?;
        let (number, place) = match weight {
            Weight::Host(number) => (number, ptr::null_mut()),
            Weight::Device(place) => (0.0, check.one_f32("weight", place)?),
        };
        let total = match total {
            Some(total) => check.one_f32("total", total)?,
            None => ptr::null_mut(),
        };
        // SAFETY: as in `allreduce_list`; `weight` and `total` are one float each, or NULL.
        self.call(|comm| unsafe {
            let (list, n) = (list.as_ptr(), list.len());
            sys::trib_weighted_average(comm, list, n, number, place, total, stream.as_raw())
        })
    }
}

impl Check {
    pub(crate) fn list(&self, tensors: &[&dyn DeviceBuffer]) -> Result<Vec<sys::trib_tensor>> {
        self.named_list("tensors", tensors)
    }

    pub(crate) fn named_list(
        &self,
        name: &str,
        tensors: &[&dyn DeviceBuffer],
    ) -> Result<Vec<sys::trib_tensor>> {
        let mut list = Vec::with_capacity(tensors.len());
        for (index, tensor) in tensors.iter().enumerate() {
            let view = self.buffer(name, *tensor).map_err(|error| in_list(&error, name, index))?;
            list.push(view.tensor());
        }
        Ok(list)
    }

    pub(crate) fn one_f32(&self, name: &str, buffer: &dyn DeviceBuffer) -> Result<*mut f32> {
        let view: DeviceSlice = self.buffer(name, buffer)?;
        if view.len() != 1 || view.dtype() != DType::F32 {
            return Err(Error::buffer(format!(
                "{self}: `{name}` is {} elements of {}; give one f32",
                view.len(),
                view.dtype()
            )));
        }
        Ok(view.ptr().cast())
    }
}

/// The error of one tensor, with its place in the list.
#[cold]
fn in_list(error: &Error, name: &str, index: usize) -> Error {
    Error::buffer(error.detail().replace(&format!("`{name}`"), &format!("`{name}[{index}]`")))
}
