//! A rank vanishes in the middle of the training, and the others go on without it.

use std::mem::ManuallyDrop;
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use tributary::{recover, Communicator, Group, Stream};

use super::data::Digits;
use super::report::{self, say, Progress};
use super::worker::{Learner, Trained};
use super::{Failure, Options};

/// How long a call waits for a rank before the watchdog ends the communicator.
pub const DEADLINE: Duration = Duration::from_secs(1);
/// How long ranks wait for each other when they go on.
const REBUILD: Duration = Duration::from_secs(60);

/// Trains with the ranks of `group`, and returns the result of each that has not vanished.
pub fn train(
    group: Group,
    digits: &Digits,
    options: &Options,
    progress: &Progress,
) -> Result<Vec<Trained>, Failure> {
    let ranks = group.split()?;
    let results: Vec<_> = thread::scope(|threads| {
        let run = |rank| threads.spawn(move || train_rank(rank, digits, options, progress));
        let ranks: Vec<_> = ranks.into_iter().map(run).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap_or_else(|p| resume_unwind(p))).collect()
    });
    results.into_iter().filter_map(Result::transpose).collect()
}

/// `None`: it has vanished.
fn train_rank(
    rank: Communicator,
    digits: &Digits,
    options: &Options,
    progress: &Progress,
) -> Result<Option<Trained>, Failure> {
    if options.kill_rank != Some(rank.rank()) {
        return go_on(rank, digits, options, progress).map(Some);
    }
    let mut learner = Learner::new(rank.rank(), digits, options);
    let mut rank = ManuallyDrop::new(rank); // nothing is closed: the others are told nothing
    learner.train(&mut rank, progress, |taken| Ok(taken < options.at_step))?;
    Ok(None)
}

/// Trains as a rank that goes on when others are lost.
pub fn go_on(
    rank: Communicator,
    digits: &Digits,
    options: &Options,
    progress: &Progress,
) -> Result<Trained, Failure> {
    let mut learner = Learner::new(rank.rank(), digits, options);
    let mut reason = String::new();
    recover(rank, REBUILD, |rank, rebuilt| {
        if rebuilt > 0 && rank.rank() == 0 {
            let (step, ranks) = (learner.taken() + 1, report::ranks(rank.size()));
            let go = if rank.size() == 1 { "goes" } else { "go" };
            say(format_args!("{reason}\n{ranks} {go} on with step {step}"));
        }
        if rebuilt > 0 && options.residuals == Residuals::Drop {
            learner.drop_residual();
        }
        let result = learner.train(rank, progress, |_| Ok(true)).and_then(|()| end_together(rank));
        result.inspect_err(|failure| reason = failure.to_string())
    })?;
    Ok(learner.finish())
}

/// Waits until all ranks have taken all steps: one that has returned goes on with nobody.
fn end_together(rank: &mut Communicator) -> Result<(), Failure> {
    let stream = Stream::new(rank.device())?;
    Ok(rank.scope(&stream, |scope| scope.barrier())?)
}

/// The residuals of the ranks that go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Residuals {
    /// What they have not sent yet, they send later.
    Keep,
    /// They forget it.
    Drop,
}
