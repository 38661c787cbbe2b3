//! One rank.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use tributary::{CallOptions, Communicator, DType, Device, DeviceBuffer, Options, Stream, Weight};

use crate::abort::NcclAbortHandle;
use crate::error::{root_in_range, Error};
use crate::framework::{list, stream, views, Framework};
use crate::id::NcclUniqueId;
use crate::kept::Kept;
use crate::op::ReduceOp;

/// One rank's end of a communicator, for one thread at a time.
///
/// A call takes a list of tensors, which is one collective, all or nothing: an aborted or failed
/// call leaves every tensor of the list as it was. Calls without a stream use the framework's
/// current stream. All ranks make the same calls, which Tributary compares (on nccl that takes a
/// short wait; [`Options::assume_matching_calls`] promises that they match). Clones of the tensors
/// are kept until the work has run.
pub struct NcclRankComm<F: Framework> {
    // Dropped in this order: at the end of the communicator the work has run.
    comm: RefCell<Communicator>,
    kept: RefCell<Kept<F::Tensor>>,
    /// Of the group that this rank was split from.
    kept_before: Option<Kept<F::Tensor>>,
    rank: usize,
    world_size: usize,
    device: Device,
    abort: Arc<NcclAbortHandle>,
}

impl<F: Framework> NcclRankComm<F> {
    /// Creates rank `rank` of `world_size`, two at least, on the calling thread's current device.
    /// Returns when all ranks have called it, or with an error after a deadline.
    pub fn init_rank(
        rank: usize,
        world_size: usize,
        uid: &NcclUniqueId<F>,
    ) -> Result<Self, F::Error> {
        NcclRankComm::init_rank_with(rank, world_size, uid, &Options::new())
    }

    /// Does what [`init_rank`](NcclRankComm::init_rank) does, with `options`, whose backend is the
    /// framework's.
    pub fn init_rank_with(
        rank: usize,
        world_size: usize,
        uid: &NcclUniqueId<F>,
        options: &Options,
    ) -> Result<Self, F::Error> {
        check_size(rank, world_size)?;
        let (options, device) = (options.clone().backend(F::backend()), F::current_device());
        let comm = Communicator::with_options(uid.id(), rank, world_size, device, &options);
        Ok(NcclRankComm::of(comm.map_err(Error::from)?))
    }

    pub(crate) fn of(comm: Communicator) -> Self {
        let abort = Arc::new(NcclAbortHandle::new(comm.abort_handle()));
        let (rank, world_size, device) = (comm.rank(), comm.size(), comm.device());
        let kept = RefCell::new(Kept::new());
        let comm = RefCell::new(comm);
        NcclRankComm { comm, kept, kept_before: None, rank, world_size, device, abort }
    }

    /// Returns this rank's number.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn world_size(&self) -> usize {
        self.world_size
    }

    /// Returns a handle that aborts this communicator from any thread.
    pub fn abort_handle(&self) -> Arc<NcclAbortHandle> {
        Arc::clone(&self.abort)
    }

    /// Returns the communicator itself, for what flodl does not have: status, counters, lost ranks,
    /// a close with a deadline.
    pub fn communicator(&mut self) -> &mut Communicator {
        self.comm.get_mut()
    }

    /// Replaces the tensors by their reductions.
    pub fn all_reduce(&self, tensors: &[&F::Tensor], op: ReduceOp) -> Result<(), F::Error> {
        Ok(self.reduce(tensors, op, F::current_stream(self.device.ordinal()).as_ref())?)
    }

    /// Does what [`all_reduce`](NcclRankComm::all_reduce) does, on `stream`.
    pub fn all_reduce_on_stream(
        &self,
        tensors: &[&F::Tensor],
        op: ReduceOp,
        stream: &F::Stream,
    ) -> Result<(), F::Error> {
        Ok(self.reduce(tensors, op, Some(stream))?)
    }

    /// Replaces the tensors, all f32, by the sums over the ranks of `factor * tensor`: with factors
    /// `w_i / sum(w)` the weighted average. [`weighted_average`](NcclRankComm::weighted_average)
    /// takes the weights themselves.
    pub fn all_reduce_premul_sum(
        &self,
        tensors: &[&F::Tensor],
        factor: f32,
        stream: Option<&F::Stream>,
    ) -> Result<(), F::Error> {
        let current = self.current_if_none(stream);
        Ok(self.premul_sum(tensors, factor, stream.or(current.as_ref()))?)
    }

    /// Replaces the tensors by their averages, weighted with each rank's `weight`, without another
    /// collective for the sum of the weights and without a wait of the host. A rank of weight 0
    /// contributes nothing and receives the average; if all weights are 0, the tensors stay.
    pub fn weighted_average(
        &self,
        tensors: &[&F::Tensor],
        weight: f32,
        stream: Option<&F::Stream>,
    ) -> Result<(), F::Error> {
        let current = self.current_if_none(stream);
        Ok(self.average(tensors, weight, stream.or(current.as_ref()))?)
    }

    /// Replaces the tensors by those of rank `root`.
    pub fn broadcast(&self, tensors: &[&F::Tensor], root: usize) -> Result<(), F::Error> {
        let current = F::current_stream(self.device.ordinal());
        Ok(self.copy("broadcast", tensors, root, current.as_ref())?)
    }

    /// Does what [`broadcast`](NcclRankComm::broadcast) does, on `stream`.
    pub fn broadcast_on_stream(
        &self,
        tensors: &[&F::Tensor],
        root: usize,
        stream: &F::Stream,
    ) -> Result<(), F::Error> {
        Ok(self.copy("broadcast_on_stream", tensors, root, Some(stream))?)
    }

    fn reduce(
        &self,
        tensors: &[&F::Tensor],
        op: ReduceOp,
        stream: Option<&F::Stream>,
    ) -> Result<(), Error> {
        self.queue(tensors, stream, |comm, list, stream| {
            // SAFETY: clones of the tensors are kept until the stream has passed this point, and
            // the framework promises the rest. Lengths and types are compared.
            unsafe { comm.allreduce_list(list, op.into(), stream) }
        })
    }

    fn premul_sum(
        &self,
        tensors: &[&F::Tensor],
        factor: f32,
        stream: Option<&F::Stream>,
    ) -> Result<(), Error> {
        all_f32::<F>(tensors)?;
        let options = CallOptions::new().factor(f64::from(factor));
        self.queue(tensors, stream, |comm, list, stream| {
            // SAFETY: as in `reduce`; the factor is a number.
            unsafe { comm.allreduce_list_with(list, tributary::ReduceOp::Sum, options, stream) }
        })
    }

    fn average(
        &self,
        tensors: &[&F::Tensor],
        weight: f32,
        stream: Option<&F::Stream>,
    ) -> Result<(), Error> {
        self.queue(tensors, stream, |comm, list, stream| {
            // SAFETY: as in `reduce`; the weight is a number.
            unsafe { comm.weighted_average(list, Weight::Host(weight), None, stream) }
        })
    }

    fn copy(
        &self,
        who: &str,
        tensors: &[&F::Tensor],
        root: usize,
        stream: Option<&F::Stream>,
    ) -> Result<(), Error> {
        root_in_range(&format!("NcclRankComm::{who}"), root, self.world_size)?;
        self.queue(tensors, stream, |comm, list, stream| {
            // SAFETY: as in `reduce`.
            unsafe { comm.broadcast_list(list, root, stream) }
        })
    }

    /// Calls `queue` with the tensors and a stream, and keeps the tensors.
    pub(crate) fn queue<T>(
        &self,
        tensors: &[&F::Tensor],
        given: Option<&F::Stream>,
        queue: impl FnOnce(&mut Communicator, &[&dyn DeviceBuffer], &Stream) -> tributary::Result<T>,
    ) -> Result<T, Error> {
        let stream = stream(self.device, given)?;
        let views = views::<F>(tensors)?;
        let queued = queue(&mut self.comm.borrow_mut(), &list(&views), &stream);
        let clones = tensors.iter().map(|&tensor| tensor.clone()).collect();
        self.kept.borrow_mut().add(&stream, clones);
        Ok(queued?)
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Calls `function` with the communicator and the framework's current stream.
    pub(crate) fn with<T>(
        &self,
        function: impl FnOnce(&mut Communicator, &Stream) -> tributary::Result<T>,
    ) -> Result<T, Error> {
        let current = F::current_stream(self.device.ordinal());
        let stream = stream(self.device, current.as_ref())?;
        Ok(function(&mut self.comm.borrow_mut(), &stream)?)
    }

    pub(crate) fn keep_too(&mut self, kept: Kept<F::Tensor>) {
        self.kept_before = Some(kept);
    }

    fn current_if_none(&self, stream: Option<&F::Stream>) -> Option<F::Stream> {
        if stream.is_some() {
            return None;
        }
        F::current_stream(self.device.ordinal())
    }
}

impl<F: Framework> Drop for NcclRankComm<F> {
    fn drop(&mut self) {
        self.abort.mark_gone();
    }
}

impl<F: Framework> fmt::Debug for NcclRankComm<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NcclRankComm")
            .field("rank", &self.rank)
            .field("world_size", &self.world_size)
            .finish()
    }
}

fn check_size(rank: usize, world_size: usize) -> Result<(), Error> {
    if rank >= world_size {
        return Err(Error::Argument(format!(
            "NcclRankComm: rank {rank} is not below world_size {world_size}"
        )));
    }
    if world_size < 2 {
        return Err(Error::Argument("NcclRankComm requires a world_size of 2 at least".into()));
    }
    Ok(())
}

fn all_f32<F: Framework>(tensors: &[&F::Tensor]) -> Result<(), Error> {
    use crate::framework::Tensor;
    match tensors.iter().position(|tensor| tensor.dtype() != DType::F32) {
        None => Ok(()),
        Some(index) => Err(Error::Argument(format!(
            "all_reduce_premul_sum: tensor {index} is {}, expected f32, the type of the factor",
            tensors[index].dtype()
        ))),
    }
}
