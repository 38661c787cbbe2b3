//! Large allreduces. The throughput that is printed is bytes of one rank's buffer over time (algbw);
//! what the wires carry (busbw) is 2 (n - 1) / n times that on n ranks.

use criterion::{criterion_group, criterion_main, Criterion, SamplingMode, Throughput};
use tributary::Options;
use tributary_benches::{bench_stream_time, Counts, Team, ALLREDUCE, LONGER};

fn bandwidth(criterion: &mut Criterion) {
    let team = Team::open(Options::new());
    let mut group = criterion.benchmark_group(team.setting().title("bandwidth"));
    group.sample_size(10).sampling_mode(SamplingMode::Flat).measurement_time(LONGER);
    for bytes in [1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20] {
        group.throughput(Throughput::Bytes(bytes as u64));
        for call in [ALLREDUCE, team.setting().peer()] {
            bench_stream_time(&mut group, &team, bytes, &Counts::flat(bytes / 4), call);
        }
    }
    group.finish();
}

criterion_group!(name = benches; config = tributary_benches::criterion(); targets = bandwidth);
criterion_main!(benches);
