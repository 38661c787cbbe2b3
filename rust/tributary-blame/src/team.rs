//! The ranks of one communicator, put together from the dumps of all processes.

use std::collections::{BTreeMap, BTreeSet};

use crate::dump::{Call, Communicator, Dump, Presence, State};
use crate::words;

/// A rank as its newest dump shows it.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    pub dump: &'a Dump,
    pub comm: &'a Communicator,
    /// Its process has a newer dump, in which the rank is not.
    pub is_older: bool,
}

/// The process of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// The ranks that others waited for in vain, because they have closed the communicator; after
    /// which of their calls.
    pub left: BTreeMap<u32, u64>,
    /// The other ranks that have closed it, and have no dump.
    pub closed: BTreeSet<u32>,
    peers: BTreeMap<u32, Place<'a>>,
}

/// The dumps that are not the newest of their process.
pub fn older(dumps: &[Dump]) -> Vec<&Dump> {
    let mut newest: BTreeMap<Place, u64> = BTreeMap::new();
    for dump in dumps {
        let at = newest.entry(Place::of(dump)).or_default();
        *at = dump.unix_ns.max(*at);
    }
    let is_older = |dump: &&Dump| dump.unix_ns < newest[&Place::of(dump)];
    let mut older: Vec<&Dump> = dumps.iter().filter(is_older).collect();
    older.sort_by_key(|dump| (Place::of(dump), dump.unix_ns, &dump.file));
    older
}

/// The communicators of all dumps, by identity; `older` dumps count for ranks that no other has.
pub fn teams<'a>(dumps: &'a [Dump], older: &[&Dump]) -> Vec<Team<'a>> {
    let mut in_order: Vec<&Dump> = dumps.iter().collect();
    in_order.sort_by_key(|dump| (dump.unix_ns, &dump.file));
    let mut teams: BTreeMap<&str, Team> = BTreeMap::new();
    for dump in in_order {
        let is_older = older.iter().any(|older| std::ptr::eq(*older, dump));
        for comm in &dump.communicators {
            teams.entry(&comm.identity).or_insert_with(|| Team::new(&comm.identity)).add(Member {
                dump,
                comm,
                is_older,
            });
        }
    }
    let mut teams: Vec<Team> = teams.into_values().collect();
    teams.iter_mut().for_each(Team::find_closed);
    teams
}

impl<'a> Place<'a> {
    pub fn of(dump: &'a Dump) -> Place<'a> {
        Place { host: &dump.host, process: dump.process }
    }
}

impl<'a> Team<'a> {
    fn new(identity: &'a str) -> Team<'a> {
        Team {
            identity,
            size: 0,
            members: BTreeMap::new(),
            died: BTreeMap::new(),
            left: BTreeMap::new(),
            closed: BTreeSet::new(),
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

    /// Once all members are there: who has closed the communicator.
    fn find_closed(&mut self) {
        for member in self.members.values() {
            for (rank, after) in member.waited_in_vain() {
                self.left.insert(rank, after);
                // Of a rank elsewhere, the peers say where it is.
                self.peers.entry(rank).or_insert(member.place());
            }
        }
        self.left.retain(|rank, _| *rank < self.size && !self.died.contains_key(rank));
        let missing = self.missing();
        let home = self.home();
        for rank in missing {
            let here = home.filter(|_| !self.peers.contains_key(&rank));
            if let Some(home) = here {
                self.peers.insert(rank, home);
            }
            if here.is_some() || self.has_closed(rank) {
                self.closed.insert(rank);
            }
        }
    }

    fn has_closed(&self, rank: u32) -> bool {
        let mut peers = self.members.values().flat_map(|member| &member.comm.peers);
        peers.any(|peer| peer.rank == rank && peer.state == Presence::Closed)
    }

    /// The process that has all ranks but those that are peers: one that its dump lacks has closed
    /// the communicator. `None` with dumps of several processes, whose peers tell it, and where
    /// nobody knows.
    fn home(&self) -> Option<Place<'a>> {
        let mut members = self.members.values();
        let home = members.next()?.place();
        let same = members.all(|member| member.place() == home);
        let tell = self.members.values().all(|member| member.knows_peers());
        (same && tell).then_some(home)
    }

    /// Where a rank is, if any dump says so.
    pub fn place(&self, rank: u32) -> Option<Place<'a>> {
        let known = self.members.get(&rank).map(Member::place);
        known.or_else(|| self.peers.get(&rank).copied())
    }

    /// The ranks without a dump, those excluded that are known to have died or closed.
    pub fn missing(&self) -> Vec<u32> {
        let here = |rank: &u32| self.members.contains_key(rank) || self.closed.contains(rank);
        (0..self.size).filter(|rank| !here(rank) && !self.is_gone(*rank)).collect()
    }

    /// It makes no more calls, whatever its dump says.
    fn is_gone(&self, rank: u32) -> bool {
        self.died.contains_key(&rank) || self.left.contains_key(&rank)
    }

    /// The ranks that have a dump and have neither died nor left since.
    pub fn live(&self) -> impl Iterator<Item = (u32, &Member<'a>)> {
        let ranks = self.members.iter().map(|(&rank, member)| (rank, member));
        ranks.filter(|(rank, _)| !self.is_gone(*rank))
    }

    /// The rank, if it is one of those.
    pub fn live_rank(&self, rank: u32) -> Option<&Member<'a>> {
        self.members.get(&rank).filter(|_| !self.is_gone(rank))
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
        Place::of(self.dump)
    }

    /// The ranks that have closed the communicator while this one waited, or another one that told
    /// it so, and after which of their calls.
    fn waited_in_vain(&self) -> Vec<(u32, u64)> {
        match self.comm.status.as_str() {
            // The detail of an abort is the caller's text.
            "TRIB_ERR_CLOSED" | "TRIB_ERR_TIMEOUT" => words::departures(&self.comm.detail),
            _ => Vec::new(),
        }
    }

    /// All ranks that are elsewhere are among its peers. Without a side channel there are none; the
    /// backend "host" has one process.
    fn knows_peers(&self) -> bool {
        self.comm.backend == "host" || !self.comm.peers.is_empty()
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
