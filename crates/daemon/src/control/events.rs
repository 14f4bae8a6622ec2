//! What engines tell, and what the control plane makes of it.

use clearway_channel::{Code, Violation};
use clearway_engine::Event;

use super::ControlPlane;
use super::requests::refusal;
use super::workers::ChannelPlace;

impl ControlPlane {
    pub(super) fn take_events(&mut self, engine: usize) {
        self.engines[engine].acknowledge();
        while let Some(event) = self.engines[engine].next_event() {
            self.handle_event(engine, event);
        }
        self.engines[engine].pump();
    }

    fn handle_event(&mut self, engine: usize, event: Event) {
        match event {
            Event::Listening { channel, listener, result } => {
                self.listening(engine, channel, listener, result);
            }
            Event::ListenerNoted { id } => self.listener_noted(id),
            Event::VifOpened { vif, result, .. } => self.vif_opened(engine, vif, result),
            Event::VifClosed { vif, .. } => self.vif_closed(engine, vif),
            Event::ChannelRemoved { channel: number, end } => {
                self.give_back(ChannelPlace { engine, channel: number }, end);
            }
            Event::Violation { channel, violation } => self.violation(engine, channel, violation),
            Event::Resolve { nic, address } => self.resolve(engine, nic, address),
            Event::AddressConflict(conflict) => self.address_conflict(engine, conflict),
            Event::Pong { id, result } => self.take_pong(id, result),
            Event::Snapshot { id, snapshot } => self.take_snapshot(engine, id, *snapshot),
            Event::Ended => {
                tracing::debug!(engine = self.engines[engine].name, "engine ended");
                self.engines[engine].ended = true;
                self.forget_engine(engine);
                self.finish_status();
            }
        }
    }

    fn violation(&mut self, engine: usize, channel: u32, violation: Violation) {
        let Some(record) = self.engines[engine].channel(channel) else { return };
        if self.log_budget.take(record.user) {
            tracing::warn!(
                engine = self.engines[engine].name,
                channel,
                user = record.user,
                "an app broke the contract of its channel: {violation}"
            );
        }
        let text = format!("the app broke the contract of its channel: {violation}");
        self.expel(record.session, &refusal(Code::Violation, text));
    }
}
