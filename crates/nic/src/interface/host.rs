//! The addresses and routes of a whole host, for a NIC that goes by all its interfaces.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;

use super::Address;
use super::facts::{address, get_route, is_tentative, mtu};
use super::netlink::Netlink;
use super::routes::{self, TableRoute};
use super::watch::GROUPS;
use crate::Error;

/// What leads out of a host, by whichever interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// The host's addresses that others can use: not 127.0.0.1 and its like, and none of a single
    /// link (RFC 4007, section 6: they mean nothing without its name).
    pub addresses: Vec<Address>,
    /// The routes of the main table. Each names its source and its MTU, where its interface has
    /// them.
    pub routes: Vec<TableRoute>,
    /// The largest packet that an interface with a route carries; 0 if there is none.
    pub mtu: usize,
}

/// A watch over all interfaces of the network namespace of the thread that opened it. Whatever it
/// needs is open from then on, so that it works in a process that is confined.
#[derive(Debug)]
pub struct HostWatch {
    questions: Netlink,
    changes: Netlink,
}

impl HostWatch {
    /// Begins to watch.
    pub fn open() -> Result<HostWatch, Error> {
        Ok(HostWatch { changes: Netlink::open(GROUPS)?, questions: Netlink::open(0)? })
    }

    /// What is true now.
    pub fn ways(&mut self) -> Result<Ways, Error> {
        self.read().map_err(|source| Error::System {
            action: "cannot read the addresses and routes of this host".into(),
            remedy: "Check with `ip address` and `ip route`".into(),
            source,
        })
    }

    fn read(&mut self) -> io::Result<Ways> {
        let netlink = &mut self.questions;
        let links = netlink.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        let addresses = netlink.dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
        let routes = netlink.dump(get_route(AddressFamily::Unspec))?;
        let mut ways = Ways::default();
        for link in links {
            if let RouteNetlinkMessage::NewLink(link) = link
                && link.header.flags.contains(LinkFlags::Up)
            {
                ways.add(&link, &addresses, &routes);
            }
        }
        Ok(ways)
    }

    /// Takes all the news. True if [`HostWatch::ways`] may be others than before.
    pub fn has_changed(&mut self) -> Result<bool, Error> {
        let mut has_changed = false;
        loop {
            match self.changes.changes() {
                Ok(None) => return Ok(has_changed),
                Ok(Some(_)) => has_changed = true,
                // Changes came faster than they were read.
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                    has_changed = true;
                }
                Err(source) => {
                    return Err(Error::System {
                        action: "cannot hear of changes of this host's network".into(),
                        remedy: "Restart the daemon to have it take note of them".into(),
                        source,
                    });
                }
            }
        }
    }
}

impl AsFd for HostWatch {
    /// Readable when there are news.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }
}

impl Ways {
    /// Adds an interface with what of these is its.
    fn add(
        &mut self,
        link: &LinkMessage,
        addresses: &[RouteNetlinkMessage],
        routes: &[RouteNetlinkMessage],
    ) {
        let index = link.header.index;
        let own: Vec<Address> = addresses.iter().filter_map(|one| usable(one, index)).collect();
        // Hosts that are routers themselves have their address there.
        if !link.header.flags.contains(LinkFlags::Loopback) {
            self.add_routes(routes::of_interface(routes, index), mtu(link), &own);
        }
        self.addresses.extend(own);
    }

    /// Adds the routes through an interface with these addresses.
    fn add_routes(&mut self, routes: Vec<TableRoute>, link_mtu: usize, own: &[Address]) {
        if !routes.is_empty() {
            self.mtu = self.mtu.max(link_mtu);
        }
        let source_to = |to: IpAddr| own.iter().map(|own| own.address).find(|own| alike(*own, to));
        self.routes.extend(routes.into_iter().map(|route| {
            let mtu = route.mtu.map_or(link_mtu, |mtu| link_mtu.min(mtu as usize));
            let source = route.source.or_else(|| source_to(route.to));
            TableRoute { mtu: u32::try_from(mtu).ok(), source, ..route }
        }));
    }
}

fn alike(one: IpAddr, other: IpAddr) -> bool {
    one.is_ipv4() == other.is_ipv4()
}

/// The address that this is about, if others can use it.
fn usable(message: &RouteNetlinkMessage, index: u32) -> Option<Address> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return None };
    let of_a_link = |address: IpAddr| match address {
        IpAddr::V4(ip) => Ipv4Addr::is_link_local(&ip),
        IpAddr::V6(ip) => Ipv6Addr::is_unicast_link_local(&ip),
    };
    let usable = message.header.index == index && !is_tentative(message);
    let found = usable.then(|| address(message)).flatten();
    found.filter(|own| !of_a_link(own.address) && !own.address.is_loopback())
}
