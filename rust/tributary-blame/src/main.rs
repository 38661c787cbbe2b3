//! `tributary-blame` reads the dumps that the flight recorders of several processes wrote, and says
//! which rank is to blame for a hang, and why.
//!
//! [`dump`] reads files; [`team`] puts the ranks of each communicator together; [`wait`] finds who
//! waits for whom and [`route`] follows that; [`differ`] compares the calls of ranks; [`judge`]
//! decides; [`sentence`], [`table`] and [`report`] say it, in the words of [`words`].

mod differ;
mod dump;
mod judge;
mod report;
mod route;
mod sentence;
mod table;
mod team;
#[cfg(test)]
mod tests;
mod wait;
mod words;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

const EXIT_STATUS: &str = "\
Exit status: 0 nothing is known to be wrong, 1 something is, 2 a file could not be read (the others
are judged).";

/// Says from the flight-recorder dumps of all processes which rank is to blame for a hang, and why.
///
/// Of several dumps of one rank the newest counts, and only the newest of a process for waits
/// between communicators.
#[derive(Parser)]
#[command(version, after_help = EXIT_STATUS)]
struct Arguments {
    /// Dumps, and folders in which to read every *.json.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Print the verdict as JSON.
    #[arg(long)]
    json: bool,
    /// Show every rank of every communicator.
    #[arg(long)]
    all: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (dumps, unreadable) = dump::read_all(&arguments.paths);
    for file in &unreadable {
        eprintln!("tributary-blame: {file}");
    }
    if dumps.is_empty() {
        eprintln!("tributary-blame: no dump to judge: name dumps, or folders that have some");
        return ExitCode::from(2);
    }
    let verdict = judge::judge(&dumps);
    let text = match arguments.json {
        true => report::json(&verdict, &unreadable),
        false => report::text(&verdict, &dumps, arguments.all),
    };
    // A reader that has gone, as `head`, wants no more.
    let _ = io::stdout().write_all(text.as_bytes());
    match (unreadable.is_empty(), verdict.findings.is_empty()) {
        (false, _) => ExitCode::from(2),
        (true, false) => ExitCode::from(1),
        (true, true) => ExitCode::SUCCESS,
    }
}
