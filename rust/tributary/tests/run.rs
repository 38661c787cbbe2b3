//! A thread a rank: what they return, and how one that fails ends the others' waiting.

mod common;

use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use common::{alone, get, have, options, vec_on, warm_up, warm_up_all};
use tributary::{Communicator, Error, ErrorKind, Group, InPlace, ReduceOp, Result, Stream};

fn group(size: usize) -> Option<Group> {
    have(size).then(|| Group::with_options(size, &options()).unwrap())
}

/// Wait for a rank that has failed.
fn in_vain(comm: &mut Communicator) -> Result<()> {
    let stream = Stream::new(comm.device())?;
    let mut buffer = vec_on(comm, &[1.0_f32; 10]);
    comm.scope(&stream, |s| s.allreduce(InPlace, &mut buffer, ReduceOp::Sum))
}

#[test]
fn run_returns_values_in_rank_order() {
    let _alone = alone();
    let Some(group) = group(3) else { return };
    let add = [10, 20, 30]; // borrowed
    let values = group
        .run(|comm| -> Result<i32> {
            let stream = Stream::new(comm.device())?;
            let mut sum = vec_on(comm, &[add[comm.rank()]]);
            comm.scope(&stream, |s| s.allreduce(InPlace, &mut sum, ReduceOp::Sum))?;
            Ok(get(&sum)[0] + comm.rank() as i32)
        })
        .unwrap();
    assert_eq!(values, [60, 61, 62]);
}

/// A caller's own error.
#[derive(Debug)]
enum Failure {
    Library(Error),
    Own(usize),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Library(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Library(error) => error.fmt(f),
            Failure::Own(rank) => write!(f, "the disk of rank {rank} is full"),
        }
    }
}

#[test]
fn the_first_error_wins_and_aborts_the_others() {
    let _alone = alone();
    let Some(group) = group(3) else { return };
    let errors = Mutex::new(Vec::new());
    let failure = group
        .run(|comm| {
            warm_up(comm, &Stream::new(comm.device())?);
            if comm.rank() == 1 {
                return Err(Failure::Own(comm.rank()));
            }
            in_vain(comm).map_err(|error| {
                errors.lock().unwrap().push(error.clone());
                Failure::from(error)
            })
        })
        .unwrap_err();
    assert!(matches!(failure, Failure::Own(1)), "{failure}");
    let errors = errors.into_inner().unwrap();
    assert_eq!(errors.len(), 2);
    for error in errors {
        assert!(error.is_aborted(), "{error}");
        let reason = "rank 1 failed: the disk of rank 1 is full";
        assert!(error.detail().contains(reason), "{error}");
    }
}

#[test]
fn a_panic_goes_on_when_all_have_ended() {
    let _alone = alone();
    let Some(group) = group(2) else { return };
    let errors = Mutex::new(None);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        group.run(|comm| -> Result<()> {
            warm_up(comm, &Stream::new(comm.device())?);
            if comm.rank() == 1 {
                panic!("lost a file");
            }
            let result = in_vain(comm);
            *errors.lock().unwrap() = result.clone().err();
            result
        })
    }))
    .unwrap_err();
    assert_eq!(*panic.downcast::<&str>().unwrap(), "lost a file");
    let error = errors.into_inner().unwrap().unwrap();
    assert_eq!(error.kind(), ErrorKind::Aborted);
    assert!(error.detail().contains("rank 1 panicked: lost a file"), "{error}");
}

/// A thread that the caller has started himself.
#[test]
fn a_rank_that_panics_takes_its_communicator_with_it() {
    let _alone = alone();
    let Some(group) = group(2) else { return };
    let mut comms = group.split().unwrap();
    warm_up_all(&mut comms);
    let panics = comms.pop().unwrap();
    let waits = thread::spawn(move || in_vain(&mut comms[0]).unwrap_err());
    let panicked = thread::spawn(move || {
        let _comm = panics;
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    let error = waits.join().unwrap();
    assert!(error.is_aborted(), "{error}");
    assert!(error.detail().contains("rank 1 panicked"), "{error}");
}

#[test]
fn a_group_that_is_dropped_in_a_panic_is_aborted() {
    let _alone = alone();
    let Some(group) = group(2) else { return };
    let handle = group.abort_handle();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _group = group;
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert!(handle.is_aborted());
}

/// The result of `run`, and the errors of the other ranks.
type Left = (thread::Result<Result<Vec<()>>>, Vec<Error>);

/// Rank 1 leaves a scope with a call that rank 2 never makes, and without a deadline.
fn leaves_a_scope(leave: impl Fn(&mut Communicator, &Stream) -> Result<()> + Sync) -> Option<Left> {
    let _alone = alone();
    let options = options().close_timeout(Duration::MAX);
    let group = have(3).then(|| Group::with_options(3, &options).unwrap())?;
    let errors = Mutex::new(Vec::new());
    let rank = |comm: &mut Communicator| -> Result<()> {
        let stream = Stream::new(comm.device())?;
        warm_up(comm, &stream);
        let result = match comm.rank() {
            0 => in_vain(comm),
            1 => return leave(comm, &stream),
            _ => {
                let start = Instant::now();
                while comm.status().is_ok() && start.elapsed() < Duration::from_secs(30) {
                    thread::sleep(Duration::from_millis(1));
                }
                let status = comm.status();
                comm.abort_handle().abort("nobody has informed rank 2");
                status
            }
        };
        errors.lock().unwrap().extend(result.clone().err());
        result
    };
    let result = catch_unwind(AssertUnwindSafe(|| group.run(rank)));
    Some((result, errors.into_inner().unwrap()))
}

fn all_learned(errors: &[Error], reason: &str) {
    assert_eq!(errors.len(), 2);
    for error in errors {
        assert!(error.is_aborted() && error.detail().contains(reason), "{error}");
    }
}

#[test]
fn a_panic_in_a_scope_aborts_the_other_ranks() {
    let panics = |comm: &mut Communicator, stream: &Stream| {
        let mut buffer = vec_on(comm, &[1.0_f32; 10]);
        comm.scope(stream, |s| -> Result<()> {
            s.allreduce(InPlace, &mut buffer, ReduceOp::Sum)?;
            panic!("lost a file")
        })
    };
    let Some((result, errors)) = leaves_a_scope(panics) else { return };
    assert_eq!(*result.unwrap_err().downcast::<&str>().unwrap(), "lost a file");
    all_learned(&errors, "rank 1 panicked in a scope: lost a file");
}

#[test]
fn an_error_in_a_scope_aborts_the_other_ranks() {
    let fails = |comm: &mut Communicator, stream: &Stream| {
        let mut buffer = vec_on(comm, &[1.0_f32; 10]);
        let mut short = vec_on(comm, &[1.0_f32; 2]);
        comm.scope(stream, |s| {
            s.allreduce(InPlace, &mut buffer, ReduceOp::Sum)?;
            let held = s.hold(&mut short);
            s.allgather(held, held)
        })
    };
    let Some((result, errors)) = leaves_a_scope(fails) else { return };
    let error = result.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidBuffer, "{error}");
    all_learned(&errors, "rank 1 left a scope early: ");
    all_learned(&errors, error.detail());
}

#[test]
fn an_error_beats_the_panic_that_follows_from_it() {
    let _alone = alone();
    let Some(group) = group(2) else { return };
    let result = catch_unwind(AssertUnwindSafe(|| {
        group.run(|comm| {
            warm_up(comm, &Stream::new(comm.device())?);
            if comm.rank() == 0 {
                return Err(Failure::Own(0));
            }
            in_vain(comm).unwrap();
            Ok(())
        })
    }));
    assert!(matches!(result, Ok(Err(Failure::Own(0)))));
}

#[test]
fn an_error_that_cannot_be_shown_is_a_panic() {
    struct Mute;
    impl From<Error> for Mute {
        fn from(_: Error) -> Mute {
            Mute
        }
    }
    impl fmt::Display for Mute {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("no words")
        }
    }
    let _alone = alone();
    let Some(group) = group(2) else { return };
    let result = catch_unwind(AssertUnwindSafe(|| {
        group.run(|comm| if comm.rank() == 1 { Err(Mute) } else { Ok(()) })
    }));
    let panic = result.map(|values| values.map(|values| values.len()).ok()).unwrap_err();
    assert_eq!(*panic.downcast::<&str>().unwrap(), "no words");
}
