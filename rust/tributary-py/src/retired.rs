//! What dropped works used, until their calls have run.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::event::Mark;
use crate::owner::without_gil;
use crate::work::Kept;

/// Of one stream, in the order of its calls.
type Line = VecDeque<(Arc<Mark>, Kept)>;

/// By stream: the calls of one run in order, so that its first tells of all behind it, and a stream
/// that waits for a rank keeps nothing of the others'.
type Lines = BTreeMap<(usize, usize), Line>;

/// Locked with the GIL and for moments only: no fork can come while it is locked.
static RETIRED: Mutex<Lines> = Mutex::new(BTreeMap::new());

fn retired() -> MutexGuard<'static, Lines> {
    RETIRED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps `kept` until the stream has passed `mark`: a later call or wait looks.
pub fn retire(mark: Arc<Mark>, kept: Kept) {
    let mut left = None;
    without_gil(|| left = (!mark.passed().unwrap_or(false)).then_some(mark));
    if let Some(mark) = left {
        retired().entry(mark.line()).or_default().push_back((mark, kept));
    }
}

/// Lets go what has run. The device may have failed, or a capture may have taken a stream: what
/// cannot be asked is kept.
pub fn sweep(py: Python<'_>) {
    let mut lines = mem::take(&mut *retired());
    if lines.is_empty() {
        return;
    }
    let free: Vec<Kept> = py.detach(|| lines.values_mut().flat_map(passed).collect());
    let mut newer = retired();
    for (stream, mut line) in lines.into_iter().filter(|(_, line)| !line.is_empty()) {
        let behind = newer.entry(stream).or_default();
        line.append(behind);
        *behind = line;
    }
    drop(newer); // what is freed may run code of Python, which may come here again
    drop(free);
}

fn passed(line: &mut Line) -> Vec<Kept> {
    let mut free = Vec::new();
    while line.front().is_some_and(|(mark, _)| mark.passed().unwrap_or(false)) {
        free.extend(line.pop_front().map(|(_, kept)| kept));
    }
    free
}
