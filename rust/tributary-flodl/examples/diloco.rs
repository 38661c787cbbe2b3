//! Four ranks train apart and average now and then, as in DiLoCo: with everything they have learned,
//! or with a tenth of it and the rest kept for later.
//!
//! Each rank pulls the parameters to a target of its own; together they pull to the average of all.

// The framework of the tests: tensors in the memory of Tributary's devices.
#[path = "../tests/common/mod.rs"]
mod framework;

use framework::{alone, ranks, NcclRankComm, OuterAverage, Tensor};
use tributary_flodl::{OuterRule, SparseOptions};

const LEN: usize = 10_000;
const RANKS: usize = 4;
const ROUNDS: usize = 300;
const INNER_STEPS: u64 = 10;

/// Element `i` of what rank `rank` would like the parameters to be.
fn target(rank: usize, i: usize) -> f32 {
    ((i * 7919 + rank * 104_729) % 1000) as f32 / 1000.0
}

/// The distance of the parameters from the average of all targets, per element.
fn distance(values: &[f32]) -> f32 {
    let best = |i| (0..RANKS).map(|rank| target(rank, i)).sum::<f32>() / RANKS as f32;
    let square = |(i, value): (usize, &f32)| (value - best(i)).powi(2);
    (values.iter().enumerate().map(square).sum::<f32>() / LEN as f32).sqrt()
}

fn train(comm: &NcclRankComm, sparse: bool) -> framework::Result<(f32, u64)> {
    let param = Tensor::full(LEN, 0.0, comm.rank());
    let rule = OuterRule::NesterovMomentum { lr: 0.7, mu: 0.5 };
    let outer = if sparse {
        let options = SparseOptions::new().algorithm("shared").density(0.1);
        OuterAverage::sparse(comm, &[&param], rule, &options)?
    } else {
        OuterAverage::dense(&[&param], rule)?
    };
    let mut outer = outer.every(INNER_STEPS);
    for _ in 0..ROUNDS as u64 * INNER_STEPS {
        let pull = |(i, value): (usize, f32)| value + 0.005 * (target(comm.rank(), i) - value);
        param.set(&param.to_vec().into_iter().enumerate().map(pull).collect::<Vec<_>>());
        outer.step(comm, &[&param])?;
    }
    let sent = match outer.sparse_states() {
        [state] => state.statistics().map_err(tributary_flodl::Error::from)?.bytes_sent,
        _ => 4 * (LEN * ROUNDS) as u64,
    };
    Ok((distance(&param.to_vec()), sent))
}

fn main() {
    let Some(_alone) = alone(RANKS) else { return };
    for (name, sparse) in [("dense", false), ("sparse", true)] {
        let (distance, sent) = ranks(RANKS, |comm| train(&comm, sparse).unwrap()).remove(0);
        assert!(distance < 1e-3, "{name} did not get there: {distance}");
        println!("{name}: {distance:.1e} from the best, {} KB per rank", sent / 1000);
    }
}
