//! Collective operations for people who write deep-learning frameworks: they bring tensors and
//! streams, Tributary moves and sums them. On GPUs it stands on NCCL; without one the same program
//! runs on an embedded host backend, where ranks are threads and memory is ordinary memory.
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
//!     // A rank for each thread; on the nccl backend, one for each GPU.
//!     Group::new(4)?.run(train)?;
//!     Ok(())
//! }
//! ```
//!
//! # The model
//!
//! A *rank* is one participant. A [`Communicator`] is one rank's end of what joins them; a
//! [`Group`] holds every rank of one process. Ranks of several processes meet through a
//! [`UniqueId`], whose bytes the caller sends around. A *backend* is how ranks talk and where their
//! memory lives.
//!
//! A collective is *queued* on a [`Stream`] and returns at once. Streams are in order; two streams
//! are ordered by [`Event`]s. After waiting for a stream, a result is good if and only if
//! [`Communicator::status`] is `Ok`.
//!
//! Every rank makes the same calls, with the same lengths and types, in the same order. No type can
//! prove that, so calls are compared before memory is touched, and ranks that differ get
//! [`ErrorKind::Mismatch`]. On host that costs nothing; on nccl it costs a wait in each call, until
//! [`Options::assume_matching_calls`] promises that they match. The page [`soundness`] says what
//! else safe code relies on.
//!
//! # Whose memory, until when
//!
//! There are three ways to queue a collective, and the type system proves two of them:
//! [`Communicator::scope`] borrows buffers and waits at its end, [`Communicator::start`] takes them
//! and gives them back, and the `unsafe` methods of [`Communicator`] leave it to the caller. The
//! latter take any tensor that implements [`DeviceBuffer`], storage that is shared and changed
//! through `&self` included.
//!
//! # Sparse gradients
//!
//! A [`SparseAllReduce`] sends the k largest entries of a gradient and keeps the rest for the next
//! one: `acc = gradient + residual`. Nothing is lost, and little is sent.
//!
//! # When a rank does not come
//!
//! An [`AbortHandle`] stops a communicator from any thread. A list of tensors that was aborted is
//! written on a rank wholly or not at all, so it can be tried again.
//!
//! Those who know flodl's `nccl` module find every item of it in [`coming_from_flodl`].
//!
//! # Features
//!
//! * `nccl`: the nccl backend must be there. Where it cannot be built, the build fails and says
//!   what to do; without this feature it is built if what it needs is found.
//! * `system`: link an installed C library, which pkg-config finds, instead of building one.
//! * `half`: [`Element`] for `half::f16` and `half::bf16`.
//! * `dlpack`: tensors that come as DLPack structures.

mod abort;
mod applied;
mod backend;
mod batch;
mod buffer;
mod call_counters;
mod call_options;
mod check;
mod collectives;
mod communicator;
mod counters;
mod deadline;
mod device;
#[cfg(feature = "dlpack")]
pub mod dlpack;
mod dtype;
mod error;
mod event;
mod group;
mod id;
mod list;
pub mod log;
mod op;
mod options;
mod run;
mod scope;
mod sparse;
mod sparse_options;
mod stream;
mod sync;
mod work;

pub use abort::AbortHandle;
pub use backend::{quiesce, version, Backend, Version};
pub use buffer::{DeviceBuffer, DeviceSlice, DeviceVec, UniqueBuffer};
pub use call_options::CallOptions;
pub use communicator::Communicator;
pub use counters::Counters;
pub use device::Device;
pub use dtype::{DType, Element};
pub use error::{Error, ErrorKind, Result};
pub use event::Event;
pub use group::{Group, GroupScope};
pub use id::UniqueId;
pub use list::Weight;
pub use op::ReduceOp;
pub use options::Options;
pub use scope::{Held, InPlace, Input, Scope, Source, Target};
pub use sparse::{SparseAllReduce, SparseStatistics};
pub use sparse_options::SparseOptions;
pub use stream::Stream;
pub use work::{Failed, Work};

#[doc = include_str!("soundness.md")]
pub mod soundness {}

#[doc = include_str!("coming_from_flodl.md")]
pub mod coming_from_flodl {}
