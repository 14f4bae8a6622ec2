//! Ports that apps at several engines have, or one on several NICs, and whose a segment is that
//! comes to one.
//!
//! ```text
//!  comes to 2 ── who knows it? ──▶ 2 ─▶ 3 ─▶ 0 ─▶ 1 ─┐
//!                              ┌── nobody does ──────┘
//!                              ▼
//!           who listens for it? ──▶ 2 ─▶ 3 ─▶ 0 ─▶ 1: the last refuses it
//! ```
//!
//! The first that knows its connection takes it, and of what nobody knows the first that listens.
//! So a connection is that engine's at whose queue it begins, if an app listens there, else
//! another's by a hash of it; and it stays there, whatever queue its segments come to later, and
//! whichever listeners come and go. What nobody knows is seldom more than the first SYN of a
//! connection. That goes round, too: the peer may have a connection from the same port elsewhere,
//! which answers it as RFC 9293, section 3.10.7.4, says.
//!
//! One in TIME-WAIT is known by SYNs only. All else is of a connection first: who has the port now
//! may have connected from it to the same peer. What is of none is late, and in the second round
//! the one in TIME-WAIT takes it.
//!
//! Nothing is kept of a search but in the parcel that is on its way. Each engine asks those of the
//! others that have the port as far as it knows, each of them once.

use std::collections::HashMap;
use std::net::SocketAddr;

use clearway_base::Time;
use clearway_channel::Code;
use clearway_classify::directory::EntryId;
use clearway_tcp::{Arrival, Listener, Orphan};

use super::{Tcp, TcpPortSpec};
use crate::common::{Common, Via};
use crate::lanes::{ENGINES_MAX, What};
use crate::services::Service;
use crate::switch::{FrameOwner, Switch};

/// How far it has been found out whose a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Search {
    /// The engine that it came to.
    begun_at: usize,
    /// From another host.
    is_from_wire: bool,
    /// Nobody knows it: those who listen are asked now.
    is_unknown: bool,
    /// The engines that have been asked that, a bit for each.
    asked: u64,
}

/// A port that an app at another engine has, and shares or has on this engine's NIC as well.
#[derive(Debug)]
pub(super) struct NotedPort {
    pub(super) engine: usize,
    pub(super) channel: u32,
    /// As the control plane has given it.
    pub(super) number: u32,
    pub(super) spec: TcpPortSpec,
    entry: EntryId,
}

/// Those of all other engines. What comes to them is TCP's at each engine.
#[derive(Debug, Default)]
pub(super) struct NotedPorts {
    by_port: HashMap<u16, Vec<NotedPort>>,
}

impl Search {
    /// Nobody has been asked.
    pub(super) fn begin(engine: usize, via: Via) -> Self {
        let is_from_wire = via.is_from_queue();
        Self { begun_at: engine, is_from_wire, is_unknown: false, asked: 0 }
    }

    /// How its segment came to the engine that has it now.
    pub(crate) const fn via(&self) -> Via {
        if self.is_from_wire { Via::QueueAndLane } else { Via::Lane }
    }
}

impl NotedPorts {
    pub(super) fn insert(
        &mut self,
        switch: &mut Switch,
        engine: usize,
        channel: u32,
        number: u32,
        spec: TcpPortSpec,
    ) {
        let entry = switch.open(&spec.rights, FrameOwner::Service(Service::Tcp));
        let of_port = self.by_port.entry(spec.port).or_default();
        of_port.push(NotedPort { engine, channel, number, spec, entry });
    }

    /// The port is gone, if it was one of another engine.
    pub(super) fn remove(&mut self, switch: &mut Switch, channel: u32, number: u32) {
        let is_it = |noted: &mut NotedPort| (noted.channel, noted.number) == (channel, number);
        for noted in self.by_port.values_mut().flat_map(|all| all.extract_if(.., is_it)) {
            switch.close(noted.entry, noted.spec.rights.mac);
        }
        self.by_port.retain(|_, noted| !noted.is_empty());
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &NotedPort> {
        self.by_port.values().flatten()
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.by_port.is_empty()
    }

    /// The engines that have the port at an address of the host, a bit for each.
    #[inline]
    fn engines(&self, at: SocketAddr) -> u64 {
        let has_it = |noted: &&NotedPort| noted.spec.address.is_none_or(|own| own == at.ip());
        let noted = self.by_port.get(&at.port()).into_iter().flatten().filter(has_it);
        noted.fold(0, |engines, noted| engines | 1 << noted.engine)
    }
}

impl Tcp {
    /// An app at another engine has a port that it shares, or that it has on this engine's NIC.
    pub(crate) fn note_port(
        &mut self,
        switch: &mut Switch,
        engine: usize,
        channel: u32,
        number: u32,
        spec: TcpPortSpec,
    ) {
        self.noted.insert(switch, engine, channel, number, spec);
    }

    /// It has it no more, if it had.
    pub(crate) fn forget_noted(&mut self, switch: &mut Switch, channel: u32, number: u32) {
        self.noted.remove(switch, channel, number);
    }

    /// An app can connect from here: at another engine there could be the same connection.
    pub(super) fn check_unshared(&self, local: SocketAddr) -> Result<(), Code> {
        if self.noted.engines(local) == 0 { Ok(()) } else { Err(Code::AddressInUse) }
    }

    /// Gives a segment to another engine, if it is or may be that one's; `search` says how far
    /// others have come with it. False if it is to be handled here.
    #[inline]
    pub(super) fn pass_on(
        &mut self,
        common: &mut Common,
        now: Time,
        search: Search,
        arrival: &Arrival,
        frame: &[u8],
    ) -> bool {
        let others = self.noted.engines(arrival.to);
        if others == 0 && search.asked == 0 {
            return false;
        }
        let next = self.next(now, common.lanes.index(), others, search, arrival);
        match next {
            Some((engine, search)) => common.lanes.push(engine, What::Sought(search), frame),
            None if common.lanes.siblings().contains(&search.begun_at) => {}
            None => common.show_handed_in(now, frame, None),
        }
        next.is_some()
    }

    /// What is half-open at a listener that ends goes to another engine that has the port, if none
    /// here can have it: to the one that is asked first for what its peer sends next.
    pub(super) fn give_orphans(&mut self, common: &mut Common, listener: Listener) {
        if self.noted.is_empty() {
            return;
        }
        for orphan in self.stack.take_orphans(listener) {
            self.pass_orphan(common, &orphan, 0);
        }
    }

    /// Takes what is half-open from another engine; these have been asked before. Bytes that cannot
    /// be read are of nobody.
    pub(crate) fn receive_orphan(
        &mut self,
        common: &mut Common,
        now: Time,
        bytes: &[u8],
        asked: u64,
    ) {
        if let Ok(orphan) = postcard::from_bytes::<Orphan>(bytes)
            && !self.stack.adopt(now, &orphan)
        {
            self.pass_orphan(common, &orphan, asked);
        }
    }

    /// If nobody takes it, it is as if its SYN had never been answered.
    fn pass_orphan(&self, common: &mut Common, orphan: &Orphan, asked: u64) {
        let ends = orphan.half_open.ends;
        let asked = asked | 1 << common.lanes.index();
        let next = self.first_of(self.noted.engines(ends.0), asked, ends);
        if let (Some(engine), Ok(bytes)) = (next, postcard::to_allocvec(orphan)) {
            common.lanes.push(engine, What::Orphan { asked }, &bytes);
        }
    }

    /// The engine that is asked after this one, and how far the search is then.
    fn next(
        &mut self,
        now: Time,
        here: usize,
        others: u64,
        mut search: Search,
        arrival: &Arrival,
    ) -> Option<(usize, Search)> {
        if self.stack.knows(arrival) {
            return None;
        }
        let ends = (arrival.to, arrival.from);
        if !search.is_unknown {
            search.asked |= 1 << here;
            if let Some(engine) = self.first_of(others, search.asked, ends) {
                return Some((engine, search));
            }
            (search.is_unknown, search.asked) = (true, 0);
            if search.begun_at != here {
                return Some((search.begun_at, search));
            }
        }
        if self.stack.remembers(arrival) || self.stack.welcomes(now, arrival) {
            return None;
        }
        search.asked |= 1 << here;
        self.first_of(others, search.asked, ends).map(|engine| (engine, search))
    }

    /// Of these engines the one that a hash of the connection says, or the next behind it that has
    /// not been asked.
    fn first_of(&self, engines: u64, asked: u64, ends: (SocketAddr, SocketAddr)) -> Option<usize> {
        let count = engines.count_ones() as usize;
        let each = (0..ENGINES_MAX).filter(|engine| engines & 1 << engine != 0);
        let mut from_there =
            each.cycle().skip(self.stack.share_of(ends.0, ends.1, count)).take(count);
        from_there.find(|engine| asked & 1 << engine == 0)
    }
}
