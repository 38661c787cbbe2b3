//! Collectives that own their buffers until they have run.

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use tributary_sys as sys;

use crate::abort::AbortHandle;
use crate::applied::Applied;
use crate::buffer::DeviceSlice;
use crate::call_counters::CallCounters;
use crate::check;
use crate::communicator::{Communicator, Shared};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::retired;
use crate::scope::{Held, Scope};
use crate::stable::StableBox;
use crate::stream::Stream;
use crate::sync::{self, SyncGuard};

impl Communicator {
    /// Queues collectives on `stream` and takes their buffers, which [`Work::wait`] returns.
    ///
    /// Calls `queue` with a [`Scope`] and the buffers: a vector, a tuple, or any other owner. If
    /// `queue` fails, waits for the calls it had queued like [`scope`](Communicator::scope), and
    /// returns the buffers in the error.
    ///
    /// ```
    /// use tributary::{InPlace, ReduceOp, Stream};
    /// # use tributary::{Communicator, Group, Options, Result};
    /// # fn rank(comm: &mut Communicator) -> Result<()> {
    /// let stream = Stream::new(comm.device())?;
    /// let gradient = vec![comm.rank() as f32 + 1.0; 1000];
    /// let work = comm.start(gradient, &stream, |s, gradient| {
    ///     s.allreduce(InPlace, gradient, ReduceOp::Avg)
    /// })?;
    /// // ... something else meanwhile ...
    /// let gradient = work.wait()?;
    /// assert_eq!(gradient, [1.5; 1000]);
    /// # Ok(())
    /// # }
    /// # Group::with_options(2, &Options::new().backend("host"))?.run(rank)?;
    /// # Ok::<(), tributary::Error>(())
    /// ```
    ///
    /// A work cannot take borrowed buffers, because a `Work` can be leaked with `mem::forget`, and
    /// one that is dropped leaves its buffers behind. [`scope`](Communicator::scope) takes them, and
    /// waits:
    ///
    /// ```compile_fail,E0597
    /// # use tributary::{Communicator, InPlace, ReduceOp, Stream};
    /// # fn f(comm: &mut Communicator, stream: &Stream) -> tributary::Result<()> {
    /// let mut gradient = vec![1.0_f32; 10];
    /// let work = comm.start(&mut gradient[..], stream, |s, gradient| {
    ///     s.allreduce(InPlace, &mut **gradient, ReduceOp::Sum)
    /// })?;
    /// std::mem::forget(work);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Nor buffers that are not `Send`: those of a work that is dropped are dropped on another thread.
    ///
    /// ```compile_fail,E0277
    /// # use tributary::{Communicator, Stream};
    /// # fn f(comm: &mut Communicator, stream: &Stream) -> tributary::Result<()> {
    /// let work = comm.start(std::rc::Rc::new(1.0_f32), stream, |s, _| s.barrier())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start<B, F>(
        &mut self,
        buffers: B,
        stream: &Stream,
        queue: F,
    ) -> Result<Work<B>, Failed<B>>
    where
        B: Send + 'static,
        F: for<'scope> FnOnce(&mut Scope<'scope, 'static>, &'scope mut B) -> Result<()>,
    {
        let event = match self.not_batching("start").and_then(|()| Event::new(self.device())) {
            Ok(event) => event,
            Err(error) => return Err(Failed { error, buffers: Some(buffers) }),
        };
        let mut owned = StableBox::new(buffers);
        let lent: &'static mut B = owned.lend();
        let buffers = Buffers { owned, held: Vec::new() };
        queue_work(self, buffers, Vec::new(), event, stream, |s, _| queue(s, lent))
    }
}

/// Calls `queue`, and records `event` behind it on `stream`, which runs it after the parts `before`.
fn queue_work<B, F>(
    comm: &mut Communicator,
    mut buffers: Buffers<B>,
    before: Vec<Part>,
    mut event: Event,
    stream: &Stream,
    queue: F,
) -> Result<Work<B>, Failed<B>>
where
    B: Send + 'static,
    F: for<'scope> FnOnce(&mut Scope<'scope, 'static>, &[Held<'scope>]) -> Result<()>,
{
    let (shared, abort) = (Arc::clone(comm.shared()), comm.abort_handle());
    let timeout = comm.timeout();
    // The guard waits before `buffers` is dropped, also while unwinding; before it nothing panics.
    let streams = [stream];
    let aborts = before.iter().map(|part| &part.abort).chain([&abort]).cloned().collect();
    let guard = SyncGuard::new(&streams, aborts, timeout);
    let who = format!("rank {}", comm.rank());
    let mut scope = Scope::new(comm, stream);
    let held: Vec<_> = buffers.held.iter().map(|view| scope.hold_view(*view)).collect();
    let queued = guard.watch(&who, || queue(&mut scope, &held).and_then(|()| event.record(stream)));
    let (applied, views) = scope.into_parts();
    match queued {
        Ok(((), guard)) => {
            shared.mark_end(stream);
            guard.disarm();
            buffers.held = views;
            let queued = Arc::new(Queued { event, applied, missed: AtomicBool::new(false) });
            if !queued.applied.is_empty() {
                shared.register(&queued);
            }
            let last = Part { queued, shared, abort };
            Ok(Work { buffers: ManuallyDrop::new(buffers), last, before, timeout })
        }
        Err(error) => Err(Failed { error, buffers: Some(buffers.owned.take()) }),
    }
}

/// Queued collectives and the buffers they use, from [`Communicator::start`].
///
/// [`wait`](Work::wait) and [`try_wait`](Work::try_wait) return the buffers, and [`then`](Work::then)
/// hands them over to another stream. Nothing frees memory that is still in use.
///
/// # Dropping
///
/// Dropping a work never waits. The buffers are dropped at once if the work has run, and otherwise
/// when it has: then on a thread of this crate, where a panic of theirs reaches the panic hook and
/// goes no further, and where a drop that takes long holds up that of others. Dropping the
/// communicator of the last calls waits for that, up to
/// [`Options::close_timeout`](crate::Options::close_timeout). Nobody asks for the outcome:
/// [`Communicator::status`] still tells of a failure. Forgetting a work leaks the buffers.
#[must_use = "`wait` returns the buffers"]
pub struct Work<B: Send + 'static> {
    buffers: ManuallyDrop<Buffers<B>>,
    /// Its event is the end of the work.
    last: Part,
    /// What ran before it, as far as `last` does not know the outcome.
    before: Vec<Part>,
    timeout: Duration,
}

/// What a work owns, and the views of it that were held, which may be of `'static` memory, too.
struct Buffers<B> {
    owned: StableBox<B>,
    held: Vec<DeviceSlice>,
}

// SAFETY: it owns a B. The views are addresses, which Rust does not follow: C does, on any thread.
unsafe impl<B: Send> Send for Buffers<B> {}

/// The calls of one stream, and the communicator that knows how they went.
struct Part {
    queued: Arc<Queued>,
    shared: Arc<Shared>,
    abort: AbortHandle,
}

impl Part {
    /// Whether every call was applied. The stream has passed them.
    fn check(&self) -> Result<()> {
        self.status().and_then(|()| self.queued.check(&self.shared))
    }

    /// Whether the status of `comm` says all that `check` does.
    fn is_known_to(&self, comm: &Communicator) -> bool {
        self.queued.applied.is_empty() && Arc::ptr_eq(&self.shared, comm.shared())
    }

    /// Drops `buffers` when the stream has passed. Never waits.
    fn retire<B: Send + 'static>(&self, buffers: Buffers<B>) {
        if !self.queued.is_passed() {
            retired::retire(&self.queued, &self.shared, buffers);
        }
    }

    /// The status of the communicator; once it was dropped, what the abort handle knows: "after the
    /// communicator is gone: then it returns the last status (TRIB_OK after a close without error)".
    /// "after a wait for the stream, results are valid if and only if trib_comm_status() is TRIB_OK".
    fn status(&self) -> Result<()> {
        // SAFETY: the lock in `shared` keeps other threads out. "Never waits."
        let status = self.shared.call(|comm| unsafe { sys::trib_comm_status(comm) });
        status.unwrap_or_else(|| self.abort.status())
    }
}

/// The event that a work waits for, and the calls whose outcome it then checks. The communicator
/// and the sparse states know the outcome, and look at this before they are destroyed.
pub(crate) struct Queued {
    event: Event,
    applied: Applied,
    /// Whether the work had not run when its communicator or a state was destroyed.
    missed: AtomicBool,
}

// SAFETY: threads only wait for and query the event, which is "Any thread".
unsafe impl Sync for Queued {}

impl Queued {
    /// Whether the stream has passed the work. Never waits.
    pub(crate) fn is_passed(&self) -> bool {
        sync::is_idle(&self.event)
    }

    pub(crate) fn uses(&self, counters: &Arc<CallCounters>) -> bool {
        self.applied.uses(counters)
    }

    /// Records that the communicator or a state is about to be destroyed.
    pub(crate) fn mark_ended(&self) {
        if !self.is_passed() {
            self.missed.store(true, Ordering::Relaxed);
        }
    }

    fn check(&self, shared: &Shared) -> Result<()> {
        self.applied.check(shared, !self.missed.load(Ordering::Relaxed))
    }
}

impl<B: Send + 'static> Work<B> {
    /// Waits until the collectives have run, and returns the buffers.
    ///
    /// `Ok` means that every call was applied, as in [`scope`](Communicator::scope), also if the
    /// communicator or a sparse state was dropped meanwhile. If the communicator ended first, the
    /// error is the reason, dropped or not, as [`AbortHandle::status`] tells it: an abort, a
    /// [mismatch](crate::ErrorKind::Mismatch), a rank that had left
    /// ([`ErrorKind::Closed`](crate::ErrorKind::Closed)), a deadline
    /// ([`ErrorKind::Timeout`](crate::ErrorKind::Timeout)), also that of a drop that waited for the
    /// calls in vain. If nothing is known against a sparse call or a weighted average, but it had
    /// not run when its communicator or state was dropped, its outcome is lost, and the error is of
    /// kind [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    ///
    /// An error returns the buffers, too. Their content is then undefined, except for lists, which
    /// were written wholly or not at all. Only if the wait itself is refused, repeatedly for
    /// [`Options::close_timeout`](crate::Options::close_timeout), may the device still use the
    /// buffers: then they are kept, and dropped when the work has run, and the error says so.
    pub fn wait(self) -> Result<B, Failed<B>> {
        match sync::wait(self.event(), Deadline::after(self.timeout)) {
            Ok(waited) => self.finish(waited),
            Err(refused) => Err(self.keep(refused)),
        }
    }

    /// Returns what [`wait`](Work::wait) does if the collectives have run, and otherwise the work.
    /// Does not wait for the device, nor for a call that another thread makes with the communicator:
    /// while there is one, the work is returned, too.
    ///
    /// ```
    /// use tributary::{InPlace, ReduceOp, Stream};
    /// # use tributary::{Communicator, Group, Options, Result};
    /// # fn rank(comm: &mut Communicator) -> Result<()> {
    /// # fn compute() {}
    /// let stream = Stream::new(comm.device())?;
    /// let mut work = comm.start(vec![1.0_f32; 1000], &stream, |s, gradient| {
    ///     s.allreduce(InPlace, gradient, ReduceOp::Sum)
    /// })?;
    /// let gradient = loop {
    ///     match work.try_wait() {
    ///         Ok(waited) => break waited?,
    ///         Err(running) => work = running,
    ///     }
    ///     compute();
    /// };
    /// assert_eq!(gradient, [2.0; 1000]);
    /// # Ok(())
    /// # }
    /// # Group::with_options(2, &Options::new().backend("host"))?.run(rank)?;
    /// # Ok::<(), tributary::Error>(())
    /// ```
    pub fn try_wait(self) -> Result<Result<B, Failed<B>>, Work<B>> {
        match sync::passed(self.event()) {
            Some(passed) if !self.parts().any(|part| part.shared.is_busy()) => {
                Ok(self.finish(passed))
            }
            _ => Err(self),
        }
    }

    /// Returns the buffers. `waited`: how the wait ended, after which nothing uses them.
    fn finish(self, waited: Result<()>) -> Result<B, Failed<B>> {
        let known = waited.and_then(|()| self.parts().try_for_each(Part::check));
        let buffers = self.into_parts().0.owned.take();
        match known {
            Ok(()) => Ok(buffers),
            Err(error) => Err(Failed { error, buffers: Some(buffers) }),
        }
    }

    /// Keeps the buffers, whose end nobody has seen, and says so.
    fn keep(self, error: Error) -> Failed<B> {
        let error = error.with("the buffers are kept, for the device may still use them");
        Failed { error, buffers: None }
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.before.iter().chain([&self.last])
    }

    /// Hands the buffers over to `stream`: queues more collectives there, which the device runs after
    /// those of this work. The host waits for neither, unless the ranks compare their calls, as they
    /// do on nccl by default: they compare them on `stream`, behind this work (see
    /// [`Options::assume_matching_calls`](crate::Options::assume_matching_calls)).
    ///
    /// Calls `queue` with a [`Scope`] of `comm` and with the buffers that were [held](Scope::hold), in
    /// that order; no others can be used. Until [`wait`](Work::wait) of the new work has returned
    /// them, only calls on `stream` use the buffers, and later those of the next `then`. Kernels that
    /// `queue` launches on `stream` run after this work, too, and the new one waits for them; a
    /// [`Held`] has the address.
    ///
    /// `comm` is any communicator of the work's device, so that a reduction can go on from the one
    /// inside of a node to the one between nodes. `Ok` of the `wait` means that every call of the
    /// chain was applied.
    ///
    /// If `queue` fails or panics, waits for the calls of both, as [`start`](Communicator::start)
    /// does. If `comm` or `stream` refuses the work, as in an open batch, the host waits for it, for
    /// up to [`Options::close_timeout`](crate::Options::close_timeout). The error returns the
    /// buffers, or says that they are kept, and dropped when the work has run.
    ///
    /// ```
    /// use tributary::{InPlace, ReduceOp, Stream};
    /// # use tributary::{Communicator, Group, Options, Result};
    /// # fn rank(comm: &mut Communicator) -> Result<()> {
    /// let (first, second) = (Stream::new(comm.device())?, Stream::new(comm.device())?);
    /// let buffers = (vec![1.0_f32; 1000], vec![0.0_f32; 2000]);
    /// let work = comm.start(buffers, &first, |s, (sum, all)| {
    ///     let (sum, _) = (s.hold(sum), s.hold(all));
    ///     s.allreduce(InPlace, sum, ReduceOp::Sum)
    /// })?;
    /// let work = work.then(comm, &second, |s, held| s.allgather(held[0], held[1]))?;
    /// let (sum, all) = work.wait()?;
    /// assert_eq!((sum, all), (vec![2.0; 1000], vec![2.0; 2000]));
    /// # Ok(())
    /// # }
    /// # Group::with_options(2, &Options::new().backend("host"))?.run(rank)?;
    /// # Ok::<(), tributary::Error>(())
    /// ```
    ///
    /// `queue` cannot read or write the elements, which the device may still use, nor keep a buffer
    /// for later:
    ///
    /// ```compile_fail,E0608
    /// # use tributary::{Communicator, Stream, Work};
    /// # fn f(work: Work<Vec<f32>>, comm: &mut Communicator, stream: &Stream) -> tributary::Result<()> {
    /// work.then(comm, stream, |_, held| {
    ///     println!("{}", held[0][0]);
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// ```compile_fail,E0521
    /// # use tributary::{Communicator, Stream, Work};
    /// # fn f(work: Work<Vec<f32>>, comm: &mut Communicator, stream: &Stream) -> tributary::Result<()> {
    /// let mut kept = None;
    /// let work = work.then(comm, stream, |_, held| {
    ///     kept = Some(held[0]);
    ///     Ok(())
    /// })?;
    /// work.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn then<F>(
        self,
        comm: &mut Communicator,
        stream: &Stream,
        queue: F,
    ) -> Result<Work<B>, Failed<B>>
    where
        F: for<'scope> FnOnce(&mut Scope<'scope, 'static>, &[Held<'scope>]) -> Result<()>,
    {
        match self.put_before(comm, stream) {
            Ok(event) => {
                let (buffers, mut before, last) = self.into_parts();
                if !last.is_known_to(comm) {
                    before.push(last);
                }
                queue_work(comm, buffers, before, event, stream, queue)
            }
            Err(error) => Err(self.wait_after(error)),
        }
    }

    /// Makes later work on `stream` wait for this. Returns an event for the end of that.
    fn put_before(&self, comm: &Communicator, stream: &Stream) -> Result<Event> {
        comm.not_batching("Work::then")?;
        let (device, found) = (self.event().device(), comm.device());
        if device != found {
            return Err(Error::argument(format!(
                "Work::then: the work is of {device}, `comm` is of {found}; give one of {device}"
            )));
        }
        check::stream_of(&"Work::then", stream, device)?;
        let event = Event::new(device)?;
        stream.wait_event(self.event())?;
        Ok(event)
    }

    /// Returns `error` with the buffers, once the work has run. That may depend on calls that this
    /// thread has yet to make, so not for ever.
    fn wait_after(self, error: Error) -> Failed<B> {
        if !Deadline::after(self.timeout).poll(|| self.last.queued.is_passed()) {
            return self.keep(error);
        }
        match self.wait() {
            Ok(buffers) => Failed { error, buffers: Some(buffers) },
            Err(failed) => failed,
        }
    }

    /// Makes later work on `stream` wait for the collectives, on the device, and returns the
    /// buffers. The host does not wait. `stream` may belong to any device of the backend.
    ///
    /// Nobody asks for the outcome any more: once `stream` has been waited for, results are valid if
    /// and only if [`Communicator::status`] is `Ok`, and a sparse call or a weighted average may
    /// have left them as they were. If `stream` cannot wait for the collectives, the host does, as
    /// [`then`](Work::then) does. To order a stream and keep the
    /// work, use its [`event`](Work::event); [`then`](Work::then) needs no `unsafe`.
    ///
    /// ```
    /// use tributary::{InPlace, ReduceOp, Stream};
    /// # use tributary::{Communicator, Group, Options, Result};
    /// # fn rank(comm: &mut Communicator) -> Result<()> {
    /// let (communicating, computing) = (Stream::new(comm.device())?, Stream::new(comm.device())?);
    /// let work = comm.start(vec![1.0_f32; 1000], &communicating, |s, gradient| {
    ///     s.allreduce(InPlace, gradient, ReduceOp::Sum)
    /// })?;
    /// // SAFETY: nothing uses the gradient before `computing` has been waited for.
    /// let gradient = unsafe { work.hand_over(&computing) }?;
    /// // ... kernels that read the gradient, on `computing` ...
    /// comm.wait(&computing)?;
    /// assert_eq!(gradient, [2.0; 1000]);
    /// # Ok(())
    /// # }
    /// # Group::with_options(2, &Options::new().backend("host"))?.run(rank)?;
    /// # Ok::<(), tributary::Error>(())
    /// ```
    ///
    /// # Safety
    /// Until `stream` has passed this point, the buffers stay alive and where they are, and only
    /// work that is queued on `stream` after this call uses them. So their memory is not part of
    /// `B` itself, as that of an array is: returning it moves `B`.
    pub unsafe fn hand_over(self, stream: &Stream) -> Result<B, Failed<B>> {
        match stream.wait_event(self.event()) {
            Ok(()) => Ok(self.into_parts().0.owned.take()),
            Err(error) => Err(self.wait_after(error)),
        }
    }

    /// The buffers, where they are, the parts before the last one, and that.
    fn into_parts(self) -> (Buffers<B>, Vec<Part>, Part) {
        let mut work = ManuallyDrop::new(self);
        let before = mem::take(&mut work.before);
        // SAFETY: `work` is not used again, nor dropped: each field is taken once.
        unsafe { (ManuallyDrop::take(&mut work.buffers), before, ptr::read(&work.last)) }
    }

    /// Returns whether the collectives have run. Never waits.
    pub fn is_done(&self) -> Result<bool> {
        self.event().is_done()
    }

    /// Returns the point in the stream after the collectives, for other streams to
    /// [wait for](Stream::wait_event).
    pub fn event(&self) -> &Event {
        &self.last.queued.event
    }
}

impl<B: Send + 'static> Drop for Work<B> {
    fn drop(&mut self) {
        // SAFETY: not used again.
        let buffers = unsafe { ManuallyDrop::take(&mut self.buffers) };
        self.last.retire(buffers);
    }
}

impl<B: Send + 'static> fmt::Debug for Work<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("is_done", &self.is_done()).finish_non_exhaustive()
    }
}

/// Why started collectives failed, and their buffers. `?` passes them on from a function whose error
/// is a `Failed`, too; into an [`Error`] it drops them.
pub struct Failed<B> {
    /// The failure.
    pub error: Error,
    /// The buffers; `None` if the device may still use them, which `error` then says.
    pub buffers: Option<B>,
}

impl<B> From<Failed<B>> for Error {
    fn from(failed: Failed<B>) -> Error {
        failed.error
    }
}

impl<B> fmt::Debug for Failed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failed").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<B> fmt::Display for Failed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B> std::error::Error for Failed<B> {
    /// The display shows `error` already, so this is the cause of `error`.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::{Group, Options};

    /// An event that cannot be waited for: to host it is unknown.
    fn refuse<B: Send>(work: &mut Work<B>) {
        let device = work.event().device();
        // SAFETY: not followed, for host knows its events.
        let nowhere =
            unsafe { Event::from_raw(device, ptr::null_mut::<u8>().wrapping_add(8).cast()) };
        Arc::get_mut(&mut work.last.queued).unwrap().event = nowhere;
    }

    #[test]
    fn buffers_whose_wait_is_refused_are_kept() {
        let kept = Arc::new(());
        let options = Options::new().backend("host").close_timeout(Duration::from_millis(20));
        let mut comm = Group::with_options(1, &options).unwrap().split().unwrap().remove(0);
        let stream = Stream::new(comm.device()).unwrap();
        let start = |comm: &mut Communicator| {
            let mut work = comm.start(Arc::clone(&kept), &stream, |s, _| s.barrier()).unwrap();
            refuse(&mut work);
            work
        };
        let failed = start(&mut comm).wait().unwrap_err();
        assert_eq!(failed.error.kind(), ErrorKind::InvalidArgument);
        assert!(failed.error.detail().contains("the buffers are kept"), "{failed}");
        assert!(failed.buffers.is_none());
        drop(start(&mut comm));
        drop(comm); // waits for them, and no longer than its timeout
        assert_eq!(Arc::strong_count(&kept), 3, "both are kept");
    }
}
