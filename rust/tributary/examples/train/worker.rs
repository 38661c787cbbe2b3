//! The training loop of one rank.

use std::time::{Duration, Instant};

use tributary::Communicator;

use super::data::{Digits, Image};
use super::exchange::Exchange;
use super::network::{self, Network};
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

/// Trains as one rank of the communicator.
pub fn train(
    communicator: &mut Communicator,
    digits: &Digits,
    options: &Options,
    progress: &Progress,
) -> Result<Trained, Failure> {
    let rank = communicator.rank();
    let share = options.batch / communicator.size();

    // Every rank rolls its own dice, and then starts where rank 0 does.
    let mut network =
        Network::random(&mut fastrand::Rng::with_seed(options.seed.wrapping_add(rank as u64)));
    Exchange::new(communicator, &network.parameters)?.broadcast(&mut network.parameters, 0)?;

    // What is averaged in each step: the gradients, and the loss as one more tensor behind them.
    let mut tensors = network::zeros();
    let loss = tensors.len();
    tensors.push(vec![0.0]);
    let mut exchange = Exchange::new(communicator, &tensors)?;

    let mut order: Vec<&Image> = digits.training.iter().collect();
    let mut dice = fastrand::Rng::with_seed(options.seed);
    let mut epochs = Vec::with_capacity(options.epochs);
    for number in 1..=options.epochs {
        dice.shuffle(&mut order); // in the same way on every rank
        let bytes = exchange.bytes()?;
        let (mut losses, mut busy, mut waiting) = (0.0, Duration::ZERO, Duration::ZERO);
        let batches = order.chunks_exact(options.batch);
        let steps = batches.len() as u32;
        for batch in batches {
            let start = Instant::now();
            let images = &batch[rank * share..][..share];
            tensors[loss][0] = network.backward(images, &mut tensors[..loss]);

            let computed = Instant::now();
            exchange.average(&mut tensors)?;
            waiting += computed.elapsed();

            network.step(&tensors[..loss], options.lr, MOMENTUM);
            losses += tensors[loss][0];
            busy += start.elapsed();
            if rank == 0 {
                progress.step();
            }
        }
        let epoch = Epoch {
            number,
            loss: losses / steps as f32,
            accuracy: network.evaluate(&digits.test).1,
            step: busy / steps,
            communicating: waiting.as_secs_f64() / busy.as_secs_f64(),
            bytes: exchange.bytes()? - bytes,
        };
        if rank == 0 {
            progress.epoch(&epoch);
        }
        epochs.push(epoch);
    }
    Ok(Trained { network, epochs })
}
