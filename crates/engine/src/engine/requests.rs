//! What the control plane asks of an engine, and what it is told. One request per turn, nothing
//! waits for an answer.

use clearway_base::{SECOND, Time};
use rustix::event::epoll;

use super::status::Gathering;
use super::{Core, Engine};
use crate::channels::Channel;
use crate::control::{Event, Request};
use crate::{ip, services};

/// How long an engine that is to end tries to tell its peers. The control plane waits for three seconds.
const FAREWELL_NS: u64 = 2 * SECOND;

/// Connections that are ended in one turn when their app is gone: each tells its peer, and gives memory back.
const CONNECTIONS_ENDED_PER_TURN: usize = 64;

impl Engine {
    pub(super) fn take_request(&mut self, now: Time) -> usize {
        let Some(request) = self.mailbox.take() else { return 0 };
        match request {
            Request::AddChannel { channel, app, user, end, connections_max } => {
                let mut added = Channel::new(app, user, end, connections_max);
                if let Err(error) = self.hear(channel, &added) {
                    added.can_park = false;
                    tracing::error!(channel, %error, "cannot wait for this app; its commands may be late");
                }
                self.core.channels.insert(channel, added);
            }
            Request::RemoveChannel { channel } => self.remove_channel(channel),
            Request::Listen { channel, listener, address, port } => {
                let result = self.core.listen(channel, listener, address, port);
                self.mailbox.tell(Event::Listening { channel, listener, result });
            }
            Request::Unlisten { channel, listener } => self.core.unlisten(channel, listener),
            Request::OpenVif { channel, vif, spec } => {
                let result = self.core.open_vif(now, channel, vif, *spec);
                self.mailbox.tell(Event::VifOpened { channel, vif, result });
            }
            Request::OpenCapture { channel, vif, spec } => {
                let result = self.core.open_capture(channel, vif, *spec);
                self.mailbox.tell(Event::VifOpened { channel, vif, result });
            }
            Request::NoteVif { engine, channel, vif, spec } => {
                self.core.switch.open_of_sibling(engine, channel, vif, &spec);
                self.mailbox.tell(Event::VifOpened { channel, vif, result: Ok(()) });
            }
            Request::NoteCapture { engine, channel, vif, spec } => {
                let result = self.core.note_capture(engine, channel, vif, *spec);
                self.mailbox.tell(Event::VifOpened { channel, vif, result });
            }
            Request::NoteListener { id, port, engine } => {
                self.core.note_listener(port, engine);
                self.mailbox.tell(Event::ListenerNoted { id });
            }
            Request::CloseVif { channel, vif, told } => {
                self.core.switch.close(&mut self.core.channels, channel, vif, told);
                self.mailbox.tell(Event::VifClosed { channel, vif });
            }
            Request::Network(network) => self.core.set_network(now, *network),
            Request::NetworkElsewhere { nic, network } => {
                self.core.set_network_elsewhere(nic, &network);
            }
            Request::Neighbour { nic, address, mac: Some(mac) } => {
                self.core.learn(now, nic, address, mac);
            }
            Request::Neighbour { mac: None, .. } => {} // the interface gives up by itself
            Request::Ping { id, peer, bytes } => {
                if let Err(code) = self.core.ping(now, id, peer, bytes) {
                    self.mailbox.tell(Event::Pong { id, result: Err(code) });
                }
            }
            Request::Snapshot { id } => self.gatherings.push_back(Gathering::new(id)),
            Request::Shutdown => self.shut_down(now),
        }
        1
    }

    /// Makes the channel's doorbell end a sleep. Each ring counts once (edge-triggered), so that an app
    /// which leaves its bell ringing keeps nobody awake.
    fn hear(&self, id: u32, channel: &Channel) -> rustix::io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.sleep, channel.end.doorbell(), super::sleep::event_of(id), flags)
    }

    /// Nothing more is taken from a channel or accepted for it, and what it has is given up bit by bit.
    fn remove_channel(&mut self, channel: u32) {
        let Some(removed) = self.core.channels.channel(channel) else { return };
        if self.leaving.contains(&channel) {
            return;
        }
        removed.is_condemned = true;
        for (_, port) in core::mem::take(&mut removed.ports).into_keys() {
            self.core.endpoint.unlisten(port);
        }
        self.core.switch.remove_channel(channel);
        self.leaving.push_back(channel);
    }

    /// Ends some connections of a channel that leaves, and then the channel. Returns how much that was.
    pub(super) fn go_on_leaving(&mut self) -> usize {
        let Some(&channel) = self.leaving.front() else { return 0 };
        let ended = self.core.end_connections(channel, CONNECTIONS_ENDED_PER_TURN);
        if ended == CONNECTIONS_ENDED_PER_TURN {
            return ended;
        }
        self.leaving.pop_front();
        if let Some(mut removed) = self.core.channels.remove(channel) {
            // It was added with the channel.
            let _ = epoll::delete(&self.sleep, removed.end.doorbell());
            removed.end.close();
            self.mailbox.tell(Event::ChannelRemoved { channel, end: removed.end });
        }
        ended + 1
    }

    fn shut_down(&mut self, now: Time) {
        for channel in self.core.channels.ids() {
            self.remove_channel(channel);
        }
        while self.go_on_leaving() > 0 {}
        self.end_by = Some(now + FAREWELL_NS);
    }

    /// Ends once the resets have left.
    pub(super) fn end_if_due(&mut self, now: Time) {
        let is_over = |by| now >= by || !self.core.endpoint.has_replies();
        if self.end_by.take_if(|by| is_over(*by)).is_some() {
            self.has_ended = true;
            self.mailbox.tell(Event::Ended);
        }
    }

    /// Tells of apps that broke the contract, once each; the control plane then removes them.
    pub(super) fn report_violations(&mut self) {
        for (channel, violation) in self.core.violations.drain(..) {
            self.mailbox.tell(Event::Violation { channel, violation });
        }
    }

    pub(super) fn tell_control(&mut self) {
        while let Some(address) = self.core.interface.poll_wanted() {
            self.mailbox.tell(Event::Resolve { nic: None, address });
        }
        for other in &mut self.core.elsewhere {
            while let Some(address) = other.interface.poll_wanted() {
                self.mailbox.tell(Event::Resolve { nic: Some(other.number), address });
            }
        }
        while let Some(conflict) = self.core.interface.poll_conflict() {
            self.mailbox.tell(Event::AddressConflict(conflict));
        }
        for (id, rtt_ns) in self.core.channels.pongs.drain(..) {
            self.mailbox.tell(Event::Pong { id, result: Ok(rtt_ns) });
        }
        for (id, code) in self.core.failed_pings.drain(..) {
            self.mailbox.tell(Event::Pong { id, result: Err(code) });
        }
        self.mailbox.flush();
    }
}

impl Core {
    /// The addresses, routes or MTU of the host have changed. Flows go on: over another way if there
    /// is one, and those whose own address has gone wait for its return, as long as for a peer
    /// that is silent.
    fn set_network(&mut self, now: Time, network: ip::Config) {
        self.interface.reconfigure(&network);
        self.note_own_addresses();
        let payload_bytes = network.mtu.saturating_sub(super::headers_length(&network));
        self.endpoint.set_packet_bytes_max(now, payload_bytes);
        self.switch.set_services(services::entries(&network, self.config.udp_port));
        // It only grows: what a flow is about to send may be of the old size.
        let frame_bytes = usize::from(network.mtu) + super::elsewhere::HEADERS_BYTES_MAX;
        self.scratch.resize(self.scratch.len().max(frame_bytes), 0);
        self.config.interface = network;
    }
}
