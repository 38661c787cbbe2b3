//! A thread for each rank.

use std::any::Any;
use std::fmt::Display;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::{Mutex, PoisonError};
use std::thread;

use tributary_sys as sys;

use crate::abort::AbortHandle;
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::group::Group;

impl Group {
    /// [Split](Group::split) the group and call `rank` with each communicator, on a thread of its own,
    /// which may borrow. What the ranks return comes back in their order.
    ///
    /// A rank that fails or panics would leave the others waiting in a collective that it never
    /// joins. So its thread first aborts the communicator, with the error or the panic's message as
    /// the reason, and the others' calls return. When all threads have ended, the error that came
    /// first is returned, or the first panic goes on.
    ///
    /// ```
    /// use std::error::Error;
    /// use tributary::{Group, Options, Stream};
    /// let group = Group::with_options(4, &Options::new().backend("host"))?;
    /// let result = group.run(|comm| -> Result<(), Box<dyn Error + Send + Sync>> {
    ///     if comm.rank() == 2 {
    ///         return Err("the disk is full".into());
    ///     }
    ///     let stream = Stream::new(comm.device())?;
    ///     comm.scope(&stream, |s| s.barrier())?; // does not wait for rank 2 for ever
    ///     Ok(())
    /// });
    /// assert_eq!(result.unwrap_err().to_string(), "the disk is full");
    /// # Ok::<(), tributary::Error>(())
    /// ```
    pub fn run<T, E>(
        self,
        rank: impl Fn(&mut Communicator) -> Result<T, E> + Sync,
    ) -> Result<Vec<T>, E>
    where
        T: Send,
        E: From<Error> + Display + Send,
    {
        let abort = self.abort_handle();
        let failures = Failures { abort, first: Mutex::new((None, None)) };
        let comms = self.split()?;
        let values: Vec<Option<T>> = thread::scope(|scope| {
            let mut threads = Vec::with_capacity(comms.len());
            for comm in comms {
                let name = format!("rank {}", comm.rank());
                let run = || failures.watch(comm, &rank);
                match thread::Builder::new().name(name).spawn_scoped(scope, run) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        let detail = format!("no thread for a rank: {error}");
                        failures.error(0, Error::new(sys::TRIB_ERR_SYSTEM, detail).into());
                        break;
                    }
                }
            }
            threads.into_iter().map(|thread| thread.join().unwrap_or(None)).collect()
        });
        match failures.first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            (_, Some(panic)) => resume_unwind(panic),
            (Some(error), None) => Err(error),
            (None, None) => Ok(values.into_iter().flatten().collect()),
        }
    }
}

type Panic = Box<dyn Any + Send>;

/// What went wrong first, before what that has brought about.
struct Failures<E> {
    abort: AbortHandle,
    /// Held while the abort is raised, so that nobody fails of it before it is noted.
    first: Mutex<(Option<E>, Option<Panic>)>,
}

impl<E: Display> Failures<E> {
    /// One rank, from beginning to end. The communicator goes after the abort, or it would close
    /// first.
    fn watch<T>(
        &self,
        mut comm: Communicator,
        rank: impl Fn(&mut Communicator) -> Result<T, E>,
    ) -> Option<T> {
        let number = comm.rank();
        match catch_unwind(AssertUnwindSafe(|| rank(&mut comm))) {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(error)) => self.error(number, error),
            Err(panic) => self.panic(number, panic),
        }
        None
    }

    fn error(&self, rank: usize, error: E) {
        let reason = format!("rank {rank} failed: {error}");
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.0.get_or_insert(error);
        self.abort.abort(&reason);
    }

    fn panic(&self, rank: usize, panic: Panic) {
        let reason = format!("rank {rank} panicked: {}", message(&*panic));
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.1.get_or_insert(panic);
        self.abort.abort(&reason);
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("with no message")
}
