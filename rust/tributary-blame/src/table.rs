//! The table of one communicator: a line for each rank, with the call that tells most about it.

use std::collections::{BTreeMap, BTreeSet};

use crate::dump::Call;
use crate::judge::Verdict;
use crate::team::{Member, Team};
use crate::wait::Knot;
use crate::words;

/// Of the ranks to blame, and of the others, a table shows so many.
const SHOWN: usize = 32;

const HEADS: [&str; 7] = ["rank", "process", "device", "status", "call", "state", "age"];

/// The communicator `index`; `all`: each rank, however many there are.
pub fn table(verdict: &Verdict, index: usize, all: bool) -> String {
    let team = &verdict.teams[index];
    let blamed = blamed(verdict, index);
    let (guilty, others): (Vec<u32>, Vec<u32>) = (0..team.size).partition(|r| blamed.contains(r));
    let most = if all { usize::MAX } else { SHOWN };
    let mut ranks: Vec<u32> =
        guilty.iter().take(most).chain(others.iter().take(most)).copied().collect();
    ranks.sort_unstable();
    let mut rows = vec![HEADS.map(str::to_owned).to_vec()];
    rows.extend(ranks.iter().map(|rank| row(verdict, index, *rank, blamed.contains(rank))));
    let mut text = format!("{}\n{}", title(team), aligned(&rows));
    let left_out = team.size as usize - ranks.len();
    if left_out > 0 {
        text += &format!("and {left_out} more, which --all shows\n");
    }
    text + &details(team)
}

fn title(team: &Team) -> String {
    let ranks = if team.size == 1 { "1 rank".to_owned() } else { format!("{} ranks", team.size) };
    let backend = team.members.values().next().map_or("", |member| &member.comm.backend);
    format!("communicator {}, {ranks}, {backend}", team.identity)
}

/// What the ranks say themselves: a line for each text.
fn details(team: &Team) -> String {
    let mut by_text: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (&rank, member) in &team.members {
        if !member.comm.detail.is_empty() {
            by_text.entry(&member.comm.detail).or_default().push(rank);
        }
    }
    let line = |(text, ranks): (&&str, &Vec<u32>)| format!("{}: {text}\n", words::ranks(ranks));
    by_text.iter().take(SHOWN).map(line).collect()
}

fn blamed(verdict: &Verdict, index: usize) -> BTreeSet<u32> {
    let blamed = verdict.findings.iter().flat_map(|finding| verdict.blamed(finding));
    blamed.filter(|(team, _)| *team == index).map(|(_, rank)| rank).collect()
}

fn row(verdict: &Verdict, index: usize, rank: u32, is_blamed: bool) -> Vec<String> {
    let team = &verdict.teams[index];
    let mark = if is_blamed { "*" } else { "" };
    let place = team.place(rank).map(|place| format!("{} on {}", place.process, place.host));
    let mut row = vec![format!("{rank}{mark}"), place.unwrap_or_else(|| "?".to_owned())];
    let end = end(team, rank);
    let Some(member) = team.members.get(&rank) else {
        row.extend(["-", end.unwrap_or("no dump"), "-", "-", "-"].map(str::to_owned));
        return row;
    };
    let status = end.map_or_else(String::new, |end| format!(", {end}"));
    row.extend([member.comm.device.to_string(), format!("{}{status}", member.comm.status)]);
    row.extend(match telling(verdict, index, rank, member) {
        Some(call) => {
            let age = words::duration(call.age_ms);
            [words::call(call), words::state(call.state).to_owned(), age]
        }
        None => ["none", "-", "-"].map(str::to_owned),
    });
    row
}

/// Why a rank makes no more calls, if that is known.
fn end(team: &Team, rank: u32) -> Option<&'static str> {
    let closed = team.left.contains_key(&rank) || team.closed.contains(&rank);
    match (team.died.contains_key(&rank), closed) {
        (true, _) => Some("died"),
        (false, true) => Some("closed"),
        (false, false) => None,
    }
}

/// The rank's part in a call that does not end, or its newest call.
fn telling<'a>(
    verdict: &Verdict<'a>,
    index: usize,
    rank: u32,
    member: &Member<'a>,
) -> Option<&'a Call> {
    let knots = || verdict.knots.iter().filter(|knot| knot.team == index);
    let waits = knots().flat_map(Knot::parts).find(|wait| wait.rank == rank);
    let ended = || knots().find_map(|knot| member.collective(knot.collective?));
    waits.map(|wait| wait.call).or_else(ended).or_else(|| member.newest())
}

fn aligned(rows: &[Vec<String>]) -> String {
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADS.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
