//! All devices of a process: what flodl tests of `NcclComms`, on any backend.

mod common;

use common::{alone, gpus, Device, GpuStream, NcclComms, Tensor};
use tributary_flodl::{DType, Error, ReduceOp};

#[test]
fn one_device_is_refused() {
    for devices in [vec![], gpus(1)] {
        let error = NcclComms::new(&devices).unwrap_err();
        assert!(matches!(&error, Error::Argument(what) if what.contains("at least 2")), "{error}");
    }
}

#[test]
fn the_cpu_is_refused() {
    for devices in [[Device::CPU, Device::CPU], [Device::CUDA(0), Device::CPU]] {
        let error = NcclComms::new(&devices).unwrap_err();
        assert!(
            matches!(&error, Error::Argument(what) if what.contains("requires GPUs")),
            "{error}"
        );
    }
}

#[test]
fn a_device_twice_is_refused() {
    let Some(_alone) = alone(2) else { return };
    assert!(matches!(NcclComms::new(&[Device::CUDA(1); 2]), Err(Error::Tributary(_))));
}

#[test]
fn size_and_devices() {
    let Some(_alone) = alone(2) else { return };
    let comms = NcclComms::new(&gpus(2)).unwrap();
    assert_eq!(comms.size(), 2);
    assert_eq!(comms.devices(), &[Device::CUDA(0), Device::CUDA(1)]);
    assert_eq!(format!("{comms:?}"), "NcclComms { size: 2 }");
    // A device of the list is a rank, whatever its number.
    let turned = NcclComms::new(&[Device::CUDA(1), Device::CUDA(0)]).unwrap();
    let (first, second) = (Tensor::full(3, 5.0, 1), Tensor::full(3, -1.0, 0));
    turned.broadcast(&[&first, &second], 0).unwrap();
    assert_eq!(second.to_vec(), [5.0; 3]);
}

#[test]
fn broadcast() {
    let Some(_alone) = alone(2) else { return };
    let comms = NcclComms::new(&gpus(2)).unwrap();
    for (root, expected) in [(0, 42.0), (1, -7.0)] {
        let tensors = [Tensor::full(64, 42.0, 0), Tensor::full(64, -7.0, 1)];
        comms.broadcast(&[&tensors[0], &tensors[1]], root).unwrap();
        for tensor in &tensors {
            assert_eq!(tensor.to_vec(), [expected; 64]);
        }
    }
}

/// 2 * 3 over two ranks, and the others.
#[test]
fn every_reduction() {
    let Some(_alone) = alone(2) else { return };
    let comms = NcclComms::new(&gpus(2)).unwrap();
    let cases = [
        (ReduceOp::Sum, 6.5),
        (ReduceOp::Prod, 9.0),
        (ReduceOp::Max, 4.5),
        (ReduceOp::Min, 2.0),
        (ReduceOp::Avg, 3.25),
    ];
    for (number, (op, expected)) in cases.into_iter().enumerate() {
        assert_eq!(op as i32, number as i32);
        for len in [0, 1, 127, 128] {
            let tensors = [Tensor::full(len, 2.0, 0), Tensor::full(len, 4.5, 1)];
            comms.all_reduce(&[&tensors[0], &tensors[1]], op).unwrap();
            for tensor in &tensors {
                assert_eq!(tensor.to_vec(), vec![expected; len], "{op:?}");
            }
        }
    }
}

/// The work is on the streams that were named: while they are held, it does not run.
#[test]
fn on_streams() {
    let Some(_alone) = alone(2) else { return };
    let comms = NcclComms::new(&gpus(2)).unwrap();
    let streams = [GpuStream::new(0), GpuStream::new(1)];
    let lent = [&streams[0], &streams[1]];
    let tensors = [Tensor::full(32, 5.0, 0), Tensor::full(32, 7.0, 1)];
    let list = [&tensors[0], &tensors[1]];
    let held = streams.map(GpuStream::hold);
    comms.all_reduce_on_streams(&list, ReduceOp::Sum, &lent).unwrap();
    assert!(tensors[0].is_still(&[5.0; 32]) && tensors[1].is_still(&[7.0; 32]));
    drop(held);
    assert_eq!((tensors[0].to_vec(), tensors[1].to_vec()), (vec![12.0; 32], vec![12.0; 32]));
    tensors[1].set(&[3.0; 32]);
    let held = streams.map(GpuStream::hold);
    comms.broadcast_on_streams(&list, 1, &lent).unwrap();
    assert!(tensors[0].is_still(&[12.0; 32]));
    drop(held);
    assert_eq!((tensors[0].to_vec(), tensors[1].to_vec()), (vec![3.0; 32], vec![3.0; 32]));
}

#[test]
fn three_devices() {
    let Some(_alone) = alone(3) else { return };
    let comms = NcclComms::new(&gpus(3)).unwrap();
    assert_eq!(comms.size(), 3);
    let tensors = [1.0, 2.0, 3.0].map(|value| Tensor::full(64, value, value as usize - 1));
    comms.all_reduce(&tensors.iter().collect::<Vec<_>>(), ReduceOp::Sum).unwrap();
    for tensor in &tensors {
        assert_eq!(tensor.to_vec(), [6.0; 64]);
    }
}

/// Bad arguments are refused before anything is queued, so the next call works.
#[test]
fn bad_arguments_leave_the_group_usable() {
    let Some(_alone) = alone(2) else { return };
    let comms = NcclComms::new(&gpus(2)).unwrap();
    let (a, b) = (Tensor::full(8, 1.0, 0), Tensor::full(8, 2.0, 1));
    let streams = [GpuStream::new(0), GpuStream::new(1)];
    let refused = |result: common::Result<()>, what: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(what), "{error:?} does not contain {what:?}");
    };
    refused(comms.all_reduce(&[&a], ReduceOp::Sum), "expected 2 tensors");
    refused(comms.all_reduce(&[], ReduceOp::Sum), "expected 2 tensors");
    refused(comms.broadcast(&[&a, &b], 2), "out of range");
    let lists = [&a, &b];
    refused(
        comms.all_reduce_on_streams(&lists, ReduceOp::Sum, &[&streams[0]]),
        "expected 2 streams",
    );
    refused(
        comms.all_reduce_on_streams(&lists, ReduceOp::Sum, &[&streams[1], &streams[0]]),
        "`stream` is of",
    );
    refused(comms.all_reduce(&[&a, &Tensor::full(7, 2.0, 1)], ReduceOp::Sum), "7 elements");
    refused(comms.all_reduce(&[&a, &b.cast(DType::I32)], ReduceOp::Sum), "i32");
    refused(comms.all_reduce(&[&a, &b.with_gaps()], ReduceOp::Sum), "not contiguous");
    refused(comms.all_reduce(&[&b, &a], ReduceOp::Sum), "is on");
    comms.all_reduce(&lists, ReduceOp::Sum).unwrap();
    assert_eq!((a.to_vec(), b.to_vec()), (vec![3.0; 8], vec![3.0; 8]));
}

/// A tensor may be dropped while its work is queued, and is released when it has run.
#[test]
fn tensors_live_as_long_as_their_work() {
    let Some(_alone) = alone(2) else { return };
    let comms = NcclComms::new(&gpus(2)).unwrap();
    let streams = [GpuStream::new(0), GpuStream::new(1)];
    let held = streams[0].hold(); // so the work is still queued when the tensor is dropped
    let (seen, dropped) = (Tensor::full(100, 1.0, 0), Tensor::full(100, 2.0, 1));
    let lent = [&streams[0], &streams[1]];
    comms.all_reduce_on_streams(&[&seen, &dropped], ReduceOp::Sum, &lent).unwrap();
    assert_eq!((seen.handles(), dropped.handles()), (2, 2));
    drop(dropped);
    drop(held);
    assert_eq!(seen.to_vec(), [3.0; 100]);
    // The next call releases what has passed, and the end what is left.
    let others = [Tensor::full(1, 0.0, 0), Tensor::full(1, 0.0, 1)];
    comms.all_reduce(&[&others[0], &others[1]], ReduceOp::Sum).unwrap();
    assert_eq!((seen.handles(), others[0].handles()), (1, 2));
    drop(comms);
    assert_eq!(others[0].handles(), 1);
}

/// Init on one thread, then a rank for each thread: what flodl recommends.
#[test]
fn split_into_ranks() {
    let Some(_alone) = alone(2) else { return };
    let comms = NcclComms::new(&gpus(2)).unwrap();
    let before = [Tensor::full(5, 1.0, 0), Tensor::full(5, 2.0, 1)];
    comms.all_reduce(&[&before[0], &before[1]], ReduceOp::Sum).unwrap();
    let ranks = comms.split().unwrap();
    assert_eq!(
        ranks.iter().map(|rank| (rank.rank(), rank.world_size())).collect::<Vec<_>>(),
        [(0, 2), (1, 2)]
    );
    let threads = ranks.into_iter().map(|comm| {
        std::thread::spawn(move || {
            let tensor = Tensor::full(64, comm.rank() as f32 + 1.0, comm.rank());
            comm.all_reduce(&[&tensor], ReduceOp::Avg).unwrap();
            tensor.to_vec()
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        assert_eq!(thread.join().unwrap(), [1.5; 64]);
    }
    assert_eq!((before[1].to_vec(), before[1].handles()), (vec![3.0; 5], 1));
}
