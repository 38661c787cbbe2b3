//! Scopes and works: whatever happens, no memory is given back while a stream may use it.

mod common;

use std::mem;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::{get, have, options, ranks, ranks_with, stay_until_aborted, vec_on, warm_up, Counted};
use tributary::{batch_all, Error, ErrorKind, Group, InPlace, ReduceOp, Stream};

#[test]
fn a_panic_in_a_scope_waits_for_what_was_queued() {
    ranks(2, |comm, stream| {
        let mut buffer = vec_on(comm, &[comm.rank() as f32 + 1.0; 100_000]);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            comm.scope(stream, |s| -> tributary::Result<()> {
                s.allreduce(InPlace, &mut buffer, ReduceOp::Sum)?;
                panic!("on purpose")
            })
        }))
        .unwrap_err();
        assert_eq!(*panic.downcast::<&str>().unwrap(), "on purpose");
        // All ranks joined, so the collective ran before the borrow ended.
        assert!(stream.is_done().unwrap());
        assert_eq!(get(&buffer)[99_999], 3.0);
        comm.status().unwrap();
    });
}

#[test]
fn a_panic_in_a_scope_that_no_other_rank_joins_aborts() {
    let options = options().close_timeout(Duration::from_millis(200));
    ranks_with(2, &options, |comm, stream| {
        warm_up(comm, stream);
        if comm.rank() == 1 {
            return stay_until_aborted(comm);
        }
        let mut buffer = vec_on(comm, &[1.0_f32; 10]);
        let start = Instant::now();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            comm.scope(stream, |s| -> tributary::Result<()> {
                s.allreduce(InPlace, &mut buffer, ReduceOp::Sum)?;
                panic!("on purpose")
            })
        }));
        assert!(panicked.is_err());
        assert!(start.elapsed() < Duration::from_secs(10));
        assert!(stream.is_done().unwrap());
        assert!(comm.abort_handle().is_aborted());
    });
}

#[test]
fn a_scope_returns_the_error_of_its_closure() {
    ranks(2, |comm, stream| {
        let mut buffer = vec_on(comm, &[1.0_f32; 10]);
        let mut short = vec_on(comm, &[1.0_f32; 3]);
        let error = comm
            .scope(stream, |s| {
                s.allreduce(InPlace, &mut buffer, ReduceOp::Sum)?;
                let held = s.hold(&mut short);
                s.allgather(held, held)
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidBuffer);
        assert_eq!(get(&buffer), [2.0; 10]);
        comm.status().unwrap();
    });
}

#[test]
fn a_batch_that_fails_queues_nothing() {
    ranks(2, |comm, stream| {
        let peer = 1 - comm.rank();
        let send = vec_on(comm, &[1_u8; 4]);
        let mut recv = vec_on(comm, &[0_u8; 4]);
        let mut other = vec_on(comm, &[0_u8; 4]);
        // The caller's own error: the send would wait for ever if it were queued.
        let error = comm
            .scope(stream, |s| {
                s.batch(|s| {
                    s.send(&send, peer)?;
                    let own: Result<(), Error> = s.allgather(&send, &mut other);
                    own
                })
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidBuffer);
        // The communicator is as good as before.
        comm.scope(stream, |s| {
            s.batch(|s| {
                s.send(&send, peer)?;
                s.recv(&mut recv, peer)
            })
        })
        .unwrap();
        assert_eq!(get(&recv), [1; 4]);
    });
}

/// One thread drives both ranks: what is queued, and what is not.
#[test]
fn batches_that_end_together() {
    if !have(2) {
        return;
    }
    let mut comms = Group::with_options(2, &options()).unwrap().split().unwrap();
    let streams: Vec<_> = comms.iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
    let data: Vec<_> =
        comms.iter().map(|comm| vec_on(comm, &[comm.rank() as f32 + 1.0; 5])).collect();
    let mut ranks: Vec<_> = comms.iter_mut().zip(&streams).collect();
    let mut sum = |fails: bool| {
        batch_all(&mut ranks, |ranks| {
            for ((comm, stream), data) in ranks.iter_mut().zip(&data) {
                // SAFETY: `data` lives, and is not touched, until its stream has been waited for.
                unsafe { comm.allreduce(data, data, ReduceOp::Sum, stream)? };
            }
            if fails {
                ranks[1].0.scope(ranks[1].1, |_| Ok(()))?;
            }
            Ok(())
        })
    };
    assert_eq!(sum(true).unwrap_err().kind(), ErrorKind::InvalidUsage);
    sum(false).unwrap();
    for ((comm, stream), data) in ranks.iter_mut().zip(&data) {
        comm.wait(stream).unwrap();
        assert_eq!(get(data), [3.0; 5]);
    }
}

/// A communicator that goes inside of its batch takes no other's with it: that is cancelled.
#[test]
fn a_batch_ends_also_if_another_is_gone() {
    let alone = || Group::with_options(1, &options()).unwrap().split().unwrap().remove(0);
    let (mut gone, mut left, mut spare) = (alone(), alone(), Some(alone()));
    let streams = [Stream::new(gone.device()).unwrap(), Stream::new(left.device()).unwrap()];
    let mut data = vec_on(&left, &[1.0_f32; 4]);
    let mut recv = vec_on(&left, &[-1.0_f32; 4]);
    let ended = batch_all(&mut [(&mut gone, &streams[0]), (&mut left, &streams[1])], |ranks| {
        // SAFETY: nothing is queued: see the end.
        unsafe { ranks[1].0.allreduce(&data, &data, ReduceOp::Sum, ranks[1].1)? };
        *ranks[0].0 = spare.take().unwrap();
        Ok(())
    });
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Closed);
    left.scope(&streams[1], |s| s.allreduce(&data, &mut recv, ReduceOp::Sum)).unwrap();
    assert_eq!(get(&recv), [1.0; 4]);
    left.batch(&streams[1], |_| Ok(())).unwrap();
    gone.scope(&streams[0], |s| s.allreduce(InPlace, &mut data, ReduceOp::Sum)).unwrap();
}

/// What a scope inside a batch calls would be queued when its borrows are over.
#[test]
fn no_scope_and_no_work_inside_a_batch() {
    ranks(1, |comm, stream| {
        let mut buffer = vec_on(comm, &[1.0_f32; 4]);
        let error = comm
            .batch(stream, |comm| {
                comm.scope(stream, |s| s.allreduce(InPlace, &mut buffer, ReduceOp::Sum))
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUsage);
        let failed = comm.batch(stream, |comm| {
            let work = comm.start(buffer, stream, |s, b| s.allreduce(InPlace, b, ReduceOp::Sum))?;
            Ok(work)
        });
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::InvalidUsage);
        let mut after = vec_on(comm, &[1.0_f32; 4]);
        comm.scope(stream, |s| s.allreduce(InPlace, &mut after, ReduceOp::Sum)).unwrap();
    });
}

#[test]
fn calls_of_a_batch_that_depend_on_each_other_are_refused() {
    ranks(2, |comm, stream| {
        let peer = 1 - comm.rank();
        let mut buffer = vec_on(comm, &[1_u8; 8]);
        let error = comm
            .scope(stream, |s| {
                let held = s.hold(&mut buffer);
                s.batch(|s| {
                    s.send(held.slice(..5), peer)?;
                    s.recv(held.slice(4..), peer)
                })
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidBuffer);
        comm.scope(stream, |s| {
            let held = s.hold(&mut buffer);
            s.batch(|s| {
                s.send(held.slice(..4), peer)?;
                s.recv(held.slice(4..), peer)
            })
        })
        .unwrap();
    });
}

#[test]
fn a_work_gives_its_buffers_back() {
    ranks(2, |comm, stream| {
        let buffers = (vec_on(comm, &[1.0_f32; 10]), vec_on(comm, &[2_i64; 20]));
        let work = comm
            .start(buffers, stream, |s, (a, b)| {
                s.allreduce(InPlace, a, ReduceOp::Sum)?;
                s.allreduce(InPlace, b, ReduceOp::Sum)
            })
            .unwrap();
        // Something else may be queued meanwhile, and another stream may wait for the work.
        let other = Stream::new(comm.device()).unwrap();
        other.wait_event(work.event()).unwrap();
        comm.barrier(&other).unwrap();
        other.wait().unwrap();
        assert!(work.is_done().unwrap());
        // From another thread, too.
        let (a, b) = thread::spawn(move || work.wait().unwrap()).join().unwrap();
        assert_eq!(get(&a), [2.0; 10]);
        assert_eq!(get(&b), [4; 20]);
    });
}

#[test]
fn a_work_outlives_its_communicator_and_its_stream() {
    ranks(2, |comm, stream| {
        let mut child = comm.split(Some(0), 0).unwrap().unwrap();
        let own = Stream::new(comm.device()).unwrap();
        let buffer = vec_on(comm, &[1.0_f32; 10]);
        let work =
            child.start(buffer, &own, |s, b| s.allreduce(InPlace, b, ReduceOp::Sum)).unwrap();
        drop(own);
        drop(child);
        assert_eq!(get(&work.wait().unwrap()), [2.0; 10]);
        comm.barrier(stream).unwrap();
        comm.wait(stream).unwrap();
    });
}

#[test]
fn a_work_that_cannot_be_queued_gives_its_buffers_back() {
    ranks(1, |comm, stream| {
        let buffers = (vec_on(comm, &[1.0_f32; 10]), vec_on(comm, &[1.0_f64; 10]));
        let failed = comm
            .start(buffers, stream, |s, (a, b)| s.allreduce(&*a, b, ReduceOp::Sum))
            .unwrap_err();
        assert_eq!(failed.error.kind(), ErrorKind::InvalidBuffer);
        assert_eq!(get(&failed.buffers.as_ref().unwrap().0), [1.0; 10]);
        // Printing an error with its sources prints it once.
        assert!(std::error::Error::source(&failed).is_none());
        assert_eq!(failed.to_string(), failed.error.to_string());
        let error: Error = failed.into();
        assert!(error.detail().contains("f32") && error.detail().contains("f64"), "{error}");
    });
}

#[test]
fn a_panic_while_starting_frees_the_buffers_afterwards() {
    let drops = Arc::new(AtomicUsize::new(0));
    ranks(2, |comm, stream| {
        let counted = Counted(Arc::clone(&drops), vec_on(comm, &[1.0_f32; 10]));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _ = comm.start(counted, stream, |s, counted| {
                s.allreduce(InPlace, &mut counted.1, ReduceOp::Sum)?;
                panic!("on purpose")
            });
        }));
        assert!(panicked.is_err());
        assert!(stream.is_done().unwrap());
    });
    assert_eq!(drops.load(Ordering::SeqCst), if have(2) { 2 } else { 0 });
}

/// Longer than the clock can count: the deadline must not overflow in a drop.
#[test]
fn a_timeout_without_end() {
    let options = options().close_timeout(Duration::MAX);
    let drops = Arc::new(AtomicUsize::new(0));
    ranks_with(2, &options, |comm, stream| {
        warm_up(comm, stream);
        thread::sleep(Duration::from_millis(50 * comm.rank() as u64));
        let mut buffer = vec_on(comm, &[1.0_f32; 10]);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            comm.scope(stream, |s| -> tributary::Result<()> {
                s.allreduce(InPlace, &mut buffer, ReduceOp::Sum)?;
                panic!("on purpose")
            })
        }));
        assert_eq!(*panicked.unwrap_err().downcast::<&str>().unwrap(), "on purpose");
        assert!(stream.is_done().unwrap());
        assert_eq!(get(&buffer), [2.0; 10]);
        let counted = Counted(Arc::clone(&drops), buffer);
        let work =
            comm.start(counted, stream, |s, b| s.allreduce(InPlace, &mut b.1, ReduceOp::Sum));
        drop(work.unwrap());
    });
    assert_eq!(drops.load(Ordering::SeqCst), if have(2) { 2 } else { 0 });
}

/// The calls of a batch must not outlive its stream, nor reach another communicator.
#[test]
fn a_batch_has_one_stream_and_one_communicator() {
    ranks(1, |comm, stream| {
        let other = Stream::new(comm.device()).unwrap();
        let error = comm.batch(stream, |comm| comm.barrier(&other)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUsage);
        assert!(error.detail().contains("the same stream"), "{error}");

        let mut child = comm.split(Some(0), 0).unwrap().unwrap();
        let short = Stream::new(comm.device()).unwrap();
        child
            .batch(&short, |inside| {
                inside.barrier(&short)?;
                mem::swap(inside, comm);
                Ok(())
            })
            .unwrap();
        drop(short);
        // `comm` is what was the child: its barrier was queued before its stream went.
        assert_eq!(comm.counters().unwrap().calls, 1);
        for comm in [comm, &mut child] {
            comm.scope(stream, |s| s.barrier()).unwrap();
        }
    });
}

#[test]
fn a_batch_that_panics_is_over() {
    ranks(2, |comm, stream| {
        let peer = 1 - comm.rank();
        let mut buffer = vec_on(comm, &[comm.rank() as u8; 8]);
        comm.scope(stream, |s| {
            let held = s.hold(&mut buffer);
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                s.batch(|s| -> tributary::Result<()> {
                    s.send(held, peer)?;
                    panic!("on purpose")
                })
            }));
            assert!(panicked.is_err());
            // Neither half-way in a batch, nor afraid of what that one used.
            s.allreduce(InPlace, held, ReduceOp::Sum)?;
            s.allreduce(InPlace, held, ReduceOp::Sum)
        })
        .unwrap();
        assert_eq!(get(&buffer), [2; 8]);
    });
}
