//! Points in streams.

use std::ptr;

use pyo3::prelude::*;
use tributary_sys as sys;

use crate::failure::{check, usage, Failure, Outcome};
use crate::owner::without_gil;
use crate::place::Place;
use crate::stream::Address;
use crate::turn::Turn;
use crate::wait::{self, Seconds};

/// A point in a stream, from `Stream.record`.
///
/// >>> import tributary
/// >>> event = tributary.Stream(0, backend="host").record()
/// >>> event.wait(timeout=10)
/// True
#[pyclass(frozen, module = "tributary")]
pub struct Event {
    /// `None` while it is dropped.
    mark: Option<Mark>,
    pub turn: Turn,
}

impl Event {
    pub fn new(mark: Mark) -> Event {
        Event { mark: Some(mark), turn: Turn::default() }
    }

    pub fn mark(&self) -> &Mark {
        self.mark.as_ref().expect("only the drop takes it")
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let mark = self.mark.take();
        without_gil(move || drop(mark));
    }
}

#[pymethods]
impl Event {
    /// Wait until the stream has passed this point, at most `timeout` seconds. Returns whether it
    /// has.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Seconds) -> PyResult<bool> {
        wait::until(py, "timeout", timeout, || self.mark().passed())
    }

    /// Whether the stream has passed this point. Never waits.
    fn query(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(py.detach(|| self.mark().passed())?)
    }

    /// Milliseconds from `start` to this event; both have been waited for.
    fn elapsed_since(&self, py: Python<'_>, start: &Event) -> PyResult<f32> {
        const WHAT: &str = "Event.elapsed_since";
        let _turn = self.turn.take(WHAT, &"the event")?;
        let other = (!ptr::eq(self, start)).then(|| start.turn.take(WHAT, &"`start`"));
        let _other = other.transpose()?;
        Ok(py.detach(|| self.mark().milliseconds_since(start.mark()))?)
    }
}

/// An event that was recorded once, and is destroyed with this value.
pub struct Mark {
    raw: Address,
    place: Place,
    stream: Address,
}

impl Mark {
    pub fn record(place: Place, stream: Address) -> Outcome<Mark> {
        let mut raw = ptr::null_mut();
        // SAFETY: "Create an event on `device`"; it is ours to destroy, which `mark` does.
        check(unsafe { sys::trib_event_create(&mut raw, place.raw()) })?;
        let mark = Mark { raw: Address(raw), place, stream };
        // SAFETY: both live through the call, and the caller has the stream's turn.
        check(unsafe { sys::trib_event_record(place.raw(), raw, stream.get()) })?;
        Ok(mark)
    }

    pub fn place(&self) -> Place {
        self.place
    }

    /// The same of all marks of one stream: a number for its device, and one for it.
    pub fn line(&self) -> (usize, usize) {
        (self.place.raw() as usize, self.stream.0 as usize)
    }

    /// Never waits; any thread.
    pub fn passed(&self) -> Outcome<bool> {
        let mut done = 0;
        // SAFETY: the event lives. "Any thread."
        check(unsafe { sys::trib_event_query(&mut done, self.place.raw(), self.raw.get()) })?;
        Ok(done != 0)
    }

    /// The caller has the turns of both events.
    fn milliseconds_since(&self, start: &Mark) -> Outcome<f32> {
        if start.place.backend() != self.place.backend() {
            return Err(usage(format!(
                "Event.elapsed_since: `start` is an event of {}, but this is one of {}; expected \
                 two of one backend",
                start.place, self.place
            )));
        }
        let mut out = 0.0;
        let (first, last) = (start.raw.get(), self.raw.get());
        // SAFETY: both are of one backend, and live through the call.
        check(unsafe { sys::trib_event_elapsed(&mut out, self.place.raw(), first, last) })?;
        Ok(out)
    }

    /// The caller has the turns of the event and of `stream`, a stream of `place`.
    pub fn order_before(&self, place: Place, stream: Address) -> Outcome<()> {
        if place.backend() != self.place.backend() {
            return Err(Failure::new(
                sys::TRIB_ERR_INVALID_STREAM,
                format!("an event of {} cannot order a stream of {place}", self.place),
            ));
        }
        // SAFETY: both are of one backend, and live through the call.
        check(unsafe { sys::trib_stream_wait_event(place.raw(), self.raw.get(), stream.get()) })
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: it is ours, and this is the last use; who waits for it holds this value.
        unsafe { sys::trib_event_destroy(self.place.raw(), self.raw.get()) };
    }
}
