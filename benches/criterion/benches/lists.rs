//! Many tensors, scattered in memory: one list, one weighted average, one call per tensor. 161
//! tensors are the gradients of ResNet-50; the others are tensors of 16 KiB.

use criterion::{criterion_group, criterion_main, Criterion, SamplingMode, Throughput};
use tributary::Options;
use tributary_benches::{
    bench_stream_time, resnet50, Call, Counts, Team, AVERAGE, EACH, LIST, LONGER, MEMCPY, NCCL,
    NCCL_GROUP,
};

fn lists(criterion: &mut Criterion) {
    let team = Team::open(Options::new());
    let peers: &[Call] = if team.setting().on_gpus() { &[NCCL_GROUP, NCCL] } else { &[MEMCPY] };
    let mut group = criterion.benchmark_group(team.setting().title("lists"));
    group.sample_size(10).sampling_mode(SamplingMode::Flat).measurement_time(LONGER);
    for counts in [vec![4096; 1], vec![4096; 64], resnet50(), vec![4096; 500]] {
        let n = counts.len();
        let counts = Counts::list(counts);
        group.throughput(Throughput::Bytes(4 * counts.flat as u64));
        for call in [LIST, AVERAGE, EACH].iter().chain(peers) {
            bench_stream_time(&mut group, &team, n, &counts, *call);
        }
    }
    group.finish();
}

criterion_group!(name = benches; config = tributary_benches::criterion(); targets = lists);
criterion_main!(benches);
