//! Devices, and what a backend says of itself.

use std::ffi::{CStr, CString};
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::ptr;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tributary_sys as sys;

use crate::failure::{argument, check, text, Outcome};
use crate::retired::sweep;
use crate::slices::sliced;
use crate::wait::{milliseconds, Seconds};

/// Device `ordinal` of a backend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place(ptr::NonNull<sys::trib_device>);

// SAFETY: "valid for ever; threads may share it".
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    pub fn get(backend: Option<&CStr>, ordinal: i32) -> Outcome<Place> {
        let mut out = ptr::null_mut();
        let name = backend.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: the name lives through the call; the device is borrowed for ever.
        check(unsafe { sys::trib_device_get(&mut out, name, ordinal) })?;
        Ok(Place(ptr::NonNull::new(out).expect("a call that succeeds has set it")))
    }

    pub fn raw(self) -> *mut sys::trib_device {
        self.0.as_ptr()
    }

    pub fn backend(self) -> &'static str {
        // SAFETY: a device and the name of its backend live for ever.
        unsafe { CStr::from_ptr(sys::trib_device_backend(self.raw())) }.to_str().unwrap_or("?")
    }

    pub fn is_host(self) -> bool {
        self.backend() == "host"
    }

    pub fn ordinal(self) -> i32 {
        // SAFETY: as above.
        unsafe { sys::trib_device_ordinal(self.raw()) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} device {}", self.backend(), self.ordinal())
    }
}

/// A name for C.
pub fn c_string(name: &str, value: Option<String>) -> Outcome<Option<CString>> {
    let refused = |_| argument(format!("`{name}` holds a zero byte; expected a name"));
    value.map(|value| CString::new(value).map_err(refused)).transpose()
}

/// All that this build can be asked about its backends, for `tributary.info`.
#[pyfunction]
pub fn backends(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    // SAFETY: "Any thread" and no object.
    let count = unsafe { sys::trib_backend_count() };
    (0..count).map(|index| describe(py, index)).collect()
}

fn describe(py: Python<'_>, index: i32) -> PyResult<Bound<'_, PyDict>> {
    let (name, devices, can) = py.detach(|| {
        let mut devices = 0;
        let mut can = sys::TRIB_CAPABILITIES_INIT;
        // SAFETY: `index` is below the count, so the name is not NULL; it lives for ever. The places
        // to write to live through the calls, one with its size set.
        let name = unsafe {
            let name = sys::trib_backend_name(index);
            check(sys::trib_backend_devices(&mut devices, name))?;
            check(sys::trib_backend_capabilities(&mut can, name))?;
            text(name)
        };
        Outcome::Ok((name, devices, can))
    })?;
    let all = PyDict::new(py);
    all.set_item("name", name)?;
    all.set_item("version", can.version)?;
    all.set_item("devices", devices)?;
    all.set_item("max_ranks", can.max_ranks)?;
    all.set_item("processes", can.flags & sys::TRIB_CAN_PROCESSES != 0)?;
    all.set_item("host_memory", can.flags & sys::TRIB_CAN_HOST_MEMORY != 0)?;
    all.set_item("graphs", can.flags & sys::TRIB_CAN_CAPTURE != 0)?;
    Ok(all)
}

/// The names of the sparse algorithms, "auto" first.
#[pyfunction]
pub fn sparse_algorithms() -> Vec<String> {
    // SAFETY: "Any thread" and no object; "NULL beyond the last", and each lives for ever.
    (0..)
        .map_while(|index| unsafe {
            let name = sys::trib_sparse_algorithm_name(index);
            (!name.is_null()).then(|| text(name))
        })
        .collect()
}

/// Wait until the library's background work has ended, at most `timeout` seconds: the resources of
/// all communicators that are gone are released, and so are tensors of dropped works that have run.
#[pyfunction]
#[pyo3(signature = (timeout=None))]
pub fn quiesce(py: Python<'_>, timeout: Seconds) -> PyResult<()> {
    let ms = milliseconds("timeout", timeout.or(Some(f64::INFINITY)))?;
    // SAFETY: "Any thread", and no object.
    let waited = sliced(py, ms, || false, |ms| check(unsafe { sys::trib_quiesce(ms) }))?;
    sweep(py);
    Ok(waited?)
}

/// Write the newest calls of all open communicators of this process to the file `path`, as JSON,
/// for the program tributary-blame, which says from the dumps of all processes who is to blame for
/// a hang.
#[pyfunction]
pub fn dump(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    let path = CString::new(path.into_os_string().into_vec())
        .map_err(|_| argument("dump: `path` holds a zero byte; expected the name of a file"))?;
    // SAFETY: "Any thread"; the path lives through the call.
    Ok(py.detach(|| check(unsafe { sys::trib_dump(path.as_ptr()) }))?)
}

/// The version of the C library: 10000 * major + 100 * minor + patch.
#[pyfunction]
pub fn library_version() -> u32 {
    // SAFETY: "Any thread" and no object.
    unsafe { sys::trib_version() }
}

/// The name of a status, such as "TRIB_ERR_ABORTED", and what it means.
#[pyfunction]
pub fn describe_status(status: i32) -> (String, String) {
    let status = sys::trib_status(status);
    // SAFETY: "never NULL, not even for unknown numbers"; they live for ever.
    unsafe { (text(sys::trib_status_name(status)), text(sys::trib_status_message(status))) }
}
