//! How apps come by their virtual interfaces and captures, and lose them.

use clearway_base::{MILLISECOND, Random};
use clearway_control::{VifError, VifOwner, VifStep};
use clearway_engine::{CaptureSpec, VifRefused};

use super::World;
use crate::Finding;
use crate::app::{Radio, Role};
use crate::faults::Fault;
use crate::interfaces::{Interfaces, compare_known};

/// One of so many times the NIC refuses what it is asked for.
const REFUSAL_PERIOD: u64 = 8;
/// How soon an app asks again for what it did not get.
const AGAIN_NS: u64 = 50 * MILLISECOND;

/// What became of wishes for interfaces. It draws from numbers of its own.
#[derive(Debug)]
pub(super) struct Fortunes {
    random: Random,
    pub(super) opened: u64,
    pub(super) refused: u64,
}

impl Fortunes {
    pub(super) const fn new(seed: u64) -> Self {
        Self { random: Random::new(seed.rotate_left(32)), opened: 0, refused: 0 }
    }

    /// Whether the NIC says no.
    fn refuses(&mut self) -> bool {
        self.random.chance(1, REFUSAL_PERIOD)
    }
}

impl World {
    pub(super) fn interfaces_of(&mut self, host: u32) -> &mut Interfaces {
        &mut self.hosts[host as usize].interfaces
    }

    /// Opens the interface or the capture of an app that is to have one.
    ///
    /// # Panics
    /// If it may not: nobody else wants the same.
    pub(super) fn open_vif(&mut self, app: u32) {
        let opener = &mut self.apps[app as usize];
        let host = opener.character.host;
        let (engine, channel) = (opener.character.engine as usize, opener.channel);
        let owner = VifOwner { engine, channel, user: channel };
        let interfaces = &mut self.hosts[host as usize].interfaces;
        let number = match opener.character.role {
            Role::Frames => interfaces.vifs.open(owner, Radio::spec(host as usize)),
            Role::Capture => {
                let spec = CaptureSpec { filter: Vec::new(), app: None, connection: None };
                interfaces.vifs.open_capture(owner, spec)
            }
            Role::Server { .. } | Role::Client { .. } => return,
        };
        opener.vif = Some(number.unwrap_or_else(|why| panic!("host {host}: no VIF: {why:?}")));
        interfaces.compare();
        self.advance_vifs(host);
    }

    /// An app has its interface or its capture closed. False if there is none that is open.
    pub(super) fn close_vif(&mut self, app: u32) -> bool {
        let closer = &mut self.apps[app as usize];
        let interfaces = &mut self.hosts[closer.character.host as usize].interfaces;
        if !closer.vif.is_some_and(|number| interfaces.vifs.close(number, None)) {
            return false;
        }
        closer.begin_closing_vif();
        let host = closer.character.host;
        self.advance_vifs(host);
        true
    }

    /// Does what is to be done about the interfaces of a host.
    pub(super) fn advance_vifs(&mut self, host: u32) {
        while let Some(step) = self.interfaces_of(host).vifs.poll_step() {
            match step {
                VifStep::Ask { engine, request } => self.post(host, engine as u32, request),
                VifStep::Claim(number) => {
                    let refuses = self.fortunes.refuses();
                    self.interfaces_of(host).claim(number, refuses);
                }
                VifStep::Steer(number) => {
                    let refuses = self.fortunes.refuses();
                    self.interfaces_of(host).steer(number, refuses);
                }
                VifStep::Unsteer(number) => self.interfaces_of(host).unsteer(number),
                VifStep::Opened(number) => self.tell_opened(host, number),
                VifStep::Refused(number, why) => self.tell_refused(host, number, &why),
                VifStep::Gone(number) => {
                    self.interfaces_of(host).release(number);
                    self.tell_gone(host, number);
                }
            }
        }
    }

    fn tell_opened(&mut self, host: u32, number: u32) {
        self.fortunes.opened += 1;
        if let Some(app) = self.app_with(host, number) {
            self.apps[app as usize].vif_opened(number);
            self.wake_app(app, self.now);
        }
    }

    /// # Panics
    /// If neither the NIC has said no, nor an engine about an app that has lied.
    fn tell_refused(&mut self, host: u32, number: u32, why: &VifError) {
        self.fortunes.refused += 1;
        let app = self.app_with(host, number).map(|app| &self.apps[app as usize]);
        let is_lawful = match why {
            VifError::Nic(_) => true,
            VifError::Engine(VifRefused::NoChannel) => app.is_none_or(|app| app.is_hostile),
            VifError::Engine(VifRefused::NoConnection(_))
            | VifError::Registry(_)
            | VifError::Captures(_) => false,
        };
        assert!(is_lawful, "host {host}: interface {number} is refused: {why:?}");
    }

    /// Who has not asked for the end of what was its asks for it again.
    fn tell_gone(&mut self, host: u32, number: u32) {
        let Some(app) = self.app_with(host, number) else { return };
        let loser = &mut self.apps[app as usize];
        loser.vif_closed();
        if !loser.is_deaf {
            let again = self.now + self.fortunes.random.below(AGAIN_NS);
            self.later(again, Fault::Listen { app });
        }
    }

    /// The app that has an interface, if it lives.
    fn app_with(&self, host: u32, number: u32) -> Option<u32> {
        let mut of_host = self.residents[host as usize].iter().copied();
        of_host.find(|app| self.apps[*app as usize].vif == Some(number))
    }

    /// All engines of a host know the same interfaces as its control plane, which waits for none of
    /// them.
    pub(super) fn audit_vifs(&self, host: u32) -> Result<(), Finding> {
        let place = &self.hosts[host as usize];
        let found = |what| Finding { what, hosts: vec![host] };
        let agreed = place.interfaces.agreed();
        let agreed = agreed.ok_or_else(|| found("an interface waits for engines".to_owned()))?;
        let states = place.runners.iter().map(|runner| runner.engine.save());
        states.into_iter().try_for_each(|state| compare_known(&state, &agreed).map_err(found))
    }
}
