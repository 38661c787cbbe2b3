//! The `unsafe` collectives of one rank, in the order of the C header.
//!
//! Each checks its arguments and makes one call of C. `scope.rs` has the safe forms.

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
/// Each call is queued on `stream`. All ranks make the same calls in the same order, with the same
/// counts, type, reduction and root.
///
/// `send` and `recv` do not overlap, or they are the same buffer: then the call runs in place,
/// where its documentation allows it.
///
/// Each call checks its arguments before it queues anything: that buffers are contiguous and on
/// this rank's device, that types and lengths fit together, and that the stream belongs to the
/// device. The library checks the rest.
impl Communicator {
    /// Reduces every rank's `send` into every rank's `recv`. In place: `recv` is `send`.
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
        let (send, recv) = check.pair(send, recv)?;
        // SAFETY: "keep them alive and untouched until the stream has passed that point": the
        // caller's promise; both hold `count` elements of `dtype`.
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

    /// Does what [`allreduce`](Communicator::allreduce) does, with `options`.
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
        let (send, recv) = check.pair(send, recv)?;
        let options = options.raw(&check)?;
        // SAFETY: as in `allreduce`; of the options: "Read during the call".
        self.call(|comm| unsafe {
            let (from, to, count, dtype) = (send.ptr(), recv.ptr(), recv.len(), recv.dtype().raw());
            let (op, stream) = (op.raw(), stream.as_raw());
            sys::trib_allreduce_with(comm, from, to, count, dtype, op, &options, stream)
        })
    }

    /// Copies `send` of rank `root` to every rank's `recv`. Other ranks may pass `None`. In place:
    /// `recv` is `send`.
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
        // SAFETY: the caller's promise.
        unsafe { self.broadcast_with(send, recv, root, CallOptions::new(), stream) }
    }

    /// Does what [`broadcast`](Communicator::broadcast) does, by the variant of `options`. They have
    /// no factor.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn broadcast_with(
        &mut self,
        send: Option<&dyn DeviceBuffer>,
        recv: &dyn DeviceBuffer,
        root: usize,
        options: CallOptions<'_>,
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("broadcast", self, stream)?;
        let peer = number("broadcast: `root`", root)?;
        let recv = check.buffer("recv", recv)?;
        let from = check.on_root("send", send, root, &recv, 1)?;
        let options = options.raw(&check)?;
        // SAFETY: as in `allreduce_with`; "other ranks' `send` is ignored".
        self.call(|comm| unsafe {
            let (to, count, dtype) = (recv.ptr(), recv.len(), recv.dtype().raw());
            sys::trib_broadcast_with(comm, from, to, count, dtype, peer, &options, stream.as_raw())
        })
    }

    /// Reduces every rank's `send` into `recv` of rank `root`. Other ranks may pass `None`. In
    /// place on the root: `recv` is `send`.
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
        let to = check.on_root("recv", recv, root, &send, 1)?;
        // SAFETY: as in `allreduce`; "other ranks' `recv` is ignored".
        self.call(|comm| unsafe {
            let (from, count, dtype) = (send.ptr(), send.len(), send.dtype().raw());
            sys::trib_reduce(comm, from, to, count, dtype, op.raw(), peer, stream.as_raw())
        })
    }

    /// Copies `send` of rank i to block i of every rank's `recv`, which is `size` times as long. In
    /// place: pass the whole buffer as both; this rank sends its own block of it.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn allgather(
        &mut self,
        send: &dyn DeviceBuffer,
        recv: &dyn DeviceBuffer,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.allgather_with(send, recv, CallOptions::new(), stream) }
    }

    /// Does what [`allgather`](Communicator::allgather) does, by the variant of `options`. They have
    /// no factor.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn allgather_with(
        &mut self,
        send: &dyn DeviceBuffer,
        recv: &dyn DeviceBuffer,
        options: CallOptions<'_>,
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("allgather", self, stream)?;
        let (send, recv) = check.same_type(send, recv)?;
        let send = if send.is(&recv) { check.own_block(&recv)? } else { send };
        check.lengths(&send, &recv, 1, self.size())?;
        let options = options.raw(&check)?;
        // SAFETY: as in `allreduce_with`; `recv` holds `size * count` elements.
        self.call(|comm| unsafe {
            let (from, to, count) = (send.ptr(), recv.ptr(), send.len());
            sys::trib_allgather_with(
                comm,
                from,
                to,
                count,
                send.dtype().raw(),
                &options,
                stream.as_raw(),
            )
        })
    }

    /// Reduces block i of every rank's `send`, which is `size` times as long, into `recv` of rank
    /// i. In place: pass the whole buffer as both; this rank receives into its own block of it.
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
        // SAFETY: the caller's promise.
        unsafe { self.reduce_scatter_with(send, recv, op, CallOptions::new(), stream) }
    }

    /// Does what [`reduce_scatter`](Communicator::reduce_scatter) does, by the variant of `options`. They have
    /// no factor.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn reduce_scatter_with(
        &mut self,
        send: &dyn DeviceBuffer,
        recv: &dyn DeviceBuffer,
        op: ReduceOp,
        options: CallOptions<'_>,
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("reduce_scatter", self, stream)?;
        let (send, recv) = check.same_type(send, recv)?;
        let recv = if recv.is(&send) { check.own_block(&send)? } else { recv };
        check.lengths(&send, &recv, self.size(), 1)?;
        let options = options.raw(&check)?;
        // SAFETY: as in `allreduce_with`; `send` holds `size * count` elements.
        self.call(|comm| unsafe {
            let (from, to, count, dtype) = (send.ptr(), recv.ptr(), recv.len(), recv.dtype().raw());
            sys::trib_reduce_scatter_with(
                comm,
                from,
                to,
                count,
                dtype,
                op.raw(),
                &options,
                stream.as_raw(),
            )
        })
    }

    /// Copies block j of rank i's `send` to block i of rank j's `recv`; both hold `size` blocks. In
    /// place: `recv` is `send`.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn alltoall(
        &mut self,
        send: &dyn DeviceBuffer,
        recv: &dyn DeviceBuffer,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.alltoall_with(send, recv, CallOptions::new(), stream) }
    }

    /// Does what [`alltoall`](Communicator::alltoall) does, by the variant of `options`. They have
    /// no factor.
    ///
    /// # Safety
    /// As for [`allreduce`](Communicator::allreduce).
    pub unsafe fn alltoall_with(
        &mut self,
        send: &dyn DeviceBuffer,
        recv: &dyn DeviceBuffer,
        options: CallOptions<'_>,
        stream: &Stream,
    ) -> Result<()> {
        let check = Check::new("alltoall", self, stream)?;
        let (send, recv) = check.pair(send, recv)?;
        let count = check.own_block(&recv)?.len();
        let options = options.raw(&check)?;
        // SAFETY: as in `allreduce_with`; both hold `size * count` elements.
        self.call(|comm| unsafe {
            let (from, to) = (send.ptr(), recv.ptr());
            sys::trib_alltoall_with(
                comm,
                from,
                to,
                count,
                send.dtype().raw(),
                &options,
                stream.as_raw(),
            )
        })
    }

    /// Copies `send` of rank i to block i of the root's `recv`. Other ranks may pass `None`.
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
        let to = check.on_root("recv", recv, root, &send, self.size())?;
        // SAFETY: as in `allreduce`; the root's `recv` holds `size * count` elements.
        self.call(|comm| unsafe {
            let (from, count, dtype) = (send.ptr(), send.len(), send.dtype().raw());
            sys::trib_gather(comm, from, to, count, dtype, peer, stream.as_raw())
        })
    }

    /// Copies block i of the root's `send` to `recv` of rank i. Other ranks may pass `None`.
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
        let from = check.on_root("send", send, root, &recv, self.size())?;
        // SAFETY: as in `allreduce`; the root's `send` holds `size * count` elements.
        self.call(|comm| unsafe {
            let (to, count, dtype) = (recv.ptr(), recv.len(), recv.dtype().raw());
            sys::trib_scatter(comm, from, to, count, dtype, peer, stream.as_raw())
        })
    }

    /// Sends to rank `peer`, which receives as many elements of the same type. The stream waits
    /// until it does: put a send and a receive that depend on each other into one
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

    /// Receives from rank `peer`, which [sends](Communicator::send) as many elements of the same
    /// type.
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

    /// Holds back later work on `stream` until every rank's stream has reached the barrier.
    pub fn barrier(&mut self, stream: &Stream) -> Result<()> {
        Check::new("barrier", self, stream)?;
        // SAFETY: no buffers; the lock keeps other threads out.
        self.call(|comm| unsafe { sys::trib_barrier(comm, stream.as_raw()) })
    }

    /// Gathers with a count for each rank: rank i sends `counts[i]` elements to element
    /// `offsets[i]` of every rank's `recv`. All ranks pass the same counts and offsets.
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
        // SAFETY: as in `allreduce`; "The call reads `counts` and `offsets` [...] before it returns":
        // they have `size` entries each, and stay inside `recv`.
        self.call(|comm| unsafe {
            let (counts, offsets, dtype) = (counts.as_ptr(), offsets.as_ptr(), recv.dtype().raw());
            let (from, to) = (send.ptr(), recv.ptr());
            sys::trib_allgatherv(comm, from, to, counts, offsets, dtype, stream.as_raw())
        })
    }

    /// Exchanges blocks of different lengths: `send_counts[i]` elements at `send_offsets[i]` go to
    /// rank i, and `recv_counts[i]` elements from rank i go to `recv_offsets[i]`. Each rank sends
    /// another as many elements as that one receives from it. Not in place.
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
        // SAFETY: as in `allreduce`; the arrays have `size` entries each, stay inside their
        // buffers, and "The call reads the arrays [...] before it returns".
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
