//! Calls that are queued as one.

use std::sync::{Arc, PoisonError};

use pyo3::prelude::*;
use tributary_sys as sys;

use crate::failure::{check, usage};
use crate::owner::Owner;
use crate::queue::end_batch;
use crate::stream::OnStream;
use crate::work::{Queued, Recording, Work};

/// An open batch, from `Communicator.batch`.
#[pyclass(module = "tributary")]
pub struct Batch {
    owner: Arc<Owner>,
    stream: Option<OnStream>,
}

impl Batch {
    pub fn new(owner: &Arc<Owner>, stream: OnStream) -> Batch {
        Batch { owner: Arc::clone(owner), stream: Some(stream) }
    }
}

#[pymethods]
impl Batch {
    fn __enter__(&mut self, py: Python<'_>) -> PyResult<Work> {
        let owner = &self.owner;
        let Some(stream) = self.stream.take() else {
            return Err(usage(format!(
                "{}: it has begun already; make a new one",
                owner.who("batch")
            ))
            .into());
        };
        let turn = owner.turn.take("batch", &**owner)?;
        let comm = owner.raw();
        py.detach(|| {
            let _inside = turn.lock();
            // SAFETY: this thread has the turn; `__exit__` ends it.
            check(unsafe { sys::trib_batch_begin(comm.get().cast()) })
        })?;
        let work = Queued::recording(owner, owner.who("batch"));
        let recording = Recording { work: Arc::clone(&work), stream, kept: Vec::new() };
        *owner.batch.lock().unwrap_or_else(PoisonError::into_inner) = Some(recording);
        Ok(Work { queued: work })
    }

    #[pyo3(signature = (kind, value, traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = (value, traceback);
        end_batch(py, &self.owner, !kind.is_none())
    }
}
