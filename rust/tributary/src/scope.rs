//! Collectives on borrowed buffers.
//!
//! A queued collective uses its buffers after the call has returned, and a leaked guard runs no
//! destructor. So only a function that returns after the stream has passed can lend memory to it:
//! [`Communicator::scope`].

use std::cell::RefCell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};

use crate::applied::Applied;
use crate::batch::Batch;
use crate::buffer::{DeviceBuffer, DeviceSlice, UniqueBuffer};
use crate::call_options::CallOptions;
use crate::communicator::Communicator;
use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::list::Weight;
use crate::op::ReduceOp;
use crate::sparse::SparseAllReduce;
use crate::stream::Stream;
use crate::symmetric::Symmetric;
use crate::sync::SyncGuard;

impl Communicator {
    /// Queues collectives on `stream` with borrowed buffers, and waits for them.
    ///
    /// Calls `queue` with a [`Scope`], which has the collectives, then synchronizes `stream`. `Ok`
    /// means that every call was applied and every result is valid. A sparse call or a weighted
    /// average that was not applied, because numbers were not finite, returns an error of kind
    /// [`ErrorKind::NonFinite`](crate::ErrorKind::NonFinite) and leaves the communicator usable.
    ///
    /// If `queue` fails or panics, the other ranks may never join what it had queued. The scope
    /// then waits a second (or [`Options::close_timeout`](crate::Options::close_timeout) if that is
    /// shorter) and aborts, with the error or the panic's message as the reason.
    ///
    /// ```
    /// use tributary::{InPlace, ReduceOp, Stream};
    /// # use tributary::{Communicator, Group, Options, Result};
    /// # fn rank(comm: &mut Communicator) -> Result<()> {
    /// let stream = Stream::new(comm.device())?;
    /// let mut gradient = vec![comm.rank() as f32; 1000]; // host memory: for the host backend
    /// comm.scope(&stream, |s| s.allreduce(InPlace, &mut gradient, ReduceOp::Sum))?;
    /// assert_eq!(gradient, [1.0; 1000]);
    /// # Ok(())
    /// # }
    /// # Group::with_options(2, &Options::new().backend("host"))?.run(rank)?;
    /// # Ok::<(), tributary::Error>(())
    /// ```
    ///
    /// The compiler refuses access to a borrowed buffer before the scope ends:
    ///
    /// ```compile_fail,E0499
    /// # use tributary::{Communicator, InPlace, ReduceOp, Stream};
    /// # fn f(comm: &mut Communicator, stream: &Stream) -> tributary::Result<()> {
    /// let mut gradient = vec![1.0_f32; 10];
    /// comm.scope(stream, |s| {
    ///     s.allreduce(InPlace, &mut gradient, ReduceOp::Sum)?;
    ///     gradient[0] = 2.0;
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn scope<'env, T, F>(&mut self, stream: &Stream, queue: F) -> Result<T>
    where
        F: for<'scope> FnOnce(&mut Scope<'scope, 'env>) -> Result<T>,
    {
        self.not_batching("scope")?;
        let streams = [stream];
        let guard = SyncGuard::new(&streams, vec![self.abort_handle()], self.timeout());
        let who = format!("rank {}", self.rank());
        let mut scope = Scope::new(self, stream);
        let (value, guard) = guard.watch(&who, || queue(&mut scope))?;
        let (applied, _) = scope.into_parts();
        self.shared().mark_end(stream);
        guard.finish()?;
        self.status()?;
        applied.check(self.shared(), true)?;
        Ok(value)
    }
}

/// The collectives of a [`Communicator`] on one stream, with buffers that live for `'scope`.
///
/// Methods mirror [`Communicator`]; see there for details. `send` is a `&'scope` buffer or
/// [`InPlace`], `recv` a `&'scope mut` one. To use one buffer several times, [`hold`](Scope::hold)
/// it.
pub struct Scope<'scope, 'env: 'scope> {
    comm: &'scope mut Communicator,
    stream: &'scope Stream,
    /// The calls whose outcome to check when the stream has passed.
    applied: Applied,
    /// The buffers that are held.
    held: RefCell<Vec<DeviceSlice>>,
    /// The memory that the calls of the open batch read and write.
    batch: Option<Vec<Use>>,
    /// Makes both lifetimes invariant: neither may stand for another.
    brand: PhantomData<(&'scope mut &'scope (), &'env mut &'env ())>,
}

/// A range of addresses that a call of a batch uses.
struct Use {
    range: Range<usize>,
    written: bool,
}

/// A buffer lent to a [`Scope`] until its end. Several calls may use it, because the stream is in
/// order. A call that takes it as both `send` and `recv` runs in place. As a [`DeviceBuffer`] it has
/// an address, for kernels on the scope's stream.
#[derive(Clone, Copy, Debug)]
pub struct Held<'scope> {
    view: DeviceSlice,
    brand: PhantomData<&'scope mut &'scope ()>,
}

impl<'scope> Held<'scope> {
    /// Returns a part. Panics if the range is not inside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Held<'scope> {
        Held { view: self.view.slice(range), brand: PhantomData }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.view.is_empty()
    }
}

// SAFETY: the view is of a `UniqueBuffer`, which is alive and where it is for `'scope`.
unsafe impl DeviceBuffer for Held<'_> {
    fn ptr(&self) -> *mut c_void {
        self.view.ptr()
    }
    fn len(&self) -> usize {
        self.view.len()
    }
    fn dtype(&self) -> DType {
        self.view.dtype()
    }
    fn device(&self) -> Option<Device> {
        self.view.device()
    }
    fn is_contiguous(&self) -> bool {
        self.view.is_contiguous()
    }
}

mod sealed {
    use super::{Communicator, DeviceSlice, Result};

    pub trait Lent {
        /// Whether the scope may write it.
        const WRITABLE: bool;

        /// For calls of `comm`, or of a group. Fails for memory that only other calls may use.
        fn view(self, comm: Option<&Communicator>) -> Result<DeviceSlice>;
    }

    pub trait Sent {
        /// The buffer to send. `None`: in place.
        fn buffer(self, comm: &Communicator) -> Result<Option<DeviceSlice>>;
    }
}
use sealed::{Lent, Sent};

/// Passed as `send`, makes a call run in place on its `recv`, like `MPI_IN_PLACE`.
///
/// ```
/// use tributary::{InPlace, ReduceOp, Stream};
/// # use tributary::{Communicator, Group, Options, Result};
/// # fn rank(comm: &mut Communicator) -> Result<()> {
/// let stream = Stream::new(comm.device())?;
/// let mut gradient = vec![comm.rank() as f32; 1000];
/// comm.scope(&stream, |s| s.allreduce(InPlace, &mut gradient, ReduceOp::Sum))?;
/// assert_eq!(gradient, [1.0; 1000]);
/// # Ok(())
/// # }
/// # Group::with_options(2, &Options::new().backend("host"))?.run(rank)?;
/// # Ok::<(), tributary::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace;

/// A buffer that a call sends: any [`Source`], or [`InPlace`].
pub trait Input<'scope>: Sent {}

impl<B: Lent> Sent for B {
    fn buffer(self, comm: &Communicator) -> Result<Option<DeviceSlice>> {
        self.view(Some(comm)).map(Some)
    }
}
impl<'scope, B: Source<'scope>> Input<'scope> for B {}

impl Sent for InPlace {
    fn buffer(self, _comm: &Communicator) -> Result<Option<DeviceSlice>> {
        Ok(None)
    }
}
impl Input<'_> for InPlace {}

/// A buffer that a scope may read: any [`UniqueBuffer`] or [`Symmetric`] borrowed for `'scope`, or a
/// [`Held`].
pub trait Source<'scope>: Lent {}

/// A buffer that a scope may write: any [`UniqueBuffer`] or [`Symmetric`] borrowed as `&'scope mut`, or
/// a [`Held`].
pub trait Target<'scope>: Lent {}

impl<B: UniqueBuffer + ?Sized> Lent for &B {
    const WRITABLE: bool = false;

    fn view(self, _comm: Option<&Communicator>) -> Result<DeviceSlice> {
        Ok(DeviceSlice::of(self))
    }
}
impl<'scope, B: UniqueBuffer + ?Sized> Source<'scope> for &'scope B {}

impl<B: UniqueBuffer + ?Sized> Lent for &mut B {
    const WRITABLE: bool = true;

    fn view(self, _comm: Option<&Communicator>) -> Result<DeviceSlice> {
        Ok(DeviceSlice::of_mut(self))
    }
}
impl<'scope, B: UniqueBuffer + ?Sized> Source<'scope> for &'scope mut B {}
impl<'scope, B: UniqueBuffer + ?Sized> Target<'scope> for &'scope mut B {}

impl Lent for Held<'_> {
    const WRITABLE: bool = true;

    fn view(self, _comm: Option<&Communicator>) -> Result<DeviceSlice> {
        Ok(self.view)
    }
}
impl<'scope> Source<'scope> for Held<'scope> {}
impl<'scope> Target<'scope> for Held<'scope> {}

impl<T: Element> Lent for &Symmetric<T> {
    const WRITABLE: bool = false;

    fn view(self, comm: Option<&Communicator>) -> Result<DeviceSlice> {
        self.lend(comm)
    }
}
impl<'scope, T: Element> Source<'scope> for &'scope Symmetric<T> {}

impl<T: Element> Lent for &mut Symmetric<T> {
    const WRITABLE: bool = true;

    fn view(self, comm: Option<&Communicator>) -> Result<DeviceSlice> {
        self.lend(comm)
    }
}
impl<'scope, T: Element> Source<'scope> for &'scope mut Symmetric<T> {}
impl<'scope, T: Element> Target<'scope> for &'scope mut Symmetric<T> {}

impl<'scope, 'env> Scope<'scope, 'env> {
    pub(crate) fn new(comm: &'scope mut Communicator, stream: &'scope Stream) -> Self {
        let (applied, held) = (Applied::default(), RefCell::default());
        Scope { comm, stream, applied, held, batch: None, brand: PhantomData }
    }

    /// The calls whose outcome to check when the stream has passed, and the buffers that are held.
    pub(crate) fn into_parts(self) -> (Applied, Vec<DeviceSlice>) {
        (self.applied, self.held.into_inner())
    }

    /// Returns this rank's number.
    pub fn rank(&self) -> usize {
        self.comm.rank()
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.comm.size()
    }

    /// Lends `buffer` to the scope until its end, so that several calls can use it; in a
    /// [work](Communicator::start) also those of [`Work::then`](crate::Work::then).
    pub fn hold<B: UniqueBuffer + ?Sized>(&self, buffer: &'scope mut B) -> Held<'scope> {
        self.hold_view(DeviceSlice::of_mut(buffer))
    }

    /// Holds a buffer that was lent for `'scope`.
    pub(crate) fn hold_view(&self, view: DeviceSlice) -> Held<'scope> {
        self.held.borrow_mut().push(view);
        Held { view, brand: PhantomData }
    }

    /// Queues [`Communicator::allreduce`].
    pub fn allreduce(
        &mut self,
        send: impl Input<'scope>,
        recv: impl Target<'scope>,
        op: ReduceOp,
    ) -> Result<()> {
        let (send, recv) = self.pair(send, recv)?;
        self.uses(Some(send), Some(recv))?;
        // SAFETY: lent buffers live, and nothing else touches them, until the scope has waited for
        // the stream; `recv` was lent as `&mut`; calls are compared, or promised to match:
        // sentences 1, 2 and 5 of the page `soundness`. The same holds in every method below.
        unsafe { self.comm.allreduce(&send, &recv, op, self.stream) }
    }

    /// Queues [`Communicator::allreduce_with`].
    pub fn allreduce_with(
        &mut self,
        send: impl Input<'scope>,
        recv: impl Target<'scope>,
        op: ReduceOp,
        options: CallOptions<'scope, dyn UniqueBuffer + 'scope>,
    ) -> Result<()> {
        let (send, recv) = self.pair(send, recv)?;
        let factor = options.device_factor.map(DeviceSlice::of);
        self.uses(Some(send), Some(recv))?;
        self.uses(factor, None)?;
        let options = with(&options, &factor);
        // SAFETY: as in `allreduce`.
        unsafe { self.comm.allreduce_with(&send, &recv, op, options, self.stream) }
    }

    /// Queues [`Communicator::broadcast`]. Only the root reads `send`; with `None` it sends its
    /// `recv`, in place.
    pub fn broadcast(
        &mut self,
        send: Option<&'scope dyn UniqueBuffer>,
        recv: impl Target<'scope>,
        root: usize,
    ) -> Result<()> {
        let recv = self.view(recv)?;
        let send = send.map(DeviceSlice::of).or_else(|| (self.rank() == root).then_some(recv));
        self.uses(send, Some(recv))?;
        // SAFETY: as in `allreduce`.
        unsafe { self.comm.broadcast(given(&send), &recv, root, self.stream) }
    }

    /// Queues [`Communicator::broadcast_with`]. Only the root reads `send`.
    pub fn broadcast_with(
        &mut self,
        send: impl Input<'scope>,
        recv: impl Target<'scope>,
        root: usize,
        options: CallOptions<'scope, dyn UniqueBuffer + 'scope>,
    ) -> Result<()> {
        let (send, recv) = self.pair(send, recv)?;
        let send = (self.rank() == root).then_some(send);
        self.uses(send, Some(recv))?;
        let options = with(&options, &None);
        // SAFETY: as in `allreduce`.
        unsafe { self.comm.broadcast_with(given(&send), &recv, root, options, self.stream) }
    }

    /// Queues [`Communicator::reduce`]. Only the root needs `recv`, and with [`InPlace`] every
    /// rank.
    pub fn reduce(
        &mut self,
        send: impl Input<'scope>,
        recv: Option<&'scope mut dyn UniqueBuffer>,
        op: ReduceOp,
        root: usize,
    ) -> Result<()> {
        let recv = recv.map(DeviceSlice::of_mut);
        let send =
            send.buffer(self.comm)?.or(recv).ok_or_else(|| in_place_of_nothing(self.rank()))?;
        self.uses(Some(send), recv)?;
        // SAFETY: as in `allreduce`.
        unsafe { self.comm.reduce(&send, given(&recv), op, root, self.stream) }
    }

    /// Queues [`Communicator::allgather`].
    pub fn allgather(&mut self, send: impl Input<'scope>, recv: impl Target<'scope>) -> Result<()> {
        self.allgather_with(send, recv, CallOptions::new())
    }

    /// Queues [`Communicator::allgather_with`].
    pub fn allgather_with(
        &mut self,
        send: impl Input<'scope>,
        recv: impl Target<'scope>,
        options: CallOptions<'scope, dyn UniqueBuffer + 'scope>,
    ) -> Result<()> {
        let (send, recv) = self.pair(send, recv)?;
        self.uses(Some(send), Some(recv))?;
        let options = with(&options, &None);
        // SAFETY: as in `allreduce`.
        unsafe { self.comm.allgather_with(&send, &recv, options, self.stream) }
    }

    /// Queues [`Communicator::reduce_scatter`].
    pub fn reduce_scatter(
        &mut self,
        send: impl Input<'scope>,
        recv: impl Target<'scope>,
        op: ReduceOp,
    ) -> Result<()> {
        self.reduce_scatter_with(send, recv, op, CallOptions::new())
    }

    /// Queues [`Communicator::reduce_scatter_with`].
    pub fn reduce_scatter_with(
        &mut self,
        send: impl Input<'scope>,
        recv: impl Target<'scope>,
        op: ReduceOp,
        options: CallOptions<'scope, dyn UniqueBuffer + 'scope>,
    ) -> Result<()> {
        let (send, recv) = self.pair(send, recv)?;
        self.uses(Some(send), Some(recv))?;
        let options = with(&options, &None);
        // SAFETY: as in `allreduce`.
        unsafe { self.comm.reduce_scatter_with(&send, &recv, op, options, self.stream) }
    }

    /// Queues [`Communicator::alltoall`].
    pub fn alltoall(&mut self, send: impl Input<'scope>, recv: impl Target<'scope>) -> Result<()> {
        self.alltoall_with(send, recv, CallOptions::new())
    }

    /// Queues [`Communicator::alltoall_with`].
    pub fn alltoall_with(
        &mut self,
        send: impl Input<'scope>,
        recv: impl Target<'scope>,
        options: CallOptions<'scope, dyn UniqueBuffer + 'scope>,
    ) -> Result<()> {
        let (send, recv) = self.pair(send, recv)?;
        self.uses(Some(send), Some(recv))?;
        let options = with(&options, &None);
        // SAFETY: as in `allreduce`.
        unsafe { self.comm.alltoall_with(&send, &recv, options, self.stream) }
    }

    /// Queues [`Communicator::gather`]. Only the root needs `recv`.
    pub fn gather(
        &mut self,
        send: impl Source<'scope>,
        recv: Option<&'scope mut dyn UniqueBuffer>,
        root: usize,
    ) -> Result<()> {
        let (send, recv) = (self.view(send)?, recv.map(DeviceSlice::of_mut));
        self.uses(Some(send), recv)?;
        // SAFETY: as in `allreduce`.
        unsafe { self.comm.gather(&send, given(&recv), root, self.stream) }
    }

    /// Queues [`Communicator::scatter`]. Only the root needs `send`.
    pub fn scatter(
        &mut self,
        send: Option<&'scope dyn UniqueBuffer>,
        recv: impl Target<'scope>,
        root: usize,
    ) -> Result<()> {
        let (send, recv) = (send.map(DeviceSlice::of), self.view(recv)?);
        self.uses(send, Some(recv))?;
        // SAFETY: as in `allreduce`.
        unsafe { self.comm.scatter(given(&send), &recv, root, self.stream) }
    }

    /// Queues [`Communicator::send`].
    pub fn send(&mut self, send: impl Source<'scope>, peer: usize) -> Result<()> {
        let view = self.view(send)?;
        self.comm.compares_pairs("send")?;
        self.uses(Some(view), None)?;
        // SAFETY: as in `allreduce`.
        unsafe { self.comm.send(&view, peer, self.stream) }
    }

    /// Queues [`Communicator::recv`].
    pub fn recv(&mut self, recv: impl Target<'scope>, peer: usize) -> Result<()> {
        let view = self.view(recv)?;
        self.comm.compares_pairs("recv")?;
        self.uses(None, Some(view))?;
        // SAFETY: as in `allreduce`.
        unsafe { self.comm.recv(&view, peer, self.stream) }
    }

    /// Queues a copy of `send` to `recv`, which is as long and of the same type. It takes part in no
    /// other rank's call, and is what gets values into and out of [`Symmetric`] memory. A
    /// [batch](Scope::batch) of its own, so not inside of one.
    pub fn copy(&mut self, send: impl Source<'scope>, recv: impl Target<'scope>) -> Result<()> {
        let (send, recv, rank) = (self.view(send)?, self.view(recv)?, self.rank());
        self.batch(|s| {
            s.uses(Some(send), None)?;
            s.uses(None, Some(recv))?;
            // SAFETY: as in `allreduce`; C compares a message to itself with its receive.
            unsafe {
                s.comm.send(&send, rank, s.stream)?;
                s.comm.recv(&recv, rank, s.stream)
            }
        })
    }

    /// Queues [`Communicator::barrier`].
    pub fn barrier(&mut self) -> Result<()> {
        self.comm.barrier(self.stream)
    }

    /// Queues [`Communicator::allgatherv`].
    pub fn allgatherv(
        &mut self,
        send: impl Source<'scope>,
        recv: impl Target<'scope>,
        counts: &[usize],
        offsets: &[usize],
    ) -> Result<()> {
        let (send, recv) = (self.view(send)?, self.view(recv)?);
        self.uses(Some(send), Some(recv))?;
        // SAFETY: as in `allreduce`.
        unsafe { self.comm.allgatherv(&send, &recv, counts, offsets, self.stream) }
    }

    /// Queues [`Communicator::alltoallv`].
    pub fn alltoallv(
        &mut self,
        send: impl Source<'scope>,
        send_counts: &[usize],
        send_offsets: &[usize],
        recv: impl Target<'scope>,
        recv_counts: &[usize],
        recv_offsets: &[usize],
    ) -> Result<()> {
        let (send, recv) = (self.view(send)?, self.view(recv)?);
        self.comm.compares_pairs("alltoallv")?;
        self.uses(Some(send), Some(recv))?;
        let (comm, stream) = (&mut *self.comm, self.stream);
        // SAFETY: as in `allreduce`.
        unsafe {
            comm.alltoallv(
                &send,
                send_counts,
                send_offsets,
                &recv,
                recv_counts,
                recv_offsets,
                stream,
            )
        }
    }

    /// Queues [`Communicator::allreduce_list`]. For tensors of several types, pass
    /// `&mut dyn UniqueBuffer`.
    pub fn allreduce_list<I>(&mut self, tensors: I, op: ReduceOp) -> Result<()>
    where
        I: IntoIterator,
        I::Item: Target<'scope>,
    {
        let views = self.views(tensors)?;
        // SAFETY: as in `allreduce`.
        unsafe { self.comm.allreduce_list(&list(&views), op, self.stream) }
    }

    /// Queues [`Communicator::allreduce_list_with`].
    pub fn allreduce_list_with<I>(
        &mut self,
        tensors: I,
        op: ReduceOp,
        options: CallOptions<'scope, dyn UniqueBuffer + 'scope>,
    ) -> Result<()>
    where
        I: IntoIterator,
        I::Item: Target<'scope>,
    {
        let (views, factor) = (self.views(tensors)?, options.device_factor.map(DeviceSlice::of));
        let options = with(&options, &factor);
        // SAFETY: as in `allreduce`.
        unsafe { self.comm.allreduce_list_with(&list(&views), op, options, self.stream) }
    }

    /// Queues [`Communicator::broadcast_list`].
    pub fn broadcast_list<I>(&mut self, tensors: I, root: usize) -> Result<()>
    where
        I: IntoIterator,
        I::Item: Target<'scope>,
    {
        let views = self.views(tensors)?;
        // SAFETY: as in `allreduce`.
        unsafe { self.comm.broadcast_list(&list(&views), root, self.stream) }
    }

    /// Queues [`Communicator::weighted_average`]. If an earlier average had not run when this one
    /// was queued, an error may be the other's, and says so.
    pub fn weighted_average<I>(
        &mut self,
        tensors: I,
        weight: Weight<'scope, dyn UniqueBuffer + 'scope>,
        total: Option<&'scope mut dyn UniqueBuffer>,
    ) -> Result<()>
    where
        I: IntoIterator,
        I::Item: Target<'scope>,
    {
        let (views, total) = (self.views(tensors)?, total.map(DeviceSlice::of_mut));
        let place;
        let weight = match weight {
            Weight::Host(number) => Weight::Host(number),
            Weight::Device(weight) => {
                place = DeviceSlice::of(weight);
                Weight::Device(&place as &dyn DeviceBuffer)
            }
        };
        let stream = self.stream;
        self.applied.average(self.comm, |comm| {
            // SAFETY: as in `allreduce`.
            unsafe { comm.weighted_average(&list(&views), weight, given(&total), stream) }
        })
    }

    /// Queues [`SparseAllReduce::allreduce`]. A state that is [in
    /// place](crate::SparseOptions::in_place) writes the gradient, so lend it as `&mut` or held.
    ///
    /// The scope returns an error if one of its calls was not applied because gradients were not
    /// finite. When several works have queued calls of one state, or the `unsafe` forms are mixed
    /// in, the counters may not distinguish the calls. Then the error may belong to another call
    /// queued at the same time, and says so; `Ok` still means that every call was applied.
    pub fn sparse_allreduce<G: Source<'scope>>(
        &mut self,
        sparse: &mut SparseAllReduce,
        gradient: G,
        result: impl Target<'scope>,
    ) -> Result<()> {
        let (gradient, result) = (self.view(gradient)?, self.view(result)?);
        sparse.accepts(self.comm, G::WRITABLE)?;
        let stream = self.stream;
        self.applied.sparse(sparse, |sparse| {
            // SAFETY: as in `allreduce`; a gradient is written only as an accumulator, and that was
            // lent as `&mut`.
            unsafe { sparse.queue(&gradient, &result, stream) }
        })
    }

    /// Queues [`SparseAllReduce::allreduce_entries`], with the gradient lent as for
    /// [`sparse_allreduce`](Scope::sparse_allreduce).
    pub fn sparse_allreduce_entries<G: Source<'scope>>(
        &mut self,
        sparse: &mut SparseAllReduce,
        gradient: G,
        index: impl Target<'scope>,
        value: impl Target<'scope>,
        count: impl Target<'scope>,
    ) -> Result<()> {
        let (gradient, index) = (self.view(gradient)?, self.view(index)?);
        let (value, count) = (self.view(value)?, self.view(count)?);
        sparse.accepts(self.comm, G::WRITABLE)?;
        let stream = self.stream;
        self.applied.sparse(sparse, |sparse| {
            // SAFETY: as in `sparse_allreduce`.
            unsafe { sparse.queue_entries(&gradient, &index, &value, &count, stream) }
        })
    }

    /// Queues [`SparseAllReduce::residual`].
    pub fn sparse_residual(
        &mut self,
        sparse: &mut SparseAllReduce,
        out: impl Target<'scope>,
    ) -> Result<()> {
        let out = self.view(out)?;
        sparse.of(self.comm)?;
        // SAFETY: as in `allreduce`.
        unsafe { sparse.residual(&out, self.stream) }
    }

    /// Queues [`Communicator::batch`]. A call fails if its buffers overlap those of an earlier call
    /// of the batch and one of the two writes.
    pub fn batch<T>(&mut self, calls: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        /// Forgets the memory that the calls used, also after a panic, which cancels the batch.
        struct Uses<'a, 'scope, 'env>(&'a mut Scope<'scope, 'env>);
        impl Drop for Uses<'_, '_, '_> {
            fn drop(&mut self) {
                self.0.batch = None;
            }
        }
        let batch = Batch::begin(self.comm, self.stream)?;
        let scope = Uses(self);
        scope.0.batch = Some(Vec::new());
        let value = calls(scope.0)?;
        batch.end()?;
        Ok(value)
    }

    fn view(&self, buffer: impl Lent) -> Result<DeviceSlice> {
        buffer.view(Some(self.comm))
    }

    fn views<I>(&self, tensors: I) -> Result<Vec<DeviceSlice>>
    where
        I: IntoIterator,
        I::Item: Target<'scope>,
    {
        views(tensors, Some(self.comm))
    }

    fn pair(
        &self,
        send: impl Input<'scope>,
        recv: impl Target<'scope>,
    ) -> Result<(DeviceSlice, DeviceSlice)> {
        let recv = self.view(recv)?;
        Ok((send.buffer(self.comm)?.unwrap_or(recv), recv))
    }

    /// Records the memory that a call of a batch uses. Fails if the call depends on an earlier one.
    fn uses(&mut self, read: Option<DeviceSlice>, written: Option<DeviceSlice>) -> Result<()> {
        let Some(uses) = &mut self.batch else { return Ok(()) };
        let read = read.map(|view| Use { range: view.addresses(), written: false });
        let written = written.map(|view| Use { range: view.addresses(), written: true });
        let before = uses.len();
        for new in read.into_iter().chain(written) {
            let clash = uses[..before].iter().any(|old| {
                (new.written || old.written)
                    && new.range.start < old.range.end
                    && old.range.start < new.range.end
            });
            if clash {
                return Err(Error::buffer(format!(
                    "batch on rank {}: a buffer overlaps one of an earlier call, and one of the \
                     calls writes it; end the batch between them",
                    self.comm.rank()
                )));
            }
            uses.push(new);
        }
        Ok(())
    }
}

#[cold]
fn in_place_of_nothing(rank: usize) -> Error {
    Error::buffer(format!(
        "reduce on rank {rank}: `send` is InPlace and `recv` is None; give `recv`"
    ))
}

/// For calls of `comm`, or of a group.
pub(crate) fn views<'scope, I>(tensors: I, comm: Option<&Communicator>) -> Result<Vec<DeviceSlice>>
where
    I: IntoIterator,
    I::Item: Target<'scope>,
{
    tensors.into_iter().map(|tensor| tensor.view(comm)).collect()
}

pub(crate) fn list(views: &[DeviceSlice]) -> Vec<&dyn DeviceBuffer> {
    views.iter().map(|view| view as &dyn DeviceBuffer).collect()
}

fn with<'a>(
    options: &CallOptions<'_, dyn UniqueBuffer + '_>,
    factor: &'a Option<DeviceSlice>,
) -> CallOptions<'a> {
    let (factor, number, has_factor) = (given(factor), options.factor, options.has_factor);
    let (variant, unstaged) = (options.variant, options.unstaged);
    CallOptions { factor: number, has_factor, device_factor: factor, variant, unstaged }
}

fn given(view: &Option<DeviceSlice>) -> Option<&dyn DeviceBuffer> {
    view.as_ref().map(|view| view as &dyn DeviceBuffer)
}
