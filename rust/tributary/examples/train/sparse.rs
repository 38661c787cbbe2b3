//! The sparse exchange of gradients: each call sends the largest entries of a rank's gradients, and
//! adds the rest to the next ones.

use tributary::{
    Communicator, DType, DeviceVec, InPlace, ReduceOp, SparseAllReduce, SparseOptions, Stream,
};

use super::exchange::Moved;
use super::Failure;

/// Gradients are rounded to multiples of this. Then sums of them are exact, in any order, and the
/// books can be compared to the last bit; the training does not notice.
const GRAIN: f32 = 1.0 / (1 << 20) as f32;

/// Tensors of one rank, as one long one, and their sparse allreduce.
///
/// It works in place: the accumulator on the device holds the residual, to which each step's
/// gradients are added.
pub struct Sparse<'a> {
    communicator: &'a mut Communicator,
    stream: Stream,
    state: SparseAllReduce,
    accumulator: DeviceVec<f32>,
    sum: DeviceVec<f32>,
    loss: DeviceVec<f32>,
    /// To find whether anything is lost on the way: what all ranks have given in a step.
    given: DeviceVec<f64>,
    leak: f64,
    /// What was in the accumulator before a step, and is in it afterwards; what became of the step.
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
    /// What this rank has not sent yet; empty is all 0.
    pub residual: Vec<f32>,
    /// As in [`Traffic`].
    leak: f64,
}

impl Sparse<'_> {
    /// For gradients of the lengths of `like`.
    pub fn new<'a>(
        communicator: &'a mut Communicator,
        like: &[Vec<f32>],
        options: &SparseOptions,
        kept: Kept,
    ) -> Result<Sparse<'a>, Failure> {
        let device = communicator.device();
        let len = like.iter().map(Vec::len).sum();
        let Kept { mut residual, leak } = kept;
        residual.resize(len, 0.0);
        let options = options.clone().in_place(true);
        let state = SparseAllReduce::new(communicator, len, DType::F32, &options)?;
        Ok(Sparse {
            communicator,
            stream: Stream::new(device)?,
            state,
            accumulator: DeviceVec::zeros(device, len)?,
            sum: DeviceVec::zeros(device, len)?,
            loss: DeviceVec::zeros(device, 1)?,
            given: DeviceVec::zeros(device, len)?,
            leak,
            acc: vec![0.0; len],
            residual,
            result: vec![0.0; len],
        })
    }

    /// Every rank's `gradients` become the average of what was chosen of them, and of what was left
    /// of earlier ones; `loss` becomes the average over the ranks.
    pub fn average(&mut self, gradients: &mut [Vec<f32>], loss: &mut f32) -> Result<(), Failure> {
        self.acc.copy_from_slice(&self.residual);
        for (a, g) in self.acc.iter_mut().zip(gradients.iter().flatten()) {
            *a += (g / GRAIN).round() * GRAIN;
        }
        self.accumulator.upload(&self.acc, &self.stream)?;
        self.loss.upload(&[*loss], &self.stream)?;
        self.communicator.scope(&self.stream, |scope| {
            let (accumulator, sum) = (&mut self.accumulator, &mut self.sum);
            scope.sparse_allreduce(&mut self.state, accumulator, sum)?;
            scope.allreduce(InPlace, &mut self.loss, ReduceOp::Avg)
        })?;
        self.state.status()?;
        self.accumulator.download_into(&mut self.residual, &self.stream)?;
        self.sum.download_into(&mut self.result, &self.stream)?;
        *loss = self.loss.download(&self.stream)?[0];
        let ranks = self.communicator.size() as f32;
        for (gradient, sum) in gradients.iter_mut().flatten().zip(&self.result) {
            *gradient = sum / ranks;
        }
        Ok(())
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

    /// For the next exchange, with another communicator: as of the last step that succeeded.
    pub fn into_kept(self) -> Kept {
        Kept { residual: self.residual, leak: self.leak }
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

/// The largest number, 0 of none. A NaN is larger than all, so that it is seen.
pub fn largest(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.max_by(f64::total_cmp).unwrap_or(0.0)
}
