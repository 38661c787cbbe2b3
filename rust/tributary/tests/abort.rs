//! A rank that never calls, and the state afterwards.

mod common;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::{
    alone, error_of, get, have, on_host, options, ranks, stay_until_aborted, vec_on, warm_up_all,
};
use tributary::{
    CommState, Communicator, Error, ErrorKind, Group, InPlace, Options, ReduceOp, Stream, UniqueId,
};

/// The communicators of two ranks after a first collective.
fn pair_with(options: &Options) -> Option<[Communicator; 2]> {
    let mut comms = have(2).then(|| Group::with_options(2, options).unwrap().split().unwrap())?;
    warm_up_all(&mut comms);
    Some(comms.try_into().unwrap())
}

fn pair() -> Option<[Communicator; 2]> {
    pair_with(&options())
}

#[test]
fn a_missing_rank_is_given_up_from_another_thread() {
    let _alone = alone();
    let Some([mut here, mut missing]) = pair() else { return };
    let handle = here.abort_handle();
    assert!(!handle.is_aborted() && handle.status().is_ok());
    assert_eq!(handle.state(), CommState::Live);
    let waiting = thread::spawn(move || {
        let stream = Stream::new(here.device()).unwrap();
        let mut buffer = vec_on(&here, &[1.0_f32; 1000]);
        let result = here.scope(&stream, |s| s.allreduce(InPlace, &mut buffer, ReduceOp::Sum));
        (here, error_of(result))
    });
    thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished());
    handle.clone().abort("rank 1 never joined");
    handle.abort("a second reason");
    let (mut here, error) = waiting.join().unwrap();
    assert!(error.is_aborted() && !error.is_timeout());
    assert!(error.detail().contains("rank 1 never joined"), "{error}");
    // Also where the detail says it, what the status means stands there once.
    assert_eq!(error.to_string().matches("the communicator was aborted").count(), 1, "{error}");
    assert!(handle.is_aborted());
    assert_ne!(handle.state(), CommState::Live);

    // Every rank of the process is aborted, and says so until it is dropped.
    for comm in [&mut here, &mut missing] {
        assert!(error_of(comm.status()).is_aborted());
        let stream = Stream::new(comm.device()).unwrap();
        assert!(error_of(comm.barrier(&stream)).is_aborted());
        assert!(comm.counters().is_ok());
    }
    drop((here, missing));
    handle.abort("after the communicators are gone");
    let last = handle.clone();
    let error = thread::spawn(move || error_of(last.status())).join().unwrap();
    assert!(error.is_aborted() && error.detail().contains("rank 1 never joined"), "{error}");
    tributary::quiesce(Duration::from_secs(60)).unwrap();
    assert_eq!(handle.state(), CommState::Reclaimed);
}

#[test]
fn an_aborted_list_is_as_it_was_and_can_be_tried_again() {
    let _alone = alone();
    let Some([mut here, missing]) = pair() else { return };
    let stream = Stream::new(here.device()).unwrap();
    let before: Vec<f32> = (0..500).map(|i| i as f32).collect();
    let list = vec![vec_on(&here, &before), vec_on(&here, &before[..7])];
    let work = here.start(list, &stream, |s, list| s.allreduce_list(list, ReduceOp::Sum)).unwrap();
    assert!(!work.is_done().unwrap());
    here.abort_handle().abort("try again with the ranks that are left");
    let failed = work.wait().unwrap_err();
    assert!(failed.error.is_aborted());
    let mut list = failed.buffers.unwrap();
    assert_eq!(get(&list[0]), before);
    assert_eq!(get(&list[1]), before[..7]);
    let counters = here.counters().unwrap();
    assert_eq!((counters.lists_queued, counters.lists_committed), (2, 1)); // one to warm up
    drop((here, missing));

    // The one rank that is left.
    let id = UniqueId::of(common::backend()).unwrap();
    let mut alone = Communicator::with_options(&id, 0, 1, 0, &options()).unwrap();
    alone.scope(&stream, |s| s.allreduce_list(&mut list, ReduceOp::Avg)).unwrap();
    assert_eq!(get(&list[0]), before);
}

#[test]
fn a_drop_does_not_wait_for_ever() {
    let _alone = alone();
    let options = options().close_timeout(Duration::from_millis(200));
    let Some([mut here, there]) = pair_with(&options) else { return };
    let stream = Stream::new(here.device()).unwrap();
    let buffer = vec_on(&here, &[1.0_f32; 10]);
    let work = here.start(buffer, &stream, |s, b| s.allreduce(InPlace, b, ReduceOp::Sum)).unwrap();
    let start = Instant::now();
    drop(there);
    drop(here);
    let failed = work.wait().unwrap_err();
    assert!(
        matches!(failed.error.kind(), ErrorKind::Aborted | ErrorKind::Timeout | ErrorKind::Closed),
        "{failed}"
    );
    drop(stream);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

/// The error of a work of rank 0, whose communicator is dropped before the wait, after `end`. Rank 1
/// makes no call.
fn error_after_a_drop(
    options: &Options,
    end: impl FnOnce(&mut Communicator, Communicator),
) -> Option<(Error, Error)> {
    let [mut here, there] = pair_with(options)?;
    let (stream, handle) = (Stream::new(here.device()).unwrap(), here.abort_handle());
    let buffer = vec_on(&here, &[1.0_f32; 10]);
    let work = here.start(buffer, &stream, |s, b| s.allreduce(InPlace, b, ReduceOp::Sum)).unwrap();
    end(&mut here, there);
    drop(here);
    Some((work.wait().unwrap_err().error, error_of(handle.status())))
}

#[test]
fn a_work_whose_communicator_is_gone_tells_why_it_ended() {
    let _alone = alone();
    let plain = options().close_timeout(Duration::from_millis(100));
    let late = options().call_timeout(Duration::from_millis(100)).timed(true);
    let mut kept = None; // rank 1 stays
    let aborted = error_after_a_drop(&plain, |here, there| {
        here.abort_handle().abort("enough");
        kept = Some(there);
    });
    let timed_out = error_after_a_drop(&late, |here, there| {
        stay_until_aborted(here);
        kept = Some(there);
    });
    let left = error_after_a_drop(&plain, |here, there| {
        drop(there);
        stay_until_aborted(here);
    });
    for (found, kind, words) in [
        (aborted, ErrorKind::Aborted, "enough"),
        (timed_out, ErrorKind::Timeout, "rank 1 has not made it"),
        (left, ErrorKind::Closed, "rank 1 left after call"),
    ] {
        let Some((error, known)) = found else { return };
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.detail().contains(words), "{error}");
        assert_eq!(error, known);
    }
    drop(kept);
}

#[test]
fn a_work_whose_communicator_is_gone_tells_of_a_mismatch() {
    if !common::on_host() {
        return common::skip("takes calls that are compared on the stream");
    }
    let mismatch = error_after_a_drop(&options(), |here, mut there| {
        let stream = Stream::new(there.device()).unwrap();
        there.barrier(&stream).unwrap();
        stay_until_aborted(here);
    });
    let (error, known) = mismatch.unwrap();
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    assert_eq!(error, known);
}

#[test]
fn close_says_how_it_went() {
    ranks(2, |comm, stream| {
        let mut buffer = vec_on(comm, &[1_i32; 3]);
        comm.scope(stream, |s| s.allreduce(InPlace, &mut buffer, ReduceOp::Sum)).unwrap();
        assert_eq!(get(&buffer), [2; 3]);
    });
    let _alone = alone();
    let Some([here, there]) = pair() else { return };
    let other = thread::spawn(move || there.close(Duration::from_secs(10)));
    here.close(Duration::from_secs(10)).unwrap();
    other.join().unwrap().unwrap();

    let Some([mut here, there]) = pair() else { return };
    let stream = Stream::new(here.device()).unwrap();
    here.barrier(&stream).unwrap();
    let other = thread::spawn(move || there.close(Duration::from_millis(100)));
    let results = [here.close(Duration::from_millis(100)), other.join().unwrap()];
    let errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    let over = [ErrorKind::Closed, ErrorKind::Timeout];
    assert!(errors.iter().any(|error| over.contains(&error.kind())), "{errors:?}");
}

#[test]
fn ranks_are_dropped_in_any_order() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        if !have(3) {
            return;
        }
        let _alone = alone();
        let comms = Group::with_options(3, &options()).unwrap().split().unwrap();
        let handle = comms[0].abort_handle();
        let mut comms: Vec<_> = comms.into_iter().map(Some).collect();
        for rank in order {
            comms[rank] = None;
        }
        assert!(!handle.is_aborted());
    }
}

#[test]
fn a_group_is_aborted_as_a_whole() {
    if !have(2) {
        return;
    }
    let _alone = alone();
    let mut group = Group::with_options(2, &options()).unwrap();
    group.abort_handle().abort("enough");
    let error = error_of(group.status());
    assert!(error.is_aborted() && error.detail().contains("enough"), "{error}");
}

#[test]
fn a_group_waits_for_all_its_streams() {
    if !have(2) {
        return;
    }
    let _alone = alone();
    let mut group = Group::with_options(2, &options()).unwrap();
    let streams: Vec<Stream> =
        group.devices().iter().map(|&device| Stream::new(device).unwrap()).collect();
    let streams: Vec<&Stream> = streams.iter().collect();
    let (release, held) = mpsc::channel::<()>();
    streams[1].submit(move || held.recv().unwrap_or_default()).unwrap();
    let error = error_of(group.wait_for(Some(&streams), Duration::from_millis(50)));
    assert!(error.is_timeout() && error.detail().contains("trib_group_wait on rank 1"), "{error}");
    group.status().unwrap();
    drop(release);
    group.wait_for(Some(&streams), Duration::from_secs(20)).unwrap();
    group.wait_for(None, Duration::MAX).unwrap();
    let error = error_of(group.wait_for(Some(&streams[..1]), Duration::ZERO));
    assert!(error.detail().contains("1 streams for a group of 2"), "{error}");
}

#[test]
fn the_watchdog_gives_up_a_missing_rank() {
    let _alone = alone();
    let late = Duration::from_millis(300);
    let Some([mut here, mut missing]) = pair_with(&options().call_timeout(late).timed(true)) else {
        return;
    };
    let stream = Stream::new(here.device()).unwrap();
    let buffer = vec_on(&here, &[1.0_f32; 1000]);
    let begin = Instant::now();
    let work = here.start(buffer, &stream, |s, b| s.allreduce(InPlace, b, ReduceOp::Sum)).unwrap();
    let error = work.wait().unwrap_err().error;
    assert!(begin.elapsed() >= late && begin.elapsed() < Duration::from_secs(20));
    for error in [error, error_of(missing.status())] {
        assert!(error.is_timeout(), "{error}");
        assert!(error.detail().contains("rank 1 has not made it"), "{error}");
    }
}

#[test]
fn a_deadline_of_zero_is_the_shortest() {
    let _alone = alone();
    // There is no time to warm up, which nccl would need.
    let by_option = common::on_host().then(|| {
        let comms = Group::with_options(2, &options().call_timeout(Duration::ZERO));
        <[Communicator; 2]>::try_from(comms.unwrap().split().unwrap()).unwrap()
    });
    let by_call = pair().map(|mut comms| {
        comms[0].set_call_timeout(Duration::ZERO, true).unwrap();
        comms
    });
    for [mut here, _missing] in by_option.into_iter().chain(by_call) {
        let stream = Stream::new(here.device()).unwrap();
        let buffer = vec_on(&here, &[1.0_f32; 10]);
        let work = here.start(buffer, &stream, |s, b| s.allreduce(InPlace, b, ReduceOp::Sum));
        let begin = Instant::now();
        let error = work.unwrap().wait().unwrap_err().error;
        assert!(error.is_timeout() && begin.elapsed() < Duration::from_secs(20), "{error}");
    }
}

#[test]
fn a_wait_has_a_deadline_of_its_own() {
    let _alone = alone();
    let Some([mut here, mut other]) = pair() else { return };
    let streams = [Stream::new(here.device()).unwrap(), Stream::new(other.device()).unwrap()];
    let start = |comm: &mut Communicator, stream| {
        let buffer = vec_on(comm, &[1.0_f32; 1000]);
        comm.start(buffer, stream, |s, b| s.allreduce(InPlace, b, ReduceOp::Sum)).unwrap()
    };
    let mine = start(&mut here, &streams[0]);
    let error = error_of(here.wait_for(&streams[0], Duration::from_millis(50)));
    assert!(error.is_timeout() && error.detail().contains("rank 1 has not made it"), "{error}");
    here.status().unwrap();
    here.abort_handle().defer(Duration::MAX);
    here.set_call_timeout(Duration::from_millis(1), true).unwrap();
    here.set_call_timeout(Duration::MAX, false).unwrap();
    let theirs = start(&mut other, &streams[1]);
    here.wait_for(&streams[0], Duration::from_secs(20)).unwrap();
    other.wait_for(&streams[1], Duration::from_secs(20)).unwrap();
    assert_eq!(get(&mine.wait().unwrap()), [2.0; 1000]);
    assert_eq!(get(&theirs.wait().unwrap()), [2.0; 1000]);
}

/// What a mistake has ended: the waits and the status say which, later calls that it is over.
#[test]
fn a_wait_tells_of_the_mistake_that_ended_the_communicator() {
    if !common::on_host() {
        return common::skip("takes calls that are compared on the stream");
    }
    const LONG: Duration = Duration::from_secs(20);
    let [mut here, mut there] = pair().unwrap();
    let stream = Stream::new(here.device()).unwrap();
    let buffer = vec_on(&here, &[1.0_f32; 10]);
    let work = here.start(buffer, &stream, |s, b| s.allreduce(InPlace, b, ReduceOp::Sum));
    let other = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        let stream = Stream::new(there.device()).unwrap();
        there.barrier(&stream).unwrap();
        stream.wait().unwrap();
        (error_of(there.status()), there)
    });
    let interrupted = error_of(here.wait_for(&stream, LONG));
    let (theirs, there) = other.join().unwrap();
    let errors = [
        interrupted,
        error_of(here.wait_for(&stream, LONG)),
        error_of(here.wait_for(&stream, Duration::ZERO)),
        error_of(here.wait(&stream)),
        theirs,
        error_of(here.abort_handle().status()),
        work.unwrap().wait().unwrap_err().error,
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    }
    let error = error_of(here.barrier(&stream));
    assert!(error.is_aborted() && error.detail().contains("barrier"), "{error}");
    drop(there);
}

#[test]
fn a_wait_does_not_hold_up_works_on_other_threads() {
    let _alone = alone();
    let Some([mut here, mut other]) = pair() else { return };
    let [held, free] = [(); 2].map(|()| Stream::new(here.device()).unwrap());
    let theirs = Stream::new(other.device()).unwrap();
    let start = |comm: &mut Communicator, stream: &Stream| {
        let buffer = vec_on(comm, &[1.0_f32; 1000]);
        comm.start(buffer, stream, |s, b| s.allreduce(InPlace, b, ReduceOp::Sum)).unwrap()
    };
    let works = [(); 2].map(|()| (start(&mut here, &free), start(&mut other, &theirs)));
    let [(waited, _), (dropped, _)] = works;
    let mut kept = Vec::new(); // on CUDA memory is freed when all of the device has run, `held` too
    let (release, hold) = mpsc::channel::<()>();
    held.submit(move || hold.recv().unwrap_or_default()).unwrap();
    let (begin, patience) = (Instant::now(), Duration::from_secs(2));
    thread::scope(|threads| {
        let worker = threads.spawn(|| {
            thread::sleep(patience / 8); // the wait has begun
            let begin = Instant::now();
            kept.push(waited.wait().unwrap());
            if on_host() {
                drop(dropped);
            } else {
                kept.push(dropped.wait().unwrap());
            }
            begin.elapsed()
        });
        let error = error_of(here.wait_for(&held, patience));
        assert!(error.is_timeout() && begin.elapsed() >= patience, "{error}");
        let after = error.detail().split("after ").nth(1).unwrap().split(' ').next().unwrap();
        assert!(after.parse::<u128>().unwrap() >= patience.as_millis(), "{error}");
        let took = worker.join().unwrap();
        assert!(took < patience / 4, "{took:?}");
    });
    drop(release);
    here.wait_for(&held, Duration::from_secs(20)).unwrap();
}
