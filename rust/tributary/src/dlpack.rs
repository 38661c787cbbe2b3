//! Tensors as [DLPack](https://dmlc.github.io/dlpack/latest/) structures, which most frameworks
//! export: the feature `dlpack`.
//!
//! ```
//! use tributary::dlpack::{DlTensor, ManagedTensor, Tensor};
//! # use tributary::{DType, DeviceBuffer, Group, ReduceOp, Stream};
//! # use tributary::dlpack::{DlDataType, DlDevice};
//! # let mut values = [1.0_f32, 2.0, 3.0, 4.0];
//! # let mut shape = [2_i64, 2];
//! # let mut from_a_framework = ManagedTensor {
//! #     dl_tensor: DlTensor {
//! #         data: values.as_mut_ptr().cast(),
//! #         device: DlDevice { device_type: 1, device_id: 0 },
//! #         ndim: 2,
//! #         dtype: DlDataType { code: 2, bits: 32, lanes: 1 },
//! #         shape: shape.as_mut_ptr(),
//! #         strides: std::ptr::null_mut(),
//! #         byte_offset: 0,
//! #     },
//! #     manager_ctx: std::ptr::null_mut(),
//! #     deleter: None,
//! # };
//! # let pointer: *mut ManagedTensor = &mut from_a_framework;
//! // SAFETY: the framework gives the tensor away; nothing else uses it until the wait has ended.
//! let tensor = unsafe { Tensor::from_managed(pointer) }?;
//! assert_eq!((tensor.len(), tensor.dtype()), (4, DType::F32));
//!
//! # let options = tributary::Options::new().backend("host");
//! # let mut comm = Group::with_options(1, &options)?.split()?.remove(0);
//! let stream = Stream::new(comm.device())?;
//! // SAFETY: as above.
//! unsafe { comm.allreduce(&tensor, &tensor, ReduceOp::Avg, &stream) }?;
//! comm.wait(&stream)?;
//! # drop(tensor);
//! # assert_eq!(values, [1.0, 2.0, 3.0, 4.0]);
//! # Ok::<(), tributary::Error>(())
//! ```

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;

use tributary_sys as sys;

use crate::buffer::DeviceBuffer;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlDevice {
    /// `DLDeviceType`: 1 is the CPU, 2 is CUDA, 3 is CPU memory pinned by CUDA, 13 is managed by
    /// it.
    pub device_type: i32,
    /// The device number.
    pub device_id: i32,
}

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlDataType {
    /// `DLDataTypeCode`: 0 is signed, 1 unsigned, 2 IEEE 754, 4 bfloat.
    pub code: u8,
    /// Bits of one lane.
    pub bits: u8,
    /// Lanes; 1 for scalars.
    pub lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DlTensor {
    /// The allocation.
    pub data: *mut c_void,
    /// The device that holds it.
    pub device: DlDevice,
    /// Number of dimensions.
    pub ndim: i32,
    /// Type of the elements.
    pub dtype: DlDataType,
    /// `ndim` lengths.
    pub shape: *mut i64,
    /// `ndim` strides in elements; NULL for a row-major tensor without gaps.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// `DLManagedTensor`, which DLPack before version 1.0 exchanges.
#[repr(C)]
#[derive(Debug)]
pub struct ManagedTensor {
    /// The tensor.
    pub dl_tensor: DlTensor,
    /// Private to the producer.
    pub manager_ctx: *mut c_void,
    /// Returns the tensor to its producer; NULL if there is nothing to do.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// `DLPackVersion`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlpackVersion {
    /// Versions with another major number have another layout.
    pub major: u32,
    /// Versions with a larger minor number have more fields.
    pub minor: u32,
}

/// `DLManagedTensorVersioned`, which DLPack 1 exchanges.
#[repr(C)]
#[derive(Debug)]
pub struct ManagedTensorVersioned {
    /// The producer's version.
    pub version: DlpackVersion,
    /// Private to the producer.
    pub manager_ctx: *mut c_void,
    /// Returns the tensor to its producer; NULL if there is nothing to do.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensorVersioned)>,
    /// Bit 0: read only.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DlTensor,
}

/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
const READ_ONLY: u64 = 1;

/// A tensor from a DLPack structure. Dropping it returns it to its producer.
///
/// It is a [`DeviceBuffer`] for the `unsafe` collectives: only the caller knows who else uses its
/// memory.
pub struct Tensor {
    /// Returns the structure when it is dropped.
    _owner: Owner,
    data: *mut c_void,
    len: usize,
    dtype: DType,
    device: Option<Device>,
    contiguous: bool,
    read_only: bool,
}

/// The structure to return to its producer.
enum Owner {
    Managed(NonNull<ManagedTensor>),
    Versioned(NonNull<ManagedTensorVersioned>),
}

impl Tensor {
    /// Takes a `DLManagedTensor`. On failure returns it to its producer at once.
    ///
    /// # Safety
    /// The caller may consume `tensor`, which describes its memory correctly.
    pub unsafe fn from_managed(tensor: *mut ManagedTensor) -> Result<Tensor> {
        let tensor = NonNull::new(tensor).ok_or_else(missing)?;
        let owner = Owner::Managed(tensor);
        // SAFETY: alive until `owner` is dropped.
        unsafe { Tensor::new(owner, &tensor.as_ref().dl_tensor, false) }
    }

    /// Takes a `DLManagedTensorVersioned`. On failure returns it to its producer at once.
    ///
    /// # Safety
    /// As for [`from_managed`](Tensor::from_managed).
    pub unsafe fn from_versioned(tensor: *mut ManagedTensorVersioned) -> Result<Tensor> {
        let tensor = NonNull::new(tensor).ok_or_else(missing)?;
        let owner = Owner::Versioned(tensor);
        // SAFETY: alive until `owner` is dropped; `version`, `manager_ctx` and `deleter` are at the
        // same place in every version.
        let version = unsafe { (*tensor.as_ptr()).version };
        if version.major != 1 {
            return Err(unsupported(format!(
                "a DLPack tensor of version {}.{}; ask for version 1",
                version.major, version.minor
            )));
        }
        // SAFETY: alive until `owner` is dropped, and of the layout of version 1.
        let versioned = unsafe { tensor.as_ref() };
        // SAFETY: the caller's promise.
        unsafe { Tensor::new(owner, &versioned.dl_tensor, versioned.flags & READ_ONLY != 0) }
    }

    /// # Safety
    /// `tensor` belongs to `owner` and describes its memory correctly.
    unsafe fn new(owner: Owner, tensor: &DlTensor, read_only: bool) -> Result<Tensor> {
        let dimensions = usize::try_from(tensor.ndim).unwrap_or(0);
        // SAFETY: `shape` has `ndim` entries.
        let shape = unsafe { entries(tensor.shape, dimensions) }.unwrap_or_default();
        // SAFETY: `strides` has `ndim` entries, or is NULL.
        let strides = unsafe { entries(tensor.strides, dimensions) };
        let len = shape.iter().try_fold(1_usize, |product, &length| {
            product.checked_mul(usize::try_from(length).ok()?)
        });
        let Some(len) = len else {
            return Err(Error::buffer(format!(
                "a DLPack tensor of the impossible shape {shape:?}"
            )));
        };
        Ok(Tensor {
            _owner: owner,
            data: tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize).cast(),
            len,
            dtype: dtype(tensor.dtype)?,
            device: device(tensor.device)?,
            contiguous: len == 0 || strides.map_or(true, |strides| is_row_major(shape, strides)),
            read_only,
        })
    }

    /// Returns whether the producer forbids writing. The collectives do not check it; the caller
    /// has to.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }
}

// SAFETY: the promise of `from_managed`; the memory is the tensor's until it is given back.
unsafe impl DeviceBuffer for Tensor {
    fn ptr(&self) -> *mut c_void {
        self.data
    }
    fn len(&self) -> usize {
        self.len
    }
    fn dtype(&self) -> DType {
        self.dtype
    }
    fn device(&self) -> Option<Device> {
        self.device
    }
    fn is_contiguous(&self) -> bool {
        self.contiguous
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        match *self {
            Owner::Managed(tensor) => {
                // SAFETY: it is ours; this is the last use.
                if let Some(deleter) = unsafe { tensor.as_ref() }.deleter {
                    // SAFETY: as above.
                    unsafe { deleter(tensor.as_ptr()) };
                }
            }
            Owner::Versioned(tensor) => {
                // SAFETY: it is ours; this is the last use. See `from_versioned` for the field.
                if let Some(deleter) = unsafe { (*tensor.as_ptr()).deleter } {
                    // SAFETY: as above.
                    unsafe { deleter(tensor.as_ptr()) };
                }
            }
        }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("len", &self.len)
            .field("dtype", &self.dtype)
            .field("device", &self.device)
            .field("contiguous", &self.contiguous)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

fn dtype(given: DlDataType) -> Result<DType> {
    match (given.code, given.bits, given.lanes) {
        (0, 8, 1) => Ok(DType::I8),
        (0, 32, 1) => Ok(DType::I32),
        (0, 64, 1) => Ok(DType::I64),
        (1, 8, 1) => Ok(DType::U8),
        (1, 32, 1) => Ok(DType::U32),
        (1, 64, 1) => Ok(DType::U64),
        (2, 16, 1) => Ok(DType::F16),
        (2, 32, 1) => Ok(DType::F32),
        (2, 64, 1) => Ok(DType::F64),
        (4, 16, 1) => Ok(DType::BF16),
        _ => Err(unsupported(format!(
            "a DLPack tensor of type code {}, {} bits, {} lanes; convert it to one of {:?}",
            given.code,
            given.bits,
            given.lanes,
            DType::ALL
        ))),
    }
}

/// Returns `None` for host memory, which belongs to no device.
fn device(given: DlDevice) -> Result<Option<Device>> {
    match (given.device_type, usize::try_from(given.device_id)) {
        (1 | 3 | 13, _) => Ok(None),
        (2, Ok(ordinal)) => Device::get("nccl", ordinal).map(Some),
        _ => Err(unsupported(format!(
            "a DLPack tensor on device type {}, device {}; move it to the CPU or to CUDA",
            given.device_type, given.device_id
        ))),
    }
}

/// Whether the elements are contiguous in row-major order.
fn is_row_major(shape: &[i64], strides: &[i64]) -> bool {
    let mut expected = 1;
    shape.iter().zip(strides).rev().all(|(&length, &stride)| {
        let fits = length == 1 || stride == expected;
        expected *= length;
        fits
    })
}

/// `None` for NULL.
///
/// # Safety
/// `first` is NULL or points to `n` entries, which live as long as the caller uses them.
unsafe fn entries<'a>(first: *const i64, n: usize) -> Option<&'a [i64]> {
    // SAFETY: the caller's promise.
    (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first, n) })
}

#[cold]
fn missing() -> Error {
    Error::argument("a DLPack tensor that is NULL")
}

#[cold]
fn unsupported(detail: String) -> Error {
    Error::new(sys::TRIB_ERR_UNSUPPORTED, detail)
}

#[cfg(test)]
mod tests {
    use std::ptr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::ErrorKind;

    fn tensor(shape: &mut [i64], strides: Option<&mut [i64]>) -> DlTensor {
        DlTensor {
            data: ptr::null_mut::<u8>().wrapping_add(4096).cast(),
            device: DlDevice { device_type: 1, device_id: 0 },
            ndim: shape.len() as i32,
            dtype: DlDataType { code: 4, bits: 16, lanes: 1 },
            shape: shape.as_mut_ptr(),
            strides: strides.map_or(ptr::null_mut(), |strides| strides.as_mut_ptr()),
            byte_offset: 16,
        }
    }

    static DELETED: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn delete(_: *mut ManagedTensor) {
        DELETED.fetch_add(1, Ordering::SeqCst);
    }

    unsafe extern "C" fn delete_versioned(_: *mut ManagedTensorVersioned) {
        DELETED.fetch_add(1, Ordering::SeqCst);
    }

    fn take(dl_tensor: DlTensor) -> Result<Tensor> {
        let managed =
            ManagedTensor { dl_tensor, manager_ctx: ptr::null_mut(), deleter: Some(delete) };
        // SAFETY: leaked, so alive; its memory is not looked at.
        unsafe { Tensor::from_managed(Box::leak(Box::new(managed))) }
    }

    fn is_contiguous(shape: &mut [i64], strides: &mut [i64]) -> bool {
        take(tensor(shape, Some(strides))).unwrap().is_contiguous()
    }

    #[test]
    fn layouts() {
        let plain = take(tensor(&mut [2, 3], None)).unwrap();
        assert_eq!((plain.ptr() as usize, plain.len()), (4096 + 16, 6));
        assert_eq!((plain.dtype(), plain.device()), (DType::BF16, None));
        assert!(plain.is_contiguous());
        let scalar = take(tensor(&mut [], None)).unwrap();
        assert_eq!((scalar.len(), scalar.is_contiguous()), (1, true));
        assert!(is_contiguous(&mut [2, 3], &mut [3, 1]));
        assert!(is_contiguous(&mut [1, 3], &mut [99, 1]));
        assert!(is_contiguous(&mut [0, 3], &mut [7, 7]));
        assert!(!is_contiguous(&mut [2, 3], &mut [1, 2]));
        assert!(!is_contiguous(&mut [2, 3], &mut [6, 2]));
    }

    #[test]
    fn what_is_refused_is_given_back() {
        let before = DELETED.load(Ordering::SeqCst);
        let mut shape = [2];
        let plain = tensor(&mut shape, None);
        let boolean = DlTensor { dtype: DlDataType { code: 6, bits: 8, lanes: 1 }, ..plain };
        assert_eq!(take(boolean).unwrap_err().kind(), ErrorKind::Unsupported);
        let elsewhere = DlTensor { device: DlDevice { device_type: 8, device_id: 0 }, ..plain };
        assert_eq!(take(elsewhere).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(take(tensor(&mut [-1], None)).unwrap_err().kind(), ErrorKind::InvalidBuffer);
        // SAFETY: NULL is refused.
        assert!(unsafe { Tensor::from_managed(ptr::null_mut()) }.is_err());
        assert!(DELETED.load(Ordering::SeqCst) >= before + 3);
    }

    #[test]
    fn versions() {
        let mut shape = [2];
        let mut take = |major, flags| {
            let versioned = ManagedTensorVersioned {
                version: DlpackVersion { major, minor: 2 },
                manager_ctx: ptr::null_mut(),
                deleter: Some(delete_versioned),
                flags,
                dl_tensor: tensor(&mut shape, None),
            };
            // SAFETY: leaked, so alive; its memory is not looked at.
            unsafe { Tensor::from_versioned(Box::leak(Box::new(versioned))) }
        };
        assert!(!take(1, 0).unwrap().is_read_only());
        assert!(take(1, 1).unwrap().is_read_only());
        assert_eq!(take(2, 0).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
