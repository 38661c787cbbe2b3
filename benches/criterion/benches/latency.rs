//! Small allreduces, one after the other: the time of each on the stream.

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use tributary::Options;
use tributary_benches::{bench_stream_time, Counts, Team, ALLREDUCE};

fn latency(criterion: &mut Criterion) {
    let team = Team::open(Options::new());
    let mut group = criterion.benchmark_group(team.setting().title("latency"));
    group.sample_size(20);
    for bytes in [8, 64, 1 << 10, 8 << 10, 64 << 10] {
        group.throughput(Throughput::Bytes(bytes as u64));
        for call in [ALLREDUCE, team.setting().peer()] {
            bench_stream_time(&mut group, &team, bytes, &Counts::flat(bytes / 4), call);
        }
    }
    group.finish();
}

criterion_group!(name = benches; config = tributary_benches::criterion(); targets = latency);
criterion_main!(benches);
