//! The verdict: what is wrong, the root causes first.

use std::collections::BTreeMap;

use crate::differ::{self, Difference};
use crate::dump::Dump;
use crate::route::{self, Cycle, Step};
use crate::team::{self, Team};
use crate::wait::{self, Blocker, Knot, Why};

/// What the dumps say.
#[derive(Debug)]
pub struct Verdict<'a> {
    pub teams: Vec<Team<'a>>,
    pub knots: Vec<Knot<'a>>,
    /// What is wrong; empty if nothing is.
    pub findings: Vec<Finding<'a>>,
    /// The dumps that are not the newest of their process.
    pub older: Vec<&'a Dump>,
}

/// One thing that is wrong in one communicator.
#[derive(Debug)]
pub struct Finding<'a> {
    /// Index of the communicator.
    pub team: usize,
    pub kind: Kind<'a>,
    /// Whom it is about: those to blame, or if nobody is, those that wait.
    pub ranks: Vec<u32>,
    /// Index of the call that does not end, if there is one.
    pub knot: Option<usize>,
}

/// In order of damnation.
#[derive(Debug)]
pub enum Kind<'a> {
    /// Processes have died.
    Died,
    /// Ranks have closed the communicator, and others have waited for them.
    Left,
    /// Ranks have no dump, while others wait.
    Missing,
    /// Ranks make different calls.
    Differ(Difference<'a>),
    /// Ranks have failed.
    Failed { status: &'a str, detail: &'a str },
    /// Ranks wait for each other.
    Deadlock(Cycle),
    /// Ranks have not made the call that others wait in; `follows`: they wait elsewhere.
    Blocked { why: Why, follows: bool },
    /// Everybody has made the call, and it does not end.
    Stuck,
}

impl Kind<'_> {
    /// The name for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Died => "died",
            Kind::Left => "left",
            Kind::Missing => "missing",
            Kind::Differ(_) => "differ",
            Kind::Failed { .. } => "failed",
            Kind::Deadlock(_) => "deadlock",
            Kind::Blocked { why: Why::Absent, .. } => "absent",
            Kind::Blocked { why: Why::Unanswered, .. } => "unanswered",
            Kind::Blocked { why: Why::Queued | Why::Vague, .. } => "queued",
            Kind::Blocked { why: Why::Inside, .. } => "inside",
            Kind::Stuck => "stuck",
        }
    }

    /// Nobody need suspect the network.
    fn explains_a_hang(&self) -> bool {
        matches!(self, Kind::Differ(_) | Kind::Failed { .. })
    }

    fn order(&self) -> (u8, bool) {
        match self {
            Kind::Died => (0, false),
            Kind::Left => (1, false),
            Kind::Missing => (2, false),
            Kind::Differ(_) => (3, false),
            Kind::Failed { .. } => (4, false),
            Kind::Deadlock(_) => (5, false),
            Kind::Blocked { why, follows } => (6 + *why as u8, *follows),
            Kind::Stuck => (u8::MAX, false),
        }
    }
}

impl Verdict<'_> {
    /// Who is to blame, by index of the communicator and rank.
    pub fn blamed(&self, finding: &Finding) -> Vec<(usize, u32)> {
        match &finding.kind {
            Kind::Stuck => Vec::new(),
            Kind::Deadlock(cycle) => cycle
                .iter()
                .map(|step| &self.knots[step.knot])
                .zip(cycle)
                .map(|(knot, step)| (knot.team, knot.blockers[step.blocker].rank))
                .collect(),
            _ => finding.ranks.iter().map(|&rank| (finding.team, rank)).collect(),
        }
    }
}

/// Judge the dumps, in any order.
pub fn judge(dumps: &[Dump]) -> Verdict<'_> {
    let older = team::older(dumps);
    let teams = team::teams(dumps, &older);
    let mut knots = wait::knots(&teams);
    let cycles = route::cycles(&knots);
    route::keep_sure(&mut knots, &cycles);
    let mut findings = Vec::new();
    for index in 0..teams.len() {
        findings.extend(of_team(&teams, &knots, index));
    }
    for index in 0..knots.len() {
        let explains = |f: &Finding| f.team == knots[index].team && f.kind.explains_a_hang();
        let explained = findings.iter().any(explains);
        // A rank that has left ended the communicator at once: others may have been on their way.
        if !teams[knots[index].team].left.is_empty() && !knots[index].is_long() {
            continue;
        }
        let found = of_knot(&teams, &knots, &cycles, index);
        findings
            .extend(found.into_iter().filter(|f| !(explained && matches!(f.kind, Kind::Stuck))));
    }
    findings.extend(cycles.into_iter().map(|cycle| of_cycle(&knots, cycle)));
    if findings.is_empty() {
        findings
            .extend((0..teams.len()).flat_map(|index| failed(&teams, index, |s| s != "TRIB_OK")));
    }
    let depths = route::depths(&knots);
    let depth = |finding: &Finding| match (&finding.kind, finding.knot) {
        (Kind::Blocked { .. } | Kind::Stuck, Some(knot)) => depths[knot],
        _ => 0, // a cause by itself
    };
    findings.sort_by_cached_key(|f| (depth(f), f.kind.order(), f.team, f.knot, f.ranks.clone()));
    Verdict { teams, knots, findings, older }
}

/// What is wrong with ranks or their calls, whether or not somebody waits.
fn of_team<'a>(teams: &[Team<'a>], knots: &[Knot<'a>], index: usize) -> Vec<Finding<'a>> {
    let team = &teams[index];
    let finding = |kind, ranks: Vec<u32>| {
        let knot = knots.iter().position(|knot| knot.team == index && concerns(knot, &ranks));
        Finding { team: index, kind, ranks, knot }
    };
    let mut findings = Vec::new();
    if !team.died.is_empty() {
        findings.push(finding(Kind::Died, team.died.keys().copied().collect()));
    }
    let left = left(team, index, knots);
    if !left.is_empty() {
        findings.push(finding(Kind::Left, left));
    }
    let missing = team.missing();
    if !missing.is_empty() && needs_all(team, index, knots) {
        findings.push(finding(Kind::Missing, missing));
    }
    if let Some(difference) = differ::difference(team) {
        let ranks = difference.blamed();
        findings.push(finding(Kind::Differ(difference), ranks));
    }
    // These say that something else went wrong: the last one, that a rank has died or left.
    let gone = findings.iter().any(|f| matches!(f.kind, Kind::Died | Kind::Left));
    let cause = |status: &str| match status {
        "TRIB_OK" | "TRIB_ERR_TIMEOUT" | "TRIB_ERR_ABORTED" => false,
        "TRIB_ERR_CLOSED" => !gone,
        _ => true,
    };
    findings.extend(failed(teams, index, cause));
    findings
}

/// Something is wrong there, so a dump that is missing may say what. The reason of a dump may be
/// another communicator of its process.
fn needs_all(team: &Team, index: usize, knots: &[Knot]) -> bool {
    let mut parts = knots.iter().filter(|knot| knot.team == index).flat_map(Knot::parts);
    let mut members = team.members.values();
    parts.any(|wait| wait.call.is_pending()) || members.any(|m| m.comm.status != "TRIB_OK")
}

/// Who has closed the communicator though others wait for it.
fn left(team: &Team, index: usize, knots: &[Knot]) -> Vec<u32> {
    let partners = knots.iter().filter(|knot| knot.team == index && knot.call.is_message());
    let closed = partners.filter_map(|knot| knot.call.peer).filter(|p| team.closed.contains(p));
    let mut ranks: Vec<u32> = team.left.keys().copied().chain(closed).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Do others wait there for these ranks?
fn concerns(knot: &Knot, ranks: &[u32]) -> bool {
    let peer = knot.call.peer.filter(|_| knot.call.is_message());
    knot.collective.is_some() || peer.is_some_and(|peer| ranks.contains(&peer))
}

/// The ranks of one communicator whose status is `bad`, by status and detail.
fn failed<'a>(teams: &[Team<'a>], index: usize, bad: impl Fn(&str) -> bool) -> Vec<Finding<'a>> {
    let mut groups: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for (&rank, member) in &teams[index].members {
        if bad(&member.comm.status) {
            groups.entry((&*member.comm.status, &*member.comm.detail)).or_default().push(rank);
        }
    }
    let finding = |((status, detail), ranks)| {
        let kind = Kind::Failed { status, detail };
        Finding { team: index, kind, ranks, knot: None }
    };
    groups.into_iter().map(finding).collect()
}

fn of_cycle<'a>(knots: &[Knot<'a>], cycle: Cycle) -> Finding<'a> {
    let first = cycle[0];
    let ranks = vec![knots[first.knot].blockers[first.blocker].rank];
    Finding {
        team: knots[first.knot].team,
        kind: Kind::Deadlock(cycle),
        ranks,
        knot: Some(first.knot),
    }
}

/// Who keeps others waiting in one call.
fn of_knot<'a>(
    teams: &[Team<'a>],
    knots: &[Knot<'a>],
    cycles: &[Cycle],
    index: usize,
) -> Vec<Finding<'a>> {
    let knot = &knots[index];
    let on_cycle = |blocker| cycles.iter().flatten().any(|s| *s == Step { knot: index, blocker });
    let mut groups: BTreeMap<(Why, bool), Vec<u32>> = BTreeMap::new();
    let blame = |blocker: &Blocker| (blocker.why, blocker.onward.is_some());
    for (number, blocker) in route::blamed(knot) {
        if !on_cycle(number) {
            groups.entry(blame(blocker)).or_default().push(blocker.rank);
        }
    }
    let finding = |kind, ranks| Finding { team: knot.team, kind, ranks, knot: Some(index) };
    if is_stuck(&teams[knot.team], knot) {
        return vec![finding(Kind::Stuck, knot.waiters.iter().map(|wait| wait.rank).collect())];
    }
    let blocked = |((why, follows), ranks)| finding(Kind::Blocked { why, follows }, ranks);
    groups.into_iter().map(blocked).collect()
}

/// Nobody is to blame who has a dump, died or left.
fn is_stuck(team: &Team, knot: &Knot) -> bool {
    let gone = match (knot.collective, knot.call.peer) {
        (None, Some(peer)) if knot.call.is_message() => team.live_rank(peer).is_none(),
        (None, _) => false,
        // Those that have merely closed had made it, or somebody would have been told.
        (Some(_), _) => team.live().count() + team.closed.len() < team.size as usize,
    };
    knot.blockers.is_empty() && !gone
}
