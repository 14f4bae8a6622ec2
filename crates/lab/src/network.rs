//! The host's IP layer, on a link that is a point-to-point one: everything that leaves goes to the
//! tester. Packets have no Ethernet header; inside they get one, since `ip` is of a NIC.

use std::net::IpAddr;

use clearway_base::Time;
use clearway_ip::{
    Config, Interface, NetworkError, NetworkErrorKind, OWN_FRAME_BYTES_MAX, Resolution, Route,
};
use clearway_tcp::{Arrival, IcmpError, IpFields, Network, Transmit};
use clearway_wire::checksum::Sum;
use clearway_wire::ethernet::{self, MacAddress, ether_type};
use clearway_wire::{protocol, tcp};
use std::net::SocketAddr;

use crate::freebsd;

const OWN_MAC: MacAddress = [2, 0, 0, 0, 0, 1];
const PEER_MAC: MacAddress = [2, 0, 0, 0, 0, 2];

/// What a packet says to TCP.
pub(crate) enum Heard<'a> {
    Segment(Arrival, &'a [u8]),
    /// An ICMP error about a segment from the first to the second, with its sequence number.
    Error(IcmpError, SocketAddr, SocketAddr, u32),
    /// It was for the IP layer, or for nobody.
    Nothing,
    Dropped,
}

/// The interface and what it is configured with.
#[derive(Debug)]
pub(crate) struct Link {
    config: Config,
    interface: Interface,
    habits: Habits,
}

/// What is done with packets that other hosts do, too, but not all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// The options of a SYN are laid out as FreeBSD does it, and ICMP errors mean what they mean
    /// there.
    pub(crate) is_freebsd: bool,
    /// What has both SYN and FIN is dropped.
    pub(crate) drops_syn_fin: bool,
    /// ICMP errors have no effect, unless they are about the size of a packet.
    pub(crate) is_deaf: bool,
    /// Segments that leave at once, of which the last has PSH, as with Linux.
    pub(crate) burst_segments: u32,
}

impl Default for Habits {
    fn default() -> Self {
        Self { is_freebsd: false, drops_syn_fin: false, is_deaf: false, burst_segments: 2 }
    }
}

impl Link {
    pub(crate) fn new(mtu: u16) -> Self {
        let config = Config {
            mac: OWN_MAC,
            addresses: Vec::new(),
            routes: vec![
                Route::on_link(std::net::Ipv4Addr::UNSPECIFIED.into(), 0),
                Route::on_link(std::net::Ipv6Addr::UNSPECIFIED.into(), 0),
            ],
            vlan: None,
            mtu,
            mtu_max: None,
            kernel_shares: true, // nobody announces addresses to the tester
            router: Some(PEER_MAC),
            receive_checksum: false,
        };
        let interface = Interface::silent(&config);
        Self { config, interface, habits: Habits::default() }
    }

    pub(crate) fn add_address(&mut self, address: IpAddr, prefix_bits: u8) {
        self.config.addresses.push((address, prefix_bits));
        self.interface.reconfigure(&self.config);
    }

    pub(crate) fn set_mtu(&mut self, mtu: u16) {
        self.config.mtu = mtu;
        self.interface.reconfigure(&self.config);
    }

    pub(crate) fn set_habits(&mut self, habits: Habits) {
        self.habits = habits;
    }

    pub(crate) fn next_timeout(&self) -> Time {
        self.interface.poll_timeout().unwrap_or(Time::MAX)
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.interface.handle_timeout(now);
    }

    /// A packet has come, as `frame_of` makes it.
    pub(crate) fn receive<'a>(&mut self, now: Time, frame: &'a [u8]) -> Heard<'a> {
        let Ok(packet) = self.interface.packet(frame) else {
            return Heard::Dropped;
        };
        match packet.protocol {
            _ if !self.interface.is_own(packet.destination) => Heard::Dropped,
            protocol::TCP => {
                let check = tcp::Check::Addresses(packet.source, packet.destination);
                let segment = tcp::View::new(packet.payload)
                    .and_then(|view| Ok((view, tcp::Repr::parse(&view, check)?)));
                let Ok((view, repr)) = segment else {
                    return Heard::Dropped;
                };
                if self.habits.drops_syn_fin && is_syn_fin(repr.flags) {
                    return Heard::Dropped;
                }
                let arrival = Arrival {
                    from: SocketAddr::new(packet.source, repr.source_port),
                    to: SocketAddr::new(packet.destination, repr.destination_port),
                    repr,
                    payload_length: view.payload().len() as u32,
                    ecn: packet.ecn,
                };
                Heard::Segment(arrival, view.payload())
            }
            protocol::ICMPV4 | protocol::ICMPV6 => match self.interface.handle_icmp(now, frame) {
                Ok(Some(error)) => heard_error(&error, self.habits),
                Ok(None) => Heard::Nothing,
                Err(_) => Heard::Dropped,
            },
            _ => Heard::Dropped,
        }
    }

    /// The next packet of the IP layer's own.
    pub(crate) fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        let mut frame = vec![0; OWN_FRAME_BYTES_MAX];
        let length = self.interface.poll_transmit(&mut frame);
        frame.truncate(length);
        (length > ethernet::HEADER_LENGTH).then(|| frame.split_off(ethernet::HEADER_LENGTH))
    }

    /// A segment with its payload as an IP packet. `None` if there is no way.
    pub(crate) fn packet(
        &mut self,
        now: Time,
        transmit: &Transmit,
        payload: &[u8],
    ) -> Option<Vec<u8>> {
        let (from, to) = (transmit.from.ip(), transmit.to.ip());
        let Resolution::Known(path) = self.interface.path(now, from, to, protocol::TCP) else {
            return None;
        };
        let at = path.payload_offset();
        let header_length = transmit.repr.length();
        let mut frame = vec![0; at + header_length + payload.len()];
        transmit.repr.emit(&mut frame[at..]);
        if self.habits.is_freebsd {
            freebsd::rewrite(&transmit.repr, &mut frame[at..at + header_length]);
        }
        frame[at + header_length..].copy_from_slice(payload);
        tcp::fill_checksum(&mut frame[at..], addresses(from, to));
        path.emit_headers(&mut frame, header_length + payload.len(), transmit.ecn_capable);
        if transmit.ip != IpFields::default() {
            path.set_ip_fields(&mut frame, transmit.ip.hop_limit, transmit.ip.traffic_class);
        }
        Some(frame.split_off(ethernet::HEADER_LENGTH))
    }
}

impl Network for Link {
    fn is_own(&self, address: IpAddr) -> bool {
        self.interface.is_own(address)
    }

    fn route(&self, remote: IpAddr) -> Option<(IpAddr, u16)> {
        Some((self.interface.source_for(remote)?, self.interface.mtu()))
    }

    fn mtu(&self) -> u16 {
        self.interface.mtu()
    }
}

/// A packet with an Ethernet header; `None` if it is of no version of IP.
pub(crate) fn frame_of(packet: &[u8]) -> Option<Vec<u8>> {
    let ether_type = match packet.first()? >> 4 {
        4 => ether_type::IPV4,
        6 => ether_type::IPV6,
        _ => return None,
    };
    let header = ethernet::Repr { destination: OWN_MAC, source: PEER_MAC, ether_type };
    let mut frame = vec![0; header.length()];
    header.emit(&mut frame);
    frame.extend_from_slice(packet);
    Some(frame)
}

/// True if a segment says that it begins and that it ends everything, as no stack does.
fn is_syn_fin(flags: tcp::Flags) -> bool {
    flags.contains(tcp::Flags::SYN | tcp::Flags::FIN)
}

/// What an ICMP error says about a segment.
fn heard_error<'a>(error: &NetworkError<'_>, habits: Habits) -> Heard<'a> {
    let Habits { is_freebsd, is_deaf, .. } = habits;
    if is_deaf && !matches!(error.kind, NetworkErrorKind::TooLarge { .. }) {
        return Heard::Nothing;
    }
    let kind = match error.kind {
        NetworkErrorKind::TooLarge { mtu } => IcmpError::TooBig(mtu),
        NetworkErrorKind::PortUnreachable => IcmpError::Refused,
        NetworkErrorKind::Prohibited | NetworkErrorKind::UnknownProtocol if is_freebsd => {
            IcmpError::Refused
        }
        NetworkErrorKind::TimeExceeded if is_freebsd => IcmpError::Prohibited,
        NetworkErrorKind::Prohibited => IcmpError::Prohibited,
        NetworkErrorKind::Unreachable
        | NetworkErrorKind::TimeExceeded
        | NetworkErrorKind::UnknownProtocol => IcmpError::Unreachable,
    };
    // RFC 792: the ports and the sequence number are the first eight bytes.
    let Some(&[a, b, c, d, s0, s1, s2, s3]) = error.quote.first_chunk::<8>() else {
        return Heard::Dropped;
    };
    if error.protocol != protocol::TCP {
        return Heard::Nothing;
    }
    let local = SocketAddr::new(error.source, u16::from_be_bytes([a, b]));
    let remote = SocketAddr::new(error.destination, u16::from_be_bytes([c, d]));
    Heard::Error(kind, local, remote, u32::from_be_bytes([s0, s1, s2, s3]))
}

/// The part of the pseudo-header that is not of TCP.
fn addresses(from: IpAddr, to: IpAddr) -> Sum {
    let with = |sum: Sum, address| match address {
        IpAddr::V4(address) => sum.with(&std::net::Ipv4Addr::octets(&address)),
        IpAddr::V6(address) => sum.with(&std::net::Ipv6Addr::octets(&address)),
    };
    with(with(Sum::new(), from), to)
}
