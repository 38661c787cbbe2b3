//! The training loop of one rank.

use std::time::{Duration, Instant};

use tributary::Communicator;

use super::data::{Digits, Image};
use super::exchange::{Exchange, Moved};
use super::network::{self, Network, Tensors};
use super::report::{Epoch, Progress};
use super::sparse::{Sparse, Traffic};
use super::{Failure, Options};

/// The result of a training on one rank.
pub struct Trained {
    /// The network, trained.
    pub network: Network,
    /// The epochs.
    pub epochs: Vec<Epoch>,
    /// Totals of the sparse exchange, if there was one.
    pub traffic: Option<Traffic>,
}

impl Trained {
    /// Bytes that this rank moved in a step. Those of sparse calls are counted, all of them; of
    /// dense calls and of the loss the buffers are, and a ring allreduce moves what
    /// [`Moved::allreduce`] says.
    pub fn bytes(&self) -> f64 {
        let all = self.epochs.iter().fold(Moved::default(), |all, epoch| all + epoch.moved);
        all.most() / self.epochs.iter().map(|epoch| epoch.steps).sum::<usize>().max(1) as f64
    }

    /// The mean seconds of a step.
    pub fn seconds(&self) -> f64 {
        let steps = |epoch: &Epoch| (epoch.steps as f64, epoch.step.as_secs_f64());
        let all = self.epochs.iter().map(steps);
        let (count, time) = all.fold((0.0, 0.0), |sum, (n, step)| (sum.0 + n, sum.1 + n * step));
        time / f64::max(count, 1.0)
    }

    /// Bytes that a dense allreduce of all gradients, and of the loss, would have moved.
    pub fn dense_bytes(&self, ranks: usize) -> f64 {
        let values: usize = self.network.parameters.iter().map(Vec::len).sum::<usize>() + 1;
        Moved::allreduce((values * size_of::<f32>()) as f64, ranks).most()
    }
}

/// Trains as one rank of the communicator. Rank 0 reports the progress.
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
    let mut epochs = Vec::with_capacity(options.epochs());
    for number in 1..=options.epochs() {
        dice.shuffle(&mut order); // every rank in the same way
        let mut steps = Vec::with_capacity(order.len() / options.batch);
        let before = worker.gradients.moved()?;
        for batch in order.chunks_exact(options.batch) {
            steps.push(worker.step(batch, options)?);
            if first {
                progress.step();
            }
        }
        let moved = worker.gradients.moved()? - before;
        epochs.push(summary(number, &steps, worker.network.evaluate(&digits.test).1, moved));
        if first {
            progress.epoch(&epochs[number - 1]);
        }
    }
    let traffic = worker.gradients.traffic()?;
    Ok(Trained { network: worker.network, epochs, traffic })
}

/// One rank at work.
struct Worker<'a> {
    network: Network,
    /// The tensors that a step averages: the gradients, then the loss.
    tensors: Tensors,
    gradients: Gradients<'a>,
    /// This rank's images in a batch: as many as every rank's, from here on.
    from: usize,
    share: usize,
}

/// The way gradients are averaged.
enum Gradients<'a> {
    Dense(Exchange<'a>),
    Sparse(Box<Sparse<'a>>),
}

impl Gradients<'_> {
    /// `tensors`: as in [`Worker`].
    fn average(&mut self, tensors: &mut Tensors) -> Result<(), Failure> {
        match self {
            Gradients::Dense(exchange) => exchange.average(tensors),
            Gradients::Sparse(sparse) => {
                let (loss, gradients) = tensors.split_last_mut().expect("the loss");
                sparse.average(gradients, &mut loss[0])
            }
        }
    }

    /// Checks that a sparse exchange has lost nothing.
    fn balance(&mut self) -> Result<(), Failure> {
        match self {
            Gradients::Dense(_) => Ok(()),
            Gradients::Sparse(sparse) => sparse.balance(),
        }
    }

    fn moved(&mut self) -> Result<Moved, Failure> {
        match self {
            Gradients::Dense(exchange) => exchange.moved(),
            Gradients::Sparse(sparse) => sparse.moved(),
        }
    }

    fn traffic(&mut self) -> Result<Option<Traffic>, Failure> {
        match self {
            Gradients::Dense(_) => Ok(None),
            Gradients::Sparse(sparse) => sparse.traffic().map(Some),
        }
    }
}

/// The result of a step.
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
        let last = tensors.len() - 1;
        let gradients = match options.sparse() {
            None => Gradients::Dense(Exchange::new(communicator, &tensors)?),
            Some(how) => {
                let sparse = Sparse::new(communicator, &tensors[..last], &how)?;
                Gradients::Sparse(Box::new(sparse))
            }
        };
        Ok(Worker { network, tensors, gradients, from: rank * share, share })
    }

    /// Learns from this rank's share of `batch`, and from what the others learn from theirs.
    fn step(&mut self, batch: &[&Image], options: &Options) -> Result<Step, Failure> {
        let start = Instant::now();
        let images = &batch[self.from..][..self.share];
        let last = self.tensors.len() - 1;
        self.tensors[last][0] = self.network.backward(images, &mut self.tensors[..last]);

        let computed = Instant::now();
        self.gradients.average(&mut self.tensors)?;
        let communicating = computed.elapsed();

        self.network.step(&self.tensors[..last], options.lr, options.momentum());
        let step = Step { loss: self.tensors[last][0], time: start.elapsed(), communicating };
        self.gradients.balance()?;
        Ok(step)
    }
}

fn summary(number: usize, steps: &[Step], accuracy: f64, moved: Moved) -> Epoch {
    let time: Duration = steps.iter().map(|step| step.time).sum();
    let communicating: Duration = steps.iter().map(|step| step.communicating).sum();
    Epoch {
        number,
        steps: steps.len(),
        loss: steps.iter().map(|step| step.loss).sum::<f32>() / steps.len() as f32,
        accuracy,
        step: time / steps.len() as u32,
        communicating: communicating.as_secs_f64() / time.as_secs_f64(),
        moved,
    }
}
