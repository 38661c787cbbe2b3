//! The training loop of one rank.
//!
//! A [`Learner`] has what outlives a communicator, a [`Worker`] what belongs to one.

use std::time::{Duration, Instant};

use tributary::Communicator;

use super::data::{Digits, Image};
use super::dense::Dense;
use super::exchange::{Exchange, Moved};
use super::network::{self, Network, Tensors};
use super::overlap::Times;
use super::report::{Epoch, Progress};
use super::sparse::{Kept, Sparse, Traffic};
use super::{Failure, Options};

/// The result of a training on one rank.
pub struct Trained {
    /// The network, trained.
    pub network: Network,
    /// The epochs.
    pub epochs: Vec<Epoch>,
    /// Totals of the sparse exchange, if there was one.
    pub traffic: Option<Traffic>,
    /// Of the dense exchange, if there was one: with the last communicator.
    pub times: Times,
}

impl Trained {
    /// Bytes that this rank moved in a step. Those of sparse calls are counted, all of them; of
    /// dense calls and of the loss the buckets are, and a ring allreduce moves what
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
    let mut learner = Learner::new(communicator.rank(), digits, options);
    learner.train(communicator, progress, |_| Ok(true))?;
    Ok(learner.finish())
}

/// What of a rank's training outlives a communicator.
pub struct Learner<'a> {
    options: &'a Options,
    digits: &'a Digits,
    network: Network,
    kept: Kept,
    /// The images in the order of this epoch, the dice for the next, and how often they were used.
    order: Vec<&'a Image>,
    dice: fastrand::Rng,
    shuffled: usize,
    /// How many steps are taken, and what is known of those of this epoch.
    taken: usize,
    steps: Vec<Step>,
    /// What former communicators moved in this epoch, and what this one did before.
    moved: Moved,
    before: Moved,
    epochs: Vec<Epoch>,
    traffic: Option<Traffic>,
    times: Times,
}

impl<'a> Learner<'a> {
    /// A rank that has taken no step.
    pub fn new(rank: usize, digits: &'a Digits, options: &'a Options) -> Learner<'a> {
        // Every rank rolls its own dice, and then takes what rank 0 has.
        let seed = options.seed.wrapping_add(rank as u64);
        Learner {
            options,
            digits,
            network: Network::random(&mut fastrand::Rng::with_seed(seed)),
            kept: Kept::default(),
            order: digits.training.iter().collect(),
            dice: fastrand::Rng::with_seed(options.seed),
            shuffled: 0,
            taken: 0,
            steps: Vec::new(),
            moved: Moved::default(),
            before: Moved::default(),
            epochs: Vec::with_capacity(options.epochs),
            traffic: None,
            times: Times::default(),
        }
    }

    /// The number of steps taken.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Forgets what this rank has not sent yet.
    pub fn drop_residual(&mut self) {
        self.kept.forget();
    }

    /// Takes steps until the training ends, or `more`, which before each step is told how many are
    /// taken, says that no more are to be. After an error another call goes on, with another
    /// communicator.
    pub fn train(
        &mut self,
        communicator: &mut Communicator,
        progress: &Progress,
        more: impl FnMut(usize) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let progress = (communicator.rank() == 0).then_some(progress);
        self.take_over(communicator)?;
        let mut worker = Worker::new(communicator, self.options, &self.kept)?;
        self.before = Moved::default();
        let result = self.take_steps(&mut worker, progress, more);
        self.traffic = worker.gradients.traffic()?;
        self.times = worker.gradients.times();
        self.moved = self.moved + (worker.gradients.moved()? - self.before);
        self.kept = worker.gradients.into_kept()?;
        result
    }

    /// All ranks get as far as rank 0 is. When a rank died, one of the others may have heard of it
    /// before the end of its step, and another after. What they have not sent yet they keep, even
    /// if it is that of a step before or after.
    fn take_over(&mut self, communicator: &mut Communicator) -> Result<(), Failure> {
        let in_epoch = self.in_epoch();
        let mut state = self.network.state();
        let (epochs, steps) = (self.taken / in_epoch, self.taken % in_epoch);
        state.push(vec![epochs as f32, steps as f32]);
        Exchange::new(communicator, &state)?.broadcast(&mut state, 0)?;
        let taken = state.pop().expect("how far it is");
        self.network.restore(state);
        self.go_to(taken[0] as usize, taken[1] as usize);
        Ok(())
    }

    /// `epochs` are taken, and `steps` of the next.
    fn go_to(&mut self, epochs: usize, steps: usize) {
        let taken = epochs * self.in_epoch() + steps;
        if taken != self.taken {
            self.taken = taken;
            self.epochs.truncate(epochs);
            self.steps.truncate(steps);
            self.order = self.digits.training.iter().collect();
            self.dice = fastrand::Rng::with_seed(self.options.seed);
            self.shuffled = 0;
        }
    }

    fn in_epoch(&self) -> usize {
        self.order.len() / self.options.batch
    }

    fn take_steps(
        &mut self,
        worker: &mut Worker,
        progress: Option<&Progress>,
        mut more: impl FnMut(usize) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let (batch, in_epoch) = (self.options.batch, self.in_epoch());
        let all = in_epoch * self.options.epochs;
        while self.taken < all && more(self.taken)? {
            while self.shuffled <= self.taken / in_epoch {
                self.dice.shuffle(&mut self.order); // every rank in the same way
                self.shuffled += 1;
            }
            worker.gradients.set_density(self.options.density_in(self.taken / in_epoch))?;
            let images = &self.order[self.taken % in_epoch * batch..][..batch];
            self.steps.push(worker.step(&mut self.network, images, self.options)?);
            self.taken += 1;
            if let Some(progress) = progress {
                progress.step();
            }
            if self.taken % in_epoch == 0 {
                self.end_epoch(worker, progress)?;
            }
            worker.gradients.balance()?;
        }
        Ok(())
    }

    fn end_epoch(
        &mut self,
        worker: &mut Worker,
        progress: Option<&Progress>,
    ) -> Result<(), Failure> {
        let now = worker.gradients.moved()?;
        let moved = now - self.before + self.moved;
        let accuracy = self.network.evaluate(&self.digits.test).1;
        let number = self.taken / self.in_epoch();
        self.epochs.push(summary(number, &self.steps, accuracy, moved));
        (self.before, self.moved) = (now, Moved::default());
        self.steps.clear();
        if let Some(progress) = progress {
            progress.epoch(&self.epochs[self.epochs.len() - 1]);
        }
        Ok(())
    }

    /// The result of the steps taken.
    pub fn finish(self) -> Trained {
        let Learner { network, epochs, traffic, times, .. } = self;
        Trained { network, epochs, traffic, times }
    }
}

/// One rank at work.
struct Worker<'a> {
    /// The tensors that a step averages: the gradients, then the loss.
    tensors: Tensors,
    gradients: Gradients<'a>,
    /// This rank's images in a batch: as many as every rank's, from here on.
    from: usize,
    share: usize,
}

/// The way gradients are averaged.
enum Gradients<'a> {
    Dense(Box<Dense<'a>>),
    Sparse(Box<Sparse<'a>>),
}

impl Gradients<'_> {
    /// Makes the loss of `images` and its gradients, and averages them over the ranks. `tensors`: as
    /// in [`Worker`]. Returns when this rank had made its own.
    fn learn(
        &mut self,
        network: &Network,
        images: &[&Image],
        tensors: &mut Tensors,
    ) -> Result<Instant, Failure> {
        let mut computed = Instant::now();
        match self {
            Gradients::Dense(dense) => dense.average(tensors, |tensors, made| {
                let (loss, gradients) = tensors.split_last_mut().expect("the loss");
                loss[0] = network.backward_telling(images, gradients, &mut *made)?;
                made(gradients.len(), loss)?;
                computed = Instant::now();
                Ok(())
            })?,
            Gradients::Sparse(sparse) => {
                let (loss, gradients) = tensors.split_last_mut().expect("the loss");
                loss[0] = network.backward(images, gradients);
                computed = Instant::now();
                sparse.average(gradients, &mut loss[0])?;
            }
        }
        Ok(computed)
    }

    /// The fraction of the entries that a sparse exchange sends from now on.
    fn set_density(&mut self, density: f64) -> Result<(), Failure> {
        match self {
            Gradients::Dense(_) => Ok(()),
            Gradients::Sparse(sparse) => sparse.set_density(density),
        }
    }

    /// Checks that a sparse exchange has lost nothing.
    fn balance(&mut self) -> Result<(), Failure> {
        match self {
            Gradients::Dense(_) => Ok(()),
            Gradients::Sparse(sparse) => sparse.balance(),
        }
    }

    fn into_kept(self) -> Result<Kept, Failure> {
        match self {
            Gradients::Dense(_) => Ok(Kept::default()),
            Gradients::Sparse(sparse) => sparse.into_kept(),
        }
    }

    fn moved(&mut self) -> Result<Moved, Failure> {
        match self {
            Gradients::Dense(dense) => dense.moved(),
            Gradients::Sparse(sparse) => sparse.moved(),
        }
    }

    fn times(&self) -> Times {
        match self {
            Gradients::Dense(dense) => dense.times().clone(),
            Gradients::Sparse(_) => Times::default(),
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
    fn new(
        communicator: &'a mut Communicator,
        options: &Options,
        kept: &Kept,
    ) -> Result<Worker<'a>, Failure> {
        let rank = communicator.rank();
        let share = options.batch / communicator.size();
        let mut tensors = network::zeros();
        tensors.push(vec![0.0]);
        let last = tensors.len() - 1;
        let gradients = match options.algorithm {
            None => Gradients::Dense(Box::new(Dense::new(communicator, &tensors)?)),
            Some(_) => {
                let sparse = Sparse::new(communicator, &tensors[..last], options, kept)?;
                Gradients::Sparse(Box::new(sparse))
            }
        };
        Ok(Worker { tensors, gradients, from: rank * share, share })
    }

    /// Learns from this rank's share of `batch`, and from what the others learn from theirs. After
    /// an error the network is as before.
    fn step(
        &mut self,
        network: &mut Network,
        batch: &[&Image],
        options: &Options,
    ) -> Result<Step, Failure> {
        let start = Instant::now();
        let images = &batch[self.from..][..self.share];
        let last = self.tensors.len() - 1;
        let computed = self.gradients.learn(network, images, &mut self.tensors)?;
        let communicating = computed.elapsed();

        network.step(&self.tensors[..last], options.lr, options.momentum_of_steps());
        Ok(Step { loss: self.tensors[last][0], time: start.elapsed(), communicating })
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
