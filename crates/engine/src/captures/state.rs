//! Captures as plain data, and back.

use std::collections::HashSet;
use std::ops::Range;

use clearway_base::state::{Invalid, ensure};

use super::{Capture, CaptureSpec, Captures};
use crate::channels::Channels;
use crate::state::{CaptureState, FilterState};

/// More frames than are ever counted; sums do not overflow.
const COUNT_MAX: u64 = u64::MAX / 2;

impl Captures {
    pub(crate) fn save(&self) -> Vec<CaptureState> {
        self.captures.iter().map(Capture::save).collect()
    }

    /// Captures for channels that are there again; `index` is this engine, one of `siblings`.
    pub(crate) fn restore(
        saved: Vec<CaptureState>,
        channels: &Channels,
        index: usize,
        siblings: &Range<usize>,
    ) -> Result<Self, Invalid> {
        let mut known = HashSet::new();
        for capture in &saved {
            let is_there = match capture.engine {
                None => channels.peek(capture.channel).is_some(),
                Some(engine) => siblings.contains(&(engine as usize)) && engine as usize != index,
            };
            ensure(is_there, "a capture for nobody")?;
            let is_new = known.insert((capture.channel, capture.vif));
            ensure(is_new, "a capture that is there twice")?;
        }
        let captures = saved.into_iter().map(Capture::restore);
        Ok(Self { captures: captures.collect::<Result<_, _>>()? })
    }
}

impl Capture {
    fn save(&self) -> CaptureState {
        CaptureState {
            channel: self.channel,
            vif: self.id,
            engine: self.sibling.map(|engine| engine as u32), // at most ENGINES_MAX
            filter: FilterState::of_all(&self.spec.filter),
            app: self.spec.app,
            connection: self.spec.connection,
            shown: self.shown,
            dropped: self.dropped,
        }
    }

    fn restore(saved: CaptureState) -> Result<Self, Invalid> {
        let filter = FilterState::restore_all(&saved.filter)?;
        let spec = CaptureSpec { filter, app: saved.app, connection: saved.connection };
        let sibling = saved.engine.map(|engine| engine as usize);
        Ok(Self {
            shown: saved.shown.min(COUNT_MAX),
            dropped: saved.dropped.min(COUNT_MAX),
            ..Self::new(saved.channel, saved.vif, spec, sibling)
        })
    }
}
