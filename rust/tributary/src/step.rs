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
/// Any thread may call [`ready`](Step::ready), several at once, and write the gradients it got from
/// [`gradients`](Step::gradients). Dropping a step in which a gradient
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
    /// wrong later ends the communicator, and [`finish`](Step::finish) returns it. Waits only where
    /// the ranks compare buckets, as they do on nccl by default: then for the other ranks, and for
    /// what is queued on the streams of the bucket's gradients (see
    /// [`Options::assume_matching_calls`](crate::Options::assume_matching_calls)).
    pub fn ready(&self, i: usize, stream: &'a Stream) -> Result<()> {
        let reducer = &*self.reducer;
        reducer.check("reducer_ready").stream(stream)?;
        // SAFETY: alive under the lock. The stream lives until the step is finished; if the step is
        // forgotten, C is told of no other gradient, and so does not look at the stream again. The
        // gradient is untouched until the step has run: see `Gradient` and `StepGradient`, or the
        // promise of `foreign`.
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

    /// Lends each gradient that is not ready in this step, in their order, so that several threads can
    /// write theirs and say that they are [ready](StepGradient::ready). Waits until the step before has
    /// run.
    ///
    /// ```
    /// use std::thread;
    /// use tributary::{Reducer, ReducerOptions, Stream};
    /// # use tributary::{Communicator, Group, Options, Result};
    /// # fn rank(comm: &mut Communicator) -> Result<()> {
    /// let stream = Stream::new(comm.device())?;
    /// let mut streams = [Stream::new(comm.device())?, Stream::new(comm.device())?];
    /// let gradients = vec![vec![0.0_f32; 10], vec![0.0; 1000]];
    /// let mut reducer = Reducer::new(comm, gradients, &ReducerOptions::new())?;
    /// let mine = comm.rank() as f32 + 1.0;
    /// let mut step = reducer.step(comm)?;
    /// let lent = step.gradients()?;
    /// thread::scope(|threads| {
    ///     for (mut lent, stream) in lent.into_iter().zip(&mut streams) {
    ///         threads.spawn(move || {
    ///             lent.gradient().as_mut_slice::<f32>().unwrap().fill(mine); // the backward pass
    ///             lent.ready(stream).unwrap();
    ///         });
    ///     }
    /// });
    /// step.finish(&stream)?;
    /// reducer.wait()?;
    /// assert_eq!(reducer.into_gradients()?[1], [1.5; 1000]);
    /// # Ok(())
    /// # }
    /// # Group::with_options(2, &Options::new().backend("host"))?.run(rank)?;
    /// # Ok::<(), tributary::Error>(())
    /// ```
    ///
    /// No gradient is lent twice:
    ///
    /// ```compile_fail,E0499
    /// # use tributary::{Result, Step, Stream};
    /// # fn f<'a>(step: &mut Step<'a, Vec<f32>>, stream: &'a Stream) -> Result<()> {
    /// let lent = step.gradients()?;
    /// let again = step.gradient(0)?;
    /// for gradient in lent {
    ///     gradient.ready(stream)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn gradients(&mut self) -> Result<Vec<StepGradient<'_, 'a, B>>>
    where
        B: Lends,
    {
        self.reducer.wait_until_passed()?;
        let step = &*self;
        let ready = |i: &usize| step.reducer.ready[*i].load(Ordering::Relaxed);
        let lend = |i| {
            // SAFETY: the step is borrowed solely, and lends each gradient once. No step uses it: the
            // last one has passed, and in this one only `StepGradient::ready` can make it ready,
            // which ends the loan.
            let gradient = unsafe { step.reducer.lend_shared(i) };
            StepGradient { step, i, gradient }
        };
        Ok((0..step.len()).filter(|i| !ready(i)).map(lend).collect())
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
    /// ends the communicator, and later work on `stream` may not wait for the step: ask
    /// [`Reducer::wait`] or [`Reducer::is_done`].
    pub fn finish(mut self, stream: &Stream) -> Result<()> {
        self.reducer.handle.set_open(true); // an error is like a drop in the middle
        self.reducer.check("reducer_finish").stream(stream)?;
        let result = self.reducer.end_step(Some(stream));
        self.finished = result.is_ok() || !self.reducer.handle.is_open();
        result
    }
}

/// A gradient of a [`Step`] in which it is not ready, from [`Step::gradients`]. It may move to another
/// thread.
///
/// One that is dropped stays as it is, and not ready.
pub struct StepGradient<'s, 'a, B: 'static> {
    step: &'s Step<'a, B>,
    i: usize,
    /// Lent by reborrowing only: a program could swap two of them.
    gradient: Gradient<'s>,
}

impl<'a, B: 'static> StepGradient<'_, 'a, B> {
    /// Returns its number among the gradients of the reducer.
    pub fn index(&self) -> usize {
        self.i
    }

    /// Lends it to be written.
    pub fn gradient(&mut self) -> Gradient<'_> {
        self.gradient.lend()
    }

    /// Gives it to the step, as [`Step::ready`]. After an error [`Step::gradients`] lends it again.
    ///
    /// ```compile_fail,E0382
    /// # use tributary::{Result, Step, StepGradient, Stream};
    /// # fn f<'a>(mut lent: StepGradient<'_, 'a, Vec<f32>>, stream: &'a Stream) -> Result<()> {
    /// lent.ready(stream)?;
    /// lent.gradient().as_mut_slice::<f32>().unwrap().fill(1.0); // the step may be reading it
    /// # Ok(())
    /// # }
    /// ```
    pub fn ready(self, stream: &'a Stream) -> Result<()> {
        self.step.ready(self.i, stream)
    }
}

impl<B: 'static> fmt::Debug for StepGradient<'_, '_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StepGradient({}, {:?})", self.i, self.gradient)
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
