//! A framework in the memory of Tributary's devices, with the shape of flodl's: handles whose clones
//! share a storage, streams of a pool, a current device. It runs on the backend that
//! TRIBUTARY_TEST_BACKEND names (host, if it is not set).
#![allow(dead_code)] // each test file uses its part

use std::cell::Cell;
use std::ffi::c_void;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::sync::{mpsc, Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tributary::{Backend, DType, DeviceBuffer, DeviceVec};
use tributary_flodl::{Arithmetic, Error, Framework};

pub type NcclComms = tributary_flodl::NcclComms<Flodl>;
pub type NcclRankComm = tributary_flodl::NcclRankComm<Flodl>;
pub type NcclUniqueId = tributary_flodl::NcclUniqueId<Flodl>;
pub type OuterAverage = tributary_flodl::OuterAverage<Flodl>;
pub type Result<T> = std::result::Result<T, Error>;

pub struct Flodl;

impl Framework for Flodl {
    type Tensor = Tensor;
    type Stream = GpuStream;
    type Device = Device;
    type Error = Error;

    fn backend() -> &'static str {
        match std::env::var("TRIBUTARY_TEST_BACKEND").as_deref() {
            Ok("nccl") => "nccl",
            _ => "host",
        }
    }
    fn device_index(device: Device) -> Option<usize> {
        match device {
            Device::CUDA(index) => Some(index.into()),
            Device::CPU => None,
        }
    }
    fn current_device() -> usize {
        CURRENT_DEVICE.get()
    }
    fn current_stream(device_index: usize) -> Option<GpuStream> {
        CURRENT_STREAM.get().filter(|stream| stream.device == device_index)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::upper_case_acronyms)] // flodl's names
pub enum Device {
    CPU,
    CUDA(u8),
}

thread_local! {
    static CURRENT_DEVICE: Cell<usize> = const { Cell::new(0) };
    static CURRENT_STREAM: Cell<Option<GpuStream>> = const { Cell::new(None) };
}

pub fn set_current_device(index: usize) {
    CURRENT_DEVICE.set(index);
}

pub fn set_current_stream(stream: Option<GpuStream>) {
    CURRENT_STREAM.set(stream);
}

fn device(index: usize) -> tributary::Device {
    tributary::Device::get(Flodl::backend(), index).unwrap()
}

/// A stream of the pool, which destroys none.
#[derive(Clone, Copy, Debug)]
pub struct GpuStream {
    device: usize,
    raw: usize,
}

static POOL: Mutex<Vec<GpuStream>> = Mutex::new(Vec::new());

fn pool() -> MutexGuard<'static, Vec<GpuStream>> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GpuStream {
    pub fn new(index: usize) -> GpuStream {
        let stream = ManuallyDrop::new(tributary::Stream::new(device(index)).unwrap());
        let stream = GpuStream { device: index, raw: stream.as_raw() as usize };
        pool().push(stream);
        stream
    }

    pub fn synchronize(self) {
        self.stream().wait().unwrap();
    }

    /// Holds back the work of the stream until the sender is dropped. On nccl it does not: the calls
    /// of the ranks are compared there, and would wait for the stream.
    pub fn hold(self) -> mpsc::Sender<()> {
        let (release, released) = mpsc::channel::<()>();
        if Flodl::backend() == "host" {
            self.stream().submit(move || _ = released.recv()).unwrap();
        }
        release
    }

    fn stream(self) -> tributary::Stream {
        // SAFETY: a stream of the pool lives for ever.
        unsafe { tributary::Stream::from_raw(device(self.device), self.raw as *mut c_void) }
    }
}

// SAFETY: a stream of the pool belongs to its device and lives for ever.
unsafe impl tributary_flodl::Stream for GpuStream {
    fn raw(&self) -> *mut c_void {
        self.raw as *mut c_void
    }
    fn device_index(&self) -> usize {
        self.device
    }
}

/// Waits for all streams of a device.
pub fn synchronize(index: usize) {
    tributary::Stream::default_of(device(index)).wait().unwrap();
    let all = pool().clone(); // not locked while it waits
    all.into_iter().filter(|stream| stream.device == index).for_each(GpuStream::synchronize);
}

/// A tensor of f32, or something else that is told apart by its type alone.
#[derive(Clone)]
pub struct Tensor {
    storage: Arc<Mutex<DeviceVec<u8>>>,
    dtype: DType,
    device: usize,
    contiguous: bool,
}

impl Tensor {
    pub fn new(values: &[f32], index: usize) -> Tensor {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let storage = Arc::new(Mutex::new(DeviceVec::from_slice(device(index), &bytes).unwrap()));
        Tensor { storage, dtype: DType::F32, device: index, contiguous: true }
    }

    pub fn full(len: usize, value: f32, index: usize) -> Tensor {
        Tensor::new(&vec![value; len], index)
    }

    /// The same storage as elements of another type.
    pub fn cast(&self, dtype: DType) -> Tensor {
        Tensor { dtype, ..self.clone() }
    }

    /// A handle that says that its elements have gaps.
    pub fn with_gaps(&self) -> Tensor {
        Tensor { contiguous: false, ..self.clone() }
    }

    /// How many handles the storage has.
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.storage)
    }

    pub fn to_vec(&self) -> Vec<f32> {
        synchronize(self.device);
        self.download()
    }

    /// Whether the work of the device but for held streams has left the elements as they were:
    /// `values`.
    pub fn is_still(&self, values: &[f32]) -> bool {
        tributary::Stream::default_of(device(self.device)).wait().unwrap();
        Flodl::backend() != "host" || self.download() == values
    }

    fn download(&self) -> Vec<f32> {
        let stream = tributary::Stream::new(device(self.device)).unwrap();
        let bytes = self.storage().download(&stream).unwrap();
        bytes.chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap())).collect()
    }

    pub fn set(&self, values: &[f32]) {
        synchronize(self.device);
        let stream = tributary::Stream::new(device(self.device)).unwrap();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        self.storage().upload(&bytes, &stream).unwrap();
    }

    fn storage(&self) -> MutexGuard<'_, DeviceVec<u8>> {
        self.storage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn zip(&self, other: &Tensor, function: impl Fn(f32, f32) -> f32) -> Result<Tensor> {
        let pairs = self.to_vec().into_iter().zip(other.to_vec());
        Ok(Tensor::new(&pairs.map(|(a, b)| function(a, b)).collect::<Vec<_>>(), self.device))
    }
}

// SAFETY: the storage lives as long as a handle, and is never moved or resized. `to_vec` and `set`
// wait for the device.
unsafe impl tributary_flodl::Tensor for Tensor {
    fn data_ptr(&self) -> *mut c_void {
        self.storage().ptr()
    }
    fn numel(&self) -> usize {
        self.storage().len() / self.dtype.size()
    }
    fn dtype(&self) -> DType {
        self.dtype
    }
    fn device_index(&self) -> Option<usize> {
        Some(self.device)
    }
    fn is_contiguous(&self) -> bool {
        self.contiguous
    }
}

impl Arithmetic for Tensor {
    type Error = Error;

    fn copy(&self) -> Result<Tensor> {
        Ok(Tensor::new(&self.to_vec(), self.device))
    }
    fn sub(&self, other: &Tensor) -> Result<Tensor> {
        self.zip(other, |a, b| a - b)
    }
    fn add(&self, other: &Tensor) -> Result<Tensor> {
        self.zip(other, |a, b| a + b)
    }
    fn mul_scalar(&self, scalar: f64) -> Result<Tensor> {
        self.zip(self, |a, _| a * scalar as f32)
    }
    fn copy_(&self, from: &Tensor) -> Result<()> {
        self.set(&from.to_vec());
        Ok(())
    }
}

/// One test at a time, if there are `wanted` devices: collectives of two communicators on the same
/// streams may wait for each other.
pub fn alone(wanted: usize) -> Option<MutexGuard<'static, ()>> {
    static LOCK: Mutex<()> = Mutex::new(());
    let found = Backend::find(Flodl::backend()).map_or(0, |found| found.devices().unwrap_or(0));
    if found < wanted {
        let name = thread::current().name().unwrap_or("a test").to_owned();
        let _ = writeln!(
            std::io::stderr(),
            "skipped: {name}: needs {wanted} devices of {}, found {found}",
            Flodl::backend()
        );
        return None;
    }
    Some(LOCK.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The first `n` GPUs.
pub fn gpus(n: u8) -> Vec<Device> {
    (0..n).map(Device::CUDA).collect()
}

/// Runs `rank` on `size` ranks, a thread each with its current device, made like processes are: from
/// the bytes of an id.
pub fn ranks<T: Send>(size: usize, rank: impl Fn(NcclRankComm) -> T + Sync) -> Vec<T> {
    let bytes = *NcclUniqueId::new().unwrap().as_bytes();
    thread::scope(|threads| {
        let start = |number: usize| {
            let rank = &rank;
            threads.spawn(move || {
                set_current_device(number);
                let uid = NcclUniqueId::from_bytes(bytes);
                rank(NcclRankComm::init_rank(number, size, &uid).unwrap())
            })
        };
        let threads: Vec<_> = (0..size).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
