//! Two ranks average the largest hundredth of their gradients, and keep the rest for the next step.

use tributary::{
    Communicator, DType, DeviceVec, Group, Options, Result, SparseAllReduce, SparseOptions, Stream,
};

const LEN: usize = 100_000;

fn train(comm: &mut Communicator) -> Result<()> {
    let stream = Stream::new(comm.device())?;
    let options = SparseOptions::new().algorithm("topka").density(0.01).average(true);
    let mut sparse = SparseAllReduce::new(comm, LEN, DType::F32, &options)?;
    let mut mean = DeviceVec::<f32>::zeros(comm.device(), LEN)?;
    for step in 0..10 {
        let number = |i: usize| ((i * 7919 + step * 31 + comm.rank()) % 1000) as f32 / 1000.0;
        let mine: Vec<f32> = (0..LEN).map(number).collect();
        let gradient = DeviceVec::from_slice(comm.device(), &mine)?;
        comm.scope(&stream, |s| s.sparse_allreduce(&mut sparse, &gradient, &mut mean))?;
    }
    let statistics = sparse.statistics()?;
    let bytes = statistics.bytes_sent / statistics.calls_applied;
    println!(
        "rank {}: {} entries per call, {bytes} bytes sent; a dense allreduce sends {}",
        comm.rank(),
        statistics.k,
        4 * LEN
    );
    Ok(())
}

fn main() -> Result<()> {
    Group::with_options(2, &Options::new().backend("host"))?.run(train)?;
    Ok(())
}
