//! The host: its addresses, routes and neighbours on each of its NICs, and its own protocols, which
//! are ARP, neighbour discovery, ICMP, and the refusal of datagrams that nobody wants.
//!
//! An engine has one NIC of its own; the host's others are served by engines of their own. What an
//! app reaches over them it reaches from here as well: the flow is its own engine's, and its
//! packets go by the lane to an engine of the NIC, and come from there.
//!
//! ```text
//!  app ⇄ this engine ── Transmit ───▶ engine of the other NIC ⇄ its queue ⇄ wire
//!                    ◀─ Overheard ──
//! ```
//!
//! This engine knows of the other NIC what each of its engines knows: addresses, routes, and
//! neighbours, of whom it hears when they do. So the frames that it hands over are complete, and
//! what it is handed is as it came.
//!
//! *Not* here: who owns a frame that comes (that engine's table says so), and virtual interfaces,
//! which are of one NIC.

mod state;

use std::net::IpAddr;
use std::ops::Range;

use clearway_base::Time;
use clearway_nic::{HEADER_BYTES_MAX, MacAddress, Transmit};
use clearway_wire::Malformed;
use serde::{Deserialize, Serialize};

use crate::common::Common;
use crate::component::{Outlet, Sending};
use crate::ip::{self, DropReason, Interface, NetworkError};
use crate::lanes::{Lanes, What};
use crate::services::Service;

pub use state::HostState;

/// See the module.
#[derive(Debug)]
pub(crate) struct Host {
    own: Interface,
    others: Vec<OtherNic>,
}

/// A NIC that other engines serve.
#[derive(Debug)]
pub(crate) struct OtherNic {
    /// Its number among the host's.
    number: usize,
    /// The engines that serve it.
    engines: Range<usize>,
    /// What the control plane has said of it last.
    config: ip::Config,
    interface: Interface,
}

/// Which of the host's NICs something goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Nic {
    /// This engine's own.
    Own,
    /// One of the others, by its place among them.
    Other(usize),
}

impl OtherNic {
    pub(crate) fn new(number: usize, engines: Range<usize>, config: &ip::Config) -> Self {
        Self { number, engines, config: config.clone(), interface: Interface::silent(config) }
    }

    /// Has its engine send what the host's own protocols have to say there.
    #[cold]
    fn ask(&mut self, lanes: &mut Lanes) {
        let mut frame = [0; ip::OWN_FRAME_BYTES_MAX];
        let engine = self.gateway_of(lanes.index());
        while lanes.has_room(engine) {
            let length = self.interface.poll_transmit(&mut frame);
            if length == 0 {
                break; // there is no more, or it is the kernel that is to be asked
            }
            lanes.push(engine, What::Transmit, &frame[..length]);
        }
    }

    /// The engine that sends for the one of this number: not the same for all.
    fn gateway_of(&self, engine: usize) -> usize {
        self.engines.start + engine % self.engines.len()
    }
}

impl Host {
    pub(crate) fn new(own: Interface, others: Vec<OtherNic>) -> Self {
        let mut host = Self { own, others };
        host.note_own_addresses();
        host
    }

    /// The IP layer on the engine's own NIC.
    #[inline]
    pub(crate) fn own(&self) -> &Interface {
        &self.own
    }

    #[inline]
    pub(crate) fn own_mut(&mut self) -> &mut Interface {
        &mut self.own
    }

    /// The largest frame that the engine's own NIC carries, with a tag.
    #[inline]
    pub(crate) fn frame_bytes_max(&self) -> usize {
        usize::from(self.own.mtu()) + HEADER_BYTES_MAX
    }

    /// The IP layer on a NIC, to be looked at.
    #[inline]
    pub(crate) fn view(&self, nic: Nic) -> &Interface {
        match nic {
            Nic::Own => &self.own,
            Nic::Other(index) => &self.others[index].interface,
        }
    }

    /// The IP layer on a NIC.
    #[inline]
    pub(crate) fn interface(&mut self, nic: Nic) -> &mut Interface {
        match nic {
            Nic::Own => &mut self.own,
            Nic::Other(index) => &mut self.others[index].interface,
        }
    }

    /// True if `address` is one of the host's, on whichever NIC.
    #[inline]
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        self.own.is_own(address) || self.others.iter().any(|nic| nic.interface.is_own(address))
    }

    /// True if `address` is this host.
    #[inline]
    pub(crate) fn is_here(&self, address: IpAddr) -> bool {
        self.is_own(address) || address.is_loopback()
    }

    /// The best NIC to `peer`: by the longest prefix, then the lowest metric, then this engine's
    /// own, and the first of the configuration. `None` if there is no route.
    pub(crate) fn nic_to(&self, peer: IpAddr) -> Option<Nic> {
        let own = self.own.rank(peer).map(|rank| (rank, Nic::Own));
        let others = self.others.iter().enumerate();
        let others =
            others.filter_map(|(index, nic)| Some((nic.interface.rank(peer)?, Nic::Other(index))));
        own.into_iter().chain(others).min_by_key(|(rank, _)| *rank).map(|(_, nic)| nic)
    }

    /// The other NIC that has the own address `local`.
    #[inline]
    pub(crate) fn other_with(&self, local: IpAddr) -> Option<usize> {
        if self.others.is_empty() || self.own.is_own(local) {
            return None;
        }
        self.others.iter().position(|nic| nic.interface.is_own(local))
    }

    /// The other NIC that `engine` serves.
    pub(crate) fn other_of(&self, engine: usize) -> Option<usize> {
        self.others.iter().position(|nic| nic.engines.contains(&engine))
    }

    /// The engine of another NIC that sends for the one of this number.
    pub(crate) fn gateway(&self, other: usize, engine: usize) -> usize {
        self.others[other].gateway_of(engine)
    }

    /// The NIC that has the own address `local`; this engine's if it is nobody's.
    #[inline]
    pub(crate) fn nic_with(&self, local: IpAddr) -> Nic {
        self.other_with(local).map_or(Nic::Own, Nic::Other)
    }

    /// The own address to reach `peer` from, over this engine's NIC or one of the others with these
    /// numbers, whichever is best. An address of this host is reached from itself, by those of the
    /// same NIC. `None` if there is no way.
    pub(crate) fn source_among(&self, peer: IpAddr, numbers: &[usize]) -> Option<IpAddr> {
        let others = self.others.iter().filter(|other| numbers.contains(&other.number));
        let others = others.map(|other| &other.interface);
        let mut interfaces = std::iter::once(&self.own).chain(others);
        if self.is_here(peer) {
            return interfaces.any(|interface| interface.is_own(peer)).then_some(peer);
        }
        let ranked = interfaces.filter_map(|interface| Some((interface.rank(peer)?, interface)));
        ranked.min_by_key(|(rank, _)| *rank)?.1.source_for(peer)
    }

    /// How many other NICs there are.
    pub(crate) fn other_count(&self) -> usize {
        self.others.len()
    }

    // ---- changes ----

    /// The addresses, routes or MTU of the engine's own NIC have changed.
    pub(crate) fn set_network(&mut self, network: &ip::Config) {
        self.own.reconfigure(network);
        self.note_own_addresses();
    }

    /// Another NIC has come.
    pub(crate) fn add(&mut self, nic: OtherNic) {
        self.others.push(nic);
        self.note_own_addresses();
    }

    /// Those of another NIC have.
    pub(crate) fn set_network_elsewhere(&mut self, number: usize, network: &ip::Config) {
        if let Some(other) = self.others.iter_mut().find(|nic| nic.number == number) {
            other.interface.reconfigure(network);
            other.config.clone_from(network);
            self.note_own_addresses();
        }
    }

    /// Has each NIC's interface know all addresses of the host, so that nobody can send from one.
    fn note_own_addresses(&mut self) {
        let others = self.others.iter().flat_map(|nic| nic.interface.own_addresses());
        let all: Vec<IpAddr> = self.own.own_addresses().chain(others).collect();
        self.own.set_elsewhere(&all);
        for other in &mut self.others {
            other.interface.set_elsewhere(&all);
        }
    }

    /// A neighbour has been found, on the link of this engine's NIC or of another.
    pub(crate) fn learn(
        &mut self,
        now: Time,
        number: Option<usize>,
        address: IpAddr,
        mac: MacAddress,
    ) {
        let other = number.and_then(|number| self.others.iter().position(|n| n.number == number));
        self.interface(other.map_or(Nic::Own, Nic::Other)).learn(now, address, mac);
    }

    /// The next neighbour that the control plane is to ask the kernel for, and the number of the
    /// NIC if it is another.
    pub(crate) fn poll_wanted(&mut self) -> Option<(Option<usize>, IpAddr)> {
        if let Some(address) = self.own.poll_wanted() {
            return Some((None, address));
        }
        let wanted =
            |other: &mut OtherNic| Some((Some(other.number), other.interface.poll_wanted()?));
        self.others.iter_mut().find_map(wanted)
    }

    /// False if [`Host::poll_wanted`] has surely nothing, and no conflict of addresses is to be
    /// told.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.own.has_news() | !self.others.is_empty()
    }

    /// The next neighbour of which no answer is expected any more: on which NIC, and whether its
    /// address is known now.
    #[inline]
    pub(crate) fn poll_settled(&mut self) -> Option<(Nic, IpAddr, bool)> {
        if let Some((address, is_known)) = self.own.poll_settled() {
            return Some((Nic::Own, address, is_known));
        }
        self.others.iter_mut().enumerate().find_map(|(index, other)| {
            let (address, is_known) = other.interface.poll_settled()?;
            Some((Nic::Other(index), address, is_known))
        })
    }

    // ---- its own protocols ----

    /// Takes a frame for one of the host's own protocols. Bad news about a packet are for the
    /// component that has sent it.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn receive<'a>(
        &mut self,
        now: Time,
        service: Service,
        frame: &'a [u8],
    ) -> Result<Option<NetworkError<'a>>, DropReason> {
        take(&mut self.own, now, service, frame)
    }

    /// The same of a frame that another engine has been given, over this NIC or over another: it is
    /// learnt from, but not answered and not counted.
    pub(crate) fn overhear<'a>(
        &mut self,
        now: Time,
        nic: Nic,
        service: Service,
        frame: &'a [u8],
    ) -> Option<NetworkError<'a>> {
        let interface = self.interface(nic);
        interface.overhear(|interface| take(interface, now, service, frame)).unwrap_or(None)
    }

    /// An ICMP error was about a packet that nobody here has sent.
    pub(crate) fn count_unsolicited(&mut self) {
        self.own.count_drop(DropReason::Unsolicited);
    }

    /// When [`Host::handle_timeouts`] is due.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let others = self.others.iter().filter_map(|nic| nic.interface.poll_timeout());
        others.chain(self.own.poll_timeout()).min()
    }

    /// Asks for neighbours again, or gives up.
    #[inline]
    pub(crate) fn handle_timeouts(&mut self, now: Time) {
        let is_due = |interface: &Interface| interface.poll_timeout().is_some_and(|due| due <= now);
        if is_due(&self.own) {
            self.own.handle_timeout(now);
        }
        for other in &mut self.others {
            if is_due(&other.interface) {
                other.interface.handle_timeout(now);
            }
        }
    }

    /// False if there is surely nothing to send.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        self.own.has_output() || !self.others.is_empty()
    }

    /// Asks for neighbours on other NICs.
    fn ask_elsewhere(&mut self, lanes: &mut Lanes) {
        for other in self.others.iter_mut().filter(|other| other.interface.has_output()) {
            other.ask(lanes);
        }
    }

    /// Whether the books of the neighbours agree: for audits.
    pub(crate) fn audit(&self) -> Result<(), String> {
        self.own.audit()?;
        self.others.iter().try_for_each(|nic| nic.interface.audit())
    }
}

/// Has the IP layer take a frame for one of the host's own protocols.
fn take<'a>(
    interface: &mut Interface,
    now: Time,
    service: Service,
    frame: &'a [u8],
) -> Result<Option<NetworkError<'a>>, DropReason> {
    match service {
        Service::Arp => interface.handle_arp(now, frame).map(|()| None),
        Service::Icmp => interface.handle_icmp(now, frame),
        Service::Undelivered => interface.handle_undelivered(now, frame),
        Service::Datagrams => interface.refuse_datagram(now, frame).map(|()| None),
        Service::Fragments => Err(Malformed::Fragment.into()),
        // Components of their own.
        Service::Messages | Service::Tcp | Service::Segments | Service::Extra => Ok(None),
    }
}

impl Common {
    /// Sends what the host's own protocols have to say.
    pub(crate) fn send_own(&mut self, now: Time, outlet: Outlet<'_>) -> Sending {
        let Outlet { queue, budget, .. } = outlet;
        if self.host.other_count() > 0 {
            self.host.ask_elsewhere(&mut self.lanes);
        }
        let mut queued = 0;
        while queued < budget && self.host.own.has_output() {
            let mut was_there = false;
            let transmit = self.send(now, queue, |common, frame| {
                let length = common.host.own.poll_transmit(frame);
                was_there = length > 0;
                length
            });
            match transmit {
                Transmit::Queued => queued += 1,
                Transmit::Nothing if was_there => {} // for this host only
                Transmit::Nothing | Transmit::Full => break,
            }
        }
        Sending { taken: queued, queued }
    }
}
