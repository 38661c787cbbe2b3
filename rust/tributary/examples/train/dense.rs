//! The dense exchange of gradients: averaged in buckets, while the backward pass makes the others.

use std::time::Instant;

use tributary::{Communicator, DType, Reducer, ReducerOptions, Stream, Views};

use super::exchange::Moved;
use super::overlap::Times;
use super::Failure;

/// Small ones, for a small network: else all gradients would share the first bucket, which is queued
/// when the last of them is there.
const BUCKET_BYTES: u64 = 64 << 10;
const FIRST_BYTES: u64 = 8 << 10;

/// One step of so many communicates only when all gradients are there. Of what that takes the other
/// steps hide a part.
const APART: usize = 10;

/// Tensors of one rank that lie in the buckets of a reducer. As for an
/// [`Exchange`](super::exchange::Exchange), they are copied to the device and back.
pub struct Dense<'a> {
    communicator: &'a mut Communicator,
    stream: Stream,
    /// The last tensor first, as the backward pass makes them; but the loss comes last.
    reducer: Reducer<Views>,
    /// The bytes that were handed to the communicator before.
    before: u64,
    steps: usize,
    times: Times,
}

impl Dense<'_> {
    /// For gradients of the lengths of `like`, whose last is that of the loss.
    pub fn new<'a>(
        communicator: &'a mut Communicator,
        like: &[Vec<f32>],
    ) -> Result<Dense<'a>, Failure> {
        let stream = Stream::new(communicator.device())?;
        let places = 0..like.len();
        let shapes = places.map(|i| (like[place(i, like.len())].len(), DType::F32));
        let shapes: Vec<_> = shapes.collect();
        let options = ReducerOptions::new().bucket_bytes(BUCKET_BYTES).first_bytes(FIRST_BYTES);
        let reducer = Reducer::views(communicator, &shapes, &options)?;
        let before = communicator.counters()?.bytes;
        let times = Times::default();
        Ok(Dense { communicator, stream, reducer, before, steps: 0, times })
    }

    /// Every rank's `tensors` become the average over the ranks. `make` makes them, and tells of
    /// each when it is complete.
    pub fn average(
        &mut self,
        tensors: &mut [Vec<f32>],
        make: impl FnOnce(
            &mut [Vec<f32>],
            &mut dyn FnMut(usize, &[f32]) -> Result<(), Failure>,
        ) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (stream, n) = (&self.stream, tensors.len());
        let start = Instant::now();
        let mut last = start;
        self.steps += 1;
        let apart = self.steps % APART == 0;
        let mut step = self.reducer.step(self.communicator)?;
        make(tensors, &mut |i, tensor| {
            step.gradient(place(i, n))?.upload(tensor, stream)?;
            last = Instant::now();
            if !apart {
                step.ready(place(i, n), stream)?;
            }
            Ok(())
        })?;
        if apart {
            (0..n).try_for_each(|gradient| step.ready(gradient, stream))?;
        }
        step.finish(stream)?;
        self.reducer.wait()?;
        let left = last.elapsed();
        for (i, tensor) in tensors.iter_mut().enumerate() {
            let gradient = self.reducer.gradient(self.communicator, place(i, n))?;
            gradient.download_into(tensor, stream)?;
        }
        if apart {
            self.times.alone.push(left);
        } else {
            self.times.exposed.push(left);
            self.times.steps.push(start.elapsed());
        }
        Ok(())
    }

    /// What the steps took so far.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// The bytes that this rank has exchanged here so far.
    pub fn moved(&mut self) -> Result<Moved, Failure> {
        let handed_over = self.communicator.counters()?.bytes - self.before;
        Ok(Moved::allreduce(handed_over as f64, self.communicator.size()))
    }
}

/// The place of tensor `i` of `n` in the reducer, and the other way round.
fn place(i: usize, n: usize) -> usize {
    if i + 1 == n {
        i
    } else {
        n - 2 - i
    }
}
