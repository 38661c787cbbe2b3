//! The process of one rank. Its standard input is a socket to the process that has started it.

use std::ffi::c_int;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use tributary::{Communicator, UniqueId};

use super::data::Digits;
use super::message::Message;
use super::report::{Progress, Table};
use super::worker::{self, Learner, Trained};
use super::{options, settings, vanish, Failure, Options};

/// Trains as rank `rank`, and tells the parent the result. Returns whether there is one.
pub fn run(rank: usize, options: &Options, digits: &Digits) -> Result<bool, Failure> {
    let mut parent = parent()?;
    // Its end, of which the other ranks hear, comes after what the parent is told: so the parent
    // hears first of the rank that failed first.
    let mut communicator = None;
    let message = match train(rank, options, digits, &mut parent, &mut communicator) {
        Ok(trained) => Message::Trained(Box::new(trained)),
        Err(failure) => Message::Failed(failure.to_string()),
    };
    tell(&mut parent, &message)?;
    Ok(matches!(message, Message::Trained(_)))
}

fn parent() -> Result<UnixStream, Failure> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    match socket.local_addr() {
        Ok(_) => Ok(socket),
        Err(_) => Err("--rank is for processes that --processes starts; leave it out".into()),
    }
}

fn tell(parent: &mut UnixStream, message: &Message) -> io::Result<()> {
    parent.write_all(format!("{message}\n").as_bytes())
}

fn train(
    rank: usize,
    options: &Options,
    digits: &Digits,
    parent: &mut UnixStream,
    communicator: &mut Option<Communicator>,
) -> Result<Trained, Failure> {
    let joined = communicator.insert(join(rank, options, digits, parent)?);
    let steps = digits.training.len() / options.batch;
    let progress = Progress::of_process(options.epochs, steps, Table::Every);
    match options.kill_rank {
        None => worker::train(joined, digits, options, &progress),
        Some(killed) if killed == rank => {
            Err(train_until_killed(joined, digits, options, &progress, parent))
        }
        Some(_) => {
            let joined = communicator.take().expect("it has joined");
            vanish::go_on(joined, digits, options, &progress)
        }
    }
}

/// Trains as the rank that is to be killed, and returns only if something fails before. It stays
/// before the last step, so that the others never end without its death.
fn train_until_killed(
    communicator: &mut Communicator,
    digits: &Digits,
    options: &Options,
    progress: &Progress,
    parent: &mut UnixStream,
) -> Failure {
    let mut learner = Learner::new(communicator.rank(), digits, options);
    let last = digits.training.len() / options.batch * options.epochs - 1;
    let result = learner.train(communicator, progress, |taken| {
        if taken == options.at_step {
            tell(parent, &Message::Reached)?;
        }
        if taken == last {
            wait_for_death();
        }
        Ok(true)
    });
    result.expect_err("the last step is not taken")
}

fn wait_for_death() -> ! {
    loop {
        thread::park();
    }
}

/// Rank 0 makes the id. All get it from the parent, which from then on sends nothing.
fn join(
    rank: usize,
    options: &Options,
    digits: &Digits,
    parent: &mut UnixStream,
) -> Result<Communicator, Failure> {
    if rank == 0 {
        let id = UniqueId::of(options::backend(options, digits)?)?;
        tell(parent, &Message::Id(id))?;
    }
    let mut id = [0; UniqueId::SIZE];
    parent.read_exact(&mut id)?;
    end_with(parent.try_clone()?)?;
    let id = UniqueId::from_bytes(id);
    Ok(Communicator::with_options(&id, rank, options.ranks, rank, &settings(options))?)
}

/// From now on this process ends when the parent does, at once: without what an ordinary exit would
/// wait for.
fn end_with(mut parent: UnixStream) -> io::Result<()> {
    extern "C" {
        fn _exit(code: c_int) -> !;
    }
    thread::Builder::new().name("parent".to_owned()).spawn(move || {
        // Returns at the end of the socket, or with an error.
        let _ = parent.read(&mut [0]);
        // SAFETY: POSIX: every thread may call it, at any time.
        unsafe { _exit(1) }
    })?;
    Ok(())
}
