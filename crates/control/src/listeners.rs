//! Who listens on which port of the host. The engine of the app listens; all others have to know,
//! so that they neither refuse connections that find their way to the right one, nor let another
//! app have the port. A listener of one address has the port of all of them: it is refused
//! elsewhere.
//!
//! The ports are given away here, where all are known, and the app has its answer when every engine
//! does. What engines are asked, each has to be asked in that order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use clearway_channel::Code;
use clearway_channel::control::DYNAMIC_PORTS;
use clearway_engine::Request;

#[cfg(test)]
mod tests;

/// Notes of this id are not waited for.
const ID_OF_NOBODY: u64 = 0;

/// The ports of the host that apps listen on.
///
/// Calls, in any order: [`open`](Self::open) and [`close`](Self::close) for what apps ask,
/// [`forget`](Self::forget) for those that are gone, `handle_*` for what engines tell; after each,
/// [`poll_request`](Self::poll_request) until there is nothing to ask.
#[derive(Debug)]
pub struct Listeners {
    /// Those that are asked.
    engines: BTreeSet<usize>,
    ports: BTreeMap<u16, ListenerName>,
    /// Those of which not every engine has said that it knows, by the id that comes back in the
    /// engines' answers.
    opening: BTreeMap<u64, Opening>,
    id_last: u64,
    requests: VecDeque<(usize, Request)>,
}

/// Names a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerName {
    /// The engine of its app.
    pub engine: usize,
    /// Its app's channel there.
    pub channel: u32,
    /// Its number in the channel.
    pub number: u32,
}

/// What came of an attempt to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Whose it was.
    pub name: ListenerName,
    /// Every engine knows of it; or why it does not listen, and then the port is free.
    pub result: Result<(), Code>,
}

#[derive(Debug)]
struct Opening {
    name: ListenerName,
    /// Engines whose answer is missing.
    unanswered: BTreeSet<usize>,
    result: Result<(), Code>,
}

impl Listeners {
    /// Nobody listens at any of so many engines.
    #[must_use]
    pub fn new(engines: usize) -> Self {
        Self {
            engines: (0..engines).collect(),
            ports: BTreeMap::new(),
            opening: BTreeMap::new(),
            id_last: ID_OF_NOBODY,
            requests: VecDeque::new(),
        }
    }

    /// An engine has come to the host: it is told who listens where.
    pub fn handle_joined(&mut self, engine: usize) {
        self.engines.insert(engine);
        let notes = self.ports.iter().map(|(port, name)| {
            let by = Some(name.engine);
            (engine, Request::NoteListener { id: ID_OF_NOBODY, port: *port, engine: by })
        });
        self.requests.extend(notes);
    }

    /// Has a new listener take a port, any that is free for 0, of one address of the host or of
    /// all. Returns the port; whether it listens is told later.
    ///
    /// # Errors
    /// If the port is somebody's, or there is none left; or the engine is no more.
    pub fn open(
        &mut self,
        name: ListenerName,
        address: Option<IpAddr>,
        port: u16,
    ) -> Result<u16, Code> {
        if !self.engines.contains(&name.engine) {
            return Err(Code::DaemonGone);
        }
        let port = self.free_port(port).ok_or(Code::AddressInUse)?;
        self.ports.insert(port, name);
        self.id_last += 1;
        let opening = Opening { name, unanswered: self.engines.clone(), result: Ok(()) };
        self.opening.insert(self.id_last, opening);
        let ListenerName { engine, channel, number: listener } = name;
        self.requests.push_back((engine, Request::Listen { channel, listener, address, port }));
        self.tell_others(engine, self.id_last, port, true);
        Ok(port)
    }

    fn free_port(&self, port: u16) -> Option<u16> {
        let is_free = |port: &u16| !self.ports.contains_key(port);
        match port {
            0 => DYNAMIC_PORTS.into_iter().find(is_free),
            port => Some(port).filter(is_free),
        }
    }

    /// The engine that is to listen does, or says why not.
    pub fn handle_listening(
        &mut self,
        name: ListenerName,
        result: Result<(), Code>,
    ) -> Option<Opened> {
        let (&id, opening) = self.opening.iter_mut().find(|(_, opening)| opening.name == name)?;
        opening.result = result;
        self.handle_noted(name.engine, id)
    }

    /// One more engine knows of a listener.
    pub fn handle_noted(&mut self, engine: usize, id: u64) -> Option<Opened> {
        let opening = self.opening.get_mut(&id)?;
        opening.unanswered.remove(&engine);
        if !opening.unanswered.is_empty() {
            return None;
        }
        let Opening { name, result, .. } = self.opening.remove(&id)?;
        if result.is_err() {
            self.close(name);
        }
        Some(Opened { name, result })
    }

    /// A listener is to be no more, or an attempt to listen.
    pub fn close(&mut self, name: ListenerName) {
        self.opening.retain(|_, opening| opening.name != name);
        let port = self.ports.iter().find(|(_, other)| **other == name).map(|(port, _)| *port);
        let Some(port) = port else { return };
        let ListenerName { engine, channel, number: listener } = name;
        self.requests.push_back((engine, Request::Unlisten { channel, listener }));
        self.free(engine, port);
    }

    /// A channel is going, and all its listeners with it, as its engine is told by whoever removes
    /// the channel.
    pub fn forget(&mut self, engine: usize, channel: u32) {
        let is_its = |name: &ListenerName| (name.engine, name.channel) == (engine, channel);
        self.opening.retain(|_, opening| !is_its(&opening.name));
        self.free_all(engine, is_its);
    }

    /// An engine is no more, and with it the listeners of its apps: it is asked for nothing any
    /// more, and the answers that it owes do not come. Returns what came of the attempts to listen
    /// that only they were missing for, its own apps' among them.
    pub fn handle_ended(&mut self, engine: usize) -> Vec<Opened> {
        self.engines.remove(&engine);
        self.requests.retain(|(asked, _)| *asked != engine);
        let is_its = |name: &ListenerName| name.engine == engine;
        let mut opened = Vec::new();
        self.opening.retain(|_, &mut Opening { name, .. }| {
            if is_its(&name) {
                opened.push(Opened { name, result: Err(Code::DaemonGone) });
            }
            !is_its(&name)
        });
        self.free_all(engine, is_its);
        let waiting: Vec<u64> = self.opening.keys().copied().collect();
        opened.extend(waiting.into_iter().filter_map(|id| self.handle_noted(engine, id)));
        opened
    }

    fn free_all(&mut self, engine: usize, is_meant: impl Fn(&ListenerName) -> bool) {
        let meant = self.ports.iter().filter(|(_, name)| is_meant(name));
        let ports: Vec<u16> = meant.map(|(port, _)| *port).collect();
        ports.into_iter().for_each(|port| self.free(engine, port));
    }

    fn free(&mut self, engine: usize, port: u16) {
        self.ports.remove(&port);
        self.tell_others(engine, ID_OF_NOBODY, port, false);
    }

    /// Tells all other engines whether one listens on a port.
    fn tell_others(&mut self, engine: usize, id: u64, port: u16, listens: bool) {
        let by = listens.then_some(engine);
        let others = self.engines.iter().filter(|other| **other != engine);
        let notes = others.map(|other| (*other, Request::NoteListener { id, port, engine: by }));
        self.requests.extend(notes);
    }

    /// What an engine is to be asked next.
    pub fn poll_request(&mut self) -> Option<(usize, Request)> {
        self.requests.pop_front()
    }

    /// The ports that are somebody's, and whose.
    pub fn ports(&self) -> impl Iterator<Item = (u16, ListenerName)> + '_ {
        self.ports.iter().map(|(port, name)| (*port, *name))
    }

    /// True if every engine has said of every listener that it knows.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.opening.is_empty() && self.requests.is_empty()
    }
}
