//! Virtual interfaces as plain data, and back. Their entries in the switch's table are made again.

use clearway_base::Time;
use clearway_base::state::{Invalid, ensure};

use super::vif::Vif;
use super::{Frames, touch};
use crate::channels::Channels;
use crate::state::{FramesState, VifState};
use crate::switch::{Switch, VifKey};

impl Frames {
    pub(crate) fn save(&self) -> FramesState {
        let place = |key: &VifKey| self.vifs[..key.slot()].iter().flatten().count() as u32;
        FramesState {
            vifs: self.vifs.iter().flatten().map(Vif::save).collect(),
            senders: self.senders.iter().map(place).collect(),
        }
    }

    /// Virtual interfaces of channels that are there again, which are entered in `switch`.
    pub(crate) fn restore(
        saved: FramesState,
        switch: &mut Switch,
        channels: &Channels,
        now: Time,
    ) -> Result<Self, Invalid> {
        let mut frames = Self::new();
        for vif in saved.vifs {
            frames.restore_vif(vif, switch, channels, now)?;
        }
        for place in saved.senders {
            let vif = frames.vifs.get_mut(place as usize).and_then(Option::as_mut);
            let vif = vif.ok_or(Invalid("a virtual interface sends that is not there"))?;
            let was_there = core::mem::replace(&mut vif.is_sending, true);
            ensure(!was_there, "a virtual interface stands in line twice")?;
            frames.senders.push_back(VifKey::new(place, vif.channel));
        }
        Ok(frames)
    }

    fn restore_vif(
        &mut self,
        saved: VifState,
        switch: &mut Switch,
        channels: &Channels,
        now: Time,
    ) -> Result<(), Invalid> {
        let (channel, id) = (saved.channel, saved.vif);
        let app = channels.peek(channel).ok_or(Invalid("a virtual interface of nobody"))?;
        ensure(!self.keys.contains_key(&(channel, id)), "a virtual interface that is there twice")?;
        let spec = saved.spec.restore()?;
        self.insert(switch, channel, id, spec);
        let key = self.keys[&(channel, id)];
        let vif = self.vifs[key.slot()].as_mut().expect("just inserted");
        vif.go_on(saved, &app.end, now)?;
        if vif.has_report() {
            touch(&mut self.touched, key, vif);
        }
        Ok(())
    }
}
