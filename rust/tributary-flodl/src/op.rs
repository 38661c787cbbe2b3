//! Reductions.

/// A reduction, with NCCL's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum ReduceOp {
    /// The sum.
    Sum = 0,
    /// The product.
    Prod = 1,
    /// The largest.
    Max = 2,
    /// The smallest.
    Min = 3,
    /// The sum divided by the number of ranks.
    Avg = 4,
}

impl From<ReduceOp> for tributary::ReduceOp {
    fn from(op: ReduceOp) -> tributary::ReduceOp {
        match op {
            ReduceOp::Sum => tributary::ReduceOp::Sum,
            ReduceOp::Prod => tributary::ReduceOp::Prod,
            ReduceOp::Max => tributary::ReduceOp::Max,
            ReduceOp::Min => tributary::ReduceOp::Min,
            ReduceOp::Avg => tributary::ReduceOp::Avg,
        }
    }
}
