//! The program: what it prints, and its exit status.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dumps").join(name)
}

fn run(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tributary-blame"));
    command.args(arguments.iter().map(|argument| argument.as_ref())).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// An empty folder for one test.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn a_sentence_and_a_table() {
    let output = run(&[&folder("absent")]);
    let expected = "\
rank 2 (process 4713 on node-a) has not made collective 13, trib_allreduce of 1024 f32, sum; ranks \
0, 1 and 3 have waited in it for 600.2 s. Rank 2's last call, collective 12, trib_broadcast of 64 \
f32, root 0, made 601.0 s before the dump, is done.

communicator 9f3c0a1b2c3d4e5f, 4 ranks, nccl
rank  process         device  status            call                                             state    age
0     4711 on node-a  0       TRIB_ERR_TIMEOUT  collective 13, trib_allreduce of 1024 f32, sum   started  600.2 s
1     4712 on node-a  1       TRIB_ERR_TIMEOUT  collective 13, trib_allreduce of 1024 f32, sum   started  600.2 s
2*    4713 on node-a  2       TRIB_ERR_TIMEOUT  collective 12, trib_broadcast of 64 f32, root 0  done     601.0 s
3     4714 on node-a  3       TRIB_ERR_TIMEOUT  collective 13, trib_allreduce of 1024 f32, sum   started  600.2 s
ranks 0 to 3: rank 0 (device 0) has waited for 600.2 s in call 13
";
    assert_eq!(stdout(&output), expected);
    assert_eq!((stderr(&output), output.status.code()), ("", Some(1)));
    // The README shows it, with its own line breaks.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let readme = include_str!("../README.md");
    assert!(words(readme).contains(&words(expected)));
}

#[test]
fn the_table_marks_who_left_and_not_who_waited() {
    let output = run(&[&folder("left")]);
    let table = "\
rank  process         device  status           call                                        state    age
0*    5603 on node-a  -       closed           -                                           -        -
1     5603 on node-a  1       TRIB_ERR_CLOSED  collective 2, trib_allreduce of 4 f32, sum  unknown  200.3 ms
";
    assert!(stdout(&output).contains(table), "{}", stdout(&output));
}

#[test]
fn a_deadlock_shows_both_communicators() {
    let output = run(&[&folder("deadlock")]);
    let text = stdout(&output);
    assert!(text.contains("\n1*    4712 on node-a") && text.contains("\n0*    4711 on node-a"));
    assert_eq!(text.matches("\ncommunicator ").count(), 2);
}

#[test]
fn several_dumps_of_a_process() {
    let line = "\nSeveral dumps are of process 985 on node-a: the newest one of each rank counts, \
                and only the newest of a process for waits between communicators. To judge an \
                older dump, name it alone.\n\ncommunicator ";
    let output = run(&[&folder("several")]);
    assert!(stdout(&output).contains(line), "{}", stdout(&output));
    let both = run(&[&folder("several"), &folder("newest")]);
    assert!(stdout(&both).contains("\nSeveral dumps are of process 985 on node-a and 1 other: "));
    let alone = folder("several").join("node-a-985-1.json");
    assert!(!stdout(&run(&[&alone])).contains("Several dumps"));
    // A file that is named twice is one dump.
    assert!(!stdout(&run(&[&alone, &alone])).contains("Several dumps"));
    let json = run(&[&"--json", &folder("several")]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["older"], serde_json::json!([alone]));
}

#[test]
fn nothing_wrong() {
    let output = run(&[&folder("well")]);
    let sentence = "nothing is known to be wrong: no call hangs (2 dumps, 1 communicator).\n";
    assert!(stdout(&output).starts_with(sentence), "{}", stdout(&output));
    assert_eq!((stderr(&output), output.status.code()), ("", Some(0)));
}

#[test]
fn json_for_programs() {
    let output = run(&[&"--json", &folder("died")]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let blamed = serde_json::json!([{
        "communicator": "9f3c0a1b2c3d4e5f", "rank": 2, "host": "node-a", "process": 4713
    }]);
    assert_eq!((&json["format"], &json["well"]), (&1.into(), &false.into()));
    assert_eq!(
        (&json["findings"][0]["kind"], &json["findings"][0]["blamed"]),
        (&"died".into(), &blamed)
    );
    assert_eq!(json["communicators"][0]["ranks"][2]["newest"]["collective"], 13);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn files_and_folders() {
    let well = folder("well");
    let files = [well.join("node-a-4711.json"), well.join("node-a-4712.json")];
    assert_eq!(run(&[&files[0], &files[1]]).stdout, run(&[&well]).stdout);
    // In a folder, only *.json counts.
    let mixed = scratch("mixed");
    fs::copy(&files[0], mixed.join("a.json")).unwrap();
    fs::copy(&files[1], mixed.join("b.json")).unwrap();
    fs::write(mixed.join("notes.txt"), "no dump").unwrap();
    assert_eq!(run(&[&mixed]).stdout, run(&[&well]).stdout);
}

#[test]
fn an_unreadable_file_is_named_and_the_rest_is_judged() {
    let mixed = scratch("unreadable");
    fs::copy(folder("well").join("node-a-4711.json"), mixed.join("a.json")).unwrap();
    fs::write(mixed.join("b.json"), "{\"format\": 1, \"reason\": \"time").unwrap();
    let output = run(&[&mixed]);
    assert!(stdout(&output).contains("communicator 9f3c0a1b2c3d4e5f"));
    let expected = format!("tributary-blame: {}: not a dump", mixed.join("b.json").display());
    assert!(stderr(&output).starts_with(&expected), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(2));
    let json = run(&[&"--json", &mixed]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["unreadable"].as_array().unwrap().len(), 1);
}

#[test]
fn no_dump_is_an_error() {
    let empty = scratch("empty");
    for arguments in [vec![], vec![empty.clone()], vec![empty.join("missing.json")]] {
        let arguments: Vec<&dyn AsRef<std::ffi::OsStr>> =
            arguments.iter().map(|a| a as _).collect();
        let output = run(&arguments);
        assert_eq!((stdout(&output), output.status.code()), ("", Some(2)));
        assert!(!stderr(&output).is_empty());
    }
}
