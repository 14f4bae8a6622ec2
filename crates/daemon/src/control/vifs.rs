//! Virtual interfaces and captures: what apps ask for, what the policy makes of it, and then the
//! registry, the kernel, the engines and the NIC.
//!
//! ```text
//!  open_vif ─▶ policy ─▶ registry, in slices ─▶ ports claimed ─▶ engines ─▶ NIC ─▶ vif_opened
//!                 │           │                     │               │        └─ no ─▶ closed again
//!                 └─ no       └─ no                 └─ no           └─ no ─▶ refusal, closed again
//! ```
//!
//! The registry of a NIC decides whether patterns collide; engines take in what it has registered.
//! Every engine of a NIC knows all its interfaces, since frames may come in anywhere.
//!
//! The order matters: a port is the kernel's until nobody but the interface can have it, and again
//! only when no engine sends from it any more. Frames are steered to the engines only when somebody
//! takes them there, and go back to the kernel before nobody does. What is closed is free for
//! others at once, since each engine hears of the closing before it hears of them.

mod closing;
mod registered;
mod steering;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use clearway_channel::Code;
use clearway_channel::control::{Mac, OpenCapture, OpenVif, Refusal, Reply, VifOpened};
use clearway_classify::Filter;
use clearway_classify::registry::{CheckId, Registry, VifId};
use clearway_engine::{CaptureSpec, Request as EngineRequest, VifRefused, VifSpec, VifTexts};
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
#[derive(Debug)]
pub(crate) struct Vifs {
    table: BTreeMap<u32, Vif>,
    /// Who may have which patterns.
    registry: Registry,
    /// Interfaces that are being checked.
    checks: HashMap<CheckId, u32>,
    /// By user, what the NIC was asked for.
    held: HashMap<u32, Held>,
}

/// An interface or a capture, in the engines or on its way there or back.
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
    /// That as text.
    texts: Arc<VifTexts>,
    /// What it is to see, if it is a capture.
    capture: Option<CaptureSpec>,
    stage: Stage,
    /// In the registry.
    registered: Option<VifId>,
    /// Ports that are its: claimed from the kernel, where that shares the NIC.
    claimed: HashSet<HostPort>,
    /// What the NIC was asked for.
    steered: Steered,
}

/// How far an interface has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is compared with all others.
    Checking(CheckId),
    /// So many engines have to say yet that they have it.
    Opening(usize),
    Open,
    /// So many engines have to say yet that they do not have it any more.
    Closing(usize),
}

impl ControlPlane {
    pub(super) fn open_vif(&mut self, token: u64, open: &OpenVif) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get(&token) else { return Ok(()) };
        let attached = session.attached.as_ref().ok_or_else(not_attached)?;
        let (engine, channel) = (attached.engine, attached.channel);
        let (user, app) = (session.peer.user, attached.app.clone());
        self.nic_of(engine).may_have_vifs()?;
        let place = self.place_of_vif(engine);
        let generated = generated_mac()?;
        let grant = self.accounts.grant_vif(&session.peer, open, &place, generated)?;
        self.accounts.open_vif(&session.peer)?;
        let checking = self.nic_of_mut(engine).vifs.check(user, channel, &grant);
        let check = checking.inspect_err(|_| self.accounts.close_vifs(user, 1))?;
        let vif = Vif {
            engine,
            channel,
            user,
            app,
            texts: Arc::new(grant.texts()),
            grant: Some(grant),
            capture: None,
            stage: Stage::Checking(check),
            registered: None,
            claimed: HashSet::new(),
            steered: Steered::default(),
        };
        let number = self.begin_opening(token, vif);
        self.nic_of_mut(engine).vifs.checks.insert(check, number);
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
        let vif = Vif {
            engine,
            channel,
            user,
            app: name,
            grant: None,
            texts: Arc::default(),
            capture: Some(spec),
            stage: Stage::Opening(0),
            registered: None,
            claimed: HashSet::new(),
            steered: Steered::default(),
        };
        let number = self.begin_opening(token, vif);
        self.open_at_engines(engine, number);
        Ok(())
    }

    /// Asks all engines of the NIC to take it in.
    fn open_at_engines(&mut self, engine: usize, number: u32) {
        let nic = &mut self.nics[self.engines[engine].nic];
        let Some(vif) = nic.vifs.table.get_mut(&number) else { return };
        vif.stage = Stage::Opening(nic.engines.len());
        for asked in nic.engines.clone() {
            self.engines[asked].post(vif.request(number, asked == engine, engine));
        }
    }

    /// Remembers what is on its way to the engines; returns its number.
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

    /// An engine has taken an interface in, or not.
    pub(super) fn vif_opened(
        &mut self,
        engine: usize,
        number: u32,
        result: Result<(), VifRefused>,
    ) {
        let Some(vif) = self.nic_of_mut(engine).vifs.table.get_mut(&number) else { return };
        let Stage::Opening(answers_left) = &mut vif.stage else { return };
        *answers_left -= 1;
        let (is_last, owner) = (*answers_left == 0, vif.engine);
        let opened = match result {
            Ok(()) if !is_last => return,
            Ok(()) => self.finish_opening(owner, number),
            Err(refused) => Err(refusal(code_of(&refused), refused.to_string())),
        };
        match opened {
            Ok(opened) => self.answer_opening(number, &Reply::VifOpened(opened)),
            Err(refusal) => {
                self.close_at_engines(owner, number, None);
                self.refuse_opening(number, refusal);
            }
        }
    }

    /// The engines have it: now the NIC.
    fn finish_opening(&mut self, engine: usize, number: u32) -> Result<VifOpened, Refusal> {
        let nic = &mut self.nics[self.engines[engine].nic];
        nic.steer(number)?;
        let opened = nic.opened(number);
        let Some(vif) = nic.vifs.table.get_mut(&number) else { return Ok(opened) };
        vif.stage = Stage::Open;
        if self.log_budget.take(vif.user) {
            let app = &vif.app;
            let engine = &self.engines[engine].name;
            tracing::info!(app, engine, vif = number, receive = ?opened.receive, "interface open");
        }
        Ok(opened)
    }

    fn refuse_opening(&mut self, number: u32, refusal: Refusal) {
        if let Some(token) = self.who_opens(number) {
            self.log_refusal(token, &refusal);
        }
        self.answer_opening(number, &Reply::Error(refusal));
    }

    fn answer_opening(&mut self, number: u32, reply: &Reply) {
        if let Some(token) = self.who_opens(number) {
            self.reply(token, reply);
        }
    }

    /// The session that waits for an interface to be opened, if it is still there.
    fn who_opens(&self, number: u32) -> Option<u64> {
        let vif = self.nics.iter().find_map(|nic| nic.vifs.table.get(&number))?;
        let token = self.engines[vif.engine].channel(vif.channel)?.session;
        let waits = |session: &Session| matches!(session.waiting, Waiting::OpeningVif(awaited) if awaited == number);
        self.sessions.get(&token).is_some_and(waits).then_some(token)
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
    fn may_have_vifs(&self) -> Result<(), Refusal> {
        let Some(why) = self.only_messages else { return Ok(()) };
        let text = format!("NIC {} has no virtual interfaces: {why}", self.name);
        Err(refusal(Code::Unsupported, text))
    }

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
        let of_table = self.vifs.table.get(&vif);
        let texts = of_table.map(|vif| VifTexts::clone(&vif.texts)).unwrap_or_default();
        let mac =
            of_table.and_then(|vif| vif.grant.as_ref()).map_or(self.ethernet.mac, |of| of.mac);
        VifOpened {
            vif,
            mac: Mac(mac),
            mtu: self.ethernet.mtu.into(),
            receive: texts.receive,
            transmit: texts.transmit,
            copies: texts.copies,
        }
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
            EngineRequest::NoteVif { engine, channel, vif, spec }
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
            texts: Arc::clone(&self.texts),
        }
    }
}

impl Grant {
    fn texts(&self) -> VifTexts {
        let texts = |filters: &[Filter]| filters.iter().map(ToString::to_string).collect();
        VifTexts {
            receive: texts(&self.receive),
            copies: texts(&self.copies),
            transmit: texts(&self.transmit),
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

    fn is_of(&self, number: u32, channel: u32) -> bool {
        let is_it = |vif: &Vif| vif.channel == channel && vif.stage == Stage::Open;
        self.table.get(&number).is_some_and(is_it)
    }
}

fn code_of(refused: &VifRefused) -> Code {
    match refused {
        VifRefused::NoChannel => Code::DaemonGone,
        VifRefused::NoConnection(_) => Code::Invalid,
    }
}

/// An Ethernet address that no vendor gave away: of one station, and locally administered (IEEE
/// 802, clause 8.4).
fn generated_mac() -> Result<MacAddress, Refusal> {
    let mut mac = [0; 6];
    getrandom(&mut mac, GetRandomFlags::empty())
        .map_err(|error| refusal(Code::Internal, format!("no random numbers: {error}")))?;
    mac[0] = mac[0] & 0xfc | 0x02;
    Ok(mac)
}
