//! How much of the dense communication is hidden behind the backward pass.

use std::fmt;
use std::time::Duration;

/// What one rank measures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// Of each step, from the begin of the backward pass to having the averages.
    pub steps: Vec<Duration>,
    /// Of that, from this rank's last gradient to the averages on the device.
    pub exposed: Vec<Duration>,
    /// The same of other steps, which begin to communicate only then: without a backward pass beside
    /// it.
    pub alone: Vec<Duration>,
}

/// Medians in milliseconds, over the steps of all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overlap {
    /// A step: of each the slowest rank.
    pub step: f64,
    /// What of the communication is left after the last gradient: of each step the rank that made
    /// it. The others wait for it first.
    pub exposed: f64,
    /// The communication alone: in the same way.
    pub alone: f64,
}

impl Overlap {
    /// `None`: they have not measured all of it, or there is only one.
    pub fn of(ranks: &[&Times]) -> Option<Overlap> {
        if ranks.len() == 1 {
            return None;
        }
        Some(Overlap {
            step: median(ranks, |times| &times.steps, Duration::max)?,
            exposed: median(ranks, |times| &times.exposed, Duration::min)?,
            alone: median(ranks, |times| &times.alone, Duration::min)?,
        })
    }

    /// The share of the communication that is hidden. Where it shares processors with the backward
    /// pass, both get slower, and this may be below 0.
    pub fn hidden(&self) -> f64 {
        1.0 - self.exposed / self.alone
    }
}

/// Of the steps, for each of which `pick` chooses among the ranks.
fn median(
    ranks: &[&Times],
    of: fn(&Times) -> &[Duration],
    pick: fn(Duration, Duration) -> Duration,
) -> Option<f64> {
    let steps = ranks.iter().map(|times| of(times).len()).min()?;
    let picked = |step: usize| ranks.iter().map(|times| of(times)[step]).reduce(pick);
    let mut all: Vec<Duration> = (0..steps).filter_map(picked).collect();
    all.sort();
    all.get(steps / 2).map(|time| 1e3 * time.as_secs_f64())
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Overlap { step, exposed, alone } = self;
        write!(
            f,
            "{:.1} % of the communication is hidden: alone it takes {alone:.3} ms, and {exposed:.3} \
             ms of a step's {step:.3} ms are left after the last gradient (medians)",
            100.0 * self.hidden(),
        )
    }
}
