//! Outer averaging, dense and sparse, against the same in plain f32.

mod common;

use std::thread;

use common::{alone, ranks, NcclRankComm, OuterAverage, Tensor};
use tributary_flodl::{Arithmetic, Error, OuterRule, SparseOptions, Tensor as _};

const NESTEROV: OuterRule = OuterRule::NesterovMomentum { lr: 0.5, mu: 0.75 };

fn lent(params: &[Tensor]) -> Vec<&Tensor> {
    params.iter().collect()
}

/// What rank `rank` learns in round `round`: small multiples of 1/4, so that sums are exact.
fn learned(rank: usize, round: usize, i: usize) -> f32 {
    ((rank * 7 + round * 5 + i * 3) % 11) as f32 * 0.25 - 1.25
}

/// The inner steps of a round: they change the parameters, which then differ between the ranks.
fn train(params: &[Tensor], rank: usize, round: usize) {
    for (index, param) in params.iter().enumerate() {
        let values = param.to_vec().into_iter().enumerate();
        let change = |(i, value)| value - learned(rank, round, i + 10 * index);
        param.set(&values.map(change).collect::<Vec<_>>());
    }
}

/// Parameters of 0, 1, 8 and 33 elements, equal on all ranks.
fn model(device: usize) -> Vec<Tensor> {
    [0, 1, 8, 33]
        .map(|len| Tensor::new(&(0..len).map(|i| i as f32 * 0.5).collect::<Vec<_>>(), device))
        .into()
}

/// One parameter in plain f32.
struct Reference {
    rule: OuterRule,
    start: Vec<f32>,
    velocity: Vec<f32>,
}

impl Reference {
    fn new(rule: OuterRule, param: &Tensor) -> Reference {
        let start = param.to_vec();
        Reference { rule, velocity: vec![0.0; start.len()], start }
    }

    fn step(&mut self, gradient: impl Fn(usize) -> f32) {
        for (i, (x, v)) in self.start.iter_mut().zip(&mut self.velocity).enumerate() {
            let g = gradient(i);
            match self.rule {
                OuterRule::SlowMomentum { lr, mu } => {
                    *v = *v * mu as f32 + g;
                    *x -= *v * lr as f32;
                }
                OuterRule::NesterovMomentum { lr, mu } => {
                    *v = *v * mu as f32 + g;
                    *x -= (*v * mu as f32 + g) * lr as f32;
                }
                _ => *x -= g,
            }
        }
    }
}

#[test]
fn dense_is_what_plain_f32_gives() {
    let rules = [OuterRule::Average, OuterRule::SlowMomentum { lr: 0.5, mu: 0.75 }, NESTEROV];
    for (size, rule) in [1, 2, 4].into_iter().flat_map(|size| rules.map(|rule| (size, rule))) {
        // A group of one is not flodl's; its average is that of two ranks that learn the same.
        let (threads, same) = if size == 1 { (2, true) } else { (size, false) };
        let Some(_alone) = alone(threads) else { continue };
        ranks(threads, |comm| {
            let params = model(comm.rank());
            let mut reference: Vec<_> =
                params.iter().map(|param| Reference::new(rule, param)).collect();
            let mut outer = OuterAverage::dense(&lent(&params), rule).unwrap();
            for round in 0..5 {
                train(&params, if same { 0 } else { comm.rank() }, round);
                outer.average(&comm, &lent(&params)).unwrap();
                for (index, reference) in reference.iter_mut().enumerate() {
                    let each = |rank, i| learned(rank, round, i + 10 * index);
                    reference
                        .step(|i| (0..size).map(|rank| each(rank, i)).sum::<f32>() / size as f32);
                    assert_eq!(params[index].to_vec(), reference.start, "{rule:?}, round {round}");
                    assert_eq!(outer.start()[index].to_vec(), reference.start);
                }
            }
            let velocity = outer.checkpoint_state();
            assert_eq!(velocity.is_none(), rule == OuterRule::Average);
            for (velocity, reference) in velocity.unwrap_or_default().iter().zip(&reference) {
                assert_eq!(velocity.to_vec(), reference.velocity);
            }
        });
    }
}

/// With k = n everything is sent. Options of another form of the result do not matter.
#[test]
fn sparse_with_everything_is_dense() {
    let Some(_alone) = alone(2) else { return };
    ranks(2, |comm| {
        let (params, others) = (model(comm.rank()), model(comm.rank()));
        let mut dense = OuterAverage::dense(&lent(&params), NESTEROV).unwrap();
        let options = SparseOptions::new().algorithm("topka").density(1.0);
        let options = options.entries(true).in_place(true).average(false);
        let mut sparse = OuterAverage::sparse(&comm, &lent(&others), NESTEROV, &options).unwrap();
        for round in 0..4 {
            train(&params, comm.rank(), round);
            train(&others, comm.rank(), round);
            dense.average(&comm, &lent(&params)).unwrap();
            sparse.average(&comm, &lent(&others)).unwrap();
            for (dense, sparse) in params.iter().zip(&others) {
                assert_eq!(dense.to_vec(), sparse.to_vec());
            }
        }
    });
}

/// What the ranks learned is what they averaged, times their number, plus what they still hold
/// back: element by element, to the bit.
#[test]
fn a_sparse_exchange_loses_nothing() {
    for algorithm in ["topka", "gtopk", "oktopk"] {
        let Some(_alone) = alone(4) else { return };
        const ROUNDS: usize = 6;
        let each = ranks(4, |comm| {
            let params = model(comm.rank());
            let options = SparseOptions::new().algorithm(algorithm).density(0.1);
            let rule = OuterRule::Average;
            let mut outer = OuterAverage::sparse(&comm, &lent(&params), rule, &options).unwrap();
            let first: Vec<_> = params.iter().map(Tensor::to_vec).collect();
            for round in 0..ROUNDS {
                train(&params, comm.rank(), round);
                outer.average(&comm, &lent(&params)).unwrap();
            }
            let moved: Vec<Vec<f32>> = params
                .iter()
                .zip(&first)
                .map(|(param, first)| {
                    first.iter().zip(param.to_vec()).map(|(a, b)| a - b).collect()
                })
                .collect();
            (moved, residuals(&mut outer, &params))
        });
        let (moved, _) = &each[0];
        let mut held = 0.0;
        for (index, moved) in moved.iter().enumerate() {
            for (i, moved) in moved.iter().enumerate() {
                let learned: f32 = (0..4)
                    .flat_map(|rank| (0..ROUNDS).map(move |round| (rank, round)))
                    .map(|(rank, round)| learned(rank, round, i + 10 * index))
                    .sum();
                let residual: f32 = each.iter().map(|(_, residuals)| residuals[index][i]).sum();
                assert_eq!(learned, 4.0 * moved + residual, "{algorithm}: {index}, {i}");
                held += residual.abs();
            }
        }
        assert!(held > 0.0, "{algorithm} sent everything: the test proves nothing");
    }
}

fn residuals(outer: &mut OuterAverage, params: &[Tensor]) -> Vec<Vec<f32>> {
    let states = outer.sparse_states().iter_mut().zip(params);
    let residual = |(state, param): (&mut tributary::SparseAllReduce, &Tensor)| {
        let device = tributary::Device::get(
            <common::Flodl as tributary_flodl::Framework>::backend(),
            param.device_index().unwrap(),
        )
        .unwrap();
        let stream = tributary::Stream::new(device).unwrap();
        let out = tributary::DeviceVec::from_slice(device, &vec![-99.0; param.numel()]).unwrap();
        // SAFETY: `out` lives until the stream was waited for.
        unsafe { state.residual(&out, &stream) }.unwrap();
        out.download(&stream).unwrap()
    };
    states.map(residual).collect()
}

/// Values whose sums depend on the order: all ranks get the same bits all the same.
#[test]
fn ranks_are_equal_to_the_bit() {
    let Some(_alone) = alone(3) else { return };
    for sparse in [false, true] {
        let each = ranks(3, |comm| {
            let param = Tensor::full(1000, 0.3, comm.rank());
            let options = SparseOptions::new().algorithm("topka").density(0.05);
            let rule = OuterRule::NesterovMomentum { lr: 0.7, mu: 0.9 };
            let mut outer = match sparse {
                true => OuterAverage::sparse(&comm, &[&param], rule, &options).unwrap(),
                false => OuterAverage::dense(&[&param], rule).unwrap(),
            };
            for round in 0..5 {
                let change = |(i, value): (usize, f32)| {
                    value + ((i * 37 + round * 11 + comm.rank() * 101) as f32 * 0.7).sin() / 3.0
                };
                param.set(&param.to_vec().into_iter().enumerate().map(change).collect::<Vec<_>>());
                outer.average(&comm, &[&param]).unwrap();
            }
            param.to_vec().into_iter().map(f32::to_bits).collect::<Vec<_>>()
        });
        assert!(each[0].iter().any(|bits| *bits != 0.3_f32.to_bits()));
        assert!(each.iter().all(|bits| *bits == each[0]), "sparse: {sparse}");
    }
}

#[test]
fn a_round_has_so_many_steps() {
    let Some(_alone) = alone(2) else { return };
    ranks(2, |comm| {
        let param = Tensor::full(2, 0.0, comm.rank());
        let mut outer = OuterAverage::dense(&[&param], OuterRule::Average).unwrap().every(3);
        let mut values = Vec::new();
        for _ in 0..6 {
            param.set(&[param.to_vec()[0] + comm.rank() as f32; 2]);
            let averaged = outer.step(&comm, &[&param]).unwrap();
            values.push((averaged, param.to_vec()[0]));
        }
        let expected = match comm.rank() {
            0 => [(false, 0.0), (false, 0.0), (true, 1.5), (false, 1.5), (false, 1.5), (true, 3.0)],
            _ => [(false, 1.0), (false, 2.0), (true, 1.5), (false, 2.5), (false, 3.5), (true, 3.0)],
        };
        assert_eq!(values, expected);
    });
}

/// flodl's own optimizers take the start and the average of the parameters.
#[test]
fn the_step_of_another_optimizer() {
    let Some(_alone) = alone(2) else { return };
    ranks(2, |comm| {
        let param = Tensor::full(4, 8.0, comm.rank());
        let mut outer = OuterAverage::dense(&[&param], OuterRule::Average).unwrap();
        param.set(&[[4.0, 6.0][comm.rank()]; 4]);
        let half_way = |start: &[Tensor], gradients: &[Tensor]| {
            let consensus = start[0].sub(&gradients[0])?;
            assert_eq!(consensus.to_vec(), [5.0; 4]);
            Ok(vec![start[0].add(&consensus)?.mul_scalar(0.5)?])
        };
        outer.average_with(&comm, &[&param], half_way).unwrap();
        assert_eq!((param.to_vec(), outer.start()[0].to_vec()), (vec![6.5; 4], vec![6.5; 4]));
        let too_few = outer.average_with(&comm, &[&param], |_, _| Ok(Vec::new()));
        assert!(too_few.unwrap_err().to_string().contains("expected 1 tensors, got 0"));
    });
}

/// (3 g0 + g1) / 4, and a rank without a weight.
#[test]
fn ranks_that_weigh_differently() {
    let Some(_alone) = alone(4) else { return };
    for sparse in [false, true] {
        ranks(4, |comm| {
            let param = Tensor::full(3, 8.0, comm.rank());
            let options = SparseOptions::new().algorithm("topka").density(1.0);
            let mut outer = match sparse {
                true => OuterAverage::sparse(&comm, &[&param], NESTEROV, &options).unwrap(),
                false => OuterAverage::dense(&[&param], NESTEROV).unwrap(),
            };
            let weight = [300.0, 100.0, 0.0, 0.0][comm.rank()];
            outer.set_weight(weight).unwrap();
            param.set(&[[4.0, 0.0, 100.0, f32::NAN][comm.rank()]; 3]);
            outer.average(&comm, &[&param]).unwrap();
            // g = (3 * 4 + 8) / 4 = 5, and 8 - 0.5 * 1.75 * 5
            assert_eq!(param.to_vec(), [3.625; 3]);
            for wrong in [-1.0, f32::NAN, f32::INFINITY] {
                assert!(outer.set_weight(wrong).is_err());
            }
            // Nobody worked: everything stays.
            outer.set_weight(0.0).unwrap();
            outer.average(&comm, &[&param]).unwrap();
            assert_eq!(
                (param.to_vec(), outer.start()[0].to_vec()),
                (vec![3.625; 3], vec![3.625; 3])
            );
            assert_eq!(outer.checkpoint_state().unwrap()[0].to_vec(), [5.0; 3]);
        });
    }
}

/// As far as a resumed training goes on like one that was not stopped.
#[test]
fn a_velocity_survives_a_checkpoint() {
    let Some(_alone) = alone(2) else { return };
    for rule in [OuterRule::SlowMomentum { lr: 0.5, mu: 0.75 }, NESTEROV] {
        ranks(2, |comm| {
            let param = Tensor::full(3, 1.0, comm.rank());
            let mut outer = OuterAverage::dense(&[&param], rule).unwrap();
            assert!(outer.checkpoint_state().is_none());
            param.set(&[0.5; 3]);
            outer.average(&comm, &[&param]).unwrap();
            let other = param.copy().unwrap();
            let mut resumed = OuterAverage::dense(&[&other], rule).unwrap();
            resumed.load_checkpoint_state(outer.checkpoint_state().unwrap().to_vec()).unwrap();
            assert!(resumed.load_checkpoint_state(Vec::new()).is_err());
            for param in [&param, &other] {
                param.set(&[-2.0; 3]);
            }
            outer.average(&comm, &[&param]).unwrap();
            resumed.average(&comm, &[&other]).unwrap();
            assert_eq!(param.to_vec(), other.to_vec());
            assert_eq!(outer.rule().resets_inner(), rule == NESTEROV);
        });
    }
}

/// Not finite on one rank: the parameter counts as not learned on all, and the others are averaged.
#[test]
fn a_pseudo_gradient_that_is_not_finite() {
    let Some(_alone) = alone(2) else { return };
    ranks(2, |comm| {
        let params = [1, 4, 4].map(|len| Tensor::full(len, 8.0, comm.rank()));
        let options = SparseOptions::new().algorithm("topka").density(1.0);
        let rule = OuterRule::Average;
        let mut outer = OuterAverage::sparse(&comm, &lent(&params), rule, &options).unwrap();
        params[0].set(&[4.0]);
        params[1].set(&[1.0, if comm.rank() == 1 { f32::NAN } else { 3.0 }, 1.0, 1.0]);
        params[2].set(&[6.0; 4]);
        let error = outer.average(&comm, &lent(&params)).unwrap_err();
        assert_eq!(error, Error::NonFinite(vec![1]));
        assert!(error.to_string().contains("[1]"), "{error}");
        let values: Vec<_> = params.iter().map(Tensor::to_vec).collect();
        assert_eq!(values, [vec![4.0], vec![8.0; 4], vec![6.0; 4]]);
        // The next round is as any other.
        params[1].set(&[7.0; 4]);
        outer.average(&comm, &lent(&params)).unwrap();
        assert_eq!(params[1].to_vec(), [7.0; 4]);
        assert_eq!(params[2].to_vec(), [6.0; 4]);
    });
}

/// A round that fails changes nothing, and can be repeated with the communicator of the others.
#[test]
fn a_round_that_fails_can_be_repeated() {
    let Some(_alone) = alone(2) else { return };
    let params = [0, 1].map(|rank| Tensor::full(5, 1.0, rank));
    let mut outer =
        params.each_ref().map(|param| OuterAverage::dense(&[param], NESTEROV).unwrap().every(2));
    let average = |outer: &mut [OuterAverage; 2], aborted: bool| {
        thread::scope(|threads| {
            let comms = common::NcclComms::new(&common::gpus(2)).unwrap().split().unwrap();
            for (comm, outer) in comms.into_iter().zip(outer) {
                let params = &params;
                threads.spawn(move || one_round(&comm, outer, &params[comm.rank()], aborted));
            }
        });
    };
    average(&mut outer, false); // a velocity to keep
    average(&mut outer, true);
    average(&mut outer, false);
    // 1 - 0.5 * (0.75 + 1) = 0.125; then v = 0.75 + 1, and 0.125 - 0.5 * (0.75 * 1.75 + 1)
    for (param, outer) in params.iter().zip(&outer) {
        assert_eq!(param.to_vec(), [0.125 - 0.5 * (0.75 * 1.75 + 1.0); 5]);
        assert_eq!(outer.checkpoint_state().unwrap()[0].to_vec(), [1.75; 5]);
    }
}

/// A rank learns 1 in two steps. Where it fails, it does so twice, and then has not learned anything.
fn one_round(comm: &NcclRankComm, outer: &mut OuterAverage, param: &Tensor, aborted: bool) {
    if aborted {
        comm.abort_handle().abort().unwrap();
    }
    let start = outer.start()[0].to_vec();
    let before = outer.checkpoint_state().map(|state| state[0].to_vec());
    param.set(&start.iter().map(|value| value - 1.0).collect::<Vec<_>>());
    let trained = param.to_vec();
    let first = outer.step(comm, &[param]);
    if !aborted {
        // A step that completes a round that had failed, or the first of two.
        if !first.unwrap() {
            assert!(outer.step(comm, &[param]).unwrap());
        }
        return;
    }
    assert!(!first.unwrap());
    for _ in 0..2 {
        assert!(outer.step(comm, &[param]).unwrap_err().is_aborted());
        assert_eq!((param.to_vec(), outer.start()[0].to_vec()), (trained.clone(), start.clone()));
        assert_eq!(outer.checkpoint_state().map(|state| state[0].to_vec()), before);
    }
}

#[test]
fn bad_parameters_are_refused() {
    let Some(_alone) = alone(2) else { return };
    ranks(2, |comm| {
        let param = Tensor::full(3, 1.0, comm.rank());
        let mut outer = OuterAverage::dense(&[&param], OuterRule::Average).unwrap();
        assert!(outer.sparse_states().is_empty());
        let error = outer.average(&comm, &[]).unwrap_err();
        assert!(error.to_string().contains("expected 1 parameters, got 0"), "{error}");
        let error = outer.average(&comm, &[&Tensor::full(2, 1.0, comm.rank())]).unwrap_err();
        assert!(error.to_string().contains("parameter 0: expected 3 elements, got 2"), "{error}");
        param.set(&[comm.rank() as f32; 3]);
        outer.average(&comm, &[&param]).unwrap();
        assert_eq!(param.to_vec(), [0.5; 3]);
    });
}
