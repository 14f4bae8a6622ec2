//! Source ports: RFC 6056, section 3.3.4, "double-hash port selection".

use core::net::{IpAddr, SocketAddr};

use crate::isn::{Secret, Use};
use crate::table::bits;

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
