//! Points in a stream.

use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;
use std::time::Duration;

use tributary_sys as sys;

use crate::check;
use crate::device::Device;
use crate::error::{check as checked, Result};
use crate::stream::Stream;

/// A point in a stream, with its time, for other streams and threads to wait for.
#[derive(Debug)]
pub struct Event {
    raw: sys::trib_event,
    device: Device,
    owned: bool,
    /// "use each [...] event from one thread at a time": not Sync.
    one_thread: PhantomData<Cell<()>>,
}

// SAFETY: "use each [...] event from one thread at a time", whichever thread that is.
unsafe impl Send for Event {}

impl Event {
    /// Creates an event that has recorded nothing.
    pub fn new(device: Device) -> Result<Event> {
        let mut raw = ptr::null_mut();
        // SAFETY: "Create an event on `device`"; it is ours to destroy.
        checked(unsafe { sys::trib_event_create(&mut raw, device.raw()) })?;
        Ok(Event { raw, device, owned: true, one_thread: PhantomData })
    }

    /// Wraps a foreign event, such as a framework's `cudaEvent_t`. Dropping the wrapper does not
    /// destroy the event.
    ///
    /// # Safety
    /// `raw` is an event of `device` and outlives this value.
    pub unsafe fn from_raw(device: Device, raw: *mut c_void) -> Event {
        Event { raw, device, owned: false, one_thread: PhantomData }
    }

    /// Returns the handle: a `cudaEvent_t` on nccl.
    pub fn as_raw(&self) -> *mut c_void {
        self.raw
    }

    /// Returns the device that it belongs to.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Records the current end of `stream`, which belongs to the event's device.
    ///
    /// The `&mut` protects events that others rely on: the event of a [`Work`](crate::Work) says
    /// when its buffers are ready, so it is lent as `&`, for waiting only.
    ///
    /// ```compile_fail,E0596
    /// # use tributary::{Stream, Work};
    /// fn too_early(work: Work<Vec<f32>>, idle: &Stream) -> tributary::Result<Vec<f32>> {
    ///     work.event().record(idle)?; // would be passed before the collectives have run
    ///     Ok(work.wait()?)
    /// }
    /// ```
    pub fn record(&mut self, stream: &Stream) -> Result<()> {
        check::stream_of(&"Event::record", stream, self.device)?;
        // SAFETY: both are of one device and live through the call, and neither is Sync, so no
        // other thread uses them.
        checked(unsafe { sys::trib_event_record(self.device.raw(), self.raw, stream.as_raw()) })
    }

    /// Waits until the stream has passed the point recorded last. `Ok` says nothing about the
    /// communicator whose calls come before: ask
    /// [`Communicator::status`](crate::Communicator::status).
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the event lives as long as this value; "Any thread."
        checked(unsafe { sys::trib_event_wait(self.device.raw(), self.raw) })
    }

    /// Returns whether the stream has passed the point recorded last. Never waits.
    pub fn is_done(&self) -> Result<bool> {
        let mut done = 0;
        // SAFETY: the event lives as long as this value; "Any thread."
        checked(unsafe { sys::trib_event_query(&mut done, self.device.raw(), self.raw) })?;
        Ok(done != 0)
    }

    /// Returns the time from `self` to `end`, an event of the same device. The streams must have
    /// passed both.
    pub fn elapsed(&self, end: &Event) -> Result<Duration> {
        check::event_of(&"Event::elapsed", end, self.device)?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are of one device and live through the call.
        checked(unsafe {
            sys::trib_event_elapsed(&mut milliseconds, self.device.raw(), self.raw, end.raw)
        })?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).unwrap_or_default())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: "Destroy an event": it is ours, and this is the last use.
            unsafe { sys::trib_event_destroy(self.device.raw(), self.raw) };
        }
    }
}
