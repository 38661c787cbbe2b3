//! The arguments of one call of a communicator.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use pyo3::prelude::*;
use tributary_sys as sys;

use crate::capture;
use crate::failure::{argument, buffer, Failure, Outcome};
use crate::owner::Owner;
use crate::queue::queue;
use crate::stream::{Address, OnStream};
use crate::view::{dtype_name, Asker, View};
use crate::work::{Applied, Kept, Last, Work};

pub type Tensor<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// A call that is being made: what it was given, checked, and what it must keep.
pub struct Call<'a> {
    owner: &'a Arc<Owner>,
    operation: &'static str,
    who: String,
    stream: OnStream,
    kept: Kept,
}

impl<'a> Call<'a> {
    pub fn new(
        py: Python<'_>,
        owner: &'a Arc<Owner>,
        operation: &'static str,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Call<'a>> {
        let who = owner.who(operation);
        let stream = match stream.filter(|stream| !stream.is_none()) {
            None => Call::of_batch(py, owner),
            given => {
                given.map(|given| OnStream::new(py, owner.place, Some(given), &who)).transpose()?
            }
        };
        let stream = stream.map_or_else(|| OnStream::new(py, owner.place, None, &who), Ok)?;
        Ok(Call { owner, operation, who, stream, kept: Kept::new() })
    }

    /// The stream of the open batch, if there is one.
    fn of_batch(py: Python<'_>, owner: &Owner) -> Option<OnStream> {
        let batch = owner.batch.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        batch.as_ref().map(|batch| batch.stream.clone_ref(py))
    }

    pub fn who(&self) -> &str {
        &self.who
    }

    fn asker(&self) -> Asker<'_> {
        Asker { who: &self.who, place: self.owner.place, stream: &self.stream }
    }

    /// A tensor that is read.
    pub fn read(&mut self, name: &str, tensor: &Bound<'_, PyAny>) -> PyResult<View> {
        let view = self.asker().read(name, tensor)?;
        Ok(self.keep(view))
    }

    /// A tensor that is written.
    pub fn write(&mut self, name: &str, tensor: &Bound<'_, PyAny>) -> PyResult<View> {
        let view = self.asker().write(name, tensor)?;
        Ok(self.keep(view))
    }

    /// What the call must not outlive, beside its tensors.
    pub fn keep_objects(&mut self, objects: Kept) {
        self.kept.extend(objects);
    }

    /// For an object that keeps the tensors itself.
    pub fn into_kept(self) -> Kept {
        self.kept
    }

    fn keep(&mut self, mut view: View) -> View {
        self.kept.append(&mut view.keep);
        view
    }

    /// `tensor`, and `out`, which is `tensor` itself if it is not given: both of one length and
    /// type.
    pub fn pair(
        &mut self,
        tensor: &Bound<'_, PyAny>,
        out: Tensor<'_, '_>,
    ) -> PyResult<(View, View)> {
        let Some(out) = out.filter(|out| !out.is_none()) else {
            let view = self.write("tensor", tensor)?;
            return Ok((View { keep: Kept::new(), ..view }, view));
        };
        let send = self.read("tensor", tensor)?;
        let recv = self.write("out", out)?;
        self.same("out", &recv, send.count, send.dtype)?;
        Ok((send, recv))
    }

    /// Fails unless `view` has `count` elements of `dtype`.
    pub fn same(
        &self,
        name: &str,
        view: &View,
        count: usize,
        dtype: sys::trib_dtype,
    ) -> Outcome<()> {
        if (view.count, view.dtype) == (count, dtype) {
            return Ok(());
        }
        let (found, expected) = (dtype_name(view.dtype), dtype_name(dtype));
        Err(buffer(format!(
            "{}: `{name}` has {} elements of {found}; expected {count} of {expected}",
            self.who, view.count
        )))
    }

    /// `count` divided by the number of ranks.
    pub fn per_rank(&self, name: &str, count: usize) -> Outcome<usize> {
        let size = self.owner.size as usize;
        if count % size == 0 {
            return Ok(count / size);
        }
        Err(buffer(format!(
            "{}: `{name}` has {count} elements; expected a multiple of {size}, a block for each \
             rank",
            self.who
        )))
    }

    /// Block `rank` of `all`, which has `count` elements for each rank.
    pub fn own_block(&self, all: &View, count: usize) -> Address {
        // SAFETY: "Bytes of one element"; no object.
        let bytes = count * unsafe { sys::trib_dtype_size(all.dtype) };
        Address(all.data.get().cast::<u8>().wrapping_add(self.owner.rank as usize * bytes).cast())
    }

    pub fn is_root(&self, root: i32) -> bool {
        root == self.owner.rank
    }

    pub fn needed<'b, 'py>(
        &self,
        name: &str,
        tensor: Tensor<'b, 'py>,
        why: &str,
    ) -> Outcome<&'b Bound<'py, PyAny>> {
        tensor.filter(|tensor| !tensor.is_none()).ok_or_else(|| {
            argument(format!("{}: `{name}` is None; expected a tensor {why}", self.who))
        })
    }

    pub fn queue(
        self,
        py: Python<'_>,
        function: impl FnOnce(*mut sys::trib_comm, sys::trib_stream) -> sys::trib_status + Send,
    ) -> PyResult<Work> {
        self.queue_applied(py, |comm, stream| {
            crate::failure::check(function(comm, stream)).map(|()| None)
        })
    }

    pub fn queue_applied(
        self,
        py: Python<'_>,
        function: impl FnOnce(*mut sys::trib_comm, sys::trib_stream) -> Outcome<Option<Applied>> + Send,
    ) -> PyResult<Work> {
        queue(py, self.owner, self.operation, self.stream, self.kept, function)
    }
}

impl Call<'_> {
    /// `queue_applied`, for an object that tells of its newest call alone: a work of the call before
    /// that is still there hears its outcome first.
    pub fn queue_last(
        self,
        py: Python<'_>,
        last: &Last,
        function: impl FnOnce(*mut sys::trib_comm, sys::trib_stream) -> Outcome<Option<Applied>> + Send,
    ) -> PyResult<Work> {
        if !capture::captures(self.owner.place, self.stream.raw) {
            last.settle(py)?;
        }
        let work = self.queue_applied(py, function)?;
        last.set(&work.queued);
        Ok(work)
    }
}

/// Tensors of a list, in the form of C. They may go to another thread.
pub struct List(Vec<sys::trib_tensor>);

// SAFETY: addresses, which Rust does not follow.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl List {
    pub fn get(&self) -> (*const sys::trib_tensor, usize) {
        (self.0.as_ptr(), self.0.len())
    }

    pub fn new(views: &[View]) -> List {
        let tensor = |view: &View| sys::trib_tensor {
            data: view.data.get(),
            count: view.count,
            dtype: view.dtype,
            reserved: 0,
        };
        List(views.iter().map(tensor).collect())
    }
}

/// A factor or weight: a number, or one float in device memory.
pub enum Scalar {
    Number(f64),
    Device(Address),
}

impl Call<'_> {
    /// All tensors of a list, which are written.
    pub fn list(&mut self, tensors: &Bound<'_, PyAny>) -> PyResult<List> {
        let views: PyResult<Vec<View>> = tensors
            .try_iter()?
            .enumerate()
            .map(|(i, tensor)| self.write(&format!("tensors[{i}]"), &tensor?))
            .collect();
        Ok(List::new(&views?))
    }

    pub fn scalar(&mut self, name: &str, given: &Bound<'_, PyAny>) -> PyResult<Scalar> {
        // A tensor may well have __float__, which would wait for its device.
        let tensor = given.hasattr("__dlpack__")? || given.hasattr("__cuda_array_interface__")?;
        if !tensor {
            if let Ok(number) = given.extract::<f64>() {
                return Ok(Scalar::Number(number));
            }
        }
        let view = self.read(name, given)?;
        self.same(name, &view, 1, sys::TRIB_F32)?;
        Ok(Scalar::Device(view.data))
    }
}

/// Options with a factor; `None` stands for none.
pub struct Factor(Option<Scalar>);

impl Factor {
    pub fn new(call: &mut Call<'_>, factor: Tensor<'_, '_>) -> PyResult<Factor> {
        let given = factor.filter(|factor| !factor.is_none());
        Ok(Factor(given.map(|factor| call.scalar("factor", factor)).transpose()?))
    }

    pub fn options(&self) -> sys::trib_call_options {
        let mut options = sys::TRIB_CALL_OPTIONS_INIT;
        match self.0 {
            None => (),
            Some(Scalar::Number(factor)) => {
                options.flags = sys::TRIB_CALL_FACTOR;
                options.factor = factor;
            }
            Some(Scalar::Device(factor)) => options.device_factor = factor.get().cast(),
        }
        options
    }
}

/// An address of C, or NULL.
pub fn or_null(view: Option<&View>) -> Address {
    view.map_or(Address(ptr::null_mut::<c_void>()), |view| view.data)
}

/// A sequence of sizes, one for each rank.
pub fn sizes(who: &str, name: &str, given: &[usize], size: i32) -> Outcome<()> {
    if given.len() == size as usize {
        return Ok(());
    }
    Err(Failure::new(
        sys::TRIB_ERR_INVALID_ARGUMENT,
        format!("{who}: `{name}` has {} entries; expected {size}, one for each rank", given.len()),
    ))
}
