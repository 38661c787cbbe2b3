//! What ranks need to find each other.

use std::ffi::CString;
use std::ptr;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tributary_sys as sys;

use crate::failure::{argument, check};
use crate::place::c_string;

/// The token of a new communicator: one rank makes it, and sends its 128 bytes to the others.
///
/// Keep it secret: who has it can join. `bytes(id)` gives the bytes, `UniqueId(data)` takes them.
///
/// >>> import tributary
/// >>> id = tributary.UniqueId.create(backend="host")
/// >>> tributary.UniqueId(bytes(id)) == id
/// True
/// >>> id
/// <tributary.UniqueId>
#[pyclass(frozen, eq, hash, module = "tributary")]
#[derive(PartialEq, Eq, Hash)]
pub struct UniqueId {
    pub bytes: [u8; 128],
}

#[pymethods]
impl UniqueId {
    #[new]
    fn new(data: &[u8]) -> PyResult<UniqueId> {
        let wrong = |_| argument(format!("UniqueId: {} bytes; expected 128", data.len()));
        Ok(UniqueId { bytes: data.try_into().map_err(wrong)? })
    }

    /// A new id for `backend` (by default the first that has a device).
    #[staticmethod]
    #[pyo3(signature = (*, backend=None))]
    fn create(py: Python<'_>, backend: Option<String>) -> PyResult<UniqueId> {
        let backend: Option<CString> = c_string("backend", backend)?;
        let made = py.detach(|| {
            let mut id = sys::trib_id { bytes: [0; 128] };
            let name = backend.as_ref().map_or(ptr::null(), |name| name.as_ptr());
            // SAFETY: the name and the place to write to live through the call.
            check(unsafe { sys::trib_id_create(&mut id, name) }).map(|()| id)
        });
        Ok(UniqueId { bytes: made?.bytes })
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }

    /// For pickle, by which launchers send it.
    fn __getnewargs__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>,) {
        (self.__bytes__(py),)
    }

    fn __repr__(&self) -> &'static str {
        "<tributary.UniqueId>" // the bytes are a secret
    }
}
