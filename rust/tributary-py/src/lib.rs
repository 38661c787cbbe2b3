//! The native module of the Python package `tributary-ccl`. README.md says how it is built, and why
//! it stands on the raw bindings.

mod abort;
mod batch;
mod call;
mod capture;
mod collectives;
mod communicator;
mod counts;
mod dlpack;
mod event;
mod exports;
mod failure;
mod group;
mod group_call;
mod id;
mod job;
mod lists;
mod options;
mod outcome;
mod owner;
mod place;
mod queue;
mod reducer;
mod retired;
mod slices;
mod sparse;
mod sparse_state;
mod statistics;
mod stream;
mod symmetric;
mod turn;
mod view;
mod wait;
mod work;

use pyo3::prelude::*;

/// Collectives of Tributary; `tributary` is the package around it.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::abort::AbortHandle;
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::communicator::Communicator;
    #[pymodule_export]
    use crate::event::Event;
    #[pymodule_export]
    use crate::group::Group;
    #[pymodule_export]
    use crate::id::UniqueId;
    #[pymodule_export]
    use crate::outcome::Outcome;
    #[pymodule_export]
    use crate::place::{
        backends, describe_status, dump, library_version, quiesce, sparse_algorithms,
    };
    #[pymodule_export]
    use crate::reducer::Reducer;
    #[pymodule_export]
    use crate::sparse::SparseAllReduce;
    #[pymodule_export]
    use crate::stream::Stream;
    #[pymodule_export]
    use crate::symmetric::Symmetric;
    #[pymodule_export]
    use crate::work::Work;

    use super::*;

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::owner::is_forked(); // remembers the process
        Ok(())
    }
}
