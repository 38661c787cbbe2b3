//! Ranks for tests: threads, on the backend that TRIBUTARY_TEST_BACKEND names (host, if it is not
//! set). A test that needs more ranks than there are devices says so and passes.
#![allow(dead_code)] // each test file uses its part

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tributary::{
    Backend, Communicator, Device, DeviceVec, Element, Group, InPlace, Options, ReduceOp, Result,
    Stream,
};

pub fn backend() -> String {
    std::env::var("TRIBUTARY_TEST_BACKEND").unwrap_or_else(|_| "host".into())
}

pub fn on_host() -> bool {
    backend() == "host"
}

/// On nccl without the comparison of calls, for which a rank would wait inside the call: so that the
/// tests of aborts find it waiting on the stream. The default is tested in errors.rs.
pub fn options() -> Options {
    let options = Options::new().backend(backend());
    // SAFETY: in every test the ranks make the same calls; one where they do not compares them.
    unsafe { options.assume_matching_calls() }
}

/// Say that a test does nothing, even where the harness captures what tests print.
pub fn skip(why: &str) {
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {name}: {why}");
}

/// The program of an example. Cargo builds the examples before it runs all tests.
pub fn example(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples").join(name);
    if !program.exists() {
        skip("the example is not built: cargo test without --test builds it");
        return None;
    }
    Some(program)
}

/// Whether there are `wanted` devices.
pub fn have(wanted: usize) -> bool {
    let found = Backend::find(backend()).map_or(0, |backend| backend.devices().unwrap_or(0));
    if found < wanted {
        skip(&format!("needs {wanted} devices of {}, found {found}", backend()));
    }
    found >= wanted
}

pub fn device(ordinal: usize) -> Device {
    Device::get(backend(), ordinal).unwrap()
}

/// GPUs are used by one test at a time: collectives of two communicators on one GPU may wait for
/// each other. The lock guards nothing else.
pub fn alone() -> Option<MutexGuard<'static, ()>> {
    static LOCK: Mutex<()> = Mutex::new(());
    (!on_host()).then(|| LOCK.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Make the first collectives together: on nccl the first one of a kind and size class waits for its
/// peers inside the call, and not on the stream. Every rank calls this.
pub fn warm_up(comm: &mut Communicator, stream: &Stream) {
    let mut list = vec![DeviceVec::from_slice(comm.device(), &[1.0_f32; 500]).unwrap()];
    for count in [10, 1000] {
        let mut buffer = DeviceVec::from_slice(comm.device(), &vec![1.0_f32; count]).unwrap();
        comm.scope(stream, |s| s.allreduce(InPlace, &mut buffer, ReduceOp::Sum)).unwrap();
    }
    comm.scope(stream, |s| s.allreduce_list(&mut list, ReduceOp::Sum)).unwrap();
    comm.barrier(stream).unwrap();
    stream.wait().unwrap();
}

/// [`warm_up`] on all of them.
pub fn warm_up_all(comms: &mut [Communicator]) {
    thread::scope(|threads| {
        for comm in comms {
            threads.spawn(move || {
                let stream = Stream::new(comm.device()).unwrap();
                warm_up(comm, &stream);
            });
        }
    });
}

/// Run `rank` on `size` ranks, a thread each, and wait for all. One that panics aborts the others.
pub fn ranks(size: usize, rank: impl Fn(&mut Communicator, &Stream) + Sync) {
    ranks_with(size, &options(), rank);
}

pub fn ranks_with(
    size: usize,
    options: &Options,
    rank: impl Fn(&mut Communicator, &Stream) + Sync,
) {
    if !have(size) {
        return;
    }
    let _alone = alone();
    let run = |comm: &mut Communicator| -> Result<()> {
        let stream = Stream::new(comm.device())?;
        rank(comm, &stream);
        Ok(())
    };
    Group::with_options(size, options).unwrap().run(run).unwrap();
}

/// Be there, and make no call, until another rank aborts: who returned would have left, and calls of
/// the others would be refused before they wait for anybody.
pub fn stay_until_aborted(comm: &Communicator) {
    let (handle, start) = (comm.abort_handle(), Instant::now());
    while !handle.is_aborted() {
        assert!(start.elapsed() < Duration::from_secs(20), "nobody aborts");
        thread::sleep(Duration::from_millis(1));
    }
}

/// `values` on the device of `comm`.
pub fn vec_on<T: Element>(comm: &Communicator, values: &[T]) -> DeviceVec<T> {
    DeviceVec::from_slice(comm.device(), values).unwrap()
}

/// The content of a buffer.
pub fn get<T: Element>(buffer: &DeviceVec<T>) -> Vec<T> {
    let stream = Stream::new(buffer_device(buffer)).unwrap();
    buffer.download(&stream).unwrap()
}

fn buffer_device<T: Element>(buffer: &DeviceVec<T>) -> Device {
    tributary::DeviceBuffer::device(buffer).unwrap()
}

/// The error of a call that must fail.
pub fn error_of<T>(result: Result<T>) -> tributary::Error {
    match result {
        Ok(_) => panic!("a call succeeded that must fail"),
        Err(error) => error,
    }
}

/// Counts its drops.
#[derive(Debug)]
pub struct Counted(pub Arc<AtomicUsize>, pub DeviceVec<f32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Holds `stream` until it is dropped, so that a panic leaves no stream waiting.
pub fn hold(stream: &Stream) -> mpsc::Sender<()> {
    let (gate, opened) = mpsc::channel::<()>();
    let wait = move || assert!(opened.recv().is_err(), "nobody sends");
    stream.submit(wait).unwrap();
    gate
}

/// Waits until `what` is true.
pub fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
