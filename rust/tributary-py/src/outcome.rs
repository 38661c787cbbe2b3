//! The word of a reducer that says whether its newest step was applied.

use std::sync::Arc;

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::reducer::ReducerState;

/// One number in memory of the device: 1 after a step that was applied on this rank, 0 after one
/// that was not, so that work on a GPU can depend on it without a wait of the host.
///
/// Read it on the stream of `Reducer.finish`. On nccl it has `__cuda_array_interface__`, on host
/// `__array_interface__`: `torch.as_tensor(reducer.outcome, device="cuda")`, for example.
#[pyclass(frozen, module = "tributary")]
pub struct Outcome {
    state: Arc<ReducerState>,
}

impl Outcome {
    pub fn new(state: &Arc<ReducerState>) -> Outcome {
        Outcome { state: Arc::clone(state) }
    }

    fn interface<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        exists: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        if !exists {
            let place = self.state.place();
            return Err(PyAttributeError::new_err(format!("an outcome on {place} has no {name}")));
        }
        let interface = PyDict::new(py);
        interface.set_item("shape", (1,))?;
        // It is unsigned, but torch has had such a type only since 2.3.
        interface.set_item("typestr", "<i4")?;
        // Not to be written; but torch takes no memory on GPUs of which that is said.
        let read_only = self.state.place().is_host();
        interface.set_item("data", (self.state.outcome() as usize, read_only))?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }
}

#[pymethods]
impl Outcome {
    #[getter(__cuda_array_interface__)]
    fn cuda_array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.interface(py, "__cuda_array_interface__", !self.state.place().is_host())
    }

    #[getter(__array_interface__)]
    fn array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.interface(py, "__array_interface__", self.state.place().is_host())
    }
}
