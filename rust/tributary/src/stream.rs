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

/// A queue of work on one device: a `cudaStream_t` on nccl, a host stream on host. The work of one
/// stream runs in order; only [`Event`]s order two streams.
///
/// Dropping a stream of [`Stream::new`] never waits: queued work still runs, and then the stream is
/// destroyed.
#[derive(Debug)]
pub struct Stream {
    raw: sys::trib_stream,
    device: Device,
    owned: bool,
    /// "use each [...] stream [...] from one thread at a time": not Sync.
    one_thread: PhantomData<Cell<()>>,
}

// SAFETY: "use each [...] stream [...] from one thread at a time", whichever thread that is. Of the
// default stream, which is "every thread's", each has a value.
unsafe impl Send for Stream {}

impl Stream {
    /// Creates a stream.
    pub fn new(device: Device) -> Result<Stream> {
        let mut raw = ptr::null_mut();
        // SAFETY: "Create a stream on `device`"; it is ours to destroy.
        checked(unsafe { sys::trib_stream_create(&mut raw, device.raw()) })?;
        Ok(Stream { raw, device, owned: true, one_thread: PhantomData })
    }

    /// Returns the device's default stream; on nccl, the legacy default stream. Any number of threads
    /// may have it at the same time, each a value of its own.
    pub fn default_of(device: Device) -> Stream {
        // Several of one stream: "a device's default stream (NULL) is every thread's".
        Stream { raw: ptr::null_mut(), device, owned: false, one_thread: PhantomData }
    }

    /// Wraps a foreign stream, such as a framework's `cudaStream_t`. Dropping the wrapper does not
    /// destroy the stream.
    ///
    /// # Safety
    /// `raw` is a stream of `device` (not `cudaStreamPerThread`). It outlives this value and
    /// everything queued through it. It is used from one thread at a time if its owner asks for
    /// that, and is not being captured while a scope, a work or a step uses it.
    pub unsafe fn from_raw(device: Device, raw: *mut c_void) -> Stream {
        Stream { raw, device, owned: false, one_thread: PhantomData }
    }

    /// Returns the handle: a `cudaStream_t` on nccl.
    pub fn as_raw(&self) -> *mut c_void {
        self.raw
    }

    /// Returns the device that it belongs to.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Waits until everything queued so far has run. `Ok` says nothing about its success: ask
    /// [`Communicator::status`](crate::Communicator::status).
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the stream lives as long as this value; waiting may be done on "Any thread".
        checked(unsafe { sys::trib_stream_wait(self.device.raw(), self.raw) })
    }

    /// Returns whether everything queued so far has run. Never waits.
    pub fn is_done(&self) -> Result<bool> {
        let mut done = 0;
        // SAFETY: the stream lives as long as this value; "Never waits. Any thread."
        checked(unsafe { sys::trib_stream_query(&mut done, self.device.raw(), self.raw) })?;
        Ok(done != 0)
    }

    /// Makes later work on this stream wait for the point that `event` recorded last. The event may
    /// belong to any device of the same backend.
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        check::same_backend(&"Stream::wait_event", event, self)?;
        // SAFETY: both are of one backend and live through the call, and neither is Sync, so no
        // other thread uses them.
        checked(unsafe { sys::trib_stream_wait_event(self.device.raw(), event.as_raw(), self.raw) })
    }

    /// Queues a call of `function`, which a thread of the backend makes in the order of the stream.
    /// `function` must not call anything of this crate that waits, and on nccl no CUDA function. A
    /// panic in it reaches the panic hook and goes no further.
    pub fn submit<F: FnOnce() + Send + 'static>(&self, function: F) -> Result<()> {
        unsafe extern "C" fn call<F: FnOnce() + Send + 'static>(argument: *mut c_void) {
            // SAFETY: `argument` is the box below; the stream calls once.
            let function = unsafe { Box::from_raw(argument.cast::<F>()) };
            swallow(function);
        }
        let argument: *mut c_void = Box::into_raw(Box::new(function)).cast();
        // SAFETY: "Queue a call of `function(argument)`": the closure is Send and 'static, so it
        // may run later and on another thread.
        let status = unsafe {
            sys::trib_stream_submit(self.device.raw(), Some(call::<F>), argument, self.raw)
        };
        checked(status).inspect_err(|_| {
            // SAFETY: a call that fails has queued nothing, so the box is still ours.
            drop(unsafe { Box::from_raw(argument.cast::<F>()) });
        })
    }
}

/// Calls `function` for C, into which nothing may unwind. After a panic, which the hook has
/// reported, it leaks the payload: dropping that could panic again.
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
                // SAFETY: "Wait for the stream, then destroy it": it is ours, and this is the
                // last use. Nobody could handle a failure.
                unsafe { sys::trib_stream_destroy(self.0.raw(), self.1) };
            }
        }
        let parts = Parts(self.device, self.raw);
        if self.is_done().unwrap_or(false) {
            parts.destroy();
        } else {
            // Queued work may wait for a rank that never calls. If no thread can be started, the
            // stream leaks.
            drop(thread::Builder::new().spawn(move || parts.destroy()));
        }
    }
}
