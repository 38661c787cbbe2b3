//! Communicators of jobs that a launcher has started.

use std::ptr;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tributary_sys as sys;

use crate::communicator::{Communicator, New};
use crate::failure::{check, usage};
use crate::options::Options;

#[pymethods]
impl Communicator {
    /// The communicator of all processes of this job, as torchrun, mpirun (Open MPI, MPICH) or srun
    /// have started it: rank, size, device and where the ranks meet are in the environment, and
    /// `trib_job_read` in tributary.h says in which variables. Every process of the job calls it.
    /// Keywords: those of Group.
    #[staticmethod]
    #[pyo3(signature = (**options))]
    fn from_env(py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Communicator> {
        let options = Options::new("Communicator.from_env", options)?;
        let made = py.detach(|| {
            let mut out = ptr::null_mut();
            // SAFETY: the options live through the call; `*out` is given away.
            check(unsafe { sys::trib_comm_from_env(&mut out, &options.raw()) })?;
            New(out).own()
        })?;
        made.ok_or_else(|| usage("Communicator.from_env: none was made").into())
    }
}
