//! A framework's tensor goes in without a copy, though its clones share their storage and change it
//! through `&self`.
//!
//! Such a tensor cannot promise that `&mut` means sole access, so it is a `DeviceBuffer` for the
//! `unsafe` operations, and the framework keeps its own promise in one place: `Layer::average`.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::Arc;

use tributary::{
    Communicator, DType, Device, DeviceBuffer, Group, Options, ReduceOp, Result, Stream,
};

/// The framework's tensor: a clone is the same storage. A framework for GPUs would have a device
/// pointer here; this one keeps its elements in host memory.
#[derive(Clone)]
struct Tensor {
    storage: Arc<Storage>,
    start: usize,
    len: usize,
    step: usize,
}

struct Storage(UnsafeCell<Box<[f32]>>);

// SAFETY: the framework's rule: a tensor and its clones are used by one thread at a time.
unsafe impl Send for Storage {}
// SAFETY: as above.
unsafe impl Sync for Storage {}

impl Tensor {
    fn new(values: &[f32]) -> Tensor {
        let storage = Arc::new(Storage(UnsafeCell::new(values.into())));
        Tensor { storage, start: 0, len: values.len(), step: 1 }
    }

    /// A view of the same storage.
    fn slice(&self, start: usize, len: usize, step: usize) -> Tensor {
        assert!(start + (len.max(1) - 1) * step < self.len);
        let start = self.start + start * self.step;
        Tensor { storage: Arc::clone(&self.storage), start, len, step: self.step * step }
    }

    fn first(&self) -> *mut f32 {
        // SAFETY: `start` is inside; no reference to the elements is made.
        unsafe { (*self.storage.0.get()).as_mut_ptr().add(self.start) }
    }

    fn set(&self, i: usize, value: f32) {
        assert!(i < self.len);
        // SAFETY: inside; used by one thread at a time.
        unsafe { *self.first().add(i * self.step) = value }
    }

    fn get(&self, i: usize) -> f32 {
        assert!(i < self.len);
        // SAFETY: inside; used by one thread at a time.
        unsafe { *self.first().add(i * self.step) }
    }
}

// SAFETY: `ptr` points to the elements for as long as the tensor keeps its storage alive, which is
// never moved or resized; a view with gaps says that it is not contiguous.
unsafe impl DeviceBuffer for Tensor {
    fn ptr(&self) -> *mut c_void {
        self.first().cast()
    }
    fn len(&self) -> usize {
        self.len
    }
    fn dtype(&self) -> DType {
        DType::F32
    }
    fn device(&self) -> Option<Device> {
        None // host memory belongs to no device; a GPU tensor names its own here
    }
    fn is_contiguous(&self) -> bool {
        self.step == 1 || self.len <= 1
    }
}

/// A layer in training: two parameters in one storage.
struct Layer {
    gradients: Vec<Tensor>,
}

impl Layer {
    /// Average the gradients over all ranks. `&mut self`: nobody else uses them meanwhile.
    fn average(&mut self, comm: &mut Communicator, stream: &Stream) -> Result<()> {
        let list: Vec<&dyn DeviceBuffer> =
            self.gradients.iter().map(|tensor| tensor as &dyn DeviceBuffer).collect();
        // SAFETY: the tensors live in `self`, which is borrowed solely until the stream has been
        // waited for; they do not overlap; all ranks have the same layers.
        unsafe { comm.allreduce_list(&list, ReduceOp::Avg, stream) }?;
        comm.wait(stream)
    }
}

fn run(comm: &mut Communicator) -> Result<()> {
    let stream = Stream::new(comm.device())?;
    let storage = Tensor::new(&[0.0; 6]);
    let mut layer = Layer { gradients: vec![storage.slice(0, 2, 1), storage.slice(2, 4, 1)] };
    for i in 0..6 {
        storage.set(i, (comm.rank() * 10 + i) as f32); // through `&self`, seen by both gradients
    }
    layer.average(comm, &stream)?;
    let values: Vec<f32> = (0..6).map(|i| storage.get(i)).collect();
    assert_eq!(values, [5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);

    // A view with gaps is refused, in words, before anything is queued.
    let gaps = storage.slice(0, 3, 2);
    // SAFETY: the call fails, so nothing is queued.
    let error = unsafe { comm.allreduce(&gaps, &gaps, ReduceOp::Sum, &stream) }.unwrap_err();
    println!("rank {}: {values:?}; and {error}", comm.rank());
    Ok(())
}

fn main() -> Result<()> {
    Group::with_options(2, &Options::new().backend("host"))?.run(run)?;
    Ok(())
}
