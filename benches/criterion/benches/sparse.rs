//! Sparse allreduces beside dense ones, fp32 and bf16: the choosing of entries alone, and whole calls of
//! every algorithm at 1 %, of the leanest at 0.1 % and 5 %.

use criterion::{criterion_group, criterion_main, Criterion, SamplingMode, Throughput};
use tributary::{Options, SparseAllReduce};
use tributary_benches::{
    bench_select, bench_sparse, bench_stream_time, Shape, Team, DENSE_BF16, LONGER,
};

/// At every density; the others at 1 %.
const LEAN: [&str; 3] = ["topka", "shared", "chunked"];

fn sparse(criterion: &mut Criterion) {
    let team = Team::open(Options::new());
    let lens: &[usize] = if team.setting().on_gpus() {
        &[1 << 20, 25_557_032, 1 << 28]
    } else {
        &[1 << 20, 1 << 22]
    };
    let mut group = criterion.benchmark_group(team.setting().title("sparse"));
    group.sample_size(10).sampling_mode(SamplingMode::Flat).measurement_time(LONGER);
    for &len in lens {
        group.throughput(Throughput::Elements(len as u64));
        for call in [team.setting().peer(), DENSE_BF16] {
            bench_stream_time(&mut group, &team, len, &Shape::flat(len), call);
        }
        for density in [0.001, 0.01, 0.05] {
            bench_select(&mut group, &team, len, density);
            for name in SparseAllReduce::algorithms() {
                if density == 0.01 || LEAN.contains(&name) {
                    bench_sparse(&mut group, &team, name, len, density);
                }
            }
        }
    }
    group.finish();
}

criterion_group!(name = benches; config = tributary_benches::criterion(); targets = sparse);
criterion_main!(benches);
