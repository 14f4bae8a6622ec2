//! What the control plane asks of an engine, and what it is told. One request per turn, nothing
//! waits for an answer.

use clearway_base::{SECOND, Time};
use clearway_channel::Code;
use rustix::event::epoll;

use super::status::Gathering;
use super::{Core, Engine};
use crate::captures::CaptureSpec;
use crate::channels::Channel;
use crate::component::Component;
use crate::control::{Event, Newcomers, Request};
use crate::ip;
use crate::switch::VifRefused;

/// How long an engine that is to end tries to tell its peers. The control plane waits for three
/// seconds.
const FAREWELL_NS: u64 = 2 * SECOND;

/// Connections that are ended in one turn when their app or their port is gone: each tells its
/// peer, and gives memory back. As many TCP ports are.
const CONNECTIONS_ENDED_PER_TURN: usize = 64;

impl<X: Component<Owner = ()>> Engine<X> {
    pub(super) fn take_request(&mut self, now: Time) -> usize {
        let Some(request) = self.mailbox.take() else { return 0 };
        match request {
            Request::AddChannel { channel, app, user, end, allowance } => {
                let mut added = Channel::new(app, user, end, allowance);
                if let Err(error) = self.hear(channel, &added) {
                    added.can_park = false;
                    let text = "cannot wait for this app; its commands may be late";
                    tracing::error!(channel, %error, "{text}");
                }
                self.core.common.channels.insert(channel, added);
            }
            Request::RemoveChannel { channel } => self.remove_channel(now, channel),
            Request::LetLinger { channel, linger_ns } => {
                self.let_linger(now, channel, now + linger_ns);
            }
            Request::AddMemory { channel, memory, shared } => {
                let refused = self.core.common.channels.add_memory(channel, memory, shared);
                self.mailbox.tell(Event::MemoryAdded { channel, memory, refused });
            }
            Request::RemoveMemory { channel, memory } => {
                let removed = self.core.common.channels.remove_memory(channel, memory);
                self.mailbox.tell(Event::MemoryRemoved { channel, memory, removed });
            }
            Request::Listen { channel, listener, address, port } => {
                let result = self.core.messages.listen(
                    &mut self.core.common,
                    channel,
                    listener,
                    address,
                    port,
                );
                self.mailbox.tell(Event::Listening { channel, listener, result });
            }
            Request::Unlisten { channel, listener } => {
                self.core.messages.unlisten(&mut self.core.common, channel, listener);
            }
            Request::OpenVif { channel, vif, spec } => {
                let result = self.core.frames.open(&mut self.core.common, channel, vif, *spec);
                self.mailbox.tell(Event::VifOpened { channel, vif, result });
            }
            Request::OpenTcpPort { channel, number, spec } => {
                let core = &mut self.core;
                let result = core.tcp.open_port(&mut core.common, channel, number, *spec);
                self.mailbox.tell(Event::VifOpened { channel, vif: number, result });
            }
            Request::OpenCapture { channel, vif, spec } => {
                let result = self.core.open_capture(None, channel, vif, *spec);
                self.mailbox.tell(Event::VifOpened { channel, vif, result });
            }
            Request::NoteVif { engine, channel, vif, spec } => {
                self.core.common.switch.open_of_sibling(engine, channel, vif, spec);
                self.mailbox.tell(Event::VifOpened { channel, vif, result: Ok(()) });
            }
            Request::NoteTcpPort { engine, channel, number, spec } => {
                let Core { tcp, common, .. } = &mut self.core;
                tcp.note_port(&mut common.switch, engine, channel, number, *spec);
                self.mailbox.tell(Event::VifOpened { channel, vif: number, result: Ok(()) });
            }
            Request::NoteCapture { engine, channel, vif, spec } => {
                let result = self.core.open_capture(Some(engine), channel, vif, *spec);
                self.mailbox.tell(Event::VifOpened { channel, vif, result });
            }
            Request::NoteListener { id, port, engine } => {
                self.core.messages.note_listener(port, engine);
                self.mailbox.tell(Event::ListenerNoted { id });
            }
            Request::CloseVif { channel, vif, told } => {
                if self.core.close(now, channel, vif, told) {
                    self.mailbox.tell(Event::VifClosed { channel, vif });
                }
            }
            Request::Network(network) => self.core.set_network(now, *network),
            Request::Plug { plug, network } => {
                let unplugged = self.plug(*plug, *network, now);
                self.mailbox.tell(Event::Unplugged(Box::new(unplugged)));
            }
            Request::Meet(newcomers) => {
                let Newcomers { ends, nic } = *newcomers;
                self.core.common.lanes.extend(ends);
                self.core.common.host.add(nic);
                self.core.messages.add_nic();
                self.core.messages.forget_heads();
                self.core.tcp.forget_heads();
                self.mailbox.tell(Event::Met);
            }
            Request::NetworkElsewhere { nic, network } => {
                self.core.common.host.set_network_elsewhere(nic, &network);
                self.core.messages.forget_heads();
                self.core.tcp.forget_heads();
            }
            Request::Neighbour { nic, address, mac: Some(mac) } => {
                self.core.common.host.learn(now, nic, address, mac);
            }
            Request::Neighbour { mac: None, .. } => {} // the interface gives up by itself
            Request::Ping { id, peer, udp_port, bytes } => {
                let common = &mut self.core.common;
                if let Err(failure) =
                    self.core.messages.ping(common, now, id, (peer, udp_port), bytes)
                {
                    self.mailbox.tell(Event::Pong { id, result: Err(failure) });
                }
            }
            Request::Snapshot { id } => self.gatherings.push_back(Gathering::new(id)),
            Request::Shutdown => self.shut_down(now),
        }
        1
    }

    /// Makes the channel's doorbell end a sleep. Each ring counts once (edge-triggered), so that an
    /// app which leaves its bell ringing keeps nobody awake.
    pub(super) fn hear(&self, id: u32, channel: &Channel) -> rustix::io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.sleep, channel.end.doorbell(), super::sleep::event_of(id), flags)
    }

    /// Nothing more is taken from a channel or accepted for it, and what it has is given up bit by
    /// bit.
    pub(super) fn remove_channel(&mut self, now: Time, channel: u32) {
        let core = &mut self.core;
        let Some(removed) = core.common.channels.channel(channel) else { return };
        if self.leaving.contains(&channel) {
            return;
        }
        removed.is_condemned = true;
        for (_, port) in core::mem::take(&mut removed.ports).into_keys() {
            core.messages.endpoint.unlisten(port);
        }
        core.frames.remove_channel(&mut core.common.switch, channel);
        core.common.captures.remove_channel(channel);
        core.tcp.remove_channel(&mut core.common, now, channel);
        self.leaving.push_back(channel);
    }

    /// Ends some connections of a channel that leaves, and then the channel. Returns how much that
    /// was.
    pub(super) fn go_on_leaving(&mut self, now: Time) -> usize {
        let Some(&channel) = self.leaving.front() else { return 0 };
        let (common, most) = (&mut self.core.common, CONNECTIONS_ENDED_PER_TURN);
        let ended = self.core.messages.end_connections(common, channel, most);
        let leaving = common.channels.peek(channel);
        let are_ending = leaving.is_some_and(Channel::has_connections);
        if are_ending || ended == most {
            return ended;
        }
        let tcp = &mut self.core.tcp;
        let ended = ended + tcp.end_connections(common, now, channel, most - ended);
        let ended = ended + tcp.remove_ports(common, now, channel, most - ended);
        if ended == most {
            return ended;
        }
        self.leaving.pop_front();
        if let Some(mut removed) = self.core.common.channels.remove(channel) {
            // It was added with the channel.
            let _ = epoll::delete(&self.sleep, removed.end.doorbell());
            removed.end.close();
            self.mailbox.tell(Event::ChannelRemoved { channel, end: removed.end });
        }
        ended + 1
    }

    /// Ends some connections of a TCP port that is being closed, and then the port. Returns how
    /// much that was.
    pub(super) fn go_on_closing(&mut self, now: Time) -> usize {
        let (core, most) = (&mut self.core, CONNECTIONS_ENDED_PER_TURN);
        let (work, gone) = core.tcp.go_on_closing(&mut core.common, now, most);
        if let Some((channel, vif)) = gone {
            self.mailbox.tell(Event::VifClosed { channel, vif });
        }
        work
    }

    fn shut_down(&mut self, now: Time) {
        for channel in self.core.common.channels.ids() {
            self.remove_channel(now, channel);
        }
        while self.go_on_leaving(now) > 0 {
            self.core.common.channels.copy_some();
        }
        self.end_by = Some(now + FAREWELL_NS);
    }

    /// Ends once the resets have left.
    fn end_if_due(&mut self, now: Time) {
        let core = &self.core;
        let is_over =
            |by| now >= by || !core.messages.endpoint.has_replies() && !core.tcp.has_output();
        if self.end_by.take_if(|by| is_over(*by)).is_some() {
            self.has_ended = true;
            self.mailbox.tell(Event::Ended);
        }
    }

    /// Tells of apps that broke the contract, once each; the control plane then removes them.
    fn report_violations(&mut self) {
        for (channel, violation) in self.core.common.channels.violations.drain(..) {
            self.mailbox.tell(Event::Violation { channel, violation });
        }
    }

    /// False if the control plane is surely to be told nothing, and the engine does not end.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        let common = &self.core.common;
        !common.channels.violations.is_empty()
            | !common.channels.pongs.is_empty()
            | !self.core.messages.failed_pings.is_empty()
            | common.host.has_news()
            | self.mailbox.has_waiting()
            | self.end_by.is_some()
    }

    #[cold]
    pub(super) fn tell_control(&mut self, now: Time) {
        self.report_violations();
        self.end_if_due(now);
        let host = &mut self.core.common.host;
        while let Some((nic, address)) = host.poll_wanted() {
            self.mailbox.tell(Event::Resolve { nic, address });
        }
        while let Some(conflict) = host.own_mut().poll_conflict() {
            self.mailbox.tell(Event::AddressConflict(conflict));
        }
        let (pongs, failed) =
            (&mut self.core.common.channels.pongs, &mut self.core.messages.failed_pings);
        let failed = failed.drain(..).map(|(id, failure)| (id, Err(failure)));
        for (id, result) in pongs.drain(..).chain(failed) {
            self.mailbox.tell(Event::Pong { id, result });
        }
        if self.mailbox.has_waiting() {
            self.mailbox.flush();
        }
    }
}

impl<X: Component<Owner = ()>> Core<X> {
    /// The addresses, routes or MTU of the host have changed. Flows go on: over another way if
    /// there is one, and those whose own address has gone wait for its return, as long as for a
    /// peer that is silent.
    pub(super) fn set_network(&mut self, now: Time, network: ip::Config) {
        self.common.host.set_network(&network);
        self.common.switch.set_mac(network.mac);
        self.messages.set_sizes(now, &network);
        self.tcp.set_mtu(network.mtu);
        self.common.switch.set_services(self.services(&network));
        self.messages.forget_heads();
        self.tcp.forget_heads();
        self.config.interface = network;
    }

    /// Begins a capture for an app, or takes note of one of another engine.
    fn open_capture(
        &mut self,
        engine: Option<usize>,
        channel: u32,
        id: u32,
        spec: CaptureSpec,
    ) -> Result<(), VifRefused> {
        self.check_capture(&spec)?;
        self.common.captures.open(engine, channel, id, spec);
        Ok(())
    }

    /// A connection that is to be watched has to be there, which the engine of its app knows.
    fn check_capture(&self, spec: &CaptureSpec) -> Result<(), VifRefused> {
        let (Some(app), Some(connection)) = (spec.app, spec.connection) else { return Ok(()) };
        match self.common.channels.peek(app) {
            Some(app) if app.find(connection).is_none() => {
                Err(VifRefused::NoConnection(connection))
            }
            _ => Ok(()),
        }
    }

    /// Closes a VIF or capture of a channel, be it of this engine or of another, and tells its app
    /// why if there is something to tell; nothing if there is none. False if it is a TCP port,
    /// which is closed bit by bit.
    fn close(&mut self, now: Time, channel: u32, id: u32, told: Option<Code>) -> bool {
        let Self { common, frames, tcp, .. } = self;
        common.switch.close_of_sibling(channel, id);
        tcp.forget_noted(&mut common.switch, channel, id);
        if frames.close(common, channel, id, told) {
            return true;
        }
        if tcp.begin_closing(common, now, channel, id, told) {
            return false;
        }
        common.captures.close(&mut common.channels, channel, id, told);
        true
    }
}
