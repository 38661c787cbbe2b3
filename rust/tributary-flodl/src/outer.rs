//! Outer averaging: ranks train alone, and average now and then what they have learned.

use std::mem;

use tributary::{DeviceVec, ErrorKind, InPlace, SparseAllReduce, SparseOptions};

use crate::error::{expect, Error};
use crate::framework::{Framework, Tensor};
use crate::op::ReduceOp;
use crate::rank::NcclRankComm;
use crate::rule::{Arithmetic, OuterRule};

/// Outer averaging of one rank, as in DiLoCo (arXiv:2311.08105): each rank trains for some steps by
/// itself, then the ranks average their pseudo-gradients, `start - parameters`, and an
/// [`OuterRule`] makes of them the parameters that all ranks go on from.
///
/// The exchange is [dense](OuterAverage::dense), or [sparse](OuterAverage::sparse): the largest
/// entries are sent, and the rest stays in a residual, which the next round adds to its
/// pseudo-gradient. Nothing is lost: over all ranks and rounds the pseudo-gradients add up to the
/// ranks' number times the averages, plus the residuals.
///
/// What waits in a residual is learned again in each round, because the parameters go back to the
/// start: with a density of 1/10 an entry that is sent carries about ten rounds. Choose the outer
/// learning rate for that, or a [`decay`](SparseOptions::decay). The algorithm `shared` sends the
/// same entries on all ranks, so that what they learn against each other cancels.
///
/// [`average`](OuterAverage::average) waits for the exchange before it changes anything. If that
/// fails, parameters, start and velocity are as before, and a dense round can be repeated with
/// another communicator. A sparse state ends with its communicator; what to keep of it,
/// [`sparse_states`](OuterAverage::sparse_states) exports. What the failed round had delivered of
/// some parameters before it failed is in no residual any more.
///
/// A sparse exchange of a parameter whose pseudo-gradient is infinite or NaN on some rank delivers
/// nothing on any: it counts as 0, and the parameter goes back to the start, less the momentum. The
/// round is then complete for all parameters, and its result is [`Error::NonFinite`], on all ranks.
/// A dense exchange passes such values on.
pub struct OuterAverage<F: Framework> {
    rule: OuterRule,
    start: Vec<F::Tensor>,
    /// Empty before the first step.
    velocity: Vec<F::Tensor>,
    /// One for each parameter; `None` for a dense exchange.
    sparse: Option<Vec<SparseAllReduce>>,
    /// Of this rank, where ranks weigh differently.
    weight: Option<f32>,
    /// How many calls of `step` make a round, and how many there were in this one.
    every: u64,
    steps: u64,
}

impl<F: Framework> OuterAverage<F>
where
    F::Tensor: Arithmetic<Error = F::Error>,
{
    /// Starts from `params`, which are equal on all ranks (broadcast them before). The exchange is
    /// one allreduce of a list.
    pub fn dense(params: &[&F::Tensor], rule: OuterRule) -> Result<Self, F::Error> {
        let start = params.iter().map(|param| param.copy()).collect::<Result<_, _>>()?;
        let velocity = Vec::new();
        Ok(OuterAverage { rule, start, velocity, sparse: None, weight: None, every: 1, steps: 0 })
    }

    /// Does what [`dense`](OuterAverage::dense) does, with a sparse allreduce for each parameter.
    /// `options` choose algorithm, density and what is sent; the average and the form of the result
    /// are set here. All ranks make this call, which waits for them.
    pub fn sparse(
        comm: &NcclRankComm<F>,
        params: &[&F::Tensor],
        rule: OuterRule,
        options: &SparseOptions,
    ) -> Result<Self, F::Error> {
        let options =
            options.clone().average(true).entries(false).in_place(false).f32_result(false);
        let states = comm.with(|comm, _| {
            let state = |param: &&F::Tensor| {
                SparseAllReduce::new(comm, param.numel(), Tensor::dtype(*param), &options)
            };
            params.iter().map(state).collect()
        })?;
        Ok(OuterAverage { sparse: Some(states), ..Self::dense(params, rule)? })
    }

    /// Makes `steps` calls of [`step`](OuterAverage::step) a round. Default: 1.
    pub fn every(mut self, steps: u64) -> Self {
        self.every = steps.max(1);
        self
    }

    /// Sets what this rank's pseudo-gradients weigh from the next round on, for instance the samples
    /// that it has seen: finite and not negative. All ranks set a weight, or none does. A rank of
    /// weight 0 contributes nothing, NaN included; if all weights are 0, a round changes nothing.
    pub fn set_weight(&mut self, weight: f32) -> Result<(), F::Error> {
        if !weight.is_finite() || weight < 0.0 {
            let what =
                format!("set_weight: {weight}; expected a finite number that is not negative");
            return Err(Error::Argument(what).into());
        }
        self.weight = Some(weight);
        Ok(())
    }

    /// Counts an inner step, and [averages](OuterAverage::average) if it completes a round. Returns
    /// whether it did.
    pub fn step(
        &mut self,
        comm: &NcclRankComm<F>,
        params: &[&F::Tensor],
    ) -> Result<bool, F::Error> {
        self.steps += 1;
        if self.steps < self.every {
            return Ok(false);
        }
        self.average(comm, params)?;
        Ok(true)
    }

    /// Averages the pseudo-gradients, takes the step of the rule, and overwrites `params`.
    pub fn average(
        &mut self,
        comm: &NcclRankComm<F>,
        params: &[&F::Tensor],
    ) -> Result<(), F::Error> {
        let (rule, before) = (self.rule, mem::take(&mut self.velocity));
        let mut after = None;
        let round = self.round(comm, params, |start, gradients| {
            let mut next = Vec::with_capacity(start.len());
            let mut velocities = Vec::with_capacity(start.len());
            for (i, (start, gradient)) in start.iter().zip(gradients).enumerate() {
                let (param, velocity) = rule.step(start, gradient, before.get(i))?;
                next.push(param);
                velocities.extend(velocity);
            }
            after = Some(velocities);
            Ok(next)
        });
        self.velocity = after.filter(|_| round.is_ok()).unwrap_or(before);
        report(round?)
    }

    /// Does what [`average`](OuterAverage::average) does, with the step of another optimizer: `step`
    /// gets the start and the averaged pseudo-gradients, and returns the next parameters. (flodl's
    /// `outer_step` takes the start and the average of the parameters, which is their difference.)
    pub fn average_with(
        &mut self,
        comm: &NcclRankComm<F>,
        params: &[&F::Tensor],
        step: impl FnOnce(&[F::Tensor], &[F::Tensor]) -> Result<Vec<F::Tensor>, F::Error>,
    ) -> Result<(), F::Error> {
        report(self.round(comm, params, step)?)
    }

    /// Returns the parameters after the last outer step.
    pub fn start(&self) -> &[F::Tensor] {
        &self.start
    }

    /// Returns the rule.
    pub fn rule(&self) -> OuterRule {
        self.rule
    }

    /// Returns the velocity for a checkpoint, a tensor for each parameter; `None` before the first
    /// step, and of [`OuterRule::Average`].
    pub fn checkpoint_state(&self) -> Option<&[F::Tensor]> {
        (!self.velocity.is_empty()).then_some(&self.velocity)
    }

    /// Restores the velocity of a checkpoint.
    pub fn load_checkpoint_state(&mut self, velocity: Vec<F::Tensor>) -> Result<(), F::Error> {
        expect("load_checkpoint_state", "tensors", velocity.len(), self.start.len())?;
        self.velocity = velocity;
        Ok(())
    }

    /// Returns the sparse states, one for each parameter, for their statistics and residuals; none
    /// for a dense exchange.
    pub fn sparse_states(&mut self) -> &mut [SparseAllReduce] {
        self.sparse.as_deref_mut().unwrap_or_default()
    }

    /// Completes a round. Returns the indices of the pseudo-gradients that count as 0.
    fn round(
        &mut self,
        comm: &NcclRankComm<F>,
        params: &[&F::Tensor],
        step: impl FnOnce(&[F::Tensor], &[F::Tensor]) -> Result<Vec<F::Tensor>, F::Error>,
    ) -> Result<Vec<usize>, F::Error> {
        self.check(params)?;
        let Some(factor) = self.factor(comm)? else {
            self.steps = 0;
            return Ok(Vec::new());
        };
        let pairs = self.start.iter().zip(params);
        let gradients = pairs
            .map(|(start, param)| pseudo_gradient(start, param, factor))
            .collect::<Result<Vec<_>, _>>()?;
        let left_out = self.exchange(comm, &gradients)?;
        let next = step(&self.start, &gradients)?;
        expect("an outer step", "tensors", next.len(), self.start.len())?;
        for (param, next) in params.iter().zip(&next) {
            param.copy_(next)?;
        }
        (self.start, self.steps) = (next, 0);
        Ok(left_out)
    }

    /// What to multiply this rank's pseudo-gradients with before the plain average. `None`: nobody
    /// has a weight. All ranks come to the same conclusion, from the sum of the weights.
    fn factor(&self, comm: &NcclRankComm<F>) -> Result<Option<f64>, F::Error> {
        let Some(weight) = self.weight else { return Ok(Some(1.0)) };
        let total = comm.with(|comm, stream| {
            let mut total = DeviceVec::from_slice(comm.device(), &[weight])?;
            comm.scope(stream, |s| s.allreduce(InPlace, &mut total, tributary::ReduceOp::Sum))?;
            Ok(f64::from(total.download(stream)?[0]))
        })?;
        Ok((total > 0.0).then(|| f64::from(weight) * comm.world_size() as f64 / total))
    }

    /// Replaces the gradients by their averages and waits for it. Returns the indices of those that
    /// count as 0 because they were not finite on some rank.
    fn exchange(
        &mut self,
        comm: &NcclRankComm<F>,
        gradients: &[F::Tensor],
    ) -> Result<Vec<usize>, F::Error> {
        let list: Vec<&F::Tensor> = gradients.iter().collect();
        match &mut self.sparse {
            None => comm.all_reduce(&list, ReduceOp::Avg)?,
            Some(states) => queue_sparse(comm, states, &list)?,
        }
        comm.with(|comm, stream| comm.wait(stream))?;
        Ok(not_applied(self.sparse_states())?)
    }

    fn check(&self, params: &[&F::Tensor]) -> Result<(), Error> {
        expect("an outer average", "parameters", params.len(), self.start.len())?;
        for (index, (start, param)) in self.start.iter().zip(params).enumerate() {
            expect(
                &format!("an outer average: parameter {index}"),
                "elements",
                param.numel(),
                start.numel(),
            )?;
        }
        Ok(())
    }
}

fn pseudo_gradient<T: Arithmetic>(start: &T, param: &T, factor: f64) -> Result<T, T::Error> {
    if factor == 0.0 {
        return start.sub(start); // whatever the parameter is
    }
    let gradient = start.sub(param)?;
    if factor == 1.0 {
        return Ok(gradient);
    }
    gradient.mul_scalar(factor)
}

/// The result of a round that was completed.
fn report<E: From<Error>>(left_out: Vec<usize>) -> Result<(), E> {
    match left_out.is_empty() {
        true => Ok(()),
        false => Err(Error::NonFinite(left_out).into()),
    }
}

/// Queues a sparse allreduce of each gradient, in place.
fn queue_sparse<F: Framework>(
    comm: &NcclRankComm<F>,
    states: &mut [SparseAllReduce],
    gradients: &[&F::Tensor],
) -> Result<(), Error> {
    let current = F::current_stream(comm.device().ordinal());
    comm.queue(gradients, current.as_ref(), |_, list, stream| {
        for (state, &gradient) in states.iter_mut().zip(list) {
            // SAFETY: clones of the gradients are kept until the stream has passed this point; the
            // ranks' states and lengths were compared when they were made.
            unsafe { state.allreduce(gradient, gradient, stream) }?;
        }
        Ok(())
    })
}

/// The states whose last call was not applied because a value was not finite.
fn not_applied(states: &mut [SparseAllReduce]) -> Result<Vec<usize>, Error> {
    let mut found = Vec::new();
    for (index, state) in states.iter_mut().enumerate() {
        match state.status() {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NonFinite => found.push(index),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}
