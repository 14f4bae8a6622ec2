//! Virtual interfaces and captures: what apps ask for, what the policy makes of it, what the kernel
//! and the NIC are asked for, and what apps are told. [`Vifs`](crate::Vifs) decides whether
//! patterns collide, has the engines agree, and says what is to be done when.
//!
//! A port of an address of the kernel's is taken from the kernel's programs before the engines hear
//! of the interface, be it for receiving or for sending; or it is refused because one of them has
//! it.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use clearway_channel::Code;
use clearway_channel::control::{
    Mac, OpenCapture, OpenTcpPort, OpenVif, PACKET_BYTES_MAX, Refusal, Reply, TcpPortOpened,
    VifOpened,
};
use clearway_classify::Filter;
use clearway_classify::registry::{self, OwnerId};
use clearway_engine::{CaptureSpec, TcpPortSpec, VifRefused, VifTexts};
use clearway_nic::MacAddress;

use super::{Nic, Plane, Step};
use crate::engines::ChannelPlace;
use crate::filter::Template;
use crate::policy::{Grant, HostPort, Peer, Place, Station};
use crate::refusal::refusal;
use crate::session::{Session, Waiting};
use crate::steered::{Lost, Steered};
use crate::{PortPart, VifError, VifOwner, VifStep};

/// The most bytes of `vif_opened` besides its patterns.
const OPENED_BYTES_MAX: usize = 256;

/// An interface or a capture, as the engines have nothing to do with it.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) owner: VifOwner,
    /// Index of its NIC.
    pub(super) nic: usize,
    /// For people: the app's name.
    app: String,
    /// What it was granted; a capture has no use for it.
    grant: Option<Grant>,
    /// That as text.
    texts: Arc<VifTexts>,
    /// It is a TCP port, of this address or of all.
    tcp: Option<SocketAddr>,
    /// It is what a TCP port has on another NIC than its app's.
    pub(super) is_part: bool,
    /// Ports that are its: claimed from the kernel, where that shares the NIC.
    claimed: HashSet<HostPort>,
    /// What the NIC was asked for.
    steered: Option<Steered>,
}

impl Plane {
    pub(super) fn open_vif(&mut self, session: u64, open: &OpenVif) -> Result<(), Refusal> {
        let Some(asks) = self.sessions.get(&session) else { return Ok(()) };
        let granted = self.granted(asks)?;
        self.nics[granted.nic].may_have_vifs()?;
        let place = self.place_of_vif(granted.nic);
        let generated = generated_mac(self.random.next_u64());
        let grant = self.accounts.grant_vif(&asks.peer, open, &place, generated)?;
        let spec = grant.spec();
        let texts = Arc::clone(&spec.texts);
        can_be_told(&texts)?;
        self.accounts.open_vif(&asks.peer)?;
        let opening = self.vifs.open(granted.owner, spec);
        self.begin_opening(session, opening, Granted { grant: Some(grant), texts, ..granted })
    }

    /// Whose a TCP port is is decided as of an interface with the same filters, by the same rules,
    /// registry, claims and steering. What comes there is the engine's TCP's.
    pub(super) fn open_tcp_port(
        &mut self,
        session: u64,
        open: &OpenTcpPort,
    ) -> Result<(), Refusal> {
        let Some(asks) = self.sessions.get(&session) else { return Ok(()) };
        let granted = self.granted(asks)?;
        let nic = &self.nics[granted.nic];
        nic.may_have_vifs()?;
        let OpenTcpPort { address, port, shared, .. } = *open;
        if let Some(address) = address.filter(|one| nic.addresses().all(|own| own != *one)) {
            return Err(self.no_such_address(granted.nic, address));
        }
        let place = self.place_of_vif(granted.nic);
        let grant = self.accounts.grant_tcp_port(&asks.peer, open, &place)?;
        let elsewhere = self.grants_elsewhere(&asks.peer, open, granted.nic)?;
        self.accounts.open_vif(&asks.peer)?;
        let rights = grant.spec();
        let texts = Arc::clone(&rights.texts);
        let nics = elsewhere.iter().map(|(nic, _)| *nic).collect();
        let spec = TcpPortSpec { address, port, peers: open.peers.clone(), nics, rights };
        let parts = elsewhere.iter();
        let parts = parts.map(|(nic, grant)| PortPart { nic: *nic, rights: grant.spec() });
        let opening = self.vifs.open_tcp_port(granted.owner, spec, parts.collect(), shared);
        if let Ok((_, numbers)) = &opening {
            for (number, (nic, grant)) in numbers.iter().zip(elsewhere) {
                let (grant, app) = (Some(grant), granted.app.clone());
                let owner = granted.owner;
                let part = Granted { grant, is_part: true, ..Granted::new(owner, nic, app) };
                self.grants.insert(*number, part);
            }
        }
        let every = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let tcp = Some(SocketAddr::new(address.unwrap_or(every), port));
        let opening = opening.map(|(number, _)| number);
        self.begin_opening(session, opening, Granted { grant: Some(grant), texts, tcp, ..granted })
    }

    /// What a port at all addresses has on the NICs that are not its app's, as far as its user may
    /// have it there.
    fn grants_elsewhere(
        &self,
        peer: &Peer,
        open: &OpenTcpPort,
        own: usize,
    ) -> Result<Vec<(usize, Grant)>, Refusal> {
        let mut grants = Vec::new();
        if open.address.is_some() {
            return Ok(grants);
        }
        for (index, nic) in self.nics.iter().enumerate().filter(|(index, _)| *index != own) {
            let is_served = self.engines[nic.engines.clone()].iter().any(|one| !one.has_ended);
            let has_addresses = nic.addresses().next().is_some();
            if nic.is_removed || !is_served || !has_addresses || nic.may_have_vifs().is_err() {
                continue;
            }
            let place = self.place_of_vif(index);
            let Some(open) = for_peers_of(&place.addresses, open) else { continue };
            match self.accounts.grant_tcp_port(peer, &open, &place) {
                Ok(grant) => grants.push((index, grant)),
                Err(Refusal { code: Code::Denied, .. }) => {} // the addresses of other NICs only
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(grants)
    }

    /// An app wants a TCP port at an address of another NIC than its own, or of none.
    fn no_such_address(&self, nic: usize, address: IpAddr) -> Refusal {
        let name = &self.nics[nic].name;
        let has_it = |nic: &&Nic| nic.addresses().any(|own| own == address);
        let text = match self.nics.iter().find(has_it) {
            Some(other) => format!(
                "NIC {name} does not have the address {address}; attach to an engine of NIC {}, \
                 which has it, or open the port at all addresses",
                other.name
            ),
            None => format!(
                "no NIC of this host has the address {address}; `clearway status` shows those \
                 that there are"
            ),
        };
        refusal(Code::AddressUnavailable, text)
    }

    pub(super) fn open_capture(&mut self, session: u64, open: &OpenCapture) -> Result<(), Refusal> {
        let Some(asks) = self.sessions.get(&session) else { return Ok(()) };
        let granted = self.granted(asks)?;
        self.accounts.may_capture(&asks.peer)?;
        let nic = granted.nic;
        let spec = CaptureSpec {
            filter: self.capture_filters(nic, &open.filter)?,
            app: open.app.as_deref().map(|app| self.channel_of(nic, app)).transpose()?,
            connection: open.connection,
        };
        if spec.connection.is_some() && spec.app.is_none() {
            let text = "a capture of a connection has to say of which app; name it, too";
            return Err(refusal(Code::Invalid, text));
        }
        self.accounts.open_vif(&asks.peer)?;
        let opening = self.vifs.open_capture(granted.owner, spec);
        self.begin_opening(session, opening, granted)
    }

    /// Nothing yet, of an app.
    fn granted(&self, session: &Session) -> Result<Granted, Refusal> {
        let attached = session.attached_or_refused()?;
        let ChannelPlace { engine, channel } = attached.place;
        let owner = VifOwner { engine, channel, user: session.peer.user };
        Ok(Granted::new(owner, self.engines[engine].nic, attached.app.clone()))
    }

    /// It is on its way to the engines, unless it is refused at once; it has been counted.
    fn begin_opening(
        &mut self,
        session: u64,
        opening: Result<u32, VifError>,
        granted: Granted,
    ) -> Result<(), Refusal> {
        let number = opening.map_err(|why| {
            self.accounts.close_vifs(granted.owner.user, 1);
            self.refused(why, granted.tcp)
        })?;
        self.grants.insert(number, granted);
        if let Some(asks) = self.sessions.get_mut(&session) {
            asks.waiting = Waiting::OpeningVif(number);
        }
        self.gather();
        Ok(())
    }

    /// What a step of an interface comes to, if somebody else has something to do.
    pub(super) fn vif_step(&mut self, step: VifStep) -> Option<Step> {
        match step {
            VifStep::Ask { engine, request } => return Some(Step::Ask { engine, request }),
            VifStep::Claim(number) => match self.claim(number) {
                Ok(step) => return step,
                Err(refusal) => self.handle_claimed(number, Err(refusal)),
            },
            VifStep::Steer(number) => match self.steer(number) {
                Ok(Some(step)) => return Some(step),
                Ok(None) => self.handle_steered(number, Ok(())),
                Err(refusal) => self.handle_steered(number, Err(refusal)),
            },
            VifStep::Unsteer(number) => return self.unsteer(number),
            VifStep::Opened(number) => self.tell_opened(number),
            VifStep::Refused(number, why) => {
                let asked = self.grants.get(&number).and_then(|vif| vif.tcp);
                let refusal = self.refused(why, asked);
                self.answer_opening(number, Reply::Error(refusal));
            }
            VifStep::Gone(number) => return self.forget_vif(number),
        }
        None
    }

    /// The ports of an interface, if its user may have them.
    fn claim(&mut self, number: u32) -> Result<Option<Step>, Refusal> {
        let Some(vif) = self.grants.get_mut(&number) else { return Ok(None) };
        let ports = vif.grant.as_ref().map_or(HashSet::new(), |grant| grant.ports.clone());
        let (nic, ports_max) = (vif.nic, self.accounts.ports_per_user());
        self.nics[nic].holdings.take_ports(vif.owner.user, &ports, ports_max)?;
        vif.claimed.clone_from(&ports);
        Ok(Some(Step::Claim { vif: number, nic, ports }))
    }

    /// The ports of an interface are its, or why not.
    pub fn handle_claimed(&mut self, vif: u32, result: Result<(), Refusal>) {
        if result.is_err() {
            self.give_ports_back(vif);
        }
        let result = result.map_err(|refusal| self.of_whole(vif, refusal));
        self.vifs.handle_claimed(vif, result);
        self.gather();
    }

    /// A refusal on another NIC than the app's, for an app that may well do without that one.
    fn of_whole(&self, vif: u32, refusal: Refusal) -> Refusal {
        let Some(part) = self.grants.get(&vif).filter(|vif| vif.is_part) else { return refusal };
        let own = &self.nics[self.engines[part.owner.engine].nic].name;
        let (other, said) = (&self.nics[part.nic].name, &refusal.message);
        let message = format!(
            "on NIC {other}: {said}; or open the port at an address of NIC {own}, and it is of \
             that one only"
        );
        Refusal { message, ..refusal }
    }

    /// What the NIC is to be asked for, if it is to be asked, and the user may have it.
    fn steer(&mut self, number: u32) -> Result<Option<Step>, Refusal> {
        let Some(vif) = self.grants.get_mut(&number) else { return Ok(None) };
        let (nic, Some(grant)) = (&mut self.nics[vif.nic], &vif.grant) else { return Ok(None) };
        if !nic.has_steering {
            return Ok(None);
        }
        let steered = Steered::of(grant).map_err(|error| {
            refusal(Code::Refused, format!("the NIC cannot steer these frames here: {error}"))
        })?;
        nic.holdings.take_masks(vif.owner.user, &steered)?;
        vif.steered = Some(steered.clone());
        Ok(Some(Step::Steer { vif: number, nic: vif.nic, steered }))
    }

    /// The frames of an interface come to the engines, or why not.
    pub fn handle_steered(&mut self, vif: u32, result: Result<(), Refusal>) {
        if result.is_err() {
            self.give_masks_back(vif);
        }
        let result = result.map_err(|refusal| self.of_whole(vif, refusal));
        self.vifs.handle_steered(vif, result);
        self.gather();
    }

    fn unsteer(&mut self, number: u32) -> Option<Step> {
        let steered = self.give_masks_back(number)?;
        Some(Step::Unsteer { nic: self.grants.get(&number)?.nic, steered })
    }

    fn give_masks_back(&mut self, number: u32) -> Option<Steered> {
        let vif = self.grants.get_mut(&number)?;
        let steered = vif.steered.take()?;
        self.nics[vif.nic].holdings.give_masks_back(vif.owner.user, &steered);
        Some(steered)
    }

    pub(super) fn give_ports_back(&mut self, number: u32) -> Option<HashSet<HostPort>> {
        let vif = self.grants.get_mut(&number)?;
        let ports = std::mem::take(&mut vif.claimed);
        self.nics[vif.nic].holdings.give_ports_back(vif.owner.user, &ports);
        Some(ports)
    }

    fn tell_opened(&mut self, number: u32) {
        let Some(vif) = self.grants.get(&number) else { return };
        let reply = match vif.tcp {
            Some(address) => Reply::TcpPortOpened(TcpPortOpened { number, address }),
            None => Reply::VifOpened(vif.opened(number, &self.nics[vif.nic])),
        };
        self.answer_opening(number, reply);
    }

    /// Tells the session that waits for an interface to be opened, if it is still there.
    fn answer_opening(&mut self, number: u32, reply: Reply) {
        let Some(VifOwner { engine, channel, .. }) = self.grants.get(&number).map(|vif| vif.owner)
        else {
            return;
        };
        let Some(record) = self.channel(ChannelPlace { engine, channel }) else { return };
        let session = record.session;
        let waiting = self.sessions.get(&session).map(|session| session.waiting);
        if waiting == Some(Waiting::OpeningVif(number)) {
            self.reply(session, reply);
        }
    }

    /// What an app is told of a refusal: of a TCP port if it has asked for one.
    fn refused(&self, why: VifError, asked: Option<SocketAddr>) -> Refusal {
        match why {
            VifError::Registry(refused) => self.refused_by_registry(&refused, asked),
            VifError::Captures(most) => {
                let text = format!("{most} captures run on this NIC already; end one of them");
                refusal(Code::Limit, text)
            }
            VifError::TcpPort(port) => {
                let text = format!("the app has TCP port {port} already; close that, or use it");
                refusal(Code::AddressInUse, text)
            }
            VifError::Nic(refusal) => refusal,
            VifError::Engine(refused) => {
                let code = match refused {
                    VifRefused::NoChannel => Code::DaemonGone,
                    VifRefused::NoConnection(_) => Code::Invalid,
                };
                refusal(code, refused.to_string())
            }
        }
    }

    pub(super) fn refused_by_registry(
        &self,
        refused: &registry::Refusal,
        asked: Option<SocketAddr>,
    ) -> Refusal {
        use registry::Refusal as Why;
        if let Why::Send { owner, .. } | Why::Receive { owner, .. } = refused
            && let Some(text) = asked.and_then(|asked| self.who_has(*owner, asked.port()))
        {
            return refusal(Code::AddressInUse, text);
        }
        let text = match refused {
            Why::Send { wanted, existing, owner } => format!(
                "`{wanted}` overlaps with `{existing}`, which {} may send; choose other ports or \
                 addresses, or end that app",
                self.name_of(*owner)
            ),
            Why::Receive { wanted, existing, owner, .. } => format!(
                "`{wanted}` overlaps with `{existing}`, which {} receives with the same priority; \
                 choose other ports or addresses, or declare another priority",
                self.name_of(*owner)
            ),
            Why::TooManyOfUser { what: registry::CLAUSES, .. } => format!(
                "{refused}; `patterns_per_user` in [policy.limits] of the daemon's configuration \
                 says how many alternatives there may be"
            ),
            other => other.to_string(),
        };
        let code = match refused {
            Why::TooMany { .. } | Why::TooManyOfUser { .. } => Code::Limit,
            _ => Code::AddressInUse,
        };
        refusal(code, text)
    }

    /// What the app of a channel that has interfaces is called.
    fn name_of(&self, owner: OwnerId) -> String {
        let found = self.vifs.number_of(owner).and_then(|number| self.grants.get(&number));
        found.map_or_else(|| "an app that has gone".to_owned(), Granted::name)
    }

    /// Who has a TCP port, and what to do about it, if it is had as one by this owner.
    fn who_has(&self, owner: OwnerId, port: u16) -> Option<String> {
        let is_it = |number: u32, vif: &Granted| {
            vif.tcp.is_some_and(|tcp| tcp.port() == port)
                && self.vifs.registered_as(number) == Some(owner)
        };
        let (_, vif) = self.grants.iter().find(|(number, vif)| is_it(**number, vif))?;
        let VifOwner { engine, channel, .. } = vif.owner;
        let record = self.channel(ChannelPlace { engine, channel });
        let is_there = record.is_some_and(|record| self.sessions.contains_key(&record.session));
        let name = vif.name();
        Some(match is_there {
            true => format!(
                "{name} has TCP port {port}; choose another port, end that app, or have both say \
                 that they share it (`shared`), if they are of one user"
            ),
            false => format!(
                "{name} has ended and keeps TCP port {port} until what it has sent is delivered \
                 or its linger time is over; try again then, or choose another port"
            ),
        })
    }

    /// What the policy has to know of a NIC, and of the host.
    fn place_of_vif(&self, nic: usize) -> Place {
        let of_nic = self.grants.values().filter(|vif| vif.nic == nic);
        let interface = &self.nics[nic].interface;
        Place {
            addresses: self.nics[nic].addresses().collect(),
            host: self.nics.iter().flat_map(Nic::addresses).collect(),
            mac: interface.mac,
            vlan: interface.vlan,
            udp_port: self.udp_port,
            stations: of_nic.filter_map(Granted::station).collect(),
        }
    }

    fn capture_filters(&self, nic: usize, texts: &[String]) -> Result<Vec<Filter>, Refusal> {
        let own: Vec<_> = self.nics[nic].addresses().collect();
        let mut filters = Vec::new();
        for text in texts {
            let template = Template::parse(text).map_err(|error| {
                refusal(Code::Invalid, format!("`{text}` is not a filter: {error}"))
            })?;
            filters.extend(template.expand(&own));
        }
        if filters.is_empty() && !texts.is_empty() {
            let text = "the filters are about addresses that this host does not have on this NIC";
            return Err(refusal(Code::Invalid, text));
        }
        Ok(filters)
    }

    /// The channel of the app of this name that is attached to an engine of this NIC.
    fn channel_of(&self, nic: usize, app: &str) -> Result<u32, Refusal> {
        let channels: Vec<u32> = self
            .sessions
            .values()
            .filter_map(Session::attached)
            .filter(|attached| {
                self.engines[attached.place.engine].nic == nic && attached.app == app
            })
            .map(|attached| attached.place.channel)
            .collect();
        match channels[..] {
            [channel] => Ok(channel),
            [] => {
                let nic = &self.nics[nic].name;
                let text = format!(
                    "no app \"{app}\" is attached to NIC {nic}; `clearway status` shows those \
                     that are"
                );
                Err(refusal(Code::Invalid, text))
            }
            _ => {
                let text = format!(
                    "{} apps are called \"{app}\"; give a filter with the addresses and ports of \
                     the one that is meant",
                    channels.len()
                );
                Err(refusal(Code::Invalid, text))
            }
        }
    }
}

impl Granted {
    fn name(&self) -> String {
        format!("app {} (channel {})", self.app, self.owner.channel)
    }

    /// Nothing yet, of the app of this name.
    fn new(owner: VifOwner, nic: usize, app: String) -> Self {
        Self {
            owner,
            nic,
            app,
            grant: None,
            texts: Arc::default(),
            tcp: None,
            is_part: false,
            claimed: HashSet::new(),
            steered: None,
        }
    }

    /// It may send frames, which have the NIC's Ethernet address. Those of a TCP port its engine
    /// makes, from the address that there is.
    pub(super) fn sends_as_nic(&self) -> bool {
        let is_frames = self.tcp.is_none() && !self.is_part;
        let sends = |grant: &Grant| !grant.has_own_mac && !grant.transmit.is_empty();
        is_frames && self.grant.as_ref().is_some_and(sends)
    }

    /// It has this of its NIC.
    pub(super) fn has(&self, lost: Lost) -> bool {
        let steered = self.steered.as_ref();
        match lost {
            Lost::Port(port) => self.claimed.contains(&port),
            Lost::Mac(mac) => steered.is_some_and(|steered| steered.mac == Some(mac)),
            Lost::Pattern(one) => steered.is_some_and(|steered| steered.patterns.contains(&one)),
            Lost::Copies(one) => steered.is_some_and(|steered| steered.copies.contains(&one)),
        }
    }

    /// The machine that it is on the link, if it is one.
    fn station(&self) -> Option<Station> {
        let grant = self.grant.as_ref().filter(|grant| grant.has_own_mac)?;
        let owner = format!("app \"{}\"", self.app);
        Some(Station { mac: grant.mac, address: grant.address, owner })
    }

    /// What its app is told once it is open.
    fn opened(&self, number: u32, nic: &Nic) -> VifOpened {
        let VifTexts { receive, transmit, copies } = VifTexts::clone(&self.texts);
        let mac = self.grant.as_ref().map_or(nic.interface.mac, |grant| grant.mac);
        let mtu = nic.interface.mtu.into();
        VifOpened { vif: number, mac: Mac(mac), mtu, receive, transmit, copies }
    }
}

/// The same port for those of its peers that are of the family of one of `addresses`: no others
/// reach these. `None` if there are none.
fn for_peers_of(addresses: &[IpAddr], open: &OpenTcpPort) -> Option<OpenTcpPort> {
    let has_family = |peer: IpAddr| addresses.iter().any(|own| own.is_ipv4() == peer.is_ipv4());
    let mut reached = open.clone();
    reached.peers.retain(|peers| has_family(peers.address()));
    (open.peers.is_empty() || !reached.peers.is_empty()).then_some(reached)
}

/// The patterns of an interface, as they are in force, are in the answer to whoever opens it.
pub(super) fn can_be_told(texts: &VifTexts) -> Result<(), Refusal> {
    let bytes = OPENED_BYTES_MAX + texts.bytes();
    if bytes <= PACKET_BYTES_MAX {
        return Ok(());
    }
    let text = format!(
        "the patterns of this interface, written out, come to {bytes} bytes, and the answer has \
         room for {PACKET_BYTES_MAX}; open several interfaces with fewer alternatives each, or say \
         less in each (`transmit` mirrors `receive` if it is absent)"
    );
    Err(refusal(Code::Invalid, text))
}

/// An Ethernet address that no vendor gave away: of one station, and locally administered (IEEE
/// 802, clause 8.4).
fn generated_mac(random: u64) -> MacAddress {
    let [first, second, third, fourth, fifth, sixth, ..] = random.to_le_bytes();
    [first & 0xfc | 0x02, second, third, fourth, fifth, sixth]
}
