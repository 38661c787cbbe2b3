//! A process for each rank: this program again, with the same options and the rank. Its standard
//! input is a socket, over which the two talk; what it prints, it prints itself.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{self, Child, Command, ExitStatus};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use super::message::Message;
use super::report::EXIT_UNHEARD;
use super::worker::Trained;
use super::{Failure, Options};

/// How long a call waits for a rank in training with --kill-rank. The others hear at once of a
/// process that dies; this is for a rank of which nobody hears anything.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// Trains with a process for each rank, and returns the result of each that was not killed. All
/// processes have ended then, also after an error, which names the rank that failed.
pub fn train(options: &Options) -> Result<Vec<Trained>, Failure> {
    let mut processes = Processes::start(options.ranks)?;
    let (sender, told) = mpsc::channel();
    for (rank, process) in processes.0.iter().enumerate() {
        let (socket, sender) = (process.socket.try_clone()?, sender.clone());
        thread::Builder::new().spawn(move || listen(rank, socket, &sender))?;
    }
    drop(sender); // `told` ends with the last of those that listen
    let mut results: Vec<Option<Trained>> = (0..options.ranks).map(|_| None).collect();
    for (rank, message) in told {
        match message {
            Some(Message::Id(id)) => processes.send_all(id.as_bytes()),
            Some(Message::Reached) => processes.kill(rank)?,
            Some(Message::Failed(why)) => return Err(format!("rank {rank}: {why}").into()),
            Some(Message::Trained(trained)) => results[rank] = Some(*trained),
            None if results[rank].is_some() || processes.0[rank].killed => {}
            None => return Err(processes.end_of(rank)?),
        }
    }
    processes.check()?;
    Ok(results.into_iter().flatten().collect())
}

/// Passes on what the process of `rank` says; `None`: it has ended.
fn listen(rank: usize, socket: UnixStream, sender: &Sender<(usize, Option<Message>)>) {
    for line in BufReader::new(socket).lines().map_while(Result::ok) {
        let message = Message::parse(&line)
            .unwrap_or_else(|| Message::Failed(format!("nobody understands {line:.80}")));
        let _ = sender.send((rank, Some(message))); // nobody listens any more after an error
    }
    let _ = sender.send((rank, None));
}

/// The processes, by rank. None outlives this: dropping it kills those that still run. And they end
/// by themselves when their sockets do, even if this process is killed.
struct Processes(Vec<Process>);

struct Process {
    child: Child,
    socket: UnixStream,
    killed: bool,
}

impl Processes {
    fn start(ranks: usize) -> Result<Processes, Failure> {
        let program = env::current_exe()?;
        let mut processes = Processes(Vec::with_capacity(ranks));
        for rank in 0..ranks {
            let (socket, theirs) = UnixStream::pair()?;
            let child = Command::new(&program)
                .args(env::args_os().skip(1))
                .arg(format!("--rank={rank}"))
                .stdin(OwnedFd::from(theirs))
                .spawn()
                .map_err(|error| format!("no process for rank {rank}: {error}"))?;
            processes.0.push(Process { child, socket, killed: false });
        }
        Ok(processes)
    }

    /// To all that are there: of those that have ended somebody hears anyway.
    fn send_all(&mut self, bytes: &[u8]) {
        for process in &mut self.0 {
            let _ = process.socket.write_all(bytes);
        }
    }

    /// Kills the process of `rank`, by SIGKILL. It is waited for last: until then the system tells
    /// the other ranks how it died.
    fn kill(&mut self, rank: usize) -> Result<(), Failure> {
        self.0[rank].killed = true;
        Ok(self.0[rank].child.kill()?)
    }

    /// Why the process of `rank` has ended, which has said nothing.
    fn end_of(&mut self, rank: usize) -> Result<Failure, Failure> {
        for (other, process) in self.0.iter_mut().enumerate() {
            if other != rank {
                process.end();
            }
        }
        let status = self.0[rank].child.wait()?;
        Ok(self.failure(rank, status))
    }

    /// Waits for all, and checks how they end.
    fn check(&mut self) -> Result<(), Failure> {
        for rank in 0..self.0.len() {
            let status = self.0[rank].child.wait()?;
            if !status.success() && !self.0[rank].killed {
                return Err(self.failure(rank, status));
            }
        }
        Ok(())
    }

    /// If nobody reads what a rank prints, this program ends as the rank did.
    fn failure(&mut self, rank: usize, status: ExitStatus) -> Failure {
        if status.code() == Some(EXIT_UNHEARD) {
            self.0.iter_mut().for_each(Process::end);
            process::exit(EXIT_UNHEARD);
        }
        format!("the process of rank {rank} has ended without a result: {status}").into()
    }
}

impl Process {
    /// Kills it if it still runs.
    fn end(&mut self) {
        let _ = self.child.kill(); // fails only after a wait
        let _ = self.child.wait();
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(Process::end);
    }
}
