//! Threads for ranks: one each, and none is left waiting when another fails.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::OnceLock;
use std::thread;

use tributary::{Communicator, Group};

use super::Failure;

/// Runs `work` for every rank of `group`, each on a thread of its own, and returns what the ranks
/// return, in their order.
///
/// If one fails or panics, the others would wait for it for ever, in a collective that it will never
/// join. So its thread aborts the communicator first thing, and their calls return with an error.
/// The failure that comes back is the first one, not one of those that it brought about.
pub fn on_every_rank<T: Send>(
    group: Group,
    work: impl Fn(&mut Communicator) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let communicators = group.split()?;
    let abort = communicators[0].abort_handle();
    let cause = OnceLock::new();
    let run = |mut communicator: Communicator| {
        let rank = communicator.rank();
        let result = catch_unwind(AssertUnwindSafe(|| work(&mut communicator)));
        let failure = match result {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(error)) => format!("rank {rank}: {error}"),
            Err(_) => format!("rank {rank} panicked"),
        };
        let _ = cause.set(failure.clone()); // keeps the first
        abort.abort(&failure);
        None
    };
    let results: Vec<Option<T>> = thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> =
            communicators.into_iter().map(|rank| scope.spawn(move || run(rank))).collect();
        threads.into_iter().map(|thread| thread.join().expect("panics are caught")).collect()
    });
    match cause.into_inner() {
        None => Ok(results.into_iter().flatten().collect()),
        Some(failure) => Err(failure.into()),
    }
}
