//! Ranks that make different calls where all must make the same.

use std::collections::BTreeMap;

use crate::dump::Call;
use crate::team::Team;

/// The first call of all ranks that is not the same on all of them.
#[derive(Debug)]
pub struct Difference<'a> {
    pub collective: u64,
    /// The groups to blame come first, the majority last.
    pub groups: Vec<Group<'a>>,
    /// How many groups are to blame.
    pub wrong: usize,
    /// No group has the majority: the one with the lowest rank is blamed.
    pub tie: bool,
    pub shift: Option<Shift>,
}

/// Ranks that make the same call.
#[derive(Debug)]
pub struct Group<'a> {
    pub call: &'a Call,
    pub ranks: Vec<u32>,
}

/// The calls of the blamed rank are those of the others again when one is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// It has made one fewer.
    LeftOut,
    /// It has made one more.
    Extra,
}

impl Difference<'_> {
    pub fn blamed(&self) -> Vec<u32> {
        let mut ranks: Vec<u32> =
            self.groups[..self.wrong].iter().flat_map(|g| &g.ranks).copied().collect();
        ranks.sort_unstable();
        ranks
    }
}

type Calls<'a> = BTreeMap<u64, &'a Call>;

/// The first difference that the dumps hold.
pub fn difference<'a>(team: &Team<'a>) -> Option<Difference<'a>> {
    let calls: BTreeMap<u32, Calls> = team
        .members
        .iter()
        .map(|(&rank, member)| {
            let numbered = member.comm.calls.iter().filter(|call| call.operation != "batch_end");
            (rank, numbered.filter_map(|call| Some((call.collective?, call))).collect())
        })
        .collect();
    let mut by_number: BTreeMap<u64, Vec<Group>> = BTreeMap::new();
    for (&rank, calls) in &calls {
        for (&number, &call) in calls {
            add(by_number.entry(number).or_default(), rank, call);
        }
    }
    let (collective, groups) = by_number.into_iter().find(|(_, groups)| groups.len() > 1)?;
    let mut difference = arrange(collective, groups);
    difference.shift = shift(&calls, &difference);
    Some(difference)
}

fn add<'a>(groups: &mut Vec<Group<'a>>, rank: u32, call: &'a Call) {
    match groups.iter_mut().find(|group| matches(group.call, call)) {
        Some(group) => group.ranks.push(rank),
        None => groups.push(Group { call, ranks: vec![rank] }),
    }
}

/// Could these be the parts of two ranks in one call?
fn matches(a: &Call, b: &Call) -> bool {
    // The count of these is each rank's own.
    let own_count = matches!(a.operation.as_str(), "allgatherv" | "alltoallv" | "sparse_import");
    a.operation == b.operation
        && (a.count == b.count || own_count)
        && (&a.dtype, &a.op, a.peer, &a.algorithm) == (&b.dtype, &b.op, b.peer, &b.algorithm)
}

/// Smallest group first; of the largest ones the one with the lowest rank.
fn arrange(collective: u64, mut groups: Vec<Group>) -> Difference {
    groups.sort_by_key(|group| (group.ranks.len(), group.ranks[0]));
    let most = groups.last().map_or(0, |group| group.ranks.len());
    let largest = groups.iter().filter(|group| group.ranks.len() == most).count();
    let wrong = groups.len() - largest + usize::from(largest > 1);
    Difference { collective, groups, wrong, tie: largest > 1, shift: None }
}

/// Only where one group is to blame, whose ranks are taken to agree.
fn shift(calls: &BTreeMap<u32, Calls>, difference: &Difference) -> Option<Shift> {
    let [wrong, right] = difference.groups.as_slice() else { return None };
    let wrong = calls[&wrong.ranks[0]].range(difference.collective..);
    let right = &calls[&right.ranks[0]];
    let wrong: Vec<_> = wrong.collect();
    let agree = |number: Option<u64>, call: &Call| {
        Some(matches(right.get(&number?)?, call)) // None: nothing to compare
    };
    let all = |compared: Vec<bool>| !compared.is_empty() && compared.iter().all(|&same| same);
    let one_later = |(number, call): &(&u64, &&Call)| agree(number.checked_add(1), call);
    let one_earlier = |(number, call): &(&u64, &&Call)| agree(number.checked_sub(1), call);
    if all(wrong.iter().filter_map(one_later).collect()) {
        return Some(Shift::LeftOut);
    }
    let after_extra = wrong.iter().skip(1).filter_map(one_earlier).collect();
    all(after_extra).then_some(Shift::Extra)
}
