//! The training example as a program that starts a process for each rank: all of them end, however
//! one of them ends.
#![cfg(target_os = "linux")] // /proc tells which processes there are

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use tributary::{Backend, UniqueId};

/// As long as no test waits.
const MANY_EPOCHS: &str = "--ranks 1 --backend host --no-reference --epochs 1000000 --processes";

fn train(arguments: &str) -> Option<Command> {
    let mut command = Command::new(common::example("train")?);
    command.args(arguments.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command)
}

/// The program, and what it prints from its second epoch on.
fn started(mut command: Command) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut program = command.spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    lines.find(|line| line.as_ref().unwrap().starts_with("    1 ")).unwrap().unwrap();
    (program, lines)
}

fn kill(process: u32) {
    let script = format!("kill -9 {process}");
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
}

fn children(process: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    list.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

/// Also if nobody has waited for it yet.
fn has_ended(process: u32) -> bool {
    let Ok(line) = fs::read_to_string(format!("/proc/{process}/stat")) else { return true };
    line.rsplit(") ").next().unwrap().starts_with(['Z', 'X'])
}

fn ends_soon(process: u32) {
    let ended = || {
        std::thread::sleep(Duration::from_millis(10));
        has_ended(process)
    };
    assert!((0..1000).any(|_| ended()), "process {process} still runs");
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn one_rank_trains_in_a_process_of_its_own() {
    let Some(mut command) = train("--ranks 1 --backend host --epochs 6 --processes") else {
        return;
    };
    let output = command.output().unwrap();
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("1 rank on host, a process each:"), "{out}");
    assert!(out.contains("relative difference 0.0e0"), "as a thread: {out}");
    assert_eq!(out.matches("\nproved  ").count(), 3, "{out}");
}

#[test]
fn a_process_that_dies_is_named() {
    let Some(command) = train(MANY_EPOCHS) else { return };
    let (program, _lines) = started(command);
    let [rank] = children(program.id())[..] else { panic!("one child") };
    kill(rank);
    let output = program.wait_with_output().unwrap();
    let said = "train: the process of rank 0 has ended without a result: signal: 9 (SIGKILL)\n";
    assert_eq!((output.status.code(), texts(&output).1.as_str()), (Some(1), said));
}

#[test]
fn no_process_outlives_the_program() {
    let Some(command) = train(MANY_EPOCHS) else { return };
    let (mut program, _lines) = started(command);
    let [rank] = children(program.id())[..] else { panic!("one child") };
    assert!(!has_ended(rank));
    program.kill().unwrap();
    program.wait().unwrap();
    ends_soon(rank);
}

#[test]
fn who_stops_listening_ends_all_without_a_word() {
    let Some(command) = train(MANY_EPOCHS) else { return };
    let (program, lines) = started(command);
    let [rank] = children(program.id())[..] else { panic!("one child") };
    drop(lines);
    let output = program.wait_with_output().unwrap();
    assert_eq!((output.status.code(), texts(&output).1.as_str()), (Some(128 + 13), ""));
    assert!(has_ended(rank));
}

/// The process of a rank, which this test has started.
struct Rank {
    child: Child,
    socket: BufReader<UnixStream>,
}

fn rank(arguments: &str) -> Option<Rank> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let child = train(arguments)?.stdin(OwnedFd::from(theirs)).spawn().unwrap();
    Some(Rank { child, socket: BufReader::new(ours) })
}

impl Rank {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.socket.read_line(&mut line).unwrap();
        line
    }

    fn send(&mut self, id: &[u8]) {
        self.socket.get_mut().write_all(id).unwrap();
    }
}

#[test]
fn a_rank_waits_for_the_id_and_says_why_it_fails() {
    // Of another process, which host does not accept.
    let other = UniqueId::of("host").unwrap();
    let Some(mut one) = rank("--ranks 2 --backend host --processes --rank=1") else { return };
    one.send(&other.as_bytes()[..100]);
    std::thread::sleep(Duration::from_millis(100));
    assert!(one.child.try_wait().unwrap().is_none(), "it waits for the rest");
    one.send(&other.as_bytes()[100..]);
    let said = one.line();
    assert!(said.starts_with("failed TRIB_ERR_INVALID_ARGUMENT"), "{said}");
    assert!(said.contains("did not create the id"), "{said}");
    let output = one.child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), texts(&output).1.as_str()), (Some(1), ""));
}

#[test]
fn a_rank_tells_its_result_once() {
    let arguments = "--ranks 1 --epochs 2 --backend host --processes --rank=0";
    let Some(mut zero) = rank(arguments) else { return };
    let id: Vec<u8> = zero.line().split_whitespace().skip(1).map(|b| b.parse().unwrap()).collect();
    assert_eq!(id.len(), UniqueId::SIZE);
    zero.send(&id);
    assert!(zero.line().starts_with("trained 2 1 15 "));
    let mut rest = String::new();
    zero.socket.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert!(zero.child.wait().unwrap().success());
}

#[test]
fn a_rank_of_nobody_ends() {
    let arguments = "--ranks 1 --epochs 1000000 --backend host --processes --rank=0";
    let Some(mut zero) = rank(arguments) else { return };
    zero.line();
    drop(zero.socket); // before there is an id
    assert_eq!(zero.child.wait().unwrap().code(), Some(1));

    let mut stranger = train(arguments).unwrap();
    let output = stranger.stdin(Stdio::null()).output().unwrap();
    let said = texts(&output).1;
    assert!(said.starts_with("train: --rank is for processes that --processes starts"), "{said}");
}

#[test]
fn the_others_go_on_without_a_process_that_is_killed() {
    let connects =
        |backend: &Backend| backend.name() != "host" && backend.devices().unwrap_or(0) >= 2;
    let Some(backend) = Backend::all().into_iter().find(connects) else {
        return common::skip("needs two devices of a backend that connects processes");
    };
    let _alone = common::alone();
    let ranks = backend.devices().unwrap().min(3);
    for killed in [0, ranks - 1] {
        let arguments = format!("--processes --kill-rank {killed} --at-step 100");
        let Some(mut command) = train(&format!("--backend {backend} --ranks {ranks} {arguments}"))
        else {
            return;
        };
        let output = command.output().unwrap();
        let (out, err) = texts(&output);
        assert!(output.status.success(), "{out}{err}");
        assert!(out.contains("TRIB_ERR_CLOSED"), "{out}");
        let dead = format!("rank {killed} (process ");
        assert!(out.contains(&dead) && out.contains("was killed by signal 9 (SIGKILL)"), "{out}");
        assert!(
            out.contains(" on with step 101\n") || out.contains(" on with step 100\n"),
            "{out}"
        );
        assert_eq!(out.matches("\nproved  ").count(), 3, "{out}");
    }
}

/// A rank of a job of torchrun's, as far as variables say.
fn launched(ranks: usize, arguments: &str) -> Option<Output> {
    let mut command = train(arguments)?;
    command.env("RANK", "0").env("WORLD_SIZE", ranks.to_string()).env("LOCAL_RANK", "0");
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", "1");
    Some(command.output().unwrap())
}

#[test]
fn a_launched_rank_trains() {
    let arguments = "--launched --backend host --epochs 20 --no-reference";
    let Some(output) = launched(1, arguments) else { return };
    let (said, failed) = texts(&output);
    assert!(output.status.success(), "{said}{failed}");
    assert!(said.contains("1 rank on host, processes of torchrun: an epoch is "), "{said}");
    assert!(said.contains("proved  every rank has the same parameters"), "{said}");
}

#[test]
fn launched_ranks_on_host_are_refused() {
    let Some(output) = launched(2, "--launched --backend host") else { return };
    let (said, failed) = texts(&output);
    assert!(!output.status.success() && said.is_empty(), "{said}");
    assert!(failed.contains("the job has 2 ranks, each a process, and on host"), "{failed}");
    let output = launched(5, "--launched --backend host --batch 96").unwrap();
    assert!(texts(&output).1.contains("a batch of 96 cannot be divided equally among 5 ranks"));
}

#[test]
fn without_a_launcher_nothing_is_launched() {
    let Some(mut command) = train("--launched --backend host") else { return };
    for name in ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "TRIBUTARY_LAUNCHER"] {
        command.env_remove(name);
    }
    let (_, failed) = texts(&command.output().unwrap());
    assert!(failed.contains("no launcher has started this process"), "{failed}");
}
