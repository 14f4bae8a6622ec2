//! A host's IP layer, without I/O: what a frame for this host says, which Ethernet address a peer
//! has, and the headers of what is sent, whichever protocol is on top.
//!
//! ```text
//!            frame                               path + payload
//!              │                                       │
//!   packet, datagram,                            emit_headers ──▶ frame
//!   handle_arp, handle_icmp ──▶ Packet,                ▲
//!        │     │                Datagram,              │ template
//!        │     └─▶ DropReason   NetworkError          path ◀── route, neighbours
//!        ▼                                                          │
//!      outbox (ARP, NDP, echo answers)                              │
//!        └──────────▶ poll_transmit ◀── questions ──────────────────┘
//! ```
//!
//! Fragments of what others send are put together, within bounds (`reassembly`): who refuses a
//! frame because it has one hands it to [`Interface::handle_fragment`]. This host sends none but
//! answers to echo requests that are longer than a packet of the link.
//!
//! Not here: which frames are for this host, and for which of its protocols (the engine's switch);
//! what the protocols on top make of them; and the NIC. Addresses, routes and neighbours of an
//! interface that the kernel shares are the kernel's: whoever can ask it answers
//! [`Interface::poll_wanted`] with [`Interface::learn`].
#![forbid(unsafe_code)]

mod addresses;
mod answers;
mod conflicts;
mod drops;
mod fragmenting;
mod head;
mod neighbours;
mod outbox;
mod path;
mod reassembly;
mod receive;
mod routes;
mod state;
#[cfg(test)]
mod tests;
mod too_large;

pub use answers::ALL_NODES;
pub use conflicts::Conflict;
pub use drops::{DropReason, Drops};
pub use head::{Head, SegmentHead};
pub use outbox::FRAME_BYTES_MAX as OWN_FRAME_BYTES_MAX;
pub use path::{Path, UdpPath};
pub use receive::{Datagram, NetworkError, NetworkErrorKind, Packet, QuotedDatagram};
pub use routes::{Rank, Route};
pub use state::InterfaceState;

use addresses::Addresses;
use clearway_base::{SECOND, Time, TokenBucket};
use clearway_wire::{MacAddress, protocol, udp};
use conflicts::Conflicts;
use core::net::{IpAddr, SocketAddr};
use neighbours::Neighbours;
use outbox::Outbox;
use reassembly::Reassembly;

/// Answers to echo requests, and refusals of datagrams, per second.
const ECHO_ANSWERS_PER_SECOND: u32 = 1000;
/// Answers to ARP requests and neighbour solicitations per second. Counted apart, so that a flood
/// of pings cannot make the host unreachable.
const NEIGHBOUR_ANSWERS_PER_SECOND: u32 = 1000;
/// ICMP errors per second that are looked at where the kernel shares the addresses: they may all be
/// about packets of its programs. What that costs is less than a hundredth of an engine's time.
const UNDELIVERED_PER_SECOND: u32 = 10_000;

/// What an interface is given by the configuration or the kernel, both of which have checked it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The NIC's Ethernet address.
    pub mac: MacAddress,
    /// The host's own addresses, each with the length of the prefix that is on the link.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Where packets go that are for none of the networks of those addresses.
    pub routes: Vec<Route>,
    /// The VLAN that all frames are tagged with.
    pub vlan: Option<u16>,
    /// The largest IP packet.
    pub mtu: u16,
    /// What the NIC takes, if that is more: so large packets may become, once the other end of the
    /// link says that it takes them, too.
    pub mtu_max: Option<u16>,
    /// The kernel answers for these addresses and knows the neighbours.
    pub kernel_shares: bool,
    /// Who takes all packets, whatever their next hop, and is never asked for: the kernel, where it
    /// routes them itself.
    pub router: Option<MacAddress>,
    /// The NIC drops frames with a wrong IPv4 or UDP checksum itself.
    pub receive_checksum: bool,
}

/// The answer to where something goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution<T> {
    /// There.
    Known(T),
    /// Being asked for; try again when a frame has arrived or a timer has fired.
    Pending,
    /// No route, or nobody answers for it.
    Unreachable,
}

impl<T> Resolution<T> {
    /// The same answer about something that follows from it.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Resolution<U> {
        match self {
            Self::Known(known) => Resolution::Known(change(known)),
            Self::Pending => Resolution::Pending,
            Self::Unreachable => Resolution::Unreachable,
        }
    }
}

/// The IP layer of one NIC. Calls, in any order: for each frame the one that its protocol asks for,
/// [`Interface::handle_timeout`] when [`Interface::poll_timeout`] says so, and
/// [`Interface::poll_transmit`] until it returns 0 once per turn.
#[derive(Debug)]
pub struct Interface {
    mac: MacAddress,
    vlan: Option<u16>,
    mtu: u16,
    kernel_shares: bool,
    is_spokesman: bool,
    verify_checksums: bool,
    addresses: Addresses,
    neighbours: Neighbours,
    outbox: Outbox,
    echo_answers: TokenBucket,
    neighbour_answers: TokenBucket,
    undelivered: TokenBucket,
    drops: Drops,
    conflicts: Conflicts,
    reassembly: Reassembly,
}

impl Interface {
    /// An interface that knows no neighbour yet.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let Config { mac, vlan, mtu, kernel_shares, receive_checksum, .. } = *config;
        Self {
            mac,
            vlan,
            mtu,
            kernel_shares,
            is_spokesman: true,
            verify_checksums: !receive_checksum,
            addresses: Addresses::new(config),
            neighbours: Neighbours::new(config.router),
            outbox: Outbox::new(),
            echo_answers: TokenBucket::new(ECHO_ANSWERS_PER_SECOND),
            neighbour_answers: TokenBucket::new(NEIGHBOUR_ANSWERS_PER_SECOND),
            undelivered: TokenBucket::new(UNDELIVERED_PER_SECOND),
            drops: Drops::default(),
            conflicts: Conflicts::default(),
            reassembly: Reassembly::default(),
        }
    }

    /// The same, of an engine that is not the first of its NIC, or not of its NIC at all: another
    /// one announces the host's addresses, and tells of conflicts.
    #[must_use]
    pub fn silent(config: &Config) -> Self {
        Self { is_spokesman: false, ..Self::new(config) }
    }

    /// The network has changed, or the NIC has become another one: takes what `config` says, but
    /// for the router. What is known of neighbours stays; new addresses are announced. Packets to
    /// addresses that are not the host's any more are nobody's from now on.
    pub fn reconfigure(&mut self, config: &Config) {
        let before = core::mem::replace(&mut self.addresses, Addresses::new(config));
        (self.mac, self.vlan, self.mtu) = (config.mac, config.vlan, config.mtu);
        self.kernel_shares = config.kernel_shares;
        self.verify_checksums = !config.receive_checksum;
        self.neighbours.forget_paths();
        let added: Vec<IpAddr> =
            self.addresses.iter().filter(|address| !before.is_own(*address)).collect();
        self.announce(&added);
    }

    /// The addresses of the host's other NICs, which nobody on this NIC's link can send from. To be
    /// said again after [`Interface::reconfigure`].
    pub fn set_elsewhere(&mut self, addresses: &[IpAddr]) {
        self.addresses.set_elsewhere(addresses);
    }

    /// The host's own addresses on this NIC.
    pub fn own_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter()
    }

    /// The NIC's Ethernet address.
    #[must_use]
    pub fn mac(&self) -> MacAddress {
        self.mac
    }

    /// The largest IP packet of the link.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Counts a frame that was for this host and is dropped.
    pub fn count_drop(&mut self, reason: DropReason) {
        self.drops.count(reason);
    }

    /// What was dropped so far, by reason.
    #[must_use]
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// True if `address` is one of the host's own.
    #[must_use]
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.addresses.is_own(address)
    }

    /// The own address to send to `destination` from. `None` if there is no route.
    #[must_use]
    pub fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        self.addresses.source_for(destination, self.best_route(destination)?)
    }

    /// How good the way to `destination` is, to be held against those of other interfaces: the
    /// lowest is the best. `None` if there is no route.
    #[must_use]
    pub fn rank(&self, destination: IpAddr) -> Option<Rank> {
        self.best_route(destination).map(Route::rank)
    }

    /// The address on the link that packets for `destination` are handed to: itself, or a gateway.
    /// `None` if there is neither, or if it is no address of one other host.
    #[must_use]
    pub fn route(&self, destination: IpAddr) -> Option<IpAddr> {
        self.best_route(destination).map(|route| route.next_hop(destination))
    }

    /// The first of the best routes whose next hop is not known to be silent (RFC 1122, section
    /// 3.3.1.5: "The IP layer MUST be able to detect [...] a first-hop gateway that has failed").
    /// If all are, the first.
    fn best_route(&self, destination: IpAddr) -> Option<&Route> {
        let mut routes = self.addresses.routes(destination);
        let first = routes.next()?;
        let is_silent = |route: &Route| self.neighbours.is_silent(route.next_hop(destination));
        if !is_silent(first) {
            return Some(first);
        }
        Some(routes.find(|route| !is_silent(route)).unwrap_or(first))
    }

    /// The largest UDP payload to `destination` in one packet, as far as the link and the route
    /// are concerned.
    #[must_use]
    pub fn udp_payload_bytes_max(&self, destination: IpAddr) -> usize {
        let of_route = self.best_route(destination).and_then(|route| route.mtu);
        let mtu = of_route.map_or(self.mtu, |mtu| mtu.min(self.mtu));
        let headers = path::ip_header_length(destination) + udp::HEADER_LENGTH;
        usize::from(mtu).saturating_sub(headers)
    }

    /// The Ethernet address of `next_hop`, which [`Interface::route`] has returned. Asks for it if
    /// it is not known.
    pub fn resolve(&mut self, now: Time, next_hop: IpAddr) -> Resolution<MacAddress> {
        self.neighbours.resolve(now, next_hop)
    }

    /// All that stays the same in packets of a protocol from `source` to `destination`. Keep it
    /// with the flow, and ask again when [`Interface::is_current`] says no. Unreachable if `source`
    /// is not, or not any more, an own address.
    pub fn path(
        &mut self,
        now: Time,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
    ) -> Resolution<Path> {
        let Some(next_hop) = self.route(destination).filter(|_| self.is_own(source)) else {
            return Resolution::Unreachable;
        };
        let fresh_until = now + path::FRESH_NS;
        let mac = self.resolve(now, next_hop);
        mac.map(|mac| self.path_over(source, destination, protocol, mac, fresh_until))
    }

    /// The way from one own address to another, or to itself: its frames are for this NIC itself,
    /// and never to leave.
    #[must_use]
    pub fn path_here(
        &self,
        now: Time,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
    ) -> Option<Path> {
        let is_here = self.is_own(source) && self.is_own(destination);
        let fresh_until = now + path::FRESH_NS;
        is_here.then(|| self.path_over(source, destination, protocol, self.mac, fresh_until))
    }

    /// The same for UDP datagrams from one port to another.
    pub fn udp_path(
        &mut self,
        now: Time,
        source: SocketAddr,
        destination: SocketAddr,
    ) -> Resolution<UdpPath> {
        let path = self.path(now, source.ip(), destination.ip(), protocol::UDP);
        path.map(|path| path.udp(source.port(), destination.port()))
    }

    /// True if the Ethernet address of `next_hop` is known.
    #[must_use]
    pub fn knows(&self, next_hop: IpAddr) -> bool {
        self.neighbours.known(next_hop).is_some()
    }

    /// The next neighbour for which [`Interface::path`] or [`Interface::resolve`] said that an
    /// answer was pending, and none is expected any more: whether its address is known now. The
    /// oldest are forgotten if nobody takes them.
    #[inline]
    pub fn poll_settled(&mut self) -> Option<(IpAddr, bool)> {
        self.neighbours.poll_settled()
    }

    /// The path as far as it is known, without asking for a neighbour. Not to be kept.
    #[must_use]
    pub fn known_path(&self, source: IpAddr, destination: IpAddr, protocol: u8) -> Option<Path> {
        let next_hop = self.route(destination).filter(|_| self.is_own(source))?;
        let mac = self.neighbours.known(next_hop)?;
        Some(self.path_over(source, destination, protocol, mac, Time::ZERO))
    }

    /// The same for UDP datagrams: for the last words of a flow.
    #[must_use]
    pub fn known_udp_path(&self, source: SocketAddr, destination: SocketAddr) -> Option<UdpPath> {
        let path = self.known_path(source.ip(), destination.ip(), protocol::UDP);
        path.map(|path| path.udp(source.port(), destination.port()))
    }

    /// The path to a stranger to whom something is sent again, and who may not be there: as far as
    /// it is known. The neighbour is asked for, of few at a time. Not to be kept.
    pub fn path_to_stranger(
        &mut self,
        now: Time,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
    ) -> Option<Path> {
        let next_hop = self.route(destination).filter(|_| self.is_own(source))?;
        let mac = self.neighbours.resolve_for_stranger(now, next_hop)?;
        Some(self.path_over(source, destination, protocol, mac, Time::ZERO))
    }

    /// The way back that `packet` came: for answers to strangers, who must not be able to make this
    /// host ask for neighbours. Not to be kept.
    #[must_use]
    pub fn path_back(&self, packet: &Packet<'_>) -> Path {
        let Packet { source, destination, protocol, source_mac, .. } = *packet;
        self.path_over(destination, source, protocol, source_mac, Time::ZERO)
    }

    /// The way back that `datagram` came, likewise.
    #[must_use]
    pub fn udp_path_back(&self, datagram: &Datagram<'_>) -> UdpPath {
        let Datagram { source, destination, source_mac, .. } = *datagram;
        let (from, to) = (destination.ip(), source.ip());
        let path = self.path_over(from, to, protocol::UDP, source_mac, Time::ZERO);
        path.udp(destination.port(), source.port())
    }

    /// False if the neighbour of `path` may have moved or should be used again, so that its entry
    /// is kept and verified: then ask for the path again. Cheap enough for every packet.
    #[inline]
    #[must_use]
    pub fn is_current(&self, now: Time, path: &Path) -> bool {
        path.is_current(now, self.neighbours.generation())
    }

    /// The peer behind `path` has just been heard to receive what was sent over it. RFC 4861,
    /// section 7.3.1: then its Ethernet address need not be verified. Once per round trip is
    /// enough.
    pub fn confirm(&mut self, now: Time, path: &Path) {
        if let Some(next_hop) = self.route(path.destination()) {
            self.neighbours.confirm(now, next_hop);
        }
    }

    /// The next neighbour that the control thread is to ask the kernel for, if the kernel shares
    /// the NIC. Each is named once per attempt; a second later again, three times in all.
    pub fn poll_wanted(&mut self) -> Option<IpAddr> {
        if !self.kernel_shares {
            return None;
        }
        self.neighbours.poll_question().map(|question| question.target)
    }

    /// False if [`Interface::poll_wanted`] and [`Interface::poll_conflict`] have surely nothing.
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        (self.kernel_shares & self.neighbours.has_questions()) | self.conflicts.has_news()
    }

    /// The control thread's answer: `ip` is at `mac`.
    pub fn learn(&mut self, now: Time, ip: IpAddr, mac: MacAddress) {
        self.neighbours.learn_from_kernel(now, ip, mac);
    }

    /// The next host that was found to use an own address, too. Each is named once in ten seconds.
    pub fn poll_conflict(&mut self) -> Option<Conflict> {
        self.conflicts.poll().filter(|_| self.is_spokesman)
    }

    /// The peer at `destination` does not answer, though it should. If that is because its
    /// neighbour has another Ethernet address now, asking helps: everybody is asked at once. Often
    /// is not too often.
    pub fn doubt(&mut self, now: Time, destination: IpAddr) {
        if let Some(next_hop) = self.route(destination) {
            self.neighbours.doubt(now, next_hop);
        }
    }

    /// Whether the books of the neighbours agree: for audits.
    ///
    /// # Errors
    /// What does not, in words.
    pub fn audit(&self) -> Result<(), String> {
        self.neighbours.audit()
    }

    /// When [`Interface::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let fragments = self.reassembly.poll_timeout();
        self.neighbours.poll_timeout().into_iter().chain(fragments).min()
    }

    /// Asks again, or gives up: neighbours, and packets of which fragments are missing.
    pub fn handle_timeout(&mut self, now: Time) {
        self.neighbours.handle_timeout(now);
        self.expire_fragments(now);
    }

    /// True if [`Interface::poll_transmit`] or [`Interface::poll_wanted`] has something.
    #[inline]
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.outbox.is_empty() || self.neighbours.has_questions()
    }

    /// Writes the next frame of the interface's own into `frame`, which is long enough for any.
    /// Returns its length, 0 if there is none.
    pub fn poll_transmit(&mut self, frame: &mut [u8]) -> usize {
        if !self.kernel_shares {
            while let Some(question) = self.neighbours.poll_question() {
                let length = self.emit_question(&question, frame);
                if length > 0 {
                    return length;
                }
            }
        }
        self.outbox.pop_into(frame)
    }

    fn path_over(
        &self,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        mac: MacAddress,
        fresh_until: Time,
    ) -> Path {
        let link = answers::LinkHeader { source: self.mac, destination: mac, vlan: self.vlan };
        let generation = self.neighbours.generation();
        Path::new(&link, source, destination, protocol, fresh_until, generation)
    }
}

/// How long an entry that was not used may be pushed out, see `neighbours`; paths are asked for
/// again more often than this.
const IN_USE_NS: u64 = 60 * SECOND;
const _: () = assert!(path::FRESH_NS < IN_USE_NS);
