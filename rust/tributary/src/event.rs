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

/// A point in a stream that other streams and threads can wait for, and that takes the time.
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
    /// A new event, which has recorded nothing.
    pub fn new(device: Device) -> Result<Event> {
        let mut raw = ptr::null_mut();
        // SAFETY: "A new event of `device`"; it is ours to destroy.
        checked(unsafe { sys::trib_event_create(&mut raw, device.raw()) })?;
        Ok(Event { raw, device, owned: true, one_thread: PhantomData })
    }

    /// An event that belongs to somebody else, such as a framework's `cudaEvent_t`. It is not
    /// destroyed.
    ///
    /// # Safety
    /// `raw` is an event of `device` and outlives this value.
    pub unsafe fn from_raw(device: Device, raw: *mut c_void) -> Event {
        Event { raw, device, owned: false, one_thread: PhantomData }
    }

    /// The handle: a `cudaEvent_t` on nccl.
    pub fn as_raw(&self) -> *mut c_void {
        self.raw
    }

    /// The device that it belongs to.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Remember this point of `stream`, which belongs to the event's device.
    ///
    /// `&mut`, for what others trust must not move: the event of a [`Work`](crate::Work) says when
    /// its buffers are ready, and is lent for waiting only.
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
        // SAFETY: both are of one device and live through the call, and neither is Sync, so no other
        // thread uses them.
        checked(unsafe { sys::trib_event_record(self.device.raw(), self.raw, stream.as_raw()) })
    }

    /// Wait until the stream has passed the point recorded last.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the event lives as long as this value; "Any thread."
        checked(unsafe { sys::trib_event_wait(self.device.raw(), self.raw) })
    }

    /// Has the stream passed the point recorded last? Never waits.
    pub fn is_done(&self) -> Result<bool> {
        let mut done = 0;
        // SAFETY: the event lives as long as this value; "Any thread."
        checked(unsafe { sys::trib_event_query(&mut done, self.device.raw(), self.raw) })?;
        Ok(done != 0)
    }

    /// The time from `self` to `end`, an event of the same device, once both have been passed.
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
            // SAFETY: "Give an event back": it is ours, and this is the last use.
            unsafe { sys::trib_event_destroy(self.device.raw(), self.raw) };
        }
    }
}
