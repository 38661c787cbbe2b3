//! Sparse allreduces: their states, and gradients whose entries differ in size.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId};
use tributary::{
    Communicator, DType, DeviceBuffer, DeviceSlice, DeviceVec, ReduceOp, SparseAllReduce,
    SparseOptions,
};

use crate::rank::Rank;
use crate::{Call, Result, Team};

/// The sparse state of a rank.
pub struct Sparse {
    state: SparseAllReduce,
    /// Of the selection alone: a communicator of this rank alone, and where its entries go. It is
    /// dropped after the state.
    alone: Option<Alone>,
}

struct Alone {
    index: DeviceVec<u32>,
    value: DeviceVec<f32>,
    count: DeviceVec<u32>,
    _comm: Communicator,
}

/// Measure `algorithm`, with a gradient and a residual of their own and a dense result.
pub fn bench_sparse(
    group: &mut BenchmarkGroup<'_, WallTime>,
    team: &Team,
    algorithm: &'static str,
    len: usize,
    density: f64,
) {
    let options = move || SparseOptions::new().algorithm(algorithm).density(density);
    let make = move |rank: &mut Rank| {
        let state = SparseAllReduce::new(&mut rank.comm, len, DType::F32, &options())?;
        Ok(Sparse { state, alone: None })
    };
    bench(group, team, BenchmarkId::new(algorithm, label(len, density)), len, make, |rank| {
        let sparse = rank.sparse.as_mut().ok_or("no sparse state")?;
        // SAFETY: the buffers live until the rank waits for the stream, and are used by nobody
        // else.
        Ok(unsafe { sparse.state.allreduce(&rank.send, &rank.recv, &rank.stream) }?)
    });
}

/// Measure the choosing of entries alone: a call of one rank, whose result are those entries.
pub fn bench_select(
    group: &mut BenchmarkGroup<'_, WallTime>,
    team: &Team,
    len: usize,
    density: f64,
) {
    let make = move |rank: &mut Rank| {
        let number = u32::try_from(rank.comm.rank())?;
        let mut comm = rank.comm.split(Some(number), 0)?.ok_or("a rank without colour")?;
        let options = SparseOptions::new().algorithm("topka").density(density).entries(true);
        let state = SparseAllReduce::new(&mut comm, len, DType::F32, &options)?;
        let (device, room) = (comm.device(), usize::try_from(state.capacity()?)?);
        let alone = Alone {
            index: DeviceVec::zeros(device, room)?,
            value: DeviceVec::zeros(device, room)?,
            count: DeviceVec::zeros(device, 1)?,
            _comm: comm,
        };
        Ok(Sparse { state, alone: Some(alone) })
    };
    bench(group, team, BenchmarkId::new("select", label(len, density)), len, make, |rank| {
        let sparse = rank.sparse.as_mut().ok_or("no sparse state")?;
        let to = sparse.alone.as_ref().ok_or("not alone")?;
        let (state, stream) = (&mut sparse.state, &rank.stream);
        // SAFETY: as above.
        Ok(unsafe { state.allreduce_entries(&rank.send, &to.index, &to.value, &to.count, stream) }?)
    });
}

/// The dense allreduce of as many bf16: what sparse has to beat.
pub const DENSE_BF16: Call = Call {
    name: "dense_bf16",
    queue: |rank| {
        let len = rank.send.len();
        // SAFETY: seen as elements of half the size, each buffer holds at least as many; any bits
        // are a bf16. The rest as above.
        Ok(unsafe {
            let view = |ptr| DeviceSlice::new(ptr, len, DType::BF16, None);
            let (from, to) = (view(rank.send.ptr()), view(rank.recv.ptr()));
            rank.comm.allreduce(&from, &to, ReduceOp::Sum, &rank.stream)
        }?)
    },
    verify: |_| Ok(()),
};

fn bench(
    group: &mut BenchmarkGroup<'_, WallTime>,
    team: &Team,
    id: BenchmarkId,
    len: usize,
    make: impl Fn(&mut Rank) -> Result<Sparse> + Copy + Send + Sync + 'static,
    queue: crate::Queue,
) {
    let mut ready = false;
    group.bench_function(id, |bencher| {
        if !std::mem::replace(&mut ready, true) {
            team.run(move |rank| {
                rank.sparse = None;
                rank.fill_bell(len)?;
                rank.sparse = Some(make(rank)?);
                queue(rank)?;
                rank.finish()?;
                applied(rank)
            });
        }
        bencher.iter_custom(|iterations| team.stream_time(iterations, queue));
    });
    team.run(|rank| {
        rank.sparse = None;
        Ok(())
    });
}

/// Checks that the first call was applied.
fn applied(rank: &mut Rank) -> Result<()> {
    let sparse = rank.sparse.as_mut().ok_or("no sparse state")?;
    sparse.state.status()?;
    let statistics = sparse.state.statistics()?;
    match statistics.calls_applied == 1 && statistics.total_selected > 0 {
        true => Ok(()),
        false => Err(format!("{} was applied nothing", statistics.algorithm).into()),
    }
}

fn label(len: usize, density: f64) -> String {
    format!("{len}/{density}")
}
