//! Waits of C in slices, between which signals are seen.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tributary_sys as sys;

use crate::abort::Abort;
use crate::failure::{check, Outcome};
use crate::owner::Owner;
use crate::retired::sweep;
use crate::stream::OnStream;
use crate::wait::{milliseconds, Seconds};

const SLICE_MS: u32 = 50;

/// "If you repeat a wait that was late, before the stream has reached the point of that, the detail
/// tells the time since the first one began."
pub fn wait(py: Python<'_>, owner: &Owner, stream: &OnStream, timeout: Seconds) -> PyResult<()> {
    let limit = milliseconds("timeout", timeout.or(Some(f64::INFINITY)))?;
    let _stream = stream.take("wait")?;
    let turn = owner.turn.take("wait", owner)?;
    let (comm, raw) = (owner.raw(), stream.raw);
    let waited = sliced(
        py,
        limit,
        || owner.abort.is_raised(),
        |ms| {
            let _inside = turn.lock();
            // SAFETY: this thread has both turns.
            check(unsafe { sys::trib_comm_wait(comm.get().cast(), raw.get(), ms) })
        },
    )?;
    sweep(py);
    Ok(explain(&owner.abort, waited)?)
}

/// Calls `wait` without the GIL for at most SLICE_MS each, until it returns something else than
/// that it was late, `limit` is over, or `ended` was true before it.
pub fn sliced(
    py: Python<'_>,
    limit: u32,
    ended: impl Fn() -> bool + Sync,
    mut wait: impl FnMut(u32) -> Outcome<()> + Send,
) -> PyResult<Outcome<()>> {
    let start = Instant::now();
    loop {
        let left = left(limit, start);
        let (ended, waited) = py.detach(|| (ended(), wait(left.min(SLICE_MS))));
        // If the communicator had ended before the slice, this is its status; if not, only the
        // slice is over, and the next one tells what has happened meanwhile.
        let late = matches!(&waited, Err(failure) if failure.status == sys::TRIB_ERR_TIMEOUT);
        if !late || left <= SLICE_MS || ended {
            return Ok(waited);
        }
        py.check_signals()?;
    }
}

fn left(limit: u32, start: Instant) -> u32 {
    if limit == sys::TRIB_NO_TIMEOUT {
        return limit;
    }
    let left = Duration::from_millis(limit.into()).saturating_sub(start.elapsed());
    (left.as_millis() as u32).max(1)
}

/// "TRIB_ERR_ABORTED if a caller's mistake ended it: see trib_comm_status", which an abort handle
/// has.
pub fn explain(abort: &Abort, waited: Outcome<()>) -> Outcome<()> {
    match waited {
        Err(failure) if failure.status == sys::TRIB_ERR_ABORTED => abort.status().and(Err(failure)),
        waited => waited,
    }
}
