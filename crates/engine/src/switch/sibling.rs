//! VIFs and captures of the NIC's other engines. Every engine's table has all of them, so that a frame
//! finds its owner wherever it comes in, and two apps' patterns collide wherever these two are served.
//!
//! What they are given goes there by a lane (`lanes.rs`).

use clearway_channel::burst::FrameInfo;
use clearway_classify::registry::VifId;
use clearway_nic::MacAddress;

use super::capture::{Capture, CaptureSpec};
use super::refusal::VifRefused;
use super::table::{Port, Switch};
use super::vif::VifSpec;
use crate::channels::Channels;

/// A VIF that another engine serves.
#[derive(Debug)]
pub(super) struct SiblingVif {
    channel: u32,
    id: u32,
    /// The name of the app whose it is.
    app: String,
    mac: MacAddress,
    entries: Vec<VifId>,
}

impl Switch {
    /// Takes note of a VIF that `engine` serves for an app of this name.
    pub(crate) fn open_of_sibling(
        &mut self,
        engine: usize,
        app: String,
        channel: u32,
        id: u32,
        spec: &VifSpec,
        name: impl Fn(u32) -> String,
    ) -> Result<(), VifRefused> {
        let entries = self.register(channel, spec, name)?;
        for entry in &entries {
            self.set_port(*entry, Port::Sibling(engine));
        }
        self.add_mac(spec.mac);
        self.of_siblings.push(SiblingVif { channel, id, app, mac: spec.mac, entries });
        Ok(())
    }

    pub(super) fn close_of_sibling(&mut self, channel: u32, id: u32) {
        let is_it = |vif: &SiblingVif| (vif.channel, vif.id) == (channel, id);
        if let Some(index) = self.of_siblings.iter().position(is_it) {
            let vif = self.of_siblings.swap_remove(index);
            self.unregister(&vif.entries);
            self.remove_mac(vif.mac);
        }
    }

    /// What an app is called whose channel another engine serves.
    pub(super) fn name_of_sibling(&self, channel: u32) -> Option<String> {
        let vif = self.of_siblings.iter().find(|vif| vif.channel == channel)?;
        Some(format!("app {} (channel {channel})", vif.app))
    }

    /// Takes note of a capture that `engine` serves.
    pub(crate) fn open_capture_of_sibling(
        &mut self,
        engine: usize,
        channel: u32,
        id: u32,
        spec: CaptureSpec,
    ) {
        self.captures.push(Capture::new(channel, id, spec, Some(engine)));
    }

    /// Shows a capture of this engine a frame that another engine has seen.
    pub(crate) fn show_of_sibling(
        &mut self,
        channels: &mut Channels,
        (channel, id): (u32, u32),
        info: FrameInfo,
        frame: &[u8],
    ) {
        let capture = self.captures.iter_mut().find(|capture| capture.is(channel, id));
        if let Some(capture) = capture.filter(|capture| capture.is_own())
            && let Some(app) = channels.channel(channel)
        {
            capture.add(app, info, frame);
        }
    }
}
