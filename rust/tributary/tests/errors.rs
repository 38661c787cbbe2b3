//! Bad input gets an error that says what to do, before anything is queued.

mod common;

use std::ffi::c_void;

use common::{backend, device, error_of, get, have, ranks, vec_on};
use tributary::{
    Communicator, DType, Device, DeviceBuffer, DeviceSlice, DeviceVec, ErrorKind, Event, Group,
    InPlace, Options, ReduceOp, Stream, UniqueId,
};

/// A tensor that says what a test wants.
struct Odd {
    storage: DeviceVec<f32>,
    device: Option<Device>,
    contiguous: bool,
}

// SAFETY: it is its storage, and where it lies about it the calls fail.
unsafe impl DeviceBuffer for Odd {
    fn ptr(&self) -> *mut c_void {
        self.storage.ptr()
    }
    fn len(&self) -> usize {
        self.storage.len()
    }
    fn dtype(&self) -> DType {
        DType::F32
    }
    fn device(&self) -> Option<Device> {
        self.device
    }
    fn is_contiguous(&self) -> bool {
        self.contiguous
    }
}

#[test]
fn an_error_says_all_of_it() {
    let error = error_of(Device::get("avian carriers", 0));
    assert_eq!(error.kind(), ErrorKind::UnknownName);
    assert_eq!((error.status(), error.name()), (6, "TRIB_ERR_UNKNOWN_NAME"));
    assert!(error.detail().contains("avian carriers"));
    let shown = error.to_string();
    assert!(shown.starts_with("TRIB_ERR_UNKNOWN_NAME (6): no backend"), "{shown}");
    assert!(shown.ends_with(error.detail()));
    let _: &dyn std::error::Error = &error;
}

#[test]
fn names_numbers_and_devices() {
    assert_eq!(error_of(Device::get("host", 64)).kind(), ErrorKind::NoDevice);
    assert_eq!(error_of(Device::get("ho\0st", 0)).kind(), ErrorKind::InvalidArgument);
    assert_eq!(error_of(Device::get("host", usize::MAX)).kind(), ErrorKind::InvalidArgument);
    assert_eq!(error_of(UniqueId::of("?")).kind(), ErrorKind::UnknownName);
    let nowhere = Options::new().backend("?");
    assert_eq!(error_of(Group::with_options(1, &nowhere)).kind(), ErrorKind::UnknownName);
    let host = Options::new().backend("host");
    assert_eq!(error_of(Group::with_options(0, &host)).kind(), ErrorKind::InvalidArgument);
    assert_eq!(error_of(Group::on_devices(&[1, 1], &host)).kind(), ErrorKind::InvalidArgument);
    let id = UniqueId::of("host").unwrap();
    assert_eq!(error_of(Communicator::new(&id, 2, 2, 0)).kind(), ErrorKind::InvalidArgument);
}

#[test]
fn buffers_of_the_wrong_kind() {
    ranks(1, |comm, stream| {
        let own = comm.device();
        let odd = |device, contiguous| Odd {
            storage: DeviceVec::from_slice(own, &[1.0; 4]).unwrap(),
            device,
            contiguous,
        };
        let mut fails = |tensor: &Odd, word: &str| {
            // SAFETY: the calls must fail; then nothing is queued.
            let errors = unsafe {
                [
                    error_of(comm.allreduce(tensor, tensor, ReduceOp::Sum, stream)),
                    error_of(comm.allreduce_list(&[tensor], ReduceOp::Sum, stream)),
                ]
            };
            for error in errors {
                assert_eq!(error.kind(), ErrorKind::InvalidBuffer);
                assert!(error.detail().contains(word), "{error}");
                assert!(error.detail().contains("on rank 0"), "{error}");
            }
        };
        fails(&odd(Some(own), false), "contiguous");
        fails(&odd(Some(Device::get("host", 63).unwrap()), true), "host:63");
        assert_eq!(comm.counters().unwrap().calls, 0);
    });
}

fn roots_and_counts_that_do_not_fit(
    comm: &mut Communicator,
    stream: &Stream,
    send: &DeviceVec<f32>,
    long: &DeviceVec<f32>,
) {
    // SAFETY: the calls must fail; then nothing is queued.
    let errors = unsafe {
        [
            error_of(comm.broadcast(Some(send), send, 2, stream)),
            error_of(comm.send(send, 2, stream)),
            error_of(comm.allgatherv(send, long, &[4], &[0], stream)),
        ]
    };
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}

#[test]
fn lengths_types_and_roots_that_do_not_fit() {
    ranks(2, |comm, stream| {
        let send = vec_on(comm, &[1.0_f32; 4]);
        let double = vec_on(comm, &[1.0_f64; 4]);
        let long = vec_on(comm, &[1.0_f32; 9]);
        let sum = ReduceOp::Sum;
        let rank = comm.rank();
        // SAFETY: the calls must fail; then nothing is queued.
        let errors = unsafe {
            [
                error_of(comm.allreduce(&send, &long, sum, stream)),
                error_of(comm.allreduce(&send, &double, sum, stream)),
                error_of(comm.broadcast(None, &send, rank, stream)),
                error_of(comm.reduce(&send, None, sum, rank, stream)),
                error_of(comm.allgather(&send, &long, stream)),
                error_of(comm.allgather(&long, &long, stream)),
                error_of(comm.reduce_scatter(&long, &send, sum, stream)),
                error_of(comm.alltoall(&long, &long, stream)),
                error_of(comm.gather(&send, Some(&long), rank, stream)),
                error_of(comm.scatter(Some(&long), &send, rank, stream)),
                error_of(comm.allgatherv(&send, &long, &[4, 6], &[0, 4], stream)),
            ]
        };
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::InvalidBuffer, "{error}");
            assert!(error.detail().contains(&format!("on rank {rank}")), "{error}");
        }
        roots_and_counts_that_do_not_fit(comm, stream, &send, &long);
        comm.status().unwrap();
    });
}

#[test]
fn a_stream_of_another_device() {
    if !have(2) {
        return;
    }
    ranks(1, |comm, _| {
        let stream = Stream::new(device(1)).unwrap();
        let error = error_of(comm.barrier(&stream));
        assert_eq!(error.kind(), ErrorKind::InvalidStream);
        assert!(error.detail().contains(&format!("{}:1", backend())), "{error}");
    });
}

/// Default streams too: to C they are NULL, whichever device they are of.
#[test]
fn handles_of_two_devices() {
    if !have(2) {
        return;
    }
    let (here, there) = (device(0), device(1));
    let mut vec = DeviceVec::from_slice(here, &[1_i32; 4]).unwrap();
    for stream in [Stream::new(there).unwrap(), Stream::default_of(there)] {
        let mut event = Event::new(here).unwrap();
        let errors = [
            error_of(vec.upload(&[2; 4], &stream)),
            error_of(vec.download_into(&mut [0; 4], &stream)),
            error_of(event.record(&stream)),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::InvalidStream);
            let (here, there) = (here.to_string(), there.to_string());
            assert!(error.detail().contains(&here) && error.detail().contains(&there), "{error}");
        }
        let mut theirs = Event::new(there).unwrap();
        theirs.record(&stream).unwrap();
        assert_eq!(error_of(event.elapsed(&theirs)).kind(), ErrorKind::InvalidArgument);
        // A stream may wait for another device.
        Stream::new(here).unwrap().wait_event(&theirs).unwrap();
    }
    ranks(1, |comm, _| {
        let error = error_of(comm.wait(&Stream::default_of(there)));
        assert_eq!(error.kind(), ErrorKind::InvalidStream);
        let error = error_of(comm.batch(&Stream::default_of(there), |_| Ok(())));
        assert_eq!(error.kind(), ErrorKind::InvalidStream);
    });
}

/// An event of one backend is a wild pointer to another.
#[test]
fn handles_of_two_backends() {
    let Ok(gpu) = Device::get("nccl", 0) else {
        return common::skip("takes a device of nccl beside host");
    };
    let host = Device::get("host", 0).unwrap();
    for (one, other) in [(gpu, host), (host, gpu)] {
        let event = Event::new(one).unwrap();
        let error = error_of(Stream::new(other).unwrap().wait_event(&event));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.detail().contains("host:0") && error.detail().contains("nccl:0"), "{error}");
        let vec = DeviceVec::from_slice(one, &[1_i32; 4]).unwrap();
        let error = error_of(vec.download(&Stream::default_of(other)));
        assert_eq!(error.kind(), ErrorKind::InvalidStream);
    }
}

#[test]
fn ranks_that_make_different_calls() {
    let options = common::options().match_calls(true);
    common::ranks_with(2, &options, |comm, stream| {
        let mut buffer = vec_on(comm, &vec![1.0_f32; 4 + comm.rank()]);
        let error =
            error_of(comm.scope(stream, |s| s.allreduce(InPlace, &mut buffer, ReduceOp::Sum)));
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    });
}

/// Nothing is promised: then nobody's memory is touched when the ranks differ.
#[test]
fn calls_are_compared_unless_promised() {
    let options = Options::new().backend(backend());
    common::ranks_with(2, &options, |comm, stream| {
        let mut same = vec_on(comm, &[1.0_f32; 8]);
        comm.scope(stream, |s| s.allreduce(InPlace, &mut same, ReduceOp::Sum)).unwrap();
        assert_eq!(get(&same), [2.0; 8]);
        let mut send = vec_on(comm, &vec![3.0_f32; 4 + comm.rank()]);
        let mut recv = vec_on(comm, &[5.0_f32; 8]);
        if !common::on_host() {
            let errors = [
                error_of(comm.scope(stream, |s| s.send(&send, 0))),
                error_of(comm.scope(stream, |s| s.recv(&mut recv, 0))),
                error_of(comm.scope(stream, |s| {
                    s.alltoallv(&send, &[2, 2], &[0, 2], &mut recv, &[2, 2], &[0, 2])
                })),
            ];
            for error in errors {
                assert_eq!(error.kind(), ErrorKind::InvalidUsage, "{error}");
                assert!(error.detail().contains("assume_matching_calls"), "{error}");
            }
        }
        // On host it is found on the stream, maybe while the call is being made.
        let error =
            error_of(comm.scope(stream, |s| s.allreduce(InPlace, &mut send, ReduceOp::Sum)));
        let overtaken = common::on_host() && error.is_aborted();
        assert!(error.kind() == ErrorKind::Mismatch || overtaken, "{error}");
        assert_eq!(get(&send), vec![3.0; 4 + comm.rank()]);
    });
}

#[test]
fn copies_of_another_length() {
    if !have(1) {
        return;
    }
    let device = device(0);
    let stream = Stream::new(device).unwrap();
    let mut vec = DeviceVec::from_slice(device, &[1_i32; 4]).unwrap();
    assert_eq!(error_of(vec.upload(&[1; 5], &stream)).kind(), ErrorKind::InvalidArgument);
    let error = error_of(vec.download_into(&mut [0; 3], &stream));
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// A held buffer may be named twice; that it is not used twice at once is for the library to see.
#[test]
fn buffers_that_overlap() {
    ranks(2, |comm, stream| {
        let mut buffer = vec_on(comm, &[1.0_f32; 8]);
        let errors = [
            error_of(comm.scope(stream, |s| {
                let held = s.hold(&mut buffer);
                s.allreduce_list([held, held], ReduceOp::Sum)
            })),
            error_of(comm.scope(stream, |s| {
                let held = s.hold(&mut buffer);
                s.weighted_average([held.slice(..5), held.slice(4..)], 1.0.into(), None)
            })),
            error_of(comm.scope(stream, |s| {
                let held = s.hold(&mut buffer);
                s.allreduce(held.slice(..5), held.slice(3..), ReduceOp::Sum)
            })),
            error_of(comm.scope(stream, |s| {
                let held = s.hold(&mut buffer);
                s.alltoall(held.slice(..4), held.slice(2..6))
            })),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::InvalidBuffer, "{error}");
        }
        assert_eq!(comm.counters().unwrap().calls, 0);
    });
}

#[test]
fn a_held_total_is_no_tensor_of_its_own_average() {
    ranks(2, |comm, stream| {
        let tensors = vec_on(comm, &[1.0_f32; 8]);
        // SAFETY: the call must fail; then nothing is queued.
        let first = unsafe { DeviceSlice::new(tensors.ptr(), 1, DType::F32, Some(comm.device())) };
        // SAFETY: as above.
        let error = error_of(unsafe {
            comm.weighted_average(&[&tensors], 1.0.into(), Some(&first), stream)
        });
        assert_eq!(error.kind(), ErrorKind::InvalidBuffer, "{error}");
    });
}
