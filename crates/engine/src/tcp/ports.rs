//! The TCP ports of apps. Each has what a virtual interface has in the switch's table, and its
//! owner there is TCP. Several apps may have one place: those of them that listen share what comes.
//!
//! A port that is closed is out of the table at once, and another app may have its place; how many
//! connections it had does not make a turn longer.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use clearway_base::{Prefix, Time};
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
    /// Where its peers may be, who connect to it and to whom it connects; anywhere if there is
    /// nothing.
    pub peers: Vec<Prefix>,
    /// The host's other NICs that have it, too, by their numbers: what comes there for it is given
    /// to this engine, and connections from there are its.
    pub nics: Vec<usize>,
    /// What is received on this engine's NIC, and what may be sent from there, which nobody else
    /// may: of all peers, so that nobody has the port for others.
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

/// A port that has been taken from its app: nothing comes there for it any more, and its
/// connections are being ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClosingPort {
    pub(super) channel: u32,
    /// What its app is told at the end, if there is something to tell.
    pub(super) told: Option<Code>,
}

/// All ports of an engine.
#[derive(Debug, Default)]
pub(super) struct Ports {
    /// By the number that the control plane has given it.
    ports: HashMap<u32, TcpPort>,
    /// By the same number, those that are being closed; the first of them now.
    closing: BTreeMap<u32, ClosingPort>,
    of_listeners: HashMap<Listener, u32>,
}

impl Ports {
    /// A port of this channel.
    pub(super) fn of(&mut self, channel: u32, number: u32) -> Option<&mut TcpPort> {
        self.ports.get_mut(&number).filter(|port| port.channel == channel)
    }

    /// True if a channel has a port of this number, or connections of one that is being closed.
    pub(super) fn has(&self, channel: u32, number: u32) -> bool {
        self.ports.get(&number).is_some_and(|port| port.channel == channel)
            || self.closing.get(&number).is_some_and(|port| port.channel == channel)
    }

    /// True if there is no port of this number.
    pub(super) fn is_free(&self, number: u32) -> bool {
        !self.ports.contains_key(&number) && !self.closing.contains_key(&number)
    }

    /// Why nothing can be done with a port of a channel.
    pub(super) fn refusal(&self, channel: u32, number: u32) -> Code {
        match self.closing.get(&number).filter(|port| port.channel == channel) {
            Some(port) => port.told.unwrap_or(Code::Closed),
            None => Code::Invalid,
        }
    }

    /// What the app of a channel is told of a port of its that is being closed, if it is told
    /// something: others have taken it away.
    pub(super) fn told(&self, channel: u32, number: u32) -> Option<Code> {
        self.closing.get(&number).filter(|port| port.channel == channel)?.told
    }

    /// Those that are being closed, with their numbers.
    pub(super) fn closing(&self) -> impl Iterator<Item = (u32, ClosingPort)> {
        self.closing.iter().map(|(number, port)| (*number, *port))
    }

    /// One is being closed.
    pub(super) fn insert_closing(&mut self, number: u32, port: ClosingPort) {
        self.closing.insert(number, port);
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

    /// Takes a port of a channel away. Its connections end bit by bit ([`Tcp::go_on_closing`]), and
    /// then its app is told why if there is something to tell. False if there is no such port.
    pub(crate) fn begin_closing(
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
        self.give_up_attempts(common, number, told.unwrap_or(Code::Closed));
        self.remove_port(common, now, number);
        self.ports.insert_closing(number, ClosingPort { channel, told });
        true
    }

    /// True if ports are being closed.
    pub(crate) fn is_closing(&self) -> bool {
        !self.ports.closing.is_empty()
    }

    /// Ends connections of the first port that is being closed, so many at most. Returns how much
    /// that was; and the port's channel and number if it has gone.
    pub(crate) fn go_on_closing(
        &mut self,
        common: &mut Common,
        now: Time,
        most: usize,
    ) -> (usize, Option<(u32, u32)>) {
        let Some((number, ClosingPort { channel, told })) = self.ports.closing().next() else {
            return (0, None);
        };
        let keys = self.books.of_port(channel, number, most);
        for key in &keys {
            self.stack.abort(now, *key);
        }
        self.tell(common, now);
        if keys.len() == most {
            return (most, None);
        }
        self.ports.closing.remove(&number);
        if let (Some(code), Some(app)) = (told, common.channels.channel(channel)) {
            app.tell(Completion::VifClosed { vif: number, code });
        }
        (keys.len() + 1, Some((channel, number)))
    }

    /// Nobody has a port any more, and nobody listens there.
    fn remove_port(&mut self, common: &mut Common, now: Time, number: u32) {
        self.unlisten(common, now, number);
        if let Some(port) = self.ports.ports.remove(&number) {
            common.switch.close(port.entry, port.spec.rights.mac);
        }
    }

    /// Nobody will accept for a channel any more: its app has left.
    pub(crate) fn stop_listening(&mut self, common: &mut Common, now: Time, channel: u32) {
        for number in self.ports_of(channel) {
            self.unlisten(common, now, number);
        }
    }

    /// The app of a channel is gone: nobody comes to its ports any more. They go bit by bit, as its
    /// connections do.
    pub(crate) fn remove_channel(&mut self, common: &mut Common, now: Time, channel: u32) {
        self.stop_listening(common, now, channel);
        self.forget_attempts(channel);
        // Another app may have the channel when they are closed.
        let closing = self.ports.closing.values_mut().filter(|port| port.channel == channel);
        closing.for_each(|port| port.told = None);
    }

    /// Removes ports of a channel whose connections have ended, so many at most. Returns how many.
    pub(crate) fn remove_ports(
        &mut self,
        common: &mut Common,
        now: Time,
        channel: u32,
        most: usize,
    ) -> usize {
        let mut numbers = self.ports_of(channel);
        numbers.truncate(most);
        numbers.iter().for_each(|number| self.remove_port(common, now, *number));
        numbers.len()
    }

    pub(super) fn unlisten(&mut self, common: &mut Common, now: Time, number: u32) {
        let Some(port) = self.ports.ports.get(&number) else { return };
        let (channel, Some(listener)) = (Some(port.channel), port.listener) else { return };
        self.give_orphans(common, listener);
        let channels = &mut common.channels;
        let memory = &mut memory::idle(channels, &mut self.books, &self.ports, channel);
        self.stack.unlisten(now, listener, memory);
        self.ports.set_listener(number, None);
    }

    fn ports_of(&self, channel: u32) -> Vec<u32> {
        let ports = self.ports.ports.iter().filter(|(_, port)| port.channel == channel);
        ports.map(|(number, _)| *number).collect()
    }

    /// How many ports there are, those of other engines included: for audits.
    pub(crate) fn port_count(&self) -> usize {
        self.ports.ports.len() + self.ports.closing.len() + self.noted.iter().count()
    }
}
