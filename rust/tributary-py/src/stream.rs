//! Streams and events.

use std::ffi::{c_void, CString};
use std::ptr;
use std::thread;

use pyo3::prelude::*;
use tributary_sys as sys;

use crate::event::{Event, Mark};
use crate::failure::{check, usage, Failure, Outcome};
use crate::owner::without_gil;
use crate::place::{c_string, Place};
use crate::turn::{Taken, Turn};
use crate::wait::{self, Seconds};

/// An address that may go to another thread, which C allows.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Address(pub *mut c_void);

// SAFETY: Rust does not follow it; who gives it to C keeps the rules of the header.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Address {
    /// For closures, which would otherwise take the field and not the struct.
    pub fn get(self) -> *mut c_void {
        self.0
    }
}

fn place(backend: Option<String>, device: i32) -> Outcome<Place> {
    let backend: Option<CString> = c_string("backend", backend)?;
    Place::get(backend.as_deref(), device)
}

/// A queue of work on one device: a CUDA stream on nccl, a host stream on host.
///
/// The work of one stream runs in order; events order different streams. Streams of frameworks work
/// as they are: pass those where a `stream` is asked for. Dropping a stream never waits: queued
/// work still runs.
///
/// >>> import tributary
/// >>> stream = tributary.Stream(0, backend="host")
/// >>> stream
/// <tributary.Stream of host device 0>
/// >>> stream.query()
/// True
#[pyclass(frozen, module = "tributary")]
pub struct Stream {
    raw: Address,
    place: Place,
    turn: Turn,
}

#[pymethods]
impl Stream {
    #[new]
    #[pyo3(signature = (device=0, *, backend=None))]
    fn new(py: Python<'_>, device: i32, backend: Option<String>) -> PyResult<Stream> {
        let (place, raw) = py.detach(|| {
            let place = place(backend, device)?;
            let mut raw = ptr::null_mut();
            // SAFETY: "Create a stream on `device`"; it is ours to destroy.
            check(unsafe { sys::trib_stream_create(&mut raw, place.raw()) })?;
            Outcome::Ok((place, Address(raw)))
        })?;
        Ok(Stream { raw, place, turn: Turn::default() })
    }

    /// The ordinal of its device.
    #[getter]
    fn device(&self) -> i32 {
        self.place.ordinal()
    }

    /// The name of its backend.
    #[getter]
    fn backend(&self) -> &'static str {
        self.place.backend()
    }

    /// The address of the stream: a `cudaStream_t` on nccl.
    #[getter]
    fn handle(&self) -> usize {
        self.raw.0 as usize
    }

    /// Wait until everything queued so far has run, at most `timeout` seconds. Returns whether it
    /// has. That says nothing of its success: `Communicator.status` does.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Seconds) -> PyResult<bool> {
        let (raw, place) = (self.raw, self.place);
        wait::until(py, "timeout", timeout, || passed(place, raw))
    }

    /// Whether everything queued so far has run. Never waits.
    fn query(&self, py: Python<'_>) -> PyResult<bool> {
        let (raw, place) = (self.raw, self.place);
        Ok(py.detach(|| passed(place, raw))?)
    }

    /// Make later work on this stream wait for the last record of `event`.
    fn wait_event(&self, py: Python<'_>, event: &Event) -> PyResult<()> {
        let _turn = self.turn.take("Stream.wait_event", &"the stream")?;
        let _other = event.turn.take("Stream.wait_event", &"the event")?;
        let (stream, event, place) = (self.raw, event.mark(), self.place);
        Ok(py.detach(|| event.order_before(place, stream))?)
    }

    /// Record an event at the end of what is queued now.
    fn record(&self, py: Python<'_>) -> PyResult<Event> {
        let _turn = self.turn.take("Stream.record", &"the stream")?;
        let (stream, place) = (self.raw, self.place);
        let mark = py.detach(|| Mark::record(place, stream))?;
        Ok(Event::new(mark))
    }

    /// The protocol by which libraries of CUDA pass streams: its version, and the handle.
    fn __cuda_stream__(&self) -> PyResult<(i32, usize)> {
        if self.place.is_host() {
            return Err(usage(
                "Stream.__cuda_stream__: this is a stream of the host backend, not one of CUDA",
            )
            .into());
        }
        Ok((0, self.handle()))
    }

    fn __repr__(&self) -> String {
        format!("<tributary.Stream of {}>", self.place)
    }
}

/// "`*out` = 1 if everything queued has run, else 0. Never waits. Any thread."
fn passed(place: Place, stream: Address) -> Outcome<bool> {
    let mut done = 0;
    // SAFETY: the stream lives: its owner waits here. "Any thread."
    check(unsafe { sys::trib_stream_query(&mut done, place.raw(), stream.get()) })?;
    Ok(done != 0)
}

impl Drop for Stream {
    fn drop(&mut self) {
        let (place, raw) = (self.place, self.raw);
        let destroy = move || {
            // SAFETY: "Wait for the stream, then destroy it": it is ours, and this is the last use.
            unsafe { sys::trib_stream_destroy(place.raw(), raw.get()) };
        };
        without_gil(move || {
            if passed(place, raw).unwrap_or(false) {
                destroy();
            } else {
                // Queued work may wait for a rank that never calls. If no thread can be started,
                // the stream leaks.
                drop(thread::Builder::new().spawn(destroy));
            }
        });
    }
}

/// The stream that a call was given, or found.
pub struct OnStream {
    pub raw: Address,
    /// What keeps it alive.
    pub object: Option<Py<PyAny>>,
    own: Option<Py<Stream>>,
}

impl OnStream {
    /// `None` is torch's current stream if torch has used this GPU's CUDA, else the default stream.
    pub fn new(
        py: Python<'_>,
        place: Place,
        given: Option<&Bound<'_, PyAny>>,
        who: &str,
    ) -> PyResult<OnStream> {
        let Some(given) = given.filter(|given| !given.is_none()) else {
            return OnStream::usual(py, place);
        };
        let object = Some(given.clone().unbind());
        if let Ok(own) = given.cast::<Stream>() {
            let (found, raw) = (own.get().place, own.get().raw);
            if found != place {
                return Err(refused(format!(
                    "{who}: `stream` is of {found}; expected one of {place}"
                )));
            }
            return Ok(OnStream { raw, object, own: Some(own.clone().unbind()) });
        }
        if place.is_host() {
            let kind = given.get_type().name()?;
            return Err(refused(format!(
                "{who}: `stream` is a {kind}; expected a tributary.Stream of {place}"
            )));
        }
        let raw = Address(foreign(given, who)? as *mut c_void);
        Ok(OnStream { raw, object, own: None })
    }

    fn usual(py: Python<'_>, place: Place) -> PyResult<OnStream> {
        let object = if place.is_host() { None } else { torch_stream(py, place.ordinal())? };
        let handle = match &object {
            Some(stream) => stream.getattr("cuda_stream")?.extract::<usize>()?,
            None => 0,
        };
        let object = object.map(Bound::unbind);
        Ok(OnStream { raw: Address(handle as *mut c_void), object, own: None })
    }

    pub fn clone_ref(&self, py: Python<'_>) -> OnStream {
        OnStream {
            raw: self.raw,
            object: self.object.as_ref().map(|object| object.clone_ref(py)),
            own: self.own.as_ref().map(|own| own.clone_ref(py)),
        }
    }

    /// The turn of a stream of this package. Foreign ones are CUDA's, which any thread may use, and
    /// so are default streams.
    pub fn take(&self, operation: &str) -> Outcome<Option<Taken<'_>>> {
        let own = self.own.as_ref();
        own.map(|own| own.get().turn.take(operation, &"the stream")).transpose()
    }
}

fn refused(detail: String) -> PyErr {
    Failure::new(sys::TRIB_ERR_INVALID_STREAM, detail).into()
}

/// torch's current stream on GPU `ordinal`, unless torch has not been imported, or has not used
/// CUDA.
fn torch_stream(py: Python<'_>, ordinal: i32) -> PyResult<Option<Bound<'_, PyAny>>> {
    let modules = py.import("sys")?.getattr("modules")?;
    let torch = modules.call_method1("get", ("torch",))?;
    if torch.is_none() {
        return Ok(None);
    }
    let cuda = torch.getattr("cuda")?;
    if !cuda.call_method0("is_initialized")?.is_truthy()? {
        return Ok(None);
    }
    cuda.call_method1("current_stream", (ordinal,)).map(Some)
}

/// The `cudaStream_t` of another library's stream.
fn foreign(given: &Bound<'_, PyAny>, who: &str) -> PyResult<usize> {
    if let Ok(protocol) = given.getattr("__cuda_stream__") {
        let pair = if protocol.is_callable() { protocol.call0()? } else { protocol };
        return Ok(pair.extract::<(usize, usize)>()?.1);
    }
    for name in ["cuda_stream", "ptr"] {
        if let Ok(handle) = given.getattr(name) {
            return handle.extract();
        }
    }
    given.extract().map_err(|_| {
        refused(format!(
            "{who}: `stream` is {given:?}; expected a tributary.Stream, the address of a CUDA \
             stream, or an object with __cuda_stream__, cuda_stream (torch) or ptr (CuPy)"
        ))
    })
}
