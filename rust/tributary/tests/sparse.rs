//! Sparse allreduce: every algorithm through the safe crate, its errors, its life.

mod common;

use std::time::Duration;

use common::{get, options, ranks, ranks_with, vec_on};
use tributary::{
    Communicator, DType, DeviceVec, Element, ErrorKind, InPlace, ReduceOp, SparseAllReduce,
    SparseOptions, Stream,
};

/// Element `i` of rank `rank`'s gradient in `step`: whole numbers, so that sums are exact.
fn gradient(rank: usize, step: usize, len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| ((i * 7919 + rank * 104_729 + step * 1_299_709) % 257) as f32 - 128.0)
        .collect()
}

/// In place, so that what is left can be looked at: what all ranks give is what they get.
fn balances(comm: &mut Communicator, stream: &Stream, name: &str, len: usize) {
    let options = SparseOptions::new().algorithm(name).density(0.05).in_place(true);
    let mut sparse = SparseAllReduce::new(comm, len, DType::F32, &options).unwrap();
    let (rank, device) = (comm.rank(), comm.device());
    let mut residual = vec![0.0; len];
    let mut sum = DeviceVec::<f32>::zeros(device, len).unwrap();
    for step in 0..6 {
        let mine = gradient(rank, step, len);
        let acc: Vec<f32> = residual.iter().zip(&mine).map(|(r, g)| r + g).collect();
        let mut accumulator = vec_on(comm, &acc);
        comm.scope(stream, |s| s.sparse_allreduce(&mut sparse, &mut accumulator, &mut sum))
            .unwrap();
        sparse.status().unwrap();
        residual = get(&accumulator);
        let mut given =
            vec_on(comm, &acc.iter().zip(&residual).map(|(a, r)| a - r).collect::<Vec<f32>>());
        comm.scope(stream, |s| s.allreduce(InPlace, &mut given, ReduceOp::Sum)).unwrap();
        assert_eq!(get(&given), get(&sum), "{name}, step {step}");
    }
    let statistics = sparse.statistics().unwrap();
    assert_eq!((statistics.calls, statistics.calls_applied), (6, 6));
    assert!(statistics.total_applied > 0 && statistics.total_applied <= statistics.total_selected);
    assert_eq!(statistics.reason.is_empty(), name != "auto");
}

#[test]
fn every_algorithm_loses_nothing() {
    let names: Vec<_> = SparseAllReduce::algorithms().collect();
    for name in ["auto", "dense", "topka", "gtopk", "oktopk", "srs", "shared", "chunked", "hier"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    assert_eq!(names.len(), 15);
    for size in [1, 2, 3] {
        ranks(size, |comm, stream| {
            for name in &names {
                balances(comm, stream, name, 1000);
            }
        });
    }
}

#[test]
fn entries_are_what_a_dense_result_holds() {
    ranks(2, |comm, stream| {
        let len = 500;
        let options = SparseOptions::new().algorithm("topka").k(20).average(true);
        let mut dense = SparseAllReduce::new(comm, len, DType::F32, &options).unwrap();
        let mut list = SparseAllReduce::new(comm, len, DType::F32, &options.entries(true)).unwrap();
        let room = list.capacity().unwrap() as usize;
        assert!(room >= 40);
        let gradient = vec_on(comm, &gradient(comm.rank(), 0, len));
        let mut result = vec_on(comm, &vec![f32::NAN; len]);
        let (mut index, mut value) =
            (vec_on(comm, &vec![0_u32; room]), vec_on(comm, &vec![0.0_f32; room]));
        let mut count = vec_on(comm, &[0_u32]);
        comm.scope(stream, |s| {
            s.sparse_allreduce(&mut dense, &gradient, &mut result)?;
            s.sparse_allreduce_entries(&mut list, &gradient, &mut index, &mut value, &mut count)
        })
        .unwrap();
        let mut expected = vec![0.0; len];
        for (i, v) in get(&index).into_iter().zip(get(&value)).take(get(&count)[0] as usize) {
            expected[i as usize] = v;
        }
        assert_eq!(get(&result), expected);
    });
}

/// In place, whose result are entries: what is in them has left the accumulator.
#[test]
fn entries_of_an_accumulator() {
    ranks(2, |comm, stream| {
        let options = SparseOptions::new().algorithm("topka").k(1).entries(true).in_place(true);
        let mut sparse = SparseAllReduce::new(comm, 3, DType::F64, &options).unwrap();
        assert_eq!(sparse.capacity().unwrap(), 2);
        let values = [[1.0_f64, 9.0, -8.0], [1.0, 0.0, -16.0]][comm.rank()];
        let mut accumulator = vec_on(comm, &values);
        let (mut index, mut value) = (vec_on(comm, &[7_u32; 2]), vec_on(comm, &[7.0_f64; 2]));
        let mut count = vec_on(comm, &[7_u32]);
        comm.scope(stream, |s| {
            let accumulator = s.hold(&mut accumulator);
            s.sparse_allreduce_entries(&mut sparse, accumulator, &mut index, &mut value, &mut count)
        })
        .unwrap();
        sparse.status().unwrap();
        assert_eq!(
            (get(&count), get(&index), get(&value)),
            (vec![2], vec![1, 2], vec![9.0, -16.0])
        );
        let left = [[1.0, 0.0, -8.0], [1.0, 0.0, 0.0]];
        assert_eq!(get(&accumulator), left[comm.rank()]);

        let error = comm
            .scope(stream, |s| {
                let count = s.hold(&mut index);
                s.sparse_allreduce_entries(&mut sparse, &mut accumulator, count, &mut value, count)
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidBuffer);
        assert!(error.detail().contains("`index`"), "{error}");
    });
}

/// The results of two calls with the same gradient, of a rank alone that chooses one element.
fn twice<T: Element>(options: &SparseOptions, gradient: &[T]) -> [Vec<T>; 2] {
    let _alone = common::alone();
    let group = tributary::Group::with_options(1, &common::options()).unwrap();
    let mut comm = group.split().unwrap().remove(0);
    let stream = Stream::new(comm.device()).unwrap();
    let options = options.clone().algorithm("topka").k(1);
    let mut sparse = SparseAllReduce::new(&mut comm, gradient.len(), T::DTYPE, &options).unwrap();
    let gradient = vec_on(&comm, gradient);
    [(); 2].map(|()| {
        let mut result = vec_on(&comm, &get(&gradient));
        comm.scope(&stream, |s| s.sparse_allreduce(&mut sparse, &gradient, &mut result)).unwrap();
        sparse.status().unwrap();
        get(&result)
    })
}

#[test]
fn decay_and_wire_arrive() {
    if !common::have(1) {
        return;
    }
    let plain = SparseOptions::new();
    assert_eq!(twice(&plain, &[3.0_f32, 5.0]), [[0.0, 5.0], [6.0, 0.0]]);
    assert_eq!(twice(&plain, &[3.0_f64, 5.0]), [[0.0, 5.0], [6.0, 0.0]]);
    assert_eq!(twice(&plain.clone().decay(0.5), &[3.0_f32, 5.0]), [[0.0, 5.0], [0.0, 5.0]]);
    // It needs 8 bits behind the point, of which a bf16 has 7: the next call sends the rest.
    let fine = 1.0_f32 + 1.0 / 256.0;
    assert_eq!(twice(&plain, &[fine, 0.0]), [[fine, 0.0], [fine, 0.0]]);
    let rounded = [[1.0, 0.0], [1.0 + 1.0 / 128.0, 0.0]];
    assert_eq!(twice(&plain.wire(DType::BF16), &[fine, 0.0]), rounded);
}

#[test]
fn momentum_arrives() {
    if !common::have(1) {
        return;
    }
    let options = SparseOptions::new().momentum(0.5);
    assert_eq!(twice(&options, &[3.0_f32, 6.0]), [[0.0, 6.0], [7.5, 0.0]]);
    let kept = options.clone().masking(false);
    assert_eq!(twice(&kept, &[3.0_f32, 6.0]), [[0.0, 6.0], [0.0, 9.0]]);
    assert_eq!(twice(&kept.masking(true), &[3.0_f64, 6.0]), [[0.0, 6.0], [7.5, 0.0]]);
    // From a norm of 5: (1.5, 2).
    assert_eq!(twice(&options.clip_norm(2.5), &[3.0_f32, 4.0]), [[0.0, 2.0], [3.75, 0.0]]);
}

#[test]
fn every_other_option_arrives() {
    ranks(2, |comm, stream| {
        let rank = comm.rank() as f32;
        let options = SparseOptions::new().algorithm("topka").average(true).norm_every(2).k(1);
        let mut sparse = SparseAllReduce::new(comm, 3, DType::F32, &options).unwrap();
        let (len, dtype) = (sparse.len(), sparse.dtype());
        assert_eq!((len, dtype, sparse.is_empty()), (3, DType::F32, false));
        let gradient = vec_on(comm, &[0.0_f32, 4.0 + 2.0 * rank, 1.5]);
        let mut result = vec_on(comm, &[f32::NAN; 3]);
        let mut step = |comm: &mut Communicator, sparse: &mut SparseAllReduce| {
            comm.scope(stream, |s| s.sparse_allreduce(sparse, &gradient, &mut result)).unwrap();
            assert_eq!(get(&result), [0.0, 5.0, 0.0]);
            sparse.statistics().unwrap()
        };
        let first = step(comm, &mut sparse);
        assert_eq!((first.calls, first.residual_norm), (1, None));
        let second = step(comm, &mut sparse);
        assert_eq!((second.calls, second.residual_norm), (2, Some(3.0)));
        assert_eq!((second.algorithm.as_str(), second.count, second.k), ("topka", 3, 1));
        assert_eq!((second.selected, second.applied), (1, 1));
        assert_eq!((second.total_selected, second.total_applied), (2, 2));
        assert_eq!((second.words_sent, second.words_received), (4, 4));
        assert!(second.bytes_sent >= 16 && second.bytes_received >= 16);
        assert!(!sparse.outcome().unwrap().is_null());

        // Four chunks of 256, of which each gives two.
        let options = SparseOptions::new().algorithm("chunked").chunk(256).k(8);
        let sparse = SparseAllReduce::new(comm, 1024, DType::F32, &options);
        assert_eq!(sparse.unwrap().statistics().unwrap().k, 8);
        let options = options.chunk(1024).density(0.001);
        let sparse = SparseAllReduce::new(comm, 2048, DType::F32, &options);
        assert_eq!(sparse.unwrap().statistics().unwrap().k, 2);
        for constants in ["vgg", "lstm", "bert"] {
            let options = SparseOptions::new().algorithm("oktopk").constants(constants);
            drop(SparseAllReduce::new(comm, 1000, DType::F32, &options).unwrap());
        }
    });
}

/// Ranks 0 and 1 add up first, each on half of the elements; what they send is of their sum.
#[test]
fn hosts_are_told() {
    let gradients = [
        [1.0_f32, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0],
        [1.0, 0.0, 3.0, 0.0, 4.0, 0.0, 0.0, -5.0],
        [10.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 7.0],
    ];
    ranks(3, |comm, stream| {
        let rank = comm.rank();
        let options = SparseOptions::new().algorithm("hier").k(2).hosts(&[0, 0, 1]);
        assert!(options.device_bytes(comm, 8, DType::F32).unwrap() > 0);
        let mut sparse = SparseAllReduce::new(comm, 8, DType::F32, &options).unwrap();
        let gradient = vec_on(comm, &gradients[rank]);
        let mut result = vec_on(comm, &[9.0_f32; 8]);
        comm.scope(stream, |s| s.sparse_allreduce(&mut sparse, &gradient, &mut result)).unwrap();
        assert_eq!(get(&result), [10.0, 0.0, 3.0, 0.0, 4.0, 0.0, 0.0, 7.0]);
        assert_eq!(sparse.statistics().unwrap().k, [1, 1, 2][rank]);
        let mut residual = vec_on(comm, &[9.0_f32; 8]);
        comm.scope(stream, |s| s.sparse_residual(&mut sparse, &mut residual)).unwrap();
        let left = [[2.0_f32, 0.0], [0.0, 0.0], [0.0, 1.0]][rank];
        assert_eq!(get(&residual), [left[0], 0.0, left[1], 0.0, 0.0, 0.0, 0.0, 0.0]);

        // A number for every rank, or none.
        let short = SparseOptions::new().algorithm("hier").hosts(&[0, 0]);
        let error = SparseAllReduce::new(comm, 8, DType::F32, &short).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.detail().contains("options.hosts[2] is -1"), "{error}");
    });
}

#[cfg(feature = "half")]
#[test]
fn sixteen_bits() {
    use half::{bf16, f16};

    fn check<T: Element + PartialEq + std::fmt::Debug>(of: fn(f32) -> T) {
        ranks(2, |comm, stream| {
            let options = SparseOptions::new().algorithm("srs").k(2);
            let mut sparse = SparseAllReduce::new(comm, 4, T::DTYPE, &options).unwrap();
            let gradient = vec_on(comm, &[of(0.25), of(-3.0), of(2.0), of(0.0)]);
            let mut result = vec_on(comm, &[of(1.0); 4]);
            comm.scope(stream, |s| s.sparse_allreduce(&mut sparse, &gradient, &mut result))
                .unwrap();
            assert_eq!(get(&result), [of(0.0), of(-6.0), of(4.0), of(0.0)]);
        });
    }
    check(f16::from_f32);
    check(bf16::from_f32);
}

#[test]
fn numbers_that_are_not_finite_change_nothing() {
    ranks(2, |comm, stream| {
        let options = SparseOptions::new().algorithm("topka").k(3);
        let mut sparse = SparseAllReduce::new(comm, 100, DType::F32, &options).unwrap();
        let mut result = vec_on(comm, &[1.0_f32; 100]);
        let good = vec_on(comm, &gradient(comm.rank(), 1, 100));
        comm.scope(stream, |s| s.sparse_allreduce(&mut sparse, &good, &mut result)).unwrap();
        let before = sparse.export(stream).unwrap();

        let mut values = gradient(comm.rank(), 2, 100);
        if comm.rank() == 1 {
            values[50] = f32::INFINITY;
        }
        let bad = vec_on(comm, &values);
        let error =
            comm.scope(stream, |s| s.sparse_allreduce(&mut sparse, &bad, &mut result)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NonFinite, "{error}");
        assert_eq!(sparse.status().unwrap_err().kind(), ErrorKind::NonFinite);
        assert_eq!(get(&result), [0.0; 100]);
        let statistics = sparse.statistics().unwrap();
        assert_eq!((statistics.calls_applied, statistics.calls_non_finite), (1, 1));
        let after = sparse.export(stream).unwrap();
        assert_eq!(residual(&before), residual(&after));

        comm.scope(stream, |s| s.sparse_allreduce(&mut sparse, &good, &mut result)).unwrap();
        sparse.status().unwrap();
    });
}

/// The residual is what an export ends with.
fn residual(export: &[u8]) -> &[u8] {
    &export[export.len() - 400..]
}

#[test]
fn an_export_goes_on_elsewhere() {
    ranks(2, |comm, stream| {
        let options = SparseOptions::new().algorithm("srs").k(10);
        let mut first = SparseAllReduce::new(comm, 300, DType::F32, &options).unwrap();
        let mut second = SparseAllReduce::new(comm, 300, DType::F32, &options).unwrap();
        let gradient = vec_on(comm, &gradient(comm.rank(), 3, 300));
        let (mut one, mut two) = (vec_on(comm, &[0.0_f32; 300]), vec_on(comm, &[0.0_f32; 300]));
        comm.scope(stream, |s| s.sparse_allreduce(&mut first, &gradient, &mut one)).unwrap();
        let export = first.export(stream).unwrap();
        second.import(&export, stream).unwrap();
        comm.scope(stream, |s| s.sparse_allreduce(&mut first, &gradient, &mut one)).unwrap();
        comm.scope(stream, |s| s.sparse_allreduce(&mut second, &gradient, &mut two)).unwrap();
        assert_eq!(get(&one), get(&two));

        let error = second.import(&export[1..], stream).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        second.reset(stream).unwrap();
        second.import(&export, stream).unwrap();
        second.import_added(&export, stream).unwrap();
    });
}

#[test]
fn ranks_that_disagree_get_a_mismatch() {
    ranks_with(2, &options(), |comm, _| {
        let options = SparseOptions::new().algorithm("topka").k(5 + comm.rank() as u64);
        let error = SparseAllReduce::new(comm, 100, DType::F32, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        // If one rank's arguments are invalid, the others learn of it.
        for refused in ["a\0b", "topkz"] {
            let name = ["topka", refused][comm.rank()];
            let options = SparseOptions::new().algorithm(name);
            let error = SparseAllReduce::new(comm, 100, DType::F32, &options).unwrap_err();
            let rank_1 = match refused {
                "topkz" => ErrorKind::UnknownName,
                _ => ErrorKind::InvalidArgument,
            };
            assert_eq!(error.kind(), [ErrorKind::Mismatch, rank_1][comm.rank()], "{error}");
            assert!(comm.rank() == 0 || error.detail().contains(&refused[..1]), "{error}");
        }
        let options = SparseOptions::new().algorithm("topka").k(5);
        let mut sparse = SparseAllReduce::new(comm, 100, DType::F32, &options).unwrap();
        let error = sparse.set_k(7 - comm.rank() as u64).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        assert_eq!(sparse.statistics().unwrap().k, 5);
        let error = sparse.set_density([0.2, 0.0][comm.rank()]).unwrap_err();
        let kinds = [ErrorKind::Mismatch, ErrorKind::InvalidArgument];
        assert_eq!(error.kind(), kinds[comm.rank()], "{error}");
        assert!(comm.rank() == 0 || error.detail().contains("`density` is 0"), "{error}");
        sparse.set_density(0.5).unwrap();
        assert_eq!(sparse.statistics().unwrap().k, 50);
    });
}

fn refused_options(comm: &mut Communicator) {
    let make = |comm: &mut Communicator, options: SparseOptions, dtype| {
        SparseAllReduce::new(comm, 10, dtype, &options).map(drop).unwrap_err()
    };
    let error = make(comm, SparseOptions::new().algorithm("topkz"), DType::F32);
    assert_eq!(error.kind(), ErrorKind::UnknownName);
    assert!(error.detail().contains("topkz"), "{error}");
    let error = make(comm, SparseOptions::new().density(1.5), DType::F32);
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(make(comm, SparseOptions::new(), DType::I32).kind(), ErrorKind::InvalidArgument);

    // To C they are the default; nobody who writes them means that.
    for options in [
        SparseOptions::new().density(0.0),
        SparseOptions::new().decay(0.0),
        SparseOptions::new().chunk(0),
    ] {
        let error = make(comm, options, DType::F32);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.detail().contains("is 0"), "{error}");
    }
}

#[test]
fn mistakes_have_words() {
    ranks(1, |comm, stream| {
        refused_options(comm);
        let options = SparseOptions::new().algorithm("topka");
        assert!(options.device_bytes(comm, 1000, DType::F32).unwrap() >= 8000);
        let mut sparse = SparseAllReduce::new(comm, 10, DType::F32, &options).unwrap();
        let short = vec_on(comm, &[0.0_f32; 9]);
        let mut result = vec_on(comm, &[0.0_f32; 10]);
        let error = comm
            .scope(stream, |s| s.sparse_allreduce(&mut sparse, &short, &mut result))
            .unwrap_err();
        assert!(error.detail().contains("`gradient` is 9 elements"), "{error}");
        assert_eq!(sparse.set_density(0.0).unwrap_err().kind(), ErrorKind::InvalidArgument);
        let error = comm
            .scope(stream, |s| {
                let held = s.hold(&mut result);
                s.sparse_allreduce(&mut sparse, held, held)?; // not in place: allowed
                s.batch(|s| s.sparse_allreduce(&mut sparse, held, held))
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUsage);
        assert!(error.detail().contains("batch"), "{error}");
    });
}

#[test]
fn a_state_ends_with_its_communicator() {
    let mut left = Vec::new();
    let group = tributary::Group::with_options(1, &options()).unwrap();
    for mut comm in group.split().unwrap() {
        let options = SparseOptions::new().algorithm("topka");
        left.push(SparseAllReduce::new(&mut comm, 10, DType::F32, &options).unwrap());
        drop(SparseAllReduce::new(&mut comm, 10, DType::F32, &options).unwrap());
    }
    let closed: Vec<_> = tributary::Group::with_options(1, &options())
        .and_then(tributary::Group::split)
        .unwrap()
        .into_iter()
        .map(|mut comm| {
            let sparse = SparseAllReduce::new(&mut comm, 10, DType::F32, &SparseOptions::new());
            comm.close(Duration::from_secs(5)).unwrap();
            sparse.unwrap()
        })
        .collect();
    left.extend(closed);
    for mut sparse in left {
        assert_eq!(sparse.status().unwrap_err().kind(), ErrorKind::Closed);
    }
}

/// A call that is queued behind something that is stuck, when its state and its communicator go.
#[test]
fn a_state_may_go_before_its_call_has_run() {
    let options = options().close_timeout(Duration::from_millis(100));
    ranks_with(2, &options, |comm, stream| {
        let mut child = comm.split(Some(0), 0).unwrap().unwrap();
        let topka = SparseOptions::new().algorithm("topka");
        let mut sparse = SparseAllReduce::new(&mut child, 100, DType::F32, &topka).unwrap();
        let (gradient, result) = (vec_on(comm, &[1.0_f32; 100]), vec_on(comm, &[1.0_f32; 100]));
        let stuck = vec_on(comm, &[1.0_f32; 10]);
        common::warm_up(comm, stream);
        // SAFETY: all buffers live until the stream has been waited for.
        unsafe { sparse.allreduce(&gradient, &result, stream) }.unwrap();
        child.wait(stream).unwrap();
        if comm.rank() == 1 {
            return common::stay_until_aborted(comm);
        }
        // SAFETY: as above.
        let queued = unsafe {
            comm.allreduce(&stuck, &stuck, ReduceOp::Sum, stream)
                .and_then(|()| sparse.allreduce(&gradient, &result, stream))
        };
        queued.unwrap();
        drop(sparse);
        drop(child);
        comm.abort_handle().abort("the other rank does not call");
        stream.wait().unwrap();
    });
}

/// For a work, too, `Ok` means that the call was applied; it returns the buffers in any case.
#[test]
fn a_work_says_whether_it_was_applied() {
    ranks(2, |comm, stream| {
        let options = SparseOptions::new().algorithm("topka").k(3);
        let mut sparse = SparseAllReduce::new(comm, 100, DType::F32, &options).unwrap();
        let mut gradient = gradient(comm.rank(), 1, 100);
        for value in [1.0, f32::NAN, 2.0] {
            gradient[comm.rank()] = value;
            let buffers = (vec_on(comm, &gradient), vec_on(comm, &[1.0_f32; 100]));
            let work = comm.start(buffers, stream, |s, (gradient, result)| {
                s.sparse_allreduce(&mut sparse, &*gradient, result)
            });
            let result = work.unwrap().wait();
            if value.is_finite() {
                result.unwrap();
                continue;
            }
            let failed = result.unwrap_err();
            assert_eq!(failed.error.kind(), ErrorKind::NonFinite, "{failed}");
            assert_eq!(get(&failed.buffers.unwrap().1), [0.0; 100]);
        }
        // Its state may be gone when it is waited for.
        let buffers = (vec_on(comm, &gradient), vec_on(comm, &[1.0_f32; 100]));
        let work = comm.start(buffers, stream, |s, (gradient, result)| {
            s.sparse_allreduce(&mut sparse, &*gradient, result)
        });
        stream.wait().unwrap();
        drop(sparse);
        work.unwrap().wait().unwrap();
    });
}

#[test]
fn residual_and_k_can_be_read() {
    ranks(2, |comm, stream| {
        let options = SparseOptions::new().algorithm("topka").k(2);
        let mut sparse = SparseAllReduce::new(comm, 4, DType::F32, &options).unwrap();
        let gradient = vec_on(comm, &[1.0_f32, -8.0, 2.0, 0.5]);
        let mut result = vec_on(comm, &[0.0_f32; 4]);
        let mut residual = vec_on(comm, &[9.0_f32; 4]);
        comm.scope(stream, |s| {
            s.sparse_allreduce(&mut sparse, &gradient, &mut result)?;
            s.sparse_residual(&mut sparse, &mut residual)
        })
        .unwrap();
        assert_eq!(get(&residual), [1.0, 0.0, 0.0, 0.5]);
        assert_eq!(sparse.k().unwrap(), 2);
        sparse.set_k(3).unwrap();
        assert_eq!(sparse.k().unwrap(), 3);

        let mut short = vec_on(comm, &[0.0_f32; 3]);
        let error = comm.scope(stream, |s| s.sparse_residual(&mut sparse, &mut short)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidBuffer, "{error}");
    });
}

/// Sums of 16-bit gradients that 16 bits do not hold.
#[cfg(feature = "half")]
#[test]
fn results_in_f32() {
    use half::f16;
    ranks(2, |comm, stream| {
        let options = SparseOptions::new().algorithm("topka").k(1).f32_result(true);
        let mut sparse = SparseAllReduce::new(comm, 3, DType::F16, &options).unwrap();
        let gradient = vec_on(comm, &[1.0, 60_000.0, 2.0].map(f16::from_f32));
        let mut narrow = vec_on(comm, &[f16::ZERO; 3]);
        let mut wide = vec_on(comm, &[1.0_f32; 3]);
        let error = comm
            .scope(stream, |s| s.sparse_allreduce(&mut sparse, &gradient, &mut narrow))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidBuffer, "f16 has not the room: {error}");
        comm.scope(stream, |s| s.sparse_allreduce(&mut sparse, &gradient, &mut wide)).unwrap();
        let sum = 2.0 * f16::from_f32(60_000.0).to_f32();
        assert_eq!(get(&wide), [0.0, sum, 0.0]);
    });
}

fn topka(comm: &mut Communicator) -> SparseAllReduce {
    let options = SparseOptions::new().algorithm("topka").k(1);
    SparseAllReduce::new(comm, 4, DType::F32, &options).unwrap()
}

/// A gradient and its result, to give away.
type Pair = (DeviceVec<f32>, DeviceVec<f32>);

fn pair(comm: &Communicator, first: f32) -> Pair {
    (vec_on(comm, &[first, 1.0, 1.0, 1.0]), vec_on(comm, &[0.0; 4]))
}

fn start(
    comm: &mut Communicator,
    stream: &Stream,
    sparse: &mut SparseAllReduce,
    first: f32,
) -> tributary::Work<Pair> {
    let buffers = pair(comm, first);
    comm.start(buffers, stream, |s, (gradient, result)| {
        s.sparse_allreduce(sparse, &*gradient, result)
    })
    .unwrap()
}

/// What each work says is what its own calls did, whatever ran before it was asked, and in whatever
/// order works are asked.
#[test]
fn each_work_answers_for_its_own_calls() {
    ranks(2, |comm, stream| {
        let mut sparse = topka(comm);
        for bad in [0, 1] {
            for asked_first in [0, 1] {
                let mut works = [0, 1].map(|i| {
                    let first = if i == bad { f32::NAN } else { 5.0 };
                    Some(start(comm, stream, &mut sparse, first))
                });
                stream.wait().unwrap();
                for i in [asked_first, 1 - asked_first] {
                    let said =
                        works[i].take().unwrap().wait().map_err(|failed| failed.error.kind());
                    let due = if i == bad { Err(ErrorKind::NonFinite) } else { Ok(()) };
                    assert_eq!(said.map(drop), due, "work {i} of two, {bad} is bad");
                }
            }
        }
    });
}

#[test]
fn a_scope_answers_for_all_its_calls() {
    ranks(2, |comm, stream| {
        let mut sparse = topka(comm);
        let bad = vec_on(comm, &[f32::NAN, 1.0, 1.0, 1.0]);
        let good = vec_on(comm, &[4.0_f32, 1.0, 1.0, 1.0]);
        let (mut one, mut two) = (vec_on(comm, &[0.0_f32; 4]), vec_on(comm, &[0.0_f32; 4]));
        let error = comm
            .scope(stream, |s| {
                s.sparse_allreduce(&mut sparse, &bad, &mut one)?;
                s.sparse_allreduce(&mut sparse, &good, &mut two)
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NonFinite, "{error}");
        assert_eq!(get(&two)[0], 8.0);
        comm.scope(stream, |s| s.sparse_allreduce(&mut sparse, &good, &mut two)).unwrap();
    });
}

/// Of a state, and of a communicator, that went first.
#[test]
fn a_work_knows_what_its_calls_did_when_all_else_is_gone() {
    for first in [f32::NAN, 3.0] {
        ranks(2, |comm, stream| {
            let due = if first.is_nan() { Err(ErrorKind::NonFinite) } else { Ok(()) };
            let mut sparse = topka(comm);
            let work = start(comm, stream, &mut sparse, first);
            drop(sparse);
            assert_eq!(work.wait().map(drop).map_err(|failed| failed.error.kind()), due, "state");

            let mut child = comm.split(Some(0), 0).unwrap().unwrap();
            let mut sparse = topka(&mut child);
            let work = start(&mut child, stream, &mut sparse, first);
            drop(child);
            assert_eq!(work.wait().map(drop).map_err(|failed| failed.error.kind()), due, "comm");
        });
    }
}

#[test]
fn a_sparse_call_in_a_batch_is_refused() {
    ranks(1, |comm, stream| {
        let mut sparse = topka(comm);
        let (gradient, mut result) = pair(comm, 1.0);
        let error = comm
            .scope(stream, |s| s.batch(|s| s.sparse_allreduce(&mut sparse, &gradient, &mut result)))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUsage, "{error}");
        assert!(error.detail().contains("batch"), "{error}");
        comm.scope(stream, |s| s.sparse_allreduce(&mut sparse, &gradient, &mut result)).unwrap();
    });
}
