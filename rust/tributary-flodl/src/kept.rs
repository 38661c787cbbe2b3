//! Tensors that queued work uses.
//!
//! A call returns before its work has run, and nothing stops a program from dropping the tensors
//! that it passed. So a clone of each is kept until the stream has passed the call.

use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use tributary::{ErrorKind, Event, Stream};

/// How long a drop waits for queued work. The communicator was closed or aborted before, so the
/// work ends soon, unless something else holds the stream.
const PATIENCE: Duration = Duration::from_secs(5);

/// The tensors of queued calls.
pub(crate) struct Kept<T>(Vec<Call<T>>);

struct Call<T> {
    /// Behind the call on its stream.
    event: Event,
    tensors: Vec<T>,
}

impl<T> Kept<T> {
    pub(crate) fn new() -> Kept<T> {
        Kept(Vec::new())
    }

    /// Keeps `tensors` until `stream` has passed this point, and releases what others have passed.
    /// If the end of the work cannot be known, leaks them.
    pub(crate) fn add(&mut self, stream: &Stream, tensors: Vec<T>) {
        self.0.retain(|call| !call.passed());
        let recorded = Event::new(stream.device()).and_then(|mut event| {
            event.record(stream)?;
            Ok(event)
        });
        match recorded {
            Ok(event) => self.0.push(Call { event, tensors }),
            Err(_) => mem::forget(tensors),
        }
    }
}

impl<T> Call<T> {
    /// Whether the work has run, or never will: only a device that failed runs nothing any more.
    fn passed(&self) -> bool {
        self.event.is_done().unwrap_or_else(|error| error.kind() == ErrorKind::Cuda)
    }
}

/// Waits for the calls, at most as long as `PATIENCE`, and leaks what may still be used.
impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        let end = Instant::now() + PATIENCE;
        loop {
            self.0.retain(|call| !call.passed());
            if self.0.is_empty() {
                return;
            }
            if Instant::now() >= end {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        for call in self.0.drain(..) {
            mem::forget(call.tensors);
        }
    }
}
