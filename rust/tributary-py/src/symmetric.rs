//! Memory of all ranks, which each of them reaches.

use std::ffi::{c_int, c_void, CStr};
use std::ptr;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::Arc;

use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tributary_sys as sys;

use crate::call::{Call, Tensor};
use crate::communicator::Communicator;
use crate::failure::{check, usage, Outcome};
use crate::owner::Owner;
use crate::retired::sweep;
use crate::stream::Address;
use crate::view::{dtype_name, dtype_of, format_of, Memory, Raw};

/// Memory that all ranks allocate together, `count` elements each: the device of each rank reads and
/// writes that of all others where it lies, at the addresses that `peer(rank)` gives.
///
/// `Symmetric(comm, count)`, whose content is undefined, `Symmetric.of(comm, tensor)`, which copies the
/// tensor, and `free()` wait for all ranks, which pass the same; not in a batch. Calls take it as a
/// tensor, and those that have a `variant` may ask for variant="symmetric".
///
/// For other libraries it has a buffer on host, and `__cuda_array_interface__` on nccl, where its type is
/// one of theirs: `numpy.asarray(memory)`, `torch.as_tensor(memory, device="cuda")`. Whoever uses such a
/// tensor, or an address, sees to it that the memory is there: `free` frees it, and otherwise it is there as
/// long as this object or the communicator. An abort leaves it there.
///
/// >>> import tributary, array
/// >>> def rank(comm):
/// ...     memory = tributary.Symmetric.of(comm, array.array("f", [comm.rank, 1]))
/// ...     comm.allreduce(memory, variant="symmetric").wait()
/// ...     with memoryview(memory) as view:
/// ...         found = list(view)
/// ...     memory.free()
/// ...     return found
/// >>> tributary.Group(2, backend="host").run(rank)
/// [[1.0, 2.0], [1.0, 2.0]]
#[pyclass(frozen, module = "tributary")]
pub struct Symmetric {
    part: Arc<Part>,
    /// For buffers, which point to them.
    shape: [ffi::Py_ssize_t; 1],
    strides: [ffi::Py_ssize_t; 1],
}

/// This rank's. It holds its communicator, which neither a close nor an abort destroys, so it is there as long
/// as this, unless it was freed.
struct Part {
    owner: Arc<Owner>,
    data: Address,
    count: usize,
    dtype: sys::trib_dtype,
    /// Buffers and queued calls that use it; FREED: it is free, or about to be.
    uses: AtomicIsize,
}

const FREED: isize = -1;

impl Part {
    fn begin_use(&self) -> Outcome<()> {
        let more = |uses| (uses != FREED).then_some(uses + 1);
        let began = self.uses.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
        began.map(drop).map_err(|_| usage(format!("{} was freed", self.owner.who("Symmetric"))))
    }

    fn end_use(&self) {
        self.uses.fetch_sub(1, Ordering::Release);
    }

    /// No use of it can begin any more.
    fn end_all(&self) -> Outcome<()> {
        let ended = self.uses.compare_exchange(0, FREED, Ordering::AcqRel, Ordering::Relaxed);
        let who = self.owner.who("Symmetric.free");
        ended.map(drop).map_err(|uses| {
            usage(match uses {
                FREED => format!("{who}: it was freed before"),
                uses => format!(
                    "{who}: {uses} buffers or works use it; release the buffers, wait for the works"
                ),
            })
        })
    }

    fn item(&self) -> usize {
        // SAFETY: "Bytes of one element"; no object.
        unsafe { sys::trib_dtype_size(self.dtype) }
    }

    fn bytes(&self) -> usize {
        self.count * self.item()
    }
}

/// A call that uses the memory.
#[pyclass(frozen)]
struct Use(Arc<Part>);

impl Drop for Use {
    fn drop(&mut self) {
        self.0.end_use();
    }
}

/// What C has written, on its way to another thread.
struct Made(*mut c_void);

// SAFETY: an address, which Rust does not follow.
unsafe impl Send for Made {}

impl Symmetric {
    fn new(owner: &Arc<Owner>, data: *mut c_void, count: usize, dtype: sys::trib_dtype) -> Self {
        let (owner, data) = (Arc::clone(owner), Address(data));
        let part = Part { owner, data, count, dtype, uses: AtomicIsize::new(0) };
        let (shape, strides) = ([count as isize], [part.item() as isize]);
        Symmetric { part: Arc::new(part), shape, strides }
    }

    fn used(&self) -> Outcome<Use> {
        self.part.begin_use()?;
        Ok(Use(Arc::clone(&self.part)))
    }

    /// For a call, which keeps it.
    pub fn raw(&self, py: Python<'_>) -> PyResult<Raw> {
        let Part { owner, data, count, dtype, .. } = &*self.part;
        let used = self.used()?;
        Ok(Raw {
            data: data.get() as usize,
            shape: vec![*count as i64],
            strides: None,
            dtype: *dtype,
            read_only: false,
            memory: match owner.place.is_host() {
                true => Memory::Host,
                false => Memory::Cuda(Some(owner.place.ordinal())),
            },
            keep: vec![Py::new(py, used)?.into_any()],
        })
    }
}

#[pymethods]
impl Symmetric {
    #[new]
    #[pyo3(signature = (comm, count, dtype="f32"))]
    fn create(
        py: Python<'_>,
        comm: &Communicator,
        count: usize,
        dtype: &str,
    ) -> PyResult<Symmetric> {
        let dtype = dtype_of(dtype, "dtype")?;
        // SAFETY: "Bytes of one element"; no object.
        let bytes = count.saturating_mul(unsafe { sys::trib_dtype_size(dtype) });
        let data = comm.owner.call(py, "Symmetric", |comm| {
            let mut out = ptr::null_mut();
            // SAFETY: this thread has the turn; `*out` lives through the call. What is more than memory
            // C refuses.
            check(unsafe { sys::trib_symmetric_alloc(&mut out, comm, bytes) })?;
            Ok(Made(out))
        })?;
        Ok(Symmetric::new(&comm.owner, data.0, count, dtype))
    }

    /// As large as `tensor`, of its type, and with its content: a copy, which is queued on `stream`, and
    /// waited for. Other ranks may still copy to theirs then.
    #[staticmethod]
    #[pyo3(signature = (comm, tensor, *, stream=None))]
    fn of(
        py: Python<'_>,
        comm: &Communicator,
        tensor: &Bound<'_, PyAny>,
        stream: Tensor<'_, '_>,
    ) -> PyResult<Symmetric> {
        let mut call = Call::new(py, &comm.owner, "Symmetric.of", stream)?;
        let view = call.read("tensor", tensor)?;
        let (from, count, dtype) = (view.data, view.count, view.dtype);
        let mut made = Made(ptr::null_mut());
        let work = call.queue(py, |comm, stream| {
            let out: &mut Made = &mut made;
            // SAFETY: "Bytes of one element"; this thread has the turns; the work keeps the tensor.
            unsafe {
                let bytes = count * sys::trib_dtype_size(dtype);
                sys::trib_symmetric_import(&mut out.0, comm, from.get(), bytes, stream)
            }
        })?;
        work.queued.wait(py, None)?;
        Ok(Symmetric::new(&comm.owner, made.0, count, dtype))
    }

    /// The number of elements of each rank.
    #[getter]
    fn count(&self) -> usize {
        self.part.count
    }

    /// The type of the elements.
    #[getter]
    fn dtype(&self) -> &'static str {
        dtype_name(self.part.dtype)
    }

    /// The bytes of each rank.
    #[getter]
    fn nbytes(&self) -> usize {
        self.part.bytes()
    }

    /// The address of this rank's, a multiple of 256.
    #[getter]
    fn address(&self) -> usize {
        self.part.data.get() as usize
    }

    /// The address at which this rank's device (on host: any thread) reaches that of `rank`. Waits for
    /// nobody.
    fn peer(&self, py: Python<'_>, rank: i32) -> PyResult<usize> {
        let (data, bytes, _used) = (self.part.data, self.part.bytes(), self.used()?);
        let found = self.part.owner.call(py, "Symmetric.peer", |comm| {
            let mut out = ptr::null_mut();
            // SAFETY: this thread has the turn; `out` lives through the call. The address is that of an
            // allocation, which is not freed meanwhile.
            check(unsafe { sys::trib_symmetric_query(&mut out, comm, data.get(), bytes, rank) })?;
            Ok(Made(out))
        })?;
        Ok(found.0 as usize)
    }

    /// Free the memory of all ranks, which all call it. By then works that use it have been waited for, its
    /// buffers are released, and nobody uses an address of it.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        let part = &self.part;
        sweep(py);
        part.end_all()?;
        let freed = part.owner.call(py, "Symmetric.free", |comm| {
            // SAFETY: this thread has the turn, and no call uses the memory: `end_all`. Of the rest the
            // caller has seen to it.
            check(unsafe { sys::trib_symmetric_free(comm, part.data.get()) })
        });
        if freed.is_err() {
            part.uses.store(0, Ordering::Release); // nothing was done
        }
        freed
    }

    #[getter(__cuda_array_interface__)]
    fn cuda_array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let part = &*self.part;
        part.begin_use()?; // is it there?
        part.end_use();
        let kind = format_of(part.dtype).filter(|_| !part.owner.place.is_host());
        let Some((_, kind)) = kind else {
            let (dtype, place) = (dtype_name(part.dtype), part.owner.place);
            return Err(PyAttributeError::new_err(format!(
                "memory of {dtype} on {place} has no __cuda_array_interface__"
            )));
        };
        let interface = PyDict::new(py);
        interface.set_item("shape", (part.count,))?;
        interface.set_item("typestr", kind)?;
        interface.set_item("data", (part.data.get() as usize, false))?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    /// # Safety
    /// `out` is NULL, or a place for a buffer.
    unsafe fn __getbuffer__(
        this: Bound<'_, Self>,
        out: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if out.is_null() {
            return Err(PyBufferError::new_err("no place for the buffer"));
        }
        // SAFETY: the caller's promise; NULL for the case that it fails.
        unsafe { (*out).obj = ptr::null_mut() };
        let (own, part) = (this.get(), &this.get().part);
        let Some((format, _)) = format_of(part.dtype).filter(|_| part.owner.place.is_host()) else {
            let (dtype, place) = (dtype_name(part.dtype), part.owner.place);
            return Err(PyBufferError::new_err(format!("memory of {dtype} on {place} has none")));
        };
        part.begin_use()?;
        let filled = own.fill(format, flags, this.clone().into_any().into_ptr());
        // SAFETY: the caller's promise.
        unsafe { out.write(filled) };
        Ok(())
    }

    /// # Safety
    /// The buffer is one of `__getbuffer__`, released once.
    unsafe fn __releasebuffer__(&self, _buffer: *mut ffi::Py_buffer) {
        self.part.end_use();
    }

    fn __repr__(&self) -> String {
        let Part { owner, count, dtype, .. } = &*self.part;
        let (dtype, Owner { rank, size, place, .. }) = (dtype_name(*dtype), &**owner);
        format!("<tributary.Symmetric of {count} {dtype}, rank {rank} of {size} on {place}>")
    }
}

impl Symmetric {
    /// A buffer with what `flags` ask for. `object`: a new reference to this.
    fn fill(
        &self,
        format: &'static CStr,
        flags: c_int,
        object: *mut ffi::PyObject,
    ) -> ffi::Py_buffer {
        let asks = |flag: c_int| flags & flag == flag;
        let first = |lengths: &[ffi::Py_ssize_t; 1], asked: bool| match asked {
            true => lengths.as_ptr().cast_mut(),
            false => ptr::null_mut(),
        };
        let mut buffer = ffi::Py_buffer::new();
        buffer.buf = self.part.data.get();
        buffer.obj = object;
        buffer.len = self.part.bytes() as isize;
        buffer.itemsize = self.part.item() as isize;
        buffer.readonly = 0;
        buffer.ndim = 1;
        buffer.shape = first(&self.shape, asks(ffi::PyBUF_ND));
        buffer.strides = first(&self.strides, asks(ffi::PyBUF_STRIDES));
        if asks(ffi::PyBUF_FORMAT) {
            buffer.format = format.as_ptr().cast_mut();
        }
        buffer
    }
}
