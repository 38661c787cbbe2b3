//! Data-parallel training with Tributary: a small network learns to read handwritten digits.
//!
//! Every rank is a thread, or a process, with its own network. In each step it works on its share
//! of the batch, and Tributary averages the gradients over the ranks, in buckets, while the backward
//! pass makes the others. So all ranks take the same step and stay equal to the bit. At its end the
//! program proves that, and that a single rank gets the same result from the same batches. And it
//! says how much of the communication was hidden behind the backward pass (`overlap.rs`): one step of
//! ten communicates only after it, for comparison.
//!
//! ```text
//! cargo run --release --example train
//! cargo run --release --example train -- --ranks 4 --backend nccl --plot curves.svg
//! cargo run --release --example train -- --algorithm topka --density 0.01
//! cargo run --release --example train -- --compare
//! cargo run --release --example train -- --ranks 3 --kill-rank 1 --at-step 100
//! cargo run --release --example train -- --backend nccl --processes --kill-rank 1 --at-step 100
//! torchrun --nproc-per-node 2 --no-python target/release/examples/train --launched
//! mpirun -n 2 target/release/examples/train --launched
//! srun -n 2 --gpus-per-task=1 target/release/examples/train --launched
//! ```
//!
//! With `--algorithm` the ranks exchange gradients sparsely, with error feedback and the momentum of
//! Deep Gradient Compression; `--compare` trains once with every algorithm.
//!
//! With `--kill-rank` a rank vanishes in the middle, and the others go on without it; with
//! `--processes`, which starts a process for each rank, it is a process that is killed.
//!
//! With `--launched` the program is one process of a job that torchrun, mpirun or srun has started.
//!
//! `exchange.rs`, `dense.rs` and `sparse.rs` hold the calls of Tributary, `worker.rs` the loop of one rank.

mod child;
pub mod compare;
pub mod data;
pub mod dense;
pub mod exchange;
mod launched;
pub mod message;
pub mod network;
pub mod options;
pub mod overlap;
mod plot;
mod processes;
pub mod proof;
pub mod report;
pub mod sparse;
pub mod vanish;
pub mod worker;

use std::error::Error;
use std::process::ExitCode;
use std::thread;

use clap::Parser;
use tributary::Group;

use data::Digits;
pub use options::Options;
use proof::Proof;
use report::{say, Progress, Table};
use worker::Trained;

/// An error that can pass between threads.
pub type Failure = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("train: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Trains, reports and proves. Returns whether every proof held.
pub fn run(options: &Options) -> Result<bool, Failure> {
    let digits = Digits::load();
    if let Some(rank) = options.rank {
        return child::run(rank, options, &digits);
    }
    if options.launched {
        return launched::run(options, &digits);
    }
    let backend = options::check(options, &digits)?;
    say(format_args!(
        "{} images to learn from, {} to be tested on",
        digits.training.len(),
        digits.test.len()
    ));
    if options.compare {
        return compare::run(options, &digits);
    }
    let trained = train(options, &digits, Table::Every)?;
    conclude(options, &digits, backend.name(), &trained)
}

/// Trains a single rank on the same backend, to compare with; reports and proves. Returns whether
/// every proof held.
fn conclude(
    options: &Options,
    digits: &Digits,
    backend: &str,
    trained: &[Trained],
) -> Result<bool, Failure> {
    let reference = match options.no_reference {
        true => None,
        false => {
            let dense = Options {
                ranks: 1,
                processes: false,
                backend: Some(backend.to_owned()),
                kill_rank: None,
                ..options.with_algorithm(None)
            };
            train(&dense, digits, Table::Last)?.pop()
        }
    };
    if let Some(file) = &options.plot {
        let reference = reference.as_ref().map(|reference| &reference.epochs[..]);
        plot::draw(file, options.ranks, &trained[0].epochs, reference)?;
        say(format_args!("\ncurves drawn in {}", file.display()));
    }
    say(format_args!(""));
    let proofs = proof::all(trained, reference.as_ref(), options, digits);
    proofs.iter().for_each(Proof::print);
    proof::remarks(trained, options)
        .iter()
        .for_each(|remark| say(format_args!("noted   {remark}")));
    Ok(proofs.iter().all(|proof| proof.holds))
}

/// What communicators are made with: the named backend, or the best with a device for each rank.
fn settings(options: &Options) -> tributary::Options {
    let mut settings = tributary::Options::new();
    if let Some(name) = &options.backend {
        settings = settings.backend(name);
    }
    if options.kill_rank.is_some() {
        settings = settings.call_timeout(match options.processes {
            true => processes::DEADLINE,
            false => vanish::DEADLINE,
        });
    }
    // SAFETY: every rank trains the same network, in the same steps.
    unsafe { settings.assume_matching_calls() }
}

/// Trains with all ranks, and returns the result of each.
fn train(options: &Options, digits: &Digits, table: Table) -> Result<Vec<Trained>, Failure> {
    let (ranks, backend) = (options.ranks, options::backend(options, digits)?);
    let each = if options.processes { ", a process each" } else { "" };
    let steps = digits.training.len() / options.batch;
    let share = options.batch / ranks;
    say(format_args!(
        "\n{} on {backend}{each}: an epoch is {steps} steps, a step {share} images per rank",
        report::ranks(ranks),
    ));
    let processors = thread::available_parallelism()?.get();
    if ranks > processors {
        say(format_args!(
            "(more than the {processors} processors: to wait for one is communicating too)"
        ));
    }
    let progress = Progress::new(options.epochs, steps, table);
    let trained = match options.processes {
        true => processes::train(options)?,
        false => train_threads(options, digits, &progress)?,
    };
    progress.finish();
    Ok(trained)
}

fn train_threads(
    options: &Options,
    digits: &Digits,
    progress: &Progress,
) -> Result<Vec<Trained>, Failure> {
    let group = Group::with_options(options.ranks, &settings(options))?;
    match options.kill_rank {
        None => group.run(|communicator| worker::train(communicator, digits, options, progress)),
        Some(_) => vanish::train(group, digits, options, progress),
    }
}
