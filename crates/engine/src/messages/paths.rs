//! The headers towards each peer: cached per flow, and for strangers the way back that their
//! datagram came.

use std::collections::VecDeque;

use clearway_base::Time;
use clearway_transport::{Destination, Endpoint, FlowKey};

use crate::ip::{Interface, Resolution, UdpPath};

/// Strangers whose way back is remembered until they are answered, in the same turn.
const STRANGERS_MAX: usize = 64;

/// After so many probe timeouts in a row without a word of the peer, its neighbour may have moved.
const PROBE_TIMEOUTS_MAX: u32 = 2;

/// The paths of an engine.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// By the slot of the flow.
    flows: Vec<Option<(FlowKey, UdpPath)>>,
    strangers: VecDeque<UdpPath>,
}

impl Paths {
    /// What [`Paths::find`] will read for a flow, for fetching it from memory ahead.
    #[inline]
    pub(super) fn state(&self, key: FlowKey) -> Option<&(impl Sized + use<>)> {
        self.flows.get(key.slot())
    }

    /// The path to `destination`, if there is one now. Asks for the neighbour if it is not known.
    #[inline]
    pub(super) fn find(
        &mut self,
        now: Time,
        interface: &mut Interface,
        endpoint: &mut Endpoint,
        destination: &Destination,
    ) -> Option<&UdpPath> {
        let path = match destination.flow {
            Some(key) => self.of_flow(now, interface, endpoint, destination, key),
            None => self.of_reply(interface, destination),
        }?;
        path.set_ports(destination.from.port(), destination.to.port());
        Some(path)
    }

    #[inline]
    fn of_flow(
        &mut self,
        now: Time,
        interface: &mut Interface,
        endpoint: &mut Endpoint,
        destination: &Destination,
        key: FlowKey,
    ) -> Option<&mut UdpPath> {
        let known = self.flows.get(key.slot()).and_then(Option::as_ref);
        let is_current = known
            .is_some_and(|(owner, path)| *owner == key && interface.is_current(now, path.path()));
        if !is_current {
            self.refresh(now, interface, endpoint, destination, key);
        }
        self.flows[key.slot()].as_mut().map(|(_, path)| path)
    }

    /// Asks the interface again. A path that is there already serves until there is a better one.
    fn refresh(
        &mut self,
        now: Time,
        interface: &mut Interface,
        endpoint: &mut Endpoint,
        destination: &Destination,
        key: FlowKey,
    ) {
        if self.flows.len() <= key.slot() {
            self.flows.resize_with(key.slot() + 1, || None);
        }
        let old =
            self.flows[key.slot()].take().filter(|(owner, _)| *owner == key).map(|(_, path)| path);
        if let Some(path) = &old
            && endpoint
                .last_acknowledged(key)
                .is_some_and(|then| now.since(then) < clearway_base::SECOND)
        {
            interface.confirm(now, path.path());
        }
        if endpoint.probe_timeouts(key) >= PROBE_TIMEOUTS_MAX {
            interface.doubt(now, destination.to.ip());
        }
        let path = match interface.udp_path(now, destination.from, destination.to) {
            Resolution::Known(path) => Some(path),
            Resolution::Pending | Resolution::Unreachable => {
                let old = old.or_else(|| self.of_stranger(destination).cloned());
                old.filter(|path| interface.is_own(path.source().ip()))
            }
        };
        self.flows[key.slot()] = path.map(|path| (key, path));
    }

    /// The way back of a stranger, or to the peer of a flow that has ended: there may be more of
    /// those than are remembered as strangers.
    fn of_reply(
        &mut self,
        interface: &Interface,
        destination: &Destination,
    ) -> Option<&mut UdpPath> {
        if self.of_stranger(destination).is_none() {
            self.prepare(interface.known_udp_path(destination.from, destination.to)?);
        }
        self.of_stranger(destination)
    }

    /// The ports do not matter: answers go to the daemon, whatever port the question came from.
    fn of_stranger(&mut self, destination: &Destination) -> Option<&mut UdpPath> {
        let (from, to) = (destination.from.ip(), destination.to.ip());
        self.strangers
            .iter_mut()
            .rev()
            .find(|path| path.destination().ip() == to && path.source().ip() == from)
    }

    /// Takes a path that is known before its packet: the way back that a stranger's datagram came,
    /// or that of a ping.
    pub(super) fn prepare(&mut self, path: UdpPath) {
        if self.strangers.len() == STRANGERS_MAX {
            self.strangers.pop_front();
        }
        self.strangers.push_back(path);
    }
}
