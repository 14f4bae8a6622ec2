//! VIFs and captures of the NIC's other engines. Every engine's table has all of them, so that a frame
//! finds its owner wherever it comes in.
//!
//! What they are given goes there by a lane (`lanes.rs`).

use clearway_channel::burst::FrameInfo;
use clearway_classify::directory::EntryId;
use clearway_nic::MacAddress;

use super::capture::{Capture, CaptureSpec};
use super::table::{Port, Switch};
use super::vif::VifSpec;
use crate::channels::Channels;

/// A VIF that another engine serves.
#[derive(Debug)]
pub(super) struct SiblingVif {
    channel: u32,
    id: u32,
    mac: MacAddress,
    entry: EntryId,
}

impl Switch {
    /// Takes note of a VIF that `engine` serves.
    pub(crate) fn open_of_sibling(&mut self, engine: usize, channel: u32, id: u32, spec: &VifSpec) {
        let entry = self.register(spec, Port::Sibling(engine));
        self.add_mac(spec.mac);
        self.of_siblings.push(SiblingVif { channel, id, mac: spec.mac, entry });
    }

    pub(super) fn close_of_sibling(&mut self, channel: u32, id: u32) {
        let is_it = |vif: &SiblingVif| (vif.channel, vif.id) == (channel, id);
        if let Some(index) = self.of_siblings.iter().position(is_it) {
            let vif = self.of_siblings.swap_remove(index);
            self.unregister(vif.entry);
            self.remove_mac(vif.mac);
        }
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
