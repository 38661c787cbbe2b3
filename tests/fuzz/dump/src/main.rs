//! Dumps, as `tributary-blame` reads and judges them: the bytes of one or more, with a byte 30
//! between two.
#![no_main]
// Of the program's modules this uses a part.
#![allow(dead_code)]

#[path = "../../../../rust/tributary-blame/src/differ.rs"]
mod differ;
#[path = "../../../../rust/tributary-blame/src/dump.rs"]
mod dump;
#[path = "../../../../rust/tributary-blame/src/judge.rs"]
mod judge;
#[path = "../../../../rust/tributary-blame/src/report.rs"]
mod report;
#[path = "../../../../rust/tributary-blame/src/route.rs"]
mod route;
#[path = "../../../../rust/tributary-blame/src/sentence.rs"]
mod sentence;
#[path = "../../../../rust/tributary-blame/src/table.rs"]
mod table;
#[path = "../../../../rust/tributary-blame/src/team.rs"]
mod team;
#[path = "../../../../rust/tributary-blame/src/wait.rs"]
mod wait;
#[path = "../../../../rust/tributary-blame/src/words.rs"]
mod words;

use dump::Dump;

const SEPARATOR: u8 = 30;
const MOST: usize = 4;

/// What the program prints, as text and as JSON.
fn printed(dumps: &[Dump]) -> (String, String) {
    let verdict = judge::judge(dumps);
    (report::text(&verdict, dumps, true), report::json(&verdict, &[]))
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let parts = bytes.split(|&byte| byte == SEPARATOR).filter(|part| !part.is_empty());
    // Each with a name of its own, as files have.
    let read = |(i, part)| dump::parse(part, &format!("{i}.json")).ok();
    let mut dumps: Vec<Dump> = parts.take(MOST).enumerate().filter_map(read).collect();
    let (text, json) = printed(&dumps);
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    serde_json::from_str::<serde_json::Value>(&json).expect("JSON");
    dumps.reverse();
    assert_eq!(printed(&dumps), (text, json), "the order of the files does not matter");
});
