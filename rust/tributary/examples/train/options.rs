//! Command-line options, checked before the training begins.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Parser};
use tributary::{Backend, Device, SparseAllReduce, SparseOptions};

use super::data::Digits;
use super::report;
use super::vanish::Residuals;
use super::Failure;

/// The default file of --compare.
pub const DRAWING: &str = "target/compare.svg";

/// The default of --lr.
pub const RATE: f32 = 0.1;

/// Train a small network to read handwritten digits, data-parallel over several ranks.
#[derive(Clone, Parser)]
#[command(name = "train", version, group = ArgGroup::new("sparsely").args(["algorithm", "compare"]))]
pub struct Options {
    /// Ranks, one thread each (with --processes one process each); on nccl also one GPU each
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub ranks: usize,
    /// Backend: host or nccl [default: the best that has a device for every rank]
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// Start a process for each rank, which needs a backend that connects processes: nccl
    #[arg(long, conflicts_with = "compare")]
    pub processes: bool,
    /// This process is a rank of a job that torchrun, mpirun or srun has started: their variables
    /// say which, and how many there are. More than one need nccl
    #[arg(long, conflicts_with_all = ["ranks", "processes", "compare", "kill_rank"])]
    pub launched: bool,
    /// The rank of this process, which --processes has started
    #[arg(long, value_name = "R", hide = true, requires = "processes")]
    pub rank: Option<usize>,
    /// Passes over all training images
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub epochs: usize,
    /// Images in a step, on all ranks together
    #[arg(long, default_value_t = 96, value_name = "N")]
    pub batch: usize,
    /// Learning rate
    #[arg(long, default_value_t = RATE, value_name = "RATE", value_parser = rate)]
    pub lr: f32,
    /// Momentum: the fraction of the last step that is repeated
    #[arg(long, default_value_t = 0.9, value_name = "FRACTION", value_parser = momentum)]
    pub momentum: f32,
    /// Exchange the gradients sparsely: auto, topka, oktopk, ... [default: dense, in buckets]
    #[arg(long, value_name = "NAME", value_parser = algorithm)]
    pub algorithm: Option<String>,
    /// Fraction of the gradient's entries that a rank sends in a step, with --algorithm or
    /// --compare [default: 0.01]
    #[arg(long, value_name = "FRACTION", value_parser = density, requires = "sparsely")]
    pub density: Option<f64>,
    /// Epochs of --algorithm or --compare in which the density falls to --density
    #[arg(long, default_value_t = 3, value_name = "N", requires = "sparsely")]
    pub warm_up: usize,
    /// With --algorithm or --compare: clip each rank's gradients so that the norm of their average is
    /// about this; 0: never
    #[arg(long, default_value_t = 1.0, value_name = "NORM", value_parser = norm)]
    #[arg(requires = "sparsely")]
    pub clip_norm: f64,
    /// Train with every algorithm, and print one table
    #[arg(long)]
    pub compare: bool,
    /// Seed of the first parameters and of the order of the images
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Draw the curves in this file [default: not; with --compare target/compare.svg]
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Let rank R vanish, and the others go on: its thread ends without a word; with --processes
    /// its process is killed
    #[arg(long, value_name = "R", conflicts_with = "compare")]
    pub kill_rank: Option<usize>,
    /// How many steps rank R takes before it vanishes
    #[arg(long, default_value_t = 0, value_name = "S", requires = "kill_rank")]
    pub at_step: usize,
    /// With --algorithm: whether the others keep or drop what they have not sent yet (what the killed
    /// rank has not sent is lost: it would have had to export it before)
    #[arg(long, value_enum, default_value_t = Residuals::Keep, requires = "kill_rank")]
    pub residuals: Residuals,
    /// Do not train once more with a single rank, to compare with
    #[arg(long)]
    pub no_reference: bool,
}

impl Options {
    /// The options of a sparse exchange.
    pub fn sparse(&self) -> SparseOptions {
        let options = SparseOptions::new().density(self.density());
        let options = options.momentum(f64::from(self.momentum));
        self.algorithm.iter().fold(options, |options, name| options.algorithm(name))
    }

    /// The fraction of the gradient's entries that a rank sends in a step, after the warm-up.
    pub fn density(&self) -> f64 {
        self.density.unwrap_or(0.01)
    }

    /// The same in epoch `number`, from 0 on. In the warm-up of Deep Gradient Compression (section
    /// 3.3) it falls by the same factor from epoch to epoch: while the network still changes fast,
    /// little has to wait.
    pub fn density_in(&self, number: usize) -> f64 {
        let share = (number + 1) as f64 / (self.warm_up + 1) as f64;
        self.density().powf(share.min(1.0))
    }

    /// The momentum of the network's own steps: where gradients are exchanged sparsely, it is in
    /// the exchange.
    pub fn momentum_of_steps(&self) -> f32 {
        match self.algorithm {
            Some(_) => 0.0,
            None => self.momentum,
        }
    }

    /// The same training with another algorithm, or with none.
    pub fn with_algorithm(&self, name: Option<&str>) -> Options {
        Options { algorithm: name.map(str::to_owned), compare: false, plot: None, ..self.clone() }
    }
}

fn number<T: std::str::FromStr>(text: &str, fits: fn(&T) -> bool, what: &str) -> Result<T, String> {
    text.parse().ok().filter(fits).ok_or_else(|| format!("expected {what}"))
}

fn rate(text: &str) -> Result<f32, String> {
    number(text, |rate: &f32| rate.is_finite() && *rate > 0.0, "a number above 0")
}

fn momentum(text: &str) -> Result<f32, String> {
    number(text, |momentum| (0.0..1.0).contains(momentum), "a number from 0 on, below 1")
}

fn norm(text: &str) -> Result<f64, String> {
    number(text, |norm: &f64| norm.is_finite() && *norm >= 0.0, "a number from 0 on")
}

fn density(text: &str) -> Result<f64, String> {
    number(text, |density: &f64| *density > 0.0 && *density <= 1.0, "a number above 0, at most 1")
}

fn algorithm(text: &str) -> Result<String, String> {
    let names: Vec<&str> = SparseAllReduce::algorithms().collect();
    match names.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("expected one of {}", names.join(", "))),
    }
}

/// Refuses what cannot be done: more ranks than there are devices, a batch that cannot be divided
/// among the ranks (the average of their gradients is to be the gradient of the whole batch), a
/// drawing that cannot be written.
///
/// Returns the backend that will run.
pub fn check(options: &Options, digits: &Digits) -> Result<Backend, Failure> {
    if options.ranks == 0 || options.epochs == 0 {
        return Err("there has to be at least one rank and one epoch".into());
    }
    let backend = backend(options, digits)?;
    check_processes(options, backend)?;
    check_batch(options, digits.training.len())?;
    check_kill(options, digits.training.len())?;
    match &options.plot {
        Some(file) => check_drawing(file)?,
        None if options.compare => {
            fs::create_dir_all(Path::new(DRAWING).parent().expect("a folder"))?;
        }
        None => {}
    }
    Ok(backend)
}

/// The same for a rank of a job, of which no process knows all devices.
pub fn check_launched(options: &Options, digits: &Digits) -> Result<(), Failure> {
    if options.epochs == 0 {
        return Err("there has to be at least one epoch".into());
    }
    check_batch(options, digits.training.len())?;
    options.plot.as_deref().map_or(Ok(()), check_drawing)
}

/// The named backend, or the best that has a device for every rank. The library explains why a
/// backend is missing.
pub fn backend(options: &Options, digits: &Digits) -> Result<Backend, Failure> {
    let mut found = Vec::new();
    for backend in Backend::all() {
        if options.backend.as_deref().map_or(true, |name| name == backend.name()) {
            found.push((backend.devices()?, backend));
        }
    }
    if let Some(&(_, backend)) = found.iter().find(|(devices, _)| *devices >= options.ranks) {
        return Ok(backend);
    }
    let Some(&(devices, backend)) = found.iter().max_by_key(|(devices, _)| *devices) else {
        Device::get(options.backend.as_deref().unwrap_or("host"), 0)?;
        unreachable!("a device of no backend");
    };
    if devices == 0 {
        return Err(format!("{backend} has no device here, and every rank needs one").into());
    }
    let batch = fitting_batch(devices, options.batch, digits.training.len());
    Err(format!(
        "{} ranks need as many devices, and {backend} has {devices}; try --ranks {devices} \
         --batch {batch}",
        options.ranks
    )
    .into())
}

fn check_processes(options: &Options, backend: Backend) -> Result<(), Failure> {
    let ranks = options.ranks;
    if options.processes && ranks > 1 && backend.name() == "host" {
        return Err(format!(
            "--processes with {ranks} ranks needs nccl and {ranks} GPUs, for ranks on host are \
             threads of one process; leave --processes out, or let --backend nccl say what is \
             missing"
        )
        .into());
    }
    Ok(())
}

/// The nearest batch that divides among the ranks.
fn fitting_batch(ranks: usize, batch: usize, images: usize) -> usize {
    batch.next_multiple_of(ranks).max(ranks).min(images / ranks * ranks)
}

fn check_batch(options: &Options, images: usize) -> Result<(), Failure> {
    let Options { ranks, batch, .. } = *options;
    let better = fitting_batch(ranks, batch, images);
    if batch > images {
        return Err(format!(
            "there are {images} images to learn from, a batch of {batch} is more; try --batch {better}"
        )
        .into());
    }
    if batch != better {
        return Err(format!(
            "a batch of {batch} cannot be divided equally among {}; try --batch {better}",
            report::ranks(ranks)
        )
        .into());
    }
    Ok(())
}

fn check_kill(options: &Options, images: usize) -> Result<(), Failure> {
    let Some(rank) = options.kill_rank else { return Ok(()) };
    let steps = images / options.batch * options.epochs;
    if options.ranks < 2 {
        return Err(
            "a single rank cannot vanish and leave others; try --ranks 2 --kill-rank 1".into()
        );
    }
    if rank >= options.ranks {
        let last = options.ranks - 1;
        return Err(format!("the ranks are 0 to {last}; try --kill-rank {last}").into());
    }
    if options.at_step >= steps {
        let last = steps - 1;
        return Err(format!("the training has {steps} steps; try --at-step {last}").into());
    }
    Ok(())
}

/// Opens it for writing, and leaves everything as it was.
fn check_drawing(file: &Path) -> Result<(), Failure> {
    if !file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg")) {
        return Err(format!(
            "{} would be no SVG file; try --plot {}",
            file.display(),
            file.with_extension("svg").display()
        )
        .into());
    }
    let there = file.exists();
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(file)
        .map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
    if !there {
        fs::remove_file(file)?;
    }
    Ok(())
}
