//! Symmetric memory: made, used, reached and freed by all ranks.

mod common;

use std::thread;
use std::time::Duration;

use common::{error_of, get, on_host, options, ranks, skip, vec_on};
use tributary::{
    batch_all, CallOptions, Communicator, DeviceVec, Element, ErrorKind, Failed, Group, InPlace,
    ReduceOp, Result, Stream, Symmetric, UniqueBuffer, Variant,
};

/// Memory with `values` in it.
fn memory_of<T: Element>(comm: &mut Communicator, stream: &Stream, values: &[T]) -> Symmetric<T> {
    let from = vec_on(comm, values);
    Symmetric::import(comm, &from, stream).unwrap()
}

fn read<T: Element>(comm: &mut Communicator, stream: &Stream, memory: &Symmetric<T>) -> Vec<T> {
    let mut to = DeviceVec::<T>::zeros(comm.device(), memory.len()).unwrap();
    comm.scope(stream, |s| s.copy(memory, &mut to)).unwrap();
    get(&to)
}

fn held(comm: &mut Communicator) -> u64 {
    comm.memory().unwrap().peer.bytes
}

fn failed<B>(result: Result<(), Failed<B>>) -> (ErrorKind, B) {
    let failed = result.expect_err("a call succeeded that must fail");
    (failed.error.kind(), failed.buffers.expect("the error returns it"))
}

#[test]
fn what_may_cross_threads() {
    fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Symmetric<f32>>();
}

#[test]
fn every_scope_takes_it() {
    for size in [1, 2, 3] {
        ranks(size, |comm, stream| {
            let (rank, symmetric) = (comm.rank(), CallOptions::new().variant(Variant::Symmetric));
            let mut a = memory_of(comm, stream, &[rank as f32 + 1.0; 300]);
            let mut b = Symmetric::<f32>::zeros(comm, 300).unwrap();
            assert_eq!(read(comm, stream, &b), [0.0; 300]);
            let sum = (size * (size + 1) / 2) as f32;
            comm.scope(stream, |s| s.allreduce_with(&a, &mut b, ReduceOp::Sum, symmetric)).unwrap();
            assert_eq!(read(comm, stream, &b), [sum; 300]);
            comm.scope(stream, |s| s.allreduce_with(InPlace, &mut a, ReduceOp::Max, symmetric))
                .unwrap();
            assert_eq!(read(comm, stream, &a), [size as f32; 300]);

            // As any other buffer, too.
            comm.scope(stream, |s| {
                s.allreduce_list([&mut a], ReduceOp::Sum)?;
                s.broadcast(None, &mut b, 0)
            })
            .unwrap();
            assert_eq!(read(comm, stream, &a), [(size * size) as f32; 300]);
            let mut all = vec_on(comm, &vec![0.0_f32; 300 * size]);
            comm.scope(stream, |s| s.allgather(&b, &mut all)).unwrap();
            assert_eq!(get(&all), vec![sum; 300 * size]);
            a.free().unwrap();
            b.free().unwrap();
        });
    }
}

#[test]
fn calls_of_blocks_take_it() {
    for size in [1, 2, 3] {
        ranks(size, |comm, stream| {
            let (rank, symmetric) = (comm.rank(), CallOptions::new().variant(Variant::Symmetric));
            let mut one = memory_of(comm, stream, &[rank as f32; 300]);
            let mut all = vec_on(comm, &vec![0.0_f32; 300 * size]);
            comm.scope(stream, |s| s.allgather_with(&one, &mut all, symmetric)).unwrap();
            let expected: Vec<f32> = (0..300 * size).map(|i| (i / 300) as f32).collect();
            assert_eq!(get(&all), expected);

            // Block i of rank r is 10 * r + i.
            let blocks: Vec<f32> = (0..300 * size).map(|i| (i / 300 + 10 * rank) as f32).collect();
            let mut from = memory_of(comm, stream, &blocks);
            comm.scope(stream, |s| s.alltoall_with(&from, &mut all, symmetric)).unwrap();
            let expected: Vec<f32> =
                (0..300 * size).map(|i| (rank + i / 300 * 10) as f32).collect();
            assert_eq!(get(&all), expected);
            let (max, last) = (ReduceOp::Max, size - 1);
            comm.scope(stream, |s| s.reduce_scatter_with(&from, &mut one, max, symmetric)).unwrap();
            assert_eq!(read(comm, stream, &one), [(10 * last + rank) as f32; 300]);
            comm.scope(stream, |s| s.reduce_scatter_with(InPlace, &mut from, max, symmetric))
                .unwrap();
            let own = &read(comm, stream, &from)[300 * rank..300 * (rank + 1)];
            assert_eq!(own, [(10 * last + rank) as f32; 300]);
            comm.scope(stream, |s| s.broadcast_with(InPlace, &mut one, last, symmetric)).unwrap();
            assert_eq!(read(comm, stream, &one), [(11 * last) as f32; 300]);
            let mut plain = vec_on(comm, &[0.0_f32; 300]);
            comm.scope(stream, |s| s.broadcast_with(&one, &mut plain, 0, symmetric)).unwrap();
            assert_eq!(get(&plain), [(11 * last) as f32; 300]);

            let factor = symmetric.factor(2.0);
            let error =
                error_of(comm.scope(stream, |s| s.broadcast_with(InPlace, &mut one, 0, factor)));
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            one.free().unwrap();
            from.free().unwrap();
        });
    }
}

#[test]
fn the_variant_asks_for_it() {
    ranks(2, |comm, stream| {
        let symmetric = CallOptions::new().variant(Variant::Symmetric);
        let mut memory = memory_of(comm, stream, &[1_i32; 4]);
        let mut plain = vec_on(comm, &[1_i32; 4]);
        let error =
            error_of(comm.scope(stream, |s| {
                s.allreduce_with(&plain, &mut memory, ReduceOp::Sum, symmetric)
            }));
        assert_eq!(error.kind(), ErrorKind::InvalidBuffer);
        assert!(error.detail().contains("`send`"), "{error}");
        let error =
            error_of(comm.scope(stream, |s| {
                s.allreduce_with(&memory, &mut plain, ReduceOp::Sum, symmetric)
            }));
        assert!(error.detail().contains("`recv`"), "{error}");
        comm.status().unwrap();
    });
}

#[test]
fn peers_reach_it() {
    if !on_host() {
        return skip("the addresses are those of a GPU");
    }
    ranks(3, |comm, stream| {
        let (rank, next) = (comm.rank(), (comm.rank() + 1) % 3);
        let memory = Symmetric::<u64>::zeros(comm, 5).unwrap();
        assert_eq!(memory.peer(rank).unwrap(), memory.as_ptr());
        assert_eq!(memory.as_ptr() as usize % 256, 0);
        comm.scope(stream, |s| s.barrier()).unwrap(); // the zeros are there, on all ranks
        let there = memory.peer(next).unwrap();
        assert_ne!(there, memory.as_ptr());
        // SAFETY: each rank writes the memory of another one, between calls that all ranks make.
        unsafe { there.add(4).write(rank as u64 + 10) };
        comm.scope(stream, |s| s.barrier()).unwrap();
        assert_eq!(read(comm, stream, &memory), [0, 0, 0, 0, (rank as u64 + 2) % 3 + 10]);

        let error = error_of(memory.peer(3));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.detail().contains("`rank` is 3"), "{error}");
        memory.free().unwrap();
    });
}

/// All ranks fail, and the one with the mistake is told of it.
#[test]
fn ranks_that_differ() {
    ranks(2, |comm, stream| {
        let (rank, before) = (comm.rank(), held(comm));
        let error = error_of(Symmetric::<f32>::zeros(comm, 10 + rank));
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        for len in [0, usize::MAX] {
            let len = [7, len][rank];
            // SAFETY: there is none to read.
            let error = error_of(unsafe { Symmetric::<f32>::uninit(comm, len) });
            let expected = [ErrorKind::Mismatch, ErrorKind::InvalidArgument];
            assert_eq!(error.kind(), expected[rank], "{error}");
        }
        let (floats, integers) = (vec_on(comm, &[1.0_f32; 3]), vec_on(comm, &[1_i32; 3]));
        let buffer: &dyn UniqueBuffer = if rank == 0 { &floats } else { &integers };
        let error = error_of(Symmetric::<f32>::import(comm, buffer, stream));
        let expected = [ErrorKind::Mismatch, ErrorKind::InvalidBuffer];
        assert_eq!(error.kind(), expected[rank], "{error}");
        assert_eq!(held(comm), before);
        comm.status().unwrap();
    });
}

#[test]
fn free_is_for_all_ranks() {
    ranks(2, |comm, stream| {
        let before = held(comm);
        let a = memory_of(comm, stream, &[1_i8; 100]);
        let b = memory_of(comm, stream, &[2_i8; 100]);
        assert!(held(comm) >= before + 200);
        let (first, second) = if comm.rank() == 0 { (a, b) } else { (b, a) };
        let (kind, first) = failed(first.free());
        assert_eq!(kind, ErrorKind::Mismatch);
        // Nothing was freed.
        assert_eq!(read(comm, stream, &first), [comm.rank() as i8 + 1; 100]);
        let (a, b) = if comm.rank() == 0 { (first, second) } else { (second, first) };
        a.free().unwrap();
        assert_eq!(read(comm, stream, &b), [2; 100]);
        b.free().unwrap();
        assert_eq!(held(comm), before);
        // What is dropped stays.
        drop(memory_of(comm, stream, &[3_i8; 100]));
        assert!(held(comm) >= before + 100);
    });
}

#[test]
fn no_other_communicator_takes_it() {
    ranks(2, |comm, stream| {
        let mut memory = memory_of(comm, stream, &[1.0_f32; 10]);
        let mut other = comm.split(Some(0), 0).unwrap().unwrap();
        let sum = ReduceOp::Sum;
        for call in 0..3 {
            let memory = &mut memory;
            let error = error_of(other.scope(stream, |s| match call {
                0 => s.allreduce(InPlace, memory, sum),
                1 => s.allreduce_list([memory], sum),
                _ => s.send(&*memory, 0),
            }));
            assert_eq!(error.kind(), ErrorKind::InvalidUsage);
            assert!(error.detail().contains("another communicator"), "{error}");
        }
        other.status().unwrap();
        memory.free().unwrap();
    });
}

#[test]
fn a_group_does_not_take_it() {
    if !common::have(1) {
        return;
    }
    let _alone = common::alone();
    let mut comm = Group::with_options(1, &options()).unwrap().split().unwrap().remove(0);
    let mut memory = Symmetric::<f32>::zeros(&mut comm, 10).unwrap();
    let mut group = Group::with_options(1, &options()).unwrap();
    let error = error_of(group.scope(None, |s| s.allreduce([&mut memory], ReduceOp::Sum)));
    assert_eq!(error.kind(), ErrorKind::InvalidUsage);
}

#[test]
fn it_ends_with_its_communicator() {
    ranks(2, |comm, stream| {
        let mut child = comm.split(Some(0), 0).unwrap().unwrap();
        let memory = memory_of(&mut child, stream, &[1.0_f32; 10]);
        child.close(Duration::from_secs(20)).unwrap();
        assert_eq!(error_of(memory.peer(0)).kind(), ErrorKind::Closed);
        let (kind, mut memory) = failed(memory.free());
        assert_eq!(kind, ErrorKind::Closed);
        let error =
            error_of(comm.scope(stream, |s| s.allreduce(InPlace, &mut memory, ReduceOp::Sum)));
        assert_eq!(error.kind(), ErrorKind::InvalidUsage);
        comm.status().unwrap();
    });
}

#[test]
fn an_abort_ends_its_calls() {
    ranks(2, |comm, stream| {
        let mut child = comm.split(Some(0), 0).unwrap().unwrap();
        let mut memory = memory_of(&mut child, stream, &[1.0_f32; 10]);
        comm.scope(stream, |s| s.barrier()).unwrap();
        child.abort_handle().abort("on purpose");
        let other = memory.peer(1 - comm.rank()).unwrap();
        assert_ne!(other, memory.as_ptr());
        let error =
            error_of(child.scope(stream, |s| s.allreduce(InPlace, &mut memory, ReduceOp::Sum)));
        assert!(error.is_aborted(), "{error}");
        assert_eq!(failed(memory.free()).0, ErrorKind::Aborted);
    });
}

#[test]
fn works_own_it() {
    ranks(2, |comm, stream| {
        let memory = memory_of(comm, stream, &[comm.rank() as f64; 1000]);
        let symmetric = CallOptions::new().variant(Variant::Symmetric);
        let work = comm
            .start(memory, stream, |s, memory| {
                s.allreduce_with(InPlace, memory, ReduceOp::Sum, symmetric)
            })
            .unwrap();
        let memory = work.wait().unwrap();
        assert_eq!(read(comm, stream, &memory), [1.0; 1000]);
        drop(comm.start(memory, stream, |s, memory| s.broadcast(None, memory, 1)).unwrap());
        comm.wait(stream).unwrap();
    });
}

#[test]
fn a_copy_is_of_two_buffers_of_one_kind() {
    ranks(2, |comm, stream| {
        let memory = memory_of(comm, stream, &[1.0_f32; 10]);
        let mut short = vec_on(comm, &[0.0_f32; 9]);
        let mut other = vec_on(comm, &[0_i32; 10]);
        let error = error_of(comm.scope(stream, |s| s.copy(&memory, &mut short)));
        assert!(error.detail().contains("to itself"), "{error}");
        let error = error_of(comm.scope(stream, |s| s.copy(&memory, &mut other)));
        assert!(error.detail().contains("to itself"), "{error}");
        let error = error_of(comm.scope(stream, |s| {
            let held = s.hold(&mut short);
            s.copy(held, held)
        }));
        assert!(error.detail().contains("overlaps"), "{error}");
        comm.status().unwrap();
    });
}

/// A rank alone copies, also when the others have left.
#[test]
fn a_copy_waits_for_nobody() {
    if !common::have(2) {
        return;
    }
    let _alone = common::alone();
    let mut comms = Group::with_options(2, &options()).unwrap().split().unwrap();
    let (left, right) = comms.split_at_mut(1);
    let both = [&mut left[0], &mut right[0]];
    let memories = thread::scope(|threads| {
        let threads = both.map(|comm| {
            threads.spawn(|| {
                let stream = Stream::new(comm.device()).unwrap();
                memory_of(comm, &stream, &[comm.rank() as f32 + 7.0; 10])
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    let closed = comms.remove(0);
    thread::scope(|threads| {
        threads.spawn(move || closed.close(Duration::from_secs(20)));
        let stream = Stream::new(comms[0].device()).unwrap();
        thread::sleep(Duration::from_millis(50));
        assert_eq!(read(&mut comms[0], &stream, &memories[1]), [8.0; 10]);
        drop(comms);
    });
}

/// "Not in a batch": the rank that is in one is told so, and the other is not left waiting.
#[test]
fn not_in_a_batch() {
    ranks(2, |comm, stream| {
        let rank = comm.rank();
        let error = if rank == 0 {
            error_of(batch_all(&mut [(comm, stream)], |ranks| {
                // SAFETY: there is none to read.
                unsafe { Symmetric::<f32>::uninit(ranks[0].0, 10) }
            }))
        } else {
            // SAFETY: as above.
            error_of(unsafe { Symmetric::<f32>::uninit(comm, 10) })
        };
        let expected = [ErrorKind::InvalidUsage, ErrorKind::Mismatch];
        assert_eq!(error.kind(), expected[rank], "{error}");
    });
}
