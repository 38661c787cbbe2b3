//! What the process of a rank tells the process that has started it: lines of words.

use std::fmt;
use std::str::{FromStr, SplitAsciiWhitespace};
use std::time::Duration;

use tributary::UniqueId;

use super::exchange::Moved;
use super::network::{zeros, Network, Tensors};
use super::overlap::Times;
use super::report::Epoch;
use super::sparse::Traffic;
use super::worker::Trained;

/// One line.
pub enum Message {
    /// Rank 0 has made the id of all.
    Id(UniqueId),
    /// As many steps are taken as are to be before the process is killed.
    Reached,
    /// The training has failed, for this reason.
    Failed(String),
    /// The training has ended.
    Trained(Box<Trained>),
}

impl fmt::Display for Message {
    /// The line, without its end. Floating-point numbers are written so that they are read as the
    /// same, and parameters as their bits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Id(id) => {
                write!(f, "id")?;
                id.as_bytes().iter().try_for_each(|byte| write!(f, " {byte}"))
            }
            Message::Reached => write!(f, "reached"),
            Message::Failed(why) => write!(f, "failed {}", why.replace('\n', "\r")),
            Message::Trained(trained) => write_trained(f, trained),
        }
    }
}

fn write_trained(f: &mut fmt::Formatter<'_>, trained: &Trained) -> fmt::Result {
    write!(f, "trained {}", trained.epochs.len())?;
    for epoch in &trained.epochs {
        let Epoch { number, steps, loss, accuracy, step, communicating, moved } = epoch;
        let (nanoseconds, Moved { sent, received }) = (step.as_nanos(), moved);
        write!(f, " {number} {steps} {loss} {accuracy} {nanoseconds} {communicating}")?;
        write!(f, " {sent} {received}")?;
    }
    match &trained.traffic {
        None => write!(f, " -")?,
        Some(Traffic { algorithm, words, leak }) => write!(f, " {algorithm} {words} {leak}")?,
    }
    let Times { steps, exposed, alone } = &trained.times;
    for times in [steps, exposed, alone] {
        write!(f, " {}", times.len())?;
        times.iter().try_for_each(|time| write!(f, " {}", time.as_nanos()))?;
    }
    let mut parameters = trained.network.parameters.iter().flatten();
    parameters.try_for_each(|value| write!(f, " {}", value.to_bits()))
}

impl Message {
    /// Reads a line; `None` if it is none of these.
    pub fn parse(line: &str) -> Option<Message> {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut words = Words(rest.split_ascii_whitespace());
        let message = match kind {
            "id" => Message::Id(words.id()?),
            "reached" => Message::Reached,
            "failed" => return Some(Message::Failed(rest.replace('\r', "\n"))),
            "trained" => Message::Trained(Box::new(words.trained()?)),
            _ => return None,
        };
        words.0.next().is_none().then_some(message)
    }
}

/// The words that are left.
struct Words<'a>(SplitAsciiWhitespace<'a>);

impl Words<'_> {
    fn next<T: FromStr>(&mut self) -> Option<T> {
        self.0.next()?.parse().ok()
    }

    fn id(&mut self) -> Option<UniqueId> {
        let mut bytes = [0; UniqueId::SIZE];
        for byte in &mut bytes {
            *byte = self.next()?;
        }
        Some(UniqueId::from_bytes(bytes))
    }

    fn trained(&mut self) -> Option<Trained> {
        let count: usize = self.next()?;
        Some(Trained {
            epochs: (0..count).map(|_| self.epoch()).collect::<Option<_>>()?,
            traffic: self.traffic()?,
            times: Times {
                steps: self.durations()?,
                exposed: self.durations()?,
                alone: self.durations()?,
            },
            network: Network::with(self.parameters()?),
        })
    }

    fn epoch(&mut self) -> Option<Epoch> {
        Some(Epoch {
            number: self.next()?,
            steps: self.next()?,
            loss: self.next()?,
            accuracy: self.next()?,
            step: Duration::from_nanos(self.next()?),
            communicating: self.next()?,
            moved: Moved { sent: self.next()?, received: self.next()? },
        })
    }

    fn traffic(&mut self) -> Option<Option<Traffic>> {
        let algorithm: String = self.next()?;
        if algorithm == "-" {
            return Some(None);
        }
        Some(Some(Traffic { algorithm, words: self.next()?, leak: self.next()? }))
    }

    fn durations(&mut self) -> Option<Vec<Duration>> {
        let count: usize = self.next()?;
        (0..count).map(|_| self.next().map(Duration::from_nanos)).collect()
    }

    fn parameters(&mut self) -> Option<Tensors> {
        let mut parameters = zeros();
        for value in parameters.iter_mut().flatten() {
            *value = f32::from_bits(self.next()?);
        }
        Some(parameters)
    }
}
