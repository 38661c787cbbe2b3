//! The collectives of one rank, in the order of the C header, with their arguments checked.
//!
//! These are the `unsafe` ones: each is one call of C. `scope.rs` has their safe forms.

use tributary_sys as sys;

use crate::buffer::DeviceBuffer;
use crate::call_options::CallOptions;
use crate::check::Check;
use crate::communicator::Communicator;
use crate::error::{number, Result};
use crate::op::ReduceOp;
use crate::stream::Stream;

/// # Collectives
///
/// Each is queued on `stream`. All ranks pass the same counts, type, reduction and root, and make
/// the same calls in the same order. `send` and `recv` are the same memory, in the methods whose
/// names end in `_in_place`, or do not overlap.
///
/// What can be known here is checked before anything is queued: a buffer that is not contiguous or
/// belongs to another device, types and lengths that do not fit together, a stream of another device.
/// The library checks the rest.
impl Communicator {
    /// `recv` = reduction of every rank's `send`.
    ///
    /// # Safety
    /// The buffers stay alive and untouched until `stream` has passed this call, and `recv` may be
    /// written to. All ranks pass equal lengths and types.
    pub unsafe fn allreduce(
        &mut self,
        send: &dyn DeviceBuffer,
        recv: &dyn DeviceBuffer,
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("allreduce", self, stream)?;
        let (send, recv) = check.pair(send, recv, 1, 1)?;
        // SAFETY: "must live, untouched, until the stream has passed that point": the caller's
        // promise; both hold `count` elements of `dtype`.
        self.call(|comm| unsafe {
            let (send, to, count) = (send.ptr(), recv.ptr(), recv.len());
            sys::trib_allreduce(
                comm,
                send,
                to,
                count,
                recv.dtype().raw(),
                op.raw(),
                stream.as_raw(),
            )
        })
    }

    /// Every rank's `buffer` becomes the reduction of all of them.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn allreduce_in_place(
        &mut self,
        buffer: &dyn DeviceBuffer,
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise. "In place: recv == send."
        unsafe { self.allreduce(buffer, buffer, op, stream) }
    }

    /// [`allreduce`](Communicator::allreduce) with what `options` ask for.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce), a factor on the device included.
    pub unsafe fn allreduce_with(
        &mut self,
        send: &dyn DeviceBuffer,
        recv: &dyn DeviceBuffer,
        op: ReduceOp,
        options: CallOptions<'_>,
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("allreduce_with", self, stream)?;
        let (send, recv) = check.pair(send, recv, 1, 1)?;
        let options = options.raw(&check)?;
        // SAFETY: as in `allreduce`; the options are "read during the call".
        self.call(|comm| unsafe {
            let (from, to, count, dtype) = (send.ptr(), recv.ptr(), recv.len(), recv.dtype().raw());
            let (op, stream) = (op.raw(), stream.as_raw());
            sys::trib_allreduce_with(comm, from, to, count, dtype, op, &options, stream)
        })
    }

    /// `recv` on every rank = `send` of rank `root`, which only that rank needs to give.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn broadcast(
        &mut self,
        send: Option<&dyn DeviceBuffer>,
        recv: &dyn DeviceBuffer,
        root: usize,
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("broadcast", self, stream)?;
        let peer = number("broadcast: `root`", root)?;
        let recv = check.buffer("recv", recv)?;
        let from = check.on_root("send", send, root, &recv, 1, 1)?;
        // SAFETY: as in `allreduce`; "only there is `send` looked at".
        self.call(|comm| unsafe {
            let (to, count, dtype) = (recv.ptr(), recv.len(), recv.dtype().raw());
            sys::trib_broadcast(comm, from, to, count, dtype, peer, stream.as_raw())
        })
    }

    /// Every rank's `buffer` becomes that of rank `root`.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn broadcast_in_place(
        &mut self,
        buffer: &dyn DeviceBuffer,
        root: usize,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise. "In place: recv == send."
        unsafe { self.broadcast(Some(buffer), buffer, root, stream) }
    }

    /// `recv` of rank `root`, which only that rank needs to give, = reduction of every rank's `send`.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn reduce(
        &mut self,
        send: &dyn DeviceBuffer,
        recv: Option<&dyn DeviceBuffer>,
        op: ReduceOp,
        root: usize,
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("reduce", self, stream)?;
        let peer = number("reduce: `root`", root)?;
        let send = check.buffer("send", send)?;
        let to = check.on_root("recv", recv, root, &send, 1, 1)?;
        // SAFETY: as in `allreduce`; "elsewhere `recv` is not looked at".
        self.call(|comm| unsafe {
            let (from, count, dtype) = (send.ptr(), send.len(), send.dtype().raw());
            sys::trib_reduce(comm, from, to, count, dtype, op.raw(), peer, stream.as_raw())
        })
    }

    /// The `buffer` of rank `root` becomes the reduction of all of them; the others stay.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn reduce_in_place(
        &mut self,
        buffer: &dyn DeviceBuffer,
        op: ReduceOp,
        root: usize,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise. "In place on the root: recv == send."
        unsafe { self.reduce(buffer, Some(buffer), op, root, stream) }
    }

    /// Block i of `recv`, which is `size` times as long, = `send` of rank i.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn allgather(
        &mut self,
        send: &dyn DeviceBuffer,
        recv: &dyn DeviceBuffer,
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("allgather", self, stream)?;
        let (send, recv) = check.pair(send, recv, 1, self.size())?;
        // SAFETY: as in `allreduce`; `recv` holds `size * count` elements.
        self.call(|comm| unsafe {
            let (from, to, count) = (send.ptr(), recv.ptr(), send.len());
            sys::trib_allgather(comm, from, to, count, send.dtype().raw(), stream.as_raw())
        })
    }

    /// `buffer` is made of `size` blocks; block i becomes that of rank i.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn allgather_in_place(
        &mut self,
        buffer: &dyn DeviceBuffer,
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("allgather", self, stream)?;
        let whole = check.buffer("buffer", buffer)?;
        let block = check.own_block(&whole)?;
        // SAFETY: the caller's promise. "In place: send is block `rank` of recv."
        unsafe { self.allgather(&block, &whole, stream) }
    }

    /// `recv` = reduction of every rank's block `rank` of `send`, which is `size` times as long.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn reduce_scatter(
        &mut self,
        send: &dyn DeviceBuffer,
        recv: &dyn DeviceBuffer,
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("reduce_scatter", self, stream)?;
        let (send, recv) = check.pair(send, recv, self.size(), 1)?;
        // SAFETY: as in `allreduce`; `send` holds `size * count` elements.
        self.call(|comm| unsafe {
            let (from, to, count, dtype) = (send.ptr(), recv.ptr(), recv.len(), recv.dtype().raw());
            sys::trib_reduce_scatter(comm, from, to, count, dtype, op.raw(), stream.as_raw())
        })
    }

    /// `buffer` is made of `size` blocks; block `rank` becomes the reduction of every rank's.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn reduce_scatter_in_place(
        &mut self,
        buffer: &dyn DeviceBuffer,
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("reduce_scatter", self, stream)?;
        let whole = check.buffer("buffer", buffer)?;
        let block = check.own_block(&whole)?;
        // SAFETY: the caller's promise. "In place: recv is block `rank` of send."
        unsafe { self.reduce_scatter(&whole, &block, op, stream) }
    }

    /// Both are made of `size` blocks: block i of `recv` is block `rank` of rank i's `send`.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn alltoall(
        &mut self,
        send: &dyn DeviceBuffer,
        recv: &dyn DeviceBuffer,
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("alltoall", self, stream)?;
        let (send, recv) = check.pair(send, recv, self.size(), self.size())?;
        let count = check.own_block(&recv)?.len();
        // SAFETY: as in `allreduce`; both hold `size * count` elements.
        self.call(|comm| unsafe {
            let (from, to) = (send.ptr(), recv.ptr());
            sys::trib_alltoall(comm, from, to, count, send.dtype().raw(), stream.as_raw())
        })
    }

    /// `buffer` is made of `size` blocks; block i becomes block `rank` of rank i's.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn alltoall_in_place(
        &mut self,
        buffer: &dyn DeviceBuffer,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise. "In place: recv == send."
        unsafe { self.alltoall(buffer, buffer, stream) }
    }

    /// Block i of the root's `recv`, which only the root needs to give, = `send` of rank i.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn gather(
        &mut self,
        send: &dyn DeviceBuffer,
        recv: Option<&dyn DeviceBuffer>,
        root: usize,
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("gather", self, stream)?;
        let peer = number("gather: `root`", root)?;
        let send = check.buffer("send", send)?;
        let to = check.on_root("recv", recv, root, &send, 1, self.size())?;
        // SAFETY: as in `allreduce`; the root's `recv` holds `size * count` elements.
        self.call(|comm| unsafe {
            let (from, count, dtype) = (send.ptr(), send.len(), send.dtype().raw());
            sys::trib_gather(comm, from, to, count, dtype, peer, stream.as_raw())
        })
    }

    /// `recv` of rank i = block i of the root's `send`, which only the root needs to give.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn scatter(
        &mut self,
        send: Option<&dyn DeviceBuffer>,
        recv: &dyn DeviceBuffer,
        root: usize,
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("scatter", self, stream)?;
        let peer = number("scatter: `root`", root)?;
        let recv = check.buffer("recv", recv)?;
        let from = check.on_root("send", send, root, &recv, 1, self.size())?;
        // SAFETY: as in `allreduce`; the root's `send` holds `size * count` elements.
        self.call(|comm| unsafe {
            let (to, count, dtype) = (recv.ptr(), recv.len(), recv.dtype().raw());
            sys::trib_scatter(comm, from, to, count, dtype, peer, stream.as_raw())
        })
    }

    /// Send to rank `peer`, which receives as many elements of the same type. The stream waits for
    /// it: put a send and a receive that depend on each other into one
    /// [`batch`](Communicator::batch).
    ///
    /// # Safety
    /// `send` stays alive and untouched until `stream` has passed this call.
    pub unsafe fn send(
        &mut self,
        send: &dyn DeviceBuffer,
        peer: usize,
        stream: &Stream,
    ) -> Result<()> {
        let send = Check::new("send", self, stream)?.buffer("send", send)?;
        let peer = number("send: `peer`", peer)?;
        // SAFETY: as in `allreduce`.
        self.call(|comm| unsafe {
            let (count, dtype) = (send.len(), send.dtype().raw());
            sys::trib_send(comm, send.ptr(), count, dtype, peer, stream.as_raw())
        })
    }

    /// Receive from rank `peer` what it sends.
    ///
    /// # Safety
    /// `recv` stays alive and untouched until `stream` has passed this call, and may be written to.
    pub unsafe fn recv(
        &mut self,
        recv: &dyn DeviceBuffer,
        peer: usize,
        stream: &Stream,
    ) -> Result<()> {
        let recv = Check::new("recv", self, stream)?.buffer("recv", recv)?;
        let peer = number("recv: `peer`", peer)?;
        // SAFETY: as in `allreduce`.
        self.call(|comm| unsafe {
            let (count, dtype) = (recv.len(), recv.dtype().raw());
            sys::trib_recv(comm, recv.ptr(), count, dtype, peer, stream.as_raw())
        })
    }

    /// Later work on `stream` runs when every rank's stream has come to its barrier.
    pub fn barrier(&mut self, stream: &Stream) -> Result<()> {
        Check::new("barrier", self, stream)?;
        // SAFETY: no buffers; the lock keeps other threads out.
        self.call(|comm| unsafe { sys::trib_barrier(comm, stream.as_raw()) })
    }

    /// allgather with a count a rank: rank i sends `counts[i]` elements, which land at element
    /// `offsets[i]` of every rank's `recv`. Both are the same on all ranks.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn allgatherv(
        &mut self,
        send: &dyn DeviceBuffer,
        recv: &dyn DeviceBuffer,
        counts: &[usize],
        offsets: &[usize],
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("allgatherv", self, stream)?;
        let (send, recv) = check.same_type(send, recv)?;
        check.layout("recv", &recv, counts, offsets)?;
        if send.len() != counts[self.rank()] {
            return Err(check.wrong("send", &send, counts[self.rank()]));
        }
        // SAFETY: as in `allreduce`; `counts` and `offsets` have `size` entries each, "read during
        // the call", and stay inside `recv`.
        self.call(|comm| unsafe {
            let (counts, offsets, dtype) = (counts.as_ptr(), offsets.as_ptr(), recv.dtype().raw());
            let (from, to) = (send.ptr(), recv.ptr());
            sys::trib_allgatherv(comm, from, to, counts, offsets, dtype, stream.as_raw())
        })
    }

    /// alltoall with counts: `send_counts[i]` elements at `send_offsets[i]` go to rank i,
    /// `recv_counts[i]` elements from rank i land at `recv_offsets[i]`. What one rank sends another
    /// is what that one receives.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce), with those counts in the place of lengths.
    #[allow(clippy::too_many_arguments)] // they are the C function's
    pub unsafe fn alltoallv(
        &mut self,
        send: &dyn DeviceBuffer,
        send_counts: &[usize],
        send_offsets: &[usize],
        recv: &dyn DeviceBuffer,
        recv_counts: &[usize],
        recv_offsets: &[usize],
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("alltoallv", self, stream)?;
        let (send, recv) = check.same_type(send, recv)?;
        check.layout("send", &send, send_counts, send_offsets)?;
        check.layout("recv", &recv, recv_counts, recv_offsets)?;
        // SAFETY: as in `allreduce`; the arrays have `size` entries each, "read during the call",
        // and stay inside their buffers.
        self.call(|comm| unsafe {
            sys::trib_alltoallv(
                comm,
                send.ptr(),
                send_counts.as_ptr(),
                send_offsets.as_ptr(),
                recv.ptr(),
                recv_counts.as_ptr(),
                recv_offsets.as_ptr(),
                recv.dtype().raw(),
                stream.as_raw(),
            )
        })
    }
}
