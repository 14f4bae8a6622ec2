//! Ports that a channel has taken for connecting, to whomever: each serves one connection to each
//! peer at a time.
//!
//! Where a NIC has several queues, what a peer sends comes to this engine's or to another's, as the
//! port has it; nobody can foresee which. So ports are tried: those whose replies came straight
//! serve that peer again, others only when enough have been tried.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::TcpPortId;

/// All of them. To find one that is free for a peer takes the same time however many connections
/// there are.
#[derive(Debug, Default)]
pub(super) struct OwnPorts {
    /// In the order in which they were taken.
    ports: Vec<TcpPortId>,
    known: HashSet<TcpPortId>,
    peers: HashMap<SocketAddr, Used>,
    /// How many peers there were when those without a port were last forgotten.
    peers_then: usize,
}

/// What of them serves a peer.
#[derive(Debug, Default)]
struct Used {
    /// The first so many have served it.
    seen: usize,
    /// Those of them that are free again.
    free: Free,
    /// The same of those whose replies took a detour.
    strays: Free,
}

/// Ports that are free again, and since when: the first to be so first.
#[derive(Debug, Default)]
struct Free(VecDeque<(TcpPortId, Instant)>);

/// For so long a port serves a peer no more after its connection to it has ended: until the new one
/// has a later timestamp than the old one. A peer that has closed first, and is in TIME-WAIT, takes
/// no other for new (RFC 6191, section 2), and its host's clock of timestamps ticks once a
/// millisecond; another is for what the engine's reading of the clock is late.
const REST: Duration = Duration::from_millis(2);
/// Ports that are tried before one whose replies take a detour is used again. Of a NIC of four
/// queues, each of which is an engine's, one channel in ten finds none among so many.
const TRIED: usize = 8;
/// Peers without a port are forgotten when there are twice as many peers as then, and so many more.
const PEERS_SPARE: usize = 64;

impl OwnPorts {
    /// One more, which serves nobody.
    pub(super) fn add(&mut self, port: TcpPortId) {
        if self.known.insert(port) {
            self.ports.push(port);
        }
    }

    /// One that serves this peer from now on. `None` if all do so already, or have just done so.
    pub(super) fn take(&mut self, peer: SocketAddr, now: Instant) -> Option<TcpPortId> {
        let used = self.peers.entry(peer).or_default();
        let next = used.free.rested(now).or_else(|| {
            let next = self.ports.get(used.seen).copied()?;
            used.seen += 1;
            Some(next)
        });
        let has_tried = self.ports.len() >= TRIED;
        let next = next.or_else(|| if has_tried { used.strays.rested(now) } else { None });
        if used.seen == 0 {
            self.peers.remove(&peer);
        }
        next
    }

    /// The same, of those that have not rested, or whose replies take a detour: if there is no
    /// other.
    pub(super) fn take_early(&mut self, peer: SocketAddr) -> Option<TcpPortId> {
        let Used { free, strays, .. } = self.peers.get_mut(&peer)?;
        free.0.pop_front().or_else(|| strays.0.pop_front()).map(|(port, _)| port)
    }

    /// A port serves this peer no more. Replies to it took a detour, or did not.
    pub(super) fn give_back(
        &mut self,
        port: TcpPortId,
        peer: SocketAddr,
        is_detour: bool,
        now: Instant,
    ) {
        if !self.known.contains(&port) {
            return;
        }
        let Some(used) = self.peers.get_mut(&peer) else { return };
        let free = if is_detour { &mut used.strays } else { &mut used.free };
        free.0.push_back((port, now));
        if self.peers.len() > 2 * self.peers_then + PEERS_SPARE {
            self.peers.retain(|_, used| !used.is_over(now));
            self.peers_then = self.peers.len();
        }
    }

    /// A port is the channel's no more.
    pub(super) fn remove(&mut self, port: TcpPortId) {
        if !self.known.remove(&port) {
            return;
        }
        let Some(at) = self.ports.iter().position(|own| *own == port) else { return };
        self.ports.remove(at);
        self.peers.retain(|_, used| {
            used.seen -= usize::from(at < used.seen);
            used.free.0.retain(|(free, _)| *free != port);
            used.strays.0.retain(|(free, _)| *free != port);
            used.seen > 0
        });
    }
}

impl Used {
    /// No port serves the peer, and all have rested.
    fn is_over(&self, now: Instant) -> bool {
        let free = [&self.free, &self.strays];
        let count: usize = free.iter().map(|free| free.0.len()).sum();
        count == self.seen && free.iter().all(|free| free.have_rested(now))
    }
}

impl Free {
    /// The first, if it has rested.
    fn rested(&mut self, now: Instant) -> Option<TcpPortId> {
        let (_, since) = self.0.front()?;
        if has_rested(*since, now) { self.0.pop_front().map(|(port, _)| port) } else { None }
    }

    fn have_rested(&self, now: Instant) -> bool {
        self.0.back().is_none_or(|(_, since)| has_rested(*since, now))
    }
}

fn has_rested(since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) >= REST
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_base::Random;

    /// Against a list of who serves whom.
    #[test]
    fn a_port_serves_a_peer_once_at_a_time() {
        let peers: Vec<SocketAddr> =
            (1..5).map(|host| SocketAddr::from(([10, 0, 0, host], 80))).collect();
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let (mut own, mut ports, mut served) = (OwnPorts::default(), vec![], vec![]);
            let mut now = Instant::now();
            for number in 0..300 {
                now += REST; // all that are free have rested
                let peer = peers[random.below(4) as usize];
                let busy = served.iter().filter(|(_, to)| *to == peer).count();
                match random.below(8) {
                    0 => {
                        own.add(TcpPortId(number));
                        ports.push(TcpPortId(number));
                    }
                    1 if !ports.is_empty() => {
                        let port = ports.swap_remove(random.below(ports.len() as u64) as usize);
                        own.remove(port);
                        // Those that it served end later.
                        for (_, peer) in served.extract_if(.., |(at, _)| *at == port) {
                            own.give_back(port, peer, random.chance(1, 3), now);
                        }
                    }
                    2..5 if !served.is_empty() => {
                        let at = random.below(served.len() as u64) as usize;
                        let (port, peer) = served.swap_remove(at);
                        own.give_back(port, peer, random.chance(1, 3), now);
                    }
                    _ => {
                        let port = own.take(peer, now).or_else(|| own.take_early(peer));
                        assert_eq!(port.is_some(), busy < ports.len(), "seed {seed}");
                        let Some(port) = port else { continue };
                        assert!(ports.contains(&port) && !served.contains(&(port, peer)));
                        served.push((port, peer));
                    }
                }
            }
            for (port, peer) in served {
                own.give_back(port, peer, false, now);
            }
            now += REST;
            assert!(own.peers.values().all(|used| used.is_over(now)), "seed {seed}: {own:?}");
        }
    }

    /// A peer that is in TIME-WAIT takes no connection from the same port whose timestamps are not
    /// later: a port that has just served it serves others, and it again when that is sure.
    #[test]
    fn a_port_that_has_served_a_peer_rests_from_it() {
        let [peer, other] = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 80)));
        let (mut own, now) = (OwnPorts::default(), Instant::now());
        let [first, second] = [1, 2].map(TcpPortId);
        own.add(first);
        assert_eq!(own.take(peer, now), Some(first));
        own.give_back(first, peer, false, now);
        let almost = now + REST - Duration::from_nanos(1);
        assert_eq!(own.take(peer, almost), None);
        assert_eq!(own.take(other, now), Some(first));
        own.add(second);
        assert_eq!(own.take(peer, almost), Some(second));
        assert_eq!(own.take(peer, now + REST), Some(first));
        // Where there can be no more ports, the one that has rested longest.
        own.give_back(second, peer, false, now);
        own.give_back(first, peer, false, now + REST);
        assert_eq!(own.take(peer, now), None);
        assert_eq!(own.take_early(peer), Some(second));
    }

    /// Who connects to ever new peers remembers few of them, and rarely looks through them.
    #[test]
    fn peers_of_the_past_are_forgotten() {
        let (mut own, mut now) = (OwnPorts::default(), Instant::now());
        own.add(TcpPortId(1));
        for host in 0..10_000u32 {
            let peer = SocketAddr::from((host.to_be_bytes(), 80));
            assert!(own.take(peer, now).is_some());
            own.give_back(TcpPortId(1), peer, false, now);
            now += REST;
            assert!(own.peers.len() <= PEERS_SPARE + 2, "{}", own.peers.len());
        }
    }

    /// A port whose replies came straight serves its peer again; others are asked for while there
    /// are few, and what took a detour to one peer may not to another.
    #[test]
    fn ports_whose_replies_come_straight_are_sought() {
        let [peer, other] = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 80)));
        let (mut own, mut now) = (OwnPorts::default(), Instant::now());
        let mut serve = |own: &mut OwnPorts, peer, is_detour| {
            now += REST;
            let port = own.take(peer, now)?;
            own.give_back(port, peer, is_detour, now);
            Some(port)
        };
        for number in 0..3 {
            let port = TcpPortId(number);
            assert_eq!(serve(&mut own, peer, true), None, "none, or it took a detour");
            own.add(port);
            assert_eq!(serve(&mut own, peer, true), Some(port));
        }
        own.add(TcpPortId(3));
        for _ in 0..2 {
            assert_eq!(serve(&mut own, peer, false), Some(TcpPortId(3)), "it came straight");
        }
        assert_eq!(serve(&mut own, other, false), Some(TcpPortId(0)));
        // The NIC spreads in another way now.
        assert_eq!(serve(&mut own, peer, true), Some(TcpPortId(3)));
        assert_eq!(serve(&mut own, peer, true), None);
        for number in 4..TRIED as u32 {
            own.add(TcpPortId(number));
            assert_eq!(serve(&mut own, peer, true), Some(TcpPortId(number)));
        }
        assert_eq!(serve(&mut own, peer, true), Some(TcpPortId(0)), "there is none better");
        assert_eq!(serve(&mut own, peer, false), Some(TcpPortId(1)));
        assert_eq!(serve(&mut own, peer, false), Some(TcpPortId(1)), "it came straight");
    }
}
