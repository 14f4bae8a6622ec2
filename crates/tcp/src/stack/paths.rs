//! What routers have said of the ways to hosts, for connections that open later: RFC 1191, section
//! 5, and RFC 8201, section 5.2, have it kept for the path and not for one connection.

use core::net::IpAddr;
use std::collections::BTreeMap;

use clearway_base::{SECOND, Time};

/// RFC 1191, section 6.3: how long it is good for.
const KEPT_NS: u64 = 600 * SECOND;
/// As many hosts: more are not kept, and found out about anew by each connection.
const HOSTS_MAX: usize = 1024;

/// MTUs that are less than the link's, and when they were learnt.
#[derive(Debug, Default)]
pub(super) struct Paths(BTreeMap<IpAddr, (u16, Time)>);

impl Paths {
    /// The way to `host` takes packets of `mtu` bytes.
    pub(super) fn learn(&mut self, now: Time, host: IpAddr, mtu: u16) {
        if self.0.len() >= HOSTS_MAX {
            self.0.retain(|_, (_, since)| now.since(*since) < KEPT_NS);
        }
        if self.0.len() < HOSTS_MAX || self.0.contains_key(&host) {
            self.0.insert(host, (mtu, now));
        }
    }

    /// What it takes, if anybody has said.
    pub(super) fn mtu(&self, now: Time, host: IpAddr) -> Option<u16> {
        let (mtu, since) = *self.0.get(&host)?;
        (now.since(since) < KEPT_NS).then_some(mtu)
    }
}

#[cfg(test)]
mod tests {
    use super::{HOSTS_MAX, KEPT_NS, Paths};
    use clearway_base::{SECOND, Time};
    use core::net::{IpAddr, Ipv4Addr};

    fn host(number: usize) -> IpAddr {
        Ipv4Addr::from(number as u32).into()
    }

    #[test]
    fn hosts_are_few_and_forgotten_in_time() {
        let begin = Time::from_ns(SECOND);
        let mut paths = Paths::default();
        (0..=HOSTS_MAX).for_each(|number| paths.learn(begin, host(number), 1300));
        paths.learn(begin, host(0), 1200);
        assert_eq!(paths.mtu(begin, host(0)), Some(1200));
        assert_eq!(paths.mtu(begin, host(HOSTS_MAX - 1)), Some(1300));
        assert_eq!(paths.mtu(begin, host(HOSTS_MAX)), None);
        let later = begin + KEPT_NS;
        assert_eq!(paths.mtu(later, host(0)), None);
        paths.learn(later, host(HOSTS_MAX), 1300);
        assert_eq!((paths.mtu(later, host(HOSTS_MAX)), paths.0.len()), (Some(1300), 1));
    }
}
