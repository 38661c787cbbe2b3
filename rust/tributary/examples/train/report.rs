//! The output during a training: a progress bar, and a line for each epoch.

use std::fmt;
use std::io::{self, Write};
use std::process;
use std::time::{Duration, Instant};

use indicatif::{BinaryBytes, ProgressBar, ProgressFinish, ProgressStyle};

use super::exchange::Moved;

/// Prints a line. If the reader goes away (`train | head -3`), ends the program, as SIGPIPE ends
/// one in C, instead of panicking.
pub fn say(line: fmt::Arguments<'_>) {
    if cfg!(test) {
        println!("{line}"); // which the test harness keeps
    } else if let Err(error) = writeln!(io::stdout(), "{line}") {
        if error.kind() != io::ErrorKind::BrokenPipe {
            eprintln!("train: standard output: {error}");
        }
        process::exit(EXIT_UNHEARD);
    }
}

/// The exit code that a shell reports for a program ended by SIGPIPE.
pub const EXIT_UNHEARD: i32 = 128 + 13;

/// One epoch as rank 0 saw it.
pub struct Epoch {
    /// From 1 on.
    pub number: usize,
    /// How many steps it had.
    pub steps: usize,
    /// Mean training loss over the epoch and over the ranks.
    pub loss: f32,
    /// Fraction of the test images that is recognised after it.
    pub accuracy: f64,
    /// Mean time of a step.
    pub step: Duration,
    /// Fraction of that from the end of this rank's backward pass to having the averages, so it
    /// includes the wait for the slowest rank. Dense buckets that are exchanged before are not in it:
    /// see [`Overlap`](super::overlap::Overlap).
    pub communicating: f64,
    /// Bytes that this rank sent and received.
    pub moved: Moved,
}

/// Which epochs get a line.
#[derive(Clone, Copy)]
pub enum Table {
    /// All.
    Every,
    /// The last one.
    Last,
}

/// The bar and the table of one training. Where standard error is no terminal there is no bar.
pub struct Progress {
    bar: ProgressBar,
    epochs: usize,
    table: Table,
    start: Instant,
}

impl Progress {
    /// For `epochs` epochs of `steps` steps, which start now. Prints the head of the table.
    pub fn new(epochs: usize, steps: usize, table: Table) -> Progress {
        say(format_args!(
            "epoch      loss   test accuracy   step time   communicating   rank 0 sent      received"
        ));
        Progress::of_process(epochs, steps, table)
    }

    /// The same for the process of one rank: another has printed the head.
    pub fn of_process(epochs: usize, steps: usize, table: Table) -> Progress {
        let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} steps, {eta} left")
            .expect("a valid template");
        let bar = ProgressBar::new((epochs * steps) as u64)
            .with_style(style)
            .with_finish(ProgressFinish::AndClear);
        Progress { bar, epochs, table, start: Instant::now() }
    }

    /// Another step is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Another epoch is done.
    pub fn epoch(&self, epoch: &Epoch) {
        if matches!(self.table, Table::Every) || epoch.number == self.epochs {
            self.bar.suspend(|| say(format_args!("{epoch}")));
        }
    }

    /// All steps are done.
    pub fn finish(self) {
        self.bar.finish_and_clear();
        say(format_args!("trained in {:.2} s", self.start.elapsed().as_secs_f64()));
    }
}

impl fmt::Display for Epoch {
    /// The line of the table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>5} {:>9.5} {:>13.2} % {:>8.3} ms {:>13.1} % {:>13} {:>13}",
            self.number,
            self.loss,
            100.0 * self.accuracy,
            1e3 * self.step.as_secs_f64(),
            100.0 * self.communicating,
            BinaryBytes(self.moved.sent as u64).to_string(),
            BinaryBytes(self.moved.received as u64).to_string(),
        )
    }
}

/// "1 rank", "2 ranks".
pub fn ranks(count: usize) -> String {
    format!("{count} rank{}", if count == 1 { "" } else { "s" })
}
