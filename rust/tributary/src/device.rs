//! Devices, which hold a rank's memory and streams.

use std::fmt;
use std::ptr::{self, NonNull};

use tributary_sys as sys;

use crate::error::{c_string, check, number, text, Result};
use crate::memory::Memory;

/// A device of a backend: a GPU, or one of the 64 devices of the host backend.
///
/// ```
/// let device = tributary::Device::get("host", 1)?;
/// assert_eq!(device.to_string(), "host:1");
/// # Ok::<(), tributary::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device(NonNull<sys::trib_device>);

// SAFETY: trib_device_get: "valid for ever; threads may share it".
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Returns device `ordinal` of `backend`: a [`Backend`](crate::Backend) or its name.
    pub fn get(backend: impl AsRef<str>, ordinal: usize) -> Result<Device> {
        Device::find(Some(backend.as_ref()), ordinal)
    }

    /// Returns device `ordinal` of the first backend that has one.
    pub fn any(ordinal: usize) -> Result<Device> {
        Device::find(None, ordinal)
    }

    fn find(backend: Option<&str>, ordinal: usize) -> Result<Device> {
        let name = backend.map(|name| c_string("backend", name)).transpose()?;
        let name = name.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        let mut raw = ptr::null_mut();
        // SAFETY: both pointers live through the call; a NULL name is "the first backend that has
        // such a device".
        check(unsafe { sys::trib_device_get(&mut raw, name, number("ordinal", ordinal)?) })?;
        // SAFETY: a call that succeeds has set `*out`.
        Ok(Device(unsafe { NonNull::new_unchecked(raw) }))
    }

    /// Returns the name of its backend.
    pub fn backend(self) -> &'static str {
        // SAFETY: the device lives for ever, and so does the name of its backend.
        unsafe { text(sys::trib_device_backend(self.0.as_ptr())) }
    }

    /// Returns its number among the devices of its backend.
    pub fn ordinal(self) -> usize {
        // SAFETY: the device lives for ever; ordinals are not negative.
        unsafe { sys::trib_device_ordinal(self.0.as_ptr()) as usize }
    }

    /// Returns what all communicators of this process hold on it, including those that were dropped
    /// while queued work still used their memory.
    pub fn memory(self) -> Result<Memory> {
        let mut raw = sys::TRIB_MEMORY_INIT;
        // SAFETY: `raw` lives through the call, with its size set; the device lives for ever. "Any
        // thread."
        check(unsafe { sys::trib_device_memory(&mut raw, self.0.as_ptr()) })?;
        Ok(raw.into())
    }

    pub(crate) fn raw(self) -> *mut sys::trib_device {
        self.0.as_ptr()
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.backend(), self.ordinal())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}
