//! What comes from the wire.

use clearway_base::Time;

use super::Core;
use crate::interface::{Datagram, Received};

impl Core {
    #[inline]
    pub(super) fn handle_frame(&mut self, now: Time, frame: &[u8]) {
        match self.interface.handle_frame(now, frame) {
            Received::Datagram(datagram) => self.handle_datagram(now, &datagram),
            Received::NetworkError(error) => {
                self.endpoint.handle_network_error(
                    now,
                    error.destination,
                    error.quote,
                    &mut self.channels,
                );
            }
            Received::EchoReply(_) => self.counters.frames_ignored += 1,
            Received::Consumed | Received::Dropped(_) => {}
        }
    }

    #[inline]
    fn handle_datagram(&mut self, now: Time, datagram: &Datagram<'_>) {
        if datagram.destination.port() != self.config.udp_port {
            self.counters.frames_ignored += 1;
            return self.interface.refuse(now, datagram);
        }
        self.channels.destination = Some(datagram.destination.ip());
        let had_replies = self.endpoint.has_replies();
        let flows = self.endpoint.counters().flows_accepted;
        self.endpoint.handle_datagram(
            now,
            datagram.source,
            datagram.destination,
            datagram.payload,
            &mut self.channels,
        );
        let is_answered = had_replies || self.endpoint.has_replies();
        if is_answered || flows != self.endpoint.counters().flows_accepted {
            self.paths.remember(&self.interface, datagram);
        }
    }
}
