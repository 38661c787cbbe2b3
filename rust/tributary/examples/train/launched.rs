//! The process of one rank, which torchrun, mpirun or srun has started. Rank 0 speaks for all.

use tributary::{Communicator, Job};

use super::data::Digits;
use super::exchange::Exchange;
use super::network::Network;
use super::overlap::Times;
use super::report::{self, say, Progress, Table};
use super::worker::{self, Trained};
use super::{conclude, options, settings, Failure, Options};

/// Trains as this process' rank of the job. Returns whether every proof held; rank 0 makes them.
pub fn run(options: &Options, digits: &Digits) -> Result<bool, Failure> {
    let job = Job::from_env()?;
    let options = &Options { ranks: job.size(), ..options.clone() };
    options::check_launched(options, digits)?;
    let mut communicator = Communicator::from_env_with(&settings(options))?;
    let backend = communicator.backend();
    let progress = begin(&job, backend, options, digits.training.len() / options.batch);
    let trained = worker::train(&mut communicator, digits, options, &progress)?;
    let trained = gather(&mut communicator, trained)?;
    drop(communicator);
    if job.rank() > 0 {
        return Ok(true);
    }
    progress.finish();
    conclude(options, digits, backend, &trained)
}

fn begin(job: &Job, backend: &str, options: &Options, steps: usize) -> Progress {
    if job.rank() > 0 {
        return Progress::of_process(options.epochs, steps, Table::Every);
    }
    say(format_args!(
        "\n{} on {backend}, processes of {}: an epoch is {steps} steps, a step {} images per rank",
        report::ranks(job.size()),
        job.launcher(),
        options.batch / job.size(),
    ));
    Progress::new(options.epochs, steps, Table::Every)
}

/// All ranks' networks, with `own` figures: the other ranks' stay with them.
fn gather(communicator: &mut Communicator, own: Trained) -> Result<Vec<Trained>, Failure> {
    let mut all = Vec::with_capacity(communicator.size());
    for root in 0..communicator.size() {
        let mut parameters = own.network.parameters.clone();
        Exchange::new(communicator, &parameters)?.broadcast(&mut parameters, root)?;
        let network = Network::with(parameters);
        all.push(Trained { network, epochs: Vec::new(), traffic: None, times: Times::default() });
    }
    let rank = communicator.rank();
    all[rank] = own;
    Ok(all)
}
