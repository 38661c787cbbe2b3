//! Works that are dropped before they have run, and works that are asked: the host does not wait, and
//! no memory is given back before.

mod common;

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    alone, eventually, get, have, hold, on_host, options, ranks, ranks_with, skip, vec_on, warm_up,
    warm_up_all, Counted,
};
use tributary::{Communicator, DeviceVec, Failed, Group, InPlace, ReduceOp, Stream, Work};

fn sum(comm: &mut Communicator, drops: &Arc<AtomicUsize>, stream: &Stream) -> Work<Counted> {
    let counted = Counted(Arc::clone(drops), vec_on(comm, &[1.0_f32; 1000]));
    comm.start(counted, stream, |s, counted| {
        let buffer = s.hold(&mut counted.1);
        s.allreduce(InPlace, buffer, ReduceOp::Sum)
    })
    .unwrap()
}

/// A communicator of one rank.
fn single(close_timeout: Duration) -> Communicator {
    let options = options().close_timeout(close_timeout);
    Group::with_options(1, &options).unwrap().split().unwrap().remove(0)
}

fn count(drops: &AtomicUsize) -> usize {
    drops.load(Ordering::SeqCst)
}

#[test]
fn a_work_that_is_dropped_is_not_waited_for() {
    ranks(2, |comm, stream| {
        let drops = Arc::default();
        warm_up(comm, stream);
        let gate = hold(stream);
        let works: Vec<_> = (0..20).map(|_| sum(comm, &drops, stream)).collect();
        let start = Instant::now();
        drop(works);
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        assert!(!stream.is_done().unwrap());
        thread::sleep(Duration::from_millis(20));
        assert_eq!(count(&drops), 0, "freed while they were in use");
        drop(gate);
        // Without a call of the communicator.
        eventually("all are freed", || count(&drops) == 20);
        assert!(stream.is_done().unwrap());
        comm.status().unwrap();
    });
}

#[test]
fn a_work_that_has_run_is_dropped_at_once() {
    ranks(2, |comm, stream| {
        let drops = Arc::default();
        let work = sum(comm, &drops, stream);
        comm.wait(stream).unwrap();
        drop(work);
        assert_eq!(count(&drops), 1);
    });
}

/// Only the end of the last stream frees.
#[test]
fn a_chain_that_is_dropped_is_kept_to_its_end() {
    ranks(1, |comm, stream| {
        let drops = Arc::default();
        let other = Stream::new(comm.device()).unwrap();
        let gates = [hold(stream), hold(&other)];
        let work = sum(comm, &drops, stream)
            .then(comm, &other, |s, held| s.allreduce(InPlace, held[0], ReduceOp::Sum))
            .unwrap();
        drop(work);
        let [first, second] = gates;
        drop(first);
        stream.wait().unwrap();
        thread::sleep(Duration::from_millis(20));
        assert_eq!(count(&drops), 0, "freed while it was in use");
        drop(second);
        eventually("it is freed", || count(&drops) == 1);
    });
}

/// The work is dropped on one thread, its communicator on another, its stream before both.
#[test]
fn a_communicator_that_is_dropped_waits_for_buffers() {
    struct Slow(Counted);
    impl Drop for Slow {
        fn drop(&mut self) {
            thread::sleep(Duration::from_millis(50));
        }
    }
    ranks(1, |_, _| {
        let drops = Arc::default();
        let mut comm = single(Duration::from_secs(60));
        let stream = Stream::new(comm.device()).unwrap();
        let gate = hold(&stream);
        let slow = Slow(Counted(Arc::clone(&drops), vec_on(&comm, &[1.0_f32; 10])));
        let work = comm
            .start(slow, &stream, |s, slow| s.allreduce(InPlace, &mut slow.0 .1, ReduceOp::Sum))
            .unwrap();
        drop(stream);
        thread::spawn(move || drop(work)).join().unwrap();
        let opened = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            drop(gate);
        });
        drop(comm);
        assert_eq!(count(&drops), 1);
        opened.join().unwrap();
    });
}

/// Something else holds the stream for longer than the communicator's end waits.
#[test]
fn buffers_outlive_the_communicator_if_they_must() {
    if !on_host() {
        return skip("what holds the stream would hold the end of NCCL's communicator, too");
    }
    let drops = Arc::default();
    let mut comm = single(Duration::from_millis(20));
    let stream = Stream::new(comm.device()).unwrap();
    let gate = hold(&stream);
    let works = [sum(&mut comm, &drops, &stream), sum(&mut comm, &drops, &stream)];
    let [before, after] = works;
    drop(before);
    drop(comm);
    assert_eq!(count(&drops), 0);
    let start = Instant::now();
    drop(after);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    thread::sleep(Duration::from_millis(20));
    assert_eq!(count(&drops), 0, "freed while they were in use");
    drop(gate);
    eventually("both are freed", || count(&drops) == 2);
}

#[test]
fn an_abort_frees_what_waited_in_vain() {
    if !have(2) {
        return;
    }
    let _alone = alone();
    let options = options().close_timeout(Duration::from_secs(60));
    let mut comms = Group::with_options(2, &options).unwrap().split().unwrap();
    warm_up_all(&mut comms);
    let drops = Arc::default();
    let stream = Stream::new(comms[0].device()).unwrap();
    drop(sum(&mut comms[0], &drops, &stream));
    thread::sleep(Duration::from_millis(20));
    assert_eq!(count(&drops), 0, "freed while it was in use");
    comms[0].abort_handle().abort("the other rank never calls");
    eventually("it is freed", || count(&drops) == 1);
}

#[test]
fn a_work_that_is_forgotten_leaks_its_buffers() {
    let drops = Arc::default();
    ranks(2, |comm, stream| {
        mem::forget(sum(comm, &drops, stream));
        comm.wait(stream).unwrap();
    });
    assert_eq!(count(&drops), 0);
}

#[test]
fn a_drop_that_panics_keeps_nothing_else() {
    struct Panics(#[allow(dead_code)] DeviceVec<f32>);
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("on purpose")
        }
    }
    ranks(1, |comm, stream| {
        let drops = Arc::default();
        let gate = hold(stream);
        let panics = Panics(vec_on(comm, &[1.0_f32; 10]));
        let first = comm
            .start(panics, stream, |s, panics| s.allreduce(InPlace, &mut panics.0, ReduceOp::Sum))
            .unwrap();
        let second = sum(comm, &drops, stream);
        drop((first, second));
        drop(gate);
        eventually("the other is freed", || count(&drops) == 1);
        comm.scope(stream, |s| s.barrier()).unwrap();
    });
}

/// What a buffer's drop drops may have to wait, too.
#[test]
fn a_buffer_may_own_a_work() {
    ranks(1, |comm, stream| {
        let drops = Arc::default();
        let other = Stream::new(comm.device()).unwrap();
        let gates = [hold(stream), hold(&other)];
        // Calls of one communicator run in order, whichever streams they name.
        let mut child = comm.split(Some(0), 0).unwrap().unwrap();
        let inner = sum(&mut child, &drops, &other);
        let counted = Counted(Arc::clone(&drops), vec_on(comm, &[1.0_f32; 10]));
        let outer = comm.start((counted, inner), stream, |s, (counted, _)| {
            s.allreduce(InPlace, &mut counted.1, ReduceOp::Sum)
        });
        drop(outer.unwrap());
        let [first, second] = gates;
        drop(first);
        eventually("the outer one is freed", || count(&drops) == 1);
        thread::sleep(Duration::from_millis(20));
        assert_eq!(count(&drops), 1, "freed while it was in use");
        drop(second);
        eventually("the inner one is freed", || count(&drops) == 2);
    });
}

/// Asks until the work has run.
fn ask<B: Send>(mut work: Work<B>) -> Result<B, Failed<B>> {
    let start = Instant::now();
    loop {
        match work.try_wait() {
            Ok(waited) => return waited,
            Err(running) => work = running,
        }
        assert!(start.elapsed() < Duration::from_secs(20), "it runs for ever");
        thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn a_work_that_is_asked_returns_itself_or_its_buffers() {
    ranks(2, |comm, stream| {
        let drops = Arc::default();
        warm_up(comm, stream);
        let gate = hold(stream);
        let work = sum(comm, &drops, stream).try_wait().expect_err("the stream is held");
        assert!(!stream.is_done().unwrap());
        drop(gate);
        let counted = ask(work).unwrap();
        assert_eq!((get(&counted.1), count(&drops)), (vec![2.0; 1000], 0));
    });
}

#[test]
fn a_work_that_is_asked_tells_of_an_abort_and_returns_its_buffers() {
    if !have(2) {
        return;
    }
    let _alone = alone();
    let mut comms = Group::with_options(2, &options()).unwrap().split().unwrap();
    warm_up_all(&mut comms);
    let drops = Arc::default();
    let stream = Stream::new(comms[0].device()).unwrap();
    let work = sum(&mut comms[0], &drops, &stream).try_wait().expect_err("rank 1 has not called");
    comms[0].abort_handle().abort("on purpose");
    let failed = ask(work).map(drop).expect_err("it was aborted");
    assert!(failed.error.is_aborted(), "{failed}");
    assert!(failed.buffers.is_some() && count(&drops) == 0);
}

/// The thread that has the communicator waits inside a call for a rank that comes later.
#[test]
fn a_work_that_is_asked_waits_for_no_call_of_another_thread() {
    let meet = Barrier::new(2);
    ranks_with(2, &options().timeout(Duration::from_secs(60)), |comm, stream| {
        let work = sum(comm, &Arc::default(), stream);
        comm.wait(stream).unwrap();
        if comm.rank() == 1 {
            meet.wait();
            comm.split(None, 0).unwrap();
            drop(ask(work).unwrap());
            return;
        }
        thread::scope(|threads| {
            let asked = threads.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                let work = work.try_wait();
                meet.wait();
                let work = work.expect_err("the communicator is in a call");
                assert_eq!(get(&ask(work).unwrap().1), [2.0; 1000]);
            });
            comm.split(None, 0).unwrap();
            asked.join().unwrap();
        });
    });
}
