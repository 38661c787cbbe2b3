//! Every algorithm in turn: the same training, one table, one drawing.

use std::fs;
use std::path::Path;

use tributary::SparseAllReduce;

use super::data::Digits;
use super::report::{self, Table};
use super::sparse::{largest, Traffic};
use super::worker::Trained;
use super::{new_group, plot, proof, train, Failure, Options};

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
    fn most(&self, of: fn(&Traffic) -> f64) -> f64 {
        largest(self.trained.iter().filter_map(|rank| rank.traffic.as_ref()).map(of))
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
    std::iter::once(None)
        .chain(names)
        .map(|name| {
            let group = new_group(options.ranks, options.backend.as_deref())?;
            println!("\n{}", name.unwrap_or("no algorithm: dense, as a list"));
            let trained = train(group, &options.with_algorithm(name), digits, Table::Last)?;
            Ok(Run { name: name.unwrap_or("(list)").to_owned(), trained })
        })
        .collect()
}

/// The table, the drawing, and whether all is well.
pub fn show(runs: &[Run], options: &Options) -> Result<bool, Failure> {
    print(runs, options);
    let file = options.plot.as_deref().unwrap_or(Path::new("target/compare.svg"));
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let curves: Vec<_> =
        runs.iter().map(|run| (run.name.as_str(), &run.trained[0].epochs[..])).collect();
    plot::compare(file, &curves)?;
    println!("\ncurves drawn in {}", file.display());
    Ok(runs.iter().all(Run::holds))
}

fn print(runs: &[Run], options: &Options) {
    println!(
        "\n{}, density {}, momentum {}, {} epochs; words: the most that a rank receives in a step; \
         leak: mass that was lost",
        report::ranks(options.ranks),
        options.density,
        options.momentum(),
        options.epochs(),
    );
    println!(
        "{:<16} {:>9} {:>9} {:>9} {:>8} {:>9}  ranks",
        "algorithm", "accuracy", "loss", "words", "of dense", "leak"
    );
    for run in runs {
        let last = run.trained[0].epochs.last().expect("at least one epoch");
        let same = proof::same_parameters(&run.trained).holds;
        let exchanged = run.trained[0].traffic.as_ref().map_or_else(
            || format!("{:>9} {:>8} {:>9}", "", "", ""),
            |traffic| {
                let words = run.most(|traffic| traffic.words);
                let part = match traffic.dense_words > 0.0 {
                    true => format!("{:.2} %", 100.0 * words / traffic.dense_words),
                    false => "-".to_owned(),
                };
                format!("{words:>9.1} {part:>8} {:>9}", run.most(|traffic| traffic.leak))
            },
        );
        println!(
            "{:<16} {:>7.2} % {:>9.5} {exchanged}  {}",
            run.name,
            100.0 * last.accuracy,
            last.loss,
            if same { "equal" } else { "DIFFER" },
        );
        if let Some(traffic) = run.trained[0].traffic.as_ref().filter(|t| t.algorithm != run.name) {
            println!("{:16} (it chose {})", "", traffic.algorithm);
        }
    }
}
