//! The sparse exchange of gradients: each call sends the largest entries of what a rank's steps have
//! added up to, and keeps the rest. The steps are those of momentum SGD, as Deep Gradient Compression
//! (arXiv 1712.01887) makes them: the momentum is in the exchange, before anything waits, and not in
//! the network.

use tributary::{Communicator, DType, DeviceVec, InPlace, ReduceOp, SparseAllReduce, Stream};

use super::exchange::Moved;
use super::{Failure, Options};

/// Velocities are rounded to multiples of this. Then sums of them are exact, in any order, and the
/// books can be compared to the last bit; the training does not notice.
const GRAIN: f32 = 1.0 / (1 << 20) as f32;

/// Tensors of one rank, as one long one, and their sparse allreduce.
///
/// It works in place: the accumulator on the device holds the velocity, to which each step's
/// gradients are added; without momentum the residual.
pub struct Sparse<'a> {
    communicator: &'a mut Communicator,
    stream: Stream,
    state: SparseAllReduce,
    density: f64,
    clip_norm: f64,
    accumulator: DeviceVec<f32>,
    /// With momentum: a copy of the residual, which then is the state's.
    waiting: Option<DeviceVec<f32>>,
    sum: DeviceVec<f32>,
    loss: DeviceVec<f32>,
    /// To find whether anything is lost on the way: what all ranks have given in a step.
    given: DeviceVec<f64>,
    leak: f64,
    /// What the last step has left in the accumulator; that and the next gradients.
    velocity: Vec<f32>,
    made: Vec<f32>,
    /// What a rank had to send in a step, what it has not sent; what became of the step.
    acc: Vec<f32>,
    residual: Vec<f32>,
    result: Vec<f32>,
}

/// The totals of the sparse exchanges of one training.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// The algorithm that ran.
    pub algorithm: String,
    /// Words of 4 bytes that this rank received in a step: indices and values of entries alone,
    /// without what else is needed to exchange them.
    pub words: f64,
    /// The most, over steps and entries, by which the ranks' gradients differ from what they
    /// became: the result and the residuals.
    pub leak: f64,
}

/// What of an exchange outlives its communicator.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// What is in the accumulator; empty is all 0.
    velocity: Vec<f32>,
    /// An export of the state, with what this rank has not sent yet; empty is none.
    state: Vec<u8>,
    /// As in [`Traffic`].
    leak: f64,
}

impl Kept {
    /// Forgets what this rank has not sent yet.
    pub fn forget(&mut self) {
        self.velocity.clear();
        self.state.clear();
    }
}

impl Sparse<'_> {
    /// For gradients of the lengths of `like`.
    pub fn new<'a>(
        communicator: &'a mut Communicator,
        like: &[Vec<f32>],
        options: &Options,
        kept: &Kept,
    ) -> Result<Sparse<'a>, Failure> {
        let device = communicator.device();
        let len = like.iter().map(Vec::len).sum();
        let state = options.sparse().in_place(true);
        let state = SparseAllReduce::new(communicator, len, DType::F32, &state)?;
        let waiting = (options.momentum > 0.0).then(|| DeviceVec::zeros(device, len));
        let mut sparse = Sparse {
            communicator,
            stream: Stream::new(device)?,
            state,
            density: options.density(),
            clip_norm: options.clip_norm,
            accumulator: DeviceVec::zeros(device, len)?,
            waiting: waiting.transpose()?,
            sum: DeviceVec::zeros(device, len)?,
            loss: DeviceVec::zeros(device, 1)?,
            given: DeviceVec::zeros(device, len)?,
            leak: kept.leak,
            velocity: vec![0.0; len],
            made: vec![0.0; len],
            acc: vec![0.0; len],
            residual: vec![0.0; len],
            result: vec![0.0; len],
        };
        sparse.restore(kept)?;
        Ok(sparse)
    }

    /// Goes on where another exchange ended.
    fn restore(&mut self, kept: &Kept) -> Result<(), Failure> {
        if !kept.velocity.is_empty() {
            self.velocity.copy_from_slice(&kept.velocity);
            self.accumulator.upload(&self.velocity, &self.stream)?;
        }
        if !kept.state.is_empty() {
            self.state.import_added(&kept.state, &self.stream)?;
        }
        self.communicator.scope(&self.stream, |scope| match &mut self.waiting {
            Some(waiting) => scope.sparse_residual(&mut self.state, waiting),
            None => Ok(()),
        })?;
        self.look()
    }

    /// The fraction of the entries that a rank sends from the next step on. All ranks make this
    /// call.
    pub fn set_density(&mut self, density: f64) -> Result<(), Failure> {
        if density != self.density {
            // A lost rank is noticed here, as soon as in a step: setting it has a longer deadline.
            self.communicator.scope(&self.stream, |scope| scope.barrier())?;
            self.state.set_density(density)?;
            self.density = density;
        }
        Ok(())
    }

    /// Every rank's `gradients` become the average of what was chosen of them, and of what was left
    /// of earlier ones; `loss` becomes the average over the ranks.
    pub fn average(&mut self, gradients: &mut [Vec<f32>], loss: &mut f32) -> Result<(), Failure> {
        if self.clip_norm > 0.0 {
            // Of independent gradients the average has a norm smaller by the root of the ranks.
            clip(gradients, self.clip_norm * (self.communicator.size() as f64).sqrt());
        }
        self.add(gradients);
        self.accumulator.upload(&self.made, &self.stream)?;
        self.loss.upload(&[*loss], &self.stream)?;
        self.communicator.scope(&self.stream, |scope| {
            let (accumulator, sum) = (&mut self.accumulator, &mut self.sum);
            scope.sparse_allreduce(&mut self.state, accumulator, sum)?;
            if let Some(waiting) = &mut self.waiting {
                scope.sparse_residual(&mut self.state, waiting)?;
            }
            scope.allreduce(InPlace, &mut self.loss, ReduceOp::Avg)
        })?;
        self.state.status()?;
        self.look()?;
        self.sum.download_into(&mut self.result, &self.stream)?;
        *loss = self.loss.download(&self.stream)?[0];
        let ranks = self.communicator.size() as f32;
        for (gradient, sum) in gradients.iter_mut().flatten().zip(&self.result) {
            *gradient = sum / ranks;
        }
        Ok(())
    }

    /// The new velocity, and what is to be sent.
    fn add(&mut self, gradients: &[Vec<f32>]) {
        let gradients = gradients.iter().flatten();
        for ((made, v), g) in self.made.iter_mut().zip(&self.velocity).zip(gradients) {
            *made = ((v + g) / GRAIN).round() * GRAIN;
        }
        self.acc.copy_from_slice(&self.made);
        if self.waiting.is_some() {
            self.acc.iter_mut().zip(&self.residual).for_each(|(a, r)| *a += r);
        }
    }

    /// Takes a look at what a step has left on the device.
    fn look(&mut self) -> Result<(), Failure> {
        self.accumulator.download_into(&mut self.velocity, &self.stream)?;
        let residual = self.waiting.as_ref().unwrap_or(&self.accumulator);
        Ok(residual.download_into(&mut self.residual, &self.stream)?)
    }

    /// The books of the last step: what all ranks gave, what they had less what they kept, is the
    /// sum. No part of the training, and more to exchange than a step: it is neither timed nor
    /// counted.
    pub fn balance(&mut self) -> Result<(), Failure> {
        let given = self.acc.iter().zip(&self.residual);
        let given: Vec<f64> = given.map(|(a, r)| f64::from(*a) - f64::from(*r)).collect();
        self.given.upload(&given, &self.stream)?;
        self.communicator.scope(&self.stream, |scope| {
            scope.allreduce(InPlace, &mut self.given, ReduceOp::Sum)
        })?;
        let given = self.given.download(&self.stream)?;
        let differences =
            given.iter().zip(&self.result).map(|(g, &sum)| (g - f64::from(sum)).abs());
        self.leak = largest(differences.chain([self.leak]));
        Ok(())
    }

    /// For the next exchange, with another communicator: as of the last step that succeeded. (If it
    /// was applied and failed after that, what it sent is not in the state any more.)
    pub fn into_kept(mut self) -> Result<Kept, Failure> {
        let state = self.state.export(&self.stream)?;
        Ok(Kept { velocity: self.velocity, state, leak: self.leak })
    }

    /// The exchanges of this rank so far.
    pub fn traffic(&mut self) -> Result<Traffic, Failure> {
        let statistics = self.state.statistics()?;
        Ok(Traffic {
            words: statistics.words_received as f64 / statistics.calls_applied.max(1) as f64,
            algorithm: statistics.algorithm,
            leak: self.leak,
        })
    }

    /// The bytes that this rank has exchanged so far for its steps, the loss included.
    pub fn moved(&mut self) -> Result<Moved, Failure> {
        let state = self.state.statistics()?;
        let losses = size_of::<f32>() as f64 * state.calls_applied as f64;
        Ok(Moved { sent: state.bytes_sent as f64, received: state.bytes_received as f64 }
            + Moved::allreduce(losses, self.communicator.size()))
    }
}

/// Brings the norm of one rank's gradients down to `limit` (section 3.2 of the paper). A state whose
/// caller adds the gradients cannot do it.
pub fn clip(gradients: &mut [Vec<f32>], limit: f64) {
    let squares = gradients.iter().flatten().map(|g| f64::from(*g).powi(2));
    let norm = squares.sum::<f64>().sqrt();
    if norm > limit {
        let factor = (limit / norm) as f32;
        gradients.iter_mut().flatten().for_each(|g| *g *= factor);
    }
}

/// The largest number, 0 of none. A NaN is larger than all, so that it is seen.
pub fn largest(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.max_by(f64::total_cmp).unwrap_or(0.0)
}
