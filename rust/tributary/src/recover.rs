//! A loop that goes on when ranks are lost.

use std::thread;
use std::time::{Duration, Instant};

use crate::communicator::Communicator;
use crate::error::{Error, ErrorKind, Result};

/// Calls `body`; when ranks are lost meanwhile, calls it again with a communicator of the others.
///
/// Every rank calls this, on its own thread, and `body` is its training loop. A rank that vanishes
/// leaves the others waiting; the watchdog ends the communicator
/// ([`Options::call_timeout`](crate::Options::call_timeout)), and their calls return an error, which
/// `body` passes on. `recover` then [excludes](Communicator::shrink) the [lost](Communicator::lost)
/// ranks (also those in other processes), waiting at most `timeout` for the others to do so, and
/// calls `body` with the new communicator and the number of communicators before it. After an error
/// that a death may have caused, it waits up to 100 ms to learn who has died.
///
/// What outlives a call of `body` belongs to the variables that it captures: parameters, how far it
/// got, residuals. Ranks may have got one step less far than others, so `body` begins with a
/// broadcast of all that from rank 0. Sparse states belong to one communicator: `body` makes them
/// anew, and [imports](crate::SparseAllReduce::import) what the old ones exported, or begins with a
/// residual of zero. The residual of a lost rank is lost with it, unless that rank had exported it:
/// then one of the others [adds](crate::SparseAllReduce::import_added) it to its own. `body` ends
/// when all ranks have, for instance with a [barrier](crate::Scope::barrier): a rank that has
/// returned goes on with nobody.
///
/// Returns the value of `body`, or its error if the communicator still works, if nobody is known to
/// be lost, or if this rank is one of them (the others do not wait for it any more). A program that
/// knows more writes this loop itself.
///
/// ```
/// use std::time::Duration;
/// use tributary::{recover, Group, InPlace, Options, ReduceOp, Result, Stream};
/// let options = Options::new().backend("host").call_timeout(Duration::from_secs(1));
/// let ranks = Group::with_options(3, &options)?.split()?;
/// std::thread::scope(|threads| {
///     for comm in ranks {
///         threads.spawn(move || {
///             if comm.rank() == 1 {
///                 return std::mem::forget(comm); // it vanishes, and closes nothing
///             }
///             let mut step = 0.0_f32;
///             let size = recover(comm, Duration::from_secs(10), |comm, _| -> Result<usize> {
///                 let stream = Stream::new(comm.device())?;
///                 let mut from = vec![step];
///                 comm.scope(&stream, |s| s.broadcast(None, &mut from, 0))?;
///                 step = from[0];
///                 while step < 5.0 {
///                     let mut gradient = vec![1.0_f32];
///                     comm.scope(&stream, |s| s.allreduce(InPlace, &mut gradient, ReduceOp::Avg))?;
///                     step += gradient[0];
///                 }
///                 Ok(comm.size())
///             });
///             assert_eq!((size.unwrap(), step), (2, 5.0));
///         });
///     }
/// });
/// # Ok::<(), tributary::Error>(())
/// ```
pub fn recover<T, E: From<Error>>(
    mut comm: Communicator,
    timeout: Duration,
    mut body: impl FnMut(&mut Communicator, usize) -> Result<T, E>,
) -> Result<T, E> {
    for before in 0.. {
        let failure = match body(&mut comm, before) {
            Ok(value) => return Ok(value),
            Err(failure) => failure,
        };
        let lost = learn_lost(&mut comm);
        if lost.is_empty() || lost.contains(&comm.rank()) {
            return Err(failure);
        }
        comm = shrink(&mut comm, timeout)?;
    }
    unreachable!("the numbers have no end")
}

/// The connection that a death closes may fail a call before the side channel says who has died.
fn learn_lost(comm: &mut Communicator) -> Vec<usize> {
    let failure = comm.status().err().map(|failure| failure.kind());
    ask_until(Instant::now() + patience(failure), || comm.lost())
}

/// How long to wait for the news of a death that may have caused `failure`.
fn patience(failure: Option<ErrorKind>) -> Duration {
    match failure {
        Some(ErrorKind::Nccl | ErrorKind::System | ErrorKind::Closed) => Duration::from_millis(100),
        _ => Duration::ZERO,
    }
}

/// The first answer that is not empty; after `end` any.
fn ask_until(end: Instant, mut ask: impl FnMut() -> Vec<usize>) -> Vec<usize> {
    const PAUSE: Duration = Duration::from_millis(2);
    loop {
        let last = Instant::now() >= end;
        let answer = ask();
        if last || !answer.is_empty() {
            return answer;
        }
        thread::sleep(PAUSE);
    }
}

/// Processes hear of deaths a moment apart, so at first they may exclude different ranks.
fn shrink(comm: &mut Communicator, timeout: Duration) -> Result<Communicator> {
    const PAUSE: Duration = Duration::from_millis(10);
    let end = Instant::now() + timeout;
    loop {
        let left = end.saturating_duration_since(Instant::now()).max(PAUSE);
        let failure = match comm.shrink(&comm.lost(), left) {
            Ok(rest) => return Ok(rest),
            Err(failure) => failure,
        };
        let passes = matches!(failure.kind(), ErrorKind::Mismatch | ErrorKind::Closed);
        if !passes || Instant::now() + PAUSE >= end {
            return Err(failure);
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer, and how often it was asked for; `late` answers are empty.
    fn asked(wait: Duration, late: usize) -> (Vec<usize>, usize) {
        let mut times = 0;
        let answer = ask_until(Instant::now() + wait, || {
            times += 1;
            if times > late {
                vec![2]
            } else {
                Vec::new()
            }
        });
        (answer, times)
    }

    #[test]
    fn who_died_may_be_learnt_late() {
        assert_eq!(asked(Duration::from_secs(60), 0), (vec![2], 1));
        assert_eq!(asked(Duration::from_secs(60), 5), (vec![2], 6));
        let (start, wait) = (Instant::now(), Duration::from_millis(20));
        let (answer, times) = asked(wait, usize::MAX);
        assert!(answer.is_empty() && times > 1 && start.elapsed() >= wait);
    }

    #[test]
    fn what_no_death_causes_is_asked_once() {
        for failure in [Some(ErrorKind::Nccl), Some(ErrorKind::System), Some(ErrorKind::Closed)] {
            assert_eq!(asked(patience(failure), 3), (vec![2], 4));
        }
        for failure in [None, Some(ErrorKind::Aborted), Some(ErrorKind::Timeout)] {
            assert!(patience(failure).is_zero());
        }
        assert_eq!(asked(Duration::ZERO, usize::MAX), (vec![], 1));
    }
}
