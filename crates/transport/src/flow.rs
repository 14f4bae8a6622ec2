//! One flow: the state of a connection between this engine and a peer's, from the first syn to
//! the last acknowledgement.
//!
//! Call order: [`Flow::handle_data`], [`Flow::handle_timeout`], [`Flow::send`] and the like change
//! the state; then [`Flow::poll_transmit`] until it writes nothing; then [`Flow::next_timeout`].
//!
//! Here are the state itself and what the app asks of it; `opening` is the handshake, `receive`
//! and `transmit` are data packets, `timers` is what happens by itself; `ports`, `spray` and
//! `arrivals` find a way to the peer's engine that does not lead over another one.

use std::net::SocketAddr;

use clearway_base::Time;
use clearway_congestion::{Control, Pacer};

use crate::acks::Acks;
use crate::app::{App, Deadline, Owner, Reason};
use crate::config::Config;
use crate::ecn::Marking;
use crate::endpoint::Arrival;
use crate::mtu::PathMtu;
use crate::recovery::Recovery;
use crate::rtt::RttEstimator;
use crate::stream::Stream;

mod arrivals;
#[cfg(test)]
mod audit;
mod books;
mod opening;
mod operations;
mod ports;
mod receive;
mod spray;
mod state;
mod streams;
mod timers;
mod transmit;

use arrivals::Arrivals;
pub use books::FlowBooks;
use opening::Connecting;
pub(crate) use opening::{Opened, Request};
use ports::Ports;
pub(crate) use receive::{Dropped, Reception};
pub(crate) use spray::Known;
pub use spray::SOURCE_PORT_MIN;
pub(crate) use streams::Listeners;
use streams::Streams;
pub use streams::{NoStream, Priority, StreamInfo};
#[cfg(test)]
pub(crate) use streams::{PROBED, STREAMS_MAX};
pub(crate) use transmit::Wants;

/// Where a flow is in its life.
#[derive(Debug)]
enum State {
    /// A syn has been, or is to be, sent.
    Connecting(Box<Connecting>),
    /// Messages go both ways.
    Open,
    /// This side's app has closed; what it sent before is still on its way.
    Closing,
    /// The peer has closed and its app's messages are delivered. Only acknowledgements are sent,
    /// until the peer has surely stopped asking.
    Drained { until: Time },
}

/// What the endpoint does with the flow after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Goes on.
    Continue,
    /// The same, and has only received acknowledgements, messages or operations, by which it got
    /// nothing to send.
    Received,
    /// Remove it; its app, if it still has one, is told why.
    Ended(Reason),
    /// Remove it; its app knows.
    Gone,
}

/// A flow's figures for `status`.
#[derive(Clone, Copy, Debug)]
pub struct FlowInfo {
    /// The connection that it carries.
    pub owner: Owner,
    /// An app has that connection still. If not, its channel may be another app's by now.
    pub has_app: bool,
    /// The peer's daemon.
    pub remote: SocketAddr,
    /// The own address and the daemon's port.
    pub local: SocketAddr,
    /// `connecting`, `open`, `closing` or `drained`.
    pub state: &'static str,
    /// Smoothed round-trip time in ns.
    pub rtt_ns: u64,
    /// Congestion window in bytes.
    pub congestion_window_bytes: u64,
    /// Largest UDP payload that is sent on its path now, in bytes.
    pub packet_bytes: u16,
    /// Whether its packets may be marked by routers: `testing`, `capable`, or why not.
    pub ecn: &'static str,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Messages sent and acknowledged.
    pub messages_sent: u64,
    /// Messages delivered.
    pub messages_received: u64,
    /// The peer has given no room for what is to be sent next.
    pub held_by_peer: bool,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Packets come, here or at the peer, to the queue of another engine first, which passes them
    /// on: no way around it has been found (yet).
    pub detour: bool,
    /// Packets that this side has sent to open the flow; the challenge, which is nobody's yet, is
    /// not among them.
    pub setup_packets: u32,
    /// How often this side had to send more than its first batch of them.
    pub setup_retries: u32,
}

/// One flow. See the module's documentation for the order of calls.
///
/// With many flows, the time that a packet takes is that of fetching its flow from memory: what
/// each packet touches stands together, and what hardly any does behind it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Flow {
    /// The id that packets to us carry.
    local_id: u64,
    state: State,
    /// The app has closed; operations that it has asked for before are still to be sent, or streams
    /// that an app has have not ended.
    close_waits: bool,
    /// Both ends know one-sided operations.
    takes_operations: bool,
    /// It is nobody's: its connections are streams, see `streams/shared.rs`.
    is_shared: bool,
    /// Send an ack-eliciting packet whatever the congestion window says.
    probe_due: bool,
    /// Other streams have something to send.
    streams_due: bool,
    /// Silence, despite questions, after which this flow is given up.
    silence_ns: u64,
    /// Silence after which the peer is asked whether it is there; 0 if it is not asked.
    keep_alive_ns: u64,
    last_received: Time,
    /// When the peer was last heard to have received something new; `Time::ZERO`: not yet.
    last_acknowledged: Time,
    keep_alive_at: Time,
    /// How long this host last left its packets alone, which a burst may make up for.
    gap_ns: u64,
    acks: Acks,
    main: Stream,
    recovery: Recovery,
    rtt: RttEstimator,
    marking: Marking,
    mtu: PathMtu,
    /// What `congestion` allows to be in flight: asked for more often than it changes.
    window_bytes: u64,
    /// Packets with numbers below this were sent when window or pacer, not the app, set the pace.
    limited_until: u64,
    /// Pacing holds data back until then; `Time::ZERO` if it does not.
    paced_until: Time,
    pacer: Pacer,
    /// Bytes sent since an acknowledgement was last asked for.
    unasked_bytes: u64,
    /// When the first packet that asks for an answer left, with none in flight.
    asked: Time,
    /// The id that packets to the peer carry; 0 while connecting.
    peer_id: u64,
    local: SocketAddr,
    remote: SocketAddr,
    arrivals: Arrivals,
    ports: Ports,
    congestion: Control,
    /// Those besides `main`, if both ends know streams.
    streams: Option<Box<Streams>>,
    /// When messages that the peer has no memory for are sent again, whatever it says;
    /// `Time::MAX` if there are none.
    waits_until: Time,
    /// When a flow is given up that is nobody's and has no connections; `Time::MAX` for others.
    unused_until: Time,
    /// The largest number of a packet that was refused for want of memory.
    refused: u64,
    packets_lost: u64,
    /// The syn that opened the flow, if it is the peer's.
    request: Option<Request>,
    /// The service port at the peer, of a flow that was begun here; and of a shared one the port
    /// here, if the peer has begun it.
    service_port: u16,
    setup_packets: u32,
    setup_retries: u32,
}

/// What both ends of a new flow know from the handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters {
    pub(crate) owner: Owner,
    pub(crate) local_id: u64,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Positions that the peer may use beyond what our app has released.
    pub(crate) window: u64,
    /// Random: which UDP ports are tried.
    pub(crate) seed: u64,
}

impl Flow {
    fn new(now: Time, config: &Config, p: Parameters, state: State) -> Self {
        Self {
            local_id: p.local_id,
            peer_id: 0,
            local: p.local,
            remote: p.remote,
            service_port: 0,
            state,
            mtu: PathMtu::new(config.packet_bytes_announced(), config.packet_bytes_max),
            marking: Marking::new(),
            main: Stream::new(p.owner, p.window),
            acks: Acks::new(),
            recovery: Recovery::new(),
            rtt: RttEstimator::new(),
            congestion: config.congestion.control(config.packet_bytes_max, config.delay_target_ns),
            window_bytes: 0,
            pacer: Pacer::new(now, config.packet_bytes_max),
            paced_until: Time::ZERO,
            limited_until: 0,
            unasked_bytes: 0,
            gap_ns: 0,
            close_waits: false,
            takes_operations: false,
            is_shared: false,
            probe_due: false,
            streams_due: false,
            streams: None,
            silence_ns: config.idle_timeout_ns,
            keep_alive_ns: timers::keep_alive_ns(config, config.idle_timeout_ns),
            last_received: now,
            last_acknowledged: Time::ZERO,
            asked: now,
            keep_alive_at: Time::MAX,
            waits_until: Time::MAX,
            unused_until: Time::MAX,
            refused: 0,
            packets_lost: 0,
            ports: Ports::new(p.seed),
            arrivals: Arrivals::new(now),
            request: None,
            setup_packets: 0,
            setup_retries: 0,
        }
    }

    /// Something came from the peer.
    #[inline]
    fn touch(&mut self, now: Time) {
        self.last_received = now;
        if self.keep_alive_ns > 0 {
            self.keep_alive_at = now + self.keep_alive_ns;
        }
    }

    pub(crate) const fn owner(&self) -> Owner {
        self.main.owner
    }

    /// Those whose connections end with the flow, if they have not ended.
    pub(crate) fn owners(&self) -> impl Iterator<Item = Owner> + '_ {
        let main = self.has_app().then_some(self.main.owner);
        main.into_iter().chain(self.streams.iter().flat_map(|all| all.owners()))
    }

    pub(crate) const fn local_id(&self) -> u64 {
        self.local_id
    }

    pub(crate) const fn peer_id(&self) -> u64 {
        self.peer_id
    }

    pub(crate) const fn local(&self) -> SocketAddr {
        self.local
    }

    pub(crate) const fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// The UDP port that the next packet is sent from.
    pub(crate) fn source_port(&self) -> u16 {
        self.ports.next()
    }

    /// A packet of the peer's, that is about to be handled, has come in this way.
    pub(crate) const fn note_arrival(&mut self, arrival: Arrival, port: u16) {
        self.arrivals.begin(arrival, port);
    }

    /// True if its packets may be marked. Those that open it may not: they have nobody who would
    /// slow down.
    pub(crate) const fn is_ecn_capable(&self) -> bool {
        self.marking.is_on() && !self.is_connecting()
    }

    /// True if an app still holds the connection that has opened the flow.
    pub(crate) const fn has_app(&self) -> bool {
        !self.is_over() && !self.is_shared
    }

    /// Both ends have closed.
    const fn is_over(&self) -> bool {
        matches!(self.state, State::Drained { .. })
    }

    /// True if it is nobody's, and its connections are streams.
    pub(crate) const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// True if the peer has opened it.
    pub(crate) const fn was_accepted(&self) -> bool {
        self.request.is_some()
    }

    pub(crate) const fn is_connecting(&self) -> bool {
        matches!(self.state, State::Connecting(_))
    }

    pub(crate) fn info(&self) -> FlowInfo {
        FlowInfo {
            owner: self.main.owner,
            has_app: self.has_app(),
            remote: self.remote,
            local: self.local,
            state: match self.state {
                State::Connecting(_) => "connecting",
                State::Open => "open",
                State::Closing => "closing",
                State::Drained { .. } => "drained",
            },
            rtt_ns: self.rtt.smoothed_ns(),
            congestion_window_bytes: self.window_bytes,
            packet_bytes: self.mtu.bytes(),
            ecn: self.marking.name(),
            in_flight_bytes: self.recovery.in_flight_bytes(),
            messages_sent: self.main.messages_sent,
            messages_received: self.main.incoming.messages_delivered(),
            held_by_peer: !self.is_connecting() && self.main.outgoing.is_limited(),
            packets_lost: self.packets_lost,
            detour: !self.is_connecting() && (!self.ports.is_direct() || self.arrivals.is_detour()),
            setup_packets: self.setup_packets,
            setup_retries: self.setup_retries,
        }
    }

    // ---- from the app ----

    /// Appends a message whose bytes stand at `offset` of the app's transmit pool.
    #[inline]
    pub(crate) fn send(&mut self, stream: u32, offset: u32, length: u32) {
        if stream != 0 {
            return self.send_on(stream, offset, length, None);
        }
        debug_assert!(matches!(self.state, State::Open | State::Connecting(_)));
        self.main.outgoing.push(offset, length);
    }

    /// True if a connection has one message under way.
    #[cold]
    pub(crate) fn is_alone(&self, stream: u32) -> bool {
        let outgoing = match stream {
            0 => Some(&self.main.outgoing),
            id => self.streams.as_ref().and_then(|all| all.outgoing(id)),
        };
        outgoing.is_some_and(|outgoing| outgoing.messages_open() == 1)
    }

    /// The same for a message that is dropped if it cannot leave in time, and the peer knows what
    /// that is.
    pub(crate) fn send_until(&mut self, stream: u32, offset: u32, length: u32, deadline: Deadline) {
        if stream != 0 {
            self.send_on(stream, offset, length, Some(deadline));
        } else if self.streams.is_some() {
            self.main.outgoing.push_until(offset, length, deadline);
        } else {
            self.main.outgoing.push(offset, length);
        }
    }

    pub(crate) const fn probe_timeouts(&self) -> u32 {
        self.recovery.probes()
    }

    #[cfg(test)]
    pub(crate) const fn last_heard(&self) -> Time {
        self.last_received
    }

    pub(crate) const fn last_acknowledged(&self) -> Time {
        self.last_acknowledged
    }

    /// The app has released so many received messages, of so many bytes in all. True if the peer is
    /// to be told.
    pub(crate) fn release(&mut self, stream: u32, messages: u32, bytes: u64) -> bool {
        if stream != 0 {
            return self.with_streams(|all| all.release(stream, messages, bytes)) == Some(true);
        }
        self.main.release(messages, bytes)
    }

    /// The app has memory again, from whatever connection.
    pub(crate) fn memory_freed(&mut self, stream: u32) {
        if stream == 0 {
            self.main.memory_freed();
        } else {
            self.with_streams(|all| all.memory_freed(stream));
        }
    }

    /// Messages of a connection are delivered as they become whole.
    pub(crate) fn set_unordered(&mut self, stream: u32, app: &mut impl App) {
        if stream != 0 {
            self.with_streams(|all| all.set_unordered(stream, app));
        } else if matches!(self.state, State::Open) {
            self.main.incoming.set_unordered(app, self.main.owner);
        }
    }

    /// The app has closed the connection: deliver what it sent, then end. The flow's own takes all
    /// others along.
    pub(crate) fn close(&mut self, stream: u32, app: &mut impl App) -> Outcome {
        if stream != 0 {
            return self.close_stream(stream, app);
        }
        match self.state {
            State::Connecting(_) => Outcome::Ended(Reason::Closed),
            State::Open => {
                self.main.incoming.discard(app, self.main.owner);
                self.state = State::Closing;
                self.with_streams(|all| all.close_all(app));
                self.close_waits = self.takes_operations;
                self.main.close_due = !self.takes_operations;
                self.push_operations(app);
                if self.close_waits {
                    // Its peer goes on only if it can get rid of its answers.
                    self.main.incoming.lift_limit();
                    self.main.limit_due = true;
                }
                self.main.let_peer_end();
                Outcome::Continue
            }
            State::Closing | State::Drained { .. } => Outcome::Continue,
        }
    }

    /// Gives back the app's memory; the flow is about to be removed.
    pub(crate) fn discard(&mut self, app: &mut impl App) {
        if self.has_app() {
            self.main.incoming.discard(app, self.main.owner);
        }
        self.with_streams(|all| all.discard(app));
    }
}
