//! A line as plain data, and back.

use clearway_base::state::{Invalid, ensure};

use super::{Line, SlotQueue};
use crate::state::LineState;

impl Line {
    pub(in crate::channels) fn save(&self) -> LineState {
        LineState {
            waiting: self.waiting.iter().collect(),
            to_tell: self.to_tell.slots().collect(),
            to_try: self.to_try.slots().collect(),
            sweep_left: self.sweep_left as u32, // no more than connections
            is_suspended: self.is_suspended,
            since: self.since,
        }
    }

    /// A line of connections in slots below `slots`.
    pub(in crate::channels) fn restore(state: &LineState, slots: u32) -> Result<Self, Invalid> {
        let with_nothing = |slots: &[u32]| slots.iter().map(|slot| (*slot, ())).collect::<Vec<_>>();
        Ok(Self {
            waiting: queue(&state.waiting, slots)?,
            to_tell: queue(&with_nothing(&state.to_tell), slots)?,
            to_try: queue(&with_nothing(&state.to_try), slots)?,
            // Found out again.
            too_large: SlotQueue::default(),
            sweep_left: state.sweep_left as usize,
            is_suspended: state.is_suspended,
            since: state.since,
        })
    }
}

fn queue<T: Copy>(entries: &[(u32, T)], slots: u32) -> Result<SlotQueue<T>, Invalid> {
    let mut queue = SlotQueue::default();
    for &(slot, content) in entries {
        let is_new = slot < slots && !queue.contains(slot);
        ensure(is_new, "who is not there stands in line, or stands there twice")?;
        queue.push(slot, content);
    }
    Ok(queue)
}
