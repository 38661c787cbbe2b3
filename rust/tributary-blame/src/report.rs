//! The verdict as text and as JSON.

use serde::Serialize;

use crate::dump::{Call, Dump, Unreadable};
use crate::judge::Verdict;
use crate::sentence::sentence;
use crate::table::table;
use crate::team::Place;
use crate::words;

/// The verdict for a person: a sentence for each finding, then the tables that show it.
pub fn text(verdict: &Verdict, dumps: &[Dump], all: bool) -> String {
    let mut text = String::new();
    for finding in &verdict.findings {
        text += &format!("{}\n\n", sentence(verdict, finding));
    }
    if verdict.findings.is_empty() {
        text += &format!("{}\n\n", nothing(verdict, dumps));
    }
    if !verdict.older.is_empty() {
        text += &format!("{}\n\n", older(verdict));
    }
    for index in shown(verdict, all) {
        text += &format!("{}\n", table(verdict, index, all));
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

fn nothing(verdict: &Verdict, dumps: &[Dump]) -> String {
    let members = || verdict.teams.iter().flat_map(|team| team.members.values());
    let vague = members().filter(|member| member.vague().is_some()).count();
    let missing: usize = verdict.teams.iter().map(|team| team.missing().len()).sum();
    let mut text = "nothing is known to be wrong: no call hangs".to_owned();
    text += &format!(" ({}", plural(dumps.len(), "dump"));
    text += &format!(", {}).", plural(verdict.teams.len(), "communicator"));
    if vague > 0 {
        text +=
            &format!(" Whether the newest call has ended is unknown on {}.", plural(vague, "rank"));
    }
    if missing > 0 {
        text += &format!(" Without a dump: {}.", plural(missing, "rank"));
    }
    text
}

/// What becomes of the dumps that are not the newest of their process.
fn older(verdict: &Verdict) -> String {
    let mut places: Vec<Place> = verdict.older.iter().map(|dump| Place::of(dump)).collect();
    places.dedup();
    let first = format!("process {} on {}", places[0].process, places[0].host);
    let others = match places.len() {
        1 => String::new(),
        n => format!(" and {}", plural(n - 1, "other")),
    };
    format!(
        "Several dumps are of {first}{others}: the newest one of each rank counts, and only the \
         newest of a process for waits between communicators. To judge an older dump, name it alone."
    )
}

fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Those with a finding, in the order of the findings; all if there is none or if told so.
fn shown(verdict: &Verdict, all: bool) -> Vec<usize> {
    let mut shown = Vec::new();
    let blamed = |f| verdict.blamed(f).into_iter().map(|(team, _)| team);
    let found = verdict.findings.iter().flat_map(|f| std::iter::once(f.team).chain(blamed(f)));
    let rest = (0..verdict.teams.len()).filter(|_| all || verdict.findings.is_empty());
    for team in found.chain(rest) {
        if !shown.contains(&team) {
            shown.push(team);
        }
    }
    shown
}

#[derive(Serialize)]
struct Json<'a> {
    format: u32,
    /// Nothing is known to be wrong.
    well: bool,
    findings: Vec<JsonFinding<'a>>,
    communicators: Vec<JsonCommunicator<'a>>,
    /// Files whose process has a newer dump.
    older: Vec<&'a str>,
    unreadable: Vec<JsonUnreadable<'a>>,
}

#[derive(Serialize)]
struct JsonFinding<'a> {
    kind: &'static str,
    communicator: &'a str,
    /// Whom it is about: those to blame, or if nobody is, those that wait.
    ranks: &'a [u32],
    blamed: Vec<JsonBlamed<'a>>,
    sentence: String,
}

#[derive(Serialize)]
struct JsonBlamed<'a> {
    communicator: &'a str,
    rank: u32,
    host: Option<&'a str>,
    process: Option<u64>,
}

#[derive(Serialize)]
struct JsonCommunicator<'a> {
    identity: &'a str,
    size: u32,
    ranks: Vec<JsonRank<'a>>,
}

#[derive(Serialize)]
struct JsonRank<'a> {
    rank: u32,
    host: &'a str,
    process: u64,
    device: u32,
    file: &'a str,
    status: &'a str,
    detail: &'a str,
    collectives: Option<u64>,
    newest: Option<JsonCall>,
}

#[derive(Serialize)]
struct JsonCall {
    number: u64,
    collective: Option<u64>,
    call: String,
    state: &'static str,
    age_ms: f64,
}

#[derive(Serialize)]
struct JsonUnreadable<'a> {
    file: &'a str,
    why: &'a str,
}

/// The verdict for a program.
pub fn json(verdict: &Verdict, unreadable: &[Unreadable]) -> String {
    let findings = verdict.findings.iter().map(|finding| JsonFinding {
        kind: finding.kind.name(),
        communicator: verdict.teams[finding.team].identity,
        ranks: &finding.ranks,
        blamed: verdict.blamed(finding).into_iter().map(|who| blamed(verdict, who)).collect(),
        sentence: sentence(verdict, finding),
    });
    let unreadable = unreadable.iter().map(|u| JsonUnreadable { file: &u.file, why: &u.why });
    let json = Json {
        format: 1,
        well: verdict.findings.is_empty(),
        findings: findings.collect(),
        communicators: communicators(verdict),
        older: verdict.older.iter().map(|dump| dump.file.as_str()).collect(),
        unreadable: unreadable.collect(),
    };
    // Only maps whose keys are no texts, and failing implementations, cannot be written.
    serde_json::to_string_pretty(&json).expect("texts and numbers can be written") + "\n"
}

fn blamed<'a>(verdict: &Verdict<'a>, (team, rank): (usize, u32)) -> JsonBlamed<'a> {
    let team = &verdict.teams[team];
    let place = team.place(rank);
    JsonBlamed {
        communicator: team.identity,
        rank,
        host: place.map(|place| place.host),
        process: place.map(|place| place.process),
    }
}

fn communicators<'a>(verdict: &Verdict<'a>) -> Vec<JsonCommunicator<'a>> {
    let rank = |(&rank, member): (&u32, &crate::team::Member<'a>)| JsonRank {
        rank,
        host: &member.dump.host,
        process: member.dump.process,
        device: member.comm.device,
        file: &member.dump.file,
        status: &member.comm.status,
        detail: &member.comm.detail,
        collectives: member.made(),
        newest: member.newest().map(call),
    };
    let communicator = |team: &crate::team::Team<'a>| JsonCommunicator {
        identity: team.identity,
        size: team.size,
        ranks: team.members.iter().map(rank).collect(),
    };
    verdict.teams.iter().map(communicator).collect()
}

fn call(call: &Call) -> JsonCall {
    JsonCall {
        number: call.number,
        collective: call.collective,
        call: words::operation(call),
        state: words::state(call.state),
        age_ms: call.age_ms,
    }
}
