//! What the judge says of the dumps in `tests/dumps`, a folder for each hang, and of arbitrary ones.

use std::path::Path;

use crate::dump::{self, Dump};
use crate::judge::{judge, Finding};
use crate::sentence::sentence;

mod arbitrary;
mod findings;
mod format;

/// The dumps in the folder `name`.
fn dumps(name: &str) -> Vec<Dump> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dumps").join(name);
    let (dumps, unreadable) = dump::read_all(&[folder]);
    assert!(unreadable.is_empty(), "{unreadable:?}");
    assert!(!dumps.is_empty(), "no dumps in {name}");
    dumps
}

/// "kind [ranks] sentence" of each finding.
fn found(dumps: &[Dump]) -> Vec<String> {
    let verdict = judge(dumps);
    let found = |finding: &Finding| {
        format!("{} {:?} {}", finding.kind.name(), finding.ranks, sentence(&verdict, finding))
    };
    verdict.findings.iter().map(found).collect()
}
