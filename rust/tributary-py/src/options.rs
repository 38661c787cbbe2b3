//! Keywords of Python as options of C.

use std::ffi::{c_char, CString};
use std::ptr;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tributary_sys as sys;

use crate::failure::{argument, Outcome};
use crate::place::c_string;
use crate::view::dtype_of;
use crate::wait::milliseconds;

/// Keywords that are taken one by one; what is left at the end is a mistake.
pub struct Keywords<'py> {
    function: &'static str,
    left: Option<Bound<'py, PyDict>>,
}

impl<'py> Keywords<'py> {
    pub fn new(function: &'static str, given: Option<&Bound<'py, PyDict>>) -> PyResult<Self> {
        Ok(Keywords { function, left: given.map(|given| given.copy()).transpose()? })
    }

    pub fn take<T>(&self, name: &str) -> PyResult<Option<T>>
    where
        T: for<'a> FromPyObject<'a, 'py>,
    {
        let Some(left) = &self.left else { return Ok(None) };
        let Some(found) = left.get_item(name)? else { return Ok(None) };
        left.del_item(name)?;
        if found.is_none() {
            return Ok(None);
        }
        found.extract().map(Some).map_err(|error: <T as FromPyObject<'_, 'py>>::Error| {
            let error: PyErr = error.into();
            PyTypeError::new_err(format!("{}: `{name}` is {found:?}: {error}", self.function))
        })
    }

    /// A number above 0, for which C takes 0 as its default: who passes a 0 means something else.
    fn above_0(&self, name: &str) -> PyResult<f64> {
        match self.take::<f64>(name)? {
            Some(number) if number <= 0.0 || number.is_nan() => Err(argument(format!(
                "{}: `{name}` is {number}; expected a number above 0, or None for the default",
                self.function
            ))
            .into()),
            number => Ok(number.unwrap_or(0.0)),
        }
    }

    pub fn flag(&self, name: &str, bit: u32) -> PyResult<u32> {
        Ok(if self.take::<bool>(name)?.unwrap_or(false) { bit } else { 0 })
    }

    /// Of a keyword that is true unless it says else.
    pub fn unless(&self, name: &str, bit: u32) -> PyResult<u32> {
        Ok(if self.take::<bool>(name)?.unwrap_or(true) { 0 } else { bit })
    }

    pub fn finish(self) -> PyResult<()> {
        let Some(name) = self.left.and_then(|left| left.keys().iter().next()) else {
            return Ok(());
        };
        Err(PyTypeError::new_err(format!("{}: there is no keyword `{name}`", self.function)))
    }
}

fn pointer(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}

/// `trib_options`, with its strings.
pub struct Options {
    raw: sys::trib_options,
    backend: Option<CString>,
    network: Option<CString>,
    name: Option<CString>,
}

// SAFETY: the pointers in `raw` are NULL; `raw()` sets those of what it returns.
unsafe impl Send for Options {}
// SAFETY: as above.
unsafe impl Sync for Options {}

impl Options {
    pub fn new(function: &'static str, given: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
        let keywords = Keywords::new(function, given)?;
        let ms = |name: &str| PyResult::Ok(milliseconds(name, keywords.take(name)?)?);
        let text = |name: &str| PyResult::Ok(c_string(name, keywords.take(name)?)?);
        let mut raw = sys::TRIB_OPTIONS_INIT;
        raw.flags = keywords.flag("match_calls", sys::TRIB_MATCH)?
            | keywords.flag("compared", sys::TRIB_COMPARED)?
            | keywords.flag("timed", sys::TRIB_TIMED)?
            | keywords.unless("recorded", sys::TRIB_UNRECORDED)?
            | keywords.unless("side_channel", sys::TRIB_NO_SIDE_CHANNEL)?
            | windows(keywords.take("windows")?)?;
        raw.timeout_ms = ms("timeout")?;
        raw.close_timeout_ms = ms("close_timeout")?;
        raw.call_timeout_ms = ms("call_timeout")?;
        raw.min_ctas = keywords.take("min_ctas")?.unwrap_or(0);
        raw.max_ctas = keywords.take("max_ctas")?.unwrap_or(0);
        raw.cta_policy = cta_policy(keywords.take("cta_policy")?)?;
        raw.peer_bytes = match keywords.take::<Option<u64>>("peer_bytes")?.flatten() {
            None => 0,
            Some(0) => sys::TRIB_NO_PEERS.into(), // 0 is the default in C
            Some(bytes) => bytes,
        };
        let (backend, network, name) = (text("backend")?, text("network")?, text("name")?);
        keywords.finish()?;
        Ok(Options { raw, backend, network, name })
    }

    /// Valid as long as `self`.
    pub fn raw(&self) -> sys::trib_options {
        sys::trib_options {
            backend: pointer(&self.backend),
            network: pointer(&self.network),
            name: pointer(&self.name),
            ..self.raw
        }
    }
}

fn cta_policy(name: Option<String>) -> Outcome<sys::trib_cta_policy> {
    match name.as_deref() {
        None | Some("default") => Ok(sys::TRIB_CTA_DEFAULT),
        Some("efficiency") => Ok(sys::TRIB_CTA_EFFICIENCY),
        Some("zero") => Ok(sys::TRIB_CTA_ZERO),
        Some(other) => Err(argument(format!(
            "`cta_policy` is {other:?}; expected \"default\", \"efficiency\" or \"zero\""
        ))),
    }
}

fn windows(name: Option<String>) -> Outcome<u32> {
    match name.as_deref() {
        None => Ok(0),
        Some("abortable") => Ok(sys::TRIB_WINDOWS),
        Some("unabortable") => Ok(sys::TRIB_WINDOWS | sys::TRIB_WINDOWS_UNABORTABLE),
        Some(other) => Err(argument(format!(
            "`windows` is {other:?}; expected \"abortable\", \"unabortable\" or None"
        ))),
    }
}

/// `trib_sparse_options`, with its strings.
pub struct SparseOptions {
    raw: sys::trib_sparse_options,
    algorithm: Option<CString>,
    constants: Option<CString>,
}

// SAFETY: as of Options.
unsafe impl Send for SparseOptions {}
// SAFETY: as above.
unsafe impl Sync for SparseOptions {}

impl SparseOptions {
    pub fn new(
        function: &'static str,
        given: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<SparseOptions> {
        let keywords = Keywords::new(function, given)?;
        let mut raw = sys::TRIB_SPARSE_OPTIONS_INIT;
        let (k, density) = (keywords.take("k")?, keywords.above_0("density")?);
        if k.is_some() && density != 0.0 {
            return Err(argument(format!(
                "{function}: `k` and `density` are both given; expected one of them"
            ))
            .into());
        }
        raw.flags = keywords.flag("average", sys::TRIB_SPARSE_AVERAGE)?
            | keywords.flag("entries", sys::TRIB_SPARSE_ENTRIES)?
            | keywords.flag("in_place", sys::TRIB_SPARSE_IN_PLACE)?
            | keywords.flag("f32_result", sys::TRIB_SPARSE_F32_RESULT)?
            | keywords.unless("masking", sys::TRIB_SPARSE_NO_MASKING)?
            | k.map_or(0, |_| sys::TRIB_SPARSE_USE_K);
        raw.k = k.unwrap_or(0);
        raw.density = density;
        raw.decay = keywords.above_0("decay")?;
        if let Some(wire) = keywords.take::<String>("wire")? {
            raw.wire = dtype_of(&wire, "wire")?;
        }
        raw.chunk = keywords.take("chunk")?.unwrap_or(0);
        raw.norm_every = keywords.take("norm_every")?.unwrap_or(0);
        raw.momentum = keywords.take("momentum")?.unwrap_or(0.0);
        raw.clip_norm = keywords.above_0("clip_norm")?;
        let algorithm = c_string("algorithm", keywords.take("algorithm")?)?;
        let constants = c_string("constants", keywords.take("constants")?)?;
        keywords.finish()?;
        Ok(SparseOptions { raw, algorithm, constants })
    }

    pub fn has(&self, flag: u32) -> bool {
        self.raw.flags & flag != 0
    }

    /// Valid as long as `self`.
    pub fn raw(&self) -> sys::trib_sparse_options {
        sys::trib_sparse_options {
            algorithm: pointer(&self.algorithm),
            constants: pointer(&self.constants),
            ..self.raw
        }
    }
}
