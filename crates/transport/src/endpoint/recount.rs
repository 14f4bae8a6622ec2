//! What tests of this crate count again when they end, besides `audit`: made equals free plus used.

use std::collections::HashSet;

use clearway_base::Time;

use super::table::find;
use super::{Endpoint, FlowKey};
use crate::flow::Flow;

impl Endpoint {
    pub(crate) fn flow_of(&mut self, key: FlowKey) -> &mut Flow {
        find(&mut self.slots, key).expect("there still is one")
    }

    /// Counts again what an endpoint counts: slots, table entries, timers, answers.
    pub(crate) fn recount(&self) {
        let used = || (0..).zip(&self.slots).filter_map(|(slot, s)| Some((slot, s.flow.as_ref()?)));
        let free: HashSet<u32> = self.free.iter().copied().collect();
        assert_eq!(free.len(), self.free.len(), "a slot is free twice");
        assert_eq!(free.len() + used().count(), self.slots.len());
        for (slot, flow) in used() {
            assert!(!free.contains(&slot));
            assert_eq!(FlowKey(flow.local_id()).slot(), slot as usize);
            flow.audit();
        }
        let named = used().filter(|(_, flow)| flow.peer_id() != 0);
        let named: HashSet<_> =
            named.map(|(slot, flow)| ((flow.remote().ip(), flow.peer_id()), slot)).collect();
        let entries = self.by_peer.iter().map(|(name, slot)| (*name, *slot));
        assert_eq!(entries.collect::<HashSet<_>>(), named);

        let ready: HashSet<u32> = self.ready.iter().chain(&self.resting).copied().collect();
        let in_line = self.ready.len() + self.resting.len();
        assert_eq!(ready.len(), in_line, "a slot stands in line twice");
        let in_line = (0..).zip(&self.slots).filter(|(_, slot)| slot.is_ready).map(|(at, _)| at);
        assert_eq!(in_line.collect::<HashSet<u32>>(), ready);
        let asleep =
            (0..).zip(&self.slots).filter(|(_, slot)| slot.flow.is_some() && !slot.is_ready);
        for (at, slot) in asleep {
            let deadline = slot.flow.as_ref().expect("filtered").next_timeout(&self.config);
            assert!(!slot.is_late(&self.config), "slot {at} is due before it is looked at");
            assert!(deadline == Time::MAX || slot.has_alarm(deadline), "slot {at} never wakes");
        }
        let timers: usize = self.slots.iter().map(|slot| slot.timers()).sum();
        assert_eq!(timers, self.timers.len() + self.due.len());
    }
}
