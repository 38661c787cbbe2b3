//! Every algorithm in turn: the same training, one table, one drawing.

use std::path::Path;

use tributary::SparseAllReduce;

use super::data::Digits;
use super::report::{self, Table};
use super::worker::Trained;
use super::{new_group, plot, proof, train, Failure, Options};

/// One training.
struct Run {
    name: String,
    trained: Vec<Trained>,
}

/// Trains with each algorithm, and with dense lists first. Is nothing lost by any, and do the ranks
/// agree?
pub fn run(options: &Options, digits: &Digits) -> Result<bool, Failure> {
    let mut runs = Vec::new();
    let names = SparseAllReduce::algorithms().map(Some);
    for name in std::iter::once(None).chain(names) {
        let group = new_group(options.ranks, options.backend.as_deref())?;
        println!("\n{}", name.unwrap_or("no algorithm: dense, as a list"));
        let trained = train(group, &options.with_algorithm(name), digits, Table::Last)?;
        runs.push(Run { name: name.unwrap_or("(list)").to_owned(), trained });
    }
    print(&runs, options);
    let file = options.plot.as_deref().unwrap_or(Path::new("compare.svg"));
    let curves: Vec<_> =
        runs.iter().map(|run| (run.name.as_str(), &run.trained[0].epochs[..])).collect();
    plot::compare(file, &curves)?;
    println!("\ncurves drawn in {}", file.display());
    Ok(runs.iter().all(holds))
}

/// The ranks agree, and nothing was lost on any.
fn holds(run: &Run) -> bool {
    proof::same_parameters(&run.trained).holds
        && run.trained.iter().all(|rank| rank.traffic.as_ref().map_or(0.0, |t| t.leak) == 0.0)
}

fn print(runs: &[Run], options: &Options) {
    println!(
        "\n{}, density {}, momentum {}, {} epochs; words a rank and step; leak: mass that was lost",
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
                let part = match traffic.dense_words > 0.0 {
                    true => format!("{:.2} %", 100.0 * traffic.words / traffic.dense_words),
                    false => "-".to_owned(),
                };
                let leak = run.trained.iter().flat_map(|rank| &rank.traffic).map(|t| t.leak);
                format!("{:>9.1} {part:>8} {:>9}", traffic.words, leak.fold(0.0, f64::max))
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
