//! Collective operations for authors of deep-learning frameworks, who bring their own tensors and
//! streams. On GPUs Tributary builds on NCCL. Without a GPU the same program runs on a host
//! backend, where ranks are threads and memory is ordinary memory.
//!
//! ```
//! use tributary::{Communicator, DeviceVec, Group, InPlace, ReduceOp, Result, Stream};
//!
//! fn train(comm: &mut Communicator) -> Result<()> {
//!     let stream = Stream::new(comm.device())?;
//!     let mine = vec![comm.rank() as f32; 1000];
//!     let mut gradient = DeviceVec::from_slice(comm.device(), &mine)?;
//!     comm.scope(&stream, |s| s.allreduce(InPlace, &mut gradient, ReduceOp::Avg))?;
//!     assert_eq!(gradient.download(&stream)?, [1.5; 1000]);
//!     Ok(())
//! }
//!
//! fn main() -> Result<()> {
//!     // One thread for each rank; on the nccl backend, one GPU as well.
//!     Group::new(4)?.run(train)?;
//!     Ok(())
//! }
//! ```
//!
//! # The model
//!
//! A *rank* is one participant. A [`Communicator`] is one rank's end of the connection; a [`Group`]
//! holds all ranks of one process. Ranks of several processes connect through a [`UniqueId`], whose
//! bytes the caller distributes; [`Communicator::from_env`] does so for the processes that torchrun,
//! mpirun or srun has started. A *backend* defines how ranks communicate and where their memory
//! lives.
//!
//! A collective is *queued* on a [`Stream`] and returns at once. The work of a stream runs in
//! order; [`Event`]s order two streams. After you wait for a stream, results are valid if and only
//! if [`Communicator::status`] is `Ok`.
//!
//! Every rank makes the same calls, with the same lengths and types, in the same order. No type can
//! prove that, so the library compares calls before it touches memory, and ranks that differ get
//! [`ErrorKind::Mismatch`]. On host the comparison costs nothing; on nccl each call waits for it,
//! unless [`Options::assume_matching_calls`] promises that calls match. The page [`soundness`]
//! lists what safe code relies on.
//!
//! # Who owns the buffers
//!
//! There are three ways to queue a collective. [`Communicator::scope`] borrows buffers and waits at
//! its end; [`Communicator::start`] takes buffers and returns them later, and [`Work::then`] hands them
//! over to another stream without a wait of the host, nor does one that is dropped wait. (But on nccl
//! the host waits for the work before it while the ranks compare their calls, as they do unless that
//! promise is given.) The type system proves both sound. The `unsafe` methods of [`Communicator`] rely on
//! the caller. They take any tensor that implements [`DeviceBuffer`], also one that shares storage and
//! changes it through `&self`.
//!
//! # Gradients of a training step
//!
//! A [`Reducer`] averages the gradients of a step in buckets, while the backward pass makes the
//! others. It copies them, or they lie in the buckets; each step is all or nothing.
//!
//! # Sparse gradients
//!
//! A [`SparseAllReduce`] sends the k largest entries of `acc = gradient + residual` and keeps the
//! rest as the residual. It sends little and loses nothing. The page [`guide`] compares the
//! algorithms.
//!
//! # Symmetric memory
//!
//! [`Symmetric`] memory is allocated by all ranks together, and the device of each reads and writes that of
//! all others where it lies: kernels of yours by the addresses of [`Symmetric::peer`], and
//! [`Variant::Symmetric`].
//!
//! # When a rank fails
//!
//! An [`AbortHandle`] stops a communicator from any thread. An aborted call writes all tensors of a
//! list on a rank or none, so a program can repeat it. When ranks are lost, the watchdog notices
//! ([`Options::call_timeout`]), and [`recover`] goes on with the others.
//!
//! The page [`coming_from_flodl`] maps every item of flodl's `nccl` module to this crate.
//!
//! # Features
//!
//! * `nccl`: requires the nccl backend. If it cannot be built, the build fails and says what to do.
//!   Without this feature the nccl backend is built if CUDA and NCCL are found.
//! * `system`: links an installed C library, which pkg-config finds, instead of building one.
//! * `half`: implements [`Element`] for `half::f16` and `half::bf16`.
//! * `dlpack`: takes tensors as DLPack structures.
//! * `cudarc`: takes memory and streams of the cudarc crate.

mod abort;
mod applied;
mod backend;
mod batch;
mod buffer;
mod call_counters;
mod call_options;
mod capabilities;
mod check;
mod collectives;
mod communicator;
mod counters;
mod cta_policy;
#[cfg(feature = "cudarc")]
pub mod cudarc;
mod deadline;
pub mod debug;
mod device;
#[cfg(feature = "dlpack")]
pub mod dlpack;
mod dtype;
pub mod dump;
mod error;
mod event;
mod gradient;
mod group;
mod id;
mod job;
mod list;
pub mod log;
mod memory;
mod op;
mod options;
mod recover;
mod reducer;
mod reducer_handle;
mod reducer_options;
mod retired;
mod run;
mod scope;
mod sparse;
mod sparse_options;
mod stable;
mod step;
mod stream;
mod symmetric;
mod sync;
mod variant;
mod windows;
mod work;

pub use abort::{AbortHandle, CommState};
pub use backend::{quiesce, version, Backend, Version};
pub use batch::batch_all;
pub use buffer::{DeviceBuffer, DeviceSlice, DeviceVec, UniqueBuffer};
pub use call_options::CallOptions;
pub use capabilities::Capabilities;
pub use communicator::Communicator;
pub use counters::Counters;
pub use cta_policy::CtaPolicy;
pub use device::Device;
pub use dtype::{DType, Element};
pub use error::{Error, ErrorKind, Result};
pub use event::Event;
pub use gradient::Gradient;
pub use group::{Group, GroupScope};
pub use id::UniqueId;
pub use job::Job;
pub use list::Weight;
pub use memory::{Memory, Use};
pub use op::ReduceOp;
pub use options::Options;
pub use recover::recover;
pub use reducer::{Foreign, Lends, Reducer, Views};
pub use reducer_options::ReducerOptions;
pub use scope::{Held, InPlace, Input, Scope, Source, Target};
pub use sparse::{SparseAllReduce, SparseStatistics};
pub use sparse_options::SparseOptions;
pub use step::{Step, StepGradient};
pub use stream::Stream;
pub use symmetric::Symmetric;
pub use variant::Variant;
pub use windows::Windows;
pub use work::{Failed, Work};

#[doc = include_str!("guide.md")]
pub mod guide {}

#[doc = include_str!("soundness.md")]
pub mod soundness {}

#[doc = include_str!("coming_from_flodl.md")]
pub mod coming_from_flodl {}
