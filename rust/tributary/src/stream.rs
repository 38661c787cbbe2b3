//! Queues of work on a device.

use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::thread;

use tributary_sys as sys;

use crate::check;
use crate::device::Device;
use crate::error::{check as checked, Result};
use crate::event::Event;

/// A queue of work on one device: a `cudaStream_t` on nccl, a host stream on host. What is queued on
/// one stream runs in order; two streams are ordered by [`Event`]s only.
///
/// Dropping a stream of [`Stream::new`] never waits: what is queued still runs, and then the stream
/// is given back.
#[derive(Debug)]
pub struct Stream {
    raw: sys::trib_stream,
    device: Device,
    owned: bool,
    /// "use each [...] stream [...] from one thread at a time": not Sync.
    one_thread: PhantomData<Cell<()>>,
}

// SAFETY: "use each [...] stream [...] from one thread at a time", whichever thread that is.
unsafe impl Send for Stream {}

impl Stream {
    /// A new stream.
    pub fn new(device: Device) -> Result<Stream> {
        let mut raw = ptr::null_mut();
        // SAFETY: "A new stream of `device`"; it is ours to destroy.
        checked(unsafe { sys::trib_stream_create(&mut raw, device.raw()) })?;
        Ok(Stream { raw, device, owned: true, one_thread: PhantomData })
    }

    /// The device's default stream; on nccl the legacy default stream.
    pub fn default_of(device: Device) -> Stream {
        Stream { raw: ptr::null_mut(), device, owned: false, one_thread: PhantomData }
    }

    /// A stream that belongs to somebody else, such as a framework's `cudaStream_t`. It is not
    /// destroyed.
    ///
    /// # Safety
    /// `raw` is a stream of `device` (not `cudaStreamPerThread`). It outlives this value, and
    /// everything that is queued through it. It is used from one thread at a time as far as its owner
    /// asks for that, and is not being captured while a scope or a work uses it.
    pub unsafe fn from_raw(device: Device, raw: *mut c_void) -> Stream {
        Stream { raw, device, owned: false, one_thread: PhantomData }
    }

    /// The handle: a `cudaStream_t` on nccl.
    pub fn as_raw(&self) -> *mut c_void {
        self.raw
    }

    /// The device that it belongs to.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Wait until everything queued so far has run. Says nothing about success: ask
    /// [`Communicator::status`](crate::Communicator::status).
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the stream lives as long as this value; waiting may be done on "Any thread".
        checked(unsafe { sys::trib_stream_wait(self.device.raw(), self.raw) })
    }

    /// Has everything queued so far run? Never waits.
    pub fn is_done(&self) -> Result<bool> {
        let mut done = 0;
        // SAFETY: the stream lives as long as this value; "Never waits. Any thread."
        checked(unsafe { sys::trib_stream_query(&mut done, self.device.raw(), self.raw) })?;
        Ok(done != 0)
    }

    /// Later work on this stream waits for what `event`, of any device of the same backend, recorded
    /// last.
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        check::same_backend(&"Stream::wait_event", event, self)?;
        // SAFETY: both are of one backend and live through the call, and neither is Sync, so no
        // other thread uses them.
        checked(unsafe { sys::trib_stream_wait_event(self.device.raw(), event.as_raw(), self.raw) })
    }

    /// Queue a call of `function`, which runs on a thread of the backend when the stream comes to
    /// it. It must not call anything of this crate that waits; on nccl it must make no CUDA call
    /// either. A panic in it is reported by the panic hook and goes no further.
    pub fn submit<F: FnOnce() + Send + 'static>(&self, function: F) -> Result<()> {
        unsafe extern "C" fn call<F: FnOnce() + Send + 'static>(argument: *mut c_void) {
            // SAFETY: `argument` is the box below; the stream calls once.
            let function = unsafe { Box::from_raw(argument.cast::<F>()) };
            swallow(function);
        }
        let argument: *mut c_void = Box::into_raw(Box::new(function)).cast();
        // SAFETY: "Queue a call of `function(argument)`": the closure is Send and 'static, so it may
        // run later and on another thread.
        let status = unsafe {
            sys::trib_stream_submit(self.device.raw(), Some(call::<F>), argument, self.raw)
        };
        checked(status).inspect_err(|_| {
            // SAFETY: a call that fails has queued nothing, so the box is still ours.
            drop(unsafe { Box::from_raw(argument.cast::<F>()) });
        })
    }
}

/// Call `function`, for C, into which nothing may unwind: of a panic the hook has spoken, and its
/// payload, whose own drop could panic, is leaked.
pub(crate) fn swallow(function: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(function)) {
        mem::forget(payload);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        struct Parts(Device, sys::trib_stream);
        // SAFETY: nobody else has the stream any more: it moves to the thread below.
        unsafe impl Send for Parts {}
        impl Parts {
            fn destroy(self) {
                // SAFETY: "Wait for the stream, then give it back": it is ours, and this is the
                // last use. There is nobody to tell if that fails.
                unsafe { sys::trib_stream_destroy(self.0.raw(), self.1) };
            }
        }
        let parts = Parts(self.device, self.raw);
        if self.is_done().unwrap_or(false) {
            parts.destroy();
        } else {
            // What is queued may wait for a rank that never comes. If there is not even a thread to
            // be had, the stream is leaked.
            drop(thread::Builder::new().spawn(move || parts.destroy()));
        }
    }
}
