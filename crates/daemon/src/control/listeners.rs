//! Who listens on which port of the host. The engine of the app listens; all others have to know,
//! so that they neither refuse connections that find their way to the right one, nor let another
//! app have the port. A listener of one address has the port of all of them: it is refused
//! elsewhere.
//!
//! The ports are given away here, where all are known, and the app has its answer when every engine
//! does.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clearway_channel::Code;
use clearway_channel::control::{
    DYNAMIC_PORTS, Empty, Listen, Listening, Refusal, Reply, Unlisten,
};
use clearway_engine::Request as EngineRequest;

use super::ControlPlane;
use super::requests::{not_attached, refusal};
use super::session::Waiting;

/// The ports of the host that apps listen on.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    ports: BTreeMap<u16, Listener>,
}

/// Whose a port is: a channel's, which knows it by this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listener {
    channel: u32,
    number: u32,
}

/// A request to listen in work.
#[derive(Debug)]
pub(super) struct Opening {
    /// Comes back in the answers of the engines.
    id: u64,
    listener: u32,
    address: SocketAddr,
    /// Engines whose answer is missing.
    answers_left: usize,
    failure: Option<Code>,
}

impl Listeners {
    /// Takes a port for a listener; any that is free for 0.
    fn take(&mut self, port: u16, listener: Listener) -> Option<u16> {
        let is_free = |port: &u16| !self.ports.contains_key(port);
        let port = match port {
            0 => DYNAMIC_PORTS.into_iter().find(is_free)?,
            port => Some(port).filter(is_free)?,
        };
        self.ports.insert(port, listener);
        Some(port)
    }

    /// Gives back the port of a listener.
    fn give_back(&mut self, listener: Listener) -> Option<u16> {
        let port = *self.ports.iter().find(|(_, other)| **other == listener)?.0;
        self.ports.remove(&port);
        Some(port)
    }

    /// Gives back all ports of a channel.
    fn give_back_all(&mut self, channel: u32) -> Vec<u16> {
        let of_channel = self.ports.iter().filter(|(_, listener)| listener.channel == channel);
        let ports: Vec<u16> = of_channel.map(|(port, _)| *port).collect();
        ports.iter().for_each(|port| _ = self.ports.remove(port));
        ports
    }
}

impl ControlPlane {
    pub(super) fn listen(&mut self, token: u64, listen: &Listen) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get_mut(&token) else { return Ok(()) };
        let attached = session.attached.as_mut().ok_or_else(not_attached)?;
        self.accounts.may_listen(&session.peer, listen.port)?;
        if attached.listeners.len() >= self.accounts.listeners_per_channel() {
            let text = "the channel has as many listeners as it may; close one first, or raise \
                        `listeners_per_channel` in [policy.limits] of the daemon's configuration";
            return Err(refusal(Code::Limit, text));
        }
        let (engine, channel, listener) =
            (attached.engine, attached.channel, attached.listener_next);
        let in_use = || refusal(Code::AddressInUse, Code::AddressInUse.text());
        let taken = self.listeners.take(listen.port, Listener { channel, number: listener });
        let port = taken.ok_or_else(in_use)?;
        attached.listener_next = listener.wrapping_add(1).max(1);
        attached.listeners.push(listener);
        self.request_next += 1;
        let address = listen.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        session.waiting = Waiting::Listening(Opening {
            id: self.request_next,
            listener,
            address: SocketAddr::new(address, port),
            answers_left: self.engines.len(),
            failure: None,
        });
        let address = listen.address;
        self.engines[engine].post(EngineRequest::Listen { channel, listener, address, port });
        self.tell_others(engine, self.request_next, port, true);
        Ok(())
    }

    /// Tells all other engines whether one listens on a port.
    fn tell_others(&mut self, engine: usize, id: u64, port: u16, listens: bool) {
        let elsewhere = listens.then_some(engine);
        let others = self.engines.iter_mut().enumerate().filter(|(other, _)| *other != engine);
        for (_, other) in others {
            other.post(EngineRequest::NoteListener { id, port, engine: elsewhere });
        }
    }

    /// The engine that is to listen does, or says why not.
    pub(super) fn listening(
        &mut self,
        engine: usize,
        channel: u32,
        listener: u32,
        result: Result<(), Code>,
    ) {
        let record = self.engines[engine].channel(channel);
        let Some(session) = record.and_then(|record| self.sessions.get_mut(&record.session)) else {
            return;
        };
        if let Waiting::Listening(opening) = &mut session.waiting
            && opening.listener == listener
        {
            opening.failure = result.err();
            let id = opening.id;
            self.listener_noted(id);
        }
    }

    /// One more engine knows of a listener.
    pub(super) fn listener_noted(&mut self, id: u64) {
        let mut sessions = self.sessions.iter_mut();
        let opening = sessions.find_map(|(token, session)| match &mut session.waiting {
            Waiting::Listening(opening) if opening.id == id => Some((*token, opening)),
            _ => None,
        });
        let Some((token, opening)) = opening else { return };
        opening.answers_left -= 1;
        if opening.answers_left > 0 {
            return;
        }
        let (listener, address, failure) = (opening.listener, opening.address, opening.failure);
        let reply = match failure {
            None => {
                tracing::debug!(%address, listener, "listening");
                Reply::Listening(Listening { listener, address })
            }
            Some(code) => {
                self.close_listener(token, listener);
                Reply::error(code)
            }
        };
        self.reply(token, &reply);
    }

    pub(super) fn unlisten(&mut self, token: u64, unlisten: &Unlisten) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get_mut(&token) else { return Ok(()) };
        let attached = session.attached.as_mut().ok_or_else(not_attached)?;
        let listener = unlisten.listener;
        if !attached.listeners.contains(&listener) {
            let text = format!("there is no listener {listener}; use the number from `listening`");
            return Err(refusal(Code::Invalid, text));
        }
        let (engine, channel) = (attached.engine, attached.channel);
        self.engines[engine].post(EngineRequest::Unlisten { channel, listener });
        self.close_listener(token, listener);
        self.reply(token, &Reply::Unlistened(Empty {}));
        Ok(())
    }

    /// A session has a listener no more.
    fn close_listener(&mut self, token: u64, listener: u32) {
        let session = self.sessions.get_mut(&token);
        let Some(attached) = session.and_then(|session| session.attached.as_mut()) else { return };
        attached.listeners.retain(|id| *id != listener);
        let (engine, channel) = (attached.engine, attached.channel);
        let listener = Listener { channel, number: listener };
        if let Some(port) = self.listeners.give_back(listener) {
            self.tell_others(engine, 0, port, false);
        }
    }

    /// A channel is going: its ports are free.
    pub(super) fn forget_listeners(&mut self, engine: usize, channel: u32) {
        for port in self.listeners.give_back_all(channel) {
            self.tell_others(engine, 0, port, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Listener, Listeners};
    use clearway_channel::control::DYNAMIC_PORTS;

    #[test]
    fn a_port_is_one_listeners_at_a_time() {
        let mut listeners = Listeners::default();
        let of = |channel, number| Listener { channel, number };
        assert_eq!(listeners.take(7000, of(1, 1)), Some(7000));
        assert_eq!(listeners.take(7000, of(2, 1)), None);
        assert_eq!(listeners.take(0, of(2, 1)), Some(*DYNAMIC_PORTS.start()));
        assert_eq!(listeners.take(0, of(2, 2)), Some(*DYNAMIC_PORTS.start() + 1));
        assert_eq!(listeners.give_back(of(1, 2)), None);
        assert_eq!(listeners.give_back(of(1, 1)), Some(7000));
        assert_eq!(listeners.take(7000, of(2, 3)), Some(7000));
        assert_eq!(listeners.give_back_all(2).len(), 3);
        assert_eq!(listeners.take(0, of(3, 1)), Some(*DYNAMIC_PORTS.start()));
    }
}
