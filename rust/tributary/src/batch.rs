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
