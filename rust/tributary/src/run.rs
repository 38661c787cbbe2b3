//! A thread for each rank.

use std::any::Any;
use std::cell::RefCell;
use std::fmt::Display;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};

use tributary_sys as sys;

use crate::abort::AbortHandle;
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::group::Group;

impl Group {
    /// [Splits](Group::split) the group and calls `rank` with each communicator, on its own thread,
    /// which may borrow. Returns the ranks' values in rank order.
    ///
    /// A rank that fails or panics would leave the others waiting in a collective that it never
    /// joins. So its thread first aborts the communicator, with the error or the panic's message as
    /// the reason, and the others' calls return. When all threads have ended, `run` returns the
    /// first error or resumes the first panic, and drops the errors and panics of other ranks that
    /// followed from it.
    ///
    /// If a rank fails or panics inside a [`scope`](Communicator::scope) whose calls the others
    /// have not joined, the scope aborts after a second, with the rank in the reason. A panic that
    /// `rank` itself catches leaves the communicator usable if all queued work could run.
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
        let culprit = Arc::new(Culprit(AtomicUsize::new(NOBODY)));
        let failures = Failures { abort, culprit, first: Mutex::new(None) };
        let comms = self.split()?;
        let values = thread::scope(|scope| {
            let threads = failures.spawn(scope, comms, &rank);
            failures.join(threads)
        });
        match failures.first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, Failure::Panic(panic))) => resume_unwind(panic),
            Some((_, Failure::Error(error))) => Err(error),
            None => Ok(values.into_iter().flatten().collect()),
        }
    }
}

pub(crate) type Panic = Box<dyn Any + Send>;

/// How a rank failed.
enum Failure<E> {
    Error(E),
    Panic(Panic),
}

/// The first failure, without those that followed from it.
struct Failures<E> {
    abort: AbortHandle,
    culprit: Arc<Culprit>,
    /// Locked while the abort is raised, so that no failure that follows is recorded first.
    first: Mutex<Option<(usize, Failure<E>)>>,
}

/// The first rank that gave a reason to abort, or `NOBODY`.
struct Culprit(AtomicUsize);

const NOBODY: usize = usize::MAX;

impl Culprit {
    /// Whether `rank` is the first; it becomes the first if there is none yet.
    fn is(&self, rank: usize) -> bool {
        let first = self.0.compare_exchange(NOBODY, rank, Ordering::AcqRel, Ordering::Acquire);
        first.is_ok() || first == Err(rank)
    }
}

thread_local! {
    /// The rank that runs on this thread.
    static RANK: RefCell<Option<(Arc<Culprit>, usize)>> = const { RefCell::new(None) };
}

/// Marks this thread's rank as the first to fail, before it aborts a communicator: the failures of
/// other ranks that follow reach [`Group::run`] earlier than its own.
pub(crate) fn blame() {
    RANK.with_borrow(|rank| {
        if let Some((culprit, rank)) = rank {
            culprit.is(*rank);
        }
    });
}

impl<E: Display + Send + From<Error>> Failures<E> {
    /// A thread for each rank, until the system has none left.
    fn spawn<'scope, T: Send + 'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        comms: Vec<Communicator>,
        rank: &'scope (impl Fn(&mut Communicator) -> Result<T, E> + Sync),
    ) -> Vec<ScopedJoinHandle<'scope, Option<T>>> {
        let mut threads = Vec::with_capacity(comms.len());
        for comm in comms {
            let name = format!("rank {}", comm.rank());
            let run = move || self.watch(comm, rank);
            match thread::Builder::new().name(name).spawn_scoped(scope, run) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    let detail = format!("no thread for a rank: {error}");
                    self.error(0, Error::new(sys::TRIB_ERR_SYSTEM, detail).into());
                    break;
                }
            }
        }
        threads
    }

    /// The value of each rank; `None` if it failed.
    fn join<T>(&self, threads: Vec<ScopedJoinHandle<'_, Option<T>>>) -> Vec<Option<T>> {
        let join = |(rank, thread): (usize, ScopedJoinHandle<'_, Option<T>>)| {
            // A value that the thread dropped after the rank's own end may have panicked.
            thread.join().unwrap_or_else(|panic| {
                self.panic(rank, panic);
                None
            })
        };
        threads.into_iter().enumerate().map(join).collect()
    }
}

impl<E: Display> Failures<E> {
    /// Runs one rank. Drops the communicator after the abort: its drop would close it first.
    fn watch<T>(
        &self,
        mut comm: Communicator,
        rank: impl Fn(&mut Communicator) -> Result<T, E>,
    ) -> Option<T> {
        let number = comm.rank();
        RANK.set(Some((Arc::clone(&self.culprit), number)));
        match catch_unwind(AssertUnwindSafe(|| rank(&mut comm))) {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(error)) => self.error(number, error),
            Err(panic) => self.panic(number, panic),
        }
        None
    }

    fn error(&self, rank: usize, error: E) {
        // The caller's `Display` may panic.
        match catch_unwind(AssertUnwindSafe(|| format!("rank {rank} failed: {error}"))) {
            Ok(reason) => self.note(rank, Failure::Error(error), &reason),
            Err(panic) => self.panic(rank, panic),
        }
    }

    fn panic(&self, rank: usize, panic: Panic) {
        let reason = format!("rank {rank} panicked: {}", message(&*panic));
        self.note(rank, Failure::Panic(panic), &reason);
    }

    fn note(&self, rank: usize, failure: Failure<E>, reason: &str) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let noted = first.as_ref().map(|(rank, _)| *rank);
        let is_culprit = self.culprit.is(rank);
        if noted.is_none() || (is_culprit && noted != Some(rank)) {
            *first = Some((rank, failure));
        }
        self.abort.abort(reason);
    }
}

pub(crate) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("with no message")
}
