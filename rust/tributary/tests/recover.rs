//! Ranks are lost, and the others go on.

mod common;

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use common::{alone, error_of, get, have, options, vec_on};
use tributary::{
    recover, Communicator, DType, Error, ErrorKind, Group, InPlace, ReduceOp, Result,
    SparseAllReduce, SparseOptions, Stream,
};

const LONG: Duration = Duration::from_secs(60);

/// `size` ranks, a thread each, whose calls have a deadline of a second.
fn each(size: usize, rank: impl Fn(Communicator) + Sync) {
    if !have(size) {
        return;
    }
    let _alone = alone();
    let options = options().call_timeout(Duration::from_secs(1));
    let comms = Group::with_options(size, &options).unwrap().split().unwrap();
    thread::scope(|threads| {
        for comm in comms {
            let rank = &rank;
            threads.spawn(move || rank(comm));
        }
    });
}

/// The sum over the ranks of 2 to the power of the rank.
fn sum(comm: &mut Communicator) -> Result<u32> {
    let stream = Stream::new(comm.device())?;
    let mut value = vec_on(comm, &[1_u32 << comm.rank()]);
    comm.scope(&stream, |s| s.allreduce(InPlace, &mut value, ReduceOp::Sum))?;
    Ok(get(&value)[0])
}

#[test]
fn the_watchdog_tells_who_is_lost() {
    each(3, |mut comm| {
        assert_eq!(sum(&mut comm).unwrap(), 7);
        assert_eq!(comm.lost(), []);
        if comm.rank() == 0 {
            return mem::forget(comm);
        }
        assert_eq!(sum(&mut comm).unwrap_err().kind(), ErrorKind::Timeout);
        assert_eq!(comm.lost(), [0]);
        let mut rest = comm.shrink(&comm.lost(), LONG).unwrap();
        assert_eq!((rest.rank(), rest.size(), rest.device()), (comm.rank() - 1, 2, comm.device()));
        drop(comm); // before the new one is used
        assert_eq!(sum(&mut rest).unwrap(), 3);
    });
}

#[test]
fn a_failed_attempt_can_be_repeated() {
    let unchanged = Barrier::new(3);
    each(3, |mut comm| {
        for excluded in [&[comm.rank()][..], &[3], &[0, 1, 2], &[usize::MAX]] {
            let error = error_of(comm.shrink(excluded, LONG));
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        }
        assert_eq!(sum(&mut comm).unwrap(), 7); // nothing has changed
        unchanged.wait(); // the next call aborts
        let excluded: &[usize] = if comm.rank() == 0 { &[2] } else { &[] };
        let error = error_of(comm.shrink(excluded, LONG));
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        assert!(comm.status().unwrap_err().is_aborted());
        let mut again = comm.shrink(&[], LONG).unwrap();
        assert_eq!(sum(&mut again).unwrap(), 7);
    });
}

#[test]
fn training_goes_on_without_the_ranks_that_vanish() {
    let finished = AtomicUsize::new(0);
    each(3, |comm| {
        let number = comm.rank();
        if number == 1 {
            let mut comm = mem::ManuallyDrop::new(comm);
            return assert_eq!(sum(&mut comm).unwrap(), 7);
        }
        let mut sums = Vec::new();
        let rebuilt = recover(comm, LONG, |comm, before| -> Result<usize> {
            while sums.len() < 4 {
                sums.push(sum(comm)?);
            }
            Ok(before)
        });
        assert_eq!((rebuilt.unwrap(), &sums[..]), (1, &[7, 3, 3, 3][..]));
        finished.fetch_add(1, Ordering::Relaxed);
    });
    assert!(finished.load(Ordering::Relaxed) == 2 || !have(3));
}

#[test]
fn an_error_that_loses_nobody_is_passed_on() {
    each(2, |comm| {
        let (mut calls, handle) = (0, comm.abort_handle());
        let failed = recover(comm, LONG, |_, _| -> Result<()> {
            calls += 1;
            handle.abort("by the program");
            handle.status()
        });
        assert!(failed.unwrap_err().is_aborted() && calls == 1);
    });
    each(1, |comm| {
        let failed: Result<(), Error> = recover(comm, LONG, |comm, _| error(comm));
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::InvalidArgument);
    });
}

fn error(comm: &mut Communicator) -> Result<()> {
    comm.shrink(&[7], LONG).map(|_| ())
}

#[test]
fn a_rank_that_counts_as_lost_gets_its_error() {
    each(2, |mut comm| {
        if comm.rank() == 0 {
            let mut rest = comm.shrink(&[1], LONG).unwrap();
            return assert_eq!(sum(&mut rest).unwrap(), 1);
        }
        let failed = recover(comm, LONG, |comm, _| sum(comm));
        assert!(failed.unwrap_err().detail().contains("excludes rank 1"));
    });
}

/// A state for four values, of which each call sends one.
fn sparse(comm: &mut Communicator) -> SparseAllReduce {
    let options = SparseOptions::new().algorithm("topka").k(1);
    SparseAllReduce::new(comm, 4, DType::F32, &options).unwrap()
}

/// The result of a sparse allreduce in which this rank's gradient is `gradient`.
fn sent(comm: &mut Communicator, state: &mut SparseAllReduce, gradient: [f32; 4]) -> Vec<f32> {
    let stream = Stream::new(comm.device()).unwrap();
    let mut gradient = vec_on(comm, &gradient);
    let mut result = vec_on(comm, &[0.0_f32; 4]);
    comm.scope(&stream, |s| s.sparse_allreduce(state, &mut gradient, &mut result)).unwrap();
    get(&result)
}

#[test]
fn residuals_are_kept() {
    each(3, |mut comm| {
        let stream = Stream::new(comm.device()).unwrap();
        let mut state = sparse(&mut comm);
        assert_eq!(sent(&mut comm, &mut state, [8.0, 4.0, 2.0, 1.0]), [24.0, 0.0, 0.0, 0.0]);
        if comm.rank() == 2 {
            return mem::forget((comm, state));
        }
        assert_eq!(sum(&mut comm).unwrap_err().kind(), ErrorKind::Timeout);
        let kept = state.export(&stream).unwrap(); // after the end of the communicator
        let mut rest = comm.shrink(&comm.lost(), LONG).unwrap();
        drop(comm);
        let mut state = sparse(&mut rest);
        state.import(&kept, &stream).unwrap();
        assert_eq!(sent(&mut rest, &mut state, [0.0; 4]), [0.0, 8.0, 0.0, 0.0]);
    });
}

/// Adds what this rank has not sent yet to what others have not.
fn add_residual(comm: &Communicator, state: &mut SparseAllReduce, sum: &Mutex<[f32; 4]>) {
    let stream = Stream::new(comm.device()).unwrap();
    let own = vec_on(comm, &[f32::NAN; 4]);
    // SAFETY: `own` is alive, and not used by others, until the stream has been waited for.
    unsafe { state.residual(&own, &stream) }.unwrap();
    stream.wait().unwrap();
    sum.lock().unwrap().iter_mut().zip(get(&own)).for_each(|(sum, own)| *sum += own);
}

#[test]
fn the_residual_of_a_lost_rank_is_taken_over() {
    let (before, after) = (Mutex::new([0.0; 4]), Mutex::new([0.0; 4]));
    let checkpoint = Mutex::new(Vec::new());
    let exported = Barrier::new(3);
    each(3, |mut comm| {
        let stream = Stream::new(comm.device()).unwrap();
        let (mut state, own) = (sparse(&mut comm), comm.rank() as f32 + 1.0);
        let result = sent(&mut comm, &mut state, [8.0, 4.0, 2.0, 1.0].map(|x| x * own));
        assert_eq!(result, [48.0, 0.0, 0.0, 0.0]);
        add_residual(&comm, &mut state, &before);
        let kept = state.export(&stream).unwrap();
        if comm.rank() == 2 {
            *checkpoint.lock().unwrap() = kept;
            exported.wait();
            return mem::forget((comm, state));
        }
        exported.wait();
        assert_eq!(sum(&mut comm).unwrap_err().kind(), ErrorKind::Timeout);
        let mut rest = comm.shrink(&comm.lost(), LONG).unwrap();
        let mut state = sparse(&mut rest);
        state.import(&kept, &stream).unwrap();
        if rest.rank() == 0 {
            state.import_added(&checkpoint.lock().unwrap(), &stream).unwrap();
        }
        add_residual(&rest, &mut state, &after);
        assert_eq!(sent(&mut rest, &mut state, [0.0; 4]), [0.0, 24.0, 0.0, 0.0]);
    });
    let (before, after) = (before.into_inner().unwrap(), after.into_inner().unwrap());
    assert_eq!(before, after);
    assert!(before == [0.0, 24.0, 12.0, 6.0] || !have(3));
}
