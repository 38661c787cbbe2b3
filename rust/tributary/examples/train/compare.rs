//! Every algorithm in turn: the same training, one table, one drawing.

use std::path::Path;

use tributary::SparseAllReduce;

use super::data::Digits;
use super::report::{self, say, Table};
use super::sparse::{largest, Traffic};
use super::worker::Trained;
use super::{new_group, options, plot, proof, train, Failure, Options};

/// One training.
pub struct Run {
    /// The algorithm.
    pub name: String,
    /// What came out for each rank.
    pub trained: Vec<Trained>,
}

impl Run {
    /// The ranks agree, and nothing was lost on any.
    pub fn holds(&self) -> bool {
        proof::same_parameters(&self.trained).holds && self.most(|traffic| traffic.leak) == 0.0
    }

    /// The largest of all ranks; 0 if they did not exchange sparsely.
    pub fn most(&self, of: fn(&Traffic) -> f64) -> f64 {
        largest(self.trained.iter().filter_map(|rank| rank.traffic.as_ref()).map(of))
    }

    /// What the rank that moved most moved in a step.
    pub fn bytes(&self) -> f64 {
        largest(self.trained.iter().map(Trained::bytes))
    }
}

/// Trains with each algorithm, and with dense lists first; one table, one drawing. Is nothing lost by
/// any, and do the ranks agree?
pub fn run(options: &Options, digits: &Digits) -> Result<bool, Failure> {
    show(&trainings(options, digits)?, options)
}

/// The same training with each algorithm, and with dense lists first.
pub fn trainings(options: &Options, digits: &Digits) -> Result<Vec<Run>, Failure> {
    let names = SparseAllReduce::algorithms().map(Some);
    std::iter::once(None).chain(names).map(|name| training(options, name, digits)).collect()
}

/// The training with this algorithm, or with dense lists.
pub fn training(options: &Options, name: Option<&str>, digits: &Digits) -> Result<Run, Failure> {
    let group = new_group(options.ranks, options.backend.as_deref())?;
    say(format_args!("\n{}", name.unwrap_or("no algorithm: dense, as a list")));
    let trained = train(group, &options.with_algorithm(name), digits, Table::Last)?;
    Ok(Run { name: name.unwrap_or("(list)").to_owned(), trained })
}

/// The table, the drawing, and whether all is well.
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
        "\n{}, density {}, momentum {}, {} epochs; bytes: all that a rank sends in a step, or receives, \
         whichever is more, of the rank with the most (counted of sparse calls; what a ring allreduce \
         moves, of dense ones and the loss); words: of these, entries received, of 4 bytes; \
         leak: mass that was lost",
        report::ranks(options.ranks),
        options.density(),
        options.momentum(),
        options.epochs(),
    ));
    say(format_args!(
        "{:<16} {:>9} {:>9} {:>9} {:>8} {:>9} {:>9}  ranks",
        "algorithm", "accuracy", "loss", "bytes", "of dense", "words", "leak"
    ));
    for run in runs {
        let last = run.trained[0].epochs.last().expect("at least one epoch");
        let same = proof::same_parameters(&run.trained).holds;
        let dense = run.trained[0].dense_bytes(run.trained.len());
        let part = match dense > 0.0 {
            true => format!("{:.2} %", 100.0 * run.bytes() / dense),
            false => "-".to_owned(),
        };
        let chosen = run.trained[0].traffic.as_ref().map_or_else(
            || format!("{:>9} {:>9}", "", ""),
            |_| format!("{:>9.1} {:>9}", run.most(|t| t.words), run.most(|t| t.leak)),
        );
        say(format_args!(
            "{:<16} {:>7.2} % {:>9.5} {:>9.0} {part:>8} {chosen}  {}",
            run.name,
            100.0 * last.accuracy,
            last.loss,
            run.bytes(),
            if same { "equal" } else { "DIFFER" },
        ));
        if let Some(traffic) = run.trained[0].traffic.as_ref().filter(|t| t.algorithm != run.name) {
            say(format_args!("{:16} (it chose {})", "", traffic.algorithm));
        }
    }
}
