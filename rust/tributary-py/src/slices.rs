//! trib_comm_wait in slices, between which signals are seen.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tributary_sys as sys;

use crate::failure::{check, Outcome};
use crate::owner::Owner;
use crate::stream::OnStream;
use crate::wait::{milliseconds, Seconds};

const SLICE_MS: u32 = 50;

/// "If you repeat a wait that was late, before the stream has reached the point of that, the detail
/// tells the time since the first one began."
pub fn wait(py: Python<'_>, owner: &Owner, stream: &OnStream, timeout: Seconds) -> PyResult<()> {
    let limit = milliseconds("timeout", timeout.or(Some(f64::INFINITY)))?;
    let _stream = stream.take("wait")?;
    let turn = owner.turn.take("wait", owner)?;
    let (comm, raw, start) = (owner.raw(), stream.raw, Instant::now());
    loop {
        let left = left(limit, start);
        let ended = owner.abort.is_raised();
        let waited = py.detach(|| {
            let _inside = turn.lock();
            // SAFETY: this thread has both turns.
            check(unsafe { sys::trib_comm_wait(comm.get().cast(), raw.get(), left.min(SLICE_MS)) })
        });
        // If the communicator had ended before the slice, this is its status; if not, only the
        // slice is over, and the next one tells what has happened meanwhile.
        let late = matches!(&waited, Err(failure) if failure.status == sys::TRIB_ERR_TIMEOUT);
        let again = late && left > SLICE_MS && !ended;
        if !again {
            return Ok(explain(owner, waited)?);
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
fn explain(owner: &Owner, waited: Outcome<()>) -> Outcome<()> {
    match waited {
        Err(failure) if failure.status == sys::TRIB_ERR_ABORTED => {
            owner.abort.status().and(Err(failure))
        }
        waited => waited,
    }
}
