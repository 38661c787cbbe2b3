//! Every collective, in every form, with inputs that are exact and distinct.

mod common;

use common::{get, on_host, ranks, vec_on};
use tributary::{
    CallOptions, Communicator, DType, DeviceBuffer, DeviceSlice, DeviceVec, Element, ErrorKind,
    InPlace, ReduceOp, Result, UniqueBuffer, Variant,
};

const SIZES: [usize; 4] = [1, 2, 3, 4];
const N: usize = 129;

/// Element `i` of the buffer of `rank`.
fn value(rank: usize, i: usize) -> i64 {
    (rank * 1000 + i) as i64
}

fn values(rank: usize, n: usize) -> Vec<i64> {
    (0..n).map(|i| value(rank, i)).collect()
}

fn sum(size: usize, i: usize) -> i64 {
    (0..size).map(|rank| value(rank, i)).sum()
}

#[test]
fn allreduce() {
    for size in SIZES {
        ranks(size, |comm, stream| {
            let send = vec_on(comm, &values(comm.rank(), N));
            let mut recv = vec_on(comm, &[-1; N]);
            let mut both = vec_on(comm, &values(comm.rank(), N));
            comm.scope(stream, |s| {
                s.allreduce(&send, &mut recv, ReduceOp::Sum)?;
                s.allreduce(InPlace, &mut both, ReduceOp::Max)
            })
            .unwrap();
            let sums: Vec<i64> = (0..N).map(|i| sum(size, i)).collect();
            assert_eq!(get(&recv), sums);
            assert_eq!(get(&both), values(size - 1, N));
            assert_eq!(get(&send), values(comm.rank(), N));
        });
    }
}

#[test]
fn allreduce_of_every_type_and_reduction() {
    fn check<T: Element + From<u8> + PartialEq + std::fmt::Debug>(size: usize) {
        ranks(size, |comm, stream| {
            let mut sum = vec_on(comm, &[T::from(comm.rank() as u8 + 1); 5]);
            let mut prod = vec_on(comm, &[T::from(comm.rank() as u8 + 1); 5]);
            let mut min = vec_on(comm, &[T::from(comm.rank() as u8 + 1); 5]);
            let mut max = vec_on(comm, &[T::from(comm.rank() as u8 + 1); 5]);
            let mut avg = vec_on(comm, &[T::from(4 * comm.rank() as u8); 5]);
            comm.scope(stream, |s| {
                s.allreduce(InPlace, &mut sum, ReduceOp::Sum)?;
                s.allreduce(InPlace, &mut prod, ReduceOp::Prod)?;
                s.allreduce(InPlace, &mut min, ReduceOp::Min)?;
                s.allreduce(InPlace, &mut max, ReduceOp::Max)?;
                s.allreduce(InPlace, &mut avg, ReduceOp::Avg)
            })
            .unwrap();
            let n = size as u8;
            assert_eq!(get(&sum), [T::from(n * (n + 1) / 2); 5]);
            assert_eq!(get(&prod), [T::from((1..=n).product()); 5]);
            assert_eq!(get(&min), [T::from(1); 5]);
            assert_eq!(get(&max), [T::from(n); 5]);
            assert_eq!(get(&avg), [T::from(2 * (n - 1)); 5]);
        });
    }
    for size in [2, 4] {
        check::<f32>(size);
        check::<f64>(size);
        check::<u8>(size);
        check::<i32>(size);
        check::<u32>(size);
        check::<i64>(size);
        check::<u64>(size);
    }
}

#[cfg(feature = "half")]
#[test]
fn allreduce_of_halves() {
    use half::{bf16, f16};
    ranks(2, |comm, stream| {
        let rank = comm.rank() as f32;
        let mut a = vec_on(comm, &[f16::from_f32(rank + 0.5); 7]);
        let mut b = vec_on(comm, &[bf16::from_f32(rank + 0.5); 7]);
        comm.scope(stream, |s| {
            s.allreduce(InPlace, &mut a, ReduceOp::Sum)?;
            s.allreduce(InPlace, &mut b, ReduceOp::Sum)
        })
        .unwrap();
        assert_eq!(get(&a), [f16::from_f32(2.0); 7]);
        assert_eq!(get(&b), [bf16::from_f32(2.0); 7]);
    });
}

#[test]
fn broadcast() {
    for size in SIZES {
        ranks(size, |comm, stream| {
            let root = size - 1;
            let send = vec_on(comm, &values(comm.rank(), N));
            let mut recv = vec_on(comm, &[-1; N]);
            let mut both = vec_on(comm, &values(comm.rank(), N));
            comm.scope(stream, |s| {
                let given: Option<&dyn UniqueBuffer> = (s.rank() == root).then_some(&send as _);
                s.broadcast(given, &mut recv, root)?;
                s.broadcast(None, &mut both, 0)
            })
            .unwrap();
            assert_eq!(get(&recv), values(root, N));
            assert_eq!(get(&both), values(0, N));
        });
    }
}

#[test]
fn reduce() {
    for size in SIZES {
        ranks(size, |comm, stream| {
            let root = size - 1;
            let rank = comm.rank();
            let send = vec_on(comm, &values(rank, N));
            let mut recv = vec_on(comm, &[-1; N]);
            let mut both = vec_on(comm, &values(rank, N));
            comm.scope(stream, |s| {
                if rank == root {
                    s.reduce(&send, Some(&mut recv), ReduceOp::Sum, root)?;
                } else {
                    s.reduce(&send, None, ReduceOp::Sum, root)?;
                }
                s.reduce(InPlace, Some(&mut both), ReduceOp::Sum, 0)
            })
            .unwrap();
            let sums: Vec<i64> = (0..N).map(|i| sum(size, i)).collect();
            assert_eq!(get(&recv), if rank == root { sums.clone() } else { vec![-1; N] });
            assert_eq!(get(&both), if rank == 0 { sums } else { values(rank, N) });
        });
    }
}

#[test]
fn allgather() {
    for size in SIZES {
        ranks(size, |comm, stream| {
            let rank = comm.rank();
            let send = vec_on(comm, &values(rank, N));
            let mut recv = vec_on(comm, &vec![-1; N * size]);
            let mut own = vec![-1; N * size];
            own[rank * N..(rank + 1) * N].copy_from_slice(&values(rank, N));
            let mut both = vec_on(comm, &own);
            comm.scope(stream, |s| {
                s.allgather(&send, &mut recv)?;
                s.allgather(InPlace, &mut both)
            })
            .unwrap();
            let all: Vec<i64> = (0..size).flat_map(|rank| values(rank, N)).collect();
            assert_eq!(get(&recv), all);
            assert_eq!(get(&both), all);
        });
    }
}

#[test]
fn reduce_scatter() {
    for size in SIZES {
        ranks(size, |comm, stream| {
            let rank = comm.rank();
            let send = vec_on(comm, &values(rank, N * size));
            let mut recv = vec_on(comm, &[-1; N]);
            let mut both = vec_on(comm, &values(rank, N * size));
            comm.scope(stream, |s| {
                s.reduce_scatter(&send, &mut recv, ReduceOp::Sum)?;
                s.reduce_scatter(InPlace, &mut both, ReduceOp::Sum)
            })
            .unwrap();
            let block: Vec<i64> = (rank * N..(rank + 1) * N).map(|i| sum(size, i)).collect();
            assert_eq!(get(&recv), block);
            assert_eq!(get(&both)[rank * N..(rank + 1) * N], block);
        });
    }
}

#[test]
fn alltoall() {
    for size in SIZES {
        ranks(size, |comm, stream| {
            let rank = comm.rank();
            let send = vec_on(comm, &values(rank, N * size));
            let mut recv = vec_on(comm, &vec![-1; N * size]);
            let mut both = vec_on(comm, &values(rank, N * size));
            comm.scope(stream, |s| {
                s.alltoall(&send, &mut recv)?;
                s.alltoall(InPlace, &mut both)
            })
            .unwrap();
            let all: Vec<i64> = (0..size)
                .flat_map(|from| (rank * N..(rank + 1) * N).map(move |i| value(from, i)))
                .collect();
            assert_eq!(get(&recv), all);
            assert_eq!(get(&both), all);
        });
    }
}

#[test]
fn gather_and_scatter() {
    for size in SIZES {
        ranks(size, |comm, stream| {
            let (rank, root) = (comm.rank(), size / 2);
            let send = vec_on(comm, &values(rank, N));
            let mut all = vec_on(comm, &vec![-1; N * size]);
            let whole = vec_on(comm, &values(7, N * size));
            let mut recv = vec_on(comm, &[-1; N]);
            comm.scope(stream, |s| {
                if rank == root {
                    s.gather(&send, Some(&mut all), root)?;
                    s.scatter(Some(&whole), &mut recv, root)
                } else {
                    s.gather(&send, None, root)?;
                    s.scatter(None, &mut recv, root)
                }
            })
            .unwrap();
            let expected = if rank == root {
                (0..size).flat_map(|rank| values(rank, N)).collect()
            } else {
                vec![-1; N * size]
            };
            assert_eq!(get(&all), expected);
            assert_eq!(get(&recv), values(7, N * size)[rank * N..(rank + 1) * N]);
        });
    }
}

#[test]
fn send_and_recv_in_a_ring() {
    for size in SIZES {
        ranks(size, |comm, stream| {
            let (rank, size) = (comm.rank(), comm.size());
            let send = vec_on(comm, &values(rank, N));
            let mut recv = vec_on(comm, &[-1; N]);
            comm.scope(stream, |s| {
                s.batch(|s| {
                    s.send(&send, (rank + 1) % size)?;
                    s.recv(&mut recv, (rank + size - 1) % size)
                })
            })
            .unwrap();
            assert_eq!(get(&recv), values((rank + size - 1) % size, N));
        });
    }
}

#[test]
fn barrier() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;
    for size in SIZES {
        let arrived = Arc::new(AtomicUsize::new(0));
        ranks(size, |comm, stream| {
            let counter = Arc::clone(&arrived);
            let add = move || {
                counter.fetch_add(1, Ordering::SeqCst);
            };
            stream.submit(add).unwrap();
            comm.barrier(stream).unwrap();
            comm.wait(stream).unwrap();
            assert_eq!(arrived.load(Ordering::SeqCst), size);
        });
    }
}

#[test]
fn allgatherv() {
    for size in SIZES {
        ranks(size, |comm, stream| {
            let rank = comm.rank();
            // Rank i sends i elements, with a gap of one between the pieces.
            let counts: Vec<usize> = (0..size).collect();
            let offsets: Vec<usize> = (0..size).map(|i| (0..i).sum::<usize>() + i).collect();
            let length = offsets[size - 1] + counts[size - 1] + 1;
            let send = vec_on(comm, &values(rank, rank));
            let mut recv = vec_on(comm, &vec![-1; length]);
            comm.scope(stream, |s| s.allgatherv(&send, &mut recv, &counts, &offsets)).unwrap();
            let mut expected = vec![-1; length];
            for from in 0..size {
                expected[offsets[from]..][..from].copy_from_slice(&values(from, from));
            }
            assert_eq!(get(&recv), expected);
        });
    }
}

#[test]
fn alltoallv() {
    for size in SIZES {
        ranks(size, |comm, stream| {
            let rank = comm.rank();
            // Rank a sends a + b elements to rank b.
            let counts: Vec<usize> = (0..size).map(|peer| rank + peer).collect();
            let offsets: Vec<usize> = (0..size).map(|i| counts[..i].iter().sum()).collect();
            let total: usize = counts.iter().sum();
            let send = vec_on(comm, &values(rank, total));
            let mut recv = vec_on(comm, &vec![-1; total]);
            comm.scope(stream, |s| {
                s.alltoallv(&send, &counts, &offsets, &mut recv, &counts, &offsets)
            })
            .unwrap();
            let mut expected = vec![];
            for from in 0..size {
                let before: usize = (0..rank).map(|peer| from + peer).sum();
                expected.extend((0..from + rank).map(|i| value(from, before + i)));
            }
            assert_eq!(get(&recv), expected);
        });
    }
}

#[test]
fn a_held_buffer_is_used_many_times() {
    ranks(2, |comm, stream| {
        let mut buffer = vec_on(comm, &[comm.rank() as i32 + 1; 6]);
        comm.scope(stream, |s| {
            let held = s.hold(&mut buffer);
            assert_eq!(held.len(), 6);
            s.allreduce(InPlace, held, ReduceOp::Sum)?;
            s.allreduce(held, held, ReduceOp::Sum)?;
            s.allreduce(InPlace, held.slice(2..4), ReduceOp::Prod)
        })
        .unwrap();
        assert_eq!(get(&buffer), [6, 6, 36, 36, 6, 6]);
    });
}

#[test]
fn counts_of_zero() {
    ranks(2, |comm, stream| {
        let mut empty: DeviceVec<f32> = DeviceVec::zeros(comm.device(), 0).unwrap();
        assert!(empty.is_empty());
        comm.scope(stream, |s| s.allreduce(InPlace, &mut empty, ReduceOp::Sum)).unwrap();
    });
}

#[test]
fn slices_on_host() {
    if !common::on_host() {
        return common::skip("slices are host memory");
    }
    ranks(3, |comm, stream| {
        let mut vector = vec![1.0_f32; 10];
        let mut array = [2.0_f64; 4];
        let mut boxed: Box<[i32]> = vec![3; 3].into();
        comm.scope(stream, |s| {
            s.allreduce(InPlace, &mut vector[5..], ReduceOp::Sum)?;
            s.allreduce(InPlace, &mut array, ReduceOp::Sum)?;
            s.allreduce(InPlace, &mut boxed, ReduceOp::Sum)
        })
        .unwrap();
        assert_eq!(vector, [1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0, 3.0]);
        assert_eq!(array, [6.0; 4]);
        assert_eq!(*boxed, [9; 3]);
    });
}

/// The `unsafe` forms are what the safe ones call; here are those that frameworks use most.
#[test]
fn the_unsafe_forms() {
    ranks(2, |comm, stream| {
        let rank = comm.rank();
        let a = vec_on(comm, &values(rank, N));
        let b = vec_on(comm, &[-1_i64; N]);
        // SAFETY: the second half of `b`, which outlives the wait below.
        let tail = unsafe {
            let start = b.ptr().cast::<i64>().add(N - 9).cast();
            DeviceSlice::new(start, 9, DType::I64, Some(comm.device()))
        };
        let queue = |comm: &mut tributary::Communicator| -> Result<()> {
            // SAFETY: `a` and `b` are not touched until the stream has been waited for.
            unsafe {
                comm.allreduce(&a, &b, ReduceOp::Sum, stream)?;
                comm.broadcast(Some(&tail), &tail, 1, stream)?;
                comm.allreduce_list(&[&a, &b], ReduceOp::Sum, stream)
            }
        };
        queue(comm).unwrap();
        comm.wait(stream).unwrap();
        let twice: Vec<i64> = (0..N).map(|i| 2 * sum(2, i)).collect();
        assert_eq!(get(&b), twice);
        assert_eq!(get(&a), (0..N).map(|i| sum(2, i)).collect::<Vec<_>>());
    });
}

/// What the header says of a call of two ranks, 7 elements and no symmetric memory. How far the ranks reach
/// each other shows in the memory that they have for it: pull has 32 of 48 MiB.
fn refused(comm: &mut Communicator, variant: Variant) -> Option<ErrorKind> {
    let peer = comm.memory().unwrap().peer.bytes;
    let served = match variant {
        Variant::Auto => true,
        Variant::Symmetric => return Some(ErrorKind::InvalidBuffer), // see symmetric.rs
        Variant::Nccl => !on_host(),
        Variant::Push => !on_host() && peer > 0,
        Variant::OneShot | Variant::TwoShot => !on_host() && peer >= 32 << 20,
        Variant::Window => false, // the communicator has none
        other => panic!("{other} is new"),
    };
    (!served).then_some(ErrorKind::Unsupported)
}

/// Each variant gives the sum, in place and out of it, or says what it takes and leaves the buffers alone.
#[test]
fn variants() {
    ranks(2, |comm, stream| {
        let rank = comm.rank() as f32;
        let send = vec_on(comm, &[rank + 1.0; 7]);
        for &variant in Variant::ALL {
            let mut recv = vec_on(comm, &[0.5_f32; 7]);
            let mut both = vec_on(comm, &[rank + 1.0; 7]);
            let refused = refused(comm, variant);
            let in_place = match variant {
                Variant::OneShot => Some(ErrorKind::Unsupported),
                _ => refused,
            };
            let options = || CallOptions::new().variant(variant);
            let sum = ReduceOp::Sum;
            let apart = comm.scope(stream, |s| s.allreduce_with(&send, &mut recv, sum, options()));
            let inside =
                comm.scope(stream, |s| s.allreduce_with(InPlace, &mut both, sum, options()));
            for (done, refused) in [(&apart, refused), (&inside, in_place)] {
                assert_eq!(done.as_ref().err().map(|e| e.kind()), refused, "{variant}: {done:?}");
                if let Err(error) = done {
                    assert!(error.to_string().contains(variant.name()), "{error}");
                }
            }
            assert_eq!(get(&recv), [if refused.is_none() { 3.0 } else { 0.5 }; 7], "{variant}");
            let kept = rank + 1.0;
            assert_eq!(get(&both), [if in_place.is_none() { 3.0 } else { kept }; 7], "{variant}");
        }
    });
}

#[test]
fn factors() {
    ranks(2, |comm, stream| {
        let rank = comm.rank();
        let send = vec_on(comm, &[4.0_f32; 7]);
        let mut recv = vec_on(comm, &[0.0_f32; 7]);
        let mut list = vec![vec_on(comm, &[8.0_f32; 3]), vec_on(comm, &[rank as f32; 300])];
        let factor = vec_on(comm, &[[0.5_f32, 2.0][rank]]);
        comm.scope(stream, |s| {
            let host = CallOptions::new().factor([0.25, -1.0][rank]);
            s.allreduce_with(&send, &mut recv, ReduceOp::Sum, host)?;
            s.allreduce_list_with(
                &mut list,
                ReduceOp::Sum,
                CallOptions::new().device_factor(&factor),
            )
        })
        .unwrap();
        assert_eq!(get(&recv), [-3.0; 7]);
        assert_eq!(get(&list[0]), [20.0; 3]);
        assert_eq!(get(&list[1]), [2.0; 300]);
        let long = vec_on(comm, &[1.0_f32; 2]);
        let mut again = vec_on(comm, &[0.0_f32; 7]);
        let error = comm
            .scope(stream, |s| {
                let factor = &long;
                let sum = ReduceOp::Sum;
                s.allreduce_with(&send, &mut again, sum, CallOptions::new().device_factor(factor))
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidBuffer, "{error}");
    });
}
