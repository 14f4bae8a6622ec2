//! VIFs of the NIC's other engines. Every engine's table has all of them, so that a frame
//! finds its owner wherever it comes in.
//!
//! What they are given goes there by a lane (`lanes.rs`).

use std::ops::Range;

use clearway_base::state::{Invalid, ensure};
use clearway_classify::directory::EntryId;

use super::table::{FrameOwner, Switch};
use crate::frames::VifSpec;
use crate::state::SiblingVifState;

/// A VIF that another engine serves.
#[derive(Debug)]
pub(super) struct SiblingVif {
    engine: usize,
    channel: u32,
    id: u32,
    spec: Box<VifSpec>,
    entry: EntryId,
}

impl Switch {
    /// Takes note of a VIF that `engine` serves.
    pub(crate) fn open_of_sibling(
        &mut self,
        engine: usize,
        channel: u32,
        id: u32,
        spec: Box<VifSpec>,
    ) {
        let entry = self.open(&spec, FrameOwner::Sibling(engine));
        self.of_siblings.push(SiblingVif { engine, channel, id, spec, entry });
    }

    /// The VIF is gone, if it was one of another engine.
    pub(crate) fn close_of_sibling(&mut self, channel: u32, id: u32) {
        let is_it = |vif: &SiblingVif| (vif.channel, vif.id) == (channel, id);
        if let Some(index) = self.of_siblings.iter().position(is_it) {
            let vif = self.of_siblings.swap_remove(index);
            self.close(vif.entry, vif.spec.mac);
        }
    }

    /// The VIFs of other engines as plain data: all that there is to save of the switch, since
    /// services and own VIFs are entered by those whose they are.
    pub(crate) fn save(&self) -> Vec<SiblingVifState> {
        let saved = self.of_siblings.iter().map(|vif| SiblingVifState {
            engine: vif.engine as u32, // at most ENGINES_MAX
            channel: vif.channel,
            vif: vif.id,
            spec: vif.spec.save(),
        });
        saved.collect()
    }

    /// Takes note again of what was saved; `index` is this engine, one of `siblings`.
    pub(crate) fn restore(
        &mut self,
        saved: Vec<SiblingVifState>,
        index: usize,
        siblings: &Range<usize>,
    ) -> Result<(), Invalid> {
        for SiblingVifState { engine, channel, vif, spec } in saved {
            let engine = engine as usize;
            let is_other = siblings.contains(&engine) && engine != index;
            ensure(is_other, "a virtual interface at an engine that there is not")?;
            self.open_of_sibling(engine, channel, vif, Box::new(spec.restore()?));
        }
        Ok(())
    }
}
