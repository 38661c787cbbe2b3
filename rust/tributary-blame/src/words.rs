//! The words for ranks, calls and times.

use crate::dump::{Call, State};
use crate::team::Team;

/// A sentence names no more runs of ranks.
const RUNS: usize = 16;

/// "rank 2", "ranks 0, 1 and 3", "ranks 0 to 6 and 9".
pub fn ranks(ranks: &[u32]) -> String {
    let runs = runs(ranks);
    let mut items: Vec<String> = runs.iter().take(RUNS).map(run).collect();
    if runs.len() > RUNS {
        items.push("others".to_owned());
    }
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, list(&items))
}

fn run(&(first, last): &(u32, u32)) -> String {
    if first == last {
        return first.to_string();
    }
    format!("{first} to {last}")
}

/// Three ranks in a row and more as first and last.
fn runs(ranks: &[u32]) -> Vec<(u32, u32)> {
    let in_row = |a: &u32, b: &u32| a.checked_add(1) == Some(*b);
    ranks
        .chunk_by(in_row)
        .flat_map(|row| match row {
            [a, b] => vec![(*a, *a), (*b, *b)],
            _ => vec![(row[0], row[row.len() - 1])],
        })
        .collect()
}

/// "a, b and c".
fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// "ranks 0 and 1 (process 4711 on node-a)": with the process if all ranks have the same one.
pub fn ranks_of(team: &Team, which: &[u32]) -> String {
    let place = which.first().and_then(|&rank| team.place(rank));
    match place {
        Some(place) if which.iter().all(|&rank| team.place(rank) == Some(place)) => {
            format!("{} (process {} on {})", ranks(which), place.process, place.host)
        }
        _ => ranks(which),
    }
}

/// "collective 13, trib_allreduce of 1024 f32, sum".
pub fn call(call: &Call) -> String {
    format!("{}, {}", number(call), operation(call))
}

/// "collective 13", or "call 17" of a call that only one rank makes.
pub fn number(call: &Call) -> String {
    match call.collective {
        Some(number) => format!("collective {number}"),
        None => format!("call {}", call.number),
    }
}

/// "trib_allreduce of 1024 f32, sum".
pub fn operation(call: &Call) -> String {
    let mut text = format!("trib_{}{}", call.operation, amount(call));
    if let Some(op) = &call.op {
        text += &format!(", {op}");
    }
    if let Some(peer) = call.peer {
        text += &match call.operation.as_str() {
            "send" => format!(" to rank {peer}"),
            "recv" => format!(" from rank {peer}"),
            _ => format!(", root {peer}"),
        };
    }
    if let Some(algorithm) = &call.algorithm {
        text += &format!(", {algorithm}");
    }
    text
}

fn amount(call: &Call) -> String {
    let what = match (call.operation.as_str(), &call.dtype) {
        (_, Some(dtype)) => format!(" {dtype}"),
        _ if call.count == 0 => return String::new(),
        ("batch_end", _) => " calls".to_owned(),
        (operation, _) if operation.contains("_list") => " tensors".to_owned(),
        _ => String::new(),
    };
    format!(" of {}{what}", call.count)
}

/// The ranks of which the library's `detail` says "rank 0 left after call 1", or "rank 3 (process
/// 4711 on a) has closed after call 1", and that call.
pub fn departures(detail: &str) -> Vec<(u32, u64)> {
    let marks = [" left after call ", " has closed after call "];
    let of_mark = |mark| {
        detail.match_indices(mark).filter_map(move |(at, mark)| {
            Some((last_rank(&detail[..at])?, leading_number(&detail[at + mark.len()..])?))
        })
    };
    marks.into_iter().flat_map(of_mark).collect()
}

/// The rank that `text` names at its end, with or without its process.
fn last_rank(text: &str) -> Option<u32> {
    let behind = &text[text.rfind("rank ")? + "rank ".len()..];
    let place = behind.trim_start_matches(|c: char| c.is_ascii_digit());
    let at_end = place.is_empty() || place.starts_with(" (process ") && place.ends_with(')');
    at_end.then(|| leading_number(behind))?.and_then(|rank| rank.try_into().ok())
}

fn leading_number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// "600.2 s", "12.3 ms".
pub fn duration(ms: f64) -> String {
    if ms < 1000.0 {
        return format!("{ms:.1} ms");
    }
    format!("{:.1} s", ms / 1000.0)
}

/// What a call in this state is.
pub fn state(state: State) -> &'static str {
    match state {
        State::Entered => "entered",
        State::Queued => "queued",
        State::Started => "started",
        State::Done => "done",
        State::Unknown => "unknown",
    }
}
