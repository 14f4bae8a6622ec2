//! One connection, from its first SYN until nothing is left to be sent.
//!
//! Call order: `handle_segment`, `handle_timeouts`, `handle_icmp` and what the app asks (`send`,
//! `shutdown`, ...) change the state; then `poll_transmit` until it gives nothing; then
//! `next_timeout`. What has changed for the app is in `take_readiness`.
//!
//! Here are the state itself and what the app asks; `open` is the handshake, `early` what is sent
//! and taken before that is over (Fast Open), `receive` judges segments, `acknowledged` is what
//! acknowledgements do, `transmit` makes segments, `timeouts` is what happens by itself, `icmp`
//! what routers say, `path` what the path takes, `validated` what becomes of an unused window.

use core::net::SocketAddr;
use core::ops::Range;

use clearway_base::{MICROSECOND, MILLISECOND, SECOND, Time};
use clearway_congestion::{Congestion, CongestionControl, Control, Cubic, Pacer};
use clearway_wire::{Ecn, tcp};

use crate::ack::AckPolicy;
use crate::config::{IpFields, Settings};
use crate::ecn::EcnState;
use crate::event::{End, Readiness};
use crate::extent::Extent;
use crate::mtu::SegmentSize;
use crate::rack::Rack;
use crate::rcv::Receive;
use crate::recovery::Recovery;
use crate::rto::Rto;
use crate::scoreboard::Scoreboard;
use crate::search::Search;
use crate::snd::Send;
use crate::state::State;
use crate::timers::{Timer, Timers};
use crate::timestamps::Timestamps;
use crate::tlp::TailProbe;
use crate::validation::Validation;

mod acknowledged;
mod early;
mod icmp;
mod info;
mod open;
mod path;
mod receive;
mod saved;
mod timeouts;
mod transmit;
mod validated;

pub(crate) use early::Attempt;
pub use icmp::IcmpError;
pub use info::{Info, Status};
pub(crate) use open::{Accepted, Connecting};
pub(crate) use receive::Reply;
pub use transmit::Transmit;

/// A segment that has come, as the IP layer and the wire format say.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Who sent it.
    pub from: SocketAddr,
    /// To which address and port of this host.
    pub to: SocketAddr,
    /// The header.
    pub repr: tcp::Repr,
    /// Bytes behind the header.
    pub payload_length: u32,
    /// What the IP header says of congestion.
    pub ecn: Ecn,
}

impl Arrival {
    /// RFC 9293's SEG.LEN: "the number of octets occupied by the data in the segment (counting SYN
    /// and FIN)".
    pub(crate) fn length(&self) -> u64 {
        let flags = self.repr.flags;
        let is = |flag| u64::from(flags.contains(flag));
        u64::from(self.payload_length) + is(tcp::Flags::SYN) + is(tcp::Flags::FIN)
    }
}

/// What is sent whatever the window says, and once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    /// RFC 8985, section 7: the end of what is outstanding, or something new.
    Tail,
    /// One byte into a window that is closed.
    Window,
    /// A segment without anything from before the window, so that the peer answers.
    KeepAlive,
    /// RFC 8899: a segment that is longer than the others.
    Path,
}

/// All of a connection. Plain data: nothing in it points to anything.
#[derive(Debug)]
pub(crate) struct Connection {
    state: State,
    local: SocketAddr,
    remote: SocketAddr,
    settings: Settings,
    snd: Send,
    rcv: Receive,
    board: Scoreboard,
    rack: Rack,
    rto: Rto,
    recovery: Recovery,
    tail: TailProbe,
    control: Control,
    /// As it was before a timeout, which may have been for nothing.
    control_before: Option<Box<Control>>,
    pacer: Pacer,
    /// If both ends have agreed on them.
    timestamps: Option<Timestamps>,
    timestamp_offset: u32,
    sack: bool,
    /// Windows are shifted.
    scales: bool,
    ecn: EcnState,
    size: SegmentSize,
    search: Search,
    ack: AckPolicy,
    timers: Timers,
    probe: Option<Probe>,
    /// A SYN, or a SYN-ACK, is to be sent; when it was, and how often again.
    syn_due: bool,
    syn_sent: Option<Time>,
    /// What Fast Open has to do with the handshake, until that is over.
    attempt: Option<Box<Attempt>>,
    /// Data goes both ways, though this end's SYN is not acknowledged.
    is_early: bool,
    /// Data has come with the first SYN, or has gone with it and was taken.
    syn_had_data: bool,
    /// A reset is to be sent.
    reset_due: bool,
    /// The app has let go of the connection: nobody reads what still comes.
    is_closed: bool,
    readiness: Readiness,
    end: Option<End>,
    /// Why the connection may be given up, when it is: the newest soft error.
    soft_error: Option<End>,
    retries: u8,
    retries_max: u8,
    keep_alive_probes: u8,
    last_heard: Time,
    /// Since when nothing has been acknowledged that should have been.
    stalled_since: Option<Time>,
    /// RCV.NXT of the last segment that left: Last.ACK.sent of RFC 7323.
    acknowledged: u64,
    /// Up to here the window was filled: congestion control may let it grow.
    window_filled: u64,
    /// The most that was outstanding at once in the round trip that ends when this is
    /// acknowledged.
    flight: Flight,
    validation: Validation,
    /// When data was last sent.
    data_sent: Time,
    challenges: Challenges,
    counters: Counters,
}

/// How much of its window a connection uses, by the round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    bytes_max: u64,
    end: u64,
}

/// What is counted for each connection.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    retransmitted: u64,
    segments_sent: u64,
    segments_received: u64,
}

/// RFC 5961, section 7: "in any 5 second window, no more than 10 challenge ACKs should be sent", by
/// connection: a limit that connections share tells an attacker of others (CVE-2016-5696).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Challenges {
    since: Time,
    count: u8,
}

const CHALLENGES: u8 = 10;
const CHALLENGES_NS: u64 = 5 * SECOND;

impl Challenges {
    pub(crate) fn allow(&mut self, now: Time) -> bool {
        if self.count == 0 || now.since(self.since) >= CHALLENGES_NS {
            *self = Self { since: now, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count <= CHALLENGES
    }
}

/// Why something that an app asks cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It has closed its half, or there is no connection any more.
    Closed,
    /// So many extents wait already.
    Full,
}

impl Connection {
    fn new(
        local: SocketAddr,
        remote: SocketAddr,
        settings: Settings,
        snd: Send,
        rcv: Receive,
        mtu: u16,
    ) -> Self {
        let size = SegmentSize::new(remote.ip(), mtu);
        Self {
            state: State::SynSent,
            local,
            remote,
            settings,
            snd,
            rcv,
            board: Scoreboard::default(),
            rack: Rack::default(),
            rto: Rto::new(&settings),
            recovery: Recovery::default(),
            tail: TailProbe::default(),
            control: control(&settings, size.bytes() as u16),
            control_before: None,
            pacer: Pacer::new(Time::ZERO, size.bytes() as u16),
            timestamps: None,
            timestamp_offset: 0,
            sack: false,
            scales: false,
            ecn: EcnState::default(),
            size,
            search: Search::default(),
            ack: AckPolicy::new(settings.quick_acks, size.offer(settings.segment_bytes_max).into()),
            timers: Timers::new(),
            probe: None,
            syn_due: false,
            syn_sent: None,
            attempt: None,
            is_early: false,
            syn_had_data: false,
            reset_due: false,
            is_closed: false,
            readiness: Readiness::NONE,
            end: None,
            soft_error: None,
            retries: 0,
            retries_max: settings.retries,
            keep_alive_probes: 0,
            last_heard: Time::ZERO,
            stalled_since: None,
            acknowledged: 0,
            window_filled: 0,
            flight: Flight::default(),
            validation: Validation::default(),
            data_sent: Time::ZERO,
            challenges: Challenges::default(),
            counters: Counters::default(),
        }
    }

    #[inline]
    pub(crate) const fn state(&self) -> State {
        self.state
    }

    #[inline]
    pub(crate) const fn local(&self) -> SocketAddr {
        self.local
    }

    #[inline]
    pub(crate) const fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Appends what the app has filled.
    pub(crate) fn send(&mut self, extent: Extent) -> Result<(), Refused> {
        if self.snd.is_finished() || self.state == State::Closed || self.reset_due {
            return Err(Refused::Closed);
        }
        if self.snd.extents_len() >= self.settings.send_extents_max as usize {
            return Err(Refused::Full);
        }
        if extent.length > 0 {
            self.snd.push(extent);
        }
        Ok(())
    }

    /// The app will send no more.
    pub(crate) fn shutdown(&mut self) {
        if self.snd.is_finished() {
            return;
        }
        self.snd.finish();
        self.state = match self.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            state => state, // once it is open
        };
    }

    /// The app lets go of the connection, whose peer may still have to acknowledge what was sent.
    /// Again: it waits no longer for the peer's FIN than the settings say by now.
    pub(crate) fn close(&mut self, now: Time) {
        if self.state == State::FinWait2 {
            let until = now + self.settings.fin_wait_ns;
            self.timers.set(Timer::Close, until.min(self.timers.get(Timer::Close)));
        }
        if core::mem::replace(&mut self.is_closed, true) || self.state == State::Closed {
            return;
        }
        match self.state {
            State::SynSent => self.finish(End::Aborted),
            // RFC 9293, section 3.6.1 (MAY-1, SHLD-3): "If such a host issues a CLOSE call while
            // received data is still pending in the TCP connection [...] its TCP implementation
            // SHOULD send a RST to show that data was lost".
            _ if self.rcv.unread_bytes() > 0 && !self.settings.variants.fin_despite_unread => {
                self.abort();
            }
            _ => self.shutdown(),
        }
    }

    /// The app gives up the connection: the peer gets a reset.
    pub(crate) fn abort(&mut self) {
        self.is_closed = true;
        self.reset_due = !matches!(self.state, State::SynSent | State::Closed | State::TimeWait);
        self.finish(End::Aborted);
    }

    /// There is no connection any more.
    fn finish(&mut self, end: End) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        self.end.get_or_insert(end);
        self.timers.stop_all();
        self.readiness |= Readiness::CLOSED | Readiness::READABLE | Readiness::WRITABLE;
    }

    /// Both halves are closed: what the ports are guarded with is somebody else's.
    fn enter_time_wait(&mut self) {
        self.state = State::TimeWait;
        if self.settings.variants.plain_time_wait {
            self.ecn = EcnState::default();
        }
        self.end.get_or_insert(End::Orderly);
        self.timers.stop_all();
        self.readiness |= Readiness::CLOSED;
    }

    /// The next bytes that have come in order.
    pub(crate) fn recv(&mut self) -> Option<Extent> {
        self.rcv.take()
    }

    /// The same, but of a piece that is longer than `most` bytes only so many.
    pub(crate) fn recv_at_most(&mut self, most: u32) -> Option<Extent> {
        self.rcv.take_at_most(most)
    }

    /// What has come in order and is not taken.
    pub(crate) fn unread(&self) -> impl Iterator<Item = Extent> + '_ {
        self.rcv.unread()
    }

    /// All that has come and is not taken.
    pub(crate) fn received(&self) -> impl Iterator<Item = Extent> + '_ {
        self.rcv.unread().chain(self.rcv.ahead())
    }

    /// The app is done with so many bytes of what it has received.
    pub(crate) fn release(&mut self, bytes: u64) {
        self.rcv.release(bytes);
        if self.state.receives() && self.rcv.update_is_due(self.ack.segment_bytes()) {
            self.ack.demand();
        }
    }

    /// The next extent that is acknowledged, or that never will be.
    pub(crate) fn pop_sent(&mut self) -> Option<Extent> {
        let all = matches!(self.state, State::Closed);
        self.snd.pop_acknowledged(all)
    }

    /// The next extent that is acknowledged.
    pub(crate) fn pop_acknowledged(&mut self) -> Option<Extent> {
        self.snd.pop_acknowledged(false)
    }

    /// What was sent was sent again, and is not acknowledged.
    pub(crate) const fn is_silent(&self) -> bool {
        self.retries > 0
    }

    /// What was to be sent and has not been given back.
    pub(crate) fn outstanding(&self) -> impl Iterator<Item = Extent> + '_ {
        self.snd.outstanding()
    }

    /// Bytes that have come out of order.
    pub(crate) fn ahead_bytes(&self) -> u64 {
        self.rcv.ahead_bytes()
    }

    /// Gives up half of what has come out of order.
    pub(crate) fn renege(&mut self, discard: impl FnMut(Extent)) {
        self.rcv.renege(discard);
    }

    /// Gives back all that has been received and not been taken.
    pub(crate) fn drain(&mut self, discard: impl FnMut(Extent)) {
        self.rcv.drain(discard);
    }

    pub(crate) fn extents(&self, range: Range<u64>) -> impl Iterator<Item = Extent> + '_ {
        self.snd.extents(range)
    }

    pub(crate) fn set_settings(&mut self, settings: Settings) {
        let buffer = |it: &Settings| (it.receive_buffer_bytes, it.receive_buffer_bytes_max);
        if buffer(&settings) != buffer(&self.settings) {
            self.rcv.resize(&settings);
        }
        self.size.bound(settings.segment_bytes_max);
        let is_watched_anew = settings.keep_alive != self.settings.keep_alive;
        self.settings = settings;
        if self.state.is_synchronized() {
            self.retries_max = settings.retries;
            if is_watched_anew {
                self.watch_for_silence(); // else a probe may be out, and has its own time
            }
        }
    }

    /// What is given next shares no segment with what has been given.
    pub(crate) fn end_record(&mut self) {
        self.snd.end_record();
    }

    /// What waits to be sent waits for nothing but its windows.
    pub(crate) fn hurry(&mut self) {
        self.snd.hurry();
    }

    /// What comes is acknowledged at once, and so is what has come; or as late as may be.
    pub(crate) fn set_quick_acks(&mut self, are_quick: bool) {
        self.ack.set_quick(are_quick);
    }

    /// RFC 9293, section 3.8.4: an idle connection is probed, if its app wants that.
    fn watch_for_silence(&mut self) {
        match self.settings.keep_alive.filter(|_| !self.state.is_over()) {
            Some(keep_alive) => {
                self.timers.set(Timer::KeepAlive, self.last_heard + keep_alive.idle_ns);
            }
            None => self.timers.stop(Timer::KeepAlive),
        }
    }

    pub(crate) const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What has changed for the app since it last asked.
    #[inline]
    pub(crate) const fn take_readiness(&mut self) -> Readiness {
        core::mem::replace(&mut self.readiness, Readiness::NONE)
    }

    #[inline]
    pub(crate) const fn readiness(&self) -> Readiness {
        self.readiness
    }

    /// By when [`Connection::handle_timeouts`] is to be called, though there may be nothing to do.
    #[inline]
    pub(crate) const fn next_timeout(&self) -> Time {
        self.timers.bound()
    }

    /// What is left of it, for TIME-WAIT.
    pub(crate) fn remains(&self) -> Remains {
        Remains {
            snd_next: self.snd.next() as u32,
            rcv_next: self.rcv.next(),
            rcv_window: self.rcv.window(),
            rcv_scale: self.rcv.scale(),
            timestamps: self.timestamps.clone(),
            ip: self.settings.ip,
            account: self.settings.account,
        }
    }

    /// The window that congestion control allows.
    #[inline]
    fn window_bytes(&self) -> u64 {
        match self.recovery.phase() {
            crate::recovery::Phase::Fast => self.recovery.window_bytes,
            _ => self.control.window_bytes(),
        }
    }
}

/// What TIME-WAIT has to know of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Remains {
    pub(crate) snd_next: u32,
    pub(crate) rcv_next: u64,
    pub(crate) rcv_window: u64,
    pub(crate) rcv_scale: u8,
    pub(crate) timestamps: Option<Timestamps>,
    pub(crate) ip: IpFields,
    pub(crate) account: u32,
}

/// Queueing delay that the delay-based congestion control accepts: on the Internet there is more of
/// it than inside a building.
const DELAY_TARGET_NS: u64 = 1000 * MICROSECOND;
/// RFC 9406, section 4.3: "MIN_RTT_THRESH = 4 msec".
const SLOW_START_DELAY_NS: u64 = 4 * MILLISECOND;

/// Congestion control for a path of the Internet.
fn control(settings: &Settings, segment_bytes: u16) -> Control {
    match settings.congestion {
        Congestion::Swift => settings.congestion.control(segment_bytes, DELAY_TARGET_NS),
        Congestion::Cubic => {
            let cubic = Cubic::new(segment_bytes).with_delay_min(SLOW_START_DELAY_NS);
            Control::Cubic(Box::new(cubic.with_initial_window(settings.initial_window)))
        }
    }
}
