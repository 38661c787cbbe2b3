//! The common parts of the benchmarks: rank threads that start once, time taken on their streams,
//! and the peer that is measured beside Tributary in the same process.
//!
//! A figure is the time of one call: events around a batch of calls on each rank's stream, or the
//! clock around the queueing of one, and of the ranks the slowest.
//!
//! The environment says where: `TRIBUTARY_BENCH_BACKEND` (default: the best backend that has a
//! device) and `TRIBUTARY_BENCH_RANKS` (default: every GPU; 2 on host). For `sparse` it also says
//! how many elements, `TRIBUTARY_BENCH_COUNTS`, and how dense, `TRIBUTARY_BENCH_DENSITIES`; both
//! are lists.

mod barrier;
mod call;
mod nccl;
mod rank;
mod resnet;
mod setting;
mod sparse;
mod team;

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion};

pub use call::{Call, Queue, ALLREDUCE, AVERAGE, EACH, LIST, MEMCPY, NCCL, NCCL_GROUP};
pub use rank::{clock, Counts, Rank};
pub use resnet::resnet50;
pub use setting::{numbers, Setting};
pub use sparse::{bench_select, bench_sparse, DENSE_BF16};
pub use team::Team;

/// An error that stops a benchmark.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A result whose error is [`Failure`].
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Time to measure a figure whose calls take milliseconds.
pub const LONGER: Duration = Duration::from_millis(1200);

/// Criterion's settings for all of them: short, because there are many.
pub fn criterion() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .nresamples(20_000)
}

/// Measure `call` on buffers with these `counts`: the time that it takes on the streams. Its
/// results are checked once before that.
pub fn bench_stream_time(
    group: &mut BenchmarkGroup<'_, WallTime>,
    team: &Team,
    parameter: usize,
    counts: &Counts,
    call: Call,
) {
    let mut ready = false;
    group.bench_function(BenchmarkId::new(call.name, parameter), |bencher| {
        // Here, so that a call that Criterion's filter leaves out costs nothing.
        if !std::mem::replace(&mut ready, true) {
            team.prepare(counts, call);
        }
        bencher.iter_custom(|iterations| team.stream_time(iterations, call.queue));
    });
}
