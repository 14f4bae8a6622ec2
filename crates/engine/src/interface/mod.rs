//! The host's IP layer on one NIC, without I/O: what a frame for this host says, which Ethernet
//! address a peer has, and the headers of what is sent.
//!
//! ```text
//!            frame                               path + payload
//!              │                                       │
//!      handle_frame ──▶ Datagram,                emit_udp_headers ──▶ frame
//!        │     │        NetworkError              ▲
//!        │     └─▶ drops, by reason               │ template
//!        ▼                                        │
//!      outbox (ARP, NDP, echo answers)           path ◀── route, neighbours
//!        └──────────▶ poll_transmit ◀── questions ─────────────┘
//! ```
//!
//! Not here: which frames are for this host (its services are entries of the switch's table, see
//! [`Service`]), how messages travel (`transport`), and frames
//! themselves (the NIC). Addresses, routes and neighbours of an interface that the kernel shares are
//! the kernel's: the control thread answers [`Interface::poll_wanted`] with [`Interface::learn`].

mod addresses;
mod answers;
mod conflicts;
mod drops;
mod neighbours;
mod outbox;
mod path;
mod receive;
mod routes;
mod service;
#[cfg(test)]
mod tests;
mod too_large;

pub use conflicts::Conflict;
pub use drops::{DropReason, Drops};
pub use path::Path;
pub use receive::{Datagram, NetworkError, NetworkErrorKind, Received};
pub use routes::Route;
pub use service::{Entry, Service, entries};

use addresses::Addresses;
use clearway_base::{SECOND, Time};
use clearway_wire::MacAddress;
use conflicts::Conflicts;
use core::net::{IpAddr, SocketAddr};
use neighbours::Neighbours;
use outbox::{Outbox, RateLimit};
use routes::Rank;

/// Answers to echo requests, and refusals of datagrams, per second.
const ECHO_ANSWERS_PER_SECOND: u64 = 1000;
/// Answers to ARP requests and neighbour solicitations per second. Counted apart, so that a flood
/// of pings cannot make the host unreachable.
const NEIGHBOUR_ANSWERS_PER_SECOND: u64 = 1000;

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
    /// The kernel answers for these addresses and knows the neighbours.
    pub kernel_shares: bool,
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

/// The IP layer of one NIC. Calls, in any order: [`Interface::handle_frame`] for each frame,
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
    echo_answers: RateLimit,
    neighbour_answers: RateLimit,
    drops: Drops,
    conflicts: Conflicts,
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
            neighbours: Neighbours::new(),
            outbox: Outbox::new(),
            echo_answers: RateLimit::new(ECHO_ANSWERS_PER_SECOND),
            neighbour_answers: RateLimit::new(NEIGHBOUR_ANSWERS_PER_SECOND),
            drops: Drops::default(),
            conflicts: Conflicts::default(),
        }
    }

    /// The same, of an engine that is not the first of its NIC, or not of its NIC at all: another one
    /// announces the host's addresses, and tells of conflicts.
    #[must_use]
    pub fn silent(config: &Config) -> Self {
        Self { is_spokesman: false, ..Self::new(config) }
    }

    /// The network has changed: takes what `config` says of addresses, routes and MTU. What is known
    /// of neighbours stays; new addresses are announced. Packets to addresses that are not the
    /// host's any more are nobody's from now on, so ask for [`entries`] again.
    pub fn reconfigure(&mut self, config: &Config) {
        let before = core::mem::replace(&mut self.addresses, Addresses::new(config));
        self.mtu = config.mtu;
        self.neighbours.forget_paths();
        let added: Vec<IpAddr> =
            self.addresses.iter().filter(|address| !before.is_own(*address)).collect();
        self.announce(&added);
    }

    /// The addresses of the host's other NICs, which nobody on this NIC's link can send from. To be said again
    /// after [`Interface::reconfigure`].
    pub fn set_elsewhere(&mut self, addresses: &[IpAddr]) {
        self.addresses.set_elsewhere(addresses);
    }

    /// The host's own addresses on this NIC.
    pub(crate) fn own_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter()
    }

    /// The NIC's Ethernet address.
    #[must_use]
    pub fn mac(&self) -> MacAddress {
        self.mac
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

    /// How good the way to `destination` is, to be held against those of other interfaces: the lowest
    /// is the best. `None` if there is no route.
    pub(crate) fn rank(&self, destination: IpAddr) -> Option<Rank> {
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
        usize::from(mtu).saturating_sub(path::ip_and_udp_length(destination))
    }

    /// The Ethernet address of `next_hop`, which [`Interface::route`] has returned. Asks for it if
    /// it is not known.
    pub fn resolve(&mut self, now: Time, next_hop: IpAddr) -> Resolution<MacAddress> {
        self.neighbours.resolve(now, next_hop)
    }

    /// All that stays the same in packets from `source` to `destination`. Keep it with the flow, and
    /// ask again when [`Interface::is_current`] says no. Unreachable if `source` is not, or not any
    /// more, an own address.
    pub fn path(
        &mut self,
        now: Time,
        source: SocketAddr,
        destination: SocketAddr,
    ) -> Resolution<Path> {
        let Some(next_hop) = self.route(destination.ip()).filter(|_| self.is_own(source.ip()))
        else {
            return Resolution::Unreachable;
        };
        let fresh_until = now + path::FRESH_NS;
        self.resolve(now, next_hop).map(|mac| self.path_over(source, destination, mac, fresh_until))
    }

    /// True if the Ethernet address of `next_hop` is known.
    #[must_use]
    pub fn knows(&self, next_hop: IpAddr) -> bool {
        self.neighbours.known(next_hop).is_some()
    }

    /// The next neighbour for which [`Interface::path`] or [`Interface::resolve`] said that an answer was
    /// pending, and none is expected any more: whether its address is known now. The oldest are
    /// forgotten if nobody takes them.
    #[inline]
    pub fn poll_settled(&mut self) -> Option<(IpAddr, bool)> {
        self.neighbours.poll_settled()
    }

    /// The path as far as it is known, without asking for a neighbour: for the last words of a flow. Not
    /// to be kept.
    #[must_use]
    pub fn known_path(&self, source: SocketAddr, destination: SocketAddr) -> Option<Path> {
        let mac = self.neighbours.known(self.route(destination.ip())?)?;
        self.is_own(source.ip()).then(|| self.path_over(source, destination, mac, Time::ZERO))
    }

    /// The way back that `datagram` came: for answers to strangers, who must not be able to make
    /// this host ask for neighbours. Not to be kept.
    #[must_use]
    pub fn path_back(&self, datagram: &Datagram<'_>) -> Path {
        let Datagram { source, destination, source_mac, .. } = *datagram;
        self.path_over(destination, source, source_mac, Time::ZERO)
    }

    /// False if the neighbour of `path` may have moved or should be used again, so that its entry
    /// is kept and verified: then ask for the path again. Cheap enough for every packet.
    #[inline]
    #[must_use]
    pub fn is_current(&self, now: Time, path: &Path) -> bool {
        path.is_current(now, self.neighbours.generation())
    }

    /// The peer behind `path` has just been heard to receive what was sent over it. RFC 4861,
    /// section 7.3.1: then its Ethernet address need not be verified. Once per round trip is enough.
    pub fn confirm(&mut self, now: Time, path: &Path) {
        if let Some(next_hop) = self.route(path.destination().ip()) {
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

    /// The control thread's answer: `ip` is at `mac`.
    pub fn learn(&mut self, now: Time, ip: IpAddr, mac: MacAddress) {
        self.neighbours.learn_from_kernel(now, ip, mac);
    }

    /// The next host that was found to use an own address, too. Each is named once in ten seconds.
    pub fn poll_conflict(&mut self) -> Option<Conflict> {
        self.conflicts.poll().filter(|_| self.is_spokesman)
    }

    /// The peer at `destination` does not answer, though it should. If that is because its neighbour
    /// has another Ethernet address now, asking helps: everybody is asked at once. Often is not too
    /// often.
    pub fn doubt(&mut self, now: Time, destination: IpAddr) {
        if let Some(next_hop) = self.route(destination) {
            self.neighbours.doubt(now, next_hop);
        }
    }

    /// Whether the books of the neighbours agree: for audits.
    pub(crate) fn audit(&self) -> Result<(), String> {
        self.neighbours.audit()
    }

    /// When [`Interface::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.neighbours.poll_timeout()
    }

    /// Asks again, or gives up.
    pub fn handle_timeout(&mut self, now: Time) {
        self.neighbours.handle_timeout(now);
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
        source: SocketAddr,
        destination: SocketAddr,
        mac: MacAddress,
        fresh_until: Time,
    ) -> Path {
        let link = answers::Link { source: self.mac, destination: mac, vlan: self.vlan };
        Path::new(&link, source, destination, fresh_until, self.neighbours.generation())
    }
}

/// How long an entry that was not used may be pushed out, see `neighbours`; paths are asked for
/// again more often than this.
const IN_USE_NS: u64 = 60 * SECOND;
const _: () = assert!(path::FRESH_NS < IN_USE_NS);
