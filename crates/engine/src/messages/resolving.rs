//! What waits for a neighbour's Ethernet address: attempts to connect, and pings. They stand with
//! the neighbour that they wait for and are looked at again when that has been heard, or will not
//! be: a turn costs nothing for those that wait, however many they are.
//!
//! *Not* here: who asks for addresses and how often, which is `ip/src/neighbours.rs`.

mod state;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use clearway_base::Time;
use clearway_channel::Code;
use clearway_transport::{Owner, StreamKey};
use serde::{Deserialize, Serialize};

use super::Messages;
use super::shared::SharedWay;
use crate::channels::Bearer;
use crate::common::Common;
use crate::control::PingFailure;
use crate::host::Nic;
use crate::ip::Resolution;
pub use state::{NeighbourState, ResolvingState};

/// Neighbours of which nothing is known that are asked for at the same time for apps: as many as
/// the cache holds without an answer (`UNANSWERED_MAX` of `ip/src/neighbours.rs`), or the oldest
/// would be pushed out.
const ASKED_MAX: usize = 1024;
/// Attempts that go on in one turn. All that an app has may wait for one gateway.
const GO_ON_PER_TURN: usize = 32;

/// Something that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Waiting {
    /// The connection in a slot of a channel, to this port.
    Connect {
        /// See `Connect`.
        channel: u32,
        /// See `Connect`.
        slot: u32,
        /// See `Connect`.
        service_port: u16,
    },
    /// A ping, of so many bytes.
    Ping {
        /// What the control plane calls it.
        id: u64,
        /// See `Ping`.
        bytes: u16,
    },
}

/// Where it is to go.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    pub(super) nic: Nic,
    /// The own address, with the port of daemons.
    pub(super) local: SocketAddr,
    /// The peer's daemon.
    pub(super) peer: SocketAddr,
}

/// A neighbour, on the link of one of the host's NICs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NextHop {
    nic: Nic,
    address: IpAddr,
}

/// All that waits.
#[derive(Debug, Default)]
pub(crate) struct Resolving {
    neighbours: BTreeMap<NextHop, Neighbour>,
    /// For which of these each waits.
    waiting: BTreeMap<Waiting, NextHop>,
    /// How many of the neighbours each user has asked for, and all together.
    asked: BTreeMap<u32, usize>,
    asked_total: usize,
    /// Those whose neighbour has been heard, or will not be.
    settled: BTreeMap<Waiting, Settled>,
}

/// What came of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    target: Target,
    next_hop: NextHop,
    is_known: bool,
}

/// A neighbour of which an answer is expected.
#[derive(Debug)]
struct Neighbour {
    /// The user whose app asked for it first, if one did. It counts as its, even if it does not
    /// wait any more.
    asked_by: Option<u32>,
    waiting: BTreeMap<Waiting, Target>,
}

impl Resolving {
    /// True if an app of this user may wait for this neighbour. A user may ask for half of what the
    /// others leave, so that there is always room for one more: as for memory in
    /// `transport::Unfinished`.
    fn allows(&self, user: u32, next_hop: NextHop) -> bool {
        let asked = self.asked.get(&user).copied().unwrap_or(0);
        let others = self.asked_total - asked;
        self.neighbours.contains_key(&next_hop) || asked < ASKED_MAX.saturating_sub(others) / 2
    }

    fn insert(&mut self, next_hop: NextHop, waiting: Waiting, target: Target, user: Option<u32>) {
        let neighbour = self.neighbours.entry(next_hop).or_insert_with(|| {
            if let Some(user) = user {
                *self.asked.entry(user).or_default() += 1;
                self.asked_total += 1;
            }
            Neighbour { asked_by: user, waiting: BTreeMap::new() }
        });
        neighbour.waiting.insert(waiting, target);
        self.waiting.insert(waiting, next_hop);
    }

    /// Waits no more.
    pub(super) fn remove(&mut self, waiting: &Waiting) {
        self.settled.remove(waiting);
        let next_hop = self.waiting.remove(waiting);
        if let Some(neighbour) = next_hop.and_then(|next_hop| self.neighbours.get_mut(&next_hop)) {
            neighbour.waiting.remove(waiting);
        }
    }

    /// Goes on as if its neighbour had just been heard. False if there is no route to it.
    pub(super) fn go_on_soon(
        &mut self,
        common: &mut Common,
        waiting: Waiting,
        target: Target,
    ) -> bool {
        let Target { nic, peer, .. } = target;
        let Some(address) = common.host.interface(nic).route(peer.ip()) else { return false };
        let next_hop = NextHop { nic, address };
        self.settled.insert(waiting, Settled { target, next_hop, is_known: true });
        true
    }

    /// No answer of a neighbour is expected any more.
    fn settle(&mut self, next_hop: NextHop, is_known: bool) {
        let Some(neighbour) = self.neighbours.remove(&next_hop) else { return };
        if let Some(user) = neighbour.asked_by
            && let Some(count) = self.asked.get_mut(&user)
        {
            *count -= 1;
            self.asked_total -= 1;
            if *count == 0 {
                self.asked.remove(&user);
            }
        }
        for (waiting, target) in neighbour.waiting {
            self.waiting.remove(&waiting);
            self.settled.insert(waiting, Settled { target, next_hop, is_known });
        }
    }

    /// Whether what each neighbour and each user is said to have adds up.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let waiting: usize = self.neighbours.values().map(|n| n.waiting.len()).sum();
        if waiting != self.waiting.len() {
            return Err(format!("{} attempts wait, {waiting} at neighbours", self.waiting.len()));
        }
        let asked: usize = self.asked.values().sum();
        let of_users = self.neighbours.values().filter(|n| n.asked_by.is_some()).count();
        if asked != of_users || self.asked_total != of_users {
            let total = self.asked_total;
            return Err(format!(
                "{of_users} neighbours asked for, {asked} by user, {total} in all"
            ));
        }
        Ok(())
    }

    /// How many attempts wait, and neighbours for which somebody did.
    pub(crate) fn count(&self) -> usize {
        self.waiting.len() + self.settled.len() + self.neighbours.len()
    }

    /// True if some are to go on that waited.
    #[inline]
    fn has_settled(&self) -> bool {
        !self.settled.is_empty()
    }
}

impl Messages {
    /// Where to send for `peer`. `None` if there is no route.
    pub(super) fn target(&self, common: &mut Common, peer: IpAddr) -> Option<Target> {
        let nic = common.host.nic_to(peer)?;
        let local = common.host.interface(nic).source_for(peer)?;
        let daemon = |address| SocketAddr::new(address, self.udp_port);
        Some(Target { nic, local: daemon(local), peer: daemon(peer) })
    }

    /// True if the app of a channel may begin to connect: the neighbour is known, or it has not
    /// asked for too many that are not.
    pub(super) fn may_resolve(&self, common: &mut Common, channel: u32, target: &Target) -> bool {
        let user = common.channels.peek(channel).map_or(0, |channel| channel.user);
        let interface = common.host.interface(target.nic);
        let Some(address) = interface.route(target.peer.ip()) else { return true };
        let next_hop = NextHop { nic: target.nic, address };
        interface.knows(address) || self.resolving.allows(user, next_hop)
    }

    /// Goes on at once if the neighbour is known, and else when it is.
    pub(super) fn resolve(
        &mut self,
        common: &mut Common,
        now: Time,
        waiting: Waiting,
        target: Target,
    ) {
        let Target { nic, local, peer } = target;
        let interface = common.host.interface(nic);
        let next_hop = interface.route(peer.ip());
        match (interface.udp_path(now, local, peer), next_hop) {
            (Resolution::Known(path), _) => {
                self.paths_over(nic).prepare(path);
                self.begin(common, now, waiting, target);
            }
            (Resolution::Pending, Some(address)) => {
                let user = user_of(common, waiting);
                self.resolving.insert(NextHop { nic, address }, waiting, target, user);
            }
            (Resolution::Pending | Resolution::Unreachable, _) => self.give_up(common, waiting),
        }
    }

    /// Goes on with what waited for neighbours that have been heard, or will not be. Returns how
    /// many attempts that was.
    #[inline]
    pub(super) fn go_on_resolved(&mut self, common: &mut Common, now: Time) -> usize {
        if !common.channels.unshared.is_empty() {
            self.begin_unshared(common);
        }
        while let Some((nic, address, is_known)) = common.host.poll_settled() {
            self.resolving.settle(NextHop { nic, address }, is_known);
        }
        if self.resolving.has_settled() { self.go_on_settled(common, now) } else { 0 }
    }

    #[cold]
    fn go_on_settled(&mut self, common: &mut Common, now: Time) -> usize {
        for taken in 0..GO_ON_PER_TURN {
            let Some((waiting, settled)) = self.resolving.settled.pop_first() else { return taken };
            self.go_on(common, now, waiting, settled);
        }
        GO_ON_PER_TURN
    }

    /// If a neighbour will not be heard, there may be another gateway.
    fn go_on(&mut self, common: &mut Common, now: Time, waiting: Waiting, settled: Settled) {
        let Settled { target, next_hop, is_known } = settled;
        let address = common.host.interface(target.nic).route(target.peer.ip());
        if is_known || address != Some(next_hop.address) {
            self.resolve(common, now, waiting, target);
        } else {
            self.give_up(common, waiting);
        }
    }

    fn begin(&mut self, common: &mut Common, now: Time, waiting: Waiting, target: Target) {
        let Target { local, peer, .. } = target;
        match waiting {
            Waiting::Ping { id, bytes } => self.endpoint.ping(now, id, local, peer, bytes),
            Waiting::Connect { channel, slot, service_port } => {
                let owner = Owner { channel, connection: slot };
                let Some(channel) = common.channels.channel(channel) else { return };
                let (window, user) = (channel.window(), channel.user);
                let Some(connection) = channel.connection(slot) else { return };
                let key = if connection.shares {
                    let way = SharedWay { user, local, peer, service_port };
                    self.connect_shared(now, owner, way, window)
                } else {
                    let endpoint = &mut self.endpoint;
                    let flow = endpoint.connect(now, owner, local, peer, service_port, window);
                    flow.map(StreamKey::from)
                };
                match key {
                    Some(key) => connection.bearer = Bearer::Flow(key),
                    None => drop(channel.close(slot, Code::Limit)),
                }
            }
        }
    }

    pub(super) fn give_up(&mut self, common: &mut Common, waiting: Waiting) {
        match waiting {
            Waiting::Ping { id, .. } => self.failed_pings.push((id, PingFailure::NoNeighbour)),
            Waiting::Connect { channel, slot, .. } => {
                if let Some(channel) = common.channels.channel(channel) {
                    channel.close(slot, Code::Unreachable);
                }
            }
        }
    }
}

/// Whose app waits; `None` for the control plane.
fn user_of(common: &Common, waiting: Waiting) -> Option<u32> {
    match waiting {
        Waiting::Connect { channel, .. } => Some(common.channels.peek(channel)?.user),
        Waiting::Ping { .. } => None,
    }
}
