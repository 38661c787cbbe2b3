//! Who waits for whom. A knot is one call that does not end: ranks wait in it, and other ranks, the
//! blockers, keep them waiting. A blocker that itself waits, in another knot, leads onward to it.

use std::collections::BTreeMap;

use crate::dump::{Call, State};
use crate::team::{Member, Place, Team};

/// A call that has run for less is no hang, unless something went wrong.
const LONG_MS: f64 = 1000.0;

/// A rank's part in a call.
#[derive(Clone, Copy, Debug)]
pub struct Wait<'a> {
    pub rank: u32,
    pub call: &'a Call,
}

/// One call that does not end.
#[derive(Debug)]
pub struct Knot<'a> {
    /// Index of its communicator.
    pub team: usize,
    /// The number that a call of all ranks has on all of them.
    pub collective: Option<u64>,
    /// Any rank's part.
    pub call: &'a Call,
    pub waiters: Vec<Wait<'a>>,
    pub finished: Vec<u32>,
    pub blockers: Vec<Blocker<'a>>,
}

/// A rank that keeps others waiting in a knot.
#[derive(Debug)]
pub struct Blocker<'a> {
    pub rank: u32,
    pub why: Why,
    /// Its own part in the call.
    pub call: Option<&'a Call>,
    pub onward: Option<Onward<'a>>,
}

/// What a blocker waits for.
#[derive(Clone, Copy, Debug)]
pub struct Onward<'a> {
    /// Index of the knot.
    pub knot: usize,
    /// Its part there.
    pub wait: Wait<'a>,
    /// That it waits there is known.
    pub sure: bool,
}

/// Why a rank keeps others waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It has not made the call.
    Absent,
    /// It has not made the send or receive that would answer.
    Unanswered,
    /// Its stream has not reached the call.
    Queued,
    /// Its thread is still inside the call.
    Inside,
    /// Its stream may not have reached the call.
    Vague,
}

/// All calls of all communicators that do not end.
pub fn knots<'a>(teams: &[Team<'a>]) -> Vec<Knot<'a>> {
    let mut knots = Vec::new();
    for (index, team) in teams.iter().enumerate() {
        let others = team.live().filter_map(|(rank, _)| other_knot(index, team, rank));
        let all = collective_knot(index, team).into_iter().chain(others);
        knots.extend(all.filter(|knot| team.is_suspicious() || knot.is_long()));
    }
    lead_onward(teams, &mut knots);
    knots
}

/// The number of the oldest call of all ranks that has not ended everywhere.
fn oldest_collective(team: &Team) -> Option<u64> {
    let members = || team.live().map(|(_, member)| member);
    let pending = members().filter_map(Member::pending_collective);
    if let Some(number) = pending.filter_map(|call| call.collective).min() {
        return Some(number);
    }
    // The newest calls of a rank may be marked unknown though all is well: they count if somebody
    // has not made them or something went wrong.
    let vague = members().filter_map(Member::vague);
    let number = vague.filter_map(|call| call.collective).max()?;
    let is_late = |member: &Member| member.made().is_some_and(|made| made < number);
    (members().any(is_late) || team.is_suspicious()).then_some(number)
}

fn collective_knot<'a>(index: usize, team: &Team<'a>) -> Option<Knot<'a>> {
    let number = oldest_collective(team)?;
    let mut parts = team.live().filter_map(|(_, member)| member.collective(number));
    let mut knot = Knot::new(index, Some(number), parts.next()?);
    let mut entered = Vec::new();
    for (rank, member) in team.live() {
        let Some(made) = member.made() else { continue };
        match member.collective(number) {
            None if made < number => knot.block(rank, Why::Absent, None),
            None => knot.finished.push(rank),
            Some(call) => match call.state {
                State::Done => knot.finished.push(rank),
                State::Entered => entered.push(Wait { rank, call }),
                _ => knot.waiters.push(Wait { rank, call }),
            },
        }
    }
    // Inside a call a thread may wait for the others, while it connects: those that have come
    // further do not, unless somebody has not come at all.
    let none_further = knot.waiters.is_empty();
    if none_further || !knot.blockers.is_empty() {
        knot.waiters.extend(entered);
        knot.waiters.sort_by_key(|wait| wait.rank);
    } else {
        entered.iter().for_each(|wait| knot.block(wait.rank, Why::Inside, Some(wait.call)));
    }
    Some(knot)
}

/// The oldest call of `rank` alone that does not end.
fn oldest_other<'a>(team: &Team<'a>, rank: u32) -> Option<&'a Call> {
    let member = team.live_rank(rank)?;
    let vague = member.vague().filter(|call| call.collective.is_none() && team.is_suspicious());
    member.pending_other().or(vague)
}

fn other_knot<'a>(index: usize, team: &Team<'a>, rank: u32) -> Option<Knot<'a>> {
    let call = oldest_other(team, rank)?;
    let mut knot = Knot::new(index, None, call);
    knot.waiters.push(Wait { rank, call });
    let Some(peer) = call.peer.filter(|&peer| call.is_message() && peer != rank) else {
        return Some(knot);
    };
    let Some(member) = team.live_rank(peer) else { return Some(knot) };
    let open = |other: &&Call| other.answers(call, rank) && other.state != State::Done;
    match member.comm.calls.iter().find(open) {
        Some(answer) => {
            // Both ends wait in one knot: that of the lower rank.
            let both = oldest_other(team, peer).is_some_and(|other| std::ptr::eq(other, answer));
            if both && peer < rank {
                return None;
            }
            knot.waiters.push(Wait { rank: peer, call: answer });
        }
        // A batch does not say what is in it.
        None if member.pending_other().is_some_and(|call| call.operation == "batch_end") => {}
        None => knot.block(peer, Why::Unanswered, None),
    }
    Some(knot)
}

impl<'a> Knot<'a> {
    fn new(team: usize, collective: Option<u64>, call: &'a Call) -> Knot<'a> {
        let (waiters, finished, blockers) = (Vec::new(), Vec::new(), Vec::new());
        Knot { team, collective, call, waiters, finished, blockers }
    }

    fn block(&mut self, rank: u32, why: Why, call: Option<&'a Call>) {
        self.blockers.push(Blocker { rank, why, call, onward: None });
    }

    /// It has run for so long that it is a hang.
    pub fn is_long(&self) -> bool {
        self.parts().any(|wait| wait.call.age_ms >= LONG_MS)
    }

    /// The parts of ranks whose call has not ended.
    pub fn parts(&self) -> impl Iterator<Item = Wait<'a>> + '_ {
        let blocked = self.blockers.iter();
        let blocked = blocked.filter_map(|b| b.call.map(|call| Wait { rank: b.rank, call }));
        self.waiters.iter().copied().chain(blocked)
    }
}

/// One rank of one process has one device: what a process does there, it does as that rank. Of an
/// older dump also the communicator: it tells nothing of waits in others, which may have been later.
type Actor<'a> = (Place<'a>, u32, Option<&'a str>);

/// Where a rank of one communicator waits as a rank of another.
struct Held<'a> {
    by_actor: BTreeMap<Actor<'a>, Vec<Onward<'a>>>,
}

fn actor<'a>(team: &Team<'a>, rank: u32) -> Option<Actor<'a>> {
    let member = team.members.get(&rank)?;
    Some((member.place(), member.comm.device, member.is_older.then_some(team.identity)))
}

impl<'a> Held<'a> {
    fn new(teams: &[Team<'a>], knots: &[Knot<'a>]) -> Held<'a> {
        let mut by_actor: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (index, knot) in knots.iter().enumerate() {
            let unmade = knot.blockers.iter().any(|blocker| blocker.why == Why::Absent);
            for wait in knot.parts() {
                if let Some(actor) = actor(&teams[knot.team], wait.rank) {
                    let sure = unmade || wait.call.is_pending();
                    by_actor.entry(actor).or_default().push(Onward { knot: index, wait, sure });
                }
            }
        }
        Held { by_actor }
    }

    /// The oldest of the calls that `accept`s, of this rank as one of other knots.
    fn oldest(
        &self,
        team: &Team<'a>,
        rank: u32,
        accept: impl Fn(&Onward) -> bool,
    ) -> Option<Onward<'a>> {
        let held = self.by_actor.get(&actor(team, rank)?)?;
        let accepted = held.iter().filter(|onward| accept(onward));
        accepted.max_by(|a, b| a.wait.call.age_ms.total_cmp(&b.wait.call.age_ms)).copied()
    }
}

/// `a` is before `b` on their stream. An age that is not exact is too high, if it is wrong.
fn is_ahead(a: &Call, b: &Call) -> bool {
    let running = a.state == State::Started && b.state == State::Queued;
    let older = a.exact && a.age_ms > b.age_ms;
    a.stream.is_some() && a.stream == b.stream && (older || running)
}

/// All that wait there are in older dumps: since then their processes have closed the communicator.
fn is_past(team: &Team, knot: &Knot) -> bool {
    let is_older = |wait: &Wait| team.members[&wait.rank].is_older;
    !knot.waiters.is_empty() && knot.waiters.iter().all(is_older)
}

/// Find where the blockers wait. A rank whose stream has not reached the call becomes one of them.
fn lead_onward<'a>(teams: &[Team<'a>], knots: &mut [Knot<'a>]) {
    let held = Held::new(teams, knots);
    let team_of: Vec<usize> = knots.iter().map(|knot| knot.team).collect();
    for (index, knot) in knots.iter_mut().enumerate() {
        let (number, team) = (knot.team, &teams[knot.team]);
        let is_past = is_past(team, knot);
        let elsewhere =
            |onward: &Onward| onward.knot != index && (!is_past || team_of[onward.knot] == number);
        for blocker in &mut knot.blockers {
            if matches!(blocker.why, Why::Absent | Why::Unanswered) {
                blocker.onward = held.oldest(team, blocker.rank, elsewhere);
            }
        }
        let late: Vec<Blocker> = knot
            .waiters
            .iter()
            .filter_map(|wait| {
                let ahead =
                    |onward: &Onward| elsewhere(onward) && is_ahead(onward.wait.call, wait.call);
                not_reached(wait, held.oldest(team, wait.rank, ahead), knot)
            })
            .collect();
        let is_queued = |rank| late.iter().any(|b| b.rank == rank && b.why == Why::Queued);
        knot.waiters.retain(|wait| !is_queued(wait.rank));
        knot.blockers.extend(late);
    }
}

/// The waiter as a blocker, if its stream has not reached the call: something is `ahead`, or the
/// call has started elsewhere. Where it has started nowhere, starts may not be recorded.
fn not_reached<'a>(
    wait: &Wait<'a>,
    ahead: Option<Onward<'a>>,
    knot: &Knot<'a>,
) -> Option<Blocker<'a>> {
    let started = || knot.waiters.iter().any(|wait| wait.call.state == State::Started);
    let why = match (wait.call.state, ahead) {
        (State::Queued | State::Unknown, Some(onward)) if onward.sure => Why::Queued,
        (State::Queued, _) if started() => Why::Queued,
        (State::Queued | State::Unknown, Some(_)) => Why::Vague,
        _ => return None,
    };
    Some(Blocker { rank: wait.rank, why, call: Some(wait.call), onward: ahead })
}
