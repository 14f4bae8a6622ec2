//! What goes through a network: as much as that has to know of it.

use std::net::{IpAddr, SocketAddr};

use clearway_wire::{Ecn, ethernet, ipv4, ipv6, protocol, udp};

/// What goes a [`crate::Way`].
pub trait Packet {
    /// What may be damaged.
    fn bytes(&mut self) -> &mut [u8];

    /// What it is as an Ethernet frame, header included.
    fn frame_bytes(&self) -> usize;

    /// Marks it "congestion experienced" if it is of an ECN-capable transport; true if so.
    fn mark(&mut self) -> bool;

    /// What a flow table has as its key; `None` if it is of no connection.
    fn connection(&self) -> Option<Connection>;
}

/// What clouds tell connections apart by: addresses, ports and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    /// Source and destination address, 4 or 16 bytes each; zeros behind.
    pub addresses: [u8; 32],
    /// Source and destination port.
    pub ports: [u8; 4],
    /// Of IP.
    pub protocol: u8,
}

/// The payload of a UDP datagram, for worlds whose hosts have no IP layer.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// Who sends it.
    pub from: SocketAddr,
    /// To whom.
    pub to: SocketAddr,
    /// Whether it may be marked, or is.
    pub ecn: Ecn,
    /// What it carries.
    pub bytes: Vec<u8>,
}

impl Packet for Datagram {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn frame_bytes(&self) -> usize {
        let ip = if self.to.is_ipv4() { ipv4::HEADER_LENGTH } else { ipv6::HEADER_LENGTH };
        ethernet::HEADER_LENGTH + ip + udp::HEADER_LENGTH + self.bytes.len()
    }

    fn mark(&mut self) -> bool {
        let is_capable = self.ecn != Ecn::NotCapable;
        if is_capable {
            self.ecn = Ecn::Marked;
        }
        is_capable
    }

    fn connection(&self) -> Option<Connection> {
        let octets = |address: SocketAddr| match address.ip() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let both = [octets(self.from), octets(self.to)].concat();
        let mut addresses = [0; 32];
        addresses[..both.len()].copy_from_slice(&both);
        let [a, b] = self.from.port().to_be_bytes();
        let [c, d] = self.to.port().to_be_bytes();
        Some(Connection { addresses, ports: [a, b, c, d], protocol: protocol::UDP })
    }
}
