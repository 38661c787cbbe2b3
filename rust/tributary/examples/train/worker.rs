//! The training loop of one rank.

use std::time::{Duration, Instant};

use tributary::Communicator;

use super::data::{Digits, Image};
use super::exchange::Exchange;
use super::network::{self, Network, Tensors};
use super::report::{Epoch, Progress};
use super::{Failure, Options};

/// Of the step before, how much is taken again.
const MOMENTUM: f32 = 0.9;

/// What comes out of it for one rank.
pub struct Trained {
    /// The network, trained.
    pub network: Network,
    /// How it went.
    pub epochs: Vec<Epoch>,
}

/// Trains as one rank of the communicator. Rank 0 tells how it goes.
pub fn train(
    communicator: &mut Communicator,
    digits: &Digits,
    options: &Options,
    progress: &Progress,
) -> Result<Trained, Failure> {
    let first = communicator.rank() == 0;
    let mut worker = Worker::new(communicator, options)?;
    let mut order: Vec<&Image> = digits.training.iter().collect();
    let mut dice = fastrand::Rng::with_seed(options.seed);
    let mut epochs = Vec::with_capacity(options.epochs);
    for number in 1..=options.epochs {
        dice.shuffle(&mut order); // every rank in the same way
        let mut steps = Vec::with_capacity(order.len() / options.batch);
        let bytes = worker.exchange.bytes()?;
        for batch in order.chunks_exact(options.batch) {
            steps.push(worker.step(batch, options.lr)?);
            if first {
                progress.step();
            }
        }
        let bytes = worker.exchange.bytes()? - bytes;
        epochs.push(summary(number, &steps, worker.network.evaluate(&digits.test).1, bytes));
        if first {
            progress.epoch(&epochs[number - 1]);
        }
    }
    Ok(Trained { network: worker.network, epochs })
}

/// One rank at work.
struct Worker<'a> {
    network: Network,
    /// What is averaged in a step: the gradients, and behind them the loss as one more tensor.
    tensors: Tensors,
    exchange: Exchange<'a>,
    /// This rank's images in a batch: as many as every rank's, from here on.
    from: usize,
    share: usize,
}

/// What a step came to.
struct Step {
    loss: f32,
    time: Duration,
    communicating: Duration,
}

impl<'a> Worker<'a> {
    fn new(communicator: &'a mut Communicator, options: &Options) -> Result<Worker<'a>, Failure> {
        let rank = communicator.rank();
        let share = options.batch / communicator.size();

        // Every rank rolls its own dice, and then takes what rank 0 has.
        let seed = options.seed.wrapping_add(rank as u64);
        let mut network = Network::random(&mut fastrand::Rng::with_seed(seed));
        Exchange::new(communicator, &network.parameters)?.broadcast(&mut network.parameters, 0)?;

        let mut tensors = network::zeros();
        tensors.push(vec![0.0]);
        let exchange = Exchange::new(communicator, &tensors)?;
        Ok(Worker { network, tensors, exchange, from: rank * share, share })
    }

    /// Learns from this rank's share of `batch`, and from what the others learn from theirs.
    fn step(&mut self, batch: &[&Image], rate: f32) -> Result<Step, Failure> {
        let start = Instant::now();
        let images = &batch[self.from..][..self.share];
        let last = self.tensors.len() - 1;
        self.tensors[last][0] = self.network.backward(images, &mut self.tensors[..last]);

        let computed = Instant::now();
        self.exchange.average(&mut self.tensors)?;
        let communicating = computed.elapsed();

        self.network.step(&self.tensors[..last], rate, MOMENTUM);
        Ok(Step { loss: self.tensors[last][0], time: start.elapsed(), communicating })
    }
}

fn summary(number: usize, steps: &[Step], accuracy: f64, bytes: u64) -> Epoch {
    let time: Duration = steps.iter().map(|step| step.time).sum();
    let communicating: Duration = steps.iter().map(|step| step.communicating).sum();
    Epoch {
        number,
        loss: steps.iter().map(|step| step.loss).sum::<f32>() / steps.len() as f32,
        accuracy,
        step: time / steps.len() as u32,
        communicating: communicating.as_secs_f64() / time.as_secs_f64(),
        bytes,
    }
}
