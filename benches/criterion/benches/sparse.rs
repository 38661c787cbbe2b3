//! Sparse allreduces beside dense ones, fp32 and bf16: the choosing of entries alone, and whole calls of
//! every algorithm, at every size and density.

use criterion::{criterion_group, criterion_main, Criterion, SamplingMode, Throughput};
use tributary::{Options, SparseAllReduce};
use tributary_benches::{
    bench_select, bench_sparse, bench_stream_time, numbers, Counts, Team, ALLREDUCE, DENSE_BF16,
    LONGER,
};

fn sparse(criterion: &mut Criterion) {
    let team = Team::open(Options::new());
    let usual: &[usize] = if team.setting().on_gpus() {
        &[1 << 20, 25_557_032, 1 << 28]
    } else {
        &[1 << 20, 1 << 22]
    };
    let lens = numbers("TRIBUTARY_BENCH_COUNTS", usual);
    let densities = numbers("TRIBUTARY_BENCH_DENSITIES", &[0.001, 0.01, 0.05]);
    let mut group = criterion.benchmark_group(team.setting().title("sparse"));
    group.sample_size(10).sampling_mode(SamplingMode::Flat).measurement_time(LONGER);
    for len in lens {
        group.throughput(Throughput::Elements(len as u64));
        for call in [team.setting().peer(), ALLREDUCE, DENSE_BF16] {
            bench_stream_time(&mut group, &team, len, &Counts::flat(len), call);
        }
        for &density in &densities {
            bench_select(&mut group, &team, len, density);
            for name in SparseAllReduce::algorithms() {
                bench_sparse(&mut group, &team, name, len, density);
            }
        }
    }
    group.finish();
}

criterion_group!(name = benches; config = tributary_benches::criterion(); targets = sparse);
criterion_main!(benches);
