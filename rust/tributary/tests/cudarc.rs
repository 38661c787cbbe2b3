//! Memory and streams of cudarc. The tests need a GPU, and say so where there is none.
#![cfg(feature = "cudarc")]

mod common;

use std::sync::Arc;

use common::skip;
use cudarc::driver::{CudaContext, CudaSlice, CudaViewMut, DevicePtrMut};
use tributary::cudarc::{stream, CudaMemory, Lent};
use tributary::{
    Backend, Communicator, DType, DeviceBuffer, DeviceSlice, ErrorKind, Group, InPlace, Options,
    ReduceOp, Stream, UniqueBuffer,
};

/// One rank on GPU 0: its sum is what it sends.
fn alone() -> Option<(Communicator, Arc<CudaContext>)> {
    if Backend::find("nccl").map_or(0, |nccl| nccl.devices().unwrap_or(0)) == 0 {
        skip("needs a GPU and the nccl backend");
        return None;
    }
    let group = Group::with_options(1, &Options::new().backend("nccl")).unwrap();
    Some((group.split().unwrap().remove(0), CudaContext::new(0).unwrap()))
}

#[test]
fn what_is_memory_and_what_may_move() {
    fn is_memory<B: CudaMemory>() {}
    fn is_buffer<B: UniqueBuffer + Send + Sync>() {}
    is_memory::<CudaSlice<f32>>();
    is_memory::<&mut CudaSlice<i64>>();
    is_memory::<CudaViewMut<'_, u8>>();
    is_buffer::<Lent<CudaSlice<f64>>>();
    is_buffer::<Lent<&mut CudaSlice<u32>>>();
}

#[test]
fn a_scope_borrows_a_slice_and_a_part_of_it() {
    let Some((mut comm, context)) = alone() else { return };
    let cuda = context.default_stream();
    let ours = Stream::new(comm.device()).unwrap();
    let mut slice = cuda.clone_htod(&(0..1000).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
    let mut lent = Lent::new(&mut slice).unwrap();
    assert_eq!((lent.len(), lent.dtype(), lent.device()), (1000, DType::F32, Some(comm.device())));
    assert_eq!(format!("{lent:?}"), "Lent<f32>[1000] on nccl:0");
    let factor = tributary::CallOptions::new().factor(2.0);
    comm.scope(&ours, |s| s.allreduce_with(InPlace, &mut lent, ReduceOp::Sum, factor)).unwrap();
    let mut part = Lent::new(slice.slice_mut(1..3)).unwrap();
    let factor = tributary::CallOptions::new().factor(3.0);
    comm.scope(&ours, |s| s.allreduce_with(InPlace, &mut part, ReduceOp::Sum, factor)).unwrap();
    let found = cuda.clone_dtoh(&slice).unwrap();
    assert_eq!(found[..5], [0.0, 6.0, 12.0, 6.0, 8.0]);
}

/// Work of cudarc on another stream is waited for, and so is that of Tributary.
#[test]
fn a_work_owns_a_slice() {
    let Some((mut comm, context)) = alone() else { return };
    let cuda = context.new_stream().unwrap();
    let ours = Stream::new(comm.device()).unwrap();
    let mut slice = cuda.alloc_zeros::<i32>(1 << 20).unwrap();
    cuda.memcpy_htod(&vec![7; 1 << 20], &mut slice).unwrap();
    let lent = Lent::new(slice).unwrap();
    let work = comm
        .start(lent, &ours, |s, lent| s.allreduce(InPlace, lent, ReduceOp::Sum))
        .unwrap_or_else(|failed| panic!("{failed}"));
    let slice = work.wait().unwrap().into_inner();
    assert_eq!(cuda.clone_dtoh(&slice).unwrap(), vec![7; 1 << 20]);
}

#[test]
fn a_stream_of_cudarc() {
    let Some((mut comm, context)) = alone() else { return };
    let cuda = context.new_stream().unwrap();
    let mut slice = cuda.clone_htod(&[1.5_f64; 100]).unwrap();
    // SAFETY: nobody captures the stream.
    let ours = unsafe { stream(&cuda) }.unwrap();
    assert_eq!((ours.as_raw(), ours.device()), (cuda.cu_stream().cast(), comm.device()));
    let (address, used) = slice.device_ptr_mut(&cuda);
    // SAFETY: the memory of the slice, which outlives the call.
    let view = unsafe { DeviceSlice::new(address as *mut _, 100, DType::F64, Some(comm.device())) };
    // SAFETY: cudarc orders the copy below behind it.
    unsafe { comm.allreduce(&view, &view, ReduceOp::Sum, &ours) }.unwrap();
    drop(used);
    assert_eq!(cuda.clone_dtoh(&slice).unwrap(), [1.5; 100]);
}

#[test]
fn a_per_thread_stream_is_refused() {
    let Some((_comm, context)) = alone() else { return };
    // SAFETY: nobody captures the stream.
    let error = unsafe { stream(&context.per_thread_stream()) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidStream);
}
