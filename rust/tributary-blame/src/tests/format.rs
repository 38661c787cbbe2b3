//! What is a dump, and what is none.

use serde_json::{json, Value};

use crate::dump::{parse, Presence, State};

fn sample() -> Value {
    json!({
        "tributary": "0.1.0", "format": 1, "reason": "request", "host": "node-a",
        "process": 4711, "unix_ns": 1, "communicators": [{
            "identity": "9f3c", "rank": 0, "size": 2, "backend": "host", "device": 0,
            "status": "TRIB_OK", "detail": "", "state": "live", "peers": [],
            "entered": 2, "issued": 2, "started": 2, "ended": null,
            "calls": [call(2), call(1)]
        }]
    })
}

fn call(number: u64) -> Value {
    json!({
        "number": number, "collective": null, "operation": "sparse_export", "count": 4,
        "dtype": "f32", "op": "", "peer": null, "algorithm": null, "state": "done",
        "age_ms": 12.5, "timeout_ms": 600000, "stream": "0x1"
    })
}

/// The sample with another value, or one more member, at `path`.
fn with(path: &str, value: Value) -> String {
    let mut sample = sample();
    let (parent, name) = path.rsplit_once('/').unwrap();
    match sample.pointer_mut(path) {
        Some(place) => *place = value,
        None => sample.pointer_mut(parent).unwrap()[name] = value,
    }
    sample.to_string()
}

fn error(text: &str) -> String {
    parse(text.as_bytes(), "a.json").unwrap_err()
}

#[test]
fn unknown_members_and_states_are_taken() {
    for path in ["/more", "/communicators/0/more", "/communicators/0/calls/0/more"] {
        parse(with(path, json!({"a": [1]})).as_bytes(), "a.json").unwrap();
    }
    let text = with("/communicators/0/calls/0/state", json!("evaporated"));
    let dump = parse(text.as_bytes(), "a.json").unwrap();
    let calls = &dump.communicators[0].calls;
    // In ascending order, whatever the order in the file.
    let seen: Vec<_> = calls.iter().map(|call| (call.number, call.state)).collect();
    assert_eq!(seen, [(1, State::Done), (2, State::Unknown)]);
    assert_eq!((&calls[0].op, dump.file.as_str()), (&None, "a.json"));
}

#[test]
fn another_format_is_refused_whatever_it_holds() {
    assert_eq!(
        error(r#"{"format": 2, "ranks": "elsewhere"}"#),
        "its format is 2, and this tributary-blame reads format 1: take the one that came with the \
         library that wrote it"
    );
    assert!(parse(with("/format", json!(0)).as_bytes(), "a.json").is_err());
}

#[test]
fn what_is_no_number_of_calls_is_refused() {
    let call = "/communicators/0/calls/0";
    for value in [json!(-1), json!(1.5), json!(1e300), json!("1"), json!(null)] {
        for path in ["/process", "/unix_ns", "/communicators/0/rank", "/communicators/0/entered"] {
            assert!(
                parse(with(path, value.clone()).as_bytes(), "a.json").is_err(),
                "{path} {value}"
            );
        }
        assert!(parse(with(&format!("{call}/number"), value.clone()).as_bytes(), "").is_err());
        assert!(parse(with(&format!("{call}/count"), value).as_bytes(), "").is_err());
    }
    let huge = sample().to_string().replace("\"process\":4711", "\"process\":18446744073709551616");
    assert!(error(&huge).starts_with("not a dump of Tributary: "));
    let age = error(&with(&format!("{call}/age_ms"), json!(-0.5)));
    assert!(age.contains("`age_ms` is -0.5, expected 0 or more"), "{age}");
}

#[test]
fn ranks_are_within_the_communicator() {
    for (path, value) in [("rank", 2), ("size", 0), ("size", (1 << 20) + 1)] {
        assert!(
            parse(with(&format!("/communicators/0/{path}"), json!(value)).as_bytes(), "").is_err()
        );
    }
    let peer = json!([{"rank": 2, "host": "b", "process": 1, "state": "present"}]);
    let text = with("/communicators/0/peers", peer);
    assert_eq!(error(&text), "communicator 9f3c has a rank 2, but only 2 ranks");
}

#[test]
fn what_becomes_of_other_ranks() {
    let peer = |rank: u32, state: &str| {
        json!({"rank": rank, "host": "b", "process": 1, "way": "unix", "state": state,
               "detail": null, "entered": null, "issued": null, "collective": null, "age_ms": 0.0})
    };
    let peers = ["closed", "dead", "present", "asleep"].map(|state| peer(1, state));
    let dump = parse(with("/communicators/0/peers", json!(peers)).as_bytes(), "").unwrap();
    let states: Vec<_> = dump.communicators[0].peers.iter().map(|peer| peer.state).collect();
    assert_eq!(states, [Presence::Closed, Presence::Dead, Presence::Present, Presence::Present]);
}

#[test]
fn there_are_limits() {
    let mut sample = sample();
    let one = sample["communicators"][0].clone();
    sample["communicators"] = Value::Array(vec![one.clone(); 4096]);
    parse(sample.to_string().as_bytes(), "").unwrap();
    sample["communicators"] = Value::Array(vec![one; 4097]);
    assert_eq!(
        error(&sample.to_string()),
        "it has 4097 communicators, more than 4096, which no dump has"
    );
    // By size alone: neither text begins as JSON.
    let mut bytes = vec![0; 64 << 20];
    assert!(parse(&bytes, "").unwrap_err().starts_with("not a dump of Tributary"));
    bytes.push(0);
    assert_eq!(parse(&bytes, "").unwrap_err(), "it has more than 64 MiB, which no dump has");
    // Nesting, which must not exhaust the stack.
    assert!(parse("[".repeat(100_000).as_bytes(), "").is_err());
}

#[test]
fn a_terminal_is_not_steered() {
    let text = with("/host", json!("a\u{1b}[2Jb\nc"));
    let dump = parse(text.as_bytes(), "").unwrap();
    assert_eq!(dump.host, "a\u{fffd}[2Jb\u{fffd}c");
}
