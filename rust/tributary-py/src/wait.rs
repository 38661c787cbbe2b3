//! Waits that a signal can interrupt.

use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::failure::{argument, Outcome};

/// How long a wait may keep Python from its signal handlers, of which KeyboardInterrupt is one.
const SLICE: Duration = Duration::from_millis(50);

/// A timeout in seconds; `None` stands for the default, infinity for none at all.
pub type Seconds = Option<f64>;

/// As the header wants it: 0 is the default, TRIB_NO_TIMEOUT is none. A timeout of 0 becomes 1 ms,
/// since 0 means something else there.
pub fn milliseconds(name: &str, seconds: Seconds) -> Outcome<u32> {
    let Some(seconds) = seconds else { return Ok(0) };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(argument(format!(
            "`{name}` is {seconds} seconds; expected 0 or more, math.inf for none, or None for \
             the default"
        )));
    }
    let longest = f64::from(tributary_sys::TRIB_NO_TIMEOUT);
    Ok((seconds * 1000.0).ceil().clamp(1.0, longest) as u32)
}

/// Polls `done` without the GIL until it is true, or `timeout` seconds have passed (`None`: for
/// ever). Returns whether it was.
pub fn until(
    py: Python<'_>,
    name: &str,
    timeout: Seconds,
    mut done: impl FnMut() -> Outcome<bool> + Send,
) -> PyResult<bool> {
    let start = Instant::now();
    let end = match milliseconds(name, timeout.or(Some(f64::INFINITY)))? {
        tributary_sys::TRIB_NO_TIMEOUT => None,
        limit => Some(start + Duration::from_millis(limit.into())),
    };
    loop {
        let slice = Instant::now() + SLICE;
        let stop = end.map_or(slice, |end| end.min(slice));
        if py.detach(|| poll(start, stop, &mut done))? {
            return Ok(true);
        }
        py.check_signals()?;
        if end.is_some_and(|end| Instant::now() >= end) {
            return Ok(false);
        }
    }
}

/// Asks until `stop`: at first at once again, then after a sixteenth of the time waited so far, and
/// every millisecond at least, as trib_comm_wait does.
fn poll(start: Instant, stop: Instant, done: &mut impl FnMut() -> Outcome<bool>) -> Outcome<bool> {
    loop {
        if done()? {
            return Ok(true);
        }
        let now = Instant::now();
        if now >= stop {
            return Ok(false);
        }
        match (now - start) / 16 {
            pause if pause < Duration::from_micros(5) => thread::yield_now(),
            pause => thread::sleep(pause.min(Duration::from_millis(1)).min(stop - now)),
        }
    }
}
