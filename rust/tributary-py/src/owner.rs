//! A communicator of C, and all that lives no longer than it.

use std::ffi::CStr;
use std::fmt;
use std::process;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use pyo3::prelude::*;
use tributary_sys as sys;

use crate::abort::Abort;
use crate::failure::{check, text, Outcome};
use crate::place::Place;
use crate::stream::{Address, OnStream};
use crate::turn::Turn;
use crate::work::{Last, Recording};

/// Owns a `trib_comm`. Sparse states and reducers hold it too, and share its turn: "`comm` must
/// outlive the state". Works do not: they need its abort handle only.
pub struct Owner {
    comm: NonNull<sys::trib_comm>,
    pub turn: Turn,
    pub abort: Abort,
    pub rank: i32,
    pub size: i32,
    pub place: Place,
    /// The newest weighted average.
    pub last_average: Last,
    /// Whether the caller has closed it.
    pub closed: AtomicBool,
    /// The open batch.
    pub batch: Mutex<Option<Recording>>,
}

// SAFETY: the communicator is used through `turn` only, by one thread at a time, but for
// trib_reducer_ready ("any thread, several at once"), which shares the turn.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Owner {
    /// # Safety
    /// `comm` is alive, is given away, and no other thread uses it.
    pub unsafe fn new(comm: NonNull<sys::trib_comm>) -> Outcome<Arc<Owner>> {
        // SAFETY: the caller's promise; the name of the backend lives for ever.
        let made = unsafe {
            let raw = comm.as_ptr();
            Abort::new(|out| sys::trib_comm_abort_handle(out, raw)).and_then(|abort| {
                let backend = CStr::from_ptr(sys::trib_comm_backend(raw));
                Ok(Owner {
                    comm,
                    turn: Turn::default(),
                    abort,
                    rank: sys::trib_comm_rank(raw),
                    size: sys::trib_comm_size(raw),
                    place: Place::get(Some(backend), sys::trib_comm_device(raw))?,
                    last_average: Last::default(),
                    closed: AtomicBool::new(false),
                    batch: Mutex::default(),
                })
            })
        };
        made.map(Arc::new).inspect_err(|_| {
            // SAFETY: it was given away, and nobody else has it.
            unsafe { sys::trib_comm_destroy(comm.as_ptr()) };
        })
    }

    /// Calls C without the GIL, in this thread's turn.
    pub fn call<T: Send>(
        &self,
        py: Python<'_>,
        operation: &str,
        function: impl FnOnce(*mut sys::trib_comm) -> Outcome<T> + Send,
    ) -> PyResult<T> {
        let turn = self.turn.take(operation, self)?;
        let called = py.detach(|| {
            let _inside = turn.lock();
            function(self.comm.as_ptr())
        });
        Ok(called?)
    }

    /// The same on a stream, whose turn it takes, too.
    pub fn call_on<T: Send>(
        &self,
        py: Python<'_>,
        operation: &str,
        stream: &OnStream,
        function: impl FnOnce(*mut sys::trib_comm) -> Outcome<T> + Send,
    ) -> PyResult<T> {
        let _stream = stream.take(operation)?;
        self.call(py, operation, function)
    }

    /// For trib_reducer_ready, several of which may run beside each other.
    pub fn share_on<T: Send>(
        &self,
        py: Python<'_>,
        operation: &str,
        stream: &OnStream,
        function: impl FnOnce() -> Outcome<T> + Send,
    ) -> PyResult<T> {
        let _stream = stream.take(operation)?;
        let turn = self.turn.share(operation, self)?;
        let called = py.detach(|| {
            let _inside = turn.lock();
            function()
        });
        Ok(called?)
    }

    /// A look that takes no turn, for threads that wait for a work. Without the GIL. `None` while a
    /// call has the communicator.
    pub fn peek<T>(&self, function: impl FnOnce(*mut sys::trib_comm) -> T) -> Option<T> {
        let _inside = self.turn.peek()?;
        Some(function(self.comm.as_ptr()))
    }

    /// For calls that take the turns themselves.
    pub fn raw(&self) -> Address {
        Address(self.comm.as_ptr().cast())
    }

    /// "allreduce on rank 1 (host device 1)".
    pub fn who(&self, operation: &str) -> String {
        format!("{operation} on rank {} ({})", self.rank, self.place)
    }

    pub fn name(&self) -> String {
        // SAFETY: "valid as long as `comm`"; it is copied at once, and never changes.
        unsafe { text(sys::trib_comm_name(self.comm.as_ptr())) }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the communicator of rank {} ({})", self.rank, self.place)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let comm = Alone(self.comm);
        without_gil(move || {
            // SAFETY: this is the last use. "Never blocks for ever"; nobody could handle a failure.
            let _ = check(unsafe { sys::trib_comm_destroy(comm.get()) });
        });
    }
}

/// A communicator that nobody else has any more.
struct Alone(NonNull<sys::trib_comm>);

// SAFETY: one thread at a time has it.
unsafe impl Send for Alone {}

impl Alone {
    fn get(&self) -> *mut sys::trib_comm {
        self.0.as_ptr()
    }
}

/// Calls what may wait for other threads, which may need the GIL, without it: for drops, which have
/// it or not. Not in a forked child: what its parent made is not the child's to end, and locks that
/// a thread of the parent held stay locked there.
pub fn without_gil(function: impl FnOnce() + Send) {
    if is_forked() {
        return;
    }
    let mut function = Some(function);
    Python::try_attach(|py| py.detach(|| function.take().map(|function| function())));
    if let Some(function) = function {
        function(); // the interpreter is ending
    }
}

/// The process that has imported the module.
static HOME: OnceLock<u32> = OnceLock::new();

/// Whether this is a child of the process that has imported the module. The import asks first.
pub fn is_forked() -> bool {
    *HOME.get_or_init(process::id) != process::id()
}
