//! What becomes of an averaged pseudo-gradient.

use crate::framework::Tensor;

/// The arithmetic of a framework's tensors, for [`OuterAverage`](crate::OuterAverage). Each result
/// is a new tensor with a storage of its own. The work is ordered with that of the thread's current
/// stream, on which the exchange runs.
pub trait Arithmetic: Tensor {
    /// The framework's error.
    type Error;

    /// Returns a copy of the elements.
    fn copy(&self) -> Result<Self, Self::Error>;

    /// Returns `self - other`.
    fn sub(&self, other: &Self) -> Result<Self, Self::Error>;

    /// Returns `self + other`.
    fn add(&self, other: &Self) -> Result<Self, Self::Error>;

    /// Returns `scalar * self`.
    fn mul_scalar(&self, scalar: f64) -> Result<Self, Self::Error>;

    /// Overwrites the elements with those of `from`.
    fn copy_(&self, from: &Self) -> Result<(), Self::Error>;
}

/// How an outer step goes from the last global parameters, `x`, along the averaged pseudo-gradient,
/// `g`. Every rank takes the same step, so they stay equal to the bit.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum OuterRule {
    /// `x - g`, the average of the ranks' parameters: flodl's `OuterAvg`.
    Average,
    /// `v = mu v + g; x - lr v`, as SlowMo does: flodl's `SlowMomentum`.
    SlowMomentum {
        /// The outer learning rate; about 1.
        lr: f64,
        /// The outer momentum; about 0.9.
        mu: f64,
    },
    /// `v = mu v + g; x - lr (mu v + g)`, as DiLoCo does: flodl's `NesterovMomentum`. Each rank then
    /// resets its inner optimizer.
    NesterovMomentum {
        /// The outer learning rate; about 0.7.
        lr: f64,
        /// The outer momentum; about 0.9.
        mu: f64,
    },
}

impl OuterRule {
    /// Returns whether each rank resets its inner optimizer after an outer step.
    pub fn resets_inner(self) -> bool {
        matches!(self, OuterRule::NesterovMomentum { .. })
    }

    /// The parameters after the step and, where there is one, the velocity. `velocity` is that of
    /// the last step.
    pub(crate) fn step<T: Arithmetic>(
        self,
        start: &T,
        gradient: &T,
        velocity: Option<&T>,
    ) -> Result<(T, Option<T>), T::Error> {
        let (lr, mu) = match self {
            OuterRule::Average => return Ok((start.sub(gradient)?, None)),
            OuterRule::SlowMomentum { lr, mu } | OuterRule::NesterovMomentum { lr, mu } => (lr, mu),
        };
        let velocity = match velocity {
            Some(before) => before.mul_scalar(mu)?.add(gradient)?,
            None => gradient.copy()?,
        };
        let ahead = match self.resets_inner() {
            true => velocity.mul_scalar(mu)?.add(gradient)?,
            false => velocity.copy()?,
        };
        Ok((start.sub(&ahead.mul_scalar(lr)?)?, Some(velocity)))
    }
}
