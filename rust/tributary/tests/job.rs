//! Jobs, as processes that find each other: this program again, with a launcher's variables.

use std::env;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tributary::{Communicator, Error, ErrorKind, Job, Options};

const LAUNCHERS: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];

/// One of the tests that are ignored, in a process of its own, as rank `rank` of `size` of torchrun.
fn start(test: &str, rank: usize, size: usize, port: u32) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    for name in LAUNCHERS {
        command.env_remove(name);
    }
    command.args(["--ignored", "--exact", test, "--nocapture"]);
    command.env_remove("TRIBUTARY_ADDRESS").env("TORCHELASTIC_RUN_ID", format!("{test} {port}"));
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string());
    command.env("LOCAL_RANK", rank.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn run(test: &str, ranks: std::ops::Range<usize>, size: usize) -> Vec<Output> {
    let port = 1024 + std::process::id() % 60000;
    let children: Vec<_> = ranks.map(|rank| start(test, rank, size, port)).collect();
    children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

fn said(output: &Output, what: &str) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let line = text.lines().find_map(|line| line.split_once(what));
    line.map(|(_, rest)| rest.to_owned()).unwrap_or_else(|| panic!("no {what} in {text}"))
}

#[test]
#[ignore = "a rank of `all_ranks_get_one_id`"]
fn rank_meets() {
    let job = Job::from_env().unwrap();
    let rank: usize = env::var("RANK").unwrap().parse().unwrap();
    assert_eq!((job.rank(), job.size(), job.local_rank()), (rank, 3, rank));
    assert_eq!((job.launcher(), job.host()), ("torchrun", "127.0.0.1"));
    assert!(format!("{job:?}").starts_with("Job { launcher: \"torchrun\", rank: "));
    let id = job.meet(Some("host"), Duration::from_secs(60)).unwrap();
    println!("id {:?}", id.as_bytes());
}

#[test]
fn all_ranks_get_one_id() {
    let ids: Vec<_> = run("rank_meets", 0..3, 3).iter().map(|output| said(output, "id ")).collect();
    assert!(ids[0] != format!("{:?}", [0; 128]) && ids.iter().all(|id| *id == ids[0]));
}

#[test]
#[ignore = "a rank of `who_did_not_come_is_named`"]
fn rank_waits() {
    let error = Job::from_env().unwrap().meet(Some("host"), Duration::from_secs(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    println!("error {error}");
}

#[test]
fn who_did_not_come_is_named() {
    for output in run("rank_waits", 0..2, 4) {
        let error = said(&output, "error ");
        assert!(error.contains("ranks 2, 3 of 4 did not come"), "{error}");
    }
}

#[test]
#[ignore = "a rank of `on_host_a_job_has_one_rank`"]
fn rank_of_host() {
    let options = Options::new().backend("host").name("of a job");
    match (env::var("WORLD_SIZE").as_deref(), Communicator::from_env_with(&options)) {
        (Ok("1"), Ok(communicator)) => {
            assert_eq!((communicator.rank(), communicator.size()), (0, 1));
            assert_eq!(communicator.name(), "of a job");
            println!("made it");
        }
        (Ok("2"), Err(error)) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            println!("made {error}");
        }
        (_, result) => panic!("{:?}", result.map(|_| ())),
    }
}

#[test]
fn on_host_a_job_has_one_rank() {
    assert_eq!(said(&run("rank_of_host", 0..1, 1)[0], "made "), "it");
    let refused = said(&run("rank_of_host", 0..1, 2)[0], "made ");
    assert!(refused.contains("the job has 2 ranks, each a process"), "{refused}");
}

#[test]
#[ignore = "a process of `without_a_launcher_there_is_no_job`"]
fn rank_of_nobody() {
    env::remove_var("RANK");
    let refused = |error: Error| assert_eq!(error.kind(), ErrorKind::InvalidUsage, "{error}");
    refused(Job::from_env().unwrap_err());
    refused(Communicator::from_env().map(|_| ()).unwrap_err());
    println!("both refused");
}

#[test]
fn without_a_launcher_there_is_no_job() {
    said(&run("rank_of_nobody", 0..1, 1)[0], "both ");
}
