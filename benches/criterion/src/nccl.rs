//! Raw NCCL: the library that Tributary has loaded into this process, found again by name, so that
//! nothing but Tributary lies between the two figures.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr;
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_NOW};
use tributary::{DeviceBuffer, DeviceVec, ReduceOp, Stream};

use crate::Result;

/// From `dlfcn.h`: only what is loaded already.
const RTLD_NOLOAD: c_int = 4;

// From `nccl.h`.
type Comm = *mut c_void;
const NCCL_FLOAT32: c_int = 7;
const NCCL_SUM: c_int = 0;
const NCCL_AVG: c_int = 4;

/// The functions that are called, with the signatures of `nccl.h` and `cuda.h`.
struct Functions {
    init_all: unsafe extern "C" fn(*mut Comm, c_int, *const c_int) -> c_int,
    destroy: unsafe extern "C" fn(Comm) -> c_int,
    allreduce: AllReduce,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    retain_context: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int,
    set_context: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// They stay loaded as long as these.
    _libraries: [Library; 2],
}

type AllReduce = unsafe extern "C" fn(
    *const c_void,
    *mut c_void,
    usize,
    c_int,
    c_int,
    Comm,
    *mut c_void,
) -> c_int;

impl Functions {
    fn find() -> Result<Functions> {
        let load = |name: &str| {
            // SAFETY: it is loaded already, so nothing is run.
            unsafe { Library::open(Some(name), RTLD_NOW | RTLD_NOLOAD) }
                .map_err(|error| format!("Tributary runs on nccl, but {name} is not here: {error}"))
        };
        let (nccl, cuda) = (load("libnccl.so.2")?, load("libcuda.so.1")?);
        // SAFETY: the types of the fields are those of the headers.
        unsafe {
            Ok(Functions {
                init_all: *nccl.get(b"ncclCommInitAll")?,
                destroy: *nccl.get(b"ncclCommDestroy")?,
                allreduce: *nccl.get(b"ncclAllReduce")?,
                group_start: *nccl.get(b"ncclGroupStart")?,
                group_end: *nccl.get(b"ncclGroupEnd")?,
                error_string: *nccl.get(b"ncclGetErrorString")?,
                retain_context: *cuda.get(b"cuDevicePrimaryCtxRetain")?,
                set_context: *cuda.get(b"cuCtxSetCurrent")?,
                _libraries: [nccl, cuda],
            })
        }
    }

    #[inline]
    fn check(&self, result: c_int, call: &str) -> Result<()> {
        if result == 0 {
            return Ok(());
        }
        // SAFETY: "Returns a string for each error code"; it lives for ever.
        let text = unsafe { CStr::from_ptr((self.error_string)(result)) };
        Err(format!("{call}: {}", text.to_string_lossy()).into())
    }
}

/// One rank's communicator.
pub struct Nccl {
    functions: Arc<Functions>,
    comm: Comm,
    device: c_int,
}

// SAFETY: NCCL asks that a communicator is used by one thread at a time, whichever that is.
unsafe impl Send for Nccl {}

/// Communicators for ranks 0 to `ranks` - 1, on the devices of those numbers.
pub fn open(ranks: usize) -> Result<Vec<Nccl>> {
    let functions = Arc::new(Functions::find()?);
    let mut comms: Vec<Comm> = vec![ptr::null_mut(); ranks];
    // SAFETY: there is room for `ranks` communicators; no devices means the first ones.
    let result =
        unsafe { (functions.init_all)(comms.as_mut_ptr(), c_int::try_from(ranks)?, ptr::null()) };
    functions.check(result, "ncclCommInitAll")?;
    Ok((0..)
        .zip(comms)
        .map(|(device, comm)| Nccl { functions: Arc::clone(&functions), comm, device })
        .collect())
}

impl Nccl {
    /// Do what `cudaSetDevice` does, once on this rank's thread, as a careful user would: no call,
    /// ours or the peer's, then has to switch.
    pub fn make_device_current(&self) -> Result<()> {
        let mut context = ptr::null_mut();
        // SAFETY: `context` lives through the call; CUDA has been initialised by now, and its
        // devices are numbered like those of the runtime.
        let retained = unsafe { (self.functions.retain_context)(&mut context, self.device) };
        // SAFETY: a context, which is never given back and so lives as long as the process.
        if retained != 0 || unsafe { (self.functions.set_context)(context) } != 0 {
            return Err(format!("device {} cannot be made current", self.device).into());
        }
        Ok(())
    }

    /// Queue `ncclAllReduce`. The buffers have equal lengths.
    #[inline]
    pub fn allreduce(
        &self,
        send: &DeviceVec<f32>,
        recv: &DeviceVec<f32>,
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<()> {
        let op = if op == ReduceOp::Avg { NCCL_AVG } else { NCCL_SUM };
        // SAFETY: the buffers live until the rank waits for the stream, and are used by nobody
        // else.
        let result = unsafe {
            (self.functions.allreduce)(
                send.ptr(),
                recv.ptr(),
                send.len(),
                NCCL_FLOAT32,
                op,
                self.comm,
                stream.as_raw(),
            )
        };
        self.functions.check(result, "ncclAllReduce")
    }

    /// Queue what `calls` calls as one.
    #[inline]
    pub fn group(&self, calls: impl FnOnce() -> Result<()>) -> Result<()> {
        // SAFETY: takes nothing; ended below.
        self.functions.check(unsafe { (self.functions.group_start)() }, "ncclGroupStart")?;
        let queued = calls();
        // SAFETY: a group was started on this thread.
        let ended = unsafe { (self.functions.group_end)() };
        queued?;
        self.functions.check(ended, "ncclGroupEnd")
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        // After a failure it may never end.
        if !std::thread::panicking() {
            // SAFETY: it is ours, and this is the last use. A failure cannot be returned.
            unsafe { (self.functions.destroy)(self.comm) };
        }
    }
}
