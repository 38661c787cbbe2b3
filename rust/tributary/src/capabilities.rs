//! What backends and communicators can do.

use tributary_sys as sys;

use crate::backend::Version;

/// What a backend can do in this process, from [`Backend::capabilities`](crate::Backend::capabilities),
/// or one communicator, from [`Communicator::capabilities`](crate::Communicator::capabilities): what
/// its backend can, as far as its options and its side channel allow.
///
/// ```
/// use tributary::Backend;
/// let host = Backend::find("host").unwrap().capabilities()?;
/// assert!(host.host_memory && !host.cuda_graphs);
/// assert_eq!(host.max_ranks, 64);
/// # Ok::<(), tributary::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The version of the loaded NCCL; for `host`, of Tributary.
    pub version: Version,
    /// How many ranks a communicator can have; `i32::MAX` if the library knows of no limit.
    pub max_ranks: usize,
    /// Ranks may be in several processes.
    pub processes: bool,
    /// Buffers may be ordinary host memory.
    pub host_memory: bool,
    /// CUDA graphs can capture calls that are made through the C API. Not where calls are compared
    /// on nccl. A [`Stream`](crate::Stream) of this crate is not captured while a scope, a work
    /// or a step uses it: they wait for it.
    pub cuda_graphs: bool,
    /// Mismatched calls touch no memory beyond their buffers. Of a backend: by itself, at no cost.
    pub compares: bool,
    /// An abort or a deadline ends the waits of streams inside collectives. Not of a communicator
    /// that was [adopted](crate::Communicator::adopt).
    pub interrupts: bool,
    /// A rank hears at once of deaths and aborts of the others, and
    /// [`shrink`](crate::Communicator::shrink) goes on without them.
    pub hears: bool,
    /// [`Options::ctas`](crate::Options::ctas) and [`Options::network`](crate::Options::network) have
    /// an effect.
    pub configurable: bool,
    /// [`CtaPolicy::Efficiency`](crate::CtaPolicy::Efficiency).
    pub cta_efficiency: bool,
    /// [`CtaPolicy::Zero`](crate::CtaPolicy::Zero).
    pub cta_zero: bool,
    /// [`Windows::Abortable`](crate::Windows::Abortable).
    pub windows: bool,
    /// Kernels of the library serve small calls among GPUs, and symmetric memory works: see
    /// [`Options::peer_bytes`](crate::Options::peer_bytes). Of a communicator: among its ranks, if there are
    /// several.
    pub peers: bool,
    /// They serve large calls as well, and [`Variant::OneShot`](crate::Variant::OneShot) and
    /// [`Variant::TwoShot`](crate::Variant::TwoShot) work.
    pub peers_large: bool,
    /// [`Communicator::adopt`](crate::Communicator::adopt) works.
    pub adopts: bool,
    /// The log tells what NCCL's RAS service knows of a late call, if that runs.
    pub ras: bool,
}

impl From<sys::trib_capabilities> for Capabilities {
    fn from(raw: sys::trib_capabilities) -> Capabilities {
        let can = |flag| raw.flags & flag != 0;
        Capabilities {
            version: Version::from_number(raw.version),
            max_ranks: usize::try_from(raw.max_ranks).unwrap_or(0),
            processes: can(sys::TRIB_CAN_PROCESSES),
            host_memory: can(sys::TRIB_CAN_HOST_MEMORY),
            cuda_graphs: can(sys::TRIB_CAN_CAPTURE),
            compares: can(sys::TRIB_CAN_COMPARE),
            interrupts: can(sys::TRIB_CAN_INTERRUPT),
            hears: can(sys::TRIB_CAN_HEAR),
            configurable: can(sys::TRIB_CAN_CONFIGURE),
            cta_efficiency: can(sys::TRIB_CAN_CTA_EFFICIENCY),
            cta_zero: can(sys::TRIB_CAN_CTA_ZERO),
            windows: can(sys::TRIB_CAN_WINDOWS),
            peers: can(sys::TRIB_CAN_PEERS),
            peers_large: can(sys::TRIB_CAN_PEERS_LARGE),
            adopts: can(sys::TRIB_CAN_ADOPT),
            ras: can(sys::TRIB_CAN_ASK_RAS),
        }
    }
}
