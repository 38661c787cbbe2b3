//! Reductions.

use std::fmt;

use tributary_sys as sys;

use crate::error::text;

/// A reduction: how the ranks' values become one. Integers wrap. If an input is NaN, `Min` and
/// `Max` return NaN or a number; do not rely on either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The sum divided by the number of ranks, rounded towards zero for integers.
    Avg,
}

impl ReduceOp {
    /// All reductions.
    pub const ALL: &'static [ReduceOp] =
        &[ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];

    /// Returns the name, such as `"sum"`.
    pub fn name(self) -> &'static str {
        // SAFETY: trib_op_name gives a string for every number, and it lives for ever.
        unsafe { text(sys::trib_op_name(self.raw())) }
    }

    pub(crate) const fn raw(self) -> sys::trib_op {
        match self {
            ReduceOp::Sum => sys::TRIB_SUM,
            ReduceOp::Prod => sys::TRIB_PROD,
            ReduceOp::Min => sys::TRIB_MIN,
            ReduceOp::Max => sys::TRIB_MAX,
            ReduceOp::Avg => sys::TRIB_AVG,
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
