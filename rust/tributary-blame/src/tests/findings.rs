//! Each finding, by a hang that has it: the whole sentence.

use super::{dumps, found};
use crate::dump::{Call, Dump, Peer, Presence, State};
use crate::words::departures;

fn expect(name: &str, expected: &[&str]) {
    assert_eq!(found(&dumps(name)), expected, "of {name}");
}

#[test]
fn a_process_died() {
    expect(
        "died",
        &["died [2] rank 2 (process 4713 on node-a) has died. Ranks 0, 1 and 3 have waited for \
           600.2 s in collective 13, trib_allreduce of 1024 f32, sum."],
    );
}

#[test]
fn the_dump_of_a_dead_rank_hides_nothing() {
    expect(
        "died_after",
        &["died [0] rank 0 (process 4711 on node-a) has died. Rank 0's last call, collective 12, \
           trib_broadcast of 64 f32, root 0, made 601.0 s before the dump, has started. Rank 1 has \
           waited for 600.2 s in collective 13, trib_allreduce of 1024 f32, sum."],
    );
}

/// In its own process, which wrote the dump: no call for it is in there.
#[test]
fn a_rank_left_while_others_waited() {
    expect(
        "left",
        &["left [0] rank 0 (process 5603 on node-a) has closed the communicator after call 1; \
           others wait for it. Rank 1 has waited for 200.3 ms in collective 2, trib_allreduce of 4 \
           f32, sum."],
    );
    expect(
        "left_elsewhere",
        &["left [2] rank 2 (process 24901 on node-a) has closed the communicator after call 4; \
           others wait for it. Ranks 0 and 1 have waited for 18.7 ms in collective 5, \
           trib_allreduce of 1 f32, sum."],
    );
}

/// Also where an older dump shows the one that left, and those that had not come yet are no cause.
#[test]
fn who_left_is_the_only_cause() {
    let mut dumps = dumps("left_elsewhere");
    let mut older = dumps[0].clone();
    older.unix_ns -= 1_000_000_000;
    older.process = 24901;
    let comm = &mut older.communicators[0];
    (comm.rank, comm.device, comm.status) = (2, 2, "TRIB_OK".to_owned());
    comm.calls.pop();
    dumps[0].communicators[0].calls.pop(); // as of rank 0
    dumps.push(older);
    let found = found(&dumps);
    assert!(found.len() == 1 && found[0].starts_with("left [2] "), "{found:?}");
}

/// The library ends no receive whose partner has closed, before its deadline.
#[test]
fn the_partner_of_a_message_has_closed() {
    let mut dumps = dumps("unanswered");
    dumps.pop();
    let comm = &mut dumps[0].communicators[0];
    comm.backend = "host".to_owned();
    assert_eq!(comm.calls.last().unwrap().peer, Some(1));
    let found = found(&dumps);
    assert_eq!(found.len(), 1);
    let expected = "left [1] rank 1 (process 4711 on node-a) has closed the communicator; others \
                    wait for it. Rank 0 has waited for 5.0 s in call 7, trib_recv of 4 f32";
    assert!(found[0].starts_with(expected), "{found:?}");
}

/// Closing is no cause where all calls were made before.
#[test]
fn a_rank_that_closed_hides_no_hang() {
    let mut dumps = dumps("stuck");
    let gone = dumps.pop().unwrap();
    let rank = gone.communicators[0].rank;
    for dump in &mut dumps {
        let peer =
            Peer { rank, host: gone.host.clone(), process: gone.process, state: Presence::Closed };
        dump.communicators[0].peers.push(peer);
    }
    let found = found(&dumps);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("stuck [0, 1, 2] 3 of 4 ranks have started"), "{found:?}");
}

/// With the status that the library gives those who waited for it.
#[test]
fn only_the_dead_are_blamed_for_their_death() {
    let mut dumps = dumps("died");
    for dump in &mut dumps {
        dump.communicators[0].status = "TRIB_ERR_CLOSED".to_owned();
        dump.communicators[0].detail = "rank 2 was killed by signal 9 (SIGKILL)".to_owned();
    }
    let found = found(&dumps);
    assert!(found.len() == 1 && found[0].starts_with("died [2] "), "{found:?}");
}

#[test]
fn what_details_say_of_those_that_left() {
    let left = "rank 0 left after call 1 (barrier), and rank 12 waits for it in trib_comm_split";
    assert_eq!(departures(left), [(0, 1)]);
    let told =
        "told by rank 1 (process 7 on a): rank 1 (device 1) has waited for 0.0 s in call 5, \
                trib_barrier; rank 2 (process 8 on a (b)) has closed after call 4, trib_barrier; \
                rank 30 has closed after call 3, trib_barrier";
    assert_eq!(departures(told), [(2, 4), (30, 3)]);
    for none in [
        "",
        "rank 0 has waited; nobody left after call 1",
        "rank left after call 1",
        "rank 4294967296 left after call 1",
        "rank 0 left after call x",
        "rank 0 left after call 18446744073709551616",
        "rank 0 (or so) left after call 1",
        " left after call ",
    ] {
        assert_eq!(departures(none), [], "{none}");
    }
}

#[test]
fn ranks_have_no_dump() {
    expect(
        "missing",
        &["missing [2, 3] ranks 2 and 3 have no dump: their processes are gone, or stuck before \
           writing them, or the files were not given. Ranks 0 and 1 have waited for 600.2 s in \
           collective 13, trib_allreduce of 1024 f32, sum."],
    );
}

/// Three communicators of one process: one that ended, which a rank had left; one that had ended
/// before, and most of which is closed; and the one that goes on, of which a rank is closed already.
#[test]
fn a_communicator_that_is_well_misses_nobody() {
    expect(
        "recovered",
        &["left [1] Communicator bcc5827a13808ce4: rank 1 (process 985 on node-a) has closed the \
           communicator after call 4; others wait for it. Ranks 0 and 2 have waited for 0.5 ms in \
           collective 5, trib_allreduce of 1 f32, avg."],
    );
    // Nor where ranks of other processes have no dump.
    let mut dumps = dumps("missing");
    for dump in &mut dumps {
        let comm = &mut dump.communicators[0];
        comm.status = "TRIB_OK".to_owned();
        comm.calls.last_mut().unwrap().state = State::Unknown;
    }
    assert_eq!(found(&dumps), [""; 0]);
}

#[test]
fn the_minority_makes_another_call() {
    expect(
        "differ",
        &["differ [2] as collective 13, rank 2 (process 4713 on node-a) makes trib_allreduce of \
           2048 f32, sum, but ranks 0, 1 and 3 make trib_allreduce of 1024 f32, sum."],
    );
}

#[test]
fn different_calls_may_be_a_tie() {
    expect(
        "differ_tie",
        &["differ [0] as collective 5, rank 0 (process 4711 on node-a) makes trib_allreduce of \
           1024 f32, sum, but rank 1 (process 4712 on node-a) makes trib_broadcast of 64 f32, \
           root 1. It is a tie: either may be the mistake."],
    );
    expect(
        "differ_root",
        &["differ [0, 1] as collective 5, ranks 0 and 1 make trib_broadcast of 64 f32, root 0, \
           but ranks 2 and 3 make trib_broadcast of 64 f32, root 1. It is a tie: either may be \
           the mistake."],
    );
}

#[test]
fn a_call_was_left_out_or_is_one_too_many() {
    expect(
        "left_out",
        &["differ [1] as collective 13, rank 1 (process 4712 on node-a) makes trib_allreduce of \
           114 f32, sum, but ranks 0 and 2 make trib_allreduce of 113 f32, sum. This is what the \
           others make one later: it seems that rank 1 left one out."],
    );
    expect(
        "extra",
        &["differ [1] as collective 13, rank 1 (process 4712 on node-a) makes trib_allreduce of \
           199 f32, sum, but ranks 0 and 2 make trib_allreduce of 113 f32, sum. What follows is \
           what the others make one earlier: it seems that rank 1 made one too many."],
    );
}

#[test]
fn a_rank_has_failed() {
    expect(
        "failed",
        &["failed [1] rank 1 (process 4712 on node-a) has failed with TRIB_ERR_NCCL: unhandled \
           system error"],
    );
    expect(
        "aborted",
        &["failed [0, 1] ranks 0 and 1 have failed with TRIB_ERR_ABORTED: the caller gave up"],
    );
}

#[test]
fn a_rank_has_not_made_the_call() {
    let late = "absent [2] rank 2 (process 4713 on node-a) has not made collective 13, \
                trib_allreduce of 1024 f32, sum; ranks 0, 1 and 3 have waited in it for 600.2 s. \
                Rank 2's last call, collective 12, trib_broadcast of 64 f32, root 0, made 601.0 s \
                before the dump, is done.";
    expect("absent", &[late]);
    // The same where the backend does not know which calls have started.
    expect("absent_queued", &[late]);
}

#[test]
fn the_rank_furthest_behind_is_to_blame() {
    expect(
        "absent_two",
        &["absent [3] rank 3 (process 4714 on node-a) has not made collective 12, trib_broadcast \
           of 64 f32, root 0; rank 2 has waited in it for 601.0 s. Rank 3's dump has no call."],
    );
}

#[test]
fn a_rank_that_waits_elsewhere_comes_after_the_cause() {
    expect(
        "follows",
        &[
            "absent [0] Communicator b000000000000002: rank 0 (process 4715 on node-b) has not \
             made collective 3, trib_allreduce of 7 f32, sum; rank 1 has waited in it for 600.9 s. \
             Rank 0's last call, collective 2, trib_allreduce of 7 f32, sum, made 602.0 s before \
             the dump, is done.",
            "absent [2] Communicator 9f3c0a1b2c3d4e5f: rank 2 (process 4713 on node-a) has not \
             made collective 13, trib_allreduce of 1024 f32, sum; ranks 0, 1 and 3 have waited in \
             it for 600.2 s. Rank 2 itself has waited for 600.9 s in collective 3 of communicator \
             b000000000000002, trib_allreduce of 7 f32, sum, as its rank 1.",
        ],
    );
}

#[test]
fn an_old_dump_is_said_to_be_old() {
    expect(
        "late_dump",
        &["absent [0] rank 0 (process 4711 on node-a) has not made collective 13, trib_allreduce \
           of 1024 f32, sum; rank 1 has waited in it for 20.0 s. Rank 0's last call, collective \
           12, trib_broadcast of 64 f32, root 0, made 30.0 s before the dump, is done. But its \
           dump is 1.5 s older than this wait: the call may have been made since."],
    );
}

#[test]
fn two_communicators_in_two_orders_are_a_deadlock() {
    expect(
        "deadlock",
        &["deadlock [1] a deadlock: rank 1 (process 4712 on node-a) has waited for 9.0 s in \
           collective 3 of communicator b000000000000002, trib_broadcast of 64 f32, root 0, and \
           has not made collective 5 of communicator 9f3c0a1b2c3d4e5f; rank 0 (process 4711 on \
           node-a) has waited for 9.0 s in collective 5 of communicator 9f3c0a1b2c3d4e5f, \
           trib_allreduce of 1024 f32, sum, and has not made collective 3 of communicator \
           b000000000000002. All ranks must make these calls in one order."],
    );
}

/// Two dumps of one process: the second communicator was created after the first had ended.
#[test]
fn what_ended_before_is_no_part_of_a_deadlock() {
    let old = "absent [1] Communicator d0d2a6d615f2b36f: rank 1 (process 985 on node-a) has not \
               made collective 5, trib_allreduce of 1 f32, avg; ranks 0 and 2 have waited in it \
               for 423.5 ms. Rank 1's last call, collective 4, trib_allreduce of 1 f32, avg, made \
               427.4 ms before the dump, is done.";
    let new = "absent [2] Communicator 50d1f94c538c53cb: rank 2 (process 985 on node-a) has not \
               made collective 1, trib_broadcast of 1 f32, root 0; ranks 0 and 1 have waited in \
               it for 0.2 ms to 0.3 ms. Rank 2's dump has no call.";
    expect("several", &[new, old]);
}

/// Waits of one communicator are in the newest dump of each of its ranks.
#[test]
fn an_older_dump_tells_of_its_communicators_own_waits() {
    let mut dumps = dumps("deadlock_message");
    let expected = found(&dumps);
    let mut newer = dumps[0].clone();
    newer.unix_ns += 1;
    newer.communicators.clear();
    dumps.push(newer);
    assert!(expected[0].starts_with("deadlock "));
    assert_eq!(found(&dumps), expected);
}

#[test]
fn two_orders_on_one_stream_are_a_deadlock() {
    expect(
        "deadlock_stream",
        &["deadlock [1] a deadlock: rank 1 (process 4712 on node-a) has waited for 9.0 s in \
           collective 3 of communicator b000000000000002, trib_broadcast of 64 f32, root 0, and \
           has collective 5 of communicator 9f3c0a1b2c3d4e5f behind it; rank 0 (process 4711 on \
           node-a) has waited for 9.0 s in collective 5 of communicator 9f3c0a1b2c3d4e5f, \
           trib_allreduce of 1024 f32, sum, and has collective 3 of communicator \
           b000000000000002 behind it. All ranks must make these calls in one order."],
    );
}

#[test]
fn a_receive_before_and_a_send_after_a_collective_are_a_deadlock() {
    expect(
        "deadlock_message",
        &["deadlock [0] a deadlock: rank 0 (process 4711 on node-a) has waited for 5.0 s in call \
           1, trib_recv of 8 f32 from rank 1, and has not made collective 1; rank 1 (process 4712 \
           on node-a) has waited for 5.0 s in collective 1, trib_allreduce of 1024 f32, sum, and \
           has not answered call 1 of rank 0. All ranks must make these calls in one order."],
    );
}

#[test]
fn a_stream_is_busy() {
    expect(
        "queued",
        &["queued [3] rank 3 (process 4714 on node-a) has queued collective 13, trib_allreduce of \
           1024 f32, sum, and its stream has not reached it: something ahead of it on the stream \
           is not done; ranks 0 to 2 have waited in it for 600.2 s."],
    );
    expect(
        "queued_behind",
        &[
            "stuck [0] Communicator b000000000000002: the only rank has started collective 8, \
             trib_allreduce of 7 f32, sum, and is not known to have finished it: the network or a \
             device has failed, or is slow. Rank 0 (process 4712 on node-a) has been in it for \
             600.3 s.",
            "queued [1] Communicator 9f3c0a1b2c3d4e5f: rank 1 (process 4712 on node-a) has queued \
             collective 13, trib_allreduce of 1024 f32, sum, and its stream has not reached it; \
             rank 0 has waited in it for 600.2 s. Rank 1 itself has waited for 600.3 s in \
             collective 8 of communicator b000000000000002, trib_allreduce of 7 f32, sum, as its \
             rank 0.",
        ],
    );
}

#[test]
fn a_thread_is_inside_the_call() {
    expect(
        "inside",
        &["inside [1] rank 1 (process 4712 on node-a) has entered collective 13, trib_allreduce \
           of 1024 f32, sum, and its thread is still inside; rank 0 has waited in it for 600.2 s."],
    );
}

#[test]
fn a_receive_has_no_send() {
    expect(
        "unanswered",
        &["unanswered [1] rank 1 (process 4712 on node-a) has not made the trib_send that answers \
           call 7 of rank 0, trib_recv of 4 f32 from rank 1; rank 0 has waited in it for 5.0 s. \
           Rank 1's last call, collective 1, trib_broadcast of 64 f32, root 0, made 6.0 s before \
           the dump, is done."],
    );
}

#[test]
fn everybody_is_there_and_it_does_not_end() {
    let network = "the network or a device has failed, or is slow.";
    expect(
        "stuck",
        &[&format!(
            "stuck [0, 1, 2, 3] all 4 ranks have started collective 13, trib_allreduce of 1024 \
             f32, sum, and none is known to have finished it: {network} Ranks 0 to 3 have been in \
             it for 600.3 s."
        )],
    );
    expect(
        "stuck_unknown",
        &[&format!(
            "stuck [1, 2, 3] all 4 ranks have made collective 13, trib_allreduce of 1024 f32, sum, \
             and only rank 0 has finished it: {network} Ranks 1 to 3 have been in it for 600.2 s."
        )],
    );
    expect(
        "stuck_queued",
        &["stuck [0, 1] both ranks have queued collective 13, trib_allreduce of 1024 f32, sum, and \
           none is known to have finished it: what is ahead of it, the network or a device has \
           failed, or is slow. Ranks 0 and 1 have been in it for 600.2 s."],
    );
    expect(
        "stuck_message",
        &[&format!(
            "stuck [0, 1] rank 0 has been for 5.0 s in call 7, trib_recv of 4 f32 from rank 1; \
             rank 1 has been for 5.0 s in call 7, trib_send of 4 f32 to rank 0, and the call has \
             not ended: {network}"
        )],
    );
}

#[test]
fn all_is_well() {
    // Also if nobody knows whether the newest calls have ended; if they run; if an older dump shows
    // a wait; if a batch holds what others call alone.
    for name in ["well", "well_unknown", "well_running", "newest", "well_counts"] {
        expect(name, &[]);
    }
}

/// The newest calls may be marked unknown: once something went wrong, somebody may wait in them.
#[test]
fn unknown_calls_count_after_a_timeout() {
    let mut dumps = dumps("well_unknown");
    dumps[1].reason = "timeout".to_owned();
    let found = found(&dumps);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("stuck [0, 1] both ranks have made collective 13"), "{found:?}");
}

/// The ring of rank 1 holds none of the calls that all ranks make.
#[test]
fn what_a_rank_has_made_may_be_unknown() {
    expect(
        "stuck_some",
        &["stuck [0] 1 of 2 ranks have started collective 13, trib_allreduce of 1024 f32, sum, and \
           none is known to have finished it: the network or a device has failed, or is slow. Rank \
           0 (process 4711 on node-a) has been in it for 600.2 s."],
    );
}

/// The calls of the second communicator, in all dumps that have it.
fn second(dumps: &mut [Dump]) -> impl Iterator<Item = &mut Vec<Call>> {
    let comms = dumps.iter_mut().flat_map(|dump| &mut dump.communicators);
    comms.filter(|comm| comm.identity == "b000000000000002").map(|comm| &mut comm.calls)
}

#[test]
fn what_may_have_ended_is_no_cause() {
    let mut dumps = dumps("follows");
    for calls in second(&mut dumps) {
        let newest = calls.last_mut().unwrap();
        (newest.collective, newest.state) = (Some(3), State::Unknown);
    }
    let found = found(&dumps);
    assert!(found[0].starts_with("absent [2] ") && !found[0].contains("itself"), "{found:?}");
    assert!(found[1].starts_with("stuck [0, 1] Communicator b000000000000002"), "{found:?}");
}

#[test]
fn calls_on_two_streams_have_no_order() {
    let mut dumps = dumps("deadlock_stream");
    for calls in second(&mut dumps) {
        calls[0].stream = Some("0x2".to_owned());
    }
    let found = found(&dumps);
    assert!(found.len() == 2 && found.iter().all(|f| f.starts_with("stuck [0, 1] ")), "{found:?}");
}

/// Calls of a burst share the age of its first: one of another communicator may lie between.
#[test]
fn ages_that_are_not_exact_are_no_order() {
    let mut dumps = dumps("deadlock_stream");
    let comms = dumps.iter_mut().flat_map(|dump| &mut dump.communicators);
    for call in comms.flat_map(|comm| &mut comm.calls) {
        call.exact = false;
    }
    let found = found(&dumps);
    assert!(found.len() == 2 && found.iter().all(|f| f.starts_with("stuck [0, 1] ")), "{found:?}");
}

#[test]
fn a_call_of_one_rank_does_not_end() {
    let mut dumps = dumps("well");
    let call = dumps[0].communicators[0].calls.last_mut().unwrap();
    (call.operation, call.collective) = ("sparse_export".to_owned(), None);
    (call.op, call.state, call.age_ms) = (None, State::Started, 5000.0);
    let expected =
        "stuck [0] rank 0 has been for 5.0 s in call 13, trib_sparse_export of 1024 f32, \
                    and the call has not ended: the network or a device has failed, or is slow.";
    assert_eq!(found(&dumps), [expected]);
}

fn calls(dumps: &mut [Dump]) -> impl Iterator<Item = &mut Call> {
    dumps.iter_mut().flat_map(|dump| &mut dump.communicators).flat_map(|comm| &mut comm.calls)
}

/// In whatever order the files are read.
#[test]
fn an_older_dump_of_a_rank_does_not_count() {
    let old = dumps("absent");
    let mut new = old.clone();
    new.iter_mut().for_each(|dump| dump.unix_ns += 1);
    calls(&mut new).for_each(|call| call.state = State::Done);
    assert_ne!(found(&new), found(&old));
    assert_eq!(found(&[&old[..], &new[..]].concat()), found(&new));
    assert_eq!(found(&[&new[..], &old[..]].concat()), found(&new));
    new.iter_mut().for_each(|dump| dump.unix_ns -= 2);
    assert_eq!(found(&[&old[..], &new[..]].concat()), found(&old));
    assert_eq!(found(&[&new[..], &old[..]].concat()), found(&old));
}

#[test]
fn ranks_without_a_dump_are_missing_after_an_abort_though_nobody_waits() {
    let mut dumps = dumps("missing");
    calls(&mut dumps).for_each(|call| call.state = State::Done);
    assert!(found(&dumps).is_empty()); // all is well
    for comm in dumps.iter_mut().flat_map(|dump| &mut dump.communicators) {
        comm.status = "TRIB_ERR_ABORTED".to_owned();
    }
    let found = found(&dumps);
    assert!(found.iter().any(|finding| finding.starts_with("missing [2, 3] ")), "{found:?}");
}

/// That a rank has closed is a cause, also where another one has not made a call.
#[test]
fn a_closed_rank_is_no_mere_consequence() {
    let mut dumps = dumps("absent");
    for comm in dumps.iter_mut().flat_map(|dump| &mut dump.communicators).take(1) {
        comm.status = "TRIB_ERR_CLOSED".to_owned();
        comm.detail = "rank 3 left".to_owned();
    }
    let found = found(&dumps);
    assert!(found.iter().any(|f| f.starts_with("failed [0] ") && f.contains("rank 3 left")));
}

/// The ranks' newest calls are of unknown end, and not the same.
#[test]
fn of_unknown_calls_the_newest_counts() {
    let mut dumps = dumps("well_unknown");
    calls(&mut dumps).for_each(|call| call.age_ms += 5000.0);
    let behind = &mut dumps[1].communicators[0];
    behind.calls.pop();
    behind.entered -= 1;
    behind.calls[0].state = State::Unknown;
    let found = found(&dumps);
    assert!(found.len() == 1 && found[0].starts_with("absent [1] "), "{found:?}");
}

/// What the ranks made before the call too many, and is the same, is no part of what follows it.
#[test]
fn calls_before_one_too_many_do_not_matter() {
    let mut dumps = dumps("extra");
    for comm in dumps.iter_mut().flat_map(|dump| &mut dump.communicators) {
        let mut before = comm.calls[0].clone();
        (before.number, before.collective) = (12, Some(12));
        (before.count, before.state) = (112, State::Done);
        comm.calls.insert(0, before);
    }
    let found = found(&dumps);
    assert!(found[0].contains("it seems that rank 1 made one too many"), "{found:?}");
}

/// A call is lost from a ring that begins with the second.
#[test]
fn what_a_rank_has_made_is_unknown_from_the_second_call_on() {
    let mut dumps = dumps("stuck_some");
    let before = found(&dumps);
    dumps[1].communicators[0].calls[0].number = 2;
    assert_eq!(found(&dumps), before);
    dumps[1].communicators[0].calls[0].number = 1;
    assert!(found(&dumps)[0].starts_with("absent [1] "), "{:?}", found(&dumps));
}

/// Rank 2 waits elsewhere; but as a rank on another device of its process it would not.
#[test]
fn another_device_of_a_process_waits_for_itself() {
    let mut dumps = dumps("follows");
    for comm in dumps.iter_mut().flat_map(|dump| &mut dump.communicators) {
        if comm.identity == "b000000000000002" && comm.rank == 1 {
            comm.device += 1;
        }
    }
    let found = found(&dumps);
    assert!(found.iter().all(|f| !f.contains("itself has waited")), "{found:?}");
}

/// A send to another rank answers no receive.
#[test]
fn a_message_to_somebody_else_is_no_answer() {
    let mut dumps = dumps("unanswered");
    let mut other = dumps[0].communicators[0].calls[0].clone();
    (other.operation, other.number, other.peer) = ("send".to_owned(), 2, Some(2));
    let comms = dumps.iter_mut().flat_map(|dump| &mut dump.communicators);
    comms.for_each(|comm| comm.size = 3);
    dumps[1].communicators[0].calls.push(other);
    let found = found(&dumps);
    assert!(found.iter().any(|f| f.starts_with("unanswered [1] ")), "{found:?}");
}
