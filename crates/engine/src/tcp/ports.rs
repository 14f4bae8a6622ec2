//! The TCP ports of apps. Each has what a virtual interface has in the switch's table, and its
//! owner there is TCP. Several apps may have one place: those of them that listen share what comes.

use std::collections::HashMap;
use std::net::IpAddr;

use clearway_base::Time;
use clearway_channel::{Code, Completion};
use clearway_classify::directory::EntryId;
use clearway_tcp::Listener;

use super::Tcp;
use super::memory;
use crate::common::Common;
use crate::frames::VifSpec;
use crate::services::Service;
use crate::switch::{FrameOwner, Switch, VifRefused};

/// A port as the control plane has given it away.
#[derive(Clone, Debug)]
pub struct TcpPortSpec {
    /// Of one address of the host; of all if `None`.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// What is received there, and what may be sent from there, which nobody else may.
    pub rights: VifSpec,
}

/// A port of an app.
#[derive(Debug)]
pub(super) struct TcpPort {
    pub(super) channel: u32,
    pub(super) spec: TcpPortSpec,
    pub(super) listener: Option<Listener>,
    entry: EntryId,
}

/// All ports of an engine.
#[derive(Debug, Default)]
pub(super) struct Ports {
    /// By the number that the control plane has given it.
    ports: HashMap<u32, TcpPort>,
    of_listeners: HashMap<Listener, u32>,
}

impl Ports {
    /// A port of this channel.
    pub(super) fn of(&mut self, channel: u32, number: u32) -> Option<&mut TcpPort> {
        self.ports.get_mut(&number).filter(|port| port.channel == channel)
    }

    /// True if a channel has a port of this number.
    pub(super) fn has(&self, channel: u32, number: u32) -> bool {
        self.ports.get(&number).is_some_and(|port| port.channel == channel)
    }

    /// True if there is no port of this number.
    pub(super) fn is_free(&self, number: u32) -> bool {
        !self.ports.contains_key(&number)
    }

    /// How many listeners there are.
    pub(super) fn listeners(&self) -> usize {
        self.of_listeners.len()
    }

    /// All of them, with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &TcpPort)> {
        self.ports.iter().map(|(number, port)| (*number, port))
    }

    pub(super) fn insert(
        &mut self,
        switch: &mut Switch,
        channel: u32,
        number: u32,
        spec: TcpPortSpec,
    ) {
        let entry = switch.open(&spec.rights, FrameOwner::Service(Service::Tcp));
        self.ports.insert(number, TcpPort { channel, spec, listener: None, entry });
    }

    /// Whose a listener is: the channel, and the number of its port.
    pub(super) fn of_listener(&self, listener: Listener) -> Option<(u32, u32)> {
        let number = *self.of_listeners.get(&listener)?;
        self.ports.get(&number).map(|port| (port.channel, number))
    }

    pub(super) fn set_listener(&mut self, number: u32, listener: Option<Listener>) {
        let Some(port) = self.ports.get_mut(&number) else { return };
        if let Some(before) = core::mem::replace(&mut port.listener, listener) {
            self.of_listeners.remove(&before);
        }
        if let Some(listener) = listener {
            self.of_listeners.insert(listener, number);
        }
    }
}

impl Tcp {
    /// Gives a port to an app that is still there.
    pub(crate) fn open_port(
        &mut self,
        common: &mut Common,
        channel: u32,
        number: u32,
        spec: TcpPortSpec,
    ) -> Result<(), VifRefused> {
        let app = common.channels.peek(channel);
        app.filter(|app| !app.is_condemned).ok_or(VifRefused::NoChannel)?;
        self.ports.insert(&mut common.switch, channel, number, spec);
        Ok(())
    }

    /// Takes a port of a channel away, and with it its connections, and tells its app why if there
    /// is something to tell. True if there was one.
    pub(crate) fn close_port(
        &mut self,
        common: &mut Common,
        now: Time,
        channel: u32,
        number: u32,
        told: Option<Code>,
    ) -> bool {
        if self.ports.of(channel, number).is_none() {
            return false;
        }
        self.unlisten(common, now, number);
        for key in self.books.of_port(channel, number) {
            self.stack.abort(now, key);
        }
        self.give_up_attempts(common, number, told.unwrap_or(Code::Closed));
        self.tell(common, now);
        if let Some(port) = self.ports.ports.remove(&number) {
            common.switch.close(port.entry, port.spec.rights.mac);
        }
        if let (Some(code), Some(app)) = (told, common.channels.channel(channel)) {
            app.tell(Completion::VifClosed { vif: number, code });
        }
        true
    }

    /// Nobody will accept for a channel any more: its app has left.
    pub(crate) fn stop_listening(&mut self, common: &mut Common, now: Time, channel: u32) {
        for number in self.ports_of(channel) {
            self.unlisten(common, now, number);
        }
    }

    /// The app of a channel is gone: its ports go with it, at once; its connections bit by bit.
    pub(crate) fn remove_channel(&mut self, common: &mut Common, now: Time, channel: u32) {
        self.stop_listening(common, now, channel);
        self.attempts.retain(|attempt| attempt.channel != channel);
    }

    /// Closes the ports of a channel whose connections have ended.
    pub(crate) fn close_ports(&mut self, common: &mut Common, now: Time, channel: u32) {
        for number in self.ports_of(channel) {
            self.close_port(common, now, channel, number, None);
        }
    }

    pub(super) fn unlisten(&mut self, common: &mut Common, now: Time, number: u32) {
        let Some(port) = self.ports.ports.get(&number) else { return };
        let (channel, Some(listener)) = (Some(port.channel), port.listener) else { return };
        let channels = &mut common.channels;
        let memory = &mut memory::idle(channels, &mut self.books, &self.ports, channel);
        self.stack.unlisten(now, listener, memory);
        self.ports.set_listener(number, None);
    }

    fn ports_of(&self, channel: u32) -> Vec<u32> {
        let ports = self.ports.ports.iter().filter(|(_, port)| port.channel == channel);
        ports.map(|(number, _)| *number).collect()
    }

    /// How many ports there are: for audits.
    pub(crate) fn port_count(&self) -> usize {
        self.ports.ports.len()
    }
}
