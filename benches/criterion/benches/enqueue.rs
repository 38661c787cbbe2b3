//! The rank's thread: how long it needs to queue one allreduce of 1 KiB, through the `unsafe` method,
//! without the checks of buffers and streams, and in a scope. Every 64 calls, outside the timing,
//! it waits for the stream.

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{criterion_group, criterion_main, BenchmarkGroup, Criterion};
use tributary::{Options, ReduceOp};
use tributary_benches::{clock, Call, Counts, Rank, Result, Team, ALLREDUCE};

/// Floats in a buffer.
const COUNT: usize = 256;

fn in_scope(rank: &mut Rank, calls: u64) -> Result<Duration> {
    let mut time = Ok(Duration::ZERO);
    let (send, recv) = (&mut rank.send, &mut rank.recv);
    rank.comm.scope(&rank.stream, |scope| {
        let (send, recv) = (scope.hold(send), scope.hold(recv));
        time = clock(calls, || scope.allreduce(send, recv, ReduceOp::Sum));
        Ok(())
    })?;
    time
}

/// Measures `queue`, which queues a given number of calls and returns the time.
fn bench(
    group: &mut BenchmarkGroup<'_, WallTime>,
    team: &Team,
    name: &str,
    call: Call,
    queue: impl Fn(&mut Rank, u64) -> Result<Duration> + Copy + Send + Sync + 'static,
) {
    let mut ready = false;
    group.bench_function(name, |bencher| {
        if !std::mem::replace(&mut ready, true) {
            team.prepare(&Counts::flat(COUNT), call);
        }
        bencher.iter_custom(|iterations| team.queue_time(iterations, queue));
    });
}

fn enqueue(criterion: &mut Criterion) {
    let team = Team::open(Options::new());
    // SAFETY: all buffers are made with the device of their rank.
    let unchecked = Team::open(unsafe { Options::new().unchecked() });
    let plain = |call: Call| move |rank: &mut Rank, calls: u64| clock(calls, || (call.queue)(rank));
    let peer = team.setting().peer();
    let mut group = criterion.benchmark_group(team.setting().title("enqueue"));
    group.sample_size(30);
    bench(&mut group, &team, "allreduce", ALLREDUCE, plain(ALLREDUCE));
    bench(&mut group, &unchecked, "allreduce_unchecked", ALLREDUCE, plain(ALLREDUCE));
    bench(&mut group, &team, "allreduce_in_scope", ALLREDUCE, in_scope);
    bench(&mut group, &team, peer.name, peer, plain(peer));
    group.finish();
}

criterion_group!(name = benches; config = tributary_benches::criterion(); targets = enqueue);
criterion_main!(benches);
