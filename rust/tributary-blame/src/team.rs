//! The ranks of one communicator, put together from the dumps of all processes.

use std::collections::BTreeMap;

use crate::dump::{Call, Communicator, Dump, Presence, State};

/// A rank as its newest dump shows it.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    pub dump: &'a Dump,
    pub comm: &'a Communicator,
}

/// The process of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    pub host: &'a str,
    pub process: u64,
}

/// One communicator.
#[derive(Debug)]
pub struct Team<'a> {
    pub identity: &'a str,
    pub size: u32,
    pub members: BTreeMap<u32, Member<'a>>,
    /// By what any rank knows.
    pub died: BTreeMap<u32, Place<'a>>,
    peers: BTreeMap<u32, Place<'a>>,
}

/// The communicators of all dumps, by identity.
pub fn teams(dumps: &[Dump]) -> Vec<Team<'_>> {
    let mut in_order: Vec<&Dump> = dumps.iter().collect();
    in_order.sort_by_key(|dump| (dump.unix_ns, &dump.file));
    let mut teams: BTreeMap<&str, Team> = BTreeMap::new();
    for dump in in_order {
        for comm in &dump.communicators {
            teams
                .entry(&comm.identity)
                .or_insert_with(|| Team::new(&comm.identity))
                .add(Member { dump, comm });
        }
    }
    teams.into_values().collect()
}

impl<'a> Team<'a> {
    fn new(identity: &'a str) -> Team<'a> {
        Team {
            identity,
            size: 0,
            members: BTreeMap::new(),
            died: BTreeMap::new(),
            peers: BTreeMap::new(),
        }
    }

    /// Members come from old to new: the newest dump of a rank stays.
    fn add(&mut self, member: Member<'a>) {
        self.size = self.size.max(member.comm.size);
        self.members.insert(member.comm.rank, member);
        for peer in &member.comm.peers {
            let place = Place { host: &peer.host, process: peer.process };
            self.peers.insert(peer.rank, place);
            if peer.state == Presence::Dead {
                self.died.insert(peer.rank, place);
            }
        }
    }

    /// Where a rank is, if any dump says so.
    pub fn place(&self, rank: u32) -> Option<Place<'a>> {
        let known = self.members.get(&rank).map(Member::place);
        known.or_else(|| self.peers.get(&rank).copied())
    }

    /// The ranks without a dump, those that died excluded.
    pub fn missing(&self) -> Vec<u32> {
        let gone = |rank: &u32| !self.members.contains_key(rank) && !self.died.contains_key(rank);
        (0..self.size).filter(gone).collect()
    }

    /// The ranks that have a dump and have not died since.
    pub fn live(&self) -> impl Iterator<Item = (u32, &Member<'a>)> {
        let live = |rank: &u32| !self.died.contains_key(rank);
        self.members
            .iter()
            .map(|(&rank, member)| (rank, member))
            .filter(move |(rank, _)| live(rank))
    }

    /// The rank, unless it has died or has no dump.
    pub fn live_rank(&self, rank: u32) -> Option<&Member<'a>> {
        self.members.get(&rank).filter(|_| !self.died.contains_key(&rank))
    }

    /// A dump was written because something went wrong, or a rank says that it did.
    pub fn is_suspicious(&self) -> bool {
        let suspicious =
            |member: &Member| member.dump.reason != "request" || member.comm.status != "TRIB_OK";
        self.members.values().any(suspicious)
    }
}

impl<'a> Member<'a> {
    pub fn place(&self) -> Place<'a> {
        Place { host: &self.dump.host, process: self.dump.process }
    }

    pub fn newest(&self) -> Option<&'a Call> {
        self.comm.calls.last()
    }

    /// The rank's part in a call of all ranks, while its dump has it.
    pub fn collective(&self, number: u64) -> Option<&'a Call> {
        self.comm.calls.iter().rfind(|call| call.collective == Some(number))
    }

    /// How many of the calls that all ranks make the rank has made; `None` if its dump holds only
    /// other ones.
    pub fn made(&self) -> Option<u64> {
        let newest = self.comm.calls.iter().filter_map(|call| call.collective).max();
        let whole = match self.comm.calls.first() {
            Some(call) => call.number <= 1,
            None => self.comm.entered == 0,
        };
        newest.or(whole.then_some(0))
    }

    /// The oldest call of all ranks that is known not to have ended.
    pub fn pending_collective(&self) -> Option<&'a Call> {
        self.comm.calls.iter().find(|call| call.collective.is_some() && call.is_pending())
    }

    /// The oldest other call that is known not to have ended.
    pub fn pending_other(&self) -> Option<&'a Call> {
        self.comm.calls.iter().find(|call| call.collective.is_none() && call.is_pending())
    }

    /// The newest call, if nobody knows whether it has ended, and no call is known not to have.
    pub fn vague(&self) -> Option<&'a Call> {
        let newest = self.newest().filter(|call| call.state == State::Unknown)?;
        (!self.comm.calls.iter().any(Call::is_pending)).then_some(newest)
    }

    /// When the rank entered the call, in nanoseconds since 1970 by its own clock.
    pub fn entered_ns(&self, call: &Call) -> u64 {
        // Saturates, also for an age that no dump can have.
        self.dump.unix_ns.saturating_sub((call.age_ms * 1e6) as u64)
    }
}

impl Call {
    /// It is known not to have ended.
    pub fn is_pending(&self) -> bool {
        matches!(self.state, State::Entered | State::Queued | State::Started)
    }

    /// A send or a receive.
    pub fn is_message(&self) -> bool {
        matches!(self.operation.as_str(), "send" | "recv") && self.peer.is_some()
    }

    /// The other end of a send or receive of `rank`.
    pub fn answers(&self, other: &Call, rank: u32) -> bool {
        self.is_message()
            && other.is_message()
            && self.operation != other.operation
            && self.peer == Some(rank)
    }
}
