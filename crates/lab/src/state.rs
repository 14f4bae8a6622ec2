//! All that a host is, under one lock.

use std::collections::{BTreeMap, VecDeque};
use std::iter;

use clearway_base::{SECOND, Time};
use clearway_tcp::{Socket, Sockets, Stack, Transmit};
use clearway_wire::tcp::Flags;

use crate::bursts;
use crate::descriptors::Descriptors;
use crate::network::{Heard, Link, frame_of};
use crate::notices::Notices;
use crate::observed::{Ends, Observations};
use crate::settings::Defaults;
use crate::store::Store;

/// A packet that has left, and when.
pub(crate) type Packet = (Time, Vec<u8>);

/// What is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) received: u64,
    pub(crate) dropped: u64,
    pub(crate) sent: u64,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) now: Time,
    pub(crate) sockets: Sockets,
    pub(crate) link: Link,
    pub(crate) store: Store,
    pub(crate) defaults: Defaults,
    pub(crate) descriptors: Descriptors,
    pub(crate) notices: Notices,
    pub(crate) observations: Observations,
    /// Those whose last write said that more would follow.
    pub(crate) has_more: Vec<Socket>,
    pub(crate) counters: Counters,
    /// Nobody will use the host again.
    pub(crate) is_gone: bool,
    out: VecDeque<Packet>,
    /// Calls that wait.
    waiters: BTreeMap<u64, Waiter>,
    waiters_ever: u64,
    /// Grows with each change that a call may wait for.
    generation: u64,
}

/// A call that waits.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    deadline: Time,
    /// The generation for which it has found that it has to wait.
    seen: u64,
}

/// Packets that nobody takes: the oldest go first.
const OUT_MAX: usize = 1 << 16;
/// Descriptors of a host.
const SOCKETS_MAX: u32 = 1 << 16;

impl State {
    pub(crate) fn new(start: Time, seed: u64, secret: [u8; 16]) -> Self {
        let defaults = Defaults::default();
        let mut stack = Stack::new(defaults.config, start, seed, secret);
        stack.set_fast_open_keys(defaults.fast_open.keys());
        Self {
            now: start,
            sockets: Sockets::new(stack, SOCKETS_MAX),
            link: Link::new(defaults.mtu),
            store: Store::default(),
            defaults,
            descriptors: Descriptors::default(),
            notices: Notices::default(),
            observations: Observations::default(),
            has_more: Vec::new(),
            counters: Counters::default(),
            is_gone: false,
            out: VecDeque::new(),
            waiters: BTreeMap::new(),
            waiters_ever: 0,
            generation: 0,
        }
    }

    /// A packet has come.
    pub(crate) fn receive(&mut self, packet: &[u8]) {
        self.counters.received += 1;
        let frame = frame_of(packet).unwrap_or_default();
        let stack = self.sockets.stack_mut();
        match self.link.receive(self.now, &frame) {
            Heard::Segment(arrival, payload) => {
                self.store.set_payload(payload);
                stack.handle_segment(self.now, &arrival, &mut self.store);
                self.observations.on_arrival(self.now, &arrival);
                self.end_more((arrival.to, arrival.from));
            }
            Heard::Error(error, local, remote, sequence) => {
                stack.handle_icmp(self.now, error, local, remote, sequence);
            }
            Heard::Nothing => {}
            Heard::Dropped => self.counters.dropped += 1,
        }
    }

    /// MSG_MORE is of the moment: as with Linux, what it has held back is looked at as if it had
    /// not been there when something comes from the peer.
    fn end_more(&mut self, ends: Ends) {
        for socket in std::mem::take(&mut self.has_more) {
            match self.ends_of(socket) {
                Some(other) if other == ends => self.sockets.end_more(socket),
                _ => self.has_more.push(socket),
            }
        }
    }

    /// When something happens by itself, or a call that waits gives up.
    pub(crate) fn next_event(&self) -> Time {
        let deadlines = self.waiters.values().map(|waiter| waiter.deadline);
        deadlines.min().unwrap_or(Time::MAX).min(self.next_timeout())
    }

    /// When something happens by itself.
    pub(crate) fn next_timeout(&self) -> Time {
        self.sockets.stack().next_timeout().min(self.link.next_timeout())
    }

    /// It is later now.
    pub(crate) fn advance_to(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.sockets.stack_mut().handle_timeouts(self.now);
        self.link.handle_timeout(self.now);
        self.transmit(true);
    }

    /// Does all that can be done at this moment. Whoever waits has to look again.
    pub(crate) fn progress(&mut self) {
        self.flush();
        self.generation += 1;
    }

    /// The same, after a call that waits has done a part of its work. Others have to look again
    /// only if something has come of it.
    pub(crate) fn progress_of_part(&mut self) {
        if self.flush() {
            self.generation += 1;
        }
    }

    fn flush(&mut self) -> bool {
        let sent = self.counters.sent;
        self.transmit(false);
        self.sockets.handle_events(self.now, &mut self.store);
        self.transmit(false);
        self.on_given_back();
        self.observe();
        let changed = std::mem::take(&mut self.store.changed);
        for socket in &changed {
            self.descriptors.note_change(*socket);
        }
        self.counters.sent > sent || !changed.is_empty()
    }

    /// `by_timer`: because some time is over, not because of a call or a packet.
    fn transmit(&mut self, by_timer: bool) {
        let (now, stack) = (self.now, self.sockets.stack_mut());
        let mut transmits: Vec<_> = iter::from_fn(|| stack.poll_transmit(now, 1)).collect();
        let segments_min = self.defaults.habits.burst_segments;
        bursts::push(&mut transmits, |transmit| {
            let info = transmit.connection.and_then(|key| stack.info(key));
            info.map_or(1, |info| bursts::limit(&info, segments_min))
        });
        for transmit in transmits {
            self.emit(transmit, by_timer);
        }
        while let Some(packet) = self.link.poll_transmit() {
            self.leave(packet);
        }
    }

    fn emit(&mut self, mut transmit: Transmit, by_timer: bool) {
        let extents: Vec<_> = transmit
            .connection
            .into_iter()
            .flat_map(|key| self.sockets.stack().extents(key, transmit.payload.clone()))
            .collect();
        self.observations.on_departure(self.now, &transmit);
        let is_syn = transmit.repr.flags.contains(Flags::SYN);
        if self.defaults.habits.burst_segments > 1 && !is_syn {
            let flags = &mut transmit.repr.flags;
            match extents.last().and_then(|last| self.store.push_at(*last)) {
                Some(true) => *flags |= Flags::PSH,
                Some(false) if !by_timer => *flags = flags.without(Flags::PSH),
                _ => {}
            }
        }
        let payload: Vec<u8> =
            extents.iter().flat_map(|extent| self.store.read(*extent).iter().copied()).collect();
        if let Some(packet) = self.link.packet(self.now, &transmit, &payload) {
            self.leave(packet);
        }
        extents.into_iter().for_each(|extent| self.on_departure(extent));
    }

    fn leave(&mut self, packet: Vec<u8>) {
        self.counters.sent += 1;
        if self.out.len() == OUT_MAX {
            self.out.pop_front();
        }
        self.out.push_back((self.now, packet));
    }

    /// The next packet that has left, if it is at most so long.
    pub(crate) fn take_packet(&mut self, most: usize) -> Option<Result<Packet, usize>> {
        match self.out.front()?.1.len() {
            length if length > most => Some(Err(length)),
            _ => self.out.pop_front().map(Ok),
        }
    }

    pub(crate) fn has_packet(&self) -> bool {
        !self.out.is_empty()
    }

    // Calls that wait.

    pub(crate) fn add_waiter(&mut self, deadline: Time) -> u64 {
        self.waiters_ever += 1;
        let waiter = Waiter { deadline, seen: self.generation };
        self.waiters.insert(self.waiters_ever, waiter);
        self.waiters_ever
    }

    /// It has looked again, and still has to wait.
    pub(crate) fn keep_waiting(&mut self, waiter: u64) {
        if let Some(waiter) = self.waiters.get_mut(&waiter) {
            waiter.seen = self.generation;
        }
    }

    pub(crate) fn remove_waiter(&mut self, waiter: u64) {
        self.waiters.remove(&waiter);
    }

    pub(crate) fn waiters(&self) -> usize {
        self.waiters.len()
    }

    /// True if each call that waits has found that it has to.
    pub(crate) fn is_quiet(&self) -> bool {
        self.waiters.values().all(|waiter| waiter.seen == self.generation)
    }

    /// The socket of a descriptor that has gone, and its connection, are to be seen no more.
    pub(crate) fn close_socket(&mut self, socket: Socket) {
        if let Some(ends) = self.ends_of(socket) {
            self.observations.forget(ends);
        }
        // It cannot fail: the descriptor had it.
        let _ = self.sockets.close(self.now, socket, &mut self.store);
        self.notices.forget(socket);
    }
}

/// When hosts begin, unless they are told: not at 0, since before that nothing can have been.
pub(crate) const START: Time = Time::from_ns(1000 * SECOND);
