//! Tensors of other libraries through DLPack (https://dmlc.github.io/dlpack).

use std::ffi::{c_void, CStr};
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
const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

/// A tensor that has `__dlpack__`. Its memory lives as long as the capsule, which is not consumed:
/// its destructor gives the tensor back.
///
/// `stream` as the protocol has it: the exporter makes that stream wait for its own.
pub fn raw(
    py: Python<'_>,
    tensor: &Bound<'_, PyAny>,
    stream: Option<usize>,
    who: &str,
) -> PyResult<Raw> {
    let capsule = capsule(py, &without_gradient(tensor)?, stream, who)?;
    // SAFETY: the capsule is alive, and the name is checked before the address is read; the layouts
    // are the protocol's.
    let (dl, read_only) = unsafe {
        let object = capsule.as_ptr();
        if ffi::PyCapsule_IsValid(object, PLAIN.as_ptr()) != 0 {
            (*ffi::PyCapsule_GetPointer(object, PLAIN.as_ptr()).cast::<DlTensor>(), false)
        } else if ffi::PyCapsule_IsValid(object, VERSIONED.as_ptr()) != 0 {
            let managed = ffi::PyCapsule_GetPointer(object, VERSIONED.as_ptr()).cast::<Versioned>();
            if (*managed).major != 1 {
                return Err(buffer(format!(
                    "{who}: DLPack {}; expected version 1",
                    (*managed).major
                ))
                .into());
            }
            ((*managed).tensor, (*managed).flags & READ_ONLY != 0)
        } else {
            return Err(buffer(format!("{who}: __dlpack__ returned no capsule of a tensor")).into());
        }
    };
    // SAFETY: shape and strides have `ndim` entries each, and live as long as the capsule.
    let (shape, strides) = unsafe { (numbers(dl.shape, dl.ndim), numbers(dl.strides, dl.ndim)) };
    Ok(Raw {
        data: dl.data as usize + dl.byte_offset as usize,
        shape: shape.unwrap_or_default(),
        strides,
        dtype: dtype(&dl, who)?,
        read_only,
        memory: memory(dl.device_type, dl.device_id, who)?,
        keep: vec![capsule.unbind()],
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
    stream: Option<usize>,
    who: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let options = PyDict::new(py);
    if let Some(stream) = stream {
        // 0 is ambiguous in the protocol: 1 is the legacy default stream.
        options.set_item("stream", stream.max(1))?;
    }
    options.set_item("max_version", (1, 0))?;
    let made = tensor.call_method("__dlpack__", (), Some(&options)).or_else(|error| {
        if !error.is_instance_of::<PyTypeError>(py) {
            return Err(error);
        }
        options.del_item("max_version")?; // older than version 1
        tensor.call_method("__dlpack__", (), Some(&options))
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
