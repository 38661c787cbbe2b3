//! One rank: its end of the communicator, its stream, its buffers, its clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tributary::{Communicator, DeviceVec, Event, Stream};

use crate::barrier::Barrier;
use crate::nccl::Nccl;
use crate::sparse::Sparse;
use crate::{Failure, Queue, Result};

/// The most collectives that a rank queues before it waits for its stream, when their time on the
/// stream is taken: enough that the first one's start does not count, few enough for memory.
const STREAM_BATCH: usize = 1024;

/// The same when the queueing is timed: so few that no queue fills up.
const QUEUE_BATCH: u64 = 64;

/// Input values repeat after as many elements; a prime, so that a misplaced block is seen.
const PERIOD: usize = 251;

/// The number of floats of a rank.
#[derive(Clone, Debug)]
pub struct Counts {
    /// In `send`, and in `recv`.
    pub flat: usize,
    /// In each of `tensors`.
    pub tensors: Vec<usize>,
}

impl Counts {
    /// No list.
    pub fn flat(count: usize) -> Counts {
        Counts { flat: count, tensors: Vec::new() }
    }

    /// A list, and buffers as large as its tensors together.
    pub fn list(tensors: Vec<usize>) -> Counts {
        Counts { flat: tensors.iter().sum(), tensors }
    }
}

/// One rank, on its thread.
pub struct Rank {
    /// Its end of the communicator.
    pub comm: Communicator,
    /// The stream of all its calls.
    pub stream: Stream,
    /// Input of the calls on one buffer.
    pub send: DeviceVec<f32>,
    /// Output of the calls on one buffer.
    pub recv: DeviceVec<f32>,
    /// The list, reduced in place.
    pub tensors: Vec<DeviceVec<f32>>,
    /// The sparse allreduce that is measured.
    pub(crate) sparse: Option<Sparse>,
    nccl: Option<Nccl>,
    barrier: Arc<Barrier>,
    start: Event,
    end: Event,
}

impl Rank {
    pub(crate) fn new(
        comm: Communicator,
        nccl: Option<Nccl>,
        barrier: Arc<Barrier>,
    ) -> Result<Rank> {
        let device = comm.device();
        if let Some(nccl) = &nccl {
            nccl.make_device_current()?;
        }
        Ok(Rank {
            stream: Stream::new(device)?,
            send: DeviceVec::zeros(device, 0)?,
            recv: DeviceVec::zeros(device, 0)?,
            tensors: Vec::new(),
            start: Event::new(device)?,
            end: Event::new(device)?,
            sparse: None,
            comm,
            nccl,
            barrier,
        })
    }

    /// Waits for the other ranks' threads.
    pub fn wait_at_barrier(&self) -> Result<()> {
        self.barrier.wait()
    }

    /// Wait for the stream, and see that nothing on it failed.
    pub fn finish(&mut self) -> Result<()> {
        Ok(self.comm.wait(&self.stream)?)
    }

    /// The peer of a rank on nccl.
    pub(crate) fn nccl(&self) -> Result<&Nccl> {
        self.nccl.as_ref().ok_or_else(|| "there is no NCCL on this backend".into())
    }

    /// New buffers, with their input values; `recv` is poisoned.
    pub(crate) fn fill(&mut self, counts: &Counts) -> Result<()> {
        let device = self.comm.device();
        let number = self.comm.rank() as f32;
        let input = |count| -> Vec<f32> { (0..count).map(|i| base(i) + number).collect() };
        // The old ones first: there may not be room for both.
        self.tensors.clear();
        self.send = DeviceVec::zeros(device, 0)?;
        self.recv = DeviceVec::zeros(device, 0)?;
        self.send = DeviceVec::from_slice(device, &input(counts.flat))?;
        self.recv = DeviceVec::from_slice(device, &vec![f32::NAN; counts.flat])?;
        for &count in &counts.tensors {
            self.tensors.push(DeviceVec::from_slice(device, &input(count))?);
        }
        Ok(())
    }

    /// New buffers, `send` with bell-shaped random numbers, other ones on each rank.
    pub(crate) fn fill_bell(&mut self, count: usize) -> Result<()> {
        let device = self.comm.device();
        let mut state = (self.comm.rank() as u64) << 40;
        let bell: Vec<f32> = (0..count).map(|_| bell(&mut state)).collect();
        self.fill(&Counts::flat(0))?;
        self.send = DeviceVec::from_slice(device, &bell)?;
        self.recv = DeviceVec::zeros(device, count)?;
        Ok(())
    }

    /// Checks that every element of `recv`, or of `tensors`, is its [`base`] times `factor` plus
    /// `offset`.
    pub(crate) fn verify(&self, list: bool, factor: f32, offset: f32) -> Result<()> {
        let buffers = if list { &self.tensors[..] } else { std::slice::from_ref(&self.recv) };
        for buffer in buffers {
            for (i, found) in buffer.download(&self.stream)?.into_iter().enumerate() {
                let expected = base(i) * factor + offset;
                // Averages may be rounded; what is wrong here is wrong by one at least.
                let close = (found - expected).abs() <= 1e-3 * expected.max(1.0);
                if !close {
                    return Err(format!("element {i} is {found}, not {expected}").into());
                }
            }
        }
        Ok(())
    }

    /// Time between events around the calls.
    pub(crate) fn stream_time(&mut self, iterations: u64, queue: Queue) -> Result<Duration> {
        let batch = (STREAM_BATCH / self.tensors.len().max(1)).max(1) as u64;
        let mut time = Duration::ZERO;
        for calls in batches(iterations, batch) {
            self.wait_at_barrier()?;
            self.start.record(&self.stream)?;
            for _ in 0..calls {
                queue(self)?;
            }
            self.end.record(&self.stream)?;
            self.finish()?;
            time += self.start.elapsed(&self.end)?;
        }
        Ok(time)
    }

    /// Time on the clock of the batches' queueing.
    pub(crate) fn queue_time(
        &mut self,
        iterations: u64,
        queue: impl Fn(&mut Rank, u64) -> Result<Duration>,
    ) -> Result<Duration> {
        let mut time = Duration::ZERO;
        for calls in batches(iterations, QUEUE_BATCH) {
            self.wait_at_barrier()?;
            time += queue(self, calls)?;
            self.finish()?;
        }
        Ok(time)
    }
}

/// `total` in parts of `most` and a rest.
fn batches(total: u64, most: u64) -> impl Iterator<Item = u64> {
    (0..total.div_ceil(most)).map(move |batch| most.min(total - batch * most))
}

/// The common part of the ranks' inputs at element `i`: rank r has `base(i) + r`.
fn base(i: usize) -> f32 {
    (i % PERIOD) as f32
}

/// The sum of three uniform numbers of 21 bits, from splitmix64 (Steele et al. 2014).
fn bell(state: &mut u64) -> f32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let z = z ^ (z >> 31);
    let part = |shift: u32| (z >> shift & 0x1f_ffff) as i64 - 0x0f_ffff;
    (part(0) + part(21) + part(42)) as f32 / (1 << 20) as f32
}

/// The time that `n` calls of `function` take.
pub fn clock<E>(n: u64, mut function: impl FnMut() -> Result<(), E>) -> Result<Duration>
where
    Failure: From<E>,
{
    let start = Instant::now();
    for _ in 0..n {
        function()?;
    }
    Ok(start.elapsed())
}
