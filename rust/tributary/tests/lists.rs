//! Lists of tensors and their weighted average.

mod common;

use std::sync::{Arc, Mutex};

use common::{get, ranks, vec_on};
use tributary::{DeviceVec, ErrorKind, ReduceOp, UniqueBuffer, Weight};

#[test]
fn a_list_of_one_type() {
    for size in [1, 2, 3] {
        ranks(size, |comm, stream| {
            let mut list: Vec<DeviceVec<f32>> =
                (0..20).map(|i| vec_on(comm, &vec![(comm.rank() + i) as f32; i])).collect();
            comm.scope(stream, |s| s.allreduce_list(&mut list, ReduceOp::Sum)).unwrap();
            for (i, tensor) in list.iter().enumerate() {
                let expected = (0..size).map(|rank| (rank + i) as f32).sum::<f32>();
                assert_eq!(get(tensor), vec![expected; i]);
            }
            let counters = comm.counters().unwrap();
            assert_eq!((counters.lists_queued, counters.lists_committed), (1, 1));
        });
    }
}

#[test]
fn a_list_of_several_types() {
    ranks(2, |comm, stream| {
        let rank = comm.rank();
        let mut a = vec_on(comm, &[rank as f32 + 0.5; 3]);
        let mut b = vec_on(comm, &[rank as i64 + 1; 300]);
        let mut c = vec_on(comm, &[rank as f32; 1]);
        comm.scope(stream, |s| {
            let list: [&mut dyn UniqueBuffer; 3] = [&mut a, &mut b, &mut c];
            s.allreduce_list(list, ReduceOp::Sum)
        })
        .unwrap();
        assert_eq!(get(&a), [2.0; 3]);
        assert_eq!(get(&b), [3; 300]);
        assert_eq!(get(&c), [1.0]);
    });
}

#[test]
fn broadcast_of_a_list() {
    ranks(3, |comm, stream| {
        let rank = comm.rank();
        let mut list: Vec<DeviceVec<u8>> =
            (1..9).map(|i| vec_on(comm, &vec![(10 * rank + i) as u8; i])).collect();
        comm.scope(stream, |s| s.broadcast_list(&mut list, 1)).unwrap();
        for (tensor, i) in list.iter().zip(1..) {
            assert_eq!(get(tensor), vec![(10 + i) as u8; i]);
        }
    });
}

#[test]
fn weighted_average_with_a_weight_from_the_host() {
    ranks(2, |comm, stream| {
        // (1 * 4 + 3 * 8) / 4
        let (x, weight) = if comm.rank() == 0 { (4.0, 1.0) } else { (8.0, 3.0) };
        let mut a = vec_on(comm, &[x as f32; 100]);
        let mut b = vec_on(comm, &[x; 3]);
        let mut total = vec_on(comm, &[-1.0_f32]);
        comm.scope(stream, |s| {
            let list: [&mut dyn UniqueBuffer; 2] = [&mut a, &mut b];
            s.weighted_average(list, Weight::Host(weight), Some(&mut total))
        })
        .unwrap();
        assert_eq!(get(&a), [7.0; 100]);
        assert_eq!(get(&b), [7.0_f64; 3]);
        assert_eq!(get(&total), [4.0]);
    });
}

#[test]
fn weighted_average_with_a_weight_on_the_device() {
    ranks(2, |comm, stream| {
        let (x, weight) = if comm.rank() == 0 { (4.0_f32, 1.0_f32) } else { (8.0, 3.0) };
        let mut list = vec![vec_on(comm, &[x; 5]), vec_on(comm, &[-x; 50])];
        let weight = vec_on(comm, &[weight]);
        comm.scope(stream, |s| s.weighted_average(&mut list, Weight::Device(&weight), None))
            .unwrap();
        assert_eq!(get(&list[0]), [7.0; 5]);
        assert_eq!(get(&list[1]), [-7.0; 50]);
    });
}

#[test]
fn a_weight_of_zero_contributes_nothing_not_even_nan() {
    ranks(2, |comm, stream| {
        let (x, weight) = if comm.rank() == 0 { (f32::NAN, 0.0) } else { (8.0, 2.0) };
        let mut list = vec![vec_on(comm, &[x; 5])];
        comm.scope(stream, |s| s.weighted_average(&mut list, weight.into(), None)).unwrap();
        assert_eq!(get(&list[0]), [8.0; 5]);
    });
}

#[test]
fn a_total_of_zero_leaves_every_tensor() {
    ranks(2, |comm, stream| {
        let before = [comm.rank() as f32 + 0.25; 5];
        let mut list = vec![vec_on(comm, &before)];
        let mut total = vec_on(comm, &[-1.0_f32]);
        comm.scope(stream, |s| s.weighted_average(&mut list, 0.0.into(), Some(&mut total)))
            .unwrap();
        assert_eq!(get(&list[0]), before);
        assert_eq!(get(&total), [0.0]);
        assert_eq!(comm.counters().unwrap().lists_committed, 0);
    });
}

/// On every rank alike, and the communicator stays.
#[test]
fn an_average_reports_an_invalid_weight() {
    ranks(2, |comm, stream| {
        let rank = comm.rank();
        let before = [rank as f32 + 0.25; 5];
        let mut list = vec![vec_on(comm, &before)];
        let weight = [1.0, -1.0][rank];
        let error =
            comm.scope(stream, |s| s.weighted_average(&mut list, weight.into(), None)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NonFinite, "{error}");
        assert!(error.detail().contains("weight"), "{error}");
        assert_eq!(get(&list[0]), before);
        assert_eq!(comm.counters().unwrap().lists_refused, 1);

        let work = comm.start(list, stream, |s, list| s.weighted_average(list, 1.0.into(), None));
        let list = work.unwrap().wait().unwrap();
        assert_eq!(get(&list[0]), [0.75; 5]);
    });
}

/// Also when the communicator went first.
#[test]
fn a_work_knows_of_a_weight_when_its_communicator_is_gone() {
    for weight in [f32::NAN, 2.0] {
        ranks(2, |comm, stream| {
            let mut child = comm.split(Some(0), 0).unwrap().unwrap();
            let tensor = vec_on(comm, &[1.0_f32; 10]);
            let work = child
                .start(tensor, stream, |s, tensor| {
                    s.weighted_average([tensor], weight.into(), None)
                })
                .unwrap();
            drop(child);
            let due = if weight.is_nan() { Err(ErrorKind::NonFinite) } else { Ok(()) };
            assert_eq!(work.wait().map(drop).map_err(|failed| failed.error.kind()), due);
        });
    }
}

/// Two averages queued together cannot be told apart: the error says so.
#[test]
fn an_average_behind_one_that_was_refused_says_which_it_may_be() {
    ranks(1, |comm, stream| {
        let mut start = |weight: f32| {
            let tensor = vec_on(comm, &[1.0_f32; 10]);
            let queue = comm.start(tensor, stream, |s, tensor| {
                s.weighted_average([tensor], weight.into(), None)
            });
            queue.unwrap()
        };
        // CUDA loads a kernel at its first launch, for which it may wait until the device is idle: never
        // behind the lock.
        start(1.0).wait().unwrap();
        let lock = Arc::new(Mutex::new(()));
        let (held, wait) = (lock.lock().unwrap(), Arc::clone(&lock));
        stream.submit(move || drop(wait.lock())).unwrap();
        let (bad, good) = (start(f32::NAN), start(1.0));
        drop(held);
        for work in [bad, good] {
            let error = work.wait().unwrap_err().error;
            assert_eq!(error.kind(), ErrorKind::NonFinite);
            assert!(error.detail().contains("this or another weighted average"), "{error}");
        }
        let (bad, good) = (start(f32::NAN).wait(), start(1.0).wait());
        assert!(!bad.unwrap_err().error.detail().contains("another weighted average"));
        good.unwrap();
    });
}
