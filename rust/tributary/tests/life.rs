//! Communicators and groups: how they are made, split and asked.

mod common;

use std::thread;
use std::time::Duration;

use common::{alone, backend, device, error_of, get, have, options, ranks, vec_on};
use tributary::{
    AbortHandle, Backend, Communicator, Counters, DType, Device, DeviceBuffer, DeviceSlice,
    DeviceVec, Error, ErrorKind, Event, Group, InPlace, ReduceOp, SparseAllReduce, SparseOptions,
    Stream, UniqueId, Use, Work,
};

#[test]
fn what_may_cross_threads() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Communicator>();
    send::<Group>();
    send::<Stream>();
    send::<Event>();
    send::<Work<DeviceVec<f32>>>();
    send::<DeviceVec<f32>>();
    sync::<DeviceVec<f32>>();
    send::<UniqueId>();
    sync::<UniqueId>();
    send::<AbortHandle>();
    sync::<AbortHandle>();
    send::<Device>();
    sync::<Device>();
    send::<Error>();
    sync::<Error>();
}

/// `not_sync!(T)` compiles only if T is not Sync: otherwise two impls fit, and `check` is ambiguous.
macro_rules! not_sync {
    ($type:ty) => {{
        trait Ambiguous<A> {
            fn check() {}
        }
        impl<T: ?Sized> Ambiguous<()> for T {}
        #[allow(dead_code)]
        struct Sync_;
        impl<T: ?Sized + Sync> Ambiguous<Sync_> for T {}
        <$type as Ambiguous<_>>::check();
    }};
}

#[test]
fn what_may_not() {
    not_sync!(Communicator);
    not_sync!(Group);
    not_sync!(Stream);
    not_sync!(Event);
    not_sync!(Work<DeviceVec<f32>>);
    not_sync!(DeviceSlice);
}

#[test]
fn ranks_join_by_id() {
    for size in [1, 2, 4] {
        if !have(size) {
            continue;
        }
        let _alone = alone();
        let id = UniqueId::of(backend()).unwrap();
        let bytes = *id.as_bytes();
        thread::scope(|threads| {
            for rank in 0..size {
                threads.spawn(move || {
                    let id = UniqueId::from_bytes(bytes);
                    let options = options().timeout(Duration::from_secs(60));
                    let mut comm =
                        Communicator::with_options(&id, rank, size, rank, &options).unwrap();
                    assert_eq!((comm.rank(), comm.size()), (rank, size));
                    assert_eq!((comm.device(), comm.backend()), (device(rank), &*backend()));
                    let stream = Stream::new(comm.device()).unwrap();
                    let mut sum = vec_on(&comm, &[1_i32]);
                    comm.scope(&stream, |s| s.allreduce(InPlace, &mut sum, ReduceOp::Sum)).unwrap();
                    assert_eq!(get(&sum), [size as i32]);
                });
            }
        });
    }
}

#[test]
fn an_id_does_not_show_itself() {
    if !have(1) {
        return;
    }
    let id = UniqueId::of(backend()).unwrap();
    assert_eq!(format!("{id:?}"), "UniqueId(..)");
    assert_eq!(id.as_bytes().len(), UniqueId::SIZE);
}

#[test]
fn a_rank_that_waits_in_vain_gives_up() {
    if !common::on_host() {
        return common::skip("takes a rank of another process on nccl");
    }
    let id = UniqueId::of("host").unwrap();
    let options = options().timeout(Duration::from_millis(50));
    let error = error_of(Communicator::with_options(&id, 0, 2, 0, &options));
    assert!(error.is_timeout(), "{error}");
}

#[test]
fn split_by_color() {
    ranks(4, |comm, _| {
        let rank = comm.rank();
        // Even ranks, backwards; odd ranks, but 3 gets none.
        let color = (rank != 3).then_some(rank as u32 % 2);
        let child = comm.split(color, -(rank as i32)).unwrap();
        let place = child.as_ref().map(|child| (child.rank(), child.size()));
        assert_eq!(place, [Some((1, 2)), Some((0, 1)), Some((0, 2)), None][rank]);
        if let Some(mut child) = child {
            let stream = Stream::new(child.device()).unwrap();
            let mut sum = vec_on(&child, &[rank as i64]);
            child.scope(&stream, |s| s.allreduce(InPlace, &mut sum, ReduceOp::Sum)).unwrap();
            assert_eq!(get(&sum), [[2], [1], [2]][rank]);
        }
    });
}

/// `n` elements on every device, each of them `value` + rank.
fn filled(on: &[Device], value: usize, n: usize) -> Vec<DeviceVec<f32>> {
    let vec = |(rank, &device): (usize, &Device)| {
        DeviceVec::from_slice(device, &vec![(value + rank) as f32; n]).unwrap()
    };
    on.iter().enumerate().map(vec).collect()
}

type Lists = Vec<Vec<DeviceVec<f32>>>;

/// What the broadcast and the list leave is returned.
fn on_streams(
    group: &mut Group,
    on: &[Device],
    streams: &[&Stream],
) -> (Vec<DeviceVec<f32>>, Lists) {
    let size = group.size();
    let total = |value: usize| (0..size).map(|rank| (value + rank) as f32).sum::<f32>();
    let mut a = filled(on, 1, 1000);
    let mut b = filled(on, 5, 10);
    let mut lists = Lists::new();
    for (c, d) in filled(on, 7, 3).into_iter().zip(filled(on, 9, 400)) {
        lists.push(vec![c, d]);
    }
    group
        .scope(Some(streams), |s| {
            s.allreduce(&mut a, ReduceOp::Sum)?;
            s.broadcast(&mut b, size - 1)?;
            s.allreduce_list(&mut lists, ReduceOp::Sum)
        })
        .unwrap();
    for rank in 0..size {
        assert_eq!(get(&a[rank]), vec![total(1); 1000]);
        assert_eq!(get(&b[rank]), vec![(5 + size - 1) as f32; 10]);
        assert_eq!(get(&lists[rank][0]), vec![total(7); 3]);
        assert_eq!(get(&lists[rank][1]), vec![total(9); 400]);
    }
    (b, lists)
}

/// `b` is what the broadcast left: 5 + size - 1.
fn on_default_streams(group: &mut Group, b: &[DeviceVec<f32>], lists: &mut Lists) {
    let size = group.size();
    let send: Vec<&dyn DeviceBuffer> = b.iter().map(|b| b as _).collect();
    // SAFETY: `b` is not touched until the streams have been waited for.
    unsafe { group.allreduce(&send, &send, ReduceOp::Sum, None) }.unwrap();
    group.wait(None).unwrap();
    assert_eq!(get(&b[0]), vec![((5 + size - 1) * size) as f32; 10]);
    group.scope(None, |s| s.broadcast_list(lists, 0)).unwrap();
}

#[test]
fn the_whole_group_at_once() {
    for size in [1, 2, 4] {
        if !have(size) {
            continue;
        }
        let _alone = alone();
        let devices: Vec<usize> = (0..size).rev().collect();
        let mut group = Group::on_devices(&devices, &options()).unwrap();
        assert_eq!((group.size(), group.backend()), (size, &*backend()));
        let on: Vec<Device> = group.devices().to_vec();
        assert_eq!(on, devices.iter().map(|&i| device(i)).collect::<Vec<_>>());
        let streams: Vec<Stream> = on.iter().map(|&device| Stream::new(device).unwrap()).collect();
        let streams: Vec<&Stream> = streams.iter().collect();
        let (b, mut lists) = on_streams(&mut group, &on, &streams);
        on_default_streams(&mut group, &b, &mut lists);

        // Then a thread for each.
        let comms = group.split().unwrap();
        assert!(comms.iter().enumerate().all(|(rank, comm)| comm.rank() == rank));
    }
}

#[test]
fn a_group_checks_all_ranks_before_it_queues_anything() {
    if !have(2) {
        return;
    }
    let _alone = alone();
    let mut group = Group::with_options(2, &options()).unwrap();
    let mut vecs = vec![
        DeviceVec::from_slice(device(0), &[1.0_f32; 4]).unwrap(),
        DeviceVec::from_slice(device(1), &[1.0_f32; 5]).unwrap(),
    ];
    let error = error_of(group.scope(None, |s| s.allreduce(&mut vecs, ReduceOp::Sum)));
    assert_eq!(error.kind(), ErrorKind::InvalidBuffer);
    assert!(error.detail().contains("rank 1"), "{error}");
    let error =
        error_of(group.scope(None, |s| s.allreduce(vecs.iter_mut().take(1), ReduceOp::Sum)));
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    vecs.swap(0, 1);
    let error = error_of(group.scope(None, |s| s.broadcast(&mut vecs, 0)));
    assert!(error.detail().contains("is on"), "{error}");
    group.status().unwrap();
}

#[test]
fn counters_count() {
    ranks(2, |comm, stream| {
        assert_eq!(comm.counters().unwrap(), Counters::default());
        let mut buffer = vec_on(comm, &[1.0_f32; 100]);
        comm.scope(stream, |s| s.allreduce(InPlace, &mut buffer, ReduceOp::Sum)).unwrap();
        let counters = comm.counters().unwrap();
        assert_eq!((counters.calls, counters.bytes), (1, 400));
    });
}

#[test]
fn memory_is_counted() {
    ranks(2, |comm, _| {
        let memory = comm.memory().unwrap();
        assert_eq!(memory.workspace, Use::default());
        assert_eq!((memory.sparse, memory.pinned), (Use::default(), Use::default()));
        let options = SparseOptions::new();
        let bytes = options.device_bytes(comm, 1000, DType::F32).unwrap();
        let sparse = SparseAllReduce::new(comm, 1000, DType::F32, &options).unwrap();
        let memory = comm.memory().unwrap();
        assert_eq!((memory.sparse.bytes, memory.sparse.peak_bytes), (bytes, bytes));
        assert!(memory.workspace.bytes > 0 && memory.pinned.bytes > 0);
        assert_eq!(comm.device().memory().unwrap().sparse.bytes, bytes);
        drop(sparse);
        let memory = comm.memory().unwrap();
        assert_eq!((memory.sparse.bytes, memory.sparse.peak_bytes), (0, bytes));
    });
}

#[test]
fn versions_and_devices() {
    assert_eq!(tributary::version().to_string(), env!("CARGO_PKG_VERSION"));
    let host = Backend::find("host").unwrap();
    assert_eq!(host.version().unwrap(), tributary::version());
    assert_eq!(host.devices().unwrap(), 64);
    assert!(Backend::all().contains(&host));
    assert_eq!(Backend::find("avian carriers"), None);
    // A backend stands for its name.
    assert_eq!(Device::get(host, 3).unwrap(), Device::get("host", 3).unwrap());
    let mut comm = Communicator::new(&UniqueId::of(host).unwrap(), 0, 1, 0).unwrap();
    assert_eq!(comm.backend(), host.name());
    let options = options().backend(host);
    assert_eq!(Group::with_options(1, &options).unwrap().backend(), "host");
    assert_eq!(Backend::find(host), Some(host));
    comm.status().unwrap();
    let (_, _): (&'static [DType], &'static [ReduceOp]) = (DType::ALL, ReduceOp::ALL);
    if let Some(nccl) = Backend::find("nccl") {
        assert!(nccl.version().unwrap().major >= 2);
    }
}
