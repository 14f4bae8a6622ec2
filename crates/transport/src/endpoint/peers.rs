//! What is remembered of the hosts that flows were opened to, so that the next ones open with
//! fewer packets.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use super::table::Keyed;
use crate::flow::Known;

/// Hosts that are remembered; the oldest makes room.
pub(super) const PEERS_MAX: usize = 4096;

/// The hosts that have answered a syn.
#[derive(Debug)]
pub(super) struct Peers {
    known: HashMap<IpAddr, Known, Keyed>,
    oldest_first: VecDeque<IpAddr>,
}

impl Peers {
    pub(super) fn new(keyed: Keyed) -> Self {
        Self { known: HashMap::with_hasher(keyed), oldest_first: VecDeque::new() }
    }

    pub(super) fn find(&self, peer: IpAddr) -> Option<Known> {
        self.known.get(&peer).copied()
    }

    /// The oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (IpAddr, Known)> {
        self.oldest_first.iter().filter_map(|peer| Some((*peer, self.find(*peer)?)))
    }

    pub(super) fn learn(&mut self, peer: IpAddr, known: Known) {
        if self.known.insert(peer, known).is_some() {
            return;
        }
        self.oldest_first.push_back(peer);
        if self.oldest_first.len() > PEERS_MAX
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Keyed, Known, PEERS_MAX, Peers};
    use std::net::{IpAddr, Ipv4Addr};

    #[test]
    fn the_oldest_is_forgotten() {
        let mut peers = Peers::new(Keyed(1));
        let address = |index: usize| IpAddr::from(Ipv4Addr::from_bits(index as u32));
        for index in 0..=PEERS_MAX {
            for rtt_ns in [1, 2] {
                peers.learn(address(index), Known { engines: 3, rtt_ns });
            }
        }
        assert_eq!(peers.find(address(0)), None);
        assert_eq!(peers.find(address(1)), Some(Known { engines: 3, rtt_ns: 2 }));
        assert_eq!((peers.known.len(), peers.oldest_first.len()), (PEERS_MAX, PEERS_MAX));
    }
}
