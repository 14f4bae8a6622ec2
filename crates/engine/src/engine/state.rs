//! An engine as plain data, and back: `save`, `into_remains`, `restore`.

use std::collections::VecDeque;

use clearway_base::Time;
use clearway_base::state::{Invalid, ensure};
use clearway_nic::Queue;

use super::status::Gathering;
use super::{Core, Engine, EngineConfig, Queues, frame_bytes, transport_config};
use crate::captures::Captures;
use crate::channels::{Channels, Ends};
use crate::common::{Common, EngineCounters};
use crate::component::Component;
use crate::control::Mailbox;
use crate::frames::Frames;
use crate::host::Host;
use crate::lanes::Lanes;
use crate::loopback::Loopback;
use crate::messages::Messages;
use crate::state::{STATE_VERSION, State, StateError};
use crate::switch::Switch;

/// What lives on while an engine is saved and made again: queues, the apps' memory and doorbells,
/// the ways to the other engines and to the control plane.
///
/// Also what is not saved yet, as it is: virtual interfaces with the switch's table, captures, and
/// the IP layers. So an engine is made again in the process that it was in.
pub struct Remains<X> {
    config: EngineConfig,
    queues: Queues,
    copies: Option<Box<dyn Queue>>,
    mailbox: Mailbox,
    lanes: Lanes,
    ends: Ends,
    gatherings: VecDeque<Gathering>,
    host: Host,
    switch: Switch,
    frames: Frames,
    captures: Captures,
    extra: X,
    processor: Option<u32>,
}

impl<X> std::fmt::Debug for Remains<X> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remains").field("name", &self.config.name).finish_non_exhaustive()
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
            messages: self.core.messages.save(),
            end_by: self.end_by,
            has_ended: self.has_ended,
            has_rested: self.has_rested,
            was_up: self.was_up,
            turns: self.turns,
            turns_busy: self.turns_busy,
            counters: common.counters.save(),
            app_counters: common.channels.counters.save(),
        }
    }

    /// What another engine needs besides. All else is dropped.
    #[must_use]
    pub fn into_remains(self) -> Remains<X> {
        let Core { config, common, frames, extra, processor, .. } = self.core;
        let Common { channels, host, lanes, switch, captures, .. } = common;
        Remains {
            config,
            queues: self.queues,
            copies: self.copies,
            mailbox: self.mailbox,
            lanes,
            ends: channels.into_ends(),
            gatherings: self.gatherings,
            host,
            switch,
            frames,
            captures,
            extra,
            processor,
        }
    }

    /// An engine that goes on at `now` where another one was saved. Nothing of `saved` is trusted:
    /// what contradicts itself, or what it is restored on, is refused, and the books of what is
    /// taken agree.
    ///
    /// # Errors
    /// Why there is no engine. The remains are gone with it, as in a crash.
    pub fn restore(saved: State, remains: Remains<X>, now: Time) -> Result<Self, StateError> {
        ensure(saved.engine as usize == remains.lanes.index(), "it is that of another engine")?;
        let (leaving, end_by, has_ended) = (saved.leaving, saved.end_by, saved.has_ended);
        let channels = Channels::restore(saved.channels, remains.ends, &saved.app_counters)?;
        let is_there = |id: &u32| channels.peek(*id).is_some_and(|channel| channel.is_condemned);
        ensure(leaving.iter().all(is_there), "a channel leaves that is not there, or stays")?;
        let sleep = super::sleep::sleep_on(&remains.mailbox, &remains.lanes, &remains.queues)?;
        let core = restore_core(CoreParts {
            channels,
            messages: saved.messages,
            counters: EngineCounters::restore(&saved.counters),
            config: remains.config,
            lanes: remains.lanes,
            host: remains.host,
            switch: remains.switch,
            frames: remains.frames,
            captures: remains.captures,
            extra: remains.extra,
            processor: remains.processor,
            now,
        })?;
        let mut engine = Self {
            queues: remains.queues,
            copies: None,
            core,
            mailbox: remains.mailbox,
            sleep,
            gatherings: remains.gatherings,
            leaving: leaving.into(),
            has_ended,
            end_by,
            has_rested: saved.has_rested,
            was_up: saved.was_up,
            turns: saved.turns.min(u64::MAX / 2),
            turns_busy: saved.turns_busy.min(u64::MAX / 2),
        };
        if let Some(copies) = remains.copies {
            engine.set_copies(copies)?;
        }
        engine.hear_all()?;
        engine.audit().map_err(StateError::Books)?;
        Ok(engine)
    }

    /// Makes the doorbells of all channels end a sleep.
    fn hear_all(&self) -> Result<(), StateError> {
        for (id, channel) in self.core.common.channels.iter().filter(|(_, app)| app.can_park) {
            self.hear(id, channel).map_err(std::io::Error::from)?;
        }
        Ok(())
    }
}

/// What a core is made of.
struct CoreParts<X> {
    channels: Channels,
    messages: crate::state::MessagesState,
    counters: EngineCounters,
    config: EngineConfig,
    lanes: Lanes,
    host: Host,
    switch: Switch,
    frames: Frames,
    captures: Captures,
    extra: X,
    processor: Option<u32>,
    now: Time,
}

fn restore_core<X>(parts: CoreParts<X>) -> Result<Core<X>, Invalid> {
    let CoreParts { mut channels, config, lanes, host, now, .. } = parts;
    let (udp_port, other_nics) = (config.udp_port, host.other_count());
    let frame_bytes = frame_bytes(&config.interface);
    let new = |endpoint| Messages::new(endpoint, udp_port, other_nics, frame_bytes);
    let transport = transport_config(&config, &lanes);
    let messages = Messages::restore(parts.messages, new, transport, &lanes, other_nics, now)?;
    messages.match_channels(&mut channels)?;
    let common = Common {
        channels,
        switch: parts.switch,
        host,
        lanes,
        loopback: Loopback::default(),
        captures: parts.captures,
        counters: parts.counters,
    };
    let mut core = Core::new(config, common, messages, parts.frames, parts.extra);
    core.processor = parts.processor;
    Ok(core)
}
