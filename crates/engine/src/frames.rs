//! Virtual interfaces (VIFs): frames that apps send and receive as they are. What a VIF receives is
//! gathered into a burst in its app's pool; what it sends is in `transmit`.
//!
//! *Not* here: which frames are a VIF's and what it may send, which the switch knows; and who may
//! open which VIF (the control plane).

mod staging;
mod state;
mod transmit;
mod vif;

use std::collections::{HashMap, VecDeque};

use clearway_base::Time;
use clearway_channel::burst::SentBurst;
use clearway_channel::{Code, Command, Completion};

pub(crate) use vif::VifCounters;
pub use vif::{VifSpec, VifTexts};

use crate::channels::Channels;
use crate::common::{Common, Via};
use crate::component::{Component, Outlet, Sending};
use crate::snapshot::VifSnapshot;
use crate::switch::{FrameOwner, Switch, VifKey, VifRefused};
use staging::Staging;
use vif::{Report, Vif};

/// Whether frames of virtual interfaces pass the switch's table.
#[cfg(feature = "unchecked")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checks {
    /// Each frame's owner is looked up, and each sender's right is checked.
    #[default]
    On,
    /// For measuring what checking costs, and for nothing else: what comes is the first virtual
    /// interface's, and what a virtual interface sends goes to the NIC, whatever it is.
    Off,
}

/// All VIFs of an engine.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Open VIFs, by slot.
    vifs: Vec<Option<Vif>>,
    free: Vec<u32>,
    /// By channel and the id in it.
    keys: HashMap<(u32, u32), VifKey>,
    /// Those that have something to send, the next one first.
    senders: VecDeque<VifKey>,
    /// Those that were given frames, or have sent some, in this turn.
    touched: Vec<VifKey>,
    /// Where frames of apps are looked at before they leave.
    staging: Staging,
    #[cfg(feature = "unchecked")]
    pub(crate) checks: Checks,
}

impl Component for Frames {
    type Owner = VifKey;

    /// Takes a burst that an app has submitted. One for a VIF that the app does not have is
    /// dropped: it may have been closed meanwhile.
    fn command(&mut self, common: &mut Common, _: Time, channel: u32, command: Command) {
        let Command::SendFrames { vif: id, offset, length, count } = command else { return };
        let Some(key) = self.keys.get(&(channel, id)).copied() else {
            if let Some(app) = common.channels.channel(channel) {
                app.end.sends_finished(1);
            }
            return;
        };
        let Some(vif) = self.vif(key) else { return };
        vif.submit(SentBurst::new(offset, length, count));
        if !core::mem::replace(&mut vif.is_sending, true) {
            self.senders.push_back(key);
        }
    }

    /// Gives frames to the VIF that owns them.
    #[inline]
    fn receive(&mut self, common: &mut Common, now: Time, key: VifKey, frames: &[&[u8]], _: Via) {
        let Some(app) = common.channels.channel(key.channel()) else { return };
        let vif = self.vifs.get_mut(key.slot()).and_then(Option::as_mut);
        if let Some(vif) = vif {
            touch(&mut self.touched, key, vif);
            frames.iter().for_each(|frame| vif.deliver(app, now, frame));
        }
    }

    #[inline]
    fn has_output(&self) -> bool {
        !self.senders.is_empty()
    }

    #[inline]
    fn transmit(&mut self, common: &mut Common, now: Time, outlet: Outlet<'_>) -> Sending {
        self.send(common, now, outlet.queue, outlet.budget)
    }
}

impl Frames {
    pub(crate) fn new() -> Self {
        Self {
            vifs: Vec::new(),
            free: Vec::new(),
            keys: HashMap::new(),
            senders: VecDeque::new(),
            touched: Vec::new(),
            staging: Staging::new(),
            #[cfg(feature = "unchecked")]
            checks: Checks::On,
        }
    }

    /// Opens a VIF for an app that is still there.
    pub(crate) fn open(
        &mut self,
        common: &mut Common,
        channel: u32,
        id: u32,
        spec: VifSpec,
    ) -> Result<(), VifRefused> {
        let app = common.channels.peek(channel);
        app.filter(|app| !app.is_condemned).ok_or(VifRefused::NoChannel)?;
        self.insert(&mut common.switch, channel, id, spec);
        Ok(())
    }

    fn insert(&mut self, switch: &mut Switch, channel: u32, id: u32, spec: VifSpec) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.vifs.push(None);
            self.vifs.len() as u32 - 1
        });
        let key = VifKey::new(slot, channel);
        let entry = switch.open(&spec, FrameOwner::Vif(key));
        self.keys.insert((channel, id), key);
        self.vifs[slot as usize] = Some(Vif::new(channel, id, spec, entry));
    }

    /// Closes a VIF of a channel, and tells its app why if there is something to tell; nothing if
    /// there is none. True if there was one.
    pub(crate) fn close(
        &mut self,
        common: &mut Common,
        channel: u32,
        id: u32,
        told: Option<Code>,
    ) -> bool {
        let key = self.keys.get(&(channel, id)).copied();
        let Some(mut vif) = key.and_then(|key| self.take(&mut common.switch, key)) else {
            return false;
        };
        let Some(app) = common.channels.channel(channel) else { return true };
        vif.gathering.discard(app);
        app.end.sends_finished(vif.bursts_left());
        if let Some(code) = told {
            app.tell(Completion::VifClosed { vif: id, code });
        }
        true
    }

    /// The channel's app is gone, and all that it had here goes with it.
    pub(crate) fn remove_channel(&mut self, switch: &mut Switch, channel: u32) {
        self.senders.retain(|key| key.channel() != channel);
        self.touched.retain(|key| key.channel() != channel);
        let of_channel = self.keys.values().filter(|key| key.channel() == channel);
        for key in of_channel.copied().collect::<Vec<_>>() {
            self.take_out(switch, key);
        }
    }

    fn take(&mut self, switch: &mut Switch, key: VifKey) -> Option<Vif> {
        let vif = self.take_out(switch, key)?;
        self.senders.retain(|other| *other != key);
        self.touched.retain(|other| *other != key);
        Some(vif)
    }

    /// Takes a VIF out of all but the lists of a turn.
    fn take_out(&mut self, switch: &mut Switch, key: VifKey) -> Option<Vif> {
        let vif = self.vifs[key.slot()].take()?;
        switch.close(vif.entry, vif.spec.mac);
        self.keys.remove(&(vif.channel, vif.id));
        self.free.push(key.slot() as u32);
        Some(vif)
    }

    /// The VIF with the lowest slot: for measuring what passes without being looked at.
    #[cfg(any(test, feature = "unchecked"))]
    pub(crate) fn first(&self) -> Option<VifKey> {
        let slot = self.vifs.iter().position(Option::is_some)?;
        Some(VifKey::new(slot as u32, self.vifs[slot].as_ref()?.channel))
    }

    /// Gives a VIF a copy of a frame that is not its own.
    pub(crate) fn copy(&mut self, channels: &mut Channels, now: Time, key: VifKey, frame: &[u8]) {
        let vif = self.vifs.get_mut(key.slot()).and_then(Option::as_mut);
        if let (Some(vif), Some(app)) = (vif, channels.channel(key.channel())) {
            touch(&mut self.touched, key, vif);
            vif.deliver(app, now, frame);
        }
    }

    /// Hands over what was gathered, and tells apps what has become of what they sent.
    #[inline]
    pub(crate) fn end_turn(&mut self, channels: &mut Channels) {
        if !self.touched.is_empty() {
            self.end_turn_of_touched(channels);
        }
    }

    #[inline(never)]
    fn end_turn_of_touched(&mut self, channels: &mut Channels) {
        for index in (0..self.touched.len()).rev() {
            let key = self.touched[index];
            let (Some(vif), Some(app)) = (
                self.vifs.get_mut(key.slot()).and_then(Option::as_mut),
                channels.channel(key.channel()),
            ) else {
                continue;
            };
            vif.gathering.end_turn(app, vif.id);
            if vif.has_report() && !app.may_tell() {
                continue; // next turn
            }
            if let Some(report) = vif.take_report() {
                let Report { bursts, sent, refused: rejected, reason } = report;
                app.tell(Completion::FramesSent { vif: vif.id, bursts, sent, rejected, reason });
            }
            vif.is_touched = false;
            self.touched.swap_remove(index);
        }
    }

    /// True, between two turns, if an app whose ring is full is yet to be told what became of its
    /// frames.
    pub(crate) fn has_reports(&self) -> bool {
        !self.touched.is_empty()
    }

    fn vif(&mut self, key: VifKey) -> Option<&mut Vif> {
        self.vifs.get_mut(key.slot())?.as_mut()
    }

    /// How many slots there are, free ones included.
    pub(crate) fn places(&self) -> usize {
        self.vifs.len()
    }

    /// The VIF in a slot, if there is one.
    pub(crate) fn snapshot(&self, slot: usize) -> Option<VifSnapshot> {
        self.vifs.get(slot)?.as_ref().map(Vif::snapshot)
    }

    /// Bursts that VIFs of a channel have submitted and that are not sent: for audits.
    pub(crate) fn bursts_of(&self, channel: u32) -> u32 {
        let vifs = self.vifs.iter().flatten().filter(|vif| vif.channel == channel);
        vifs.map(|vif| vif.bursts_left()).sum()
    }

    /// How many there are: for audits.
    pub(crate) fn count(&self) -> usize {
        self.vifs.iter().flatten().count()
    }
}

/// Remembers that something has happened at a VIF in this turn.
fn touch(touched: &mut Vec<VifKey>, key: VifKey, vif: &mut Vif) {
    if !core::mem::replace(&mut vif.is_touched, true) {
        touched.push(key);
    }
}

#[cfg(test)]
mod tests;
