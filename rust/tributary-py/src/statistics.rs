//! Statistics of C as a dict: of a sparse state, or of all buckets of a reducer.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tributary_sys as sys;

use crate::failure::text;

pub struct Statistics {
    algorithm: String,
    reason: String,
    numbers: sys::trib_sparse_statistics,
}

// SAFETY: the strings of C are copied, and those of `numbers` are not looked at any more.
unsafe impl Send for Statistics {}

impl Statistics {
    /// # Safety
    /// `raw` was filled by C, and what its strings belong to is alive.
    pub unsafe fn new(raw: sys::trib_sparse_statistics) -> Statistics {
        // SAFETY: see above.
        let (algorithm, reason) = unsafe { (text(raw.algorithm), text(raw.reason)) };
        Statistics { algorithm, reason, numbers: raw }
    }

    pub fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (raw, all) = (&self.numbers, PyDict::new(py));
        all.set_item("algorithm", &self.algorithm)?;
        all.set_item("reason", &self.reason)?;
        for (name, value) in [
            ("count", raw.count),
            ("k", raw.k),
            ("calls", raw.calls),
            ("calls_applied", raw.calls_applied),
            ("calls_non_finite", raw.calls_non_finite),
            ("selected", raw.selected),
            ("applied", raw.applied),
            ("total_selected", raw.total_selected),
            ("total_applied", raw.total_applied),
            ("words_sent", raw.words_sent),
            ("words_received", raw.words_received),
            ("bytes_sent", raw.bytes_sent),
            ("bytes_received", raw.bytes_received),
            ("fallbacks", raw.fallbacks),
        ] {
            all.set_item(name, value)?;
        }
        all.set_item("residual_norm", Some(raw.residual_norm).filter(|&norm| norm != -1.0))?;
        Ok(all)
    }
}
