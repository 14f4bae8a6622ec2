//! What TCP_INFO tells of a connection that the stack does not keep, since nobody in service asks:
//! when data has come last, how long there was something to send and what held it up, and what was
//! counted by the segment.

use std::collections::HashMap;
use std::net::SocketAddr;

use clearway_base::Time;
use clearway_tcp::{Arrival, Info, Socket, State as TcpState, Transmit};
use clearway_wire::tcp::Flags;

use crate::state::State;

/// This end and the peer.
pub(crate) type Ends = (SocketAddr, SocketAddr);

/// Beyond that all are forgotten: a tester who opens so many has read what was told of others.
const CONNECTIONS_MAX: usize = 1 << 16;

/// What keeps a connection from sending, as Linux tells them apart (`tcp_chrono`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Held {
    /// There is nothing to send, and all is acknowledged.
    #[default]
    Idle,
    /// Nothing but congestion control.
    Busy,
    ByPeer,
    ByBuffer,
}

/// What is observed of a connection. Times are what they have come to, in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Observed {
    /// When the newest data, or the handshake, and the newest acknowledgement have come.
    pub(crate) data_came: Time,
    pub(crate) ack_came: Time,
    pub(crate) data_left: Time,
    pub(crate) busy_ns: u64,
    pub(crate) held_by_peer_ns: u64,
    pub(crate) held_by_buffer_ns: u64,
    pub(crate) data_segments_came: u32,
    pub(crate) data_segments_left: u32,
    pub(crate) bytes_left: u64,
    pub(crate) bytes_resent: u64,
    /// Segments, and a FIN, that have left for the first time.
    segments_left: u32,
    has_finished: bool,
    /// Behind the last byte that has left, and that has in a segment of its own.
    end: u64,
    segments_end: u64,
    held: Held,
    since: Time,
    /// A writer has found no room.
    has_waited: bool,
    socket: Option<Socket>,
}

impl Observed {
    /// Segments that have arrived, the SYN among them: `tcpi_delivered`.
    pub(crate) fn delivered_segments(&self, info: &Info) -> u64 {
        let is_opening = matches!(info.state, TcpState::SynSent | TcpState::SynReceived);
        let left = u64::from(self.segments_left) + u64::from(!is_opening);
        left.saturating_sub(info.undelivered_segments as u64)
    }

    /// It is `now`, and from now on that holds it up.
    fn pass(&mut self, now: Time, held: Held) {
        let ns = now.since(self.since);
        self.busy_ns += if self.held == Held::Idle { 0 } else { ns };
        self.held_by_peer_ns += if self.held == Held::ByPeer { ns } else { 0 };
        self.held_by_buffer_ns += if self.held == Held::ByBuffer { ns } else { 0 };
        (self.since, self.held) = (now, held);
    }
}

/// Those of all connections.
#[derive(Debug, Default)]
pub(crate) struct Observations {
    all: HashMap<Ends, Observed>,
    /// Those of which something has changed.
    changed: Vec<Ends>,
}

impl Observations {
    fn of(&mut self, ends: Ends, now: Time) -> &mut Observed {
        if self.all.len() >= CONNECTIONS_MAX && !self.all.contains_key(&ends) {
            self.all.clear();
        }
        self.changed.push(ends);
        self.all.entry(ends).or_insert_with(|| Observed {
            data_came: now,
            ack_came: now,
            data_left: now,
            since: now,
            ..Observed::default()
        })
    }

    /// A segment has come.
    pub(crate) fn on_arrival(&mut self, now: Time, arrival: &Arrival) {
        let observed = self.of((arrival.to, arrival.from), now);
        let has_data = arrival.payload_length > 0;
        if has_data || arrival.repr.flags.contains(Flags::SYN) {
            observed.data_came = now;
        }
        observed.data_segments_came += u32::from(has_data);
        observed.ack_came = now;
    }

    /// A segment leaves.
    pub(crate) fn on_departure(&mut self, now: Time, transmit: &Transmit) {
        if transmit.connection.is_none() {
            return;
        }
        let observed = self.of((transmit.from, transmit.to), now);
        let flags = transmit.repr.flags;
        let bytes = transmit.payload.end - transmit.payload.start;
        let is_first_fin = flags.contains(Flags::FIN) && !observed.has_finished;
        observed.has_finished |= is_first_fin;
        // What goes with a SYN is a part of it, unless only the SYN is taken: then it comes again.
        let is_new = transmit.payload.end > observed.segments_end && !flags.contains(Flags::SYN);
        observed.segments_left += u32::from(is_first_fin || is_new && bytes > 0);
        if bytes == 0 {
            return;
        }
        observed.data_left = now;
        observed.data_segments_left += 1;
        observed.bytes_left += bytes;
        if transmit.payload.end <= observed.end {
            observed.bytes_resent += bytes;
        }
        observed.end = observed.end.max(transmit.payload.end);
        if is_new {
            observed.segments_end = transmit.payload.end;
        }
    }

    pub(crate) fn forget(&mut self, ends: Ends) {
        self.all.remove(&ends);
    }
}

impl State {
    /// A program has written to a socket, and would write more if there were room.
    pub(crate) fn on_written(&mut self, socket: Socket, is_all: bool) {
        if let Some(ends) = self.ends_of(socket) {
            let observed = self.observations.of(ends, self.now);
            observed.socket = Some(socket);
            observed.has_waited = !is_all;
        }
    }

    pub(crate) fn ends_of(&self, socket: Socket) -> Option<Ends> {
        let info = self.sockets.info(socket)?;
        Some((info.local, info.remote))
    }

    /// Looks at what has changed.
    pub(crate) fn observe(&mut self) {
        for ends in std::mem::take(&mut self.observations.changed) {
            let Some(observed) = self.observations.all.get_mut(&ends) else { continue };
            let info = observed.socket.and_then(|socket| self.sockets.info(socket));
            let ready = observed.socket.and_then(|socket| self.sockets.ready(socket).ok());
            observed.has_waited &= ready.is_some_and(|ready| !ready.is_writable);
            let held = info.map_or(Held::Idle, |info| held(&info, observed.has_waited));
            observed.pass(self.now, held);
        }
    }

    /// What has been observed of a connection up to now.
    pub(crate) fn observed(&self, info: &Info) -> Option<Observed> {
        let mut observed = *self.observations.all.get(&(info.local, info.remote))?;
        observed.pass(self.now, observed.held);
        Some(observed)
    }
}

fn held(info: &Info, has_waited: bool) -> Held {
    let outstanding = info.queued_bytes - info.unsent_bytes;
    let next = info.unsent_bytes.min(info.segment_bytes.into());
    match info.queued_bytes {
        0 => Held::Idle,
        _ if info.unsent_bytes == 0 && has_waited => Held::ByBuffer,
        _ if next > 0 && outstanding + next > info.send_window_bytes => Held::ByPeer,
        _ => Held::Busy,
    }
}
