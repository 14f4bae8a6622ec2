//! What apps ask of their control planes, what those ask of engines, and what comes back.

use clearway_base::{MILLISECOND, Random};
use clearway_channel::Code;
use clearway_channel::control::{Listening, Refusal, Reply, TcpPortOpened, VifOpened};

use super::World;
use crate::Finding;
use crate::app::{Forbidden, Role, Wish};
use crate::control::{ControlPlane, Fate, Told};
use crate::faults::Fault;
use crate::ledger::Trouble;

/// One of so many times the NIC refuses what it is asked for.
const REFUSAL_PERIOD: u64 = 8;
/// One of so many apps does not get its channel at the first attempt.
const FATE_PERIOD: u64 = 8;
/// One of so many asks for what it may not have.
const FORBIDDEN_PERIOD: u64 = 4;
/// How soon an app asks again for what it did not get.
const AGAIN_NS: u64 = 50 * MILLISECOND;

/// What became of wishes. It draws from numbers of its own.
#[derive(Debug)]
pub(super) struct Fortunes {
    random: Random,
    pub(super) opened: u64,
    pub(super) refused: u64,
    /// What nobody may have was asked for, and refused.
    pub(super) denied: u64,
    /// Apps that did not get their channels.
    pub(super) without_channel: u64,
}

impl Fortunes {
    pub(super) const fn new(seed: u64) -> Self {
        let random = Random::new(seed.rotate_left(32));
        Self { random, opened: 0, refused: 0, denied: 0, without_channel: 0 }
    }

    /// Whether the NIC says no.
    fn refuses(&mut self) -> bool {
        self.random.chance(1, REFUSAL_PERIOD)
    }

    /// What becomes of an app that attaches.
    pub(super) fn fate(&mut self) -> Fate {
        if !self.random.chance(1, FATE_PERIOD) {
            return Fate::Lives;
        }
        let fates = [Fate::NoMemory, Fate::DiesEarly, Fate::DiesLate, Fate::Cheats];
        self.without_channel += 1;
        fates[self.random.below(fates.len() as u64) as usize]
    }

    /// What an app asks for although it may not have it, if that is its way.
    pub(super) fn forbidden(&mut self) -> Option<Forbidden> {
        let asks = self.random.chance(1, FORBIDDEN_PERIOD);
        let index = self.random.below(Forbidden::ALL.len() as u64) as usize;
        asks.then_some(Forbidden::ALL[index])
    }

    /// After how long somebody tries again.
    pub(super) fn pause_ns(&mut self) -> u64 {
        self.random.below(AGAIN_NS)
    }
}

impl World {
    pub(super) fn control_of(&mut self, host: u32) -> &mut ControlPlane {
        &mut self.hosts[host as usize].control
    }

    /// An app wants something of its control plane.
    pub(super) fn ask(&mut self, app: u32, wish: Wish) {
        self.apps[app as usize].wish(wish);
        self.serve(app);
    }

    /// Hands the requests of an app over, one at a time.
    fn serve(&mut self, app: u32) {
        let host = self.apps[app as usize].character.host;
        loop {
            let plane = &mut self.hosts[host as usize].control.plane;
            if plane.session(app.into()).is_none_or(|session| session.is_waiting()) {
                return;
            }
            let Some(request) = self.apps[app as usize].next_request() else { return };
            assert_eq!(plane.handle_request(app.into(), request), None, "it is for the plane");
            self.carry_out(host);
        }
    }

    /// Does what the control plane of a host wants done.
    pub(super) fn carry_out(&mut self, host: u32) {
        loop {
            let fortunes = &mut self.fortunes;
            match self.hosts[host as usize].control.next(|| fortunes.refuses()) {
                Some(Told::Engine(engine, request)) => self.post(host, engine as u32, request),
                Some(Told::Session(session, reply)) => self.tell(session as u32, &reply),
                Some(Told::Expelled(session, refusal)) => self.expel(session as u32, &refusal),
                None => return,
            }
        }
    }

    /// # Panics
    /// If an honest app is called a liar.
    fn expel(&mut self, app: u32, refusal: &Refusal) {
        let is_hostile = self.apps[app as usize].is_hostile;
        assert!(is_hostile, "app {app} is honest, and is told: {}", refusal.message);
        self.kill(app);
    }

    /// # Panics
    /// If an honest app is told anything else than what it has asked for, or is refused without a
    /// reason.
    fn tell(&mut self, app: u32, reply: &Reply) {
        let Some(hearer) = self.apps.get_mut(app as usize) else { return };
        let (wish, is_lost) = (hearer.answered(), hearer.is_dead || hearer.is_hostile);
        match (wish, reply) {
            (None, Reply::Mapped(_)) => {}
            (Some(Wish::Listen), Reply::Listening(Listening { listener, .. })) => {
                hearer.set_listener(Some(*listener));
            }
            (Some(Wish::Unlisten), Reply::Unlistened(_)) => hearer.set_listener(None),
            (Some(Wish::OpenVif), Reply::VifOpened(VifOpened { vif, .. })) => {
                self.fortunes.opened += 1;
                hearer.vif_opened(*vif);
                self.wake_app(app, self.now);
            }
            (Some(Wish::OpenVif), Reply::Error(refusal)) if is_fair(refusal, is_lost) => {
                self.fortunes.refused += 1;
                if !hearer.is_deaf {
                    let again = self.now + self.fortunes.pause_ns();
                    self.later(again, Fault::Listen { app });
                }
            }
            (Some(Wish::OpenTcpPort), Reply::TcpPortOpened(TcpPortOpened { number, .. })) => {
                self.fortunes.opened += 1;
                hearer.streams.iter_mut().for_each(|streams| streams.opened(*number));
                self.wake_app(app, self.now);
            }
            (Some(Wish::OpenTcpPort), Reply::Error(refusal))
                if refusal.code == Code::AddressInUse || is_fair(refusal, is_lost) =>
            {
                self.fortunes.refused += 1;
                self.ledger.note(Trouble::Deaf, hearer.character.host, self.now);
                let again = self.now + self.fortunes.pause_ns();
                self.later(again, Fault::Listen { app });
            }
            (Some(Wish::CloseVif), Reply::VifClosed(_)) => hearer.vif_closed(),
            (Some(Wish::Forbidden(what)), Reply::Error(Refusal { code, .. }))
                if *code == what.code() =>
            {
                self.fortunes.denied += 1;
            }
            (Some(_), Reply::Error(_)) if is_lost => {}
            (wish, reply) => panic!("app {app} has asked for {wish:?}, and is told {reply:?}"),
        }
        self.serve(app);
    }

    /// An app has its interface or its capture closed. False if there is none that is open.
    pub(super) fn close_vif(&mut self, app: u32) -> bool {
        let closer = &mut self.apps[app as usize];
        if closer.vif.is_none() {
            return false;
        }
        closer.begin_closing_vif();
        self.ask(app, Wish::CloseVif);
        true
    }

    /// What an app wants when it starts, or has been away.
    pub(super) fn ask_for_its_own(&mut self, app: u32) {
        let wish = match self.apps[app as usize].character.role {
            Role::Server { .. } => Wish::Listen,
            Role::Frames | Role::Capture => Wish::OpenVif,
            Role::StreamServer { .. } | Role::StreamClient { .. } => Wish::OpenTcpPort,
            Role::Client { .. } => return,
        };
        self.ask(app, wish);
    }

    /// All engines of a host know the same ports and interfaces as its control plane, which waits
    /// for none of them.
    pub(super) fn audit_agreement(&self, host: u32) -> Result<(), Finding> {
        let place = &self.hosts[host as usize];
        let found = |what| Finding { what, hosts: vec![host] };
        let agreed = place.agreed();
        let agreed =
            agreed.ok_or_else(|| found("a port or an interface waits for engines".to_owned()))?;
        let states = place.runners.iter().map(|runner| runner.engine.save());
        states.into_iter().try_for_each(|state| agreed.compare(&state).map_err(found))
    }
}

/// The NIC has no room, the last interface with this Ethernet address is not gone yet, or the
/// engine has thrown the app out.
fn is_fair(refusal: &Refusal, is_lost: bool) -> bool {
    let is_taken = refusal.code == Code::Invalid && refusal.message.contains("Ethernet address");
    refusal.code == Code::Refused || is_taken || is_lost
}
