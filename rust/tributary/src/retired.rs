//! Buffers of works that were dropped before they had run.
//!
//! Nobody waits for such a work any more. A thread of this crate keeps its buffers until its stream
//! was seen to pass it, and then drops them. A later call of the communicator could do that, too,
//! but calls return at once, and to drop a buffer may take long: cudaFree may wait for everything on
//! its device, and that for a rank that waits for this thread.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::communicator::Shared;
use crate::stream::swallow;
use crate::work::Queued;

struct Retired {
    work: Arc<Queued>,
    /// Of its communicator, which counts it.
    shared: Arc<Shared>,
    buffers: Box<dyn Send>,
}

/// What the thread has not taken yet.
struct Arrivals {
    retired: Vec<Retired>,
    /// Whether there is a thread.
    watched: bool,
}

/// Locked for moments only, and while nothing is dropped: what a buffer drops may come here again.
static ARRIVALS: Mutex<Arrivals> = Mutex::new(Arrivals { retired: Vec::new(), watched: false });
static ARRIVED: Condvar = Condvar::new();

/// How long the thread pauses between two looks, at least and at most.
const PAUSE: [Duration; 2] = [Duration::from_micros(10), Duration::from_millis(1)];

/// Drops `buffers` once the stream was seen to pass `work`, on another thread. Never waits. If no
/// thread can be started, they leak.
pub(crate) fn retire<B: Send + 'static>(work: &Arc<Queued>, shared: &Arc<Shared>, buffers: B) {
    let mut arrivals = arrivals();
    if !arrivals.watched {
        arrivals.watched =
            thread::Builder::new().name("tributary-drop".into()).spawn(watch).is_ok();
    }
    if !arrivals.watched {
        return mem::forget(buffers);
    }
    shared.count_retired();
    let (work, shared) = (Arc::clone(work), Arc::clone(shared));
    arrivals.retired.push(Retired { work, shared, buffers: Box::new(buffers) });
    ARRIVED.notify_one();
}

/// The thread, which never ends.
fn watch() {
    let mut waiting: Vec<Retired> = Vec::new();
    let mut pause = PAUSE[0];
    loop {
        let before = waiting.len();
        waiting.append(&mut take(pause, waiting.is_empty()));
        pause = if waiting.len() > before { PAUSE[0] } else { (2 * pause).min(PAUSE[1]) };
        let (passed, rest): (Vec<_>, _) =
            waiting.into_iter().partition(|retired: &Retired| retired.work.is_passed());
        waiting = rest;
        passed.into_iter().for_each(Retired::release);
    }
}

/// What has arrived, after at most `pause`, or, if `idle`, after something has.
fn take(pause: Duration, idle: bool) -> Vec<Retired> {
    let nothing = |arrivals: &mut Arrivals| arrivals.retired.is_empty();
    let mut arrivals = if idle {
        ARRIVED.wait_while(arrivals(), nothing).unwrap_or_else(PoisonError::into_inner)
    } else {
        let waited = ARRIVED.wait_timeout_while(arrivals(), pause, nothing);
        waited.unwrap_or_else(PoisonError::into_inner).0
    };
    mem::take(&mut arrivals.retired)
}

fn arrivals() -> MutexGuard<'static, Arrivals> {
    ARRIVALS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Retired {
    /// Drops the buffers. A panic of theirs ends neither the thread nor the count.
    fn release(self) {
        swallow(|| drop(self.buffers));
        self.shared.uncount_retired();
    }
}
