//! The collectives, in the order of the header.

use pyo3::prelude::*;
use tributary_sys as sys;

use crate::call::{or_null, Call, Factor, Tensor};
use crate::communicator::Communicator;
use crate::view::{op_of, variant_of, View};
use crate::work::Work;

#[pymethods]
impl Communicator {
    /// Replace `tensor` on every rank by the reduction of all ranks' (`op`: "sum", "prod", "min",
    /// "max", "avg"), or write it to `out`. With a `factor`, a number or one float in device
    /// memory, on all ranks: the sum of factor * tensor. `variant`, the same on all ranks: which code
    /// serves it ("auto", "nccl", "push", "one_shot", "two_shot"; "symmetric" and "window", of
    /// `Symmetric` memory). `unstaged`: refuse a tensor that would go through memory of the library,
    /// for the devices of other ranks cannot access it.
    #[pyo3(signature = (tensor, op="sum", *, out=None, factor=None, variant="auto", unstaged=false, stream=None))]
    #[allow(clippy::too_many_arguments)]
    fn allreduce(
        &self,
        py: Python<'_>,
        tensor: &Bound<'_, PyAny>,
        op: &str,
        out: Tensor<'_, '_>,
        factor: Tensor<'_, '_>,
        variant: &str,
        unstaged: bool,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let mut call = Call::new(py, &self.owner, "allreduce", stream)?;
        let variant = variant_of(variant, call.who())?;
        let (op, (from, to)) = (op_of(op, call.who())?, call.pair(tensor, out)?);
        let factor = Factor::new(&mut call, factor)?;
        let (send, recv, count, dtype) = (from.data, to.data, from.count, from.dtype);
        let mut options = factor.options();
        (options.variant, options.flags) = (variant, options.flags | flags_of(unstaged));
        let options = Options(options);
        call.queue(py, move |comm, stream| {
            let (send, recv) = (send.get(), recv.get());
            // SAFETY: `count` elements each, alive until the stream has passed: the work keeps
            // them.
            unsafe {
                sys::trib_allreduce_with(comm, send, recv, count, dtype, op, options.get(), stream)
            }
        })
    }

    /// Replace `tensor` on every rank by that of rank `root`, or write it to `out`. `variant` and
    /// `unstaged` as in `allreduce`, and so in the other calls that have them.
    #[pyo3(signature = (tensor, root=0, *, out=None, variant="auto", unstaged=false, stream=None))]
    #[allow(clippy::too_many_arguments)]
    fn broadcast(
        &self,
        py: Python<'_>,
        tensor: &Bound<'_, PyAny>,
        root: i32,
        out: Tensor<'_, '_>,
        variant: &str,
        unstaged: bool,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let mut call = Call::new(py, &self.owner, "broadcast", stream)?;
        let options = Options::of(variant, unstaged, call.who())?;
        let (from, to) = call.pair(tensor, out)?;
        let (send, recv, count, dtype) = (from.data, to.data, from.count, from.dtype);
        call.queue(py, move |comm, stream| {
            // SAFETY: as in `allreduce`.
            unsafe {
                sys::trib_broadcast_with(
                    comm,
                    send.get(),
                    recv.get(),
                    count,
                    dtype,
                    root,
                    options.get(),
                    stream,
                )
            }
        })
    }

    /// Replace `tensor` on rank `root` by the reduction of all ranks', or write it to `out` there.
    #[pyo3(signature = (tensor, root=0, op="sum", *, out=None, stream=None))]
    fn reduce(
        &self,
        py: Python<'_>,
        tensor: &Bound<'_, PyAny>,
        root: i32,
        op: &str,
        out: Tensor<'_, '_>,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let mut call = Call::new(py, &self.owner, "reduce", stream)?;
        let op = op_of(op, call.who())?;
        let (from, to) = if call.is_root(root) {
            let (from, to) = call.pair(tensor, out)?;
            (from, Some(to))
        } else {
            (call.read("tensor", tensor)?, None)
        };
        let (send, recv, count, dtype) = (from.data, or_null(to.as_ref()), from.count, from.dtype);
        call.queue(py, move |comm, stream| {
            let (send, recv) = (send.get(), recv.get());
            // SAFETY: as in `allreduce`; "other ranks' `recv` is ignored".
            unsafe { sys::trib_reduce(comm, send, recv, count, dtype, op, root, stream) }
        })
    }

    /// Write all ranks' `tensor` to `out`, a block for each rank. None: block `rank` of `out`.
    #[pyo3(signature = (tensor, out, *, variant="auto", unstaged=false, stream=None))]
    fn allgather(
        &self,
        py: Python<'_>,
        tensor: Tensor<'_, '_>,
        out: &Bound<'_, PyAny>,
        variant: &str,
        unstaged: bool,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let mut call = Call::new(py, &self.owner, "allgather", stream)?;
        let options = Options::of(variant, unstaged, call.who())?;
        let (to, dtype) = written(&mut call, "out", out)?;
        let count = call.per_rank("out", to.count)?;
        let send = match given(tensor) {
            Some(tensor) => part(&mut call, "tensor", tensor, count, dtype, false)?.data,
            None => call.own_block(&to, count),
        };
        let recv = to.data;
        call.queue(py, move |comm, stream| {
            // SAFETY: as in `allreduce`; `out` has `count` elements for each rank.
            unsafe {
                sys::trib_allgather_with(
                    comm,
                    send.get(),
                    recv.get(),
                    count,
                    dtype,
                    options.get(),
                    stream,
                )
            }
        })
    }

    /// Write block `rank` of the reduction of all ranks' `tensor` to `out`, by default to that
    /// block of `tensor`.
    #[pyo3(signature = (tensor, out=None, op="sum", *, variant="auto", unstaged=false, stream=None))]
    #[allow(clippy::too_many_arguments)]
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        tensor: &Bound<'_, PyAny>,
        out: Tensor<'_, '_>,
        op: &str,
        variant: &str,
        unstaged: bool,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let mut call = Call::new(py, &self.owner, "reduce_scatter", stream)?;
        let options = Options::of(variant, unstaged, call.who())?;
        let op = op_of(op, call.who())?;
        let from = match given(out) {
            Some(_) => call.read("tensor", tensor)?,
            None => call.write("tensor", tensor)?,
        };
        let (count, dtype) = (call.per_rank("tensor", from.count)?, from.dtype);
        let recv = match given(out) {
            Some(out) => part(&mut call, "out", out, count, dtype, true)?.data,
            None => call.own_block(&from, count),
        };
        let send = from.data;
        call.queue(py, move |comm, stream| {
            let (send, recv) = (send.get(), recv.get());
            // SAFETY: as in `allreduce`; `tensor` has `count` elements for each rank.
            unsafe {
                sys::trib_reduce_scatter_with(
                    comm,
                    send,
                    recv,
                    count,
                    dtype,
                    op,
                    options.get(),
                    stream,
                )
            }
        })
    }

    /// Block i of `out` becomes block `rank` of rank i's `tensor`; by default in `tensor` itself.
    #[pyo3(signature = (tensor, out=None, *, variant="auto", unstaged=false, stream=None))]
    fn alltoall(
        &self,
        py: Python<'_>,
        tensor: &Bound<'_, PyAny>,
        out: Tensor<'_, '_>,
        variant: &str,
        unstaged: bool,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let mut call = Call::new(py, &self.owner, "alltoall", stream)?;
        let options = Options::of(variant, unstaged, call.who())?;
        let (from, to) = call.pair(tensor, out)?;
        let count = call.per_rank("tensor", from.count)?;
        let (send, recv, dtype) = (from.data, to.data, from.dtype);
        call.queue(py, move |comm, stream| {
            // SAFETY: as in `allreduce`; both have `count` elements for each rank.
            unsafe {
                sys::trib_alltoall_with(
                    comm,
                    send.get(),
                    recv.get(),
                    count,
                    dtype,
                    options.get(),
                    stream,
                )
            }
        })
    }

    /// Write all ranks' `tensor` to `out` of rank `root`, a block for each; others need no `out`.
    #[pyo3(signature = (tensor, out=None, root=0, *, stream=None))]
    fn gather(
        &self,
        py: Python<'_>,
        tensor: &Bound<'_, PyAny>,
        out: Tensor<'_, '_>,
        root: i32,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let mut call = Call::new(py, &self.owner, "gather", stream)?;
        let from = call.read("tensor", tensor)?;
        let to = if call.is_root(root) {
            let out = call.needed("out", out, "on the root")?;
            let to = call.write("out", out)?;
            call.same("out", &to, from.count * self.owner.size as usize, from.dtype)?;
            Some(to)
        } else {
            None
        };
        let (send, recv, count, dtype) = (from.data, or_null(to.as_ref()), from.count, from.dtype);
        call.queue(py, move |comm, stream| {
            let (send, recv) = (send.get(), recv.get());
            // SAFETY: as in `allreduce`; on the root `out` has `count` elements for each rank.
            unsafe { sys::trib_gather(comm, send, recv, count, dtype, root, stream) }
        })
    }

    /// Write block i of the `tensor` of rank `root` to `out` of rank i; others need no `tensor`.
    #[pyo3(signature = (tensor, out, root=0, *, stream=None))]
    fn scatter(
        &self,
        py: Python<'_>,
        tensor: Tensor<'_, '_>,
        out: &Bound<'_, PyAny>,
        root: i32,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let mut call = Call::new(py, &self.owner, "scatter", stream)?;
        let (to, dtype) = written(&mut call, "out", out)?;
        let from = if call.is_root(root) {
            let tensor = call.needed("tensor", tensor, "on the root")?;
            let all = to.count * self.owner.size as usize;
            Some(part(&mut call, "tensor", tensor, all, dtype, false)?)
        } else {
            None
        };
        let (send, recv, count) = (or_null(from.as_ref()), to.data, to.count);
        call.queue(py, move |comm, stream| {
            let (send, recv) = (send.get(), recv.get());
            // SAFETY: as in `allreduce`; on the root `tensor` has `count` elements for each rank.
            unsafe { sys::trib_scatter(comm, send, recv, count, dtype, root, stream) }
        })
    }

    /// Send `tensor` to rank `peer`, which calls `recv`. Put a send and a recv that depend on each
    /// other into one batch.
    #[pyo3(signature = (tensor, peer, *, stream=None))]
    fn send(
        &self,
        py: Python<'_>,
        tensor: &Bound<'_, PyAny>,
        peer: i32,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let mut call = Call::new(py, &self.owner, "send", stream)?;
        let View { data, count, dtype, .. } = call.read("tensor", tensor)?;
        call.queue(py, move |comm, stream| {
            // SAFETY: as in `allreduce`.
            unsafe { sys::trib_send(comm, data.get(), count, dtype, peer, stream) }
        })
    }

    /// Receive `tensor` from rank `peer`, which calls `send`.
    #[pyo3(signature = (tensor, peer, *, stream=None))]
    fn recv(
        &self,
        py: Python<'_>,
        tensor: &Bound<'_, PyAny>,
        peer: i32,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let mut call = Call::new(py, &self.owner, "recv", stream)?;
        let View { data, count, dtype, .. } = call.write("tensor", tensor)?;
        call.queue(py, move |comm, stream| {
            // SAFETY: as in `allreduce`.
            unsafe { sys::trib_recv(comm, data.get(), count, dtype, peer, stream) }
        })
    }

    /// Later work on `stream` starts once every rank's stream has reached the barrier.
    #[pyo3(signature = (*, stream=None))]
    fn barrier(&self, py: Python<'_>, stream: Tensor<'_, '_>) -> PyResult<Work> {
        let call = Call::new(py, &self.owner, "barrier", stream)?;
        // SAFETY: the caller of this closure has the turns.
        call.queue(py, |comm, stream| unsafe { sys::trib_barrier(comm, stream) })
    }
}

/// Options of one call, which may go to another thread.
struct Options(sys::trib_call_options);

// SAFETY: its only pointer is an address of a device, which Rust does not follow.
unsafe impl Send for Options {}

impl Options {
    /// Of a call of `who` that takes no factor.
    fn of(variant: &str, unstaged: bool, who: &str) -> PyResult<Options> {
        let (variant, flags) = (variant_of(variant, who)?, flags_of(unstaged));
        Ok(Options(sys::trib_call_options { variant, flags, ..sys::TRIB_CALL_OPTIONS_INIT }))
    }

    fn get(&self) -> &sys::trib_call_options {
        &self.0
    }
}

fn flags_of(unstaged: bool) -> u32 {
    if unstaged {
        sys::TRIB_CALL_UNSTAGED
    } else {
        0
    }
}

fn given<'a, 'py>(tensor: Tensor<'a, 'py>) -> Tensor<'a, 'py> {
    tensor.filter(|tensor| !tensor.is_none())
}

pub fn written(
    call: &mut Call<'_>,
    name: &str,
    tensor: &Bound<'_, PyAny>,
) -> PyResult<(View, sys::trib_dtype)> {
    let view = call.write(name, tensor)?;
    let dtype = view.dtype;
    Ok((view, dtype))
}

/// A tensor that must have `count` elements of `dtype`.
pub fn part(
    call: &mut Call<'_>,
    name: &str,
    tensor: &Bound<'_, PyAny>,
    count: usize,
    dtype: sys::trib_dtype,
    write: bool,
) -> PyResult<View> {
    let view = if write { call.write(name, tensor)? } else { call.read(name, tensor)? };
    call.same(name, &view, count, dtype)?;
    Ok(view)
}
