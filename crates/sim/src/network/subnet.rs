//! Where ports are: parts of the network that a router joins, and the addresses of hosts in them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clearway_engine::ip::Route;
use clearway_nic::MacAddress;

/// The last two octets of the router's addresses: no host has them.
const ROUTER: u16 = 0xfffe;

/// A part of the network: what reaches each other without the router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subnet {
    /// It stands in all its addresses.
    pub(crate) number: u8,
    /// What its frames are tagged with.
    pub(crate) vlan: Option<u16>,
}

/// Which versions of IP a host speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Versions {
    V4,
    V6,
    Both,
}

impl Versions {
    pub(crate) fn speaks(self, address: IpAddr) -> bool {
        match self {
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
            Self::Both => true,
        }
    }
}

impl Subnet {
    fn v4(self, number: u16) -> IpAddr {
        let [high, low] = number.to_be_bytes();
        Ipv4Addr::new(10, 7 + self.number, high, low).into()
    }

    fn v6(self, number: u16) -> IpAddr {
        Ipv6Addr::new(0xfd00, 0, 0, self.number.into(), 0, 0, 1, number).into()
    }

    /// The address of the router here, of each version.
    pub(super) fn router(self) -> [IpAddr; 2] {
        [self.v4(ROUTER), self.v6(ROUTER)]
    }

    /// Its Ethernet address here.
    pub(super) const fn router_mac(self) -> MacAddress {
        [2, 2, 0, 0, 0, self.number]
    }

    /// The addresses at a port, each with the length of the prefix that is on the link.
    pub(crate) fn addresses(self, port: usize, versions: Versions) -> Vec<(IpAddr, u8)> {
        let number = port as u16 + 1;
        let both = [(self.v4(number), 16), (self.v6(number), 64)];
        both.into_iter().filter(|(address, _)| versions.speaks(*address)).collect()
    }

    /// The way to all others.
    pub(crate) fn routes(self, versions: Versions) -> Vec<Route> {
        let both = self.router().into_iter().filter(|router| versions.speaks(*router));
        both.map(Route::default_via).collect()
    }

    /// True if who is at this port would have this address here.
    pub(super) fn has(self, port: usize, address: IpAddr) -> bool {
        self.addresses(port, Versions::Both).iter().any(|(own, _)| *own == address)
    }
}

/// The port whose address this is, if it is one of a host.
pub(crate) fn port_of(address: IpAddr) -> Option<usize> {
    let number = match address {
        IpAddr::V4(address) => address.to_bits() as u16,
        IpAddr::V6(address) => address.to_bits() as u16,
    };
    Some(usize::from(number.checked_sub(1)?))
}
