//! An engine as plain data, and back: `save`, `into_remains`, `restore`.

use std::collections::HashSet;

use clearway_base::Time;
use clearway_base::state::{Invalid, ensure};
use clearway_nic::Queue;

use super::bursts::Bursts;
use super::looks::Looks;
use super::status::Gathering;
use super::{
    Core, Engine, EngineConfig, Queues, frame_bytes, own_interface, services_of, transport_config,
};
use crate::captures::Captures;
use crate::channels::{Channels, Ends};
use crate::common::{Common, EngineCounters};
use crate::component::Component;
use crate::control::Mailbox;
use crate::frames::Frames;
use crate::host::{Host, OtherNic};
use crate::lanes::Lanes;
use crate::loopback::Loopback;
use crate::messages::Messages;
use crate::state::{MessagesState, STATE_VERSION, State, StateError};
use crate::switch::Switch;
use crate::tcp::Tcp;

/// No clock shows more: 146 years.
const NOW_NS_MAX: u64 = 1 << 62;

/// What lives on while an engine is saved and made again: queues, the apps' memory and doorbells,
/// the ways to the other engines and to the control plane; what is configured; and the extra
/// component, if it has one, as it is.
pub struct Remains<X> {
    queues: Queues,
    copies: Option<Box<dyn Queue>>,
    mailbox: Mailbox,
    core: CoreRemains<X>,
}

/// What lives on of all but the queues.
struct CoreRemains<X> {
    config: EngineConfig,
    lanes: Lanes,
    ends: Ends,
    others: Vec<OtherNic>,
    extra: X,
    processor: Option<u32>,
}

impl<X> std::fmt::Debug for Remains<X> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remains").field("name", &self.core.config.name).finish_non_exhaustive()
    }
}

impl<X: Component<Owner = ()>> Engine<X> {
    /// All that another engine needs to go on, between two turns.
    #[must_use]
    pub fn save(&self) -> State {
        let common = &self.core.common;
        State {
            version: STATE_VERSION,
            engine: common.lanes.index() as u32,
            channels: common.channels.save(),
            leaving: self.leaving.iter().copied().collect(),
            lingering: self.lingering.clone(),
            messages: self.core.messages.save(),
            host: common.host.save(),
            frames: self.core.frames.save(),
            sibling_vifs: common.switch.save(),
            tcp: self.core.tcp.save(),
            captures: common.captures.save(),
            snapshots: self.gatherings.iter().map(Gathering::id).collect(),
            end_by: self.end_by,
            has_ended: self.has_ended,
            has_rested: self.has_rested,
            was_up: self.was_up,
            clock: self.clock,
            turns: self.turns,
            turns_busy: self.turns_busy,
            counters: common.counters.save(),
            app_counters: common.channels.save_counters(),
        }
    }

    /// What another engine needs besides. All else is dropped.
    #[must_use]
    pub fn into_remains(self) -> Remains<X> {
        let Core { config, common, extra, processor, .. } = self.core;
        let Common { channels, host, lanes, .. } = common;
        let (ends, others) = (channels.into_ends(), host.into_others());
        Remains {
            queues: self.queues,
            copies: self.copies,
            mailbox: self.mailbox,
            core: CoreRemains { config, lanes, ends, others, extra, processor },
        }
    }

    /// An engine that goes on where another one was saved, when its clock shows `shown`. Nothing of
    /// `saved` is trusted: what contradicts itself, or what it is restored on, is refused, and the
    /// books of what is taken agree.
    ///
    /// # Errors
    /// Why there is no engine. The remains are gone with it, as in a crash.
    pub fn restore(mut saved: State, remains: Remains<X>, shown: Time) -> Result<Self, StateError> {
        let mut clock = saved.clock;
        let now = clock.time(shown);
        ensure(now.as_ns() < NOW_NS_MAX, "a time that nobody sees")?;
        let Remains { queues, copies, mailbox, core } = remains;
        ensure(saved.engine as usize == core.lanes.index(), "it is that of another engine")?;
        let sleep = super::sleep::sleep_on(&mailbox, &core.lanes, &queues)?;
        let snapshots = core::mem::take(&mut saved.snapshots).into_iter();
        let mut engine = Self {
            looks: Looks::of(&queues),
            bursts: Bursts::of(&queues),
            queues,
            copies: None,
            mailbox,
            sleep,
            gatherings: snapshots.map(Gathering::new).collect(),
            leaving: core::mem::take(&mut saved.leaving).into(),
            lingering: core::mem::take(&mut saved.lingering),
            has_ended: saved.has_ended,
            end_by: saved.end_by,
            has_rested: saved.has_rested,
            was_up: saved.was_up,
            clock: saved.clock,
            board: None,
            turns: saved.turns.min(u64::MAX / 2),
            turns_busy: saved.turns_busy.min(u64::MAX / 2),
            core: Core::restore(saved, core, now)?,
        };
        engine.check_leaving()?;
        engine.check_lingering()?;
        if let Some(copies) = copies {
            engine.set_copies(copies)?;
        }
        engine.hear_all()?;
        engine.audit().map_err(StateError::Books)?;
        Ok(engine)
    }

    /// Those that leave are there, each once, and are served no more.
    fn check_leaving(&self) -> Result<(), Invalid> {
        let channels = &self.core.common.channels;
        let is_there = |id: &u32| channels.peek(*id).is_some_and(|channel| channel.is_condemned);
        let is_one = self.leaving.iter().collect::<HashSet<_>>().len() == self.leaving.len();
        ensure(is_one && self.leaving.iter().all(is_there), "a channel leaves that stays")
    }

    /// Makes the doorbells of all channels end a sleep.
    fn hear_all(&self) -> Result<(), StateError> {
        for (id, channel) in self.core.common.channels.iter().filter(|(_, app)| app.can_park) {
            self.hear(id, channel).map_err(std::io::Error::from)?;
        }
        Ok(())
    }
}

impl<X: Component<Owner = ()>> Core<X> {
    fn restore(saved: State, remains: CoreRemains<X>, now: Time) -> Result<Self, Invalid> {
        let CoreRemains { config, lanes, ends, others, extra, processor } = remains;
        let (index, siblings) = (lanes.index(), lanes.siblings().clone());
        let channels = Channels::restore(saved.channels, ends, &saved.app_counters)?;
        let own = own_interface(&config.interface, &lanes);
        let mut switch =
            Switch::new(own.mac(), services_of(&config.interface, config.udp_port, &extra));
        let host = Host::restore(own, others, saved.host, now)?;
        switch.restore(saved.sibling_vifs, index, &siblings)?;
        let frames = Frames::restore(saved.frames, &mut switch, &channels, now)?;
        let mtu = config.interface.mtu_max.unwrap_or(config.interface.mtu);
        let tcp = Tcp::restore(saved.tcp, &channels, &mut switch, &lanes, mtu, now)?;
        let captures = Captures::restore(saved.captures, &channels, index, &siblings)?;
        let counters = EngineCounters::restore(&saved.counters);
        let loopback = Loopback::default();
        let mut common = Common { channels, host, lanes, loopback, switch, captures, counters };
        let messages = restore_messages(saved.messages, &config, &mut common, now)?;
        messages.match_channels(&mut common.channels, tcp.held())?;
        Ok(Self { processor, ..Self::new(config, common, messages, frames, tcp, extra) })
    }
}

fn restore_messages(
    saved: MessagesState,
    config: &EngineConfig,
    common: &mut Common,
    now: Time,
) -> Result<Messages, Invalid> {
    let (lanes, other_nics) = (&common.lanes, common.host.other_count());
    let frame_bytes = frame_bytes(&config.interface);
    let new = |endpoint| Messages::new(endpoint, config.udp_port, other_nics, frame_bytes);
    let transport = transport_config(config, lanes);
    Messages::restore(saved, new, transport, lanes, other_nics, now)
}
