//! Tensors through the buffer protocol and `__cuda_array_interface__`.

use std::ffi::{c_void, CStr};
use std::mem::MaybeUninit;
use std::slice;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tributary_sys as sys;

use crate::event::Mark;
use crate::failure::{buffer as wrong, Outcome};
use crate::place::Place;
use crate::stream::{Address, OnStream};
use crate::view::{Memory, Raw};

/// `None` if the object has no buffer, or has elements whose type the protocol cannot say.
pub fn buffer(tensor: &Bound<'_, PyAny>, who: &str) -> PyResult<Option<Raw>> {
    let py = tensor.py();
    // SAFETY: the object is alive.
    if unsafe { ffi::PyObject_CheckBuffer(tensor.as_ptr()) } == 0 {
        return Ok(None);
    }
    // The memory view keeps the buffer exported, so that a bytearray cannot move.
    // SAFETY: the object is alive; a new reference, or NULL with an exception.
    let view =
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyMemoryView_FromObject(tensor.as_ptr())) };
    let view = match view {
        Ok(view) => view,
        // Another protocol may say what the buffer cannot, such as bf16.
        Err(_) if has_another_protocol(tensor)? => return Ok(None),
        Err(error) => {
            let raised = PyErr::from(wrong(format!("{who} exports no buffer: {error}")));
            raised.set_cause(py, Some(error));
            return Err(raised);
        }
    };
    let mut filled = MaybeUninit::<ffi::Py_buffer>::uninit();
    // SAFETY: the view is alive; on success the struct is filled, and is released below.
    if unsafe { ffi::PyObject_GetBuffer(view.as_ptr(), filled.as_mut_ptr(), ffi::PyBUF_FULL_RO) }
        != 0
    {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: filled, see above.
    let mut filled = unsafe { filled.assume_init() };
    // SAFETY: of PyBUF_FULL_RO all fields are set.
    let raw = unsafe { read(&filled, view.unbind(), who) };
    // SAFETY: got above, released once. The memory view still holds the exporter's buffer.
    unsafe { ffi::PyBuffer_Release(&mut filled) };
    raw.map_err(PyErr::from)
}

fn has_another_protocol(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(tensor.hasattr("__dlpack__")? || tensor.hasattr("__cuda_array_interface__")?)
}

/// # Safety
/// Every field of `filled` is set.
unsafe fn read(filled: &ffi::Py_buffer, keep: Py<PyAny>, who: &str) -> Outcome<Option<Raw>> {
    let n = filled.ndim as usize;
    // SAFETY: a format, if there is one, is a string of C; shape and strides have `ndim` entries,
    // and are not read where there are none.
    let (format, shape, strides) = unsafe {
        let format = if filled.format.is_null() { c"B" } else { CStr::from_ptr(filled.format) };
        let entries = |first: *mut ffi::Py_ssize_t| match n {
            0 => Vec::new(),
            n => slice::from_raw_parts(first, n).to_vec(),
        };
        (format, entries(filled.shape), entries(filled.strides))
    };
    // SAFETY: suboffsets, if there are any, have `ndim` entries.
    if unsafe { is_indirect(filled.suboffsets, n) } {
        return Err(wrong(format!(
            "{who} is an array of pointers (its buffer has suboffsets); expected a contiguous one"
        )));
    }
    let size = filled.itemsize.max(1);
    let format = format.to_str().unwrap_or("?");
    let Some(dtype) = of_format(format, size as usize) else {
        return Err(wrong(format!(
            "{who} has elements of the format {format:?}; expected f16, f32, f64, i8, u8, i32, \
             u32, i64 or u64 in the byte order of this machine"
        )));
    };
    Ok(Some(Raw {
        data: filled.buf as usize,
        shape: shape.iter().map(|&length| length as i64).collect(),
        strides: Some(
            strides.iter().map(|&stride| in_elements(stride as i64, size as i64)).collect(),
        ),
        dtype,
        read_only: filled.readonly != 0,
        memory: Memory::Host,
        keep: vec![keep],
    }))
}

/// Whether what lies at the address are pointers to rows, and not elements.
///
/// # Safety
/// `suboffsets` is NULL or the first of `n`.
unsafe fn is_indirect(suboffsets: *const ffi::Py_ssize_t, n: usize) -> bool {
    // SAFETY: the caller's promise.
    !suboffsets.is_null() && (0..n).any(|i| unsafe { *suboffsets.add(i) } >= 0)
}

/// A stride that is no multiple of the element is that of no contiguous tensor.
fn in_elements(stride: i64, size: i64) -> i64 {
    if stride % size == 0 {
        stride / size
    } else {
        i64::MIN
    }
}

/// The type of one letter of the struct module.
fn of_format(format: &str, size: usize) -> Option<sys::trib_dtype> {
    let native =
        if cfg!(target_endian = "little") { ['@', '=', '<', '|'] } else { ['@', '=', '>', '|'] };
    let letter = format.strip_prefix(native).unwrap_or(format);
    match letter {
        "e" | "f" | "d" => of_kind('f', size),
        "b" | "i" | "l" | "q" | "n" => of_kind('i', size),
        "B" | "I" | "L" | "Q" | "N" => of_kind('u', size),
        _ => None,
    }
}

fn of_kind(kind: char, size: usize) -> Option<sys::trib_dtype> {
    match (kind, size) {
        ('f', 2) => Some(sys::TRIB_F16),
        ('f', 4) => Some(sys::TRIB_F32),
        ('f', 8) => Some(sys::TRIB_F64),
        ('i', 1) => Some(sys::TRIB_I8),
        ('u', 1) => Some(sys::TRIB_U8),
        ('i', 4) => Some(sys::TRIB_I32),
        ('u', 4) => Some(sys::TRIB_U32),
        ('i', 8) => Some(sys::TRIB_I64),
        ('u', 8) => Some(sys::TRIB_U64),
        _ => None,
    }
}

/// A tensor that has `__cuda_array_interface__`. If it names a stream, that of the call waits for
/// it.
pub fn cuda(
    tensor: &Bound<'_, PyAny>,
    interface: &Bound<'_, PyDict>,
    place: Place,
    stream: &OnStream,
    who: &str,
) -> PyResult<Raw> {
    let field =
        |name: &str| interface.get_item(name).map(|found| found.filter(|found| !found.is_none()));
    let needed = |name: &str| {
        let missing =
            || PyErr::from(wrong(format!("{who}: __cuda_array_interface__ has no {name:?}")));
        field(name)?.ok_or_else(missing)
    };
    if field("mask")?.is_some() {
        return Err(wrong(format!("{who} has a mask; expected a tensor without one")).into());
    }
    let kind: String = needed("typestr")?.extract()?;
    let (data, read_only): (usize, bool) = needed("data")?.extract()?;
    let (letter, size) =
        kind.trim_start_matches(['<', '|']).split_at_checked(1).unwrap_or(("?", ""));
    let size = size.parse().unwrap_or(0);
    let Some(dtype) = letter.chars().next().and_then(|letter| of_kind(letter, size)) else {
        return Err(wrong(format!(
            "{who} has elements of the type {kind:?}; expected floats or integers"
        ))
        .into());
    };
    let strides: Option<Vec<i64>> =
        field("strides")?.map(|strides| strides.extract()).transpose()?;
    if let (Some(other), false) = (field("stream")?, place.is_host()) {
        let (other, stream) = (Address(other.extract::<usize>()? as *mut c_void), stream.raw);
        tensor.py().detach(|| order(other, place, stream))?;
    }
    Ok(Raw {
        data,
        shape: needed("shape")?.extract()?,
        strides: strides
            .map(|all| all.iter().map(|&stride| in_elements(stride, size as i64)).collect()),
        dtype,
        read_only,
        memory: Memory::Cuda(None),
        keep: vec![tensor.clone().unbind()],
    })
}

/// What is queued on `other` by now runs before what is queued on `stream` later. 1 is the legacy
/// default stream.
fn order(other: Address, place: Place, stream: Address) -> Outcome<()> {
    let same = other.0 == stream.0 || (other.0 as usize <= 1 && stream.0 as usize <= 1);
    if same {
        return Ok(());
    }
    Mark::record(place, other)?.order_before(place, stream)
}
