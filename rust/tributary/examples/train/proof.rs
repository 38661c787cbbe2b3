//! What the program has to prove: that the ranks agree, that they have learned, and that they did so
//! as a single rank would have.

use std::hash::{DefaultHasher, Hasher};

use super::data::Digits;
use super::network::Network;
use super::report;
use super::worker::Trained;

/// What has to be recognised of the test images.
const ACCURACY: f64 = 0.96;
/// Two losses that differ by at most this fraction are the same up to rounding.
const ROUNDING: f64 = 1e-4;

/// Something to prove, and how it came out.
pub struct Proof {
    /// What is to be shown.
    pub claim: &'static str,
    /// Was it?
    pub holds: bool,
    /// The figures.
    pub evidence: String,
}

impl Proof {
    /// One line.
    pub fn print(&self) {
        let verdict = if self.holds { "proved" } else { "FAILED" };
        println!("{verdict}  {}: {}", self.claim, self.evidence);
    }
}

/// All proofs; the last one only if there is something to compare with.
pub fn all(trained: &[Trained], reference: Option<&Trained>, digits: &Digits) -> Vec<Proof> {
    let network = &trained[0].network;
    let mut proofs = vec![same_parameters(trained), accuracy(network, digits)];
    if let Some(reference) = reference {
        proofs.push(same_loss(network, &reference.network, trained.len(), digits));
    }
    proofs
}

fn same_parameters(trained: &[Trained]) -> Proof {
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

fn accuracy(network: &Network, digits: &Digits) -> Proof {
    let (_, accuracy) = network.evaluate(&digits.test);
    Proof {
        claim: "the digits are recognised",
        holds: accuracy >= ACCURACY,
        evidence: format!(
            "{:.2} % of {} test images, at least {:.0} %",
            100.0 * accuracy,
            digits.test.len(),
            100.0 * ACCURACY
        ),
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

/// To compare runs by eye.
fn hash(bits: &[u32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bits.iter().for_each(|&word| hasher.write_u32(word));
    hasher.finish()
}
