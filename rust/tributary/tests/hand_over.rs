//! Works that are handed over to another stream: it waits on the device, the host does not, and no
//! memory is given back before.

mod common;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{
    get, have, hold, on_host, options, ranks, skip, vec_on, warm_up, warm_up_all, Counted,
};
use tributary::{
    batch_all, Communicator, DType, DeviceBuffer, DeviceVec, Error, ErrorKind, Failed, Group,
    InPlace, ReduceOp, Result, SparseAllReduce, SparseOptions, Stream, UniqueBuffer, Work,
};

/// Opens `gate` in a moment. Returns what `drops` is then.
fn open_later(gate: mpsc::Sender<()>, drops: &Arc<AtomicUsize>) -> JoinHandle<usize> {
    let drops = Arc::clone(drops);
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        let before = drops.load(Ordering::SeqCst);
        drop(gate);
        before
    })
}

fn sum<B: UniqueBuffer + Send>(comm: &mut Communicator, buffer: B, stream: &Stream) -> Work<B> {
    comm.start(buffer, stream, |s, buffer| {
        let buffer = s.hold(buffer);
        s.allreduce(InPlace, buffer, ReduceOp::Sum)
    })
    .unwrap()
}

#[test]
fn a_chain_over_streams_and_communicators_is_waited_for_once() {
    ranks(2, |comm, stream| {
        let mut child = comm.split(Some(0), 0).unwrap().unwrap();
        let other = Stream::new(comm.device()).unwrap();
        warm_up(comm, stream);
        warm_up(&mut child, &other);
        for _ in 0..10 {
            let gate = hold(stream);
            let work = sum(comm, vec_on(comm, &[1.0_f32; 1000]), stream);
            // Of another communicator, so that only the event orders them.
            let work = work
                .then(&mut child, &other, |s, held| s.allreduce(InPlace, held[0], ReduceOp::Prod))
                .unwrap();
            let work = work
                .then(comm, stream, |s, held| s.allreduce(InPlace, held[0], ReduceOp::Sum))
                .unwrap();
            assert!(!stream.is_done().unwrap() && !other.is_done().unwrap());
            assert!(!work.is_done().unwrap());
            drop(gate);
            // On another thread, too.
            let buffer = thread::spawn(move || work.wait().unwrap()).join().unwrap();
            assert_eq!(get(&buffer), [8.0; 1000], "2 * (1 + 1) ^ 2");
        }
    });
}

#[test]
fn what_was_held_comes_in_its_order() {
    ranks(2, |comm, stream| {
        let other = Stream::new(comm.device()).unwrap();
        let rank = comm.rank() as f32;
        let buffers = (vec_on(comm, &[rank; 10]), vec![vec_on(comm, &[0.0_f32; 20])]);
        let work = comm
            .start(buffers, stream, |s, (send, list)| {
                let all = s.hold(&mut list[0]);
                let send = s.hold(send);
                s.allgather(send, all)
            })
            .unwrap();
        let work = work
            .then(comm, &other, |s, held| {
                assert_eq!((held[0].len(), held[1].len(), held.len()), (20, 10, 2));
                s.allreduce(held[0].slice(10..), held[1], ReduceOp::Sum)
            })
            .unwrap();
        // And a third one, which uses them no more.
        let (send, list) = work.then(comm, stream, |_, _| Ok(())).unwrap().wait().unwrap();
        assert_eq!(get(&send), [2.0; 10]);
        assert_eq!(get(&list[0])[9..11], [0.0, 1.0]);
    });
}

/// As kernels do, but on host.
#[test]
fn kernels_of_the_caller_belong_to_the_work() {
    if !on_host() {
        return skip("a CUDA host function cannot write device memory");
    }
    ranks(2, |comm, stream| {
        let other = Stream::new(comm.device()).unwrap();
        let gate = hold(stream);
        let work = sum(comm, vec_on(comm, &[1.0_f32; 10]), stream);
        let work = work
            .then(comm, &other, |_, held| {
                assert_eq!((held[0].dtype(), held[0].device()), (DType::F32, Some(other.device())));
                let (address, len) = (held[0].ptr() as usize, held[0].len());
                other.submit(move || {
                    // SAFETY: the work owns the memory, and waits for `other`.
                    let values =
                        unsafe { std::slice::from_raw_parts_mut(address as *mut f32, len) };
                    thread::sleep(Duration::from_millis(20));
                    values.iter_mut().for_each(|value| *value += 0.5);
                })
            })
            .unwrap();
        drop(gate);
        assert_eq!(get(&work.wait().unwrap()), [2.5; 10]);
    });
}

#[test]
fn a_queue_that_fails_or_panics_waits_for_the_work_before() {
    ranks(2, |comm, stream| {
        let other = Stream::new(comm.device()).unwrap();
        warm_up(comm, stream);
        let drops = Arc::new(AtomicUsize::new(0));
        let start = |comm: &mut Communicator| {
            let counted = Counted(Arc::clone(&drops), vec_on(comm, &[1.0_f32; 10]));
            comm.start(counted, stream, |s, counted| {
                let buffer = s.hold(&mut counted.1);
                s.allreduce(InPlace, buffer, ReduceOp::Sum)
            })
            .unwrap()
        };
        let gate = hold(stream);
        let work = start(comm);
        let opened = open_later(gate, &drops);
        let failed = work
            .then(comm, &other, |s, held| s.broadcast(None, held[0], 2))
            .expect_err("there is no rank 2");
        assert_eq!(failed.error.kind(), ErrorKind::InvalidArgument, "{failed}");
        assert!(other.is_done().unwrap());
        assert_eq!(opened.join().unwrap(), 0, "freed while it was in use");
        let counted = failed.buffers.unwrap();
        assert_eq!(get(&counted.1), [2.0; 10]);
        drop(counted);
        drops.store(0, Ordering::SeqCst);

        let gate = hold(stream);
        let work = start(comm);
        let opened = open_later(gate, &drops);
        let queue = || work.then(comm, &other, |_, _| panic!("on purpose")).map(drop).map_err(drop);
        catch_unwind(AssertUnwindSafe(queue)).unwrap_err();
        assert_eq!(drops.load(Ordering::SeqCst), 1);
        assert!(other.is_done().unwrap());
        assert_eq!(opened.join().unwrap(), 0, "freed while it was in use");
        comm.status().unwrap();
    });
}

/// The communicator of a part before has ranks that never call: it is aborted, too.
#[test]
fn a_queue_that_fails_or_panics_depends_on_no_other_rank() {
    if !have(2) {
        return;
    }
    let options = options().close_timeout(Duration::from_millis(30));
    for panics in [false, true] {
        let mut pair = Group::with_options(2, &options).unwrap().split().unwrap();
        warm_up_all(&mut pair); // so that the call below does not wait for rank 1 inside
        let mut other = Group::with_options(1, &options).unwrap().split().unwrap().remove(0);
        let streams = [0, 1].map(|_| Stream::new(other.device()).unwrap());
        let work = sum(&mut pair[0], vec_on(&other, &[1.0_f32; 10]), &streams[0]);
        let queue = || {
            work.then(&mut other, &streams[1], |s, held| {
                assert!(!panics, "on purpose");
                s.broadcast(None, held[0], 2)
            })
        };
        match catch_unwind(AssertUnwindSafe(queue)) {
            Ok(failed) => assert!(failed.unwrap_err().buffers.is_some()),
            Err(_) => assert!(panics),
        }
        assert_eq!(pair[0].status().unwrap_err().kind(), ErrorKind::Aborted);
    }
}

/// The work that a refused `then` waits for may need calls that this thread has yet to make.
#[test]
fn a_refused_hand_over_does_not_wait_for_ever() {
    if !on_host() {
        return skip("on nccl the first call of a rank waits for the others");
    }
    let options = options().close_timeout(Duration::from_millis(30));
    let mut comms = Group::with_options(2, &options).unwrap().split().unwrap();
    let streams: Vec<_> = comms.iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
    let data = vec_on(&comms[0], &[1.0_f32; 10]);
    let work = sum(&mut comms[0], data, &streams[0]);
    let mut ranks: Vec<_> = comms.iter_mut().zip(&streams).collect();
    let mut failed = None;
    batch_all(&mut ranks, |ranks| {
        let (comm, stream) = &mut ranks[0];
        failed = work.then(comm, stream, |_, _| unreachable!()).err();
        Ok(())
    })
    .unwrap();
    let failed = failed.unwrap();
    assert_eq!(failed.error.kind(), ErrorKind::InvalidUsage, "{failed}");
    assert!(failed.error.detail().contains("the buffers are kept"), "{failed}");
    assert!(failed.buffers.is_none());
    comms[0].abort_handle().abort("the other rank never calls");
}

#[test]
fn a_work_that_cannot_go_on_is_waited_for() {
    ranks(1, |comm, stream| {
        let check = |failed: Failed<DeviceVec<f32>>, kind: ErrorKind, said: &str| {
            assert_eq!(failed.error.kind(), kind, "{failed}");
            assert!(failed.error.detail().contains(said), "{failed}");
            assert_eq!(get(&failed.buffers.unwrap()), [1.0; 10]);
        };
        let start = |comm: &mut Communicator| sum(comm, vec_on(comm, &[1.0_f32; 10]), stream);

        let work = start(comm);
        let mut failed = None;
        let unbatched = Stream::new(comm.device()).unwrap();
        comm.batch(&unbatched, |comm| {
            failed = work.then(comm, stream, |_, _| unreachable!()).err();
            Ok(())
        })
        .unwrap();
        check(failed.unwrap(), ErrorKind::InvalidUsage, "Work::then");

        if !on_host() {
            return skip("CUDA follows a stream that it does not know; one device");
        }
        let mut elsewhere = Group::on_devices(&[1], &options()).unwrap().split().unwrap().remove(0);
        let there = Stream::new(elsewhere.device()).unwrap();
        let failed = start(comm).then(&mut elsewhere, &there, |_, _| unreachable!()).unwrap_err();
        check(failed, ErrorKind::InvalidArgument, "`comm` is of");
        let failed = start(comm).then(comm, &there, |_, _| unreachable!()).unwrap_err();
        check(failed, ErrorKind::InvalidStream, "Work::then");
        // SAFETY: not followed, for host knows its streams.
        let nowhere = unsafe {
            Stream::from_raw(comm.device(), std::ptr::null_mut::<u8>().wrapping_add(8).cast())
        };
        let gate = hold(stream);
        let (work, start) = (start(comm), Instant::now());
        let opened = open_later(gate, &Arc::default());
        let failed = work.then(comm, &nowhere, |_, _| unreachable!()).unwrap_err();
        assert!(start.elapsed() >= Duration::from_millis(20));
        opened.join().unwrap();
        check(failed, ErrorKind::InvalidStream, "stream");
    });
}

/// The outcome of every part counts, whatever follows.
#[test]
fn a_chain_says_what_went_wrong_at_its_beginning() {
    ranks(2, |comm, stream| {
        let mut child = comm.split(Some(0), 0).unwrap().unwrap();
        let other = Stream::new(comm.device()).unwrap();
        let options = SparseOptions::new().algorithm("topka").k(3);
        let mut sparse = SparseAllReduce::new(comm, 100, DType::F32, &options).unwrap();
        const NAN: f32 = f32::NAN;
        for (first, on_child) in [(1.0, true), (NAN, true), (NAN, false), (1.0, false)] {
            let buffers = (vec_on(comm, &[first; 100]), vec_on(comm, &[1.0_f32; 100]));
            let work = comm
                .start(buffers, stream, |s, (gradient, result)| {
                    let result = s.hold(result);
                    s.sparse_allreduce(&mut sparse, &*gradient, result)
                })
                .unwrap();
            let next = if on_child { &mut child } else { &mut *comm };
            let work = work
                .then(next, &other, |s, held| s.allreduce(InPlace, held[0], ReduceOp::Sum))
                .unwrap();
            match work.wait() {
                Ok((_, result)) => {
                    let entries = get(&result).into_iter().filter(|value| *value != 0.0).count();
                    assert_eq!((first, entries), (1.0, 3));
                }
                Err(failed) => {
                    assert!(first.is_nan());
                    assert_eq!(failed.error.kind(), ErrorKind::NonFinite, "{failed}");
                    assert!(failed.buffers.is_some());
                }
            }
        }
        // A communicator that ended, too, though the next one goes on.
        let work = sum(&mut child, vec_on(comm, &[1.0_f32; 10]), stream);
        let work = work.then(comm, &other, |_, _| Ok(())).unwrap();
        comm.barrier(stream).unwrap();
        comm.wait(stream).unwrap();
        child.abort_handle().abort("on purpose");
        let failed = work.wait().unwrap_err();
        assert!(failed.error.is_aborted(), "{failed}");
        comm.barrier(stream).unwrap();
        comm.wait(stream).unwrap();
    });
}

/// A function whose error is a `Failed`, too, passes the buffers on with `?`.
#[test]
fn a_failed_start_loses_no_buffer() {
    fn chain(
        comm: &mut Communicator,
        buffer: DeviceVec<f32>,
        root: usize,
        stream: &Stream,
    ) -> Result<DeviceVec<f32>, Failed<DeviceVec<f32>>> {
        let work = comm.start(buffer, stream, |s, buffer| {
            let buffer = s.hold(buffer);
            s.broadcast(None, buffer, root)
        })?;
        work.then(comm, stream, |s, held| s.allreduce(InPlace, held[0], ReduceOp::Sum))?.wait()
    }
    ranks(2, |comm, stream| {
        let failed = chain(comm, vec_on(comm, &[1.0; 10]), 2, stream).unwrap_err();
        let buffer = chain(comm, failed.buffers.unwrap(), 1, stream).unwrap();
        assert_eq!(get(&buffer), [2.0; 10]);
        let fails = |comm: &mut Communicator| -> Result<(), Error> {
            chain(comm, vec_on(comm, &[1.0; 10]), 2, stream)?;
            Ok(())
        };
        assert_eq!(fails(comm).unwrap_err().kind(), ErrorKind::InvalidArgument);
    });
}

#[test]
fn a_work_is_handed_over_without_a_wait() {
    ranks(2, |comm, stream| {
        let next = Stream::new(comm.device()).unwrap();
        let copy = vec_on(comm, &[0.0_f32; 1000]);
        warm_up(comm, stream);
        let gate = hold(stream);
        let buffer = vec_on(comm, &[1.0_f32; 1000]);
        let work =
            comm.start(buffer, stream, |s, b| s.allreduce(InPlace, b, ReduceOp::Sum)).unwrap();
        // SAFETY: only `next` uses the buffer until it has been waited for.
        let buffer = unsafe { work.hand_over(&next) }.unwrap();
        // SAFETY: both live, untouched, until the wait.
        unsafe { comm.broadcast(Some(&buffer), &copy, 0, &next) }.unwrap();
        assert!(!stream.is_done().unwrap() && !next.is_done().unwrap());
        drop(gate);
        comm.wait(&next).unwrap();
        assert_eq!((get(&buffer), get(&copy)), (vec![2.0; 1000], vec![2.0; 1000]));
    });
}

#[test]
fn a_work_that_cannot_be_handed_over_is_waited_for() {
    if !on_host() {
        return skip("CUDA follows a stream that it does not know");
    }
    ranks(1, |comm, stream| {
        let (gate, start) = (hold(stream), Instant::now());
        let buffer = vec_on(comm, &[1.0_f32; 10]);
        let work =
            comm.start(buffer, stream, |s, b| s.allreduce(InPlace, b, ReduceOp::Sum)).unwrap();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            drop(gate);
        });
        // SAFETY: not followed, for host knows its streams.
        let nowhere = unsafe {
            Stream::from_raw(comm.device(), std::ptr::null_mut::<u8>().wrapping_add(8).cast())
        };
        // SAFETY: nothing else uses the buffer.
        let failed = unsafe { work.hand_over(&nowhere) }.unwrap_err();
        assert_eq!(failed.error.kind(), ErrorKind::InvalidStream);
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert_eq!(get(&failed.buffers.unwrap()), [1.0; 10]);
    });
}
