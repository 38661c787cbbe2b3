//! The program and the library agree on the format: it reads what the flight recorder wrote.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tributary::{debug, dump, Communicator, Group, InPlace, Options, ReduceOp, Stream};

#[test]
fn a_rank_that_stays_away_is_blamed() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("recorder.json");
    let options = Options::new().backend("host").call_timeout(Duration::MAX);
    let mut ranks = Group::with_options(3, &options).unwrap().split().unwrap();
    let streams: Vec<_> = ranks.iter().map(|rank| Stream::new(rank.device()).unwrap()).collect();
    let start = |rank: &mut Communicator, stream, length| {
        let data = vec![1.0_f32; length];
        rank.start(data, stream, |s, data| s.allreduce(InPlace, data, ReduceOp::Sum)).unwrap()
    };
    let first: Vec<_> =
        ranks.iter_mut().zip(&streams).map(|(rank, stream)| start(rank, stream, 8)).collect();
    first.into_iter().for_each(|work| drop(work.wait().unwrap()));
    let late: Vec<_> =
        ranks.iter_mut().zip(&streams).take(2).map(|(r, stream)| start(r, stream, 9)).collect();
    std::thread::sleep(Duration::from_millis(1500)); // a call on request hangs after a second
    debug::set(true).unwrap(); // with the blocks, of which the program takes no notice
    dump::write(&path).unwrap();
    assert!(fs::read_to_string(&path).unwrap().contains("\"blocks\": ["));
    ranks[0].abort_handle().abort("the dump is written");
    drop((late, ranks));

    let blame = Command::new(env!("CARGO_BIN_EXE_tributary-blame")).arg(&path).output().unwrap();
    let said = String::from_utf8(blame.stdout).unwrap();
    let who = format!("rank 2 (process {} on ", std::process::id());
    assert!(said.starts_with(&who), "{said}");
    let what = "has not made collective 2, trib_allreduce of 9 f32, sum; ranks 0 and 1 have waited";
    assert!(said.contains(what), "{said}");
    assert_eq!(blame.status.code(), Some(1));
}
