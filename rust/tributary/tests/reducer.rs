//! Reducers: gradients that are copied, that lie in the buckets, and that somebody else owns; steps
//! of one thread and of several; their errors, and their end.

mod common;

use std::mem;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use common::{
    device, error_of, get, options, ranks, ranks_with, stay_until_aborted, vec_on, warm_up,
};
use tributary::{
    Communicator, DType, DeviceBuffer, DeviceSlice, DeviceVec, ErrorKind, Foreign, Lends, Reducer,
    ReducerOptions, Result, SparseOptions, Step, StepGradient, Stream, Views,
};

/// Gradients of no, one and an odd number of elements, in several buckets.
const LENGTHS: [usize; 6] = [1000, 0, 1, 257, 3000, 5];

fn small_buckets() -> ReducerOptions {
    ReducerOptions::new().bucket_bytes(4096).first_bytes(1024)
}

/// Whole numbers, so that sums are exact; averages over 1, 2 and 4 ranks, too.
fn value(rank: usize, step: usize, i: usize, element: usize) -> f32 {
    ((rank * 31 + step * 17 + i * 7 + element) % 64) as f32 - 20.0
}

fn mine(rank: usize, step: usize, i: usize) -> Vec<f32> {
    (0..LENGTHS[i]).map(|element| value(rank, step, i, element)).collect()
}

/// The sum over the ranks for which gradient `i` is ready.
fn sum(size: usize, step: usize, i: usize, ready: impl Fn(usize, usize) -> bool) -> Vec<f32> {
    let of = |element| (0..size).filter(|&r| ready(r, i)).map(move |r| value(r, step, i, element));
    (0..LENGTHS[i]).map(|element| of(element).sum()).collect()
}

fn owned(comm: &mut Communicator, options: &ReducerOptions) -> Reducer<DeviceVec<f32>> {
    let gradients = LENGTHS.iter().map(|&len| vec_on(comm, &vec![f32::NAN; len])).collect();
    Reducer::new(comm, gradients, options).unwrap()
}

fn views(comm: &mut Communicator, options: &ReducerOptions) -> Reducer<Views> {
    Reducer::views(comm, &LENGTHS.map(|len| (len, DType::F32)), options).unwrap()
}

fn read<B: Lends>(reducer: &mut Reducer<B>, comm: &Communicator, stream: &Stream) -> Vec<Vec<f32>> {
    let mut one = |i| reducer.gradient(comm, i).unwrap().download(stream).unwrap();
    (0..LENGTHS.len()).map(&mut one).collect()
}

fn put<B: Lends>(step: &mut Step<B>, rank: usize, number: usize, stream: &Stream) {
    for i in 0..LENGTHS.len() {
        step.gradient(i).unwrap().upload(&mine(rank, number, i), stream).unwrap();
    }
}

/// The word that kernels read, if the host can read it, too. The last step has run.
fn outcome<B>(reducer: &Reducer<B>) -> Option<u32> {
    let place = reducer.outcome().unwrap();
    // SAFETY: it lives as long as the reducer, and no step is queued.
    common::on_host().then(|| unsafe { *place })
}

/// Steps in which all gradients are ready, in any order, and steps in which some or all are not.
fn steps<B: Lends>(
    reducer: &mut Reducer<B>,
    comm: &mut Communicator,
    stream: &Stream,
    average: bool,
) {
    let (rank, size) = (comm.rank(), comm.size());
    assert_eq!((reducer.len(), reducer.is_empty()), (LENGTHS.len(), false));
    assert!(reducer.buckets().unwrap() > 2);
    reducer.wait().unwrap();
    assert!(reducer.is_done().unwrap());
    let ready: [fn(usize, usize) -> bool; 4] =
        [|_, _| true, |_, _| true, |rank, i| (rank + i) % 3 != 0, |_, _| false];
    for (number, ready) in ready.into_iter().enumerate() {
        let mut step = reducer.step(comm).unwrap();
        put(&mut step, rank, number, stream);
        for k in 0..LENGTHS.len() {
            let i = if number == 0 { LENGTHS.len() - 1 - k } else { k };
            if ready(rank, i) {
                step.ready(i, stream).unwrap();
            }
        }
        step.finish(stream).unwrap();
        reducer.wait().unwrap();
        assert!(reducer.is_done().unwrap());
        let divisor = if average { size as f32 } else { 1.0 };
        let found = read(reducer, comm, stream);
        for (i, found) in found.into_iter().enumerate() {
            let expected = sum(size, number, i, ready).into_iter().map(|sum| sum / divisor);
            assert_eq!(found, expected.collect::<Vec<_>>(), "step {number}, gradient {i}");
        }
        assert!(matches!(outcome(reducer), Some(1) | None));
    }
}

#[test]
fn sums_and_averages_of_copies_views_and_twins() {
    for size in [1, 2, 4] {
        ranks(size, |comm, stream| {
            for (average, learns) in [(false, false), (true, false), (false, true), (true, true)] {
                let options = small_buckets().sum(!average).learn_order(learns);
                steps(&mut owned(comm, &options), comm, stream, average);
                steps(&mut views(comm, &options), comm, stream, average);
                steps(&mut views(comm, &options.twins(true)), comm, stream, average);
            }
        });
    }
}

#[test]
fn the_order_is_said() {
    ranks(2, |comm, stream| {
        let turns = 0..LENGTHS.len();
        steps(&mut owned(comm, &small_buckets().order(turns.clone().rev())), comm, stream, true);
        let reducer = views(comm, &small_buckets().order(turns.clone().rev()));
        assert!(reducer.view(5).unwrap() < reducer.view(0).unwrap());
        drop(reducer);
        let short = small_buckets().order(turns.skip(1));
        let error = Reducer::views(comm, &[(8, DType::F32); 6], &short).unwrap_err();
        assert!(error.to_string().contains("`order` has 5 numbers; expected 6"), "{error}");
    });
}

#[test]
fn buckets_of_the_caller() {
    ranks(2, |comm, stream| {
        let options = small_buckets().sum(true);
        steps(&mut owned(comm, &options.clone().in_place([1; 6])), comm, stream, false);
        let all = vec_on(comm, &[1.0_f32; 10]);
        // SAFETY: elements `begin` to `begin + len` of `all`, which outlives the reducer.
        let part = |begin: usize, len| unsafe {
            let data = all.ptr().cast::<f32>().add(begin);
            DeviceSlice::new(data.cast(), len, DType::F32, all.device())
        };
        let (first, last) = (part(0, 7), part(7, 3));
        // SAFETY: only the reducer's steps use it.
        let foreign: Result<Reducer<Foreign>> = unsafe {
            Reducer::foreign(comm, &[&last, &first], &options.order([1, 0]).in_place([2]))
        };
        let mut reducer = foreign.unwrap();
        assert_eq!(reducer.buckets().unwrap(), 1);
        let step = reducer.step(comm).unwrap();
        step.ready(0, stream).unwrap();
        step.ready(1, stream).unwrap();
        step.finish(stream).unwrap();
        reducer.wait().unwrap();
        drop(reducer);
        assert_eq!(get(&all), [2.0; 10]);
    });
}

#[test]
fn the_first_step_orders_the_views() {
    ranks(2, |comm, stream| {
        let rank = comm.rank();
        for learns in [false, true] {
            let mut reducer = views(comm, &small_buckets().learn_order(learns));
            for _ in 0..2 {
                let step = reducer.step(comm).unwrap();
                let turns: Vec<_> = (0..step.len()).collect();
                let backwards = turns.iter().rev().copied().collect();
                // Rank 0's order counts.
                for i in if rank == 0 { backwards } else { turns } {
                    step.ready(i, stream).unwrap();
                }
                step.finish(stream).unwrap();
                reducer.wait().unwrap();
            }
            assert_eq!(reducer.view(5).unwrap() < reducer.view(0).unwrap(), learns);
            assert!(reducer.view(1).unwrap().is_null());
        }
    });
}

/// Of both ranks in a step. Their sums are powers of 2, so that averages are exact.
const WEIGHTS: [[f32; 2]; 3] = [[1.0, 0.0], [1.0, 3.0], [0.5, 1.5]];

#[test]
fn weights_make_weighted_averages() {
    ranks(2, |comm, stream| {
        let rank = comm.rank();
        let gradients = LENGTHS.iter().map(|&len| vec_on(comm, &vec![f32::NAN; len])).collect();
        let weight = vec_on(comm, &[0.0_f32]);
        let mut reducer = Reducer::weighted(comm, gradients, weight, &small_buckets()).unwrap();
        assert_eq!(reducer.len(), LENGTHS.len());
        for (number, weights) in WEIGHTS.iter().enumerate() {
            weighted_step(&mut reducer, comm, stream, number, weights[rank]);
            reducer.wait().unwrap();
            for (i, found) in read(&mut reducer, comm, stream).iter().enumerate() {
                let total: f32 = weights.iter().sum();
                let of = |rank: usize, element| weights[rank] * value(rank, number, i, element);
                let expected: Vec<_> =
                    (0..LENGTHS[i]).map(|e| (of(0, e) + of(1, e)) / total).collect();
                assert_eq!(found, &expected, "gradient {i} of step {number}");
            }
        }
        let mut back = reducer.into_gradients().unwrap();
        assert_eq!(get(&back.pop().unwrap()), [WEIGHTS[2][rank]]);
        assert_eq!(back.len(), LENGTHS.len());
    });
}

/// A rank of weight 0 has NaN for a gradient.
fn weighted_step(
    reducer: &mut Reducer<DeviceVec<f32>>,
    comm: &mut Communicator,
    stream: &Stream,
    number: usize,
    weight: f32,
) {
    let rank = comm.rank();
    let mut step = reducer.step(comm).unwrap();
    put(&mut step, rank, number, stream);
    step.weight().unwrap().upload(&[weight], stream).unwrap();
    if weight == 0.0 {
        step.gradient(0).unwrap().upload(&vec![f32::NAN; LENGTHS[0]], stream).unwrap();
    }
    step.ready(0, stream).unwrap();
    let error = error_of(step.weight());
    assert_eq!(error.kind(), ErrorKind::InvalidUsage);
    assert!(error.detail().contains("gradient 0"), "{error}");
    (1..LENGTHS.len()).for_each(|i| step.ready(i, stream).unwrap());
    step.finish(stream).unwrap();
}

#[test]
fn weights_that_are_wrong_change_nothing() {
    ranks(2, |comm, stream| {
        let rank = comm.rank();
        let gradients = LENGTHS.iter().map(|&len| vec_on(comm, &vec![0.0; len])).collect();
        let weight = vec_on(comm, &[1.0_f32]);
        let mut reducer = Reducer::weighted(comm, gradients, weight, &small_buckets()).unwrap();
        for wrong in [-1.0, f32::NAN, f32::INFINITY] {
            let weight = if rank == 1 { wrong } else { 1.0 };
            weighted_step(&mut reducer, comm, stream, 0, weight);
            let error = error_of(reducer.wait());
            assert_eq!(error.kind(), ErrorKind::NonFinite);
            assert!(error.detail().contains("weight"), "{error}");
            let own = read(&mut reducer, comm, stream);
            (0..LENGTHS.len()).for_each(|i| assert_eq!(own[i], mine(rank, 0, i)));
        }
        weighted_step(&mut reducer, comm, stream, 0, 2.0); // the communicator goes on
        reducer.wait().unwrap();
        let found = read(&mut reducer, comm, stream);
        let halves = |i| sum(2, 0, i, |_, _| true).iter().map(|sum| sum / 2.0).collect::<Vec<_>>();
        (0..LENGTHS.len()).for_each(|i| assert_eq!(found[i], halves(i)));
    });
}

#[test]
fn a_weight_is_one_f32_and_of_all_ranks() {
    ranks(2, |comm, stream| {
        let rank = comm.rank();
        let make = |comm: &mut Communicator, weight: DeviceVec<f32>, options: &ReducerOptions| {
            Reducer::weighted(comm, vec![vec_on(comm, &[1.5_f32])], weight, options)
        };
        let plain = ReducerOptions::new();
        let two = vec_on(comm, &[1.0_f32; 2]);
        let failed = make(comm, two, &plain).unwrap_err();
        assert_eq!(failed.error.kind(), ErrorKind::InvalidBuffer);
        assert!(failed.error.detail().contains("`weight` is 2 elements"), "{}", failed.error);
        let buffers = failed.buffers.unwrap();
        assert_eq!((get(&buffers[0]), get(&buffers[1])), (vec![1.5], vec![1.0; 2]));
        let one = vec_on(comm, &[1.0_f32]);
        let error = make(comm, one, &plain.clone().sum(true)).unwrap_err().error;
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.detail().contains("TRIB_REDUCER_SUM"), "{error}");
        // Rank 1 alone has one.
        let (gradient, one) = (vec_on(comm, &[1.5_f32]), vec_on(comm, &[1.0_f32]));
        let failed = match rank {
            0 => Reducer::new(comm, vec![gradient], &plain).err(),
            _ => Reducer::weighted(comm, vec![gradient], one, &plain).err(),
        };
        assert_eq!(failed.unwrap().error.kind(), ErrorKind::Mismatch);
        let mut reducer = owned(comm, &plain);
        let mut step = reducer.step(comm).unwrap();
        let error = error_of(step.weight());
        assert!(error.detail().contains("Reducer::weighted"), "{error}");
        step.finish(stream).unwrap();
    });
}

#[test]
fn three_ranks_sum() {
    ranks(3, |comm, stream| {
        let mut reducer = owned(comm, &small_buckets().sum(true));
        steps(&mut reducer, comm, stream, false);
    });
}

#[test]
fn gradients_of_several_types() {
    ranks(2, |comm, stream| {
        let shapes = [(3, DType::F32), (5, DType::F64), (2, DType::F32)];
        let mut reducer = Reducer::views(comm, &shapes, &ReducerOptions::new()).unwrap();
        assert_eq!(reducer.buckets().unwrap(), 2);
        let rank = comm.rank() as f64;
        let mut step = reducer.step(comm).unwrap();
        assert_eq!(step.gradient(1).unwrap().download::<f64>(stream).unwrap(), [0.0; 5]);
        step.gradient(1).unwrap().upload(&[rank; 5], stream).unwrap();
        step.gradient(2).unwrap().upload(&[rank as f32, 4.0], stream).unwrap();
        let error = error_of(step.gradient(1).unwrap().upload(&[1.0_f32; 5], stream));
        assert!(error.detail().contains("5 elements of f32 for a gradient of 5 of f64"), "{error}");
        let error = error_of(step.gradient(1).unwrap().download_into(&mut [1.0; 4], stream));
        assert!(error.detail().contains("4 elements of f64"), "{error}");
        for i in 0..3 {
            step.ready(i, stream).unwrap();
        }
        step.finish(stream).unwrap();
        reducer.wait().unwrap();
        for (i, shape) in shapes.into_iter().enumerate() {
            let place = reducer.view(i).unwrap();
            let gradient = reducer.gradient(comm, i).unwrap();
            assert!(gradient.ptr() == place && place as usize % 16 == 0);
            assert_eq!((DeviceBuffer::len(&gradient), gradient.dtype()), shape);
        }
        let gradient = reducer.gradient(comm, 1).unwrap();
        assert_eq!(gradient.download::<f64>(stream).unwrap(), [0.5; 5]);
        assert_eq!(gradient.as_slice::<f64>().is_some(), common::on_host());
        assert!(gradient.as_slice::<f32>().is_none());
        let gradient = reducer.gradient(comm, 2).unwrap();
        assert_eq!(gradient.download::<f32>(stream).unwrap(), [0.5, 4.0]);
    });
}

#[test]
fn no_gradients_at_all() {
    ranks(2, |comm, stream| {
        let mut reducer = Reducer::<Vec<f32>>::new(comm, vec![], &ReducerOptions::new()).unwrap();
        assert!(reducer.is_empty() && reducer.buckets().unwrap() == 0);
        reducer.step(comm).unwrap().finish(stream).unwrap();
        reducer.wait().unwrap();
        assert!(reducer.into_gradients().unwrap().is_empty());
    });
}

/// Each gradient is ready on a thread and a stream of its own.
#[test]
fn gradients_are_ready_on_several_threads() {
    ranks(2, |comm, stream| {
        let (rank, size) = (comm.rank(), comm.size());
        let mut reducer = owned(comm, &small_buckets().sum(true));
        for number in 0..10 {
            let new = |_| Stream::new(comm.device()).unwrap();
            let mut streams: Vec<_> = LENGTHS.iter().map(new).collect();
            let mut step = reducer.step(comm).unwrap();
            put(&mut step, rank, number, stream);
            thread::scope(|threads| {
                for (i, stream) in streams.iter_mut().enumerate() {
                    let step = &step;
                    threads.spawn(move || {
                        let pause = Duration::from_micros((number * i % 3 * 200) as u64);
                        stream.submit(move || thread::sleep(pause)).unwrap();
                        step.ready(i, stream).unwrap();
                    });
                }
            });
            assert!(format!("{step:?}").starts_with("Step(6 ready"), "{step:?}");
            step.finish(stream).unwrap();
            let found = read(&mut reducer, comm, stream);
            for (i, found) in found.into_iter().enumerate() {
                assert_eq!(found, sum(size, number, i, |_, _| true), "{number}, {i}");
            }
        }
    });
}

/// Each gradient is written and ready on a thread and a stream of its own, while others are written.
#[test]
fn gradients_are_lent_to_several_threads() {
    fn check<B: Lends>(
        mut reducer: Reducer<B>,
        comm: &mut Communicator,
        stream: &Stream,
        streams: &mut [Stream],
    ) {
        let (rank, size) = (comm.rank(), comm.size());
        for number in 0..10 {
            let left = number % LENGTHS.len(); // dropped: not ready
            let mut step = reducer.step(comm).unwrap();
            let lent = step.gradients().unwrap();
            assert!(lent.iter().map(StepGradient::index).eq(0..LENGTHS.len()));
            thread::scope(|threads| {
                for (mut lent, stream) in lent.into_iter().zip(&mut *streams) {
                    threads.spawn(move || {
                        let i = lent.index();
                        lent.gradient().upload(&mine(rank, number, i), stream).unwrap();
                        if i != left {
                            lent.ready(stream).unwrap();
                        }
                    });
                }
            });
            step.finish(stream).unwrap();
            let found = read(&mut reducer, comm, stream);
            for (i, found) in found.into_iter().enumerate() {
                assert_eq!(found, sum(size, number, i, |_, i| i != left), "{number}, {i}");
            }
        }
    }
    ranks(2, |comm, stream| {
        let new = |_| Stream::new(comm.device()).unwrap();
        let mut streams: Vec<_> = LENGTHS.iter().map(new).collect();
        let options = small_buckets().sum(true);
        check(owned(comm, &options), comm, stream, &mut streams);
        check(views(comm, &options), comm, stream, &mut streams);
    });
}

#[test]
fn only_what_is_not_ready_is_lent() {
    ranks(2, |comm, stream| {
        let other = Stream::new(device(1 - comm.rank())).unwrap();
        let mut reducer = owned(comm, &small_buckets());
        let mut step = reducer.step(comm).unwrap();
        step.ready(1, stream).unwrap();
        let mut lent = step.gradients().unwrap();
        assert_eq!(lent.len(), LENGTHS.len() - 1);
        let first = lent.remove(0);
        assert!(format!("{first:?}").starts_with("StepGradient(0, Gradient("), "{first:?}");
        let error = first.ready(&other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidStream, "{error}");
        lent.remove(0).ready(stream).unwrap();
        drop(lent);
        let again = step.gradients().unwrap();
        assert!(again.iter().map(StepGradient::index).eq([0].into_iter().chain(3..LENGTHS.len())));
        again.into_iter().for_each(|lent| lent.ready(stream).unwrap());
        assert!(step.gradients().unwrap().is_empty());
        step.finish(stream).unwrap();
        reducer.wait().unwrap();
    });
}

/// The host waits for nothing between two steps, and later work of the stream sees the averages.
#[test]
fn steps_follow_each_other_without_a_wait() {
    ranks(2, |comm, stream| {
        let values = vec_on(comm, &[comm.rank() as f32 + 1.0; 500]);
        let mut copy = vec_on(comm, &[f32::NAN; 500]);
        // SAFETY: `values` outlives the reducer, and only its steps use it.
        let foreign: Result<Reducer<Foreign>> =
            unsafe { Reducer::foreign(comm, &[&values], &small_buckets().sum(true)) };
        let mut reducer = foreign.unwrap();
        for _ in 0..5 {
            let step = reducer.step(comm).unwrap();
            step.ready(0, stream).unwrap();
            step.finish(stream).unwrap();
        }
        comm.scope(stream, |s| s.broadcast(Some(&values), &mut copy, 1)).unwrap();
        assert_eq!(get(&copy), [3.0 * 16.0; 500]);
        reducer.wait().unwrap();
        drop(reducer);
        assert_eq!(get(&values), [48.0; 500]);
    });
}

#[test]
fn gradients_come_back() {
    ranks(2, |comm, stream| {
        let drops = Arc::new(AtomicUsize::new(0));
        let gradients = vec![Counted::new(comm, &drops), Counted::new(comm, &drops)];
        let mut reducer = Reducer::new(comm, gradients, &ReducerOptions::new()).unwrap();
        for _ in 0..2 {
            let step = reducer.step(comm).unwrap();
            step.ready(1, stream).unwrap();
            step.finish(stream).unwrap();
        }
        let gradients = reducer.into_gradients().unwrap();
        assert_eq!(get(&gradients[0].1), [0.0; 10]);
        assert_eq!(get(&gradients[1].1), [0.5; 10]);
        assert_eq!(drops.load(Ordering::SeqCst), 0);
        drop(gradients);
        assert_eq!((drops.load(Ordering::SeqCst), Arc::strong_count(&drops)), (2, 1));
    });
}

/// Counts its drops. Its values are the rank's number.
struct Counted(Arc<AtomicUsize>, DeviceVec<f32>);

impl Counted {
    fn new(comm: &Communicator, drops: &Arc<AtomicUsize>) -> Counted {
        Counted(Arc::clone(drops), vec_on(comm, &[comm.rank() as f32; 10]))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: as the vector.
unsafe impl DeviceBuffer for Counted {
    fn ptr(&self) -> *mut std::ffi::c_void {
        self.1.ptr()
    }
    fn len(&self) -> usize {
        self.1.len()
    }
    fn dtype(&self) -> DType {
        self.1.dtype()
    }
}

// SAFETY: as the vector.
unsafe impl tributary::UniqueBuffer for Counted {
    fn ptr_mut(&mut self) -> *mut std::ffi::c_void {
        self.1.ptr_mut()
    }
}

// --------------------------------------------------------------------------------------- sparse

fn sparse(sparse: SparseOptions) -> ReducerOptions {
    small_buckets().sum(true).sparse(sparse.algorithm("topka"))
}

fn run<B: Lends>(
    reducer: &mut Reducer<B>,
    comm: &mut Communicator,
    stream: &Stream,
    number: usize,
    wrong: bool,
) -> Result<()> {
    let rank = comm.rank();
    let mut step = reducer.step(comm)?;
    put(&mut step, rank, number, stream);
    if wrong {
        step.gradient(2)?.upload(&[f32::INFINITY], stream)?;
    }
    (0..LENGTHS.len()).rev().for_each(|i| step.ready(i, stream).unwrap());
    step.finish(stream)?;
    reducer.wait()
}

/// The residuals in an export without momentum: they follow a head.
fn residuals(export: &[u8]) -> Vec<f32> {
    let of = LENGTHS.iter().sum::<usize>() * mem::size_of::<f32>();
    let words = export[export.len() - of..].chunks_exact(4);
    words.map(|word| f32::from_ne_bytes(word.try_into().unwrap())).collect()
}

/// What all ranks were given is in the results, or in their residuals.
fn nothing_is_lost<B: Lends>(
    mut reducer: Reducer<B>,
    comm: &mut Communicator,
    stream: &Stream,
    exports: &Mutex<Vec<Vec<f32>>>,
) {
    let size = comm.size();
    let mut sent = vec![0.0; LENGTHS.iter().sum()];
    for number in 0..4 {
        run(&mut reducer, comm, stream, number, false).unwrap();
        let found = read(&mut reducer, comm, stream).concat();
        sent.iter_mut().zip(found).for_each(|(sum, value)| *sum += value);
        let before = reducer.export().unwrap();
        let error = error_of(run(&mut reducer, comm, stream, number, comm.rank() == 0));
        assert_eq!(error.kind(), ErrorKind::NonFinite);
        assert!(error.detail().contains("not finite"), "{error}");
        assert!(reducer.export().unwrap() == before);
        if number == 1 {
            reducer.set_density(0.5).unwrap();
        }
    }
    // Of several buckets, and of eight steps all but one that learns the order.
    let found = reducer.statistics().unwrap();
    assert!(found.count >= LENGTHS.iter().sum::<usize>() as u64, "{found:?}");
    assert!(found.algorithm == "topka" && found.calls >= 2 * 7, "{found:?}");
    assert!(found.bytes_sent > 0, "{found:?}");
    exports.lock().unwrap().push(residuals(&reducer.export().unwrap()));
    comm.scope(stream, |s| s.barrier()).unwrap();
    let given = (0..LENGTHS.len()).flat_map(|i| {
        let of = move |number| sum(size, number, i, |_, _| true);
        (0..LENGTHS[i]).map(move |e| (0..4).map(|number| of(number)[e]).sum::<f32>())
    });
    let kept = exports.lock().unwrap();
    let kept = |e: usize| kept.iter().map(|of| of[e]).sum::<f32>();
    for (e, given) in given.enumerate() {
        assert_eq!(given, sent[e] + kept(e), "element {e}");
    }
}

#[test]
fn sparse_steps_lose_nothing() {
    let options = sparse(SparseOptions::new().density(0.1));
    let exports = Mutex::new(Vec::new());
    ranks(2, |comm, stream| nothing_is_lost(owned(comm, &options), comm, stream, &exports));
    let (options, exports) =
        (options.clone().twins(true).learn_order(true), Mutex::new(Vec::new()));
    ranks(2, |comm, stream| nothing_is_lost(views(comm, &options), comm, stream, &exports));
}

#[test]
fn residuals_are_handed_over() {
    ranks(2, |comm, stream| {
        let momentum = || SparseOptions::new().density(0.1).momentum(0.5);
        let mut first = owned(comm, &sparse(momentum()));
        run(&mut first, comm, stream, 0, false).unwrap();
        let data = first.export().unwrap();
        // Other buckets, another algorithm.
        let options = ReducerOptions::new().sparse(momentum().algorithm("gtopk").density(0.3));
        let mut second = owned(comm, &options);
        second.import(&data).unwrap();
        assert!(second.export().unwrap() == data);
        second.import_added(&data).unwrap();
        assert!(second.export().unwrap() != data);
        second.import(&data).unwrap();
        assert!(second.export().unwrap() == data);
        let error = error_of(second.import(&data[1..]));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let mut plain = owned(comm, &sparse(SparseOptions::new()));
        let error = error_of(plain.import(&data));
        assert!(error.detail().contains("no momentum"), "{error}");
        let error = error_of(owned(comm, &small_buckets()).export());
        assert_eq!(error.kind(), ErrorKind::InvalidUsage);
    });
}

#[test]
fn sparse_options_of_a_reducer_are_checked() {
    ranks(2, |comm, _| {
        let fail = |comm: &mut Communicator, sparse: SparseOptions| {
            let gradients = vec![vec_on(comm, &[1.5_f32; 8])];
            let options = ReducerOptions::new().sparse(sparse);
            Reducer::new(comm, gradients, &options).unwrap_err().error
        };
        for (sparse, detail) in [
            (SparseOptions::new().average(true), "options.sparse->flags"),
            (SparseOptions::new().density(0.0), "`density` is 0"),
            (SparseOptions::new().momentum(1.0), "momentum"),
        ] {
            let error = fail(comm, sparse);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.detail().contains(detail), "{error}");
        }
        let error = fail(comm, SparseOptions::new().algorithm("fastest"));
        assert_eq!(error.kind(), ErrorKind::UnknownName);
        let mut reducer = owned(comm, &sparse(SparseOptions::new()));
        assert!(error_of(reducer.set_density(0.0)).detail().contains("`density` is 0"));
        reducer.set_density(1.0).unwrap();
    });
}

// ------------------------------------------------------------------------------------- mistakes

#[test]
fn what_cannot_be_made_gives_the_gradients_back() {
    ranks(2, |comm, stream| {
        let rank = comm.rank();
        let fail = |comm: &mut Communicator, len: usize, options: &ReducerOptions| {
            let gradients = vec![vec_on(comm, &vec![1.5_f32; len])];
            let failed = Reducer::new(comm, gradients, options).unwrap_err();
            assert_eq!(get(&failed.buffers.as_ref().unwrap()[0]), vec![1.5; len]);
            failed.error
        };
        // Of all ranks: C's errors, and this crate's.
        let error = fail(comm, 4, &ReducerOptions::new().twins(true));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.detail().contains("TRIB_REDUCER_TWINS"), "{error}");
        for (options, name) in [
            (ReducerOptions::new().bucket_bytes(0), "`bucket_bytes` is 0"),
            (ReducerOptions::new().first_bytes(0), "`first_bytes` is 0"),
        ] {
            let error = fail(comm, 4, &options);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.detail().contains(name), "{error}");
        }
        // Of one rank, which the others learn of.
        let mut options = ReducerOptions::new();
        if rank == 1 {
            options = options.bucket_bytes(0);
        }
        let kinds = [ErrorKind::Mismatch, ErrorKind::InvalidArgument];
        assert_eq!(fail(comm, 4, &options).kind(), kinds[rank]);
        // Different lengths.
        let error = fail(comm, 4 + rank, &ReducerOptions::new());
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        // The `?` of a function.
        let start = |comm: &mut Communicator| -> Result<Reducer<Vec<i32>>> {
            Ok(Reducer::new(comm, vec![vec![1]], &ReducerOptions::new())?)
        };
        assert_eq!(error_of(start(comm)).kind(), ErrorKind::InvalidArgument);
        // The communicator is as good as before.
        comm.scope(stream, |s| s.barrier()).unwrap();
    });
}

#[test]
fn a_gradient_elsewhere_is_refused() {
    if !common::have(2) {
        return;
    }
    ranks(1, |comm, _| {
        let gradients = vec![vec_on(comm, &[1.0_f32]), DeviceVec::zeros(device(1), 4).unwrap()];
        let failed = Reducer::new(comm, gradients, &ReducerOptions::new()).unwrap_err();
        assert_eq!(failed.error.kind(), ErrorKind::InvalidBuffer);
        assert!(failed.error.detail().contains("`gradients[1]` is on"), "{failed}");
        assert_eq!(failed.buffers.unwrap().len(), 2);
    });
}

#[test]
fn what_a_step_refuses_changes_nothing() {
    ranks(2, |comm, stream| {
        let mut reducer = owned(comm, &small_buckets().sum(true));
        let (rank, size) = (comm.rank(), comm.size());
        let elsewhere = common::on_host().then(|| Stream::new(device(40)).unwrap());
        let mut step = reducer.step(comm).unwrap();
        put(&mut step, rank, 0, stream);
        step.ready(0, stream).unwrap();
        let error = error_of(step.ready(0, stream));
        assert_eq!(error.kind(), ErrorKind::InvalidUsage);
        assert!(error.detail().contains("gradient 0 is ready already"), "{error}");
        let error = error_of(step.ready(6, stream));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let error = error_of(step.gradient(0));
        assert_eq!(error.kind(), ErrorKind::InvalidUsage);
        assert!(error.detail().contains("gradient 0 of Reducer(6"), "{error}");
        assert_eq!(error_of(step.gradient(6)).kind(), ErrorKind::InvalidArgument);
        if let Some(elsewhere) = &elsewhere {
            assert_eq!(error_of(step.ready(1, elsewhere)).kind(), ErrorKind::InvalidStream);
        }
        for i in 1..LENGTHS.len() {
            step.ready(i, stream).unwrap();
        }
        step.finish(stream).unwrap();
        reducer.wait().unwrap();
        let found = read(&mut reducer, comm, stream);
        for (i, found) in found.into_iter().enumerate() {
            assert_eq!(found, sum(size, 0, i, |_, _| true));
        }
    });
}

#[test]
fn a_step_is_of_its_communicator_and_not_in_a_batch() {
    ranks(1, |comm, stream| {
        let mut other = comm.split(Some(0), 0).unwrap().unwrap();
        let mut reducer = owned(comm, &small_buckets());
        assert_eq!(error_of(reducer.step(&mut other)).kind(), ErrorKind::InvalidUsage);
        assert_eq!(error_of(reducer.gradient(&other, 0)).kind(), ErrorKind::InvalidUsage);
        let error = error_of(comm.batch(stream, |comm| {
            drop(reducer.step(comm)?);
            Ok(())
        }));
        assert_eq!(error.kind(), ErrorKind::InvalidUsage);
        let error = error_of(comm.batch(stream, |comm| {
            Reducer::views(comm, &[(1, DType::F32)], &ReducerOptions::new())
        }));
        assert_eq!(error.kind(), ErrorKind::InvalidUsage);
        steps(&mut reducer, comm, stream, true);
    });
}

// ------------------------------------------------------------------------------------- the end

/// The gradients of step 0, unchanged.
fn unchanged<B: Lends>(reducer: &mut Reducer<B>, comm: &Communicator, stream: &Stream) {
    let found = read(reducer, comm, stream);
    for (i, found) in found.into_iter().enumerate() {
        assert_eq!(found, mine(comm.rank(), 0, i), "gradient {i}");
    }
    assert!(matches!(outcome(reducer), Some(0) | None));
}

/// The abort comes when all buckets but the last are queued, and rank 1 has queued none.
fn abort_in_a_step<B: Lends>(reducer: &mut Reducer<B>, comm: &mut Communicator, stream: &Stream) {
    let (rank, handle) = (comm.rank(), comm.abort_handle());
    let mut step = reducer.step(comm).unwrap();
    put(&mut step, rank, 0, stream);
    for i in 0..if rank == 0 { LENGTHS.len() - 1 } else { 1 } {
        step.ready(i, stream).unwrap();
    }
    if rank == 0 {
        thread::sleep(Duration::from_millis(5));
        handle.abort("the test gives up");
    }
    while !handle.is_aborted() {
        thread::yield_now();
    }
    let error = error_of(step.finish(stream));
    assert!(error.is_aborted() && error.detail().contains("the test gives up"), "{error}");
    assert_eq!(error_of(reducer.wait()).kind(), ErrorKind::Aborted);
    unchanged(reducer, comm, stream);
    // Nor does any later step change anything.
    let mut step = reducer.step(comm).unwrap();
    put(&mut step, rank, 0, stream);
    step.ready(0, stream).unwrap();
    assert!(error_of(step.finish(stream)).is_aborted());
    unchanged(reducer, comm, stream);
}

#[test]
fn after_an_abort_every_gradient_is_as_it_was() {
    let made = Barrier::new(2);
    ranks(2, |comm, stream| {
        warm_up(comm, stream);
        let mut reducer = owned(comm, &small_buckets());
        made.wait();
        abort_in_a_step(&mut reducer, comm, stream);
    });
    ranks(2, |comm, stream| {
        warm_up(comm, stream);
        let mut reducer = views(comm, &small_buckets().twins(true));
        made.wait();
        abort_in_a_step(&mut reducer, comm, stream);
    });
}

/// Rank 0 leaves in the middle of a step, rank 1 finishes it.
fn leave(leave: impl Fn(Step<DeviceVec<f32>>) + Sync, said: &str) {
    let made = Barrier::new(2); // an abort ends the creation, too
    ranks(2, |comm, stream| {
        warm_up(comm, stream);
        let mut reducer = owned(comm, &small_buckets());
        made.wait();
        let rank = comm.rank();
        let mut step = reducer.step(comm).unwrap();
        put(&mut step, rank, 0, stream);
        for i in 0..if rank == 0 { 2 } else { LENGTHS.len() } {
            step.ready(i, stream).unwrap();
        }
        if rank == 0 {
            leave(step);
        } else {
            let _ = step.finish(stream);
        }
        let error = error_of(reducer.wait());
        assert!(error.detail().contains(said), "{error}");
        unchanged(&mut reducer, comm, stream);
        for (i, gradient) in reducer.into_gradients().unwrap().iter().enumerate() {
            assert_eq!(get(gradient), mine(rank, 0, i));
        }
    });
}

#[test]
fn a_step_that_is_dropped_in_the_middle_frees_the_others() {
    leave(|step| drop(step), "rank 0 left a step of its reducer early");
    let panic = |step: Step<DeviceVec<f32>>| {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _step = step;
            panic!("on purpose")
        }));
        assert!(panicked.is_err());
    };
    leave(panic, "rank 0 left a step of its reducer early");
}

#[test]
fn a_finish_on_a_wrong_stream_frees_the_others() {
    if common::on_host() {
        leave(
            |step| {
                let elsewhere = Stream::new(device(40)).unwrap();
                assert_eq!(error_of(step.finish(&elsewhere)).kind(), ErrorKind::InvalidStream);
            },
            "rank 0 left a step of its reducer early",
        );
    }
}

#[test]
fn a_step_that_is_dropped_at_its_beginning_has_not_been() {
    ranks(2, |comm, stream| {
        let mut reducer = owned(comm, &small_buckets());
        if comm.rank() == 0 {
            drop(reducer.step(comm).unwrap());
        }
        steps(&mut reducer, comm, stream, true);
    });
}

/// The streams of a forgotten step may be gone: it is never finished.
#[test]
fn a_step_that_is_forgotten_ends_with_its_reducer() {
    let made = Barrier::new(2);
    ranks(2, |comm, stream| {
        warm_up(comm, stream);
        let drops = Arc::new(AtomicUsize::new(0));
        let gradients = vec![Counted::new(comm, &drops), Counted::new(comm, &drops)];
        let mut reducer = Reducer::new(comm, gradients, &ReducerOptions::new()).unwrap();
        made.wait();
        {
            let short = Stream::new(comm.device()).unwrap();
            let step = reducer.step(comm).unwrap();
            step.ready(0, &short).unwrap();
            mem::forget(step);
        }
        for error in [
            error_of(reducer.step(comm)),
            error_of(reducer.gradient(comm, 1)),
            error_of(reducer.wait()),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidUsage);
            assert!(error.detail().contains("was forgotten"), "{error}");
        }
        if comm.rank() == 0 {
            let gradients = reducer.into_gradients().unwrap();
            assert_eq!(get(&gradients[0].1), [0.0; 10]);
            assert!(error_of(comm.status()).detail().contains("was forgotten"));
        } else {
            drop(reducer);
            assert_eq!(drops.load(Ordering::SeqCst), 2);
        }
    });
}

#[test]
fn a_reducer_outlives_its_communicator() {
    ranks(2, |comm, stream| {
        let mut child = comm.split(Some(0), 0).unwrap().unwrap();
        let mut copies = owned(&mut child, &small_buckets().sum(true));
        let views = views(&mut child, &small_buckets());
        let (rank, size) = (comm.rank(), comm.size());
        let mut step = copies.step(&mut child).unwrap();
        put(&mut step, rank, 0, stream);
        (0..LENGTHS.len()).for_each(|i| step.ready(i, stream).unwrap());
        step.finish(stream).unwrap();
        drop(child);
        copies.wait().unwrap();
        assert_eq!(error_of(copies.outcome()).kind(), ErrorKind::Closed);
        assert_eq!(error_of(views.buckets()).kind(), ErrorKind::Closed);
        for (i, gradient) in copies.into_gradients().unwrap().iter().enumerate() {
            assert_eq!(get(gradient), sum(size, 0, i, |_, _| true));
        }
    });
}

/// Rank 1 never comes, and rank 0 waits for it no longer than it has to.
#[test]
fn a_reducer_that_is_dropped_while_it_is_stuck_leaks() {
    let drops = Arc::new(AtomicUsize::new(0));
    let options = options().close_timeout(Duration::from_millis(100));
    let made = Barrier::new(2);
    ranks_with(2, &options, |comm, stream| {
        warm_up(comm, stream);
        let gradients = vec![Counted::new(comm, &drops)];
        let mut reducer = Reducer::new(comm, gradients, &ReducerOptions::new()).unwrap();
        made.wait();
        if comm.rank() == 1 {
            stay_until_aborted(comm);
            return mem::forget(reducer);
        }
        let step = reducer.step(comm).unwrap();
        step.ready(0, stream).unwrap();
        step.finish(stream).unwrap();
        assert!(!reducer.is_done().unwrap());
        drop(reducer);
        assert_eq!(drops.load(Ordering::SeqCst), 0);
        comm.abort_handle().abort("the test is over");
    });
    assert_eq!(drops.load(Ordering::SeqCst), 0);
}
