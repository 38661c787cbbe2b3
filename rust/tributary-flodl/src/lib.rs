//! The public surface of flodl's `nccl` module, on Tributary, and outer averaging as in DiLoCo.
//!
//! flodl's tensors and streams need libtorch, so this crate knows them through two small traits,
//! [`Tensor`] and [`Stream`], and the rest through [`Framework`]. With them the module becomes
//! aliases, under which flodl's own code goes on as it is:
//!
//! ```
//! use std::ffi::c_void;
//! use tributary_flodl::{DType, Error, Framework, Stream, Tensor};
//! # #[derive(Clone)]
//! # pub struct FlodlTensor; // flodl's, which has the accessors below but for the address
//! # impl FlodlTensor {
//! #     fn address(&self) -> *mut c_void { std::ptr::null_mut() }
//! #     fn elements(&self) -> i64 { 0 }
//! #     fn kind(&self) -> Kind { Kind::Float32 }
//! #     fn place(&self) -> Device { Device::CUDA(0) }
//! #     fn contiguous(&self) -> bool { true }
//! # }
//! # #[derive(Clone, Copy, PartialEq)]
//! # enum Kind { Float32, Int64 }
//! # pub struct GpuStream;
//! # impl GpuStream {
//! #     fn address(&self) -> *mut c_void { std::ptr::null_mut() }
//! # }
//! # #[derive(Clone, Copy)]
//! # pub enum Device { CPU, CUDA(u8) }
//! # pub struct TensorError(String);
//! # fn current_gpu_device() -> u8 { 0 }
//!
//! // SAFETY: libtorch keeps the storage alive and in place while a handle of it lives. Copies to
//! // the host wait for the device.
//! unsafe impl Tensor for FlodlTensor {
//!     fn data_ptr(&self) -> *mut c_void { self.address() }
//!     fn numel(&self) -> usize { self.elements() as usize }
//!     fn dtype(&self) -> DType {
//!         match self.kind() {
//!             Kind::Float32 => DType::F32,
//!             Kind::Int64 => DType::I64, // and so on
//!         }
//!     }
//!     fn device_index(&self) -> Option<usize> { Flodl::device_index(self.place()) }
//!     fn is_contiguous(&self) -> bool { self.contiguous() }
//! }
//!
//! // SAFETY: the `cudaStream_t` inside, from libtorch's pool, which never destroys a stream.
//! unsafe impl Stream for GpuStream {
//!     fn raw(&self) -> *mut c_void { self.address() }
//!     fn device_index(&self) -> usize { 0 }
//! }
//!
//! impl From<Error> for TensorError {
//!     fn from(error: Error) -> TensorError { TensorError(error.to_string()) }
//! }
//!
//! pub struct Flodl;
//!
//! impl Framework for Flodl {
//!     type Tensor = FlodlTensor;
//!     type Stream = GpuStream;
//!     type Device = Device;
//!     type Error = TensorError;
//!     fn device_index(device: Device) -> Option<usize> {
//!         match device {
//!             Device::CUDA(index) => Some(index.into()),
//!             Device::CPU => None,
//!         }
//!     }
//!     fn current_device() -> usize { current_gpu_device().into() }
//!     // and current_stream, where it is not the default stream
//! }
//!
//! // In the place of the module:
//! pub type NcclComms = tributary_flodl::NcclComms<Flodl>;
//! pub type NcclRankComm = tributary_flodl::NcclRankComm<Flodl>;
//! pub type NcclUniqueId = tributary_flodl::NcclUniqueId<Flodl>;
//! pub use tributary_flodl::{NcclAbortHandle, ReduceOp, NCCL_UNIQUE_ID_BYTES};
//!
//! // As flodl's code calls it:
//! fn stop(handle: &NcclAbortHandle) -> Result<(), TensorError> {
//!     handle.abort()?;
//!     Ok(())
//! }
//! ```
//!
//! # What is as in flodl, and what is not
//!
//! Names, arguments and refusals are those of flodl 0.5.2 to 0.9: a group has two devices at least,
//! none of them the CPU; a factor is for f32. Beyond that:
//!
//! * All tensors of all devices are checked before anything is queued.
//! * A clone of each tensor is kept until its work has run, so a tensor may be dropped at once.
//! * A list is packed, reduced as one and unpacked; after an abort all tensors of it are as before,
//!   or none. Calls of the ranks are compared.
//! * An abort frees nothing under a running call, and ends all ranks of the process.
//! * Every wait for other ranks has a deadline.
//! * [`NcclRankComm::weighted_average`] takes raw weights: no count collective, no wait of the host.
//! * [`NcclRankComm::communicator`] is the Tributary communicator inside.
//!
//! [`Framework::backend`] may be `host`: then the same program runs without GPUs, as the tests of
//! this crate do.
//!
//! # Outer averaging
//!
//! [`OuterAverage`] averages what ranks have learned in some steps of their own, with a dense or a
//! sparse exchange, and takes flodl's outer steps; it needs the [`Arithmetic`] of the tensors.

mod abort;
mod error;
mod framework;
mod group;
mod id;
mod kept;
mod op;
mod outer;
mod rank;
mod rule;

pub use abort::NcclAbortHandle;
pub use error::Error;
pub use framework::{Framework, Stream, Tensor};
pub use group::NcclComms;
pub use id::{NcclUniqueId, NCCL_UNIQUE_ID_BYTES};
pub use op::ReduceOp;
pub use outer::OuterAverage;
pub use rank::NcclRankComm;
pub use rule::{Arithmetic, OuterRule};
pub use tributary::{DType, Options, SparseOptions};
