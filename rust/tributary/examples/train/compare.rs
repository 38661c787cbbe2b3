//! Trains with every algorithm in turn, and shows one table and one drawing.

use std::path::Path;

use tributary::SparseAllReduce;

use super::data::Digits;
use super::report::{self, say, Table};
use super::sparse::{largest, Traffic};
use super::worker::Trained;
use super::{options, plot, proof, train, Failure, Options};

/// One training.
pub struct Run {
    /// The algorithm.
    pub name: String,
    /// The result of each rank.
    pub trained: Vec<Trained>,
}

impl Run {
    /// Whether the ranks agree and none lost anything.
    pub fn holds(&self) -> bool {
        proof::same_parameters(&self.trained).holds && self.most(|traffic| traffic.leak) == 0.0
    }

    /// The largest value of all ranks; 0 without sparse exchange.
    pub fn most(&self, of: fn(&Traffic) -> f64) -> f64 {
        largest(self.trained.iter().filter_map(|rank| rank.traffic.as_ref()).map(of))
    }

    /// The mean seconds of a step, on the slowest rank.
    pub fn seconds(&self) -> f64 {
        largest(self.trained.iter().map(Trained::seconds))
    }

    /// The bytes that the busiest rank moved in a step.
    pub fn bytes(&self) -> f64 {
        largest(self.trained.iter().map(Trained::bytes))
    }
}

/// Trains with dense buckets and with each algorithm, then shows the results. Returns whether all
/// ranks agree and none lost anything.
pub fn run(options: &Options, digits: &Digits) -> Result<bool, Failure> {
    show(&trainings(options, digits)?, options)
}

/// Trains with dense buckets, then with each algorithm.
pub fn trainings(options: &Options, digits: &Digits) -> Result<Vec<Run>, Failure> {
    let names = SparseAllReduce::algorithms().map(Some);
    std::iter::once(None).chain(names).map(|name| training(options, name, digits)).collect()
}

/// Trains with algorithm `name`, or with dense buckets.
pub fn training(options: &Options, name: Option<&str>, digits: &Digits) -> Result<Run, Failure> {
    say(format_args!("\n{}", name.unwrap_or("no algorithm: dense, in buckets")));
    let trained = train(&options.with_algorithm(name), digits, Table::Last)?;
    Ok(Run { name: name.unwrap_or("(buckets)").to_owned(), trained })
}

/// Prints the table and draws the curves. Returns whether all runs hold.
pub fn show(runs: &[Run], options: &Options) -> Result<bool, Failure> {
    print(runs, options);
    let file = options.plot.as_deref().unwrap_or(Path::new(options::DRAWING));
    let curves: Vec<_> =
        runs.iter().map(|run| (run.name.as_str(), &run.trained[0].epochs[..])).collect();
    plot::compare(file, &curves)?;
    say(format_args!("\ncurves drawn in {}", file.display()));
    Ok(runs.iter().all(Run::holds))
}

fn print(runs: &[Run], options: &Options) {
    say(format_args!(
        "\n{}, density {} after {} epochs, momentum {}, {} epochs\n\
         ms/step: mean time of a step on the slowest rank\n\
         bytes: sent or received by a rank in a step, whichever is more, on the rank with the most \
         (sparse calls: counted; dense calls and the loss: by a ring allreduce)\n\
         words: of these, words of 4 bytes of received entries; leak: the sum that was lost",
        report::ranks(options.ranks),
        options.density(),
        options.warm_up,
        options.momentum,
        options.epochs,
    ));
    say(format_args!(
        "{:<16} {:>9} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9}  ranks",
        "algorithm", "accuracy", "loss", "ms/step", "bytes", "of dense", "words", "leak"
    ));
    for run in runs {
        say(format_args!("{}", row(run)));
        if let Some(traffic) = run.trained[0].traffic.as_ref().filter(|t| t.algorithm != run.name) {
            say(format_args!("{:16} (it chose {})", "", traffic.algorithm));
        }
    }
}

/// The line of the table.
pub fn row(run: &Run) -> String {
    let last = run.trained[0].epochs.last().expect("at least one epoch");
    let dense = run.trained[0].dense_bytes(run.trained.len());
    let part = match dense > 0.0 {
        true => format!("{:.2} %", 100.0 * run.bytes() / dense),
        false => "-".to_owned(),
    };
    let entries = run.trained[0].traffic.as_ref().map_or_else(
        || format!("{:>9} {:>9}", "", ""),
        |_| format!("{:>9.1} {:>9}", run.most(|t| t.words), run.most(|t| t.leak)),
    );
    format!(
        "{:<16} {:>7.2} % {:>9.5} {:>8.2} {:>9.0} {part:>9} {entries}  {}",
        run.name,
        100.0 * last.accuracy,
        last.loss,
        1e3 * run.seconds(),
        run.bytes(),
        if proof::same_parameters(&run.trained).holds { "equal" } else { "DIFFER" },
    )
}
