//! Whether symmetric memory is registered with NCCL.

use tributary_sys as sys;

/// Is [`Symmetric`](crate::Symmetric) memory registered with NCCL, as windows? Then NCCL serves its part of the
/// calls with such buffers by its symmetric kernels, where it has one, and
/// [`Variant::Window`](crate::Variant::Window) asks for them. No effect on `host`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Windows {
    /// No.
    #[default]
    Off,
    /// Yes, if an abort ends such calls: since NCCL 2.29.7, and not with
    /// [`CtaPolicy::Zero`](crate::CtaPolicy::Zero). Otherwise creating fails with
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
    Abortable,
    /// Yes, since NCCL 2.27. If a rank does not make such a call, the others wait for it, in spite of an abort,
    /// until the process ends.
    Unabortable,
}

impl Windows {
    pub(crate) const fn flags(self) -> u32 {
        match self {
            Windows::Off => 0,
            Windows::Abortable => sys::TRIB_WINDOWS,
            Windows::Unabortable => sys::TRIB_WINDOWS | sys::TRIB_WINDOWS_UNABORTABLE,
        }
    }
}
