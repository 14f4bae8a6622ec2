//! What engines tell, and what the control plane makes of it.

use clearway_channel::Violation;
use clearway_control::ChannelPlace;
use clearway_engine::Event;

use super::ControlPlane;

impl ControlPlane {
    pub(super) fn take_events(&mut self, engine: usize) {
        self.mailboxes[engine].acknowledge();
        while let Some(event) = self.mailboxes[engine].next_event() {
            self.handle_event(engine, event);
        }
        self.mailboxes[engine].pump();
    }

    fn handle_event(&mut self, engine: usize, event: Event) {
        self.plane.handle_event(engine, &event);
        match event {
            Event::ChannelRemoved { channel, end } => {
                self.give_back(ChannelPlace { engine, channel }, end);
            }
            Event::MemoryAdded { memory, refused: Some(shared), .. }
            | Event::MemoryRemoved { memory, removed: Some(shared), .. } => {
                self.give_memory_back(self.plane.memory_user(memory), memory, shared);
            }
            Event::Violation { channel, violation } => {
                self.log_violation(ChannelPlace { engine, channel }, violation);
            }
            Event::Resolve { nic, address } => self.resolve(engine, nic, address),
            Event::AddressConflict(conflict) => self.address_conflict(engine, conflict),
            Event::Pong { id, result } => self.take_pong(id, result),
            Event::Snapshot { id, snapshot } => self.take_snapshot(engine, id, *snapshot),
            Event::Unplugged(plug) => self.unplugged(engine, *plug),
            Event::Met => self.have_met(engine),
            Event::Ended => {
                tracing::debug!(engine = self.plane.engines()[engine].name, "engine ended");
                self.finish_status();
            }
            Event::MemoryAdded { .. }
            | Event::MemoryRemoved { .. }
            | Event::Listening { .. }
            | Event::ListenerNoted { .. }
            | Event::VifOpened { .. }
            | Event::VifClosed { .. } => {}
        }
        self.carry_out();
    }

    fn log_violation(&mut self, place: ChannelPlace, violation: Violation) {
        let Some(record) = self.plane.channel(place) else { return };
        if self.log_budget.take(record.user) {
            tracing::warn!(
                engine = self.plane.engines()[place.engine].name,
                channel = place.channel,
                user = record.user,
                "an app broke the contract of its channel: {violation}"
            );
        }
    }
}
