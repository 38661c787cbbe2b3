//! The ranks: one thread each, started once.

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::exit;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tributary::{AbortHandle, Communicator, Group, Options};

use crate::barrier::Barrier;
use crate::nccl::{self, Nccl};
use crate::rank::{Counts, Rank};
use crate::setting::Setting;
use crate::{Call, Queue, Result};

/// The time that the ranks have to return once one of them has failed.
const GRACE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce(&mut Rank) + Send>;

/// The ranks of one communicator. A failure of one of them ends the program, and the others are not
/// left waiting for it.
pub struct Team {
    setting: Setting,
    workers: Vec<Worker>,
    abort: AbortHandle,
    barrier: Arc<Barrier>,
}

/// A rank's thread, which runs the jobs in its inbox.
struct Worker {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

impl Team {
    /// Start the ranks that the environment asks for, or say why not and end the program.
    pub fn open(options: Options) -> Team {
        Team::try_open(options).unwrap_or_else(|failure| {
            eprintln!("{failure}");
            exit(2)
        })
    }

    fn try_open(options: Options) -> Result<Team> {
        let setting = Setting::from_env()?;
        let options = options.backend(setting.backend.name());
        // SAFETY: every rank is given the same jobs, with tensors of the same shapes.
        let options = unsafe { options.assume_matching_calls() };
        let group = Group::with_options(setting.ranks, &options)?;
        let abort = group.abort_handle();
        let barrier = Arc::new(Barrier::new(setting.ranks));
        // Empty on host.
        let mut peers: Vec<Nccl> =
            if setting.on_gpus() { nccl::open(setting.ranks)? } else { Vec::new() };
        let mut workers = Vec::new();
        for comm in group.split()?.into_iter().rev() {
            let (peer, barrier) = (peers.pop(), Arc::clone(&barrier));
            let (jobs, inbox) = channel();
            let thread = thread::Builder::new()
                .name(format!("rank {}", comm.rank()))
                .spawn(move || work(comm, peer, barrier, inbox))?;
            workers.push(Worker { jobs, thread });
        }
        workers.reverse();
        Ok(Team { setting, workers, abort, barrier })
    }

    /// The setting of the run.
    pub fn setting(&self) -> Setting {
        self.setting
    }

    /// Do `job` on all ranks; their answers, rank 0 first.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl Fn(&mut Rank) -> Result<T> + Send + Sync + 'static,
    ) -> Vec<T> {
        let job = Arc::new(job);
        let (report, reports) = channel();
        for (rank, worker) in self.workers.iter().enumerate() {
            let (job, report) = (Arc::clone(&job), report.clone());
            let task: Job = Box::new(move |state| {
                let answer = catch_unwind(AssertUnwindSafe(|| job(state)))
                    .unwrap_or_else(|panic| Err(words(panic.as_ref()).into()));
                // Nobody listens any more if another rank failed.
                drop(report.send((rank, answer)));
            });
            if worker.jobs.send(task).is_err() {
                self.fail(&format!("rank {rank} has ended"), &reports);
            }
        }
        drop(report);
        let mut answers: Vec<Option<T>> = self.workers.iter().map(|_| None).collect();
        while let Ok((rank, answer)) = reports.recv() {
            match answer {
                Ok(answer) => answers[rank] = Some(answer),
                Err(failure) => self.fail(&format!("rank {rank}: {failure}"), &reports),
            }
        }
        answers.into_iter().map(|answer| answer.expect("every rank reports once")).collect()
    }

    /// Free the other ranks, and panic.
    fn fail<T>(&self, why: &str, reports: &Receiver<(usize, Result<T>)>) -> ! {
        self.barrier.break_up();
        self.abort.abort(why);
        while reports.recv_timeout(GRACE).is_ok() {}
        panic!("{why}");
    }

    /// Give every rank buffers with these `counts`, and see that `call` does its work on them.
    pub fn prepare(&self, counts: &Counts, call: Call) {
        let counts = counts.clone();
        self.run(move |rank| {
            rank.fill(&counts)?;
            rank.wait_at_barrier()?;
            (call.queue)(rank)?;
            rank.finish()?;
            (call.verify)(rank).map_err(|wrong| format!("{}: {wrong}", call.name).into())
        });
    }

    /// Time of `iterations` calls on the streams, of the slowest rank.
    pub fn stream_time(&self, iterations: u64, queue: Queue) -> Duration {
        slowest(self.run(move |rank| rank.stream_time(iterations, queue)))
    }

    /// Time that the rank's thread needs to queue `iterations` calls, of the slowest rank.
    /// `queue(rank, n)` queues n of them and returns how long that took; between such batches each
    /// rank waits for its stream.
    pub fn queue_time(
        &self,
        iterations: u64,
        queue: impl Fn(&mut Rank, u64) -> Result<Duration> + Copy + Send + Sync + 'static,
    ) -> Duration {
        slowest(self.run(move |rank| rank.queue_time(iterations, queue)))
    }
}

fn slowest(times: Vec<Duration>) -> Duration {
    times.into_iter().max().expect("there is a rank")
}

fn work(comm: Communicator, peer: Option<Nccl>, barrier: Arc<Barrier>, inbox: Receiver<Job>) {
    match Rank::new(comm, peer, barrier) {
        Ok(mut rank) => inbox.into_iter().for_each(|job| job(&mut rank)),
        // The first job finds the inbox closed.
        Err(failure) => eprintln!("{}: {failure}", thread::current().name().unwrap_or_default()),
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
}

impl Drop for Team {
    fn drop(&mut self) {
        // All at once: a rank's end may wait for the other ranks'.
        let threads: Vec<JoinHandle<()>> =
            self.workers.drain(..).map(|worker| worker.thread).collect();
        // After a failure a rank may be stuck in the peer's call, which nothing aborts.
        if !thread::panicking() {
            for thread in threads {
                drop(thread.join());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ALLREDUCE;

    #[test]
    #[should_panic(expected = "rank 1: this rank leaves")]
    fn a_panic_frees_the_ranks_that_wait_in_a_collective() {
        let team = Team::open(Options::new());
        team.run(|rank| rank.fill(&Counts::flat(1 << 10)));
        team.run(|rank| {
            assert!(rank.comm.rank() != 1, "this rank leaves");
            (ALLREDUCE.queue)(rank)?;
            rank.finish()
        });
    }

    #[test]
    #[should_panic(expected = "rank 0: this rank leaves")]
    fn a_panic_frees_the_ranks_that_wait_at_the_barrier() {
        let team = Team::open(Options::new());
        team.run(|rank| {
            assert!(rank.comm.rank() != 0, "this rank leaves");
            rank.wait_at_barrier()
        });
    }

    #[test]
    #[should_panic(expected = "element 3 is")]
    fn wrong_results_are_seen() {
        let team = Team::open(Options::new());
        let mut call = ALLREDUCE;
        call.queue = |rank| {
            (ALLREDUCE.queue)(rank)?;
            rank.finish()?;
            let mut values = rank.recv.download(&rank.stream)?;
            values[3] += 1.0;
            Ok(rank.recv.upload(&values, &rank.stream)?)
        };
        team.prepare(&Counts::flat(100), call);
    }
}
