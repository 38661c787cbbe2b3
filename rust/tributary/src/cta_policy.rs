//! What a communicator's kernels take of a GPU.

use std::fmt;

use tributary_sys as sys;

use crate::error::text;

/// How many CTAs NCCL gives a communicator's kernels. No effect on `host`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CtaPolicy {
    /// As many as are fastest, unless `NCCL_CTA_POLICY` says else.
    #[default]
    Default,
    /// Fewer, where that costs little speed. Since NCCL 2.27.
    Efficiency,
    /// None where copy engines can do it: for buffers in windows that you register with a
    /// communicator of your own, or with [`Windows::Unabortable`](crate::Windows::Unabortable). An
    /// abort does not interrupt copy engines. Since NCCL 2.28.
    Zero,
}

impl CtaPolicy {
    /// All policies.
    pub const ALL: &'static [CtaPolicy] =
        &[CtaPolicy::Default, CtaPolicy::Efficiency, CtaPolicy::Zero];

    /// Returns the name, such as `"efficiency"`.
    pub fn name(self) -> &'static str {
        // SAFETY: trib_cta_policy_name gives a string for every number, and it lives for ever.
        unsafe { text(sys::trib_cta_policy_name(self.raw())) }
    }

    pub(crate) const fn raw(self) -> sys::trib_cta_policy {
        match self {
            CtaPolicy::Default => sys::TRIB_CTA_DEFAULT,
            CtaPolicy::Efficiency => sys::TRIB_CTA_EFFICIENCY,
            CtaPolicy::Zero => sys::TRIB_CTA_ZERO,
        }
    }
}

impl fmt::Display for CtaPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
