//! One rank for each thread or process: what flodl tests of `NcclRankComm` and the other types, on
//! any backend.

mod common;

use std::thread;
use std::time::Duration;

use common::{alone, ranks, set_current_stream, GpuStream, NcclRankComm, NcclUniqueId, Tensor};
use tributary_flodl::{DType, Error, NcclAbortHandle, ReduceOp, NCCL_UNIQUE_ID_BYTES};

#[test]
fn a_rank_that_does_not_exist_is_refused() {
    let uid = NcclUniqueId::from_bytes([0; NCCL_UNIQUE_ID_BYTES]);
    let error = NcclRankComm::init_rank(2, 2, &uid).unwrap_err();
    assert!(matches!(&error, Error::Argument(what) if what.contains("rank 2")), "{error}");
}

#[test]
fn a_world_of_one_is_refused() {
    let uid = NcclUniqueId::from_bytes([0; NCCL_UNIQUE_ID_BYTES]);
    let error = NcclRankComm::init_rank(0, 1, &uid).unwrap_err();
    assert!(matches!(&error, Error::Argument(what) if what.contains("world_size")), "{error}");
}

#[test]
fn what_may_move_to_other_threads() {
    fn is_send<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    fn is_copied<T: Send + Sync + Clone>() {}
    is_copied::<NcclUniqueId>();
    is_shared::<NcclAbortHandle>();
    is_send::<NcclRankComm>();
    is_send::<common::NcclComms>();
    is_send::<common::OuterAverage>();
}

#[test]
fn an_id_is_its_bytes_and_does_not_show_them() {
    let Some(_alone) = alone(1) else { return };
    let uid = NcclUniqueId::new().unwrap();
    assert_eq!(NcclUniqueId::from_bytes(*uid.as_bytes()).as_bytes(), uid.clone().as_bytes());
    assert_ne!(uid.as_bytes(), NcclUniqueId::new().unwrap().as_bytes());
    assert_eq!(format!("{uid:?}"), "NcclUniqueId(..)");
}

#[test]
fn init_and_reduce() {
    let Some(_alone) = alone(2) else { return };
    ranks(2, |comm| {
        assert_eq!(comm.world_size(), 2);
        assert_eq!(
            format!("{comm:?}"),
            format!("NcclRankComm {{ rank: {}, world_size: 2 }}", comm.rank())
        );
        let tensor = Tensor::full(64, 10.0 * (comm.rank() + 1) as f32, comm.rank());
        comm.all_reduce(&[&tensor], ReduceOp::Avg).unwrap();
        assert_eq!(tensor.to_vec(), [15.0; 64]);
    });
}

/// Each call that names a stream is on that one, and one that names none on the thread's current
/// stream: while it is held, the work does not run.
#[test]
fn on_a_stream_or_the_current_one() {
    type Call = fn(&NcclRankComm, &Tensor, &GpuStream) -> common::Result<()>;
    let named: [Call; 4] = [
        |comm, tensor, stream| comm.all_reduce_on_stream(&[tensor], ReduceOp::Sum, stream),
        |comm, tensor, stream| comm.all_reduce_premul_sum(&[tensor], 1.0, Some(stream)),
        |comm, tensor, stream| comm.weighted_average(&[tensor], 1.0, Some(stream)),
        |comm, tensor, stream| comm.broadcast_on_stream(&[tensor], 1, stream),
    ];
    let current: [Call; 4] = [
        |comm, tensor, _| comm.all_reduce(&[tensor], ReduceOp::Sum),
        |comm, tensor, _| comm.all_reduce_premul_sum(&[tensor], 1.0, None),
        |comm, tensor, _| comm.weighted_average(&[tensor], 1.0, None),
        |comm, tensor, _| comm.broadcast(&[tensor], 1),
    ];
    let Some(_alone) = alone(2) else { return };
    ranks(2, |comm| {
        let stream = GpuStream::new(comm.rank());
        let mine = [3.0, 7.0][comm.rank()];
        for calls in [named, current] {
            for (call, expected) in calls.iter().zip([10.0, 10.0, 5.0, 7.0]) {
                let tensor = Tensor::full(32, mine, comm.rank());
                let held = stream.hold();
                call(&comm, &tensor, &stream).unwrap();
                assert!(tensor.is_still(&[mine; 32]));
                drop(held);
                stream.synchronize();
                assert_eq!(tensor.to_vec(), [expected; 32]);
            }
            set_current_stream(Some(stream));
        }
    });
}

#[test]
fn several_tensors_are_one_call() {
    let Some(_alone) = alone(2) else { return };
    ranks(2, |mut comm| {
        let first = comm.rank() == 0;
        let (a, b) = if first { (1.0, 100.0) } else { (3.0, 200.0) };
        let (a, b) = (Tensor::full(16, a, comm.rank()), Tensor::full(8, b, comm.rank()));
        let none = Tensor::new(&[], comm.rank());
        comm.all_reduce(&[&a, &none, &b], ReduceOp::Avg).unwrap();
        assert_eq!((a.to_vec(), b.to_vec()), (vec![2.0; 16], vec![150.0; 8]));
        assert_eq!(comm.communicator().counters().unwrap().lists_committed, 1);
        comm.all_reduce(&[], ReduceOp::Avg).unwrap();
    });
}

#[test]
fn broadcast() {
    let Some(_alone) = alone(3) else { return };
    ranks(3, |comm| {
        let tensor = Tensor::full(64, 0.0, comm.rank());
        for root in [2, 0, 1] {
            tensor.set(&[comm.rank() as f32; 64]);
            comm.broadcast(&[&tensor], root).unwrap();
            assert_eq!(tensor.to_vec(), [root as f32; 64]);
        }
        let error = comm.broadcast(&[&tensor], 3).unwrap_err();
        assert!(error.to_string().contains("root 3 is out of range"), "{error}");
    });
}

/// 0.75 * 10 + 0.25 * 20: the consensus, weighted with the work of each rank.
#[test]
fn a_factor_for_each_rank() {
    let Some(_alone) = alone(2) else { return };
    ranks(2, |comm| {
        let (value, factor) = [(10.0, 0.75), (20.0, 0.25)][comm.rank()];
        let tensor = Tensor::full(64, value, comm.rank());
        let error = comm
            .all_reduce_premul_sum(&[&tensor, &tensor.cast(DType::I32)], factor, None)
            .unwrap_err();
        assert!(error.to_string().contains("tensor 1 is i32, expected f32"), "{error}");
        comm.all_reduce_premul_sum(&[&tensor], factor, None).unwrap();
        assert_eq!(tensor.to_vec(), [12.5; 64]);
        let stream = GpuStream::new(comm.rank());
        comm.all_reduce_premul_sum(&[&tensor], factor, Some(&stream)).unwrap();
        stream.synchronize();
        assert_eq!(tensor.to_vec(), [12.5; 64]);
    });
}

/// The same with the weights themselves, which nobody has to add up.
#[test]
fn a_weight_for_each_rank() {
    let Some(_alone) = alone(3) else { return };
    ranks(3, |comm| {
        let (value, weight) = [(10.0, 300.0), (20.0, 100.0), (f32::NAN, 0.0)][comm.rank()];
        let tensor = Tensor::full(64, value, comm.rank());
        comm.weighted_average(&[&tensor], weight, None).unwrap();
        assert_eq!(tensor.to_vec(), [12.5; 64], "the idle rank gives nothing and receives all");
        tensor.set(&[value; 64]);
        let stream = GpuStream::new(comm.rank());
        comm.weighted_average(&[&tensor], 0.0, Some(&stream)).unwrap();
        stream.synchronize();
        assert_eq!(tensor.to_vec()[0].to_bits(), value.to_bits(), "nobody worked");
    });
}

/// A rank that waits for one that never calls returns when another thread aborts, and its tensors
/// are as they were.
#[test]
fn an_abort_ends_a_wait() {
    let Some(_alone) = alone(2) else { return };
    let mut pair = common::NcclComms::new(&common::gpus(2)).unwrap().split().unwrap();
    let (missing, waiting) = (pair.pop().unwrap(), pair.pop().unwrap());
    let handle = missing.abort_handle();
    assert!(!handle.is_aborted());
    let thread = thread::spawn(move || {
        let tensor = Tensor::full(1000, 7.0, 0);
        // On nccl the wait is in the call, which compares the calls of the ranks.
        let called = waiting.all_reduce(&[&tensor], ReduceOp::Sum);
        let values = tensor.to_vec();
        (waiting, called, values)
    });
    thread::sleep(Duration::from_millis(50));
    assert!(!thread.is_finished());
    handle.abort().unwrap();
    handle.abort().unwrap();
    let (mut waiting, called, values) = thread.join().unwrap();
    assert_eq!(values, [7.0; 1000]);
    assert!(called.map_or_else(|error| error.is_aborted(), |()| true));
    assert!(waiting.communicator().status().unwrap_err().is_aborted());
    for comm in [&waiting, &missing] {
        assert!(comm.abort_handle().is_aborted(), "an abort ends all ranks of the process");
        let error = comm.all_reduce(&[&Tensor::full(1, 1.0, comm.rank())], ReduceOp::Sum);
        assert!(error.unwrap_err().is_aborted());
    }
}

/// A handle outlives the communicator, which counts as aborted once it was dropped.
#[test]
fn an_abort_after_the_drop_does_nothing() {
    let Some(_alone) = alone(2) else { return };
    let handles = ranks(2, |comm| {
        let tensor = Tensor::full(4, 1.0, comm.rank());
        comm.all_reduce(&[&tensor], ReduceOp::Sum).unwrap();
        assert_eq!(tensor.to_vec(), [2.0; 4]);
        let handle = comm.abort_handle();
        assert!(!handle.is_aborted());
        handle
    });
    for handle in handles {
        assert!(handle.is_aborted());
        handle.abort().unwrap();
        assert_eq!(format!("{handle:?}"), "NcclAbortHandle { is_aborted: true }");
    }
}
