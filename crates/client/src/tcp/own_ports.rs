//! Ports that a channel has taken for connecting, to whomever: each serves one connection to each
//! peer at a time.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use super::TcpPortId;

/// All of them. To find one that is free for a peer takes the same time however many connections
/// there are.
#[derive(Debug, Default)]
pub(super) struct OwnPorts {
    /// In the order in which they were taken.
    ports: Vec<TcpPortId>,
    known: HashSet<TcpPortId>,
    peers: HashMap<SocketAddr, Used>,
}

/// What of them serves a peer.
#[derive(Debug, Default)]
struct Used {
    /// The first so many have served it.
    seen: usize,
    /// Those of them that are free again.
    free: Vec<TcpPortId>,
}

impl OwnPorts {
    /// One more, which serves nobody.
    pub(super) fn add(&mut self, port: TcpPortId) {
        if self.known.insert(port) {
            self.ports.push(port);
        }
    }

    /// One that serves this peer from now on. `None` if all do so already.
    pub(super) fn take(&mut self, peer: SocketAddr) -> Option<TcpPortId> {
        let used = self.peers.entry(peer).or_default();
        let next = used.free.pop().or_else(|| {
            let next = self.ports.get(used.seen).copied()?;
            used.seen += 1;
            Some(next)
        });
        if used.seen == 0 {
            self.peers.remove(&peer);
        }
        next
    }

    /// A port serves this peer no more.
    pub(super) fn give_back(&mut self, port: TcpPortId, peer: SocketAddr) {
        if !self.known.contains(&port) {
            return;
        }
        let Some(used) = self.peers.get_mut(&peer) else { return };
        used.free.push(port);
        if used.free.len() == used.seen {
            self.peers.remove(&peer);
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
            used.free.retain(|free| *free != port);
            used.free.len() < used.seen
        });
    }
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
            for number in 0..300 {
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
                            own.give_back(port, peer);
                        }
                    }
                    2..5 if !served.is_empty() => {
                        let at = random.below(served.len() as u64) as usize;
                        let (port, peer) = served.swap_remove(at);
                        own.give_back(port, peer);
                    }
                    _ => {
                        let port = own.take(peer);
                        assert_eq!(port.is_some(), busy < ports.len(), "seed {seed}");
                        let Some(port) = port else { continue };
                        assert!(ports.contains(&port) && !served.contains(&(port, peer)));
                        served.push((port, peer));
                    }
                }
            }
            for (port, peer) in served {
                own.give_back(port, peer);
            }
            assert!(own.peers.is_empty(), "seed {seed}: {own:?}");
        }
    }
}
