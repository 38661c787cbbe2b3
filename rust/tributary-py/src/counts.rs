//! The collectives with a count for each rank.

use pyo3::prelude::*;
use tributary_sys as sys;

use crate::call::{sizes, Call, Tensor};
use crate::collectives::{part, written};
use crate::communicator::Communicator;
use crate::failure::{buffer, Outcome};
use crate::work::Work;

#[pymethods]
impl Communicator {
    /// An allgather of `counts[i]` elements of rank i, to element `offsets[i]` of `out` (by default
    /// one after the other).
    #[pyo3(signature = (tensor, out, counts, offsets=None, *, stream=None))]
    fn allgatherv(
        &self,
        py: Python<'_>,
        tensor: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        counts: Vec<usize>,
        offsets: Option<Vec<usize>>,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let mut call = Call::new(py, &self.owner, "allgatherv", stream)?;
        let (to, dtype) = written(&mut call, "out", out)?;
        let offsets = parts(
            &call,
            ["counts", "offsets", "out"],
            &counts,
            offsets,
            to.count,
            self.owner.size,
        )?;
        let from =
            part(&mut call, "tensor", tensor, counts[self.owner.rank as usize], dtype, false)?;
        let (send, recv) = (from.data, to.data);
        call.queue(py, move |comm, stream| {
            let (send, recv, counts, offsets) =
                (send.get(), recv.get(), counts.as_ptr(), offsets.as_ptr());
            // SAFETY: as in `allreduce`; the parts lie inside `out`; "reads `counts` and `offsets`
            // before it returns".
            unsafe { sys::trib_allgatherv(comm, send, recv, counts, offsets, dtype, stream) }
        })
    }

    /// An alltoall of `send_counts[i]` elements to, and `recv_counts[i]` from, rank i, at these
    /// offsets (by default one after the other). Not in place.
    #[pyo3(signature = (tensor, out, send_counts, recv_counts, send_offsets=None, recv_offsets=None, *, stream=None))]
    fn alltoallv(
        &self,
        py: Python<'_>,
        tensor: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        send_counts: Vec<usize>,
        recv_counts: Vec<usize>,
        send_offsets: Option<Vec<usize>>,
        recv_offsets: Option<Vec<usize>>,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let mut call = Call::new(py, &self.owner, "alltoallv", stream)?;
        let (size, from) = (self.owner.size, call.read("tensor", tensor)?);
        let (to, dtype) = written(&mut call, "out", out)?;
        call.same("out", &to, to.count, from.dtype)?;
        let names = ["send_counts", "send_offsets", "tensor"];
        let send_offsets = parts(&call, names, &send_counts, send_offsets, from.count, size)?;
        let names = ["recv_counts", "recv_offsets", "out"];
        let recv_offsets = parts(&call, names, &recv_counts, recv_offsets, to.count, size)?;
        let (send, recv) = (from.data, to.data);
        call.queue(py, move |comm, stream| {
            let (send, send_counts, send_offsets) =
                (send.get(), send_counts.as_ptr(), send_offsets.as_ptr());
            let (recv, recv_counts, recv_offsets) =
                (recv.get(), recv_counts.as_ptr(), recv_offsets.as_ptr());
            // SAFETY: as in `allgatherv`.
            unsafe {
                sys::trib_alltoallv(
                    comm,
                    send,
                    send_counts,
                    send_offsets,
                    recv,
                    recv_counts,
                    recv_offsets,
                    dtype,
                    stream,
                )
            }
        })
    }
}

/// Offsets, where they are not given, and proof that every part lies inside its tensor of `all`
/// elements: C knows the bounds of its own memory only.
fn parts(
    call: &Call<'_>,
    names: [&str; 3],
    counts: &[usize],
    offsets: Option<Vec<usize>>,
    all: usize,
    size: i32,
) -> Outcome<Vec<usize>> {
    let [counts_name, offsets_name, tensor] = names;
    sizes(call.who(), counts_name, counts, size)?;
    let one_after_the_other = || {
        let next =
            |at: &mut usize, &count: &usize| Some(std::mem::replace(at, at.saturating_add(count)));
        counts.iter().scan(0, next).collect()
    };
    let offsets = offsets.unwrap_or_else(one_after_the_other);
    sizes(call.who(), offsets_name, &offsets, size)?;
    for (rank, (count, offset)) in counts.iter().zip(&offsets).enumerate() {
        if offset.checked_add(*count).is_none_or(|end| end > all) {
            return Err(buffer(format!(
                "{}: `{counts_name}[{rank}]` is {count} at offset {offset}, but `{tensor}` has \
                 {all} elements",
                call.who()
            )));
        }
    }
    Ok(offsets)
}
