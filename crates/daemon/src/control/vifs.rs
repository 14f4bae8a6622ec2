//! Virtual interfaces and captures: what apps ask for, what the policy makes of it, and then the
//! engine and the NIC.
//!
//! ```text
//!  open_vif ─▶ policy ─▶ first engine ─▶ its siblings ─▶ NIC ─▶ vif_opened
//!                 │           │                           └─ no: the engines close it again
//!                 └─ no       └─ no ───────────────────────────▶ refusal
//! ```
//!
//! Every engine of a NIC knows all its interfaces, since frames may come in anywhere. The NIC's first engine
//! decides whether patterns collide: what it has taken, no other refuses.
//!
//! The order matters: frames are steered to the engine only when somebody takes them there, and go back
//! to the kernel before nobody does.

mod steering;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::ops::Range;

use clearway_channel::Code;
use clearway_channel::control::{
    CloseVif, Empty, Mac, OpenCapture, OpenVif, Refusal, Reply, VifOpened,
};
use clearway_classify::Filter;
use clearway_engine::{CaptureSpec, Request as EngineRequest, VifRefused, VifSpec};
use clearway_nic::MacAddress;
use rustix::rand::{GetRandomFlags, getrandom};

use super::requests::{not_attached, refusal};
use super::session::{Session, Waiting};
use super::{ControlPlane, NicSlot};
use crate::filter::Template;
use crate::policy::{Grant, HostPort, Place, Station};
use steering::{Held, Steered};

/// Captures on a NIC: every packet is compared with the filters of each.
const CAPTURES_MAX: usize = 16;

/// The interfaces and captures of a NIC, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Vifs {
    table: BTreeMap<u32, Vif>,
    /// By user, what the NIC was asked for.
    held: HashMap<u32, Held>,
}

/// An interface or a capture, in the engine or on its way there.
#[derive(Debug)]
struct Vif {
    /// Index of the engine that serves its app.
    engine: usize,
    channel: u32,
    user: u32,
    /// For people: the app's name.
    app: String,
    /// What it was granted; a capture has no use for it.
    grant: Option<Grant>,
    /// What it is to see, if it is a capture.
    capture: Option<CaptureSpec>,
    /// Engines that have not been asked yet.
    unasked: Range<usize>,
    /// Engines whose answer is missing.
    answers_left: usize,
    /// Those answers are that it is closed.
    is_closing: bool,
    /// Ports that are its: claimed from the kernel, where that shares the NIC.
    claimed: HashSet<HostPort>,
    /// What the NIC was asked for.
    steered: Steered,
}

impl ControlPlane {
    pub(super) fn open_vif(&mut self, token: u64, open: &OpenVif) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get(&token) else { return Ok(()) };
        let attached = session.attached.as_ref().ok_or_else(not_attached)?;
        let (engine, channel) = (attached.engine, attached.channel);
        let (user, app) = (session.peer.user, attached.app.clone());
        let place = self.place_of_vif(engine);
        let generated = generated_mac()?;
        let grant = self.accounts.grant_vif(&session.peer, open, &place, generated)?;
        self.accounts.open_vif(&session.peer)?;
        let unasked = self.nic_of(engine).engines.clone();
        let (grant, steered) = (Some(grant), Steered::default());
        let vif = Vif {
            engine,
            channel,
            user,
            app,
            grant,
            capture: None,
            unasked,
            answers_left: 0,
            is_closing: false,
            claimed: HashSet::new(),
            steered,
        };
        let number = self.begin_opening(token, vif);
        let ports_max = self.accounts.ports_per_user();
        if let Err(refusal) = self.nic_of_mut(engine).claim(number, ports_max) {
            self.forget_vif(token, engine, number);
            if let Some(session) = self.sessions.get_mut(&token) {
                session.waiting = Waiting::Nothing;
            }
            return Err(refusal);
        }
        self.ask_engines(engine, number, 1);
        Ok(())
    }

    pub(super) fn open_capture(&mut self, token: u64, open: &OpenCapture) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get(&token) else { return Ok(()) };
        let attached = session.attached.as_ref().ok_or_else(not_attached)?;
        let (engine, channel) = (attached.engine, attached.channel);
        let (user, name) = (session.peer.user, attached.app.clone());
        self.accounts.may_capture(&session.peer)?;
        let spec = CaptureSpec {
            filter: self.capture_filters(engine, &open.filter)?,
            app: open.app.as_deref().map(|app| self.channel_of(engine, app)).transpose()?,
            connection: open.connection,
        };
        if spec.connection.is_some() && spec.app.is_none() {
            let text = "a capture of a connection has to say of which app; name it, too";
            return Err(refusal(Code::Invalid, text));
        }
        if self.nic_of(engine).vifs.captures() >= CAPTURES_MAX {
            let text = format!("{CAPTURES_MAX} captures run on this NIC already; end one of them");
            return Err(refusal(Code::Limit, text));
        }
        self.accounts.open_vif(&session.peer)?;
        let unasked = self.nic_of(engine).engines.clone();
        let (count, steered) = (unasked.len(), Steered::default());
        let vif = Vif {
            engine,
            channel,
            user,
            app: name,
            grant: None,
            capture: Some(spec),
            unasked,
            answers_left: 0,
            is_closing: false,
            claimed: HashSet::new(),
            steered,
        };
        let number = self.begin_opening(token, vif);
        self.ask_engines(engine, number, count);
        Ok(())
    }

    pub(super) fn close_vif(&mut self, token: u64, close: &CloseVif) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get(&token) else { return Ok(()) };
        let attached = session.attached.as_ref().ok_or_else(not_attached)?;
        let (engine, channel, vif) = (attached.engine, attached.channel, close.vif);
        if !self.nic_of(engine).vifs.is_of(vif, channel) {
            let text = format!("there is no interface {vif}; use the number from `vif_opened`");
            return Err(refusal(Code::Invalid, text));
        }
        self.begin_closing(token, engine, vif, None);
        Ok(())
    }

    /// Takes an interface or a capture away from whoever has it.
    pub(super) fn revoke_vif(&mut self, token: u64, revoke: &CloseVif) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get(&token) else { return Ok(()) };
        self.accounts.may_revoke(&session.peer)?;
        let number = revoke.vif;
        let found = self.nics.iter().find_map(|nic| nic.vifs.table.get(&number));
        let Some(vif) = found else {
            let text = format!("there is no interface {number}; `clearway vif list` shows them");
            return Err(refusal(Code::Invalid, text));
        };
        if vif.answers_left > 0 {
            let text = format!("interface {number} is being opened or closed just now; try again");
            return Err(refusal(Code::Invalid, text));
        }
        tracing::info!(app = vif.app, number, user = session.peer.user, "interface taken away");
        let engine = vif.engine;
        self.begin_closing(token, engine, number, Some(Code::Denied));
        Ok(())
    }

    /// `told` is what its app is told, if that did not ask for it.
    fn begin_closing(&mut self, token: u64, engine: usize, number: u32, told: Option<Code>) {
        if let Some(session) = self.sessions.get_mut(&token) {
            session.waiting = Waiting::ClosingVif(number);
        }
        let nic = self.nic_of_mut(engine);
        nic.unsteer(number);
        let Some(channel) = nic.vifs.table.get(&number).map(|vif| vif.channel) else { return };
        let count = self.close_at_engines(engine, channel, number, told);
        if let Some(vif) = self.nic_of_mut(engine).vifs.table.get_mut(&number) {
            (vif.is_closing, vif.answers_left) = (true, count);
        }
    }

    /// Asks so many of the engines that have not been asked yet.
    fn ask_engines(&mut self, engine: usize, number: u32, count: usize) {
        let nic = &mut self.nics[self.engines[engine].nic];
        let Some(vif) = nic.vifs.table.get_mut(&number) else { return };
        vif.answers_left += count;
        let asked = vif.unasked.start..(vif.unasked.start + count).min(vif.unasked.end);
        vif.unasked.start = asked.end;
        for asked in asked {
            self.engines[asked].post(vif.request(number, asked == engine, engine));
        }
    }

    /// Returns how many engines will answer.
    fn close_at_engines(
        &mut self,
        engine: usize,
        channel: u32,
        vif: u32,
        told: Option<Code>,
    ) -> usize {
        let engines = self.nic_of(engine).engines.clone();
        for engine in &mut self.engines[engines.clone()] {
            engine.post(EngineRequest::CloseVif { channel, vif, told });
        }
        engines.len()
    }

    /// Remembers what is on its way to the engine; returns its number.
    fn begin_opening(&mut self, token: u64, vif: Vif) -> u32 {
        let is_used = |number| self.nics.iter().any(|nic| nic.vifs.has(number));
        let mut number = self.vif_next;
        while is_used(number) {
            number = number.wrapping_add(1);
        }
        self.vif_next = number.wrapping_add(1);
        self.nic_of_mut(vif.engine).vifs.table.insert(number, vif);
        if let Some(session) = self.sessions.get_mut(&token) {
            session.waiting = Waiting::OpeningVif(number);
        }
        number
    }

    pub(super) fn vif_opened(
        &mut self,
        engine: usize,
        channel: u32,
        vif: u32,
        result: Result<(), VifRefused>,
    ) {
        let Some(engine) = self.owner_of(engine, vif) else { return };
        // Without a session, the engine has been told to remove the channel and all that it has.
        let Some(token) = self.engines[engine].channel(channel).map(|channel| channel.session)
        else {
            return;
        };
        let is_awaited = self.sessions.get(&token).is_some_and(
            |session| matches!(session.waiting, Waiting::OpeningVif(awaited) if awaited == vif),
        );
        if !is_awaited {
            return;
        }
        let opened = match result {
            Ok(()) if !self.is_open_everywhere(engine, vif) => return,
            Ok(()) => self.finish_opening(engine, vif),
            Err(refused) => Err(refusal(code_of(&refused), refused.to_string())),
        };
        let reply = opened.map(Reply::VifOpened).unwrap_or_else(|refusal| {
            self.log_refusal(token, &refusal);
            self.close_at_engines(engine, channel, vif, None);
            self.nic_of_mut(engine).unsteer(vif);
            self.forget_vif(token, engine, vif);
            Reply::Error(refusal)
        });
        self.reply(token, &reply);
    }

    /// The engine that serves the app of an interface, which `engine` has said something of.
    fn owner_of(&self, engine: usize, vif: u32) -> Option<usize> {
        self.nic_of(engine).vifs.table.get(&vif).map(|vif| vif.engine)
    }

    /// One more engine has it. If all that were asked do, asks the others; true if there are none.
    fn is_open_everywhere(&mut self, engine: usize, number: u32) -> bool {
        let Some(vif) = self.nic_of_mut(engine).vifs.table.get_mut(&number) else { return false };
        vif.answers_left -= 1;
        let (answers_left, unasked) = (vif.answers_left, vif.unasked.len());
        if answers_left == 0 && unasked > 0 {
            self.ask_engines(engine, number, unasked);
        }
        answers_left == 0 && unasked == 0
    }

    /// The engines have it: now the NIC.
    fn finish_opening(&mut self, engine: usize, vif: u32) -> Result<VifOpened, Refusal> {
        let nic = &mut self.nics[self.engines[engine].nic];
        nic.steer(vif)?;
        let opened = nic.opened(vif);
        let user = nic.vifs.table.get(&vif).map_or(0, |vif| vif.user);
        if self.log_budget.take(user) {
            let app = nic.vifs.table.get(&vif).map_or("", |vif| &vif.app);
            let engine = &self.engines[engine].name;
            tracing::info!(app, engine, vif, receive = ?opened.receive, "interface open");
        }
        Ok(opened)
    }

    pub(super) fn vif_closed(&mut self, engine: usize, channel: u32, vif: u32) {
        let Some(engine) = self.owner_of(engine, vif) else { return };
        let found = self.nic_of_mut(engine).vifs.table.get_mut(&vif);
        let Some(closing) = found.filter(|found| found.is_closing) else { return };
        closing.answers_left -= 1;
        if closing.answers_left > 0 {
            return;
        }
        if let Some(channel) = self.engines[engine].channel(channel) {
            self.forget_vif(channel.session, engine, vif);
        }
        self.tell_closed(vif);
    }

    /// Tells those who wait for it that an interface is no more: the app whose it was, or who took it
    /// away, or both.
    fn tell_closed(&mut self, vif: u32) {
        let waits = |session: &Session| matches!(session.waiting, Waiting::ClosingVif(awaited) if awaited == vif);
        let waiting = self.sessions.iter().filter(|(_, session)| waits(session));
        for token in waiting.map(|(token, _)| *token).collect::<Vec<_>>() {
            self.reply(token, &Reply::VifClosed(Empty {}));
        }
    }

    fn forget_vif(&mut self, token: u64, engine: usize, vif: u32) {
        if self.nic_of_mut(engine).vifs.table.remove(&vif).is_some()
            && let Some(session) = self.sessions.get(&token)
        {
            self.accounts.close_vifs(session.peer.user, 1);
        }
    }

    /// A channel is going, and all that it has.
    pub(super) fn forget_vifs(&mut self, user: u32, engine: usize, channel: u32) {
        let numbers = self.nic_of_mut(engine).forget_vifs(channel);
        for number in &numbers {
            self.close_at_engines(engine, channel, *number, None);
            self.tell_closed(*number);
        }
        self.accounts.close_vifs(user, numbers.len());
    }

    /// What the policy has to know of an engine's NIC, and of the host.
    fn place_of_vif(&self, engine: usize) -> Place {
        let host = self.nics.iter().flat_map(NicSlot::addresses).collect();
        self.nic_of(engine).place(host, self.facts.udp_port)
    }

    pub(super) fn nic_of(&self, engine: usize) -> &NicSlot {
        &self.nics[self.engines[engine].nic]
    }

    pub(super) fn nic_of_mut(&mut self, engine: usize) -> &mut NicSlot {
        &mut self.nics[self.engines[engine].nic]
    }

    fn capture_filters(&self, engine: usize, texts: &[String]) -> Result<Vec<Filter>, Refusal> {
        let own = self.nic_of(engine).addresses();
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

    /// The channel of the app of this name that is attached to an engine of the same NIC.
    fn channel_of(&self, engine: usize, app: &str) -> Result<u32, Refusal> {
        let nic = self.engines[engine].nic;
        let channels: Vec<u32> = self
            .sessions
            .values()
            .filter_map(|session| session.attached.as_ref())
            .filter(|attached| self.engines[attached.engine].nic == nic && attached.app == app)
            .map(|attached| attached.channel)
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

impl NicSlot {
    /// What the policy has to know of this NIC.
    fn place(&self, host: Vec<IpAddr>, udp_port: u16) -> Place {
        let stations = self.vifs.table.values().filter_map(|vif| {
            let grant = vif.grant.as_ref().filter(|grant| grant.has_own_mac)?;
            let owner = format!("app \"{}\"", vif.app);
            Some(Station { mac: grant.mac, address: grant.address, owner })
        });
        Place {
            addresses: self.addresses(),
            host,
            mac: self.ethernet.mac,
            vlan: self.ethernet.vlan,
            udp_port,
            stations: stations.collect(),
        }
    }

    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.networks.iter().map(|network| network.address).collect()
    }

    /// What an app is told of its new interface.
    fn opened(&self, vif: u32) -> VifOpened {
        let grant = self.vifs.grant(vif);
        let texts = |filters: fn(&Grant) -> &[Filter]| {
            let filters = grant.map_or(&[][..], filters);
            filters.iter().map(ToString::to_string).collect()
        };
        VifOpened {
            vif,
            mac: Mac(grant.map_or(self.ethernet.mac, |grant| grant.mac)),
            mtu: self.ethernet.mtu.into(),
            receive: texts(|grant| &grant.receive),
            transmit: texts(|grant| &grant.transmit),
            copies: texts(|grant| &grant.copies),
        }
    }

    /// A channel is going, and all that it has; returns the numbers of its interfaces and captures.
    fn forget_vifs(&mut self, channel: u32) -> Vec<u32> {
        let of_channel = self.vifs.table.iter().filter(|(_, vif)| vif.channel == channel);
        let numbers: Vec<u32> = of_channel.map(|(number, _)| *number).collect();
        for number in &numbers {
            self.unsteer(*number);
            self.vifs.table.remove(number);
        }
        numbers
    }
}

impl Vif {
    /// What an engine is asked for: the one that serves the app, or another of the NIC's, whose
    /// indexes count from its first.
    fn request(&self, vif: u32, is_owner: bool, engine: usize) -> EngineRequest {
        let channel = self.channel;
        if let Some(spec) = self.capture.clone().map(Box::new) {
            return if is_owner {
                EngineRequest::OpenCapture { channel, vif, spec }
            } else {
                EngineRequest::NoteCapture { engine, channel, vif, spec }
            };
        }
        let spec = Box::new(self.spec());
        if is_owner {
            EngineRequest::OpenVif { channel, vif, spec }
        } else {
            EngineRequest::NoteVif { engine, app: self.app.clone(), channel, vif, spec }
        }
    }

    fn spec(&self) -> VifSpec {
        let grant = self.grant.clone().unwrap_or_default();
        VifSpec {
            receive: grant.receive,
            copies: grant.copies,
            transmit: grant.transmit,
            priority: grant.priority,
            mac: grant.mac,
            rate_frames_per_s: grant.rate_frames_per_s,
        }
    }
}

impl Vifs {
    fn has(&self, number: u32) -> bool {
        self.table.contains_key(&number)
    }

    fn captures(&self) -> usize {
        self.table.values().filter(|vif| vif.capture.is_some()).count()
    }

    fn grant(&self, number: u32) -> Option<&Grant> {
        self.table.get(&number)?.grant.as_ref()
    }

    fn is_of(&self, number: u32, channel: u32) -> bool {
        self.table.get(&number).is_some_and(|vif| vif.channel == channel)
    }
}

fn code_of(refused: &VifRefused) -> Code {
    match refused {
        VifRefused::Transmit { .. } | VifRefused::Receive { .. } | VifRefused::OfHost { .. } => {
            Code::AddressInUse
        }
        VifRefused::Limit(_) => Code::Limit,
        VifRefused::NoChannel => Code::DaemonGone,
        VifRefused::Priority(_) | VifRefused::Alternatives(_) | VifRefused::NoConnection(_) => {
            Code::Invalid
        }
    }
}

/// An Ethernet address that no vendor gave away: of one station, and locally administered (IEEE 802,
/// clause 8.4).
fn generated_mac() -> Result<MacAddress, Refusal> {
    let mut mac = [0; 6];
    getrandom(&mut mac, GetRandomFlags::empty())
        .map_err(|error| refusal(Code::Internal, format!("no random numbers: {error}")))?;
    mac[0] = mac[0] & 0xfc | 0x02;
    Ok(mac)
}
