//! Tensors of other libraries through DLPack (https://dmlc.github.io/dlpack).

use std::ffi::{c_void, CStr};
use std::ptr::NonNull;
use std::slice;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tributary_sys as sys;

use crate::failure::{buffer, Outcome};
use crate::view::{Memory, Raw};

#[repr(C)]
#[derive(Clone, Copy)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// DLManagedTensor.
#[repr(C)]
struct Plain {
    tensor: DlTensor,
    manager: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Plain)>,
}

/// DLManagedTensorVersioned, whose tensor comes behind what may change.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    manager: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: DlTensor,
}

const READ_ONLY: u64 = 1;
const IS_COPIED: u64 = 2;

/// A tensor that its exporter has given away: it gets it back when this is dropped, which happens
/// with the GIL, as deleters need it.
#[pyclass(frozen)]
struct Lent(Managed);

enum Managed {
    Plain(NonNull<Plain>),
    Versioned(NonNull<Versioned>),
}

// SAFETY: it is read when it is made, and given back once; whoever drops an object of Python has
// the GIL.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Lent {
    /// Takes the tensor out of a capsule, as the protocol has it: who renames the capsule calls the
    /// deleter.
    fn take(capsule: &Bound<'_, PyAny>) -> PyResult<Option<Lent>> {
        let plain = consume(capsule, c"dltensor", c"used_dltensor")?;
        if let Some(raw) = plain {
            return Ok(Some(Lent(Managed::Plain(raw.cast()))));
        }
        let versioned = consume(capsule, c"dltensor_versioned", c"used_dltensor_versioned")?;
        Ok(versioned.map(|raw| Lent(Managed::Versioned(raw.cast()))))
    }

    /// The tensor and its flags, unless its version is not known.
    fn read(&self, who: &str) -> Outcome<(DlTensor, u64)> {
        match self.0 {
            // SAFETY: ours until the drop; the layout is the protocol's.
            Managed::Plain(raw) => Ok((unsafe { raw.as_ref() }.tensor, 0)),
            Managed::Versioned(raw) => {
                // SAFETY: as above; what comes before the tensor is the same in all versions.
                let major = unsafe { (*raw.as_ptr()).major };
                if major != 1 {
                    return Err(buffer(format!("{who}: DLPack {major}; expected version 1")));
                }
                // SAFETY: this version has this layout.
                let raw = unsafe { raw.as_ref() };
                Ok((raw.tensor, raw.flags))
            }
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: "the consumer calls the deleter", once, with the GIL; nothing reads it any more.
        unsafe {
            match self.0 {
                Managed::Plain(raw) => {
                    if let Some(deleter) = (*raw.as_ptr()).deleter {
                        deleter(raw.as_ptr());
                    }
                }
                Managed::Versioned(raw) => {
                    if let Some(deleter) = (*raw.as_ptr()).deleter {
                        deleter(raw.as_ptr());
                    }
                }
            }
        }
    }
}

/// The address in a capsule of this name, which gets the other; `None` if it has another name.
fn consume(
    capsule: &Bound<'_, PyAny>,
    name: &'static CStr,
    used: &'static CStr,
) -> PyResult<Option<NonNull<c_void>>> {
    let object = capsule.as_ptr();
    // SAFETY: the object is alive, the names live for ever. A name is set once the address is known
    // not to be NULL.
    unsafe {
        if ffi::PyCapsule_IsValid(object, name.as_ptr()) == 0 {
            return Ok(None);
        }
        let raw = NonNull::new(ffi::PyCapsule_GetPointer(object, name.as_ptr()));
        let raw = raw.ok_or_else(|| PyErr::fetch(capsule.py()))?;
        if ffi::PyCapsule_SetName(object, used.as_ptr()) != 0 {
            return Err(PyErr::fetch(capsule.py()));
        }
        Ok(Some(raw))
    }
}

/// What an exporter is asked for.
#[derive(Clone, Copy)]
pub struct Ask {
    /// As the protocol has it: the exporter makes that stream wait for its own.
    pub stream: Option<usize>,
    /// The tensor will be written, so a copy will not do.
    pub write: bool,
}

/// A tensor that has `__dlpack__`.
pub fn raw(py: Python<'_>, tensor: &Bound<'_, PyAny>, ask: Ask, who: &str) -> PyResult<Raw> {
    let capsule = capsule(py, &without_gradient(tensor)?, ask, who)?;
    let Some(lent) = Lent::take(&capsule)? else {
        return Err(buffer(format!("{who}: __dlpack__ returned no capsule of a tensor")).into());
    };
    let (dl, flags) = lent.read(who)?;
    if ask.write && flags & IS_COPIED != 0 {
        return Err(buffer(format!(
            "{who}: __dlpack__ returned a copy; expected the memory of the tensor, which the call \
             writes"
        ))
        .into());
    }
    // SAFETY: shape and strides have `ndim` entries each, and live as long as what was lent.
    let (shape, strides) = unsafe { (numbers(dl.shape, dl.ndim), numbers(dl.strides, dl.ndim)) };
    let shape = match (shape, dl.ndim) {
        (Some(shape), _) => shape,
        (None, 0) => Vec::new(),
        (None, n) => {
            return Err(buffer(format!("{who} has {n} dimensions, and no shape")).into());
        }
    };
    Ok(Raw {
        data: (dl.data as usize).wrapping_add(dl.byte_offset as usize),
        shape,
        strides,
        dtype: dtype(&dl, who)?,
        read_only: flags & READ_ONLY != 0,
        memory: memory(dl.device_type, dl.device_id, who)?,
        keep: vec![Py::new(py, lent)?.into_any()],
    })
}

/// torch exports no tensor that asks for a gradient; what is asked for here are its elements.
fn without_gradient<'py>(tensor: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let asks = tensor.getattr_opt("requires_grad")?;
    match asks.map(|asks| asks.is_truthy()).transpose()? {
        Some(true) => tensor.call_method0("detach"),
        _ => Ok(tensor.clone()),
    }
}

fn capsule<'py>(
    py: Python<'py>,
    tensor: &Bound<'py, PyAny>,
    ask: Ask,
    who: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let options = PyDict::new(py);
    if let Some(stream) = ask.stream {
        // 0 is ambiguous in the protocol: 1 is the legacy default stream.
        options.set_item("stream", stream.max(1))?;
    }
    let older = options.copy()?;
    options.set_item("max_version", (1, 0))?;
    if ask.write {
        options.set_item("copy", false)?;
    }
    let made = tensor.call_method("__dlpack__", (), Some(&options)).or_else(|error| {
        if !error.is_instance_of::<PyTypeError>(py) {
            return Err(error);
        }
        // Before version 1 there was neither.
        tensor.call_method("__dlpack__", (), Some(&older))
    });
    made.map_err(|error| {
        let failure = buffer(format!("{who}: __dlpack__ failed: {error}"));
        let raised = PyErr::from(failure);
        raised.set_cause(py, Some(error));
        raised
    })
}

/// # Safety
/// `first` is NULL or the first of `n` numbers.
unsafe fn numbers(first: *const i64, n: i32) -> Option<Vec<i64>> {
    let n = usize::try_from(n).ok()?;
    // SAFETY: the caller's promise.
    (!first.is_null()).then(|| unsafe { slice::from_raw_parts(first, n) }.to_vec())
}

fn memory(device_type: i32, device_id: i32, who: &str) -> Outcome<Memory> {
    match device_type {
        1 => Ok(Memory::Host),
        2 | 13 => Ok(Memory::Cuda(Some(device_id))),
        3 => Ok(Memory::Pinned),
        other => Err(buffer(format!(
            "{who} is on a device of DLPack's type {other}; expected memory of the host or of CUDA"
        ))),
    }
}

fn dtype(dl: &DlTensor, who: &str) -> Outcome<sys::trib_dtype> {
    let known = match (dl.code, dl.bits, dl.lanes) {
        (2, 16, 1) => sys::TRIB_F16,
        (4, 16, 1) => sys::TRIB_BF16,
        (2, 32, 1) => sys::TRIB_F32,
        (2, 64, 1) => sys::TRIB_F64,
        (0, 8, 1) => sys::TRIB_I8,
        (1, 8, 1) => sys::TRIB_U8,
        (0, 32, 1) => sys::TRIB_I32,
        (1, 32, 1) => sys::TRIB_U32,
        (0, 64, 1) => sys::TRIB_I64,
        (1, 64, 1) => sys::TRIB_U64,
        (code, bits, lanes) => {
            return Err(buffer(format!(
                "{who} has elements of DLPack's type (code {code}, {bits} bits, {lanes} lanes); \
                 expected f16, bf16, f32, f64, i8, u8, i32, u32, i64 or u64"
            )))
        }
    };
    Ok(known)
}

// The layouts are those of the protocol, on 64-bit machines.
const _: () =
    assert!(std::mem::size_of::<DlTensor>() == 48 && std::mem::size_of::<Versioned>() == 80);
const _: () = assert!(std::mem::size_of::<Plain>() == 64);
