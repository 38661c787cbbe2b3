//! How gradients get into a reducer, by who owns them, and out of it again.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

use tributary_sys as sys;

use super::last::LastStep;
use super::{gone, Reducer};
use crate::buffer::{DeviceBuffer, DeviceSlice, UniqueBuffer};
use crate::check::Check;
use crate::communicator::Communicator;
use crate::dtype::DType;
use crate::error::{check, Error, Result};
use crate::event::Event;
use crate::reducer_options::ReducerOptions;
use crate::stable::StableBox;
use crate::stream::Stream;
use crate::work::Failed;

/// The type of [`Reducer`]s whose gradients lie in their buckets.
#[derive(Debug)]
pub enum Views {}

/// The type of [`Reducer`]s of gradients that somebody else owns.
#[derive(Debug)]
pub enum Foreign {}

/// Types of [`Reducer`]s that lend their gradients: all but [`Foreign`].
pub trait Lends: sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}
impl<B: UniqueBuffer + 'static> sealed::Sealed for B {}
impl<B: UniqueBuffer + 'static> Lends for B {}
impl sealed::Sealed for Views {}
impl Lends for Views {}

impl<B: UniqueBuffer + 'static> Reducer<B> {
    /// Creates a reducer that owns `gradients` (of f16, bf16, f32 or f64, of any length) until
    /// [`into_gradients`](Reducer::into_gradients). All ranks make this call, which waits for them.
    /// If lengths, types or options differ, all return
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch); if one rank's are invalid, it gets that
    /// error, and the others a mismatch. An error returns the gradients.
    pub fn new(
        comm: &mut Communicator,
        gradients: Vec<B>,
        options: &ReducerOptions,
    ) -> Result<Reducer<B>, Failed<Vec<B>>> {
        Reducer::own(comm, gradients, false, options)
    }

    /// Creates a reducer of weighted averages, `sum(w_i * x_i) / sum(w_i)` over the ranks, which also
    /// owns this rank's `weight`: one `f32`. All ranks weigh, or none.
    /// [`Step::weight`](crate::Step::weight) lends it at the beginning of a step; until then it
    /// stays as it is.
    ///
    /// A rank of weight 0 contributes nothing, not even a NaN. If the weights sum to 0, or one is
    /// negative or not finite, the step is not applied on any rank:
    /// [`wait`](Reducer::wait) returns [`ErrorKind::NonFinite`](crate::ErrorKind::NonFinite), and
    /// the communicator goes on. Not for [`sum`](ReducerOptions::sum). Otherwise like
    /// [`new`](Reducer::new); an error returns the weight behind the gradients.
    pub fn weighted(
        comm: &mut Communicator,
        mut gradients: Vec<B>,
        weight: B,
        options: &ReducerOptions,
    ) -> Result<Reducer<B>, Failed<Vec<B>>> {
        gradients.push(weight);
        Reducer::own(comm, gradients, true, options)
    }

    /// `weighted`: the last of `buffers` is the weight.
    fn own(
        comm: &mut Communicator,
        buffers: Vec<B>,
        weighted: bool,
        options: &ReducerOptions,
    ) -> Result<Reducer<B>, Failed<Vec<B>>> {
        let mut buffers: Vec<_> = buffers.into_iter().map(StableBox::new).collect();
        let slices = buffers.iter_mut().map(|buffer| DeviceSlice::of_mut(buffer.lend()));
        let mut slices: Vec<_> = slices.collect();
        let weight = if weighted { slices.pop() } else { None };
        match Reducer::create(comm, slices, weight, 0, options) {
            Ok(mut reducer) => {
                *reducer.gradients = buffers;
                Ok(reducer)
            }
            Err(error) => Err(Failed { error, buffers: Some(take_all(buffers)) }),
        }
    }

    /// Waits for the last step, ends the reducer and returns the gradients, and the weight behind
    /// them. Of an error, `buffers` is `None` if the device may still use them.
    pub fn into_gradients(mut self) -> Result<Vec<B>, Failed<Vec<B>>> {
        let waited = self.wait_until_passed();
        if self.release() {
            let gradients = take_all(std::mem::take(&mut *self.gradients));
            return match waited {
                Ok(()) => Ok(gradients),
                Err(error) => Err(Failed { error, buffers: Some(gradients) }),
            };
        }
        let error = waited.err().unwrap_or_else(|| {
            let why = format!("{self:?}: a step is still queued");
            Error::new(sys::TRIB_ERR_TIMEOUT, why)
        });
        let error = error.with("the gradients are kept, for the device may still use them");
        Err(Failed { error, buffers: None })
    }
}

fn take_all<B>(gradients: Vec<StableBox<B>>) -> Vec<B> {
    gradients.into_iter().map(StableBox::take).collect()
}

impl Reducer<Views> {
    /// Creates a reducer whose gradients lie in its buckets, so that nothing is copied: device
    /// memory that is 0 at first, for each pair of a length and a type. Otherwise like
    /// [`new`](Reducer::new).
    pub fn views(
        comm: &mut Communicator,
        shapes: &[(usize, DType)],
        options: &ReducerOptions,
    ) -> Result<Reducer<Views>> {
        let device = Some(comm.device());
        let nowhere = |&(len, dtype): &(usize, DType)| {
            // SAFETY: C ignores the pointer, and the loop below replaces it.
            unsafe { DeviceSlice::new(ptr::null_mut(), len, dtype, device) }
        };
        let slices = shapes.iter().map(nowhere).collect();
        let mut reducer = Reducer::create(comm, slices, None, sys::TRIB_REDUCER_VIEWS, options)?;
        reducer.look_at_views()?;
        reducer.moves = options.learns();
        Ok(reducer)
    }

    /// Returns where gradient `i` lies, for the kernels of a framework: device memory that lives as
    /// long as this reducer and its communicator, aligned to 16 bytes. NULL if it has no elements.
    /// [`learn_order`](ReducerOptions::learn_order) moves it once, at the end of the first step.
    pub fn view(&self, i: usize) -> Result<*mut c_void> {
        Ok(self.slice("Reducer::view", i)?.ptr())
    }
}

impl Reducer<Foreign> {
    /// Creates a reducer of gradients that somebody else owns, such as a framework. Otherwise like
    /// [`new`](Reducer::new).
    ///
    /// # Safety
    /// The memory of each gradient stays where it is, alive, until the reducer is gone (or, if it is
    /// leaked, until the last step has run), and may be written. From its
    /// [`ready`](crate::Step::ready) on, or from the [`finish`](crate::Step::finish) on if it is
    /// not ready, it is untouched until the stream of the finish has passed that; if the finish
    /// fails, which may leave its stream without a wait for the step, or the step is dropped
    /// instead, until [`is_done`](Reducer::is_done) has returned true; if it is forgotten, until
    /// the reducer is gone. If dropping the reducer or its communicator takes as long as
    /// [`Options::close_timeout`](crate::Options::close_timeout), steps may still run.
    pub unsafe fn foreign(
        comm: &mut Communicator,
        gradients: &[&dyn DeviceBuffer],
        options: &ReducerOptions,
    ) -> Result<Reducer<Foreign>> {
        let slices = gradients.iter().map(|gradient| DeviceSlice::of(*gradient)).collect();
        Reducer::create(comm, slices, None, 0, options)
    }

    /// The same with weighted averages: see [`weighted`](Reducer::weighted).
    ///
    /// # Safety
    /// As for [`foreign`](Reducer::foreign). `weight` lives as long as the gradients; from a step's
    /// first [`ready`](crate::Step::ready) on nothing writes it, until the gradients may be used.
    pub unsafe fn foreign_weighted(
        comm: &mut Communicator,
        gradients: &[&dyn DeviceBuffer],
        weight: &dyn DeviceBuffer,
        options: &ReducerOptions,
    ) -> Result<Reducer<Foreign>> {
        let slices = gradients.iter().map(|gradient| DeviceSlice::of(*gradient)).collect();
        Reducer::create(comm, slices, Some(DeviceSlice::of(weight)), 0, options)
    }
}

impl<B: 'static> Reducer<B> {
    /// What this rank alone finds wrong, or lacks, becomes options that C refuses, so that the other
    /// ranks fail instead of waiting.
    fn create(
        comm: &mut Communicator,
        slices: Vec<DeviceSlice>,
        weight: Option<DeviceSlice>,
        flags: u32,
        options: &ReducerOptions,
    ) -> Result<Reducer<B>> {
        comm.not_batching("Reducer::new")?;
        let sparse = options.raw_sparse();
        let mut raw = options.raw(flags, sparse.as_ref());
        raw.device_weight = weight.map_or(ptr::null(), |weight| weight.ptr().cast_const().cast());
        let prepared = prepare(comm, &slices, weight.as_ref(), options);
        let tensors = prepared.as_ref().map_or(&[][..], |prepared| &prepared.tensors);
        if prepared.is_err() {
            raw.size = 0;
        }
        let (shared, abort) = (Arc::clone(comm.shared()), comm.abort_handle());
        let handle = shared.adopt_reducer(abort, |comm| {
            let mut out = ptr::null_mut();
            let (list, n) = (tensors.as_ptr(), tensors.len());
            // SAFETY: all pointers live through the call, under the lock: "The call reads
            // `gradients` before it returns"; `*out` is ours to destroy, and is not NULL after a
            // success. The memory of the gradients and of the weight stays: it is owned by the
            // reducer, C's, or promised to stay.
            unsafe {
                check(sys::trib_reducer_create(&mut out, comm, list, n, &raw))?;
                Ok(NonNull::new_unchecked(out))
            }
        });
        let handle = handle.unwrap_or_else(|| Err(gone()));
        let handle = match sparse {
            Some(sparse) => sparse.explain(handle),
            None => handle,
        };
        let Prepared { end, stream, .. } = prepared?;
        Ok(Reducer {
            handle: handle?,
            shared,
            rank: comm.rank(),
            size: comm.size(),
            device: comm.device(),
            timeout: comm.timeout(),
            ready: slices.iter().map(|_| AtomicBool::new(false)).collect(),
            slices,
            weight,
            moves: false,
            gradients: ManuallyDrop::new(Vec::new()),
            end,
            last: LastStep::None,
            stream,
        })
    }
}

impl<B: 'static> Reducer<B> {
    /// Asks where the views lie.
    pub(super) fn look_at_views(&mut self) -> Result<()> {
        for i in 0..self.slices.len() {
            let mut data = ptr::null_mut();
            let (len, dtype) = (self.slices[i].len(), self.slices[i].dtype());
            // SAFETY: alive under the lock.
            self.call(|raw| unsafe { sys::trib_reducer_view(&mut data, raw, i) })?;
            // SAFETY: "Valid until the reducer is destroyed, or with TRIB_REDUCER_LEARN_ORDER until
            // the first trib_reducer_finish", after which end_step asks again: lent while the
            // communicator, and so the reducer, lives.
            self.slices[i] = unsafe { DeviceSlice::new(data, len, dtype, Some(self.device)) };
        }
        Ok(())
    }
}

/// What a rank needs beside the C reducer.
struct Prepared {
    tensors: Vec<sys::trib_tensor>,
    end: Event,
    stream: Stream,
}

fn prepare(
    comm: &Communicator,
    slices: &[DeviceSlice],
    weight: Option<&DeviceSlice>,
    options: &ReducerOptions,
) -> Result<Prepared> {
    options.check(slices.len())?;
    let check = Check::of_rank("reducer_create", comm.rank(), comm.size(), comm.device());
    let gradients: Vec<_> = slices.iter().map(|slice| slice as &dyn DeviceBuffer).collect();
    let tensors = check.named_list("gradients", &gradients)?;
    if let Some(weight) = weight {
        check.one_f32("weight", weight)?;
    }
    Ok(Prepared { tensors, end: Event::new(comm.device())?, stream: Stream::new(comm.device())? })
}
