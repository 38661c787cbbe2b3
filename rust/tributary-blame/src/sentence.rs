//! A finding in plain sentences.

use crate::differ::{Difference, Group, Shift};
use crate::dump::State;
use crate::judge::{Finding, Kind, Verdict};
use crate::route::Step;
use crate::team::Team;
use crate::wait::{Blocker, Knot, Onward, Wait, Why};
use crate::words;

/// Of the ranks to blame, so many are described one by one.
const DESCRIBED: usize = 4;

/// What is wrong, who is to blame, and why.
pub fn sentence(verdict: &Verdict, finding: &Finding) -> String {
    let told = Told { verdict, finding, team: &verdict.teams[finding.team] };
    let text = match &finding.kind {
        Kind::Died => told.died(),
        Kind::Left => told.left(),
        Kind::Missing => told.missing(),
        Kind::Differ(difference) => told.differ(difference),
        Kind::Failed { status, detail } => told.failed(status, detail),
        Kind::Deadlock(cycle) => return told.deadlock(cycle), // it names its communicators
        Kind::Blocked { why, follows } => told.blocked(*why, *follows),
        Kind::Stuck => told.stuck(),
    };
    if verdict.teams.len() == 1 {
        return text;
    }
    format!("Communicator {}: {text}", told.team.identity)
}

struct Told<'v, 'a> {
    verdict: &'v Verdict<'a>,
    finding: &'v Finding<'a>,
    team: &'v Team<'a>,
}

impl<'a> Told<'_, 'a> {
    fn died(&self) -> String {
        let ranks = self.blamed();
        let have = self.choose("has", "have");
        format!("{ranks} {have} died.{}{}", self.last_calls(), self.others_wait())
    }

    fn left(&self) -> String {
        let (ranks, have) = (self.blamed(), self.choose("has", "have"));
        let mut after: Vec<_> = self.finding.ranks.iter().map(|r| self.team.left.get(r)).collect();
        after.dedup();
        let after = match after.as_slice() {
            [Some(call)] => format!(" after call {call}"),
            _ => String::new(),
        };
        let wait = self.choose("others wait for it", "others wait for them");
        format!("{ranks} {have} closed the communicator{after}; {wait}.{}", self.others_wait())
    }

    fn missing(&self) -> String {
        let (ranks, have) = (self.blamed(), self.choose("has", "have"));
        let why = self.choose(
            "its process is gone, or stuck before writing one, or the file was not given",
            "their processes are gone, or stuck before writing them, or the files were not given",
        );
        format!("{ranks} {have} no dump: {why}.{}", self.others_wait())
    }

    fn differ(&self, difference: &Difference) -> String {
        let (wrong, right) = difference.groups.split_at(difference.wrong);
        let (wrong, right) = (self.groups(wrong), self.groups(right));
        let mut text = format!("as collective {}, {wrong}, but {right}.", difference.collective);
        if difference.tie {
            text += " It is a tie: either may be the mistake.";
        }
        let ranks = words::ranks(&difference.groups[0].ranks);
        match difference.shift {
            Some(Shift::LeftOut) => {
                text += " This is what the others make one later: it seems that ";
                text += &format!("{ranks} left one out.");
            }
            Some(Shift::Extra) => {
                text += " What follows is what the others make one earlier: it seems that ";
                text += &format!("{ranks} made one too many.");
            }
            None => {}
        }
        text
    }

    /// "rank 2 (…) makes trib_…, rank 3 (…) makes trib_…".
    fn groups(&self, groups: &[Group]) -> String {
        let group = |group: &Group| {
            let ranks = words::ranks_of(self.team, &group.ranks);
            let makes = if group.ranks.len() == 1 { "makes" } else { "make" };
            format!("{ranks} {makes} {}", words::operation(group.call))
        };
        groups.iter().map(group).collect::<Vec<_>>().join(", ")
    }

    fn failed(&self, status: &str, detail: &str) -> String {
        let have = self.choose("has", "have");
        let detail = if detail.is_empty() { "no detail" } else { detail };
        format!("{} {have} failed with {status}: {detail}", self.blamed())
    }

    fn deadlock(&self, cycle: &[Step]) -> String {
        let steps: Vec<String> = cycle.iter().map(|step| self.step(*step)).collect();
        let steps = steps.join("; ");
        format!("a deadlock: {steps}. All ranks must make these calls in one order.")
    }

    /// "rank 0 (…) waits in … and has not made …".
    fn step(&self, step: Step) -> String {
        let knot = &self.verdict.knots[step.knot];
        let blocker = &knot.blockers[step.blocker];
        let rank = words::ranks_of(&self.verdict.teams[knot.team], &[blocker.rank]);
        let wanted = match knot.collective {
            Some(_) => self.number_in(knot),
            None => format!("{} of {}", self.number_in(knot), words::ranks(&callers(knot))),
        };
        let has = match blocker.why {
            Why::Absent => format!("has not made {wanted}"),
            Why::Unanswered => format!("has not answered {wanted}"),
            Why::Queued | Why::Inside | Why::Vague => format!("has {wanted} behind it"),
        };
        let waits = blocker.onward.map_or_else(String::new, |onward| self.waits(blocker, &onward));
        format!("{rank} {waits}, and {has}")
    }

    /// "waits for 5.0 s in …".
    fn waits(&self, blocker: &Blocker, onward: &Onward) -> String {
        let knot = &self.verdict.knots[onward.knot];
        let number = self.number_in(knot);
        let (age, call) = (onward.wait.call.age_ms, words::operation(onward.wait.call));
        let role = match onward.wait.rank {
            rank if rank == blocker.rank => String::new(),
            rank => format!(", as its rank {rank}"),
        };
        format!("has waited for {} in {number}, {call}{role}", words::duration(age))
    }

    fn blocked(&self, why: Why, follows: bool) -> String {
        let Some(knot) = self.knot() else { return self.blamed() };
        let (ranks, has) = (self.blamed(), self.choose("has", "have"));
        let call = words::call(knot.call);
        let what = match why {
            Why::Absent => format!("not made {call}"),
            Why::Unanswered => unanswered(knot),
            Why::Queued | Why::Vague => {
                let stream = self.choose("its stream has", "their streams have");
                let ahead = "something ahead of it on the stream is not done";
                let ahead = if follows { String::new() } else { format!(": {ahead}") };
                format!("queued {call}, and {stream} not reached it{ahead}")
            }
            Why::Inside => {
                let thread = self.choose("its thread is", "their threads are");
                format!("entered {call}, and {thread} still inside")
            }
        };
        let mut text = format!("{ranks} {has} {what}{}.", self.wait_clause(knot));
        for blocker in self.described(knot) {
            text += &self.onward_or_last_call(blocker);
        }
        if matches!(why, Why::Absent | Why::Unanswered) {
            text += &self.older_dump(knot);
        }
        text
    }

    fn stuck(&self) -> String {
        let Some(knot) = self.knot() else { return self.blamed() };
        let why = match furthest(&knot.waiters) {
            "queued" => "what is ahead of it, the network or a device has failed, or is slow",
            _ => "the network or a device has failed, or is slow",
        };
        if knot.collective.is_none() {
            let parts: Vec<String> = knot.waiters.iter().map(part).collect();
            return format!("{}, and the call has not ended: {why}.", parts.join("; "));
        }
        let known = knot.waiters.len() + knot.finished.len();
        let all = match self.team.size {
            size if known < size as usize => format!("{known} of {size} ranks have"),
            1 => "the only rank has".to_owned(),
            2 => "both ranks have".to_owned(),
            size => format!("all {size} ranks have"),
        };
        let finished = match knot.finished.as_slice() {
            [] if self.team.size == 1 => "is not known to have finished it".to_owned(),
            [] => "none is known to have finished it".to_owned(),
            [one] => format!("only rank {one} has finished it"),
            many => format!("only {} have finished it", words::ranks(many)),
        };
        let (made, call) = (furthest(&knot.waiters), words::call(knot.call));
        let (ranks, have) = (capital(&self.blamed()), self.choose("has", "have"));
        let age = ages(&knot.waiters);
        format!("{all} {made} {call}, and {finished}: {why}. {ranks} {have} been in it for {age}.")
    }

    fn knot(&self) -> Option<&Knot<'a>> {
        self.finding.knot.map(|knot| &self.verdict.knots[knot])
    }

    fn blamed(&self) -> String {
        words::ranks_of(self.team, &self.finding.ranks)
    }

    fn choose(&self, one: &'static str, many: &'static str) -> &'static str {
        if self.finding.ranks.len() == 1 {
            one
        } else {
            many
        }
    }

    /// "; ranks 0, 1 and 3 have waited in it for 600.2 s", or nothing.
    fn wait_clause(&self, knot: &Knot) -> String {
        let (ranks, waits) = self.waiting(knot);
        match ranks.len() {
            0 => String::new(),
            1 => format!("; {} has waited in it for {}", words::ranks(&ranks), ages(&waits)),
            _ => format!("; {} have waited in it for {}", words::ranks(&ranks), ages(&waits)),
        }
    }

    /// " Ranks 0 and 1 have waited for 600.2 s in …", or nothing.
    fn others_wait(&self) -> String {
        let Some(knot) = self.knot() else { return String::new() };
        let (ranks, waits) = self.waiting(knot);
        let have = if ranks.len() == 1 { "has" } else { "have" };
        let (age, call) = (ages(&waits), words::call(knot.call));
        match ranks.len() {
            0 => String::new(),
            _ => format!(" {} {have} waited for {age} in {call}.", capital(&words::ranks(&ranks))),
        }
    }

    /// Who waits in the call, those to blame excluded.
    fn waiting(&self, knot: &Knot<'a>) -> (Vec<u32>, Vec<Wait<'a>>) {
        let others = knot.waiters.iter().filter(|wait| !self.finding.ranks.contains(&wait.rank));
        let waits: Vec<Wait> = others.copied().collect();
        (waits.iter().map(|wait| wait.rank).collect(), waits)
    }

    fn described<'k>(&'k self, knot: &'k Knot<'a>) -> impl Iterator<Item = &'k Blocker<'a>> {
        let blamed = |blocker: &&Blocker| self.finding.ranks.contains(&blocker.rank);
        knot.blockers.iter().filter(blamed).take(DESCRIBED)
    }

    fn onward_or_last_call(&self, blocker: &Blocker) -> String {
        match &blocker.onward {
            Some(onward) => {
                let rank = capital(&words::ranks(&[blocker.rank]));
                format!(" {rank} itself {}.", self.waits(blocker, onward))
            }
            None if blocker.call.is_none() => self.last_call(blocker.rank),
            None => String::new(),
        }
    }

    fn last_calls(&self) -> String {
        self.finding.ranks.iter().take(DESCRIBED).map(|&rank| self.last_call(rank)).collect()
    }

    /// Nothing for a rank without a dump.
    fn last_call(&self, rank: u32) -> String {
        let Some(member) = self.team.members.get(&rank) else { return String::new() };
        let Some(call) = member.newest() else {
            return format!(" Rank {rank}'s dump has no call.");
        };
        let state = match call.state {
            State::Entered => "is not queued yet",
            State::Queued => "is queued",
            State::Started => "has started",
            State::Done => "is done",
            State::Unknown => "may be done",
        };
        let (call, age) = (words::call(call), words::duration(call.age_ms));
        format!(" Rank {rank}'s last call, {call}, made {age} before the dump, {state}.")
    }

    /// Say so if a rank that has not made a call could have made it after its dump.
    fn older_dump(&self, knot: &Knot) -> String {
        let members = &self.team.members;
        let began = |wait: &Wait| Some(members.get(&wait.rank)?.entered_ns(wait.call));
        let dumped = |rank: &u32| Some(members.get(rank)?.dump.unix_ns);
        let began = knot.waiters.iter().filter_map(began).min();
        let dumped = self.finding.ranks.iter().filter_map(dumped).min();
        let older = began.zip(dumped).map_or(0, |(began, dumped)| began.saturating_sub(dumped));
        if older == 0 {
            return String::new();
        }
        let (age, dump) = (words::duration(older as f64 / 1e6), self.choose("its dump", "a dump"));
        format!(" But {dump} is {age} older than this wait: the call may have been made since.")
    }

    /// The number of a call, with its communicator if there are several.
    fn number_in(&self, knot: &Knot) -> String {
        let number = words::number(knot.call);
        if self.verdict.teams.len() == 1 {
            return number;
        }
        format!("{number} of communicator {}", self.verdict.teams[knot.team].identity)
    }
}

/// "not made the trib_send that answers call 7 of rank 0, trib_recv …".
fn unanswered(knot: &Knot) -> String {
    let answer = if knot.call.operation == "send" { "trib_recv" } else { "trib_send" };
    let (number, call) = (words::number(knot.call), words::operation(knot.call));
    format!(
        "not made the {answer} that answers {number} of {}, {call}",
        words::ranks(&callers(knot))
    )
}

/// The ranks that have made the call.
fn callers(knot: &Knot) -> Vec<u32> {
    knot.parts().map(|wait| wait.rank).collect()
}

/// What is known of all.
fn furthest(waits: &[Wait]) -> &'static str {
    let all = |state| waits.iter().all(|wait| wait.call.state == state);
    if all(State::Started) {
        "started"
    } else if all(State::Queued) {
        "queued"
    } else {
        "made"
    }
}

/// "rank 0 has been for 5.0 s in …".
fn part(wait: &Wait) -> String {
    let age = words::duration(wait.call.age_ms);
    format!("rank {} has been for {age} in {}", wait.rank, words::call(wait.call))
}

/// "600.2 s", or "12.0 s to 600.2 s" where they differ much.
fn ages(waits: &[Wait]) -> String {
    let ages = || waits.iter().map(|wait| wait.call.age_ms);
    let (least, most) = (ages().fold(f64::INFINITY, f64::min), ages().fold(0.0, f64::max));
    if least < most * 0.9 {
        return format!("{} to {}", words::duration(least), words::duration(most));
    }
    words::duration(most)
}

/// With an initial capital.
fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
