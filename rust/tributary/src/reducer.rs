//! The gradients of a training step, reduced while the backward pass makes the others.

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Duration;

use tributary_sys as sys;

use crate::abort::AbortHandle;
use crate::buffer::{self, DeviceSlice};
use crate::check::Check;
use crate::communicator::{Communicator, Shared};
use crate::deadline::Deadline;
use crate::device::Device;
use crate::error::{check, Error, Result};
use crate::event::Event;
use crate::gradient::Gradient;
use crate::reducer_handle::ReducerHandle;
use crate::stable::StableBox;
use crate::step::Step;
use crate::stream::Stream;
use crate::sync;

mod create;
mod last;
mod residuals;

pub use create::{Foreign, Lends, Views};
use last::LastStep;

/// The gradients of one rank, averaged over the ranks in buckets, while the backward pass makes the
/// others.
///
/// A [`step`](Reducer::step) lasts from its first [`ready`](Step::ready) to its
/// [`finish`](Step::finish). Gradients of one type share buckets, in the order in which they are
/// passed: pass them in the order in which the backward pass makes them, say it
/// ([`order`](crate::ReducerOptions::order)), or let the first step show it
/// ([`learn_order`](crate::ReducerOptions::learn_order)). A bucket is queued, on a stream of the
/// reducer, when all its gradients are ready and the buckets before it are queued; the last one by
/// the finish, on its stream. A gradient that is not ready at the finish counts as 0.
///
/// A step is all or nothing: if the communicator ends before it has run, every gradient is as it
/// was. Gradients that are [views](Reducer::views) are reduced where they are, and are undefined
/// then, unless they have [`twins`](crate::ReducerOptions::twins); so are those that are reduced
/// [in place](crate::ReducerOptions::in_place).
///
/// ```
/// use tributary::{Reducer, ReducerOptions, Stream};
/// # use tributary::{Communicator, Group, Options, Result};
/// # fn rank(comm: &mut Communicator) -> Result<()> {
/// let stream = Stream::new(comm.device())?;
/// let gradients = vec![vec![0.0_f32; 10], vec![0.0; 1000]]; // host memory: for the host backend
/// let mut reducer = Reducer::new(comm, gradients, &ReducerOptions::new())?;
/// for _ in 0..3 {
///     let mine = comm.rank() as f32 + 1.0;
///     let mut step = reducer.step(comm)?;
///     for i in 0..step.len() {
///         step.gradient(i)?.as_mut_slice::<f32>().unwrap().fill(mine); // the backward pass
///         step.ready(i, &stream)?;
///     }
///     step.finish(&stream)?; // later work on `stream` sees the averages
///     reducer.wait()?; // and so does the host now
///     assert_eq!(reducer.gradient(comm, 1)?.download::<f32>(&stream)?, [1.5; 1000]);
/// }
/// # Ok(())
/// # }
/// # Group::with_options(2, &Options::new().backend("host"))?.run(rank)?;
/// # Ok::<(), tributary::Error>(())
/// ```
///
/// A reducer ends with its communicator at the latest: later steps return
/// [`ErrorKind::Closed`](crate::ErrorKind::Closed). `B` is the type of gradients that the reducer
/// owns, or [`Views`] or [`Foreign`].
///
/// # Dropping
///
/// Dropping a reducer waits for queued steps up to
/// [`Options::close_timeout`](crate::Options::close_timeout). If they still run then, gradients that
/// it owns leak, and views are freed when the steps have run.
pub struct Reducer<B: 'static> {
    pub(crate) handle: Arc<ReducerHandle>,
    pub(crate) shared: Arc<Shared>,
    rank: usize,
    size: usize,
    device: Device,
    timeout: Duration,
    /// Where the gradients lie.
    slices: Vec<DeviceSlice>,
    /// Where the weight lies, of weighted averages.
    weight: Option<DeviceSlice>,
    /// They are views, which the end of the first step moves.
    moves: bool,
    /// Those that are ready in the current step.
    pub(crate) ready: Vec<AtomicBool>,
    /// Those that the reducer owns, and the weight behind them.
    gradients: ManuallyDrop<Vec<StableBox<B>>>,
    /// Recorded at the end of the last step, if that went well.
    end: Event,
    last: LastStep,
    stream: Stream,
}

// SAFETY: all handles may move together: C gets the reducer under the lock of its communicator, and
// the slices are memory that this value owns, or that the caller of `foreign` has promised.
unsafe impl<B: Send> Send for Reducer<B> {}

impl<B: 'static> Reducer<B> {
    /// Returns the number of gradients.
    pub fn len(&self) -> usize {
        self.slices.len()
    }

    /// Returns whether there are no gradients.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> Result<u64> {
        // SAFETY: alive under the lock.
        self.look(|raw| unsafe { sys::trib_reducer_buckets(raw) })
    }

    /// Returns the address of a `u32` in device memory, to be read on the stream of the
    /// [`finish`](Step::finish): 1 after a step that was applied on this rank, 0 after one that was
    /// not. A kernel can read it to skip an update. It lives as long as this reducer and its
    /// communicator.
    pub fn outcome(&self) -> Result<*const u32> {
        // SAFETY: alive under the lock.
        self.look(|raw| unsafe { sys::trib_reducer_outcome(raw) })
    }

    /// Begins a step. The communicator serves it alone until its end. Streams that it is told of
    /// live as long as it does.
    pub fn step<'a>(&'a mut self, comm: &'a mut Communicator) -> Result<Step<'a, B>> {
        comm.not_batching("Reducer::step")?;
        self.of(comm)?;
        self.not_in_a_step("Reducer::step")?;
        self.ready.iter_mut().for_each(|ready| *ready.get_mut() = false);
        Ok(Step::new(self))
    }

    /// Waits until the last step has run. `Ok` means that it was applied on this rank: the gradients
    /// hold its averages. Otherwise the error is why the communicator has ended, or what is wrong
    /// with the [weights](Reducer::weighted) or with [sparse](crate::ReducerOptions::sparse)
    /// gradients, and they are as they were; views without twins are undefined. If the communicator was dropped since, its status tells.
    pub fn wait(&mut self) -> Result<()> {
        self.not_in_a_step("Reducer::wait")?;
        self.wait_until_passed()?;
        if self.last == LastStep::None {
            return Ok(());
        }
        match self.read_outcome() {
            Some(Ok(0)) => self.abort().status().and_then(|()| Err(self.not_applied())),
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(error),
            None => self.abort().status(),
        }
    }

    /// Waits for the last step, applied or not, and lends gradient `i`. `comm` is the reducer's
    /// communicator, which stays as long as the loan lasts.
    pub fn gradient<'a>(&'a mut self, comm: &'a Communicator, i: usize) -> Result<Gradient<'a>>
    where
        B: Lends,
    {
        self.of(comm)?;
        self.not_in_a_step("Reducer::gradient")?;
        self.lend(i)
    }

    /// Lends gradient `i`, which is not ready in an open step. The communicator is borrowed as long.
    pub(crate) fn lend(&mut self, i: usize) -> Result<Gradient<'_>> {
        self.slice("Reducer::gradient", i)?;
        self.wait_until_passed()?;
        // SAFETY: the reducer is borrowed solely, and the last step has passed.
        Ok(unsafe { self.lend_shared(i) })
    }

    /// Lends gradient `i`, which there is. The communicator is borrowed as long.
    ///
    /// # Safety
    /// No step uses the gradient, and it is not lent otherwise, while the loan lasts.
    pub(crate) unsafe fn lend_shared(&self, i: usize) -> Gradient<'_> {
        // SAFETY: the reducer is borrowed, and its communicator as well, so both live; the caller's
        // promise.
        unsafe { Gradient::new(self.slices[i], self.device) }
    }

    /// Lends the weight: no gradient is ready in the open step. The communicator is borrowed as long.
    pub(crate) fn lend_weight(&mut self) -> Result<Gradient<'_>> {
        let weight = self.weight.ok_or_else(|| {
            Error::argument(format!("Step::weight: {self:?} has none; see Reducer::weighted"))
        })?;
        self.wait_until_passed()?;
        // SAFETY: as in `lend`. "Each bucket reads the weight when its gradients are complete", and
        // none is.
        Ok(unsafe { Gradient::new(weight, self.device) })
    }

    fn slice(&self, operation: &str, i: usize) -> Result<DeviceSlice> {
        self.slices.get(i).copied().ok_or_else(|| {
            Error::argument(format!("{operation}: `i` is {i}; {self:?} has {}", self.len()))
        })
    }

    /// Ends the current step in C, and marks its end on `stream`: by default the reducer's own.
    pub(crate) fn end_step(&mut self, stream: Option<&Stream>) -> Result<()> {
        let stream = stream.unwrap_or(&self.stream);
        // SAFETY: the streams of the step live, since they are borrowed as long as the step.
        let finished = self.call(|raw| unsafe { sys::trib_reducer_finish(raw, stream.as_raw()) });
        self.shared.mark_end(stream);
        let marked = self.end.record(stream);
        let looked = if mem::take(&mut self.moves) { self.look_at_views() } else { Ok(()) };
        self.last = match (&finished, &marked) {
            (Ok(()), Ok(())) => LastStep::Queued,
            _ => LastStep::Failed,
        };
        if finished.is_ok() || self.abort().is_aborted() {
            self.handle.set_open(false); // else C has refused the call itself
        }
        finished.and(marked).and(looked)
    }

    /// `None` if the reducer is gone. The last step has run.
    fn read_outcome(&self) -> Option<Result<u32>> {
        self.shared.with_states(|| {
            let mut outcome = 0_u32;
            let to = ptr::from_mut(&mut outcome).cast();
            // SAFETY: alive under the lock; one u32 on both sides, which no queued step uses.
            unsafe {
                let from = sys::trib_reducer_outcome(self.handle.as_ptr()).cast();
                buffer::copy(self.device, to, from, 4, &self.stream)?;
            }
            Ok(outcome)
        })
    }

    /// Destroys the C reducer. Returns whether nothing uses the gradients any more.
    fn release(&mut self) -> bool {
        let forgotten = self.handle.is_open();
        self.shared.destroy_reducer(&self.handle);
        let passed = || match self.last {
            LastStep::None => true,
            LastStep::Queued => sync::is_idle(&self.end),
            LastStep::Failed => false,
        };
        self.handle.is_idle() || (!forgotten && Deadline::after(self.timeout).poll(passed))
    }

    pub(crate) fn check(&self, operation: &'static str) -> Check {
        Check::of_rank(operation, self.rank, self.size, self.device)
    }

    pub(crate) fn abort(&self) -> &AbortHandle {
        self.handle.abort()
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    fn of(&self, comm: &Communicator) -> Result<()> {
        if Arc::ptr_eq(&self.shared, comm.shared()) {
            return Ok(());
        }
        Err(Error::new(
            sys::TRIB_ERR_INVALID_USAGE,
            format!("{self:?} belongs to another communicator than {comm:?}; pass its own"),
        ))
    }

    /// Why the last step, which has run, was not applied, though its communicator lives.
    #[cold]
    fn not_applied(&self) -> Error {
        // SAFETY: alive under the lock.
        match self.call(|raw| unsafe { sys::trib_reducer_status(raw) }) {
            Err(error) => error,
            Ok(()) => {
                let why = format!("{self:?}: the last step was not applied");
                Error::new(sys::TRIB_ERR_ABORTED, why)
            }
        }
    }

    /// Fails after a step was forgotten: its streams may be gone, so it cannot be finished.
    fn not_in_a_step(&self, operation: &str) -> Result<()> {
        if !self.handle.is_open() {
            return Ok(());
        }
        Err(Error::new(
            sys::TRIB_ERR_INVALID_USAGE,
            format!("{operation}: the last step of {self:?} was forgotten; make a new reducer"),
        ))
    }

    /// Calls C with the reducer.
    pub(crate) fn call(
        &self,
        function: impl FnOnce(*mut sys::trib_reducer) -> sys::trib_status,
    ) -> Result<()> {
        self.look(|raw| check(function(raw)))?
    }

    fn look<T>(&self, function: impl FnOnce(*mut sys::trib_reducer) -> T) -> Result<T> {
        self.shared.with_states(|| function(self.handle.as_ptr())).ok_or_else(gone)
    }
}

#[cold]
pub(crate) fn gone() -> Error {
    Error::new(sys::TRIB_ERR_CLOSED, "the communicator of this reducer has been destroyed")
}

impl<B: 'static> Drop for Reducer<B> {
    fn drop(&mut self) {
        if self.release() {
            // SAFETY: not used again. No step uses the gradients.
            unsafe { ManuallyDrop::drop(&mut self.gradients) };
        }
        // Otherwise the device may still use them: leak them instead of freeing them.
    }
}

impl<B: 'static> fmt::Debug for Reducer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reducer { rank, size, device, .. } = self;
        write!(f, "Reducer({} gradients, rank {rank} of {size} on {device})", self.len())
    }
}
