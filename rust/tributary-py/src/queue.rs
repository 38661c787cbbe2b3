//! Queueing one call: its turns, its memory, its work.

use std::sync::{Arc, PoisonError};

use pyo3::prelude::*;
use tributary_sys as sys;

use crate::capture;
use crate::failure::{check, usage, Failure, Outcome};
use crate::owner::Owner;
use crate::stream::{Address, Mark, OnStream};
use crate::work::{retire, sweep, Applied, End, Kept, Queued, Recording, Work};

/// Calls C without the GIL, by `function(comm, stream)`, and returns the work, which keeps `kept`.
/// In a batch that is the work of the batch.
pub fn queue(
    py: Python<'_>,
    owner: &Arc<Owner>,
    operation: &str,
    stream: OnStream,
    kept: Kept,
    function: impl FnOnce(*mut sys::trib_comm, sys::trib_stream) -> Outcome<Option<Applied>> + Send,
) -> PyResult<Work> {
    sweep();
    let stream_turn = stream.take(operation)?;
    let turn = owner.turn.take(operation, &**owner)?;
    // While this thread has the turn, none opens or ends a batch.
    let batching = owner.batch.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    let (comm, raw, place) = (owner.raw(), stream.raw, owner.place);
    let called = py.detach(|| {
        let _inside = turn.lock();
        let called = function(comm.get().cast(), raw.get());
        let nothing = called.as_ref().is_err_and(Failure::is_mistake);
        let end = (!batching && !nothing).then(|| mark(owner, raw));
        (called, end)
    });
    drop((stream_turn, turn));
    match called {
        (Ok(_), None) => Ok(Work { queued: record(owner, kept) }),
        (Ok(applied), Some(Ok(end))) => {
            let who = owner.who(operation);
            Ok(Work { queued: Queued::after(owner, who, end, stream, kept, applied) })
        }
        // Part of it may have been queued.
        (Err(failure), Some(Ok(End::Marked(mark)))) => {
            retire(Arc::new(mark), kept);
            Err(failure.into())
        }
        (Err(failure), Some(Err(_))) => {
            std::mem::forget(kept);
            Err(failure.into())
        }
        (Err(failure), _) => Err(failure.into()),
        (Ok(_), Some(Err(failure))) => {
            std::mem::forget(kept); // nobody will know when it has run
            Err(Failure::new(
                failure.status,
                format!(
                    "{} was queued, but the end of it cannot be marked on {place}: {}",
                    owner.who(operation),
                    failure.detail
                ),
            )
            .into())
        }
    }
}

/// The end of what was queued. On nccl it also lets the watchdog notice that end: "the last calls
/// of such a burst [...] have a deadline once trib_comm_wait waits for them (0 ms are enough)".
fn mark(owner: &Owner, stream: Address) -> Outcome<End> {
    if capture::captures(owner.place, stream) {
        return Ok(End::Captured);
    }
    let mark = Mark::record(owner.place, stream)?;
    if !owner.place.is_host() {
        let comm = owner.raw().get().cast();
        // SAFETY: the caller has the turns of both. "With 0 it asks once"; what it finds is for the
        // wait of the work to tell.
        unsafe { sys::trib_comm_wait(comm, stream.get(), 0) };
    }
    Ok(End::Marked(mark))
}

/// Adds to the open batch.
fn record(owner: &Owner, kept: Kept) -> Arc<Queued> {
    let mut batch = owner.batch.lock().unwrap_or_else(PoisonError::into_inner);
    let batch = batch.as_mut().expect("this thread had the turn when it saw the batch");
    batch.kept.extend(kept);
    Arc::clone(&batch.work)
}

/// Ends the open batch of `owner`; with `cancel` nothing of it is queued.
pub fn end_batch(py: Python<'_>, owner: &Arc<Owner>, cancel: bool) -> PyResult<()> {
    let turn = owner.turn.take("the end of a batch", &**owner)?;
    let open = owner.batch.lock().unwrap_or_else(PoisonError::into_inner).take();
    let batch = open.ok_or_else(|| usage(format!("{}: no batch is open", owner.who("batch"))))?;
    let stream = batch.stream.clone_ref(py);
    let stream_turn = match stream.take("the end of a batch") {
        Ok(turn) => turn,
        Err(failure) => return Err(put_back(owner, batch, failure)),
    };
    let (comm, raw) = (owner.raw(), stream.raw);
    let (ended, end) = py.detach(|| {
        let _inside = turn.lock();
        let comm: *mut sys::trib_comm = comm.get().cast();
        if cancel {
            // "Batches do not nest", and "If a call of the batch failed, nothing is queued".
            // SAFETY: this thread has the turn.
            unsafe { sys::trib_batch_begin(comm) };
        }
        // SAFETY: this thread has the turn. "The batch ends in both cases."
        let ended = check(unsafe { sys::trib_batch_end(comm) });
        let nothing = ended.as_ref().is_err_and(Failure::is_mistake);
        (ended, (!nothing).then(|| mark(owner, raw)))
    });
    drop((stream_turn, turn));
    match (ended, end) {
        (Ok(()), Some(Ok(end))) => {
            batch.work.end(end, stream, batch.kept, None);
            Ok(())
        }
        (ended, end) => {
            batch.work.cancel();
            match end {
                Some(Ok(End::Marked(mark))) => retire(Arc::new(mark), batch.kept),
                Some(Err(_)) => std::mem::forget(batch.kept),
                _ => (),
            }
            if cancel {
                Ok(())
            } else {
                Ok(ended?)
            }
        }
    }
}

/// The batch stays open.
fn put_back(owner: &Owner, batch: Recording, failure: Failure) -> PyErr {
    *owner.batch.lock().unwrap_or_else(PoisonError::into_inner) = Some(batch);
    failure.into()
}
