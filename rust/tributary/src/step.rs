//! A training step of a reducer.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use tributary_sys as sys;

use crate::error::{Error, Result};
use crate::gradient::Gradient;
use crate::reducer::{Lends, Reducer};
use crate::run::blame;
use crate::stream::Stream;

/// A step of a [`Reducer`], from [`Reducer::step`] to [`finish`](Step::finish).
///
/// Any thread may call [`ready`](Step::ready), several at once. Dropping a step in which a gradient
/// is ready ends the communicator, since the other ranks wait for the rest; the gradients stay as
/// they were.
///
/// A gradient that is ready belongs to the step: nothing else reads or writes it until the step has
/// run. Streams live as long as the step:
///
/// ```compile_fail,E0597
/// # use tributary::{Communicator, Reducer, Result, Stream};
/// # fn f(comm: &mut Communicator, reducer: &mut Reducer<Vec<f32>>, other: &Stream) -> Result<()> {
/// let step = reducer.step(comm)?;
/// {
///     let stream = Stream::new(other.device())?;
///     step.ready(0, &stream)?;
/// }
/// step.finish(other)
/// # }
/// ```
///
/// Nor does anything else use the communicator meanwhile:
///
/// ```compile_fail,E0499
/// # use tributary::{Communicator, Reducer, Result, Stream};
/// # fn f(comm: &mut Communicator, reducer: &mut Reducer<Vec<f32>>, stream: &Stream) -> Result<()> {
/// let step = reducer.step(comm)?;
/// step.ready(0, stream)?;
/// comm.barrier(stream)?;
/// step.finish(stream)
/// # }
/// ```
#[must_use = "a step that is dropped ends the communicator"]
pub struct Step<'a, B: 'static> {
    reducer: &'a mut Reducer<B>,
    finished: bool,
    /// Makes the lifetime invariant: no shorter one may stand for it, for streams are borrowed as
    /// long as the step lives.
    brand: PhantomData<fn(&'a ()) -> &'a ()>,
}

// SAFETY: `&self` reaches what its methods use: the C reducer, under the lock of the communicator,
// and atomics. It does not reach the gradients, the event and the stream of the reducer.
unsafe impl<B: 'static> Sync for Step<'_, B> {}

impl<'a, B: 'static> Step<'a, B> {
    /// The communicator of `reducer` is borrowed for `'a`.
    pub(crate) fn new(reducer: &'a mut Reducer<B>) -> Step<'a, B> {
        Step { reducer, finished: false, brand: PhantomData }
    }

    /// Returns the number of gradients.
    pub fn len(&self) -> usize {
        self.reducer.len()
    }

    /// Returns whether there are no gradients.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives gradient `i` to the step: it is complete once what is queued on `stream` by now has
    /// run. Once for each gradient. An error is of these arguments, and changes nothing; what goes
    /// wrong later ends the communicator, and [`finish`](Step::finish) returns it. Waits for no
    /// device, and for other ranks only on nccl, where they compare buckets (see
    /// [`Options::assume_matching_calls`](crate::Options::assume_matching_calls)).
    pub fn ready(&self, i: usize, stream: &'a Stream) -> Result<()> {
        let reducer = &*self.reducer;
        reducer.check("reducer_ready").stream(stream)?;
        // SAFETY: alive under the lock. The stream lives until the step is finished; if the step is
        // forgotten, C is told of no other gradient, and so does not look at the stream again. The
        // gradient is untouched until the step has run: see `Gradient`, or the promise of `foreign`.
        reducer.call(|raw| unsafe { sys::trib_reducer_ready(raw, i, stream.as_raw()) })?;
        reducer.handle.set_open(true);
        reducer.ready[i].store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Lends gradient `i`, which is not ready in this step, to be written. Waits until the step
    /// before has run.
    pub fn gradient(&mut self, i: usize) -> Result<Gradient<'_>>
    where
        B: Lends,
    {
        if self.reducer.ready.get_mut(i).is_some_and(|ready| *ready.get_mut()) {
            return Err(Error::new(
                sys::TRIB_ERR_INVALID_USAGE,
                format!(
                    "Step::gradient: gradient {i} of {:?} is ready in this step; use it before \
                     that, or when the step has run",
                    self.reducer
                ),
            ));
        }
        self.reducer.lend(i)
    }

    /// Lends this rank's weight, one `f32`, to be written while no gradient is ready in this step:
    /// see [`Reducer::weighted`]. Waits until the step before has run.
    pub fn weight(&mut self) -> Result<Gradient<'_>>
    where
        B: Lends,
    {
        if let Some(i) = self.reducer.ready.iter_mut().position(|ready| *ready.get_mut()) {
            return Err(Error::new(
                sys::TRIB_ERR_INVALID_USAGE,
                format!(
                    "Step::weight: gradient {i} of {:?} is ready, so the weight may be in use; \
                     write it at the beginning of a step",
                    self.reducer
                ),
            ));
        }
        self.reducer.lend_weight()
    }

    /// Ends the step: queues the buckets that are left, and makes later work on `stream` wait for
    /// the averages. Earlier work on `stream` has run before they are written. Does not wait; the
    /// next step may begin at once. [`Reducer::wait`] waits, and says whether the step was applied.
    ///
    /// Every rank finishes as many steps; one in which no gradient is ready gives zeros. An error
    /// ends the communicator.
    pub fn finish(mut self, stream: &Stream) -> Result<()> {
        self.reducer.handle.set_open(true); // an error is like a drop in the middle
        self.reducer.check("reducer_finish").stream(stream)?;
        let result = self.reducer.end_step(Some(stream));
        self.finished = result.is_ok() || !self.reducer.handle.is_open();
        result
    }
}

impl<B: 'static> Drop for Step<'_, B> {
    fn drop(&mut self) {
        if self.finished || !self.reducer.handle.is_open() {
            return;
        }
        if !self.reducer.abort().is_aborted() {
            blame();
            let why = format!("rank {} left a step of its reducer early", self.reducer.rank());
            self.reducer.abort().abort(&why);
        }
        // In vain: the communicator has ended. But so does the step.
        let _ = self.reducer.end_step(None);
    }
}

impl<B: 'static> fmt::Debug for Step<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ready = self.reducer.ready.iter().filter(|ready| ready.load(Ordering::Relaxed)).count();
        write!(f, "Step({ready} ready of {:?})", self.reducer)
    }
}
