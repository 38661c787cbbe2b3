//! Several calls as one.

use std::sync::Arc;

use tributary_sys as sys;

use crate::check::Check;
use crate::communicator::{gone, Communicator, Shared};
use crate::error::Result;
use crate::stream::Stream;

impl Communicator {
    /// Queues the collectives that `calls` makes as one, on `stream`, so that sends and receives
    /// run together. All of them name that stream, and none may depend on another's buffers.
    /// Batches do not nest, and hold no lists, weighted averages or calls of a
    /// [`SparseAllReduce`](crate::SparseAllReduce).
    ///
    /// If `calls` or a collective in it fails, or `calls` panics, nothing is queued.
    ///
    /// ```
    /// use tributary::Stream;
    /// # use tributary::{Communicator, Group, Options, Result};
    /// # fn rank(comm: &mut Communicator) -> Result<()> {
    /// let stream = Stream::new(comm.device())?;
    /// let peer = 1 - comm.rank();
    /// let mine = vec![comm.rank() as i32; 4];
    /// let mut theirs = vec![-1; 4];
    /// comm.scope(&stream, |s| {
    ///     s.batch(|s| {
    ///         s.send(&mine, peer)?;
    ///         s.recv(&mut theirs, peer)
    ///     })
    /// })?;
    /// assert_eq!(theirs, [peer as i32; 4]);
    /// # Ok(())
    /// # }
    /// # Group::with_options(2, &Options::new().backend("host"))?.run(rank)?;
    /// # Ok::<(), tributary::Error>(())
    /// ```
    pub fn batch<T>(
        &mut self,
        stream: &Stream,
        calls: impl FnOnce(&mut Communicator) -> Result<T>,
    ) -> Result<T> {
        let batch = Batch::begin(self, stream)?;
        let value = calls(self)?;
        batch.end()?;
        Ok(value)
    }
}

/// Queues the collectives that `calls` makes on several communicators as one call of the backend, each
/// communicator's on its stream: several communicators of one rank, or several ranks that one thread
/// drives, as those of [`Group::split`](crate::Group::split). For each of them what
/// [`Communicator::batch`] says holds; `calls` gets `ranks` back.
///
/// On host, give communicators that use one stream in the same order on all ranks. If NCCL fails, or
/// one of them is aborted before NCCL has queued the calls, the others may end with it.
///
/// If `calls` or a collective in it fails, or `calls` panics, nothing is queued on any of them.
///
/// ```
/// use tributary::{batch_all, DeviceVec, ReduceOp, Stream};
/// # use tributary::{Group, Options};
/// // One thread drives both ranks.
/// let mut comms = Group::with_options(2, &Options::new().backend("host"))?.split()?;
/// let streams = [Stream::new(comms[0].device())?, Stream::new(comms[1].device())?];
/// let data = [
///     DeviceVec::from_slice(comms[0].device(), &[1_i32, 2])?,
///     DeviceVec::from_slice(comms[1].device(), &[10, 20])?,
/// ];
/// let mut ranks: Vec<_> = comms.iter_mut().zip(&streams).collect();
/// batch_all(&mut ranks, |ranks| {
///     for ((comm, stream), data) in ranks.iter_mut().zip(&data) {
///         // SAFETY: `data` lives, and is not touched, until the streams have been waited for.
///         unsafe { comm.allreduce(data, data, ReduceOp::Sum, stream)? };
///     }
///     Ok(())
/// })?;
/// for (comm, stream) in &mut ranks {
///     comm.wait(stream)?;
/// }
/// assert_eq!(data[1].as_slice(), Some(&[11, 22][..]));
/// # Ok::<(), tributary::Error>(())
/// ```
pub fn batch_all<T>(
    ranks: &mut [(&mut Communicator, &Stream)],
    calls: impl FnOnce(&mut [(&mut Communicator, &Stream)]) -> Result<T>,
) -> Result<T> {
    let begun: Result<Vec<Batch>> =
        ranks.iter_mut().map(|(comm, stream)| Batch::begin(comm, stream)).collect();
    let batches = begun?;
    let value = calls(ranks)?;
    end_all(batches)?;
    Ok(value)
}

fn end_all(mut batches: Vec<Batch>) -> Result<()> {
    let shared: Vec<&Shared> = batches.iter().map(|batch| &*batch.shared).collect();
    // SAFETY: the locks keep other threads out of all of them, each of which is given once: it began
    // one batch, and "batches do not nest". "All n batches end in all cases".
    let ended = Shared::call_all(&shared, |comms| unsafe {
        sys::trib_batch_end_all(comms.as_ptr(), comms.len())
    });
    let Some(ended) = ended else {
        return Err(gone()); // the drop cancels the batches of those that are left
    };
    for batch in &mut batches {
        batch.over = true;
        batch.shared.set_batch(None);
    }
    ended
}

/// An open batch. Dropping it cancels it.
///
/// A batch ends on the communicator that it began on, also if the closure swapped the `&mut`, and
/// before the borrow of its stream ends. So C keeps no pointer longer than it may.
pub(crate) struct Batch {
    shared: Arc<Shared>,
    over: bool,
}

impl Batch {
    pub(crate) fn begin(comm: &mut Communicator, stream: &Stream) -> Result<Batch> {
        comm.not_batching("batch")?;
        Check::new("batch", comm, stream)?;
        // SAFETY: the lock keeps other threads out; every begin has its end, here or in the drop.
        comm.call(|comm| unsafe { sys::trib_batch_begin(comm) })?;
        let shared = Arc::clone(comm.shared());
        shared.set_batch(Some(stream.as_raw()));
        Ok(Batch { shared, over: false })
    }

    pub(crate) fn end(mut self) -> Result<()> {
        self.finish()
    }

    fn finish(&mut self) -> Result<()> {
        self.over = true;
        self.shared.set_batch(None);
        // SAFETY: the lock keeps other threads out. "The batch ends in both cases."
        let ended = self.shared.call(|comm| unsafe { sys::trib_batch_end(comm) });
        ended.unwrap_or_else(|| Err(gone()))
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if !self.over {
            // "Batches do not nest", so this call fails, and "If a call of the batch failed,
            // nothing is queued": that cancels the batch.
            // SAFETY: the lock keeps other threads out.
            let _ = self.shared.call(|comm| unsafe { sys::trib_batch_begin(comm) });
            let _ = self.finish();
        }
    }
}
