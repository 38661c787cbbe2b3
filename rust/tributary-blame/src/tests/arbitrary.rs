//! Arbitrary dumps, and changes of real ones: no panic, and one verdict in every order of the files.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, Index};
use serde_json::{json, Value};

use super::dumps;
use crate::dump::{parse, Dump};
use crate::judge::judge;
use crate::report;

/// Small, so that calls, ranks and processes meet; or whatever a number can be.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![9 => 0..4u64, 1 => any::<u64>()]
}

fn call() -> impl Strategy<Value = Value> {
    let operation = select(vec!["allreduce", "broadcast", "send", "recv", "batch_end", "barrier"]);
    let state = select(vec!["entered", "queued", "started", "done", "unknown"]);
    let age = prop_oneof![0.0..5.0f64, Just(2.0), Just(1e300)];
    let stream = select(vec!["0x1", "0x2", ""]);
    let what = (operation, number(), option::of(0..3u32), state);
    let age = (age, any::<bool>());
    (number(), option::of(number()), what, age, stream).prop_map(
        |(number, collective, (operation, count, peer, state), (age, exact), stream)| {
            json!({"number": number, "collective": collective, "operation": operation,
                   "count": count, "dtype": null, "peer": peer, "state": state, "age_ms": age,
                   "exact": exact, "stream": stream})
        },
    )
}

fn communicator() -> impl Strategy<Value = Value> {
    let identity = select(vec!["a", "b", "c"]);
    let status = select(vec![
        ("TRIB_OK", ""),
        ("TRIB_ERR_TIMEOUT", "rank 1 has closed after call 2, trib_barrier"),
        ("TRIB_ERR_CLOSED", "rank 0 left after call 1"),
        ("TRIB_ERR_CLOSED", "rank 9 left after call 1"),
        ("TRIB_ERR_NCCL", ""),
    ]);
    let backend = select(vec!["host", "nccl"]);
    let state = select(vec!["present", "closed", "dead"]);
    let peer = (0..3u32, 0..3u64, state).prop_map(|(rank, process, state)| {
        json!({"rank": rank, "host": "h", "process": process, "state": state})
    });
    let place = (identity, backend, 0..3u32, 3..5u32, 0..2u32);
    (place, status, vec(peer, 0..2), number(), vec(call(), 0..6)).prop_map(
        |((identity, backend, rank, size, device), (status, detail), peers, entered, calls)| {
            json!({"identity": identity, "rank": rank, "size": size, "backend": backend,
                   "device": device, "status": status, "detail": detail, "state": "live",
                   "peers": peers, "entered": entered, "calls": calls})
        },
    )
}

/// Each with a name of its own, as files have.
fn some_dumps() -> impl Strategy<Value = Vec<Dump>> {
    let reason = select(vec!["timeout", "abort", "request"]);
    let dump = (reason, 0..3u64, number(), vec(communicator(), 0..4));
    vec(dump, 1..4).prop_map(|dumps| {
        let read = |(index, (reason, process, unix_ns, communicators))| {
            let text = json!({"format": 1, "reason": reason, "host": "h", "process": process,
                              "unix_ns": unix_ns, "communicators": communicators});
            parse(text.to_string().as_bytes(), &format!("{index}.json")).unwrap()
        };
        dumps.into_iter().enumerate().map(read).collect()
    })
}

/// `peers`, of several processes, is that of a rank which has seen another one die.
const REAL: [&str; 4] = ["timeout", "abort", "request", "peers"];

/// A dump in `tests/corpus`, as the recorder wrote it.
fn real(name: &str) -> Vec<u8> {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    std::fs::read(corpus.join(name).with_extension("json")).unwrap()
}

/// What may have become of a file on its way.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    /// Without the bytes between the two.
    Cut(Index, Index),
    /// With them twice.
    Double(Index, Index),
    /// Another value behind this colon.
    Value(Index, &'static str),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let values = vec![
        "null",
        "true",
        "-1",
        "0",
        "7",
        "1.5",
        "1e999",
        "4294967295",
        "18446744073709551615",
        "18446744073709551616",
        r#""""#,
        r#""\ud800""#,
        r#""\u0007""#,
        "[]",
        "[null]",
        "[[[[[[",
        "{}",
    ];
    prop_oneof![
        1 => (at(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        1 => (at(), at()).prop_map(|(from, to)| Change::Cut(from, to)),
        1 => (at(), at()).prop_map(|(from, to)| Change::Double(from, to)),
        5 => (at(), select(values)).prop_map(|(at, value)| Change::Value(at, value)),
    ]
}

fn between(bytes: &[u8], from: &Index, to: &Index) -> std::ops::Range<usize> {
    let (a, b) = (from.index(bytes.len()), to.index(bytes.len()));
    a.min(b)..a.max(b)
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    if bytes.is_empty() {
        return;
    }
    match change {
        Change::Set(at, byte) => {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        Change::Cut(from, to) => drop(bytes.drain(between(bytes, from, to))),
        Change::Double(from, to) => {
            let range = between(bytes, from, to);
            let again = bytes[range.clone()].to_vec();
            bytes.splice(range.end..range.end, again);
        }
        Change::Value(at, value) => {
            let colons: Vec<usize> = (0..bytes.len()).filter(|&i| bytes[i] == b':').collect();
            if colons.is_empty() {
                return;
            }
            let begin = colons[at.index(colons.len())] + 1;
            let end = bytes[begin..].iter().position(|byte| b",}]".contains(byte));
            let end = end.map_or(bytes.len(), |at| begin + at);
            bytes.splice(begin..end, value.bytes());
        }
    }
}

/// All that the program can print.
fn printed(dumps: &[Dump]) -> String {
    let verdict = judge(dumps);
    report::text(&verdict, dumps, true) + &report::json(&verdict, &[])
}

/// Every order of the items, made by swapping.
fn permutations<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    if items.len() < 2 {
        return vec![items.to_vec()];
    }
    let first = |at: usize| {
        let mut rest = items.to_vec();
        let first = rest.remove(at);
        permutations(&rest).into_iter().map(move |rest| [vec![first.clone()], rest].concat())
    };
    (0..items.len()).flat_map(first).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None, // the sources may be read-only
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_order_of_any_dumps_has_one_verdict(dumps in some_dumps()) {
        let expected = printed(&dumps);
        for order in permutations(&dumps) {
            prop_assert_eq!(&printed(&order), &expected);
        }
    }

    #[test]
    fn any_bytes_are_a_dump_or_an_error(bytes in vec(any::<u8>(), 0..64)) {
        prop_assert!(parse(&bytes, "a.json").is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 10_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_changed_dump_is_a_dump_or_an_error(
        name in select(REAL.to_vec()),
        beside in select(REAL.to_vec()),
        changes in vec(change(), 1..4),
    ) {
        let mut bytes = real(name);
        for change in &changes {
            apply(&mut bytes, change);
        }
        if let Ok(dump) = parse(&bytes, "a.json") {
            let other = parse(&real(beside), "b.json").unwrap();
            prop_assert_eq!(printed(&[dump.clone(), other.clone()]), printed(&[other, dump]));
        }
    }
}

/// The changes above would prove little if they changed what cannot be read anyway.
#[test]
fn real_dumps_are_read() {
    for name in REAL {
        let dump = parse(&real(name), "a.json").unwrap();
        assert!(dump.reason == name || name == "peers");
        assert_eq!(dump.communicators.len(), 2);
        assert!(dump.communicators.iter().any(|communicator| !communicator.calls.is_empty()));
        printed(&[dump]);
    }
}

#[test]
fn the_order_of_files_does_not_matter() {
    for name in
        ["absent", "differ", "died", "left_elsewhere", "follows", "deadlock", "newest", "several"]
    {
        let dumps = dumps(name);
        let orders = permutations(&dumps);
        let expected = printed(&dumps);
        assert!(
            orders.len() > 1 && orders.iter().all(|order| printed(order) == expected),
            "{name}"
        );
    }
}
