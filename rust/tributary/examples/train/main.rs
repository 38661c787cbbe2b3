//! Data-parallel training with Tributary: a small network learns to read handwritten digits.
//!
//! Every rank is a thread with a network of its own. In each step it works on its share of the
//! batch, and then one call of Tributary averages the gradients over the ranks. So all of them take
//! the same step, and stay equal to the bit. The program proves that at its end, and that the result
//! is what a single rank gets from the same batches.
//!
//! ```text
//! cargo run --release --example train
//! cargo run --release --example train -- --ranks 4 --backend nccl --plot curves.svg
//! cargo run --release --example train -- --algorithm topka --density 0.01
//! cargo run --release --example train -- --compare
//! ```
//!
//! With `--algorithm` the gradients are exchanged sparsely, with error feedback; `--compare` trains
//! once with every algorithm.
//!
//! Where to read: `exchange.rs` and `sparse.rs` have the calls of Tributary, `worker.rs` the loop of
//! one rank, and `ranks.rs` the threads.

pub mod compare;
pub mod data;
pub mod exchange;
pub mod network;
mod plot;
pub mod proof;
pub mod ranks;
mod report;
pub mod sparse;
pub mod worker;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use clap::Parser;
use tributary::{Group, SparseOptions};

use data::Digits;
use proof::Proof;
use report::{Progress, Table};
use worker::Trained;

/// What can go wrong, in words; it travels between threads.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Train a small network to read handwritten digits, data-parallel over several ranks.
#[derive(Clone, Parser)]
#[command(name = "train", version)]
pub struct Options {
    /// Ranks, a thread each; on nccl also a GPU each
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub ranks: usize,
    /// Backend: host or nccl [default: the best that has a device for every rank]
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// Times that all training images are seen [default: 20; with sparse gradients 60]
    #[arg(long, value_name = "N")]
    pub epochs: Option<usize>,
    /// Images in a step, on all ranks together
    #[arg(long, default_value_t = 96, value_name = "N")]
    pub batch: usize,
    /// Learning rate
    #[arg(long, default_value_t = 0.1, value_name = "RATE")]
    pub lr: f32,
    /// Of the step before, how much is taken again [default: 0.9; with sparse gradients 0.5]
    #[arg(long, value_name = "FRACTION")]
    pub momentum: Option<f32>,
    /// Exchange the gradients sparsely: auto, topka, oktopk, ... [default: dense, as a list]
    #[arg(long, value_name = "NAME")]
    pub algorithm: Option<String>,
    /// Of the gradient's entries, how many a rank sends in a step
    #[arg(long, default_value_t = 0.01, value_name = "FRACTION")]
    pub density: f64,
    /// Train with every algorithm, and print one table
    #[arg(long, conflicts_with = "algorithm")]
    pub compare: bool,
    /// Seed of the first parameters and of the order of the images
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Draw the curves of loss and accuracy [default: not; with --compare target/compare.svg]
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Do not train once more with a single rank, to compare with
    #[arg(long)]
    pub no_reference: bool,
}

impl Options {
    /// How gradients are exchanged, if sparsely.
    pub fn sparse(&self) -> Option<SparseOptions> {
        let name = self.algorithm.as_ref()?;
        Some(SparseOptions::new().algorithm(name).density(self.density))
    }

    /// How often all images are seen. What a rank does not send now it sends later, so sparse
    /// gradients take longer to be complete.
    pub fn epochs(&self) -> usize {
        self.epochs.unwrap_or(if self.is_sparse() { 60 } else { 20 })
    }

    /// Of the step before, how much is taken again. What comes late has gathered many steps already,
    /// so sparse gradients need less of it.
    pub fn momentum(&self) -> f32 {
        self.momentum.unwrap_or(if self.is_sparse() { 0.5 } else { 0.9 })
    }

    fn is_sparse(&self) -> bool {
        self.compare || self.algorithm.is_some()
    }

    /// The same training with another algorithm, or with none.
    fn with_algorithm(&self, name: Option<&str>) -> Options {
        Options {
            algorithm: name.map(str::to_owned),
            compare: false,
            epochs: Some(self.epochs()),
            momentum: Some(self.momentum()),
            ..self.clone()
        }
    }
}

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

/// Trains, reports and proves. Did every proof hold?
pub fn run(options: &Options) -> Result<bool, Failure> {
    let digits = Digits::load();
    check(options, &digits)?;
    println!(
        "{} images to learn from, {} to be tested on",
        digits.training.len(),
        digits.test.len()
    );
    if options.compare {
        return compare::run(options, &digits);
    }
    let group = new_group(options.ranks, options.backend.as_deref())?;
    let backend = group.backend();
    let trained = train(group, options, &digits, Table::Every)?;
    let reference = match options.no_reference {
        true => None,
        false => {
            let dense = options.with_algorithm(None);
            train(new_group(1, Some(backend))?, &dense, &digits, Table::Last)?.pop()
        }
    };
    if let Some(file) = &options.plot {
        let reference = reference.as_ref().map(|reference| &reference.epochs[..]);
        plot::draw(file, options.ranks, &trained[0].epochs, reference)?;
        println!("\ncurves drawn in {}", file.display());
    }
    println!();
    let proofs = proof::all(&trained, reference.as_ref(), &digits);
    proofs.iter().for_each(Proof::print);
    Ok(proofs.iter().all(|proof| proof.holds))
}

/// The ranks, on a backend of that name or on the best that has a device for each.
fn new_group(ranks: usize, backend: Option<&str>) -> Result<Group, Failure> {
    let settings = tributary::Options::new();
    let settings = match backend {
        Some(name) => settings.backend(name),
        None => settings,
    };
    Ok(Group::with_options(ranks, &settings)?)
}

/// Trains with the ranks of `group`; what comes out of each of them.
fn train(
    group: Group,
    options: &Options,
    digits: &Digits,
    table: Table,
) -> Result<Vec<Trained>, Failure> {
    let (ranks, backend) = (group.size(), group.backend());
    let steps = digits.training.len() / options.batch;
    let share = options.batch / ranks;
    println!(
        "\n{} on {backend}: an epoch is {steps} steps, a step {share} images a rank",
        report::ranks(ranks),
    );
    let processors = thread::available_parallelism()?.get();
    if ranks > processors {
        println!("(more than the {processors} processors: to wait for one is communicating too)");
    }
    let progress = Progress::new(options.epochs(), steps, table);
    let trained = ranks::on_every_rank(group, |communicator| {
        worker::train(communicator, digits, options, &progress)
    })?;
    progress.finish();
    Ok(trained)
}

/// Refuses what cannot be divided among the ranks, so that the average of the ranks' gradients is
/// the gradient of the whole batch.
fn check(options: &Options, digits: &Digits) -> Result<(), Failure> {
    let Options { ranks, batch, .. } = *options;
    if ranks == 0 || options.epochs() == 0 {
        return Err("there has to be at least one rank and one epoch".into());
    }
    if batch == 0 || batch % ranks != 0 {
        let next = batch.next_multiple_of(ranks).max(ranks);
        return Err(format!(
            "a batch of {batch} cannot be divided equally among {ranks} ranks; try --batch {next}"
        )
        .into());
    }
    if batch > digits.training.len() {
        let most = digits.training.len() / ranks * ranks;
        return Err(format!(
            "there are {} images to learn from, a batch of {batch} is more; try --batch {most}",
            digits.training.len()
        )
        .into());
    }
    Ok(())
}
