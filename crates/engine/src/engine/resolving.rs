//! What waits for a neighbour's Ethernet address: attempts to connect, and pings. They stand with the
//! neighbour that they wait for and are looked at again when that has been heard, or will not be: a
//! turn costs nothing for those that wait, however many they are.
//!
//! *Not* here: who asks for addresses and how often, which is `interface/neighbours.rs`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use clearway_base::Time;
use clearway_channel::Code;
use clearway_transport::Owner;

use super::Core;
use super::elsewhere::Way;
use crate::channels::Link;
use crate::interface::Resolution;

/// Neighbours of which nothing is known that are asked for at the same time for one app; more of its
/// attempts fail at once. A quarter of what the cache holds without an answer, so that one app that
/// asks for silent ones does not push out those of all others.
const ASKED_MAX: usize = 256;

/// Something that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waiting {
    Connect { channel: u32, slot: u32, service_port: u16 },
    Ping { id: u64, bytes: u16 },
}

/// Where it is to go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) way: Way,
    /// The own address, with the port of daemons.
    pub(super) local: SocketAddr,
    /// The peer's daemon.
    pub(super) peer: SocketAddr,
}

/// A neighbour, on the link of one of the host's NICs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NextHop {
    way: Way,
    address: IpAddr,
}

/// All that waits.
#[derive(Debug, Default)]
pub(super) struct Resolving {
    neighbours: BTreeMap<NextHop, Neighbour>,
    /// For which of these each waits.
    waiting: BTreeMap<Waiting, NextHop>,
    /// How many of the neighbours each app has asked for.
    asked: BTreeMap<u32, usize>,
}

/// A neighbour of which an answer is expected.
#[derive(Debug)]
struct Neighbour {
    /// The app that asked for it first, if one did. It counts as its, even if it does not wait any more.
    asked_by: Option<u32>,
    waiting: BTreeMap<Waiting, Target>,
}

impl Resolving {
    /// True if the app of a channel may wait for this neighbour.
    fn allows(&self, channel: u32, next_hop: NextHop) -> bool {
        self.neighbours.contains_key(&next_hop)
            || self.asked.get(&channel).is_none_or(|count| *count < ASKED_MAX)
    }

    fn insert(&mut self, next_hop: NextHop, waiting: Waiting, target: Target) {
        let neighbour = self.neighbours.entry(next_hop).or_insert_with(|| {
            let asked_by = match waiting {
                Waiting::Connect { channel, .. } => Some(channel),
                Waiting::Ping { .. } => None,
            };
            if let Some(channel) = asked_by {
                *self.asked.entry(channel).or_default() += 1;
            }
            Neighbour { asked_by, waiting: BTreeMap::new() }
        });
        neighbour.waiting.insert(waiting, target);
        self.waiting.insert(waiting, next_hop);
    }

    /// Waits no more.
    pub(super) fn remove(&mut self, waiting: &Waiting) {
        let next_hop = self.waiting.remove(waiting);
        if let Some(neighbour) = next_hop.and_then(|next_hop| self.neighbours.get_mut(&next_hop)) {
            neighbour.waiting.remove(waiting);
        }
    }

    /// All that waits for a neighbour of which no answer is expected any more.
    fn take(&mut self, next_hop: NextHop) -> BTreeMap<Waiting, Target> {
        let Some(neighbour) = self.neighbours.remove(&next_hop) else { return BTreeMap::new() };
        if let Some(channel) = neighbour.asked_by
            && let Some(count) = self.asked.get_mut(&channel)
        {
            *count -= 1;
            if *count == 0 {
                self.asked.remove(&channel);
            }
        }
        for waiting in neighbour.waiting.keys() {
            self.waiting.remove(waiting);
        }
        neighbour.waiting
    }
}

impl Core {
    /// Where to send for `peer`. `None` if there is no route.
    pub(super) fn target(&mut self, peer: IpAddr) -> Option<Target> {
        let way = self.way_to(peer)?;
        let local = self.interface_of(way).source_for(peer)?;
        let daemon = |address| SocketAddr::new(address, self.config.udp_port);
        Some(Target { way, local: daemon(local), peer: daemon(peer) })
    }

    /// True if the app of a channel may begin to connect: the neighbour is known, or it has not asked for
    /// too many that are not.
    pub(super) fn may_resolve(&mut self, channel: u32, target: &Target) -> bool {
        let interface = self.interface_of(target.way);
        let Some(address) = interface.route(target.peer.ip()) else { return true };
        let next_hop = NextHop { way: target.way, address };
        interface.knows(address) || self.resolving.allows(channel, next_hop)
    }

    /// Goes on at once if the neighbour is known, and else when it is.
    pub(super) fn resolve(&mut self, now: Time, waiting: Waiting, target: Target) {
        let Target { way, local, peer } = target;
        let interface = self.interface_of(way);
        let next_hop = interface.route(peer.ip());
        match (interface.path(now, local, peer), next_hop) {
            (Resolution::Known(path), _) => {
                self.paths_of(way).prepare(path);
                self.begin(now, waiting, target);
            }
            (Resolution::Pending, Some(address)) => {
                self.resolving.insert(NextHop { way, address }, waiting, target);
            }
            (Resolution::Pending | Resolution::Unreachable, _) => self.give_up(waiting),
        }
    }

    /// Goes on with all that waited for neighbours that have been heard, or will not be.
    #[inline]
    pub(super) fn go_on_resolved(&mut self, now: Time) {
        while let Some((address, is_known)) = self.interface.poll_settled() {
            self.go_on(now, NextHop { way: Way::Own, address }, is_known);
        }
        for index in 0..self.elsewhere.len() {
            while let Some((address, is_known)) = self.elsewhere[index].interface.poll_settled() {
                self.go_on(now, NextHop { way: Way::Elsewhere(index), address }, is_known);
            }
        }
    }

    /// If a neighbour will not be heard, there may be another gateway.
    fn go_on(&mut self, now: Time, next_hop: NextHop, is_known: bool) {
        for (waiting, target) in self.resolving.take(next_hop) {
            let address = self.interface_of(target.way).route(target.peer.ip());
            if is_known || address != Some(next_hop.address) {
                self.resolve(now, waiting, target);
            } else {
                self.give_up(waiting);
            }
        }
    }

    fn begin(&mut self, now: Time, waiting: Waiting, target: Target) {
        let Target { local, peer, .. } = target;
        match waiting {
            Waiting::Ping { id, bytes } => self.endpoint.ping(now, id, local, peer, bytes),
            Waiting::Connect { channel, slot, service_port } => {
                let owner = Owner { channel, connection: slot };
                let Some(channel) = self.channels.channel(channel) else { return };
                let window = channel.window();
                let Some(connection) = channel.connection(slot) else { return };
                match self.endpoint.connect(now, owner, local, peer, service_port, window) {
                    Some(key) => connection.link = Link::Flow(key),
                    None => drop(channel.close(slot, Code::Limit)),
                }
            }
        }
    }

    fn give_up(&mut self, waiting: Waiting) {
        match waiting {
            Waiting::Ping { id, .. } => self.failed_pings.push((id, Code::Unreachable)),
            Waiting::Connect { channel, slot, .. } => {
                if let Some(channel) = self.channels.channel(channel) {
                    channel.close(slot, Code::Unreachable);
                }
            }
        }
    }
}
