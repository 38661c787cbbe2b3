//! The memory of a tensor, whoever made it.
//!
//! This package's own is known. Otherwise three protocols, in this order: the buffer protocol (numpy,
//! bytearray, array, ctypes), which says what is read-only; DLPack (torch, JAX, CuPy), which knows bf16 and
//! streams; `__cuda_array_interface__` (Numba). A view keeps the memory alive.

use std::ffi::{c_void, CStr};

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tributary_sys as sys;

use crate::dlpack;
use crate::exports;
use crate::failure::{buffer, Outcome};
use crate::place::Place;
use crate::stream::{Address, OnStream};
use crate::symmetric::Symmetric;

/// Where the elements lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    Host,
    /// Of the host, and CUDA can read and write it.
    Pinned,
    /// Of a GPU; `None`: the protocol does not say which.
    Cuda(Option<i32>),
}

/// What a protocol says, before it is checked.
pub struct Raw {
    pub data: usize,
    pub shape: Vec<i64>,
    /// In elements; `None`: contiguous.
    pub strides: Option<Vec<i64>>,
    pub dtype: sys::trib_dtype,
    pub read_only: bool,
    pub memory: Memory,
    pub keep: Vec<Py<PyAny>>,
}

/// `count` elements of `dtype` at `data`, contiguous, alive as long as `keep`.
pub struct View {
    pub data: Address,
    pub count: usize,
    pub dtype: sys::trib_dtype,
    pub keep: Vec<Py<PyAny>>,
}

/// Who asks for a view: "allreduce on rank 1 (host device 1)".
pub struct Asker<'a> {
    pub who: &'a str,
    pub place: Place,
    pub stream: &'a OnStream,
}

impl Asker<'_> {
    /// A tensor that the call reads.
    pub fn read(&self, name: &str, tensor: &Bound<'_, PyAny>) -> PyResult<View> {
        self.view(name, tensor, false)
    }

    /// A tensor that the call writes.
    pub fn write(&self, name: &str, tensor: &Bound<'_, PyAny>) -> PyResult<View> {
        self.view(name, tensor, true)
    }

    fn view(&self, name: &str, tensor: &Bound<'_, PyAny>, write: bool) -> PyResult<View> {
        let who = format!("{}: `{name}`", self.who);
        let raw = self.ask(tensor, &who, write).map_err(|error| named(tensor.py(), &who, error))?;
        if write && raw.read_only {
            return Err(buffer(format!(
                "{who} is read-only; expected memory that the call can write"
            ))
            .into());
        }
        self.check_memory(raw.memory, &who)?;
        let count = count(&raw, &who)?;
        check_strides(&raw, &who)?;
        let data = Address(raw.data as *mut c_void);
        Ok(View { data, count, dtype: raw.dtype, keep: raw.keep })
    }

    fn ask(&self, tensor: &Bound<'_, PyAny>, who: &str, write: bool) -> PyResult<Raw> {
        let py = tensor.py();
        let stream = (!self.place.is_host()).then_some(self.stream.raw.0 as usize);
        if let Ok(own) = tensor.cast::<Symmetric>() {
            return own.get().raw(py);
        }
        if let Some(raw) = exports::buffer(tensor, who)? {
            return Ok(raw);
        }
        if tensor.hasattr("__dlpack__")? {
            let stream = self.stream_for(tensor, stream)?;
            return dlpack::raw(py, tensor, dlpack::Ask { stream, write }, who);
        }
        if let Some(interface) = tensor.getattr_opt("__cuda_array_interface__")? {
            return exports::cuda(
                tensor,
                interface.cast::<PyDict>()?,
                self.place,
                self.stream,
                who,
            );
        }
        Err(buffer(format!(
            "{who} is a {}; expected a tensor: an object with __dlpack__ or \
             __cuda_array_interface__, or one with a buffer, such as numpy's arrays",
            tensor.get_type().name()?
        ))
        .into())
    }

    /// Only tensors of a GPU take a stream.
    fn stream_for(
        &self,
        tensor: &Bound<'_, PyAny>,
        stream: Option<usize>,
    ) -> PyResult<Option<usize>> {
        let device: (i32, i64) = tensor.call_method0("__dlpack_device__")?.extract()?;
        Ok(stream.filter(|_| matches!(device.0, 2 | 13)))
    }

    fn check_memory(&self, memory: Memory, who: &str) -> Outcome<()> {
        let (found, remedy) = match (self.place.is_host(), memory) {
            (true, Memory::Host | Memory::Pinned) | (false, Memory::Cuda(_) | Memory::Pinned) => {
                return Ok(())
            }
            (true, Memory::Cuda(_)) => {
                ("of a GPU", "memory of the host, which the host backend reads and writes")
            }
            (false, Memory::Host) => ("of the host", "memory of this rank's GPU"),
        };
        Err(buffer(format!("{who} is in memory {found}; expected {remedy}")))
    }
}

/// What a tensor's own code has raised does not know for which argument it was asked. What is no
/// Exception, such as KeyboardInterrupt, is nobody's.
fn named(py: Python<'_>, who: &str, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyException>(py)
        || error.value(py).hasattr("detail").unwrap_or(false)
    {
        return error;
    }
    let named = PyErr::from(buffer(format!("{who} cannot say where its memory is: {error}")));
    named.set_cause(py, Some(error));
    named
}

/// The number of elements, whose bytes an address can count.
fn count(raw: &Raw, who: &str) -> Outcome<usize> {
    // SAFETY: "Bytes of one element"; no object.
    let bytes = unsafe { sys::trib_dtype_size(raw.dtype) };
    let lengths: Option<Vec<usize>> =
        raw.shape.iter().map(|&length| usize::try_from(length).ok()).collect();
    let count = lengths.and_then(|lengths| match lengths.contains(&0) {
        true => Some(0),
        false => lengths.iter().try_fold(1_usize, |all, &length| all.checked_mul(length)),
    });
    let fits =
        |count: &usize| count.checked_mul(bytes).is_some_and(|all| all <= isize::MAX as usize);
    count.filter(fits).ok_or_else(|| {
        let shape = &raw.shape;
        buffer(format!("{who} has the shape {shape:?}; expected lengths of 0 or more, in memory"))
    })
}

/// Only rows in order, without gaps: an element's number must mean the same on every rank.
fn check_strides(raw: &Raw, who: &str) -> Outcome<()> {
    let Some(strides) = &raw.strides else { return Ok(()) };
    if raw.shape.contains(&0) {
        return Ok(());
    }
    let mut next = 1; // cannot overflow: their product is the count
    for (&length, &stride) in raw.shape.iter().zip(strides).rev() {
        if length != 1 && stride != next {
            return Err(buffer(format!(
                "{who} is not contiguous: shape {:?}, strides {strides:?} (in elements); pass a \
                 contiguous tensor, and copy the result back if it is written",
                raw.shape
            )));
        }
        next *= length;
    }
    Ok(())
}

/// Names of the element types, as in the header.
const DTYPES: [(&str, sys::trib_dtype); 10] = [
    ("f16", sys::TRIB_F16),
    ("bf16", sys::TRIB_BF16),
    ("f32", sys::TRIB_F32),
    ("f64", sys::TRIB_F64),
    ("i8", sys::TRIB_I8),
    ("u8", sys::TRIB_U8),
    ("i32", sys::TRIB_I32),
    ("u32", sys::TRIB_U32),
    ("i64", sys::TRIB_I64),
    ("u64", sys::TRIB_U64),
];

pub fn dtype_name(dtype: sys::trib_dtype) -> &'static str {
    DTYPES.iter().find(|(_, known)| *known == dtype).map_or("?", |(name, _)| name)
}

pub fn dtype_of(name: &str, argument: &str) -> Outcome<sys::trib_dtype> {
    let known = DTYPES.iter().find(|(known, _)| *known == name).map(|(_, dtype)| *dtype);
    known.ok_or_else(|| {
        let names: Vec<_> = DTYPES.iter().map(|(name, _)| *name).collect();
        crate::failure::argument(format!(
            "`{argument}` is {name:?}; expected one of {}",
            names.join(", ")
        ))
    })
}

/// In the words of buffers, and of `__cuda_array_interface__`: neither has one for bf16.
pub fn format_of(dtype: sys::trib_dtype) -> Option<(&'static CStr, &'static str)> {
    match dtype {
        sys::TRIB_F16 => Some((c"e", "<f2")),
        sys::TRIB_F32 => Some((c"f", "<f4")),
        sys::TRIB_F64 => Some((c"d", "<f8")),
        sys::TRIB_I8 => Some((c"b", "|i1")),
        sys::TRIB_U8 => Some((c"B", "|u1")),
        sys::TRIB_I32 => Some((c"i", "<i4")),
        sys::TRIB_U32 => Some((c"I", "<u4")),
        sys::TRIB_I64 => Some((c"q", "<i8")),
        sys::TRIB_U64 => Some((c"Q", "<u8")),
        _ => None,
    }
}

pub fn op_of(name: &str, who: &str) -> Outcome<sys::trib_op> {
    match name {
        "sum" => Ok(sys::TRIB_SUM),
        "prod" => Ok(sys::TRIB_PROD),
        "min" => Ok(sys::TRIB_MIN),
        "max" => Ok(sys::TRIB_MAX),
        "avg" => Ok(sys::TRIB_AVG),
        other => Err(crate::failure::argument(format!(
            "{who}: `op` is {other:?}; expected \"sum\", \"prod\", \"min\", \"max\" or \"avg\""
        ))),
    }
}

pub fn variant_of(name: &str, who: &str) -> Outcome<sys::trib_variant> {
    match name {
        "auto" => Ok(sys::TRIB_VARIANT_AUTO),
        "nccl" => Ok(sys::TRIB_VARIANT_NCCL),
        "push" => Ok(sys::TRIB_VARIANT_PUSH),
        "one_shot" => Ok(sys::TRIB_VARIANT_ONE_SHOT),
        "two_shot" => Ok(sys::TRIB_VARIANT_TWO_SHOT),
        "symmetric" => Ok(sys::TRIB_VARIANT_SYMMETRIC),
        "window" => Ok(sys::TRIB_VARIANT_WINDOW),
        other => Err(crate::failure::argument(format!(
            "{who}: `variant` is {other:?}; expected \"auto\", \"nccl\", \"push\", \"one_shot\", \
             \"two_shot\", \"symmetric\" or \"window\""
        ))),
    }
}
