//! Sparse allreduce: every algorithm through the safe crate, its errors, its life.

mod common;

use common::{get, options, ranks, ranks_with, vec_on};
use tributary::{
    Communicator, DType, DeviceVec, ErrorKind, SparseAllReduce, SparseOptions, Stream,
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
        comm.scope(stream, |s| {
            s.sparse_allreduce_in_place(&mut sparse, &mut accumulator, &mut sum)
        })
        .unwrap();
        sparse.status().unwrap();
        residual = get(&accumulator);
        let mut given =
            vec_on(comm, &acc.iter().zip(&residual).map(|(a, r)| a - r).collect::<Vec<f32>>());
        comm.scope(stream, |s| s.allreduce_in_place(&mut given, tributary::ReduceOp::Sum)).unwrap();
        assert_eq!(get(&given), get(&sum), "{name}, step {step}");
    }
    let statistics = sparse.statistics().unwrap();
    assert_eq!((statistics.calls, statistics.calls_delivered), (6, 6));
    assert!(
        statistics.total_delivered > 0 && statistics.total_delivered <= statistics.total_selected
    );
    assert_eq!(statistics.reason.is_empty(), name != "auto");
}

#[test]
fn every_algorithm_loses_nothing() {
    let names: Vec<_> = SparseAllReduce::algorithms().collect();
    for name in ["auto", "dense", "topka", "gtopk", "oktopk", "srs", "shared", "chunked"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    assert_eq!(names.len(), 14);
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
        comm.scope(stream, |s| s.sparse_allreduce(&mut sparse, &bad, &mut result)).unwrap();
        assert_eq!(sparse.status().unwrap_err().kind(), ErrorKind::NonFinite);
        assert_eq!(get(&result), [0.0; 100]);
        let statistics = sparse.statistics().unwrap();
        assert_eq!((statistics.calls_delivered, statistics.calls_non_finite), (1, 1));
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
fn ranks_that_disagree_are_told() {
    ranks_with(2, &options(), |comm, _| {
        let options = SparseOptions::new().algorithm("topka").k(5 + comm.rank() as u64);
        let error = SparseAllReduce::new(comm, 100, DType::F32, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        let options = SparseOptions::new().algorithm("topka").k(5);
        let mut sparse = SparseAllReduce::new(comm, 100, DType::F32, &options).unwrap();
        let error = sparse.set_k(7 - comm.rank() as u64).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        assert_eq!(sparse.statistics().unwrap().k, 5);
        sparse.set_density(0.5).unwrap();
        assert_eq!(sparse.statistics().unwrap().k, 50);
    });
}

#[test]
fn mistakes_have_words() {
    ranks(1, |comm, stream| {
        let make = |comm: &mut Communicator, options: SparseOptions, dtype| {
            SparseAllReduce::new(comm, 10, dtype, &options).map(drop).unwrap_err()
        };
        let error = make(comm, SparseOptions::new().algorithm("topkz"), DType::F32);
        assert_eq!(error.kind(), ErrorKind::UnknownName);
        assert!(error.detail().contains("topkz"), "{error}");
        let error = make(comm, SparseOptions::new().density(1.5), DType::F32);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(make(comm, SparseOptions::new(), DType::I32).kind(), ErrorKind::InvalidArgument);

        let options = SparseOptions::new().algorithm("topka");
        assert!(options.device_bytes(comm, 1000, DType::F32).unwrap() >= 8000);
        let mut sparse = SparseAllReduce::new(comm, 10, DType::F32, &options).unwrap();
        let short = vec_on(comm, &[0.0_f32; 9]);
        let mut result = vec_on(comm, &[0.0_f32; 10]);
        let error = comm
            .scope(stream, |s| s.sparse_allreduce(&mut sparse, &short, &mut result))
            .unwrap_err();
        assert!(error.detail().contains("`gradient` is 9 elements"), "{error}");
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
    for mut sparse in left {
        assert_eq!(sparse.status().unwrap_err().kind(), ErrorKind::Closed);
    }
}
