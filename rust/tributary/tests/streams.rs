//! Streams, events and memory.

mod common;

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::time::Duration;

use common::{alone, device, get, have, on_host};
use tributary::{DType, DeviceBuffer, DeviceSlice, DeviceVec, Event, Stream};

#[test]
fn what_is_submitted_runs_in_order_on_another_thread() {
    if !have(1) {
        return;
    }
    let _alone = alone();
    let stream = Stream::new(device(0)).unwrap();
    let (to, from) = mpsc::channel();
    for i in 0..100 {
        let to = to.clone();
        stream.submit(move || to.send(i).unwrap()).unwrap();
    }
    stream.wait().unwrap();
    assert_eq!(from.try_iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    stream.submit(|| panic!("on purpose: it goes no further")).unwrap();
    stream.wait().unwrap();
}

#[test]
fn an_event_orders_two_streams() {
    if !have(1) {
        return;
    }
    let _alone = alone();
    let (first, second) = (Stream::new(device(0)).unwrap(), Stream::new(device(0)).unwrap());
    let (go, gone) = mpsc::channel::<()>();
    let done = Arc::new(AtomicBool::new(false));
    let (mut start, mut event) = (Event::new(device(0)).unwrap(), Event::new(device(0)).unwrap());
    start.record(&first).unwrap();
    let flag = Arc::clone(&done);
    first
        .submit(move || {
            gone.recv().unwrap();
            flag.store(true, Ordering::SeqCst);
        })
        .unwrap();
    event.record(&first).unwrap();
    second.wait_event(&event).unwrap();
    let (to, from) = mpsc::channel();
    let flag = Arc::clone(&done);
    second.submit(move || to.send(flag.load(Ordering::SeqCst)).unwrap()).unwrap();
    assert!(!event.is_done().unwrap() && !second.is_done().unwrap());
    assert!(from.recv_timeout(Duration::from_millis(20)).is_err());
    go.send(()).unwrap();
    event.wait().unwrap();
    assert!(from.recv().unwrap());
    second.wait().unwrap();
    assert!(event.is_done().unwrap() && second.is_done().unwrap());
    assert!(start.elapsed(&event).unwrap() >= Duration::from_millis(15));
}

#[test]
fn a_dropped_stream_finishes_its_work() {
    if !have(1) {
        return;
    }
    let _alone = alone();
    let ran = Arc::new(AtomicUsize::new(0));
    let (go, gone) = mpsc::channel::<()>();
    let stream = Stream::new(device(0)).unwrap();
    let count = Arc::clone(&ran);
    stream
        .submit(move || {
            gone.recv().unwrap();
            count.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
    drop(stream);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    go.send(()).unwrap();
    while Arc::strong_count(&ran) > 1 {
        std::thread::yield_now();
    }
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

/// Safe code can have it on several threads, so all of them may use it.
#[test]
fn the_default_stream_is_every_threads() {
    if !have(1) {
        return;
    }
    let _alone = alone();
    let submitted = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|threads| {
        for thread in 0..4_u64 {
            let submitted = Arc::clone(&submitted);
            threads.spawn(move || {
                let stream = Stream::default_of(device(0));
                let mut event = Event::new(device(0)).unwrap();
                let mut vec = DeviceVec::<u64>::zeros(device(0), 100).unwrap();
                for round in 0..50 {
                    let count = Arc::clone(&submitted);
                    stream.submit(move || _ = count.fetch_add(1, Ordering::SeqCst)).unwrap();
                    vec.upload(&[thread * 1000 + round; 100], &stream).unwrap();
                    event.record(&stream).unwrap();
                    stream.wait_event(&event).unwrap();
                    assert_eq!(vec.download(&stream).unwrap(), [thread * 1000 + round; 100]);
                    assert!(event.is_done().unwrap());
                }
            });
        }
    });
    Stream::default_of(device(0)).wait().unwrap();
    assert_eq!(submitted.load(Ordering::SeqCst), 200);
}

#[test]
fn memory_of_a_device() {
    if !have(1) {
        return;
    }
    let _alone = alone();
    let stream = Stream::new(device(0)).unwrap();
    let values: Vec<u64> = (0..1000).collect();
    let mut vec = DeviceVec::from_slice(device(0), &values).unwrap();
    assert_eq!(vec.ptr() as usize % 256, 0);
    assert_eq!(get(&vec), values);
    vec.upload(&[7; 1000], &stream).unwrap();
    assert_eq!(vec.download(&stream).unwrap(), [7; 1000]);
    assert_eq!(get(&DeviceVec::<f32>::zeros(device(0), 5).unwrap()), [0.0; 5]);
    assert_eq!(vec.as_slice().is_some(), on_host());
    if let Some(values) = vec.as_mut_slice() {
        values[3] = 4;
        assert_eq!(get(&vec)[2..5], [7, 4, 7]);
    }
}

#[test]
fn somebody_elses_stream() {
    if !have(1) {
        return;
    }
    let _alone = alone();
    let owner = Stream::new(device(0)).unwrap();
    // SAFETY: `owner` outlives it, and both are used by this thread.
    let stream = unsafe { Stream::from_raw(device(0), owner.as_raw()) };
    let ran = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ran);
    stream.submit(move || flag.store(true, Ordering::SeqCst)).unwrap();
    owner.wait().unwrap();
    assert!(ran.load(Ordering::SeqCst));
}

/// What a function panics with may itself panic when it is dropped; that must not unwind into C, which
/// would end the process.
#[test]
fn a_panic_that_panics_when_dropped_goes_no_further() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    if !have(1) {
        return;
    }
    let _alone = alone();
    let stream = Stream::new(device(0)).unwrap();
    stream.submit(|| std::panic::panic_any(Bomb)).unwrap();
    stream.wait().unwrap();
}

#[test]
fn a_slice_that_ends_beyond_the_address_space_panics() {
    let values = [1_u8; 4];
    let pointer = values.as_ptr().cast_mut().cast();
    // SAFETY: alive to the end, and not used.
    let whole = unsafe { DeviceSlice::new(pointer, 4, DType::U8, None) };
    for range in [
        (Bound::Unbounded, Bound::Included(usize::MAX)),
        (Bound::Excluded(usize::MAX), Bound::Unbounded),
    ] {
        let panic =
            std::panic::catch_unwind(|| DeviceBuffer::len(&whole.slice(range))).unwrap_err();
        let words = panic.downcast_ref::<String>().map_or("", String::as_str);
        let words = panic.downcast_ref::<&str>().copied().unwrap_or(words);
        assert!(words.contains("beyond the address space"), "{words}");
    }
}
