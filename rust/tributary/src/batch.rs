//! Several calls as one.

use tributary_sys as sys;

use crate::communicator::Communicator;
use crate::error::Result;

impl Communicator {
    /// Queue what `calls` calls as one: sends and receives run together. All use the same stream;
    /// their buffers may not depend on each other. Batches do not nest, and lists are not allowed.
    ///
    /// If `calls` fails (or panics), or a call in it failed, nothing is queued.
    ///
    /// ```
    /// use tributary::Stream;
    /// # use tributary::{Communicator, Group, Options, Result};
    /// # fn rank(mut comm: Communicator) -> Result<()> {
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
    /// # let ranks = Group::with_options(2, &Options::new().backend("host"))?.split()?;
    /// # let threads: Vec<_> =
    /// #     ranks.into_iter().map(|comm| std::thread::spawn(move || rank(comm))).collect();
    /// # threads.into_iter().try_for_each(|thread| thread.join().unwrap())?;
    /// # Ok::<(), tributary::Error>(())
    /// ```
    pub fn batch<T>(&mut self, calls: impl FnOnce(&mut Communicator) -> Result<T>) -> Result<T> {
        run(self, |comm| comm, calls)
    }
}

/// [`Communicator::batch`] for whatever has a communicator.
pub(crate) fn run<S, T>(
    subject: &mut S,
    comm: fn(&mut S) -> &mut Communicator,
    calls: impl FnOnce(&mut S) -> Result<T>,
) -> Result<T> {
    // SAFETY: the lock keeps other threads out; every begin has its end, here or in the drop.
    comm(subject).call(|comm| unsafe { sys::trib_batch_begin(comm) })?;
    comm(subject).set_batching(true);
    let mut batch = Batch { subject, comm, over: false };
    let value = calls(batch.subject)?;
    batch.end()?;
    Ok(value)
}

/// A batch that has begun. Dropping it gives it up.
struct Batch<'a, S> {
    subject: &'a mut S,
    comm: fn(&mut S) -> &mut Communicator,
    over: bool,
}

impl<S> Batch<'_, S> {
    fn end(&mut self) -> Result<()> {
        self.over = true;
        let comm = (self.comm)(self.subject);
        comm.set_batching(false);
        // SAFETY: the lock keeps other threads out. "Either way the batch is over."
        comm.call(|comm| unsafe { sys::trib_batch_end(comm) })
    }
}

impl<S> Drop for Batch<'_, S> {
    fn drop(&mut self) {
        if !self.over {
            // "Batches do not nest", so this fails, and "If a call inside it failed, nothing is
            // queued": that is how a batch is given up.
            // SAFETY: the lock keeps other threads out.
            let _ = (self.comm)(self.subject).call(|comm| unsafe { sys::trib_batch_begin(comm) });
            let _ = self.end();
        }
    }
}
