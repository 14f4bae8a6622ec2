//! Virtual interfaces and captures: what apps ask for, what the policy makes of it, what the kernel
//! and the NIC are asked for, and what apps are told. `clearway_control::Vifs` decides whether
//! patterns collide, has the engines agree, and says what is to be done when.

mod closing;
mod steering;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use clearway_channel::Code;
use clearway_channel::control::{Mac, OpenCapture, OpenVif, Refusal, Reply, VifOpened};
use clearway_classify::Filter;
use clearway_classify::registry::{self, OwnerId};
use clearway_control::filter::Template;
use clearway_control::policy::{Grant, HostPort, Place, Station};
use clearway_control::{VifError, VifOwner, VifStep, Vifs};
use clearway_engine::{CaptureSpec, VifRefused, VifTexts, ip};
use clearway_nic::MacAddress;
use rustix::rand::{GetRandomFlags, getrandom};

use super::requests::{not_attached, refusal};
use super::session::{Attached, Session, Waiting};
use super::{ControlPlane, NicSlot};
use crate::config::Config;
pub(super) use steering::Held;
use steering::Steered;

/// Comparisons between two looks at the sockets, for all users of a NIC together: some tenths of a
/// millisecond.
const COMPARISONS_PER_TURN: usize = 8192;

/// An interface or a capture, as the engines have nothing to do with it.
#[derive(Debug)]
pub(super) struct Granted {
    owner: VifOwner,
    /// Index of its NIC.
    nic: usize,
    /// For people: the app's name.
    app: String,
    /// What it was granted; a capture has no use for it.
    grant: Option<Grant>,
    /// That as text.
    texts: Arc<VifTexts>,
    /// Ports that are its: claimed from the kernel, where that shares the NIC.
    claimed: HashSet<HostPort>,
    /// What the NIC was asked for.
    steered: Steered,
}

/// The interfaces of a host, none yet. What its NICs have for themselves nobody gets.
pub(crate) fn vifs<'a>(
    nics: &[NicSlot],
    interfaces: impl Iterator<Item = &'a ip::Config>,
    config: &Config,
) -> Vifs {
    let mut limits = registry::Limits::default();
    limits.user.clauses = config.policy.limits.patterns_per_user;
    let mut vifs = Vifs::new(nics.iter().map(|nic| nic.engines.clone()), limits);
    for (nic, interface) in interfaces.enumerate() {
        vifs.reserve(nic, interface, config.udp_port);
    }
    vifs
}

impl ControlPlane {
    pub(super) fn open_vif(&mut self, token: u64, open: &OpenVif) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get(&token) else { return Ok(()) };
        let attached = session.attached.as_ref().ok_or_else(not_attached)?;
        let granted = self.granted(session, attached);
        let (nic, owner) = (&self.nics[granted.nic], granted.owner);
        nic.may_have_vifs()?;
        let place = self.place_of_vif(granted.nic);
        let generated = generated_mac()?;
        let grant = self.accounts.grant_vif(&session.peer, open, &place, generated)?;
        self.accounts.open_vif(&session.peer)?;
        let spec = grant.spec();
        let texts = Arc::clone(&spec.texts);
        let opening = self.vifs.open(owner, spec);
        self.begin_opening(token, opening, Granted { grant: Some(grant), texts, ..granted })
    }

    pub(super) fn open_capture(&mut self, token: u64, open: &OpenCapture) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get(&token) else { return Ok(()) };
        let attached = session.attached.as_ref().ok_or_else(not_attached)?;
        let granted = self.granted(session, attached);
        self.accounts.may_capture(&session.peer)?;
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
        self.accounts.open_vif(&session.peer)?;
        let opening = self.vifs.open_capture(granted.owner, spec);
        self.begin_opening(token, opening, granted)
    }

    /// Nothing yet, of an app.
    fn granted(&self, session: &Session, attached: &Attached) -> Granted {
        let (engine, channel, user) = (attached.engine, attached.channel, session.peer.user);
        Granted {
            owner: VifOwner { engine, channel, user },
            nic: self.engines[engine].nic,
            app: attached.app.clone(),
            grant: None,
            texts: Arc::default(),
            claimed: HashSet::new(),
            steered: Steered::default(),
        }
    }

    /// It is on its way to the engines, unless it is refused at once; it has been counted.
    fn begin_opening(
        &mut self,
        token: u64,
        opening: Result<u32, VifError>,
        granted: Granted,
    ) -> Result<(), Refusal> {
        let number = opening.map_err(|why| {
            self.accounts.close_vifs(granted.owner.user, 1);
            self.refused(why)
        })?;
        self.grants.insert(number, granted);
        if let Some(session) = self.sessions.get_mut(&token) {
            session.waiting = Waiting::OpeningVif(number);
        }
        self.advance_vifs();
        Ok(())
    }

    /// When [`ControlPlane::advance_checks`] has something to do.
    pub(super) fn checks_due(&self) -> Option<Instant> {
        self.vifs.is_checking().then(Instant::now)
    }

    /// Goes on with what is being compared with what others have.
    pub(super) fn advance_checks(&mut self) {
        self.vifs.advance(COMPARISONS_PER_TURN);
        self.advance_vifs();
    }

    /// An engine has taken an interface in, or not.
    pub(super) fn vif_opened(
        &mut self,
        engine: usize,
        number: u32,
        result: Result<(), VifRefused>,
    ) {
        self.vifs.handle_opened(engine, number, result);
        self.advance_vifs();
    }

    /// Does what is to be done about interfaces.
    pub(super) fn advance_vifs(&mut self) {
        while let Some(step) = self.vifs.poll_step() {
            match step {
                VifStep::Ask { engine, request } => self.engines[engine].post(request),
                VifStep::Claim(number) => {
                    let ports_max = self.accounts.ports_per_user();
                    let claimed = self.at_nic(number, |nic, vif| nic.claim(vif, ports_max));
                    self.vifs.handle_claimed(number, claimed.unwrap_or(Ok(())));
                }
                VifStep::Steer(number) => {
                    let steered = self.at_nic(number, NicSlot::steer);
                    self.vifs.handle_steered(number, steered.unwrap_or(Ok(())));
                }
                VifStep::Unsteer(number) => {
                    self.at_nic(number, NicSlot::unsteer);
                }
                VifStep::Opened(number) => self.tell_opened(number),
                VifStep::Refused(number, why) => {
                    let refusal = self.refused(why);
                    self.tell_refused(number, refusal);
                }
                VifStep::Gone(number) => self.forget_vif(number),
            }
        }
    }

    /// Has an interface's NIC do something for it.
    fn at_nic<T>(
        &mut self,
        number: u32,
        work: impl FnOnce(&mut NicSlot, &mut Granted) -> T,
    ) -> Option<T> {
        let vif = self.grants.get_mut(&number)?;
        Some(work(&mut self.nics[vif.nic], vif))
    }

    fn tell_opened(&mut self, number: u32) {
        let Some(vif) = self.grants.get(&number) else { return };
        let opened = vif.opened(number, &self.nics[vif.nic]);
        if self.log_budget.take(vif.owner.user) {
            let app = &vif.app;
            let engine = &self.engines[vif.owner.engine].name;
            tracing::info!(app, engine, vif = number, receive = ?opened.receive, "interface open");
        }
        self.answer_opening(number, &Reply::VifOpened(opened));
    }

    fn tell_refused(&mut self, number: u32, refusal: Refusal) {
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
        let owner = self.grants.get(&number)?.owner;
        let token = self.engines[owner.engine].channel(owner.channel)?.session;
        self.sessions.get(&token)?.waiting.is_opening(number).then_some(token)
    }

    /// What an app is told of a refusal.
    fn refused(&self, why: VifError) -> Refusal {
        match why {
            VifError::Registry(refused) => self.refused_by_registry(&refused),
            VifError::Captures(most) => {
                let text = format!("{most} captures run on this NIC already; end one of them");
                refusal(Code::Limit, text)
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

    fn refused_by_registry(&self, refused: &registry::Refusal) -> Refusal {
        use registry::Refusal as Why;
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
        let mut of_owner = self.grants.values().filter(|vif| vif.owner.channel == owner.0);
        let app = of_owner.next().map_or("?", |vif| vif.app.as_str());
        format!("app {app} (channel {})", owner.0)
    }

    /// What the policy has to know of a NIC, and of the host.
    fn place_of_vif(&self, nic: usize) -> Place {
        let of_nic = self.grants.values().filter(|vif| vif.nic == nic);
        let NicSlot { ethernet, .. } = &self.nics[nic];
        Place {
            addresses: self.nics[nic].addresses(),
            host: self.nics.iter().flat_map(NicSlot::addresses).collect(),
            mac: ethernet.mac,
            vlan: ethernet.vlan,
            udp_port: self.facts.udp_port,
            stations: of_nic.filter_map(Granted::station).collect(),
        }
    }

    fn capture_filters(&self, nic: usize, texts: &[String]) -> Result<Vec<Filter>, Refusal> {
        let own = self.nics[nic].addresses();
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

    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.networks.iter().map(|network| network.address).collect()
    }
}

impl Granted {
    /// The machine that it is on the link, if it is one.
    fn station(&self) -> Option<Station> {
        let grant = self.grant.as_ref().filter(|grant| grant.has_own_mac)?;
        let owner = format!("app \"{}\"", self.app);
        Some(Station { mac: grant.mac, address: grant.address, owner })
    }

    /// What its app is told once it is open.
    fn opened(&self, number: u32, nic: &NicSlot) -> VifOpened {
        let VifTexts { receive, transmit, copies } = VifTexts::clone(&self.texts);
        let mac = self.grant.as_ref().map_or(nic.ethernet.mac, |grant| grant.mac);
        let mtu = nic.ethernet.mtu.into();
        VifOpened { vif: number, mac: Mac(mac), mtu, receive, transmit, copies }
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
