//! TCP: connections of apps to any peer, over `clearway_tcp::Stack`.
//!
//! ```text
//!  app ── TcpSend: an extent ──▶ Stack ── just in time ──▶ segment in the queue's buffer
//!      ◀─ TcpReceived: a buffer ─ Stack ◀── one copy, to its place in the app's pool ── frame
//! ```
//!
//! | part | what is in it |
//! |---|---|
//! | this file | what comes |
//! | `ports` | which ports are whose: each has an entry of the switch's table |
//! | `books` | whose each connection is, and what its app has been told |
//! | `commands` | what apps ask for |
//! | `connecting` | attempts to connect whose neighbour is not known yet |
//! | `events` | what apps are told |
//! | `sharing` | ports of several engines: whose a segment is that comes to one |
//! | `runs` | segments that follow each other, as one |
//! | `heads` | the headers of what comes next |
//! | `memory` | where what is received goes |
//! | `departures`, `paths` | what leaves, and its headers |
//! | `elsewhere` | what leaves by another NIC, and comes from there |
//! | `joined` | what leaves for another connection of this engine |
//! | `state` | all of it as plain data, and back |
//! | `status` | connections, for people |
//!
//! A port comes from the control plane, which has taken it from the kernel and from all other apps.
//! Its connections are found by the stack, as flows are by the transport: the table says that a
//! packet is of TCP here.
//!
//! Between two apps of this engine no frame is built (`joined`). To apps of the host's other
//! engines segments go by a lane, as frames do that virtual interfaces send to this host.
//!
//! Connections over other NICs than the engine's own have its timers and its apps' memory as all
//! have; their segments go through an engine of the NIC (`elsewhere`).

mod books;
mod commands;
mod connecting;
mod departures;
mod elsewhere;
mod events;
mod heads;
mod joined;
mod memory;
mod paths;
mod ports;
mod runs;
mod sharing;
mod state;
mod status;

use std::net::SocketAddr;

use clearway_base::{SlotId, Time};
use clearway_channel::Command;
use clearway_nic::Together;
use clearway_tcp::{Arrival, Config, Extent, IcmpError, Stack};
use clearway_wire::tcp::Flags;
use clearway_wire::{Malformed, protocol, tcp};

use crate::channels::SlotQueue;
use crate::common::{Common, Via};
use crate::component::{Component, Outlet, Sending};
use crate::host::Host;
use crate::ip::{DropReason, Interface, NetworkError, NetworkErrorKind, Packet, SegmentHead};
use books::Books;
use connecting::Attempt;
use heads::Heads;
use memory::{Keeper, Payload};
use paths::{Paths, TcpPath};
use ports::Ports;
pub use ports::TcpPortSpec;
use runs::Run;
use sharing::NotedPorts;
pub(crate) use sharing::Search;
pub use state::{
    AttemptState, BookState, ClosingPortState, NotedPortState, TcpPortState, TcpState,
};

/// Connections of an engine, as many as its tags of buffers can name.
const CONNECTIONS_MAX: u32 = (1 << 17) - 1;

/// See the module.
#[derive(Debug)]
pub(crate) struct Tcp {
    stack: Stack,
    ports: Ports,
    noted: NotedPorts,
    books: Books,
    paths: Paths,
    /// Connections that wait until there is room in the lane to another NIC.
    held: SlotQueue,
    heads: Heads,
    attempts: Vec<Attempt>,
    /// Empty; kept for its memory.
    extents: Vec<Extent>,
}

impl Component for Tcp {
    type Owner = ();

    fn command(&mut self, common: &mut Common, now: Time, channel: u32, command: Command) {
        self.take_command(common, now, channel, command);
        self.tell(common, now);
    }

    fn receive(&mut self, common: &mut Common, now: Time, (): (), frames: &[&[u8]], via: Via) {
        let search = Search::begin(common.lanes.index(), via);
        self.receive_all(common, now, frames, via, search);
    }

    fn next_timeout(&self) -> Option<Time> {
        let stack = Some(self.stack.next_timeout()).filter(|due| *due != Time::MAX);
        let attempts = self.attempts.iter().map(|attempt| attempt.until);
        attempts.chain(stack).min()
    }

    /// Returns how many attempts to connect went on.
    fn handle_timeouts(&mut self, common: &mut Common, now: Time) -> usize {
        if self.stack.next_timeout() <= now {
            self.stack.handle_timeouts(now);
            self.tell(common, now);
        }
        if self.attempts.is_empty() { 0 } else { self.go_on_connecting(common, now) }
    }

    #[inline]
    fn has_output(&self) -> bool {
        self.stack.has_output() || self.waits_for_lane()
    }

    fn transmit(&mut self, common: &mut Common, now: Time, outlet: Outlet<'_>) -> Sending {
        self.send_segments(common, now, outlet)
    }
}

impl Tcp {
    pub(crate) fn new(now: Time, seed: u64, secret: [u8; 16]) -> Self {
        Self {
            stack: Stack::new(config(), now, seed, secret),
            ports: Ports::default(),
            noted: NotedPorts::default(),
            books: Books::default(),
            paths: Paths::default(),
            held: SlotQueue::default(),
            heads: Heads::default(),
            attempts: Vec::new(),
            extents: Vec::new(),
        }
    }

    /// The MTU of the engine's own NIC has changed.
    pub(crate) fn set_mtu(&mut self, mtu: u16) {
        self.stack.set_listeners_mtu(mtu);
    }

    /// Takes a segment that has come alone by the engine's own queue, with the headers of one of
    /// its connection's before. False if it has to be looked at as others are.
    #[inline]
    pub(crate) fn receive_known(
        &mut self,
        common: &mut Common,
        now: Time,
        frame: &[u8],
        via: Via,
    ) -> bool {
        let Some((here, peer)) = SegmentHead::ends(frame) else { return false };
        let Some(key) = self.stack.find(here.into(), peer.into()) else { return false };
        let version = common.switch.version();
        let Some(packet) = self.heads.packet(key, version, frame) else { return false };
        let Ok((arrival, payload)) = segment_in(&packet, via) else { return false };
        self.receive_one(common, now, Some(key), (&arrival, payload), frame, via);
        true
    }

    /// Takes segments of which other engines do not know, or not yet, whose they are.
    pub(crate) fn receive_sought(
        &mut self,
        common: &mut Common,
        now: Time,
        frames: &[&[u8]],
        search: Search,
    ) {
        if common.captures.any() {
            // Each is shown where it is found to be this engine's; of a run, only the first.
            return frames.iter().for_each(|frame| {
                self.receive_alone(common, now, frame, search.via(), search);
            });
        }
        self.receive_all(common, now, frames, search.via(), search);
    }

    fn receive_all(
        &mut self,
        common: &mut Common,
        now: Time,
        frames: &[&[u8]],
        via: Via,
        search: Search,
    ) {
        match frames {
            [frame] => self.receive_alone(common, now, frame, via, search),
            _ => self.receive_burst(common, now, frames, via, search),
        }
    }

    /// Takes a segment that has come alone: without the books of a run.
    fn receive_alone(
        &mut self,
        common: &mut Common,
        now: Time,
        frame: &[u8],
        via: Via,
        search: Search,
    ) {
        let (arrival, payload) = match segment(common, frame, via) {
            Ok(segment) => segment,
            Err(reason) => return common.refuse(now, frame, reason),
        };
        if !self.pass_on(common, now, search, &arrival, frame) {
            self.receive_one(common, now, None, (&arrival, payload), frame, via);
            self.learn_head(common, &arrival, frame, via);
        }
    }

    /// Takes the segment of a frame, of a connection if it is known which.
    #[inline]
    fn receive_one(
        &mut self,
        common: &mut Common,
        now: Time,
        connection: Option<SlotId>,
        (arrival, payload): (&Arrival, &[u8]),
        frame: &[u8],
        via: Via,
    ) {
        let answers = self.stack.answers_waiting();
        self.receive_segment(common, now, connection, arrival, Payload::Pieces(&[payload]));
        self.have_received(common, now, answers, frame, via);
    }

    fn receive_burst(
        &mut self,
        common: &mut Common,
        now: Time,
        frames: &[&[u8]],
        via: Via,
        search: Search,
    ) {
        let mut run = Run::default();
        for frame in frames {
            let (arrival, payload) = match segment(common, frame, via) {
                Ok(segment) => segment,
                Err(reason) => {
                    common.refuse(now, frame, reason);
                    continue;
                }
            };
            if run.takes(&arrival, payload) {
                continue;
            }
            self.receive_run(common, now, &run, via);
            match self.pass_on(common, now, search, &arrival, frame) {
                true => run = Run::default(),
                false => run.begin(frame, &arrival, payload),
            }
        }
        self.receive_run(common, now, &run, via);
    }

    /// Takes segments that came as one super-frame. False if that has to be by frames, since they
    /// may be another engine's, or nobody's.
    pub(crate) fn receive_together(
        &mut self,
        common: &mut Common,
        now: Time,
        segments: Together<'_>,
        via: Via,
    ) -> bool {
        let Ok((arrival, payload)) = segment(common, segments.first, via) else { return false };
        if !self.stack.knows(&arrival) {
            return false;
        }
        let mut run = Run::default();
        run.begin(segments.first, &arrival, payload);
        for payload in segments.others {
            if run.is_full() {
                self.receive_run(common, now, &run, via);
                run.go_on();
            }
            run.add(payload);
        }
        self.receive_run(common, now, &run, via);
        true
    }

    fn receive_run(&mut self, common: &mut Common, now: Time, run: &Run<'_>, via: Via) {
        let answers = self.stack.answers_waiting();
        match run.as_one() {
            Some((arrival, payload)) => {
                self.receive_segment(common, now, None, arrival, Payload::Pieces(payload));
            }
            None => self.receive_parts(common, now, run),
        }
        self.have_received(common, now, answers, run.frame(), via);
    }

    /// After a segment, or several as one, before which so many answers waited.
    #[inline]
    fn have_received(
        &mut self,
        common: &mut Common,
        now: Time,
        answers: usize,
        frame: &[u8],
        via: Via,
    ) {
        if self.stack.answers_waiting() > answers {
            self.prepare_answer(&common.host, frame, via);
        }
        self.tell_after(common, now, via);
    }

    /// Takes several segments, or none.
    fn receive_parts(&mut self, common: &mut Common, now: Time, run: &Run<'_>) {
        for (index, (part, payloads)) in run.parts().enumerate() {
            if index > 0 {
                self.tell(common, now); // then this is not out of order
            }
            let payload = Payload::Pieces(payloads);
            let is_taken = self.receive_segment(common, now, None, &part, payload);
            if !is_taken && payloads.len() > 1 {
                for (segment, payload) in runs::one_by_one(part, payloads) {
                    self.receive_segment(common, now, None, &segment, Payload::Pieces(payload));
                    self.tell(common, now);
                }
            }
        }
    }

    /// What a frame brought is answered, though it is of no connection.
    #[cold]
    fn prepare_answer(&mut self, host: &Host, frame: &[u8], via: Via) {
        if let Ok(packet) = packet(host.own(), frame, via) {
            let nic = host.nic_with(packet.destination);
            let is_here = !via.is_from_queue() && host.is_own(packet.source);
            self.paths.prepare(TcpPath { path: host.view(nic).path_back(&packet), nic, is_here });
        }
    }

    /// Takes a segment, of a connection if it is known which. False if there was no memory for what
    /// it carries.
    #[inline]
    fn receive_segment(
        &mut self,
        common: &mut Common,
        now: Time,
        connection: Option<SlotId>,
        arrival: &Arrival,
        payload: Payload<'_>,
    ) -> bool {
        let mut keeper = Keeper::new(&mut common.channels, &mut self.books, &self.ports, payload);
        match connection {
            Some(key) => self.stack.handle_segment_of(now, key, arrival, &mut keeper),
            None => self.stack.handle_segment(now, arrival, &mut keeper),
        }
        let refused = keeper.refused;
        if let Some(refused) = refused {
            self.share_what_is_ahead(&mut common.channels, refused);
        }
        refused.is_none()
    }

    /// Bad news about a packet. False if it is not of TCP.
    pub(crate) fn handle_network_error(
        &mut self,
        common: &mut Common,
        now: Time,
        error: &NetworkError<'_>,
    ) -> bool {
        // RFC 792: ports and sequence number are the first eight bytes.
        let Some(&[a, b, c, d, s0, s1, s2, s3]) = error.quote.first_chunk::<8>() else {
            return false;
        };
        if error.protocol != protocol::TCP {
            return false;
        }
        let kind = match error.kind {
            NetworkErrorKind::TooLarge { mtu } => IcmpError::TooBig(mtu),
            NetworkErrorKind::PortUnreachable => IcmpError::Refused,
            NetworkErrorKind::Prohibited => IcmpError::Prohibited,
            // RFC 9293, section 3.9.2.2: all of these are soft errors.
            NetworkErrorKind::Unreachable
            | NetworkErrorKind::TimeExceeded
            | NetworkErrorKind::UnknownProtocol => IcmpError::Unreachable,
        };
        let local = SocketAddr::new(error.source, u16::from_be_bytes([a, b]));
        let remote = SocketAddr::new(error.destination, u16::from_be_bytes([c, d]));
        let sequence = u32::from_be_bytes([s0, s1, s2, s3]);
        self.stack.handle_icmp(now, kind, local, remote, sequence);
        self.tell(common, now);
        true
    }
}

fn config() -> Config {
    Config { connections_max: CONNECTIONS_MAX, ..Config::default() }
}

/// The packet in a frame.
#[inline]
fn packet<'a>(interface: &Interface, frame: &'a [u8], via: Via) -> Result<Packet<'a>, DropReason> {
    match via.is_from_queue() {
        true => interface.packet(frame),
        false => interface.packet_from_anywhere(frame),
    }
}

/// The segment in a frame, and its payload.
#[inline(always)] // What it returns is large, and would be copied.
fn segment<'a>(
    common: &Common,
    frame: &'a [u8],
    via: Via,
) -> Result<(Arrival, &'a [u8]), DropReason> {
    let packet = packet(common.host.own(), frame, via)?;
    let (mut arrival, payload) = segment_in(&packet, via)?;
    if arrival.repr.flags.contains(Flags::SYN) {
        elsewhere::fit(&common.host, arrival.to.ip(), &mut arrival.repr);
    }
    Ok((arrival, payload))
}

#[inline(always)] // The same.
fn segment_in<'a>(packet: &Packet<'a>, via: Via) -> Result<(Arrival, &'a [u8]), Malformed> {
    let view = tcp::View::new(packet.payload)?;
    let check = match via.is_verified() {
        true => tcp::Check::Skip,
        false => tcp::Check::Addresses(packet.source, packet.destination),
    };
    let repr = tcp::Repr::parse(&view, check)?;
    let arrival = Arrival {
        from: SocketAddr::new(packet.source, repr.source_port),
        to: SocketAddr::new(packet.destination, repr.destination_port),
        repr,
        payload_length: view.payload().len() as u32, // of a packet
        ecn: packet.ecn,
    };
    Ok((arrival, view.payload()))
}
