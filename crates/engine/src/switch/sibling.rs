//! VIFs of the NIC's other engines. Every engine's table has all of them, so that a frame
//! finds its owner wherever it comes in.
//!
//! What they are given goes there by a lane (`lanes.rs`).

use clearway_classify::directory::EntryId;
use clearway_nic::MacAddress;

use super::table::{Port, Switch};
use crate::frames::VifSpec;

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
        let entry = self.open(spec, Port::Sibling(engine));
        self.of_siblings.push(SiblingVif { channel, id, mac: spec.mac, entry });
    }

    /// The VIF is gone, if it was one of another engine.
    pub(crate) fn close_of_sibling(&mut self, channel: u32, id: u32) {
        let is_it = |vif: &SiblingVif| (vif.channel, vif.id) == (channel, id);
        if let Some(index) = self.of_siblings.iter().position(is_it) {
            let vif = self.of_siblings.swap_remove(index);
            self.close(vif.entry, vif.mac);
        }
    }
}
