//! Many tensors as one call.

use std::sync::Arc;

use pyo3::prelude::*;
use tributary_sys as sys;

use crate::call::{or_null, Call, Factor, Scalar, Tensor};
use crate::communicator::Communicator;
use crate::failure::{check, Failure, Outcome};
use crate::owner::Owner;
use crate::view::op_of;
use crate::work::{Applied, Work};

#[pymethods]
impl Communicator {
    /// Allreduce many tensors in place: packed into one buffer for each type, reduced, unpacked.
    /// Each rank unpacks all or none, so that after an error a retry needs no copies.
    #[pyo3(signature = (tensors, op="sum", *, factor=None, stream=None))]
    fn allreduce_list(
        &self,
        py: Python<'_>,
        tensors: &Bound<'_, PyAny>,
        op: &str,
        factor: Tensor<'_, '_>,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let mut call = Call::new(py, &self.owner, "allreduce_list", stream)?;
        let (op, list) = (op_of(op, call.who())?, call.list(tensors)?);
        let factor = Factor::new(&mut call, factor)?;
        call.queue(py, move |comm, stream| {
            let ((tensors, n), options) = (list.get(), factor.options());
            // SAFETY: n tensors, alive until the stream has passed: the work keeps them. "The call
            // reads `tensors` before it returns".
            unsafe { sys::trib_allreduce_list_with(comm, tensors, n, op, &options, stream) }
        })
    }

    /// Broadcast many tensors of rank `root` in place.
    #[pyo3(signature = (tensors, root=0, *, stream=None))]
    fn broadcast_list(
        &self,
        py: Python<'_>,
        tensors: &Bound<'_, PyAny>,
        root: i32,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let mut call = Call::new(py, &self.owner, "broadcast_list", stream)?;
        let list = call.list(tensors)?;
        call.queue(py, move |comm, stream| {
            let (tensors, n) = list.get();
            // SAFETY: as in `allreduce_list`.
            unsafe { sys::trib_broadcast_list(comm, tensors, n, root, stream) }
        })
    }

    /// Replace many tensors in place by their weighted average: sum(weight * tensor) / sum(weight).
    ///
    /// `weight` is a number, or one float in device memory. A rank with weight 0 contributes
    /// nothing, and receives. If a weight is negative or not finite, no rank writes, and the
    /// wait of the work raises NON_FINITE; `total`, one float in device memory, gets the sum of
    /// the weights.
    #[pyo3(signature = (tensors, weight, *, total=None, stream=None))]
    fn weighted_average(
        &self,
        py: Python<'_>,
        tensors: &Bound<'_, PyAny>,
        weight: &Bound<'_, PyAny>,
        total: Tensor<'_, '_>,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Work> {
        let mut call = Call::new(py, &self.owner, "weighted_average", stream)?;
        let list = call.list(tensors)?;
        let weight = call.scalar("weight", weight)?;
        let total = total.map(|total| call.write("total", total)).transpose()?;
        if let Some(total) = &total {
            call.same("total", total, 1, sys::TRIB_F32)?;
        }
        let (total, owner) = (or_null(total.as_ref()), Arc::clone(&self.owner));
        call.queue_last(py, &self.owner.last_average, move |comm, stream| {
            let (tensors, n) = list.get();
            let (number, device) = match weight {
                Scalar::Number(number) => (number as f32, std::ptr::null()),
                Scalar::Device(weight) => (0.0, weight.get().cast_const().cast()),
            };
            let before = refused(comm)?;
            let total = total.get().cast();
            // SAFETY: as in `allreduce_list`; weight and total are one float each.
            check(unsafe {
                sys::trib_weighted_average(comm, tensors, n, number, device, total, stream)
            })?;
            Ok(Some(applied(owner, before)))
        })
    }
}

/// How many weighted averages wrote nothing, because a weight was invalid.
fn refused(comm: *mut sys::trib_comm) -> Outcome<u64> {
    let mut counters = sys::TRIB_COUNTERS_INIT;
    // SAFETY: the caller has the turn, or the lock inside; the struct has its size set.
    check(unsafe { sys::trib_comm_counters(&mut counters, comm) })?;
    Ok(counters.lists_refused)
}

fn applied(owner: Arc<Owner>, before: u64) -> Applied {
    Arc::new(move || match owner.peek(refused).transpose()? {
        None => Ok(None),
        Some(now) if now == before => Ok(Some(())),
        Some(_) => Err(Failure::new(
            sys::TRIB_ERR_NON_FINITE,
            format!(
                "{}: this one, or another that was queued with it, wrote nothing on any rank: \
                     a weight is negative or not finite, or their sum is; look at the weights",
                owner.who("weighted_average")
            ),
        )),
    })
}
