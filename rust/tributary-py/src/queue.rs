//! Queueing one call: its turns, its memory, its work.

use std::sync::{Arc, PoisonError};

use pyo3::prelude::*;
use tributary_sys as sys;

use crate::capture;
use crate::event::Mark;
use crate::failure::{check, usage, Failure, Outcome};
use crate::owner::Owner;
use crate::retired::{retire, sweep};
use crate::stream::{Address, OnStream};
use crate::wait;
use crate::work::{Applied, End, Kept, Queued, Work};

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
    sweep(py);
    let stream_turn = stream.take(operation)?;
    let turn = owner.turn.take(operation, &**owner)?;
    // While this thread has the turn, none opens or ends a batch.
    let batching = owner.batch.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    let (comm, raw) = (owner.raw(), stream.raw);
    let (called, end) = py.detach(|| {
        let _inside = turn.lock();
        let called = function(comm.get().cast(), raw.get());
        let nothing = called.as_ref().is_err_and(Failure::is_mistake);
        let end = (!batching && !nothing).then(|| mark(owner, raw));
        (called, end)
    });
    drop(stream_turn);
    match (called, end) {
        (Ok(_), None) => Ok(Work { queued: record(owner, kept) }),
        (Ok(applied), Some(Ok(end))) => {
            let who = owner.who(operation);
            Ok(Work { queued: Queued::after(owner, who, end, stream, kept, applied) })
        }
        (Ok(_), Some(Err(failure))) => {
            let failure = unmarked(&owner.who(operation), failure);
            std::mem::forget(kept); // nobody will know when it has run
            Err(failure.into())
        }
        (Err(failure), end) => {
            keep_until(end, kept); // part of it may have been queued
            Err(failure.into())
        }
    }
}

fn unmarked(who: &str, failure: Failure) -> Failure {
    let Failure { status, detail } = failure;
    Failure::new(
        status,
        format!("{who} was queued, but its end cannot be marked, so its memory is kept: {detail}"),
    )
}

/// For memory that nobody else keeps: until `end`, for good if that is not known, and no longer
/// where nothing was queued. A graph's memory its owner keeps.
pub fn keep_until(end: Option<Outcome<End>>, kept: Kept) {
    match end {
        Some(Ok(End::Marked(mark))) => retire(Arc::new(mark), kept),
        Some(Err(_)) => std::mem::forget(kept),
        Some(Ok(End::Captured)) | None => (),
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

/// Ends the open batch of `owner`; with `cancel` nothing of it is queued. Waits for its turns, for
/// a batch that stayed open could not be ended any more.
pub fn end_batch(py: Python<'_>, owner: &Arc<Owner>, cancel: bool) -> PyResult<()> {
    const WHAT: &str = "the end of a batch";
    let turn = in_turn(py, || owner.turn.take(WHAT, &**owner))?;
    let open = owner
        .batch
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .map(|batch| batch.stream.clone_ref(py));
    let stream = open.ok_or_else(|| usage(format!("{}: no batch is open", owner.who("batch"))))?;
    let stream_turn = in_turn(py, || stream.take(WHAT))?;
    let open = owner.batch.lock().unwrap_or_else(PoisonError::into_inner).take();
    let batch = open.expect("this thread has had the turn since it saw the batch");
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
        (Ok(()), Some(Ok(end))) => batch.work.end(end, stream, batch.kept, None),
        (ended, end) => {
            let why = match ended {
                Err(failure) if !cancel => failure,
                _ => usage(format!(
                    "{}: an exception left it, so nothing of it was queued: make its calls again",
                    owner.who("batch")
                )),
            };
            batch.work.cancel(why.clone());
            keep_until(end, batch.kept);
            if !cancel {
                return Err(why.into());
            }
        }
    }
    Ok(())
}

/// A turn, as soon as it is free.
fn in_turn<T: Send>(py: Python<'_>, mut take: impl FnMut() -> Outcome<T> + Send) -> PyResult<T> {
    let mut taken = None;
    wait::until(py, "timeout", None, || {
        taken = take().ok();
        Ok(taken.is_some())
    })?;
    Ok(taken.expect("the wait has no deadline"))
}
