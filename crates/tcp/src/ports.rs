//! Source ports: RFC 6056, section 3.3.4, "double-hash port selection".

use core::net::{IpAddr, SocketAddr};

use crate::isn::{Secret, Use};
use crate::tuple::bits;

/// Counters, each for some of the destinations: who sees the ports of one learns little of others.
#[derive(Debug)]
pub(crate) struct Ports {
    first: u16,
    count: u16,
    counters: [u16; COUNTERS],
}

const COUNTERS: usize = 256;

impl Ports {
    pub(crate) fn new((first, last): (u16, u16)) -> Self {
        let first = first.max(1);
        let count = last.max(first) - first;
        Self { first, count: count.saturating_add(1), counters: [0; COUNTERS] }
    }

    /// A port from which `remote` can be reached and that `is_free`.
    pub(crate) fn choose(
        &mut self,
        secret: &Secret,
        local: IpAddr,
        remote: SocketAddr,
        is_free: impl Fn(u16) -> bool,
    ) -> Option<u16> {
        let of = (bits(local), bits(remote.ip()), remote.port());
        let offset = secret.hash(Use::PortOffset, &of) as u16;
        let counter = secret.hash(Use::PortCounter, &of) as usize % COUNTERS;
        (0..self.count).find_map(|_| {
            let at = u32::from(offset) + u32::from(self.counters[counter]);
            self.counters[counter] = self.counters[counter].wrapping_add(1);
            let port = self.first + (at % u32::from(self.count)) as u16;
            is_free(port).then_some(port)
        })
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, SocketAddr};
    use std::collections::HashSet;

    use super::Ports;
    use crate::isn::Secret;

    const LOCAL: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 1));

    fn remote(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 1, last], 80))
    }

    /// RFC 6056, section 3.3.4: to one destination a port is not used again before all others were;
    /// where it begins differs by destination and secret.
    #[test]
    fn every_port_once_from_where_nobody_knows() {
        let mut firsts = HashSet::new();
        for secret in [[1; 16], [2; 16]].map(Secret::new) {
            for last in 0..100 {
                let mut ports = Ports::new((1000, 1999));
                let mut choose = || ports.choose(&secret, LOCAL, remote(last), |_| true).unwrap();
                let chosen: Vec<u16> = (0..1000).map(|_| choose()).collect();
                assert!(chosen.iter().all(|port| (1000..=1999).contains(port)));
                assert_eq!(chosen.iter().collect::<HashSet<_>>().len(), 1000);
                firsts.insert(chosen[0]);
            }
        }
        assert!(firsts.len() > 150, "{} of 200 beginnings", firsts.len());
    }

    #[test]
    fn the_last_free_port_is_found_and_then_none() {
        let secret = Secret::new([1; 16]);
        let mut ports = Ports::new((1000, 1999));
        let chosen = ports.choose(&secret, LOCAL, remote(1), |port| port == 1234);
        assert_eq!(chosen, Some(1234));
        assert_eq!(ports.choose(&secret, LOCAL, remote(1), |_| false), None);
    }
}
