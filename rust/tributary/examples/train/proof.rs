//! The proofs: the ranks agree, they have learned, and a single rank learns the same.

use std::hash::{DefaultHasher, Hasher};

use super::data::Digits;
use super::network::Network;
use super::options::RATE;
use super::overlap::Overlap;
use super::report::{self, say};
use super::sparse::{largest, Traffic};
use super::vanish::Residuals;
use super::worker::Trained;
use super::Options;

/// The fraction of the test images that the network has to recognise.
const ACCURACY: f64 = 0.96;
/// Epochs that are enough for it with dense gradients.
const ENOUGH: usize = 20;
/// A learning rate of more than this many times the default is the first to blame.
const LARGE: f32 = 5.0;
/// One point.
const POINT: f64 = 0.01;
/// Two losses that differ by at most this fraction are the same up to rounding.
const ROUNDING: f64 = 1e-4;

/// A claim, and its evidence.
pub struct Proof {
    /// The claim.
    pub claim: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// The figures.
    pub evidence: String,
}

impl Proof {
    /// Prints it as one line.
    pub fn print(&self) {
        let verdict = if self.holds { "proved" } else { "FAILED" };
        say(format_args!("{verdict}  {}: {}", self.claim, self.evidence));
    }
}

/// All proofs; what compares with one rank only if there is one.
pub fn all(
    trained: &[Trained],
    reference: Option<&Trained>,
    options: &Options,
    digits: &Digits,
) -> Vec<Proof> {
    let network = &trained[0].network;
    let mut proofs = vec![same_parameters(trained), accuracy(network, options, digits)];
    let sparse: Vec<&Traffic> = trained.iter().filter_map(|rank| rank.traffic.as_ref()).collect();
    if let Some(reference) = reference {
        proofs.push(match sparse.is_empty() {
            true => same_loss(network, &reference.network, trained.len(), digits),
            false => same_accuracy(network, &reference.network, options, digits),
        });
    }
    if !sparse.is_empty() {
        proofs.push(nothing_lost(&sparse));
        if saves(trained, sparse[0]) {
            proofs.push(little_sent(trained, sparse[0]));
        }
    }
    proofs
}

/// What is no proof: how much of a dense exchange is hidden, and what explains the proofs of a
/// sparse one.
pub fn remarks(trained: &[Trained], options: &Options) -> Vec<String> {
    let Some(traffic) = &trained[0].traffic else {
        let times: Vec<_> = trained.iter().map(|rank| &rank.times).collect();
        return Overlap::of(&times).iter().map(Overlap::to_string).collect();
    };
    let mut remarks = Vec::new();
    if options.kill_rank.is_some() {
        let others = match options.residuals {
            Residuals::Keep => "the others kept theirs",
            Residuals::Drop => "the others dropped theirs",
        };
        remarks.push(format!("the killed rank took with it what it had not sent; {others}"));
    }
    if !saves(trained, traffic) {
        remarks.push(format!("{}: nothing is saved", sent(trained, traffic)));
    }
    remarks
}

/// Is less to be sent than by a dense allreduce? A single rank sends nothing, sparse or dense.
fn saves(trained: &[Trained], traffic: &Traffic) -> bool {
    trained.len() > 1 && traffic.algorithm != "dense"
}

/// Do the ranks agree to the bit?
pub fn same_parameters(trained: &[Trained]) -> Proof {
    let bits = |rank: &Trained| -> Vec<u32> {
        rank.network.parameters.iter().flatten().map(|value| value.to_bits()).collect()
    };
    let first = bits(&trained[0]);
    let different: Vec<usize> =
        (1..trained.len()).filter(|&rank| bits(&trained[rank]) != first).collect();
    Proof {
        claim: "every rank has the same parameters, to the bit",
        holds: different.is_empty(),
        evidence: if different.is_empty() {
            let (ranks, count) = (report::ranks(trained.len()), first.len());
            format!("{ranks}, {count} parameters, hash {:016x}", hash(&first))
        } else {
            format!("ranks {different:?} differ from rank 0")
        },
    }
}

fn accuracy(network: &Network, options: &Options, digits: &Digits) -> Proof {
    let (_, accuracy) = network.evaluate(&digits.test);
    let holds = accuracy >= ACCURACY;
    Proof {
        claim: "the digits are recognised",
        holds,
        evidence: format!(
            "{:.2} % of {} test images, at least {:.0} %{}",
            100.0 * accuracy,
            digits.test.len(),
            100.0 * ACCURACY,
            advice(holds, options)
        ),
    }
}

/// Advice for a network that has not learned enough.
fn advice(holds: bool, options: &Options) -> String {
    match holds {
        true => String::new(),
        false if options.lr > LARGE * RATE => format!("; try --lr {RATE}"),
        false if options.epochs >= ENOUGH => "; try another --lr, or more --epochs".to_owned(),
        false => format!("; try --epochs {ENOUGH}"),
    }
}

fn same_loss(network: &Network, reference: &Network, ranks: usize, digits: &Digits) -> Proof {
    let (ours, _) = network.evaluate(&digits.training);
    let (theirs, _) = reference.evaluate(&digits.training);
    let difference = (ours - theirs).abs() / theirs;
    Proof {
        claim: "the final loss is that of one rank",
        holds: difference <= ROUNDING,
        evidence: format!(
            "{ours:.9} with {}, {theirs:.9} with one; relative difference {difference:.1e}, \
             at most {ROUNDING:.0e}",
            report::ranks(ranks)
        ),
    }
}

fn same_accuracy(
    network: &Network,
    reference: &Network,
    options: &Options,
    digits: &Digits,
) -> Proof {
    let (_, ours) = network.evaluate(&digits.test);
    let (_, theirs) = reference.evaluate(&digits.test);
    let holds = ours >= theirs - POINT;
    Proof {
        claim: "sparse gradients teach as much as dense ones",
        holds,
        evidence: format!(
            "{:.2} % of the test images, {:.2} % with one rank and dense gradients; at most one \
             point less{}",
            100.0 * ours,
            100.0 * theirs,
            advice(holds, options)
        ),
    }
}

fn nothing_lost(ranks: &[&Traffic]) -> Proof {
    let leak = largest(ranks.iter().map(|traffic| traffic.leak));
    Proof {
        claim: "no part of a gradient is lost in any step that ran",
        holds: leak == 0.0,
        evidence: format!("the largest difference in any entry is {leak}"),
    }
}

fn little_sent(trained: &[Trained], traffic: &Traffic) -> Proof {
    let (moved, dense) = moved(trained);
    Proof {
        claim: "less is sent",
        holds: moved < dense,
        evidence: format!(
            "{}: {:.1} % saved",
            sent(trained, traffic),
            100.0 * (1.0 - moved / dense)
        ),
    }
}

fn sent(trained: &[Trained], traffic: &Traffic) -> String {
    let (moved, dense) = moved(trained);
    let algorithm = &traffic.algorithm;
    format!(
        "{moved:.0} bytes per rank and step by {algorithm}, all included, {dense:.0} by a dense \
         allreduce"
    )
}

/// The bytes of a step: by the rank that moved most, on the way on which it moved more, and by a
/// dense allreduce.
fn moved(trained: &[Trained]) -> (f64, f64) {
    (largest(trained.iter().map(Trained::bytes)), trained[0].dense_bytes(trained.len()))
}

/// To compare runs by eye.
fn hash(bits: &[u32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bits.iter().for_each(|&word| hasher.write_u32(word));
    hasher.finish()
}
