//! Which code serves a call.

use std::fmt;

use tributary_sys as sys;

use crate::error::text;

/// Which code serves a call; on `host` only `Auto` and `Symmetric`. All ranks pass the same.
/// [`CallOptions::variant`](crate::CallOptions::variant) takes one; the header's PEERS says what each
/// is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Variant {
    /// By a fixed table, which is the same on all ranks.
    #[default]
    Auto,
    /// NCCL.
    Nccl,
    /// Each rank stores its part into memory of its peers: for small calls.
    Push,
    /// Each rank reads the parts of all where they lie; an allreduce not in place.
    OneShot,
    /// Each rank reduces its share, whose parts the others store with it, to all results: allreduces.
    TwoShot,
    /// As `Auto`, of [`Symmetric`](crate::Symmetric) memory, which all ranks pass.
    Symmetric,
    /// NCCL, of buffers in its windows: [`Options::windows`](crate::Options::windows).
    Window,
}

impl Variant {
    /// All variants.
    pub const ALL: &'static [Variant] = &[
        Variant::Auto,
        Variant::Nccl,
        Variant::Push,
        Variant::OneShot,
        Variant::TwoShot,
        Variant::Symmetric,
        Variant::Window,
    ];

    /// Returns the name, such as `"two_shot"`.
    pub fn name(self) -> &'static str {
        // SAFETY: trib_variant_name gives a string for every number, and it lives for ever.
        unsafe { text(sys::trib_variant_name(self.raw())) }
    }

    pub(crate) const fn raw(self) -> sys::trib_variant {
        match self {
            Variant::Auto => sys::TRIB_VARIANT_AUTO,
            Variant::Nccl => sys::TRIB_VARIANT_NCCL,
            Variant::Push => sys::TRIB_VARIANT_PUSH,
            Variant::OneShot => sys::TRIB_VARIANT_ONE_SHOT,
            Variant::TwoShot => sys::TRIB_VARIANT_TWO_SHOT,
            Variant::Symmetric => sys::TRIB_VARIANT_SYMMETRIC,
            Variant::Window => sys::TRIB_VARIANT_WINDOW,
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
