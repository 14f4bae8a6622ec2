//! The handshake: RFC 9293, section 3.5, and what is agreed on with it.

use core::net::SocketAddr;

use clearway_base::{SlotId, Time};
use clearway_congestion::{CongestionControl, Control, Pacer};
use clearway_wire::tcp::{Extra, Flags, Options, Repr};

use super::{Arrival, Connection, Reply, control};
use crate::config::Settings;
use crate::ecn::{Asked, EcnState};
use crate::event::{End, Readiness};
use crate::extent::Memory;
use crate::rcv::{Receive, scale_for};
use crate::seq;
use crate::snd::Send;
use crate::state::State;
use crate::timers::Timer;
use crate::timestamps::Timestamps;

/// What a connection attempt starts from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connecting {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) settings: Settings,
    pub(crate) mtu: u16,
    /// The initial sequence number.
    pub(crate) isn: u32,
    pub(crate) timestamp_offset: u32,
}

/// What is known of a connection that came to a listener, when its handshake is complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    pub(crate) connecting: Connecting,
    /// The peer's initial sequence number, and what its SYN said.
    pub(crate) peer_isn: u32,
    pub(crate) options: Options,
    pub(crate) ecn: Asked,
    /// When the SYN-ACK was sent, if it was sent once; and how often it was sent again.
    pub(crate) sent: Option<Time>,
    pub(crate) resent: u8,
}

/// How often a SYN, or a SYN-ACK, may be sent again before the initial window is one segment.
const RESENT_MAX: u8 = 1;

/// The third time that a SYN is sent again: `Variants::plain_syns`.
const PLAIN_SYN: u8 = 3;

impl Connection {
    /// An attempt to open a connection.
    pub(crate) fn connect(now: Time, connecting: &Connecting) -> Self {
        let &Connecting { local, remote, settings, mtu, isn, timestamp_offset } = connecting;
        let snd = Send::new(seq::first(isn));
        // The window that a SYN offers; where it begins is not known yet.
        let rcv = Receive::new(seq::first(0), settings.receive_buffer_bytes, &settings, 0);
        let mut connection = Self::new(local, remote, settings, snd, rcv, mtu);
        connection.timestamp_offset = timestamp_offset;
        connection.retries_max = settings.syn_retries;
        connection.syn_due = true;
        connection.last_heard = now;
        connection
    }

    /// A connection whose peer has answered a listener's SYN-ACK: it is opened by the segment that
    /// did, which is to be handled next.
    pub(crate) fn accept(now: Time, accepted: &Accepted) -> Self {
        let mut connection = Self::connect(now, &accepted.connecting);
        connection.syn_due = false;
        connection.state = State::SynReceived;
        connection.agree(now, accepted.peer_isn, &accepted.options);
        let counts_syn = connection.settings.variants.draft_accurate_ecn;
        connection.ecn = EcnState::asked(accepted.ecn, counts_syn);
        connection.syn_sent = accepted.sent;
        connection.retries = accepted.resent;
        connection.acknowledged = connection.rcv.next();
        connection
    }

    /// What the SYN of this end offers, and a SYN-ACK as far as the peer has offered it.
    pub(super) fn syn_options(&self, now: Time) -> Options {
        let settings = &self.settings;
        let is_answer = self.state == State::SynReceived;
        let scale = scale_for(settings.window_bytes_max());
        let scales = match is_answer {
            true => self.scales,
            false => settings.window_scaling,
        };
        let timestamps = match (&self.timestamps, is_answer) {
            (Some(timestamps), true) => Some(timestamps.option(now)),
            (None, false) if settings.timestamps => {
                Some(Timestamps::new(self.timestamp_offset, 0, now).option(now))
            }
            _ => None,
        };
        Options {
            maximum_segment_size: (!settings.variants.no_mss)
                .then(|| self.size.offer(settings.segment_bytes_max)),
            window_scale: scales.then_some(scale),
            sack_permitted: if is_answer { self.sack } else { settings.sack },
            timestamps,
            extra: self.syn_extra(is_answer),
        }
    }

    /// RFC 9768, section 3.2.3.2.1: who answers a SYN that asks for accurate feedback counts,
    /// unless the answer is sent again.
    fn syn_extra(&self, is_answer: bool) -> Extra {
        let has_counters = is_answer && self.retries == 0 && self.ecn.is_accurate();
        match self.fast_open_option() {
            Some(option) => option.into(),
            None if has_counters => self.settings.ecn_option.initial(),
            None => Extra::default(),
        }
    }

    /// Takes what the peer's SYN says.
    fn agree(&mut self, now: Time, peer_isn: u32, options: &Options) {
        let settings = &self.settings;
        // RFC 7323, section 2.2: both ends "MUST send Window Scale options in their <SYN> segments
        // to enable window scaling in either direction".
        self.scales = settings.window_scaling && options.window_scale.is_some();
        let scale = if self.scales { scale_for(settings.window_bytes_max()) } else { 0 };
        self.snd.set_scale(options.window_scale.filter(|_| self.scales).unwrap_or(0));
        self.sack = settings.sack && options.sack_permitted;
        self.timestamps = options
            .timestamps
            .filter(|_| settings.timestamps)
            .map(|timestamps| Timestamps::new(self.timestamp_offset, timestamps.value, now));
        let every = Options {
            timestamps: self.timestamps.as_ref().map(|t| t.option(now)),
            ..Options::default()
        };
        let most = settings.segment_bytes_max;
        self.size.agree(options.maximum_segment_size, most, every.length());
        let buffer_bytes = match settings.variants.whole_segments {
            true => settings.receive_buffer_bytes.next_multiple_of(self.size.mss()),
            false => settings.receive_buffer_bytes,
        };
        self.rcv = Receive::new(seq::first(peer_isn), buffer_bytes, settings, scale);
    }

    /// RFC 9293, section 3.10.7.3: SYN-SENT.
    pub(super) fn handle_syn_sent(
        &mut self,
        now: Time,
        key: SlotId,
        arrival: &Arrival,
        memory: &mut impl Memory,
    ) -> Reply {
        let repr = &arrival.repr;
        let has_ack = repr.flags.contains(Flags::ACK);
        let ack = seq::position(self.snd.next(), repr.acknowledgement);
        // "If SEG.ACK =< ISS or SEG.ACK > SND.NXT, send a reset (unless the RST bit is set [...])":
        // nothing but the SYN has been sent, and what went with it.
        let sent = self.snd.first()..=self.snd.next();
        let is_acceptable = has_ack && sent.contains(&ack) && self.syn_sent_once();
        if has_ack && !is_acceptable {
            return if repr.flags.contains(Flags::RST) { Reply::Nothing } else { Reply::Reset };
        }
        if repr.flags.contains(Flags::RST) {
            // "If the ACK was acceptable, then signal to the user "error: connection reset" [...].
            // Otherwise (no ACK), drop the segment and return."
            if is_acceptable {
                self.finish(End::Refused);
            }
            return Reply::Nothing;
        }
        if !repr.flags.contains(Flags::SYN) {
            // "if neither of the SYN or RST bits is set, then drop the segment and return"
            return Reply::Nothing;
        }
        self.agree(now, repr.sequence, &repr.options);
        self.last_heard = now;
        if !has_ack {
            return self.open_simultaneously(key, arrival, memory);
        }
        if self.settings.ecn {
            let variants = &self.settings.variants;
            let sent = (!variants.untested_ecn).then(|| variants.capable.of_syn());
            let is_accurate = self.settings.accurate_ecn;
            self.ecn = EcnState::answered(repr, arrival.ecn, is_accurate, sent);
        }
        self.establish(now, repr, ack);
        self.ack.demand();
        self.handle_rest_of_syn(now, key, arrival, memory);
        Reply::Nothing
    }

    fn syn_sent_once(&self) -> bool {
        !self.syn_due || self.retries > 0
    }

    /// RFC 9293, section 3.5, figure 7; section 3.10.7.3: "If there are other controls or text in
    /// the segment, queue them for processing after the ESTABLISHED state has been reached".
    fn open_simultaneously(
        &mut self,
        key: SlotId,
        arrival: &Arrival,
        memory: &mut impl Memory,
    ) -> Reply {
        let flags = arrival.repr.flags;
        self.state = State::SynReceived;
        if self.settings.ecn || self.settings.variants.lax_ecn {
            let asked = Asked::by(flags, arrival.ecn, self.settings.accurate_ecn);
            self.ecn = EcnState::asked(asked, self.settings.variants.draft_accurate_ecn);
        }
        self.syn_due = true;
        if arrival.length() > 1 {
            let is_early = self.settings.variants.fin_with_syn;
            let has_fin = flags.contains(Flags::FIN) && !(is_early && arrival.payload_length > 0);
            self.rcv.hold(key, arrival.payload_length, has_fin, memory);
            if is_early {
                self.rcv.pass_fin();
            }
        }
        Reply::Nothing
    }

    /// Data and FIN that came with a SYN.
    fn handle_rest_of_syn(
        &mut self,
        now: Time,
        key: SlotId,
        arrival: &Arrival,
        memory: &mut impl Memory,
    ) {
        if arrival.payload_length > 0 || arrival.repr.flags.contains(Flags::FIN) {
            let start = self.rcv.next();
            self.handle_payload(now, key, start, arrival, memory);
        }
    }

    /// This end's SYN is acknowledged.
    pub(super) fn establish(&mut self, now: Time, repr: &Repr, ack: u64) {
        self.state = State::Established;
        self.syn_due = false;
        let start = seq::position(self.rcv.next(), repr.sequence);
        self.take_back_syn_data(ack);
        self.snd.acknowledge(ack);
        self.snd.update_window(start, ack, repr.window, !repr.flags.contains(Flags::SYN));
        self.timers.stop(Timer::Retransmit);
        match self.syn_sent {
            Some(sent) => self.rto.sample(now, now.since(sent), &self.settings),
            None if self.retries > 0 => self.rto.on_lost_syn(),
            None => {} // a cookie does not tell when it was sent
        }
        let bytes = self.size.bytes() as u16;
        self.control = self.initial_control(bytes);
        self.retries = 0;
        self.retries_max = self.settings.retries;
        self.stalled_since = (!self.board.is_empty()).then_some(now);
        self.pacer = Pacer::new(now, bytes);
        self.data_sent = now;
        self.search_later(now);
        self.readiness |= Readiness::OPEN | Readiness::WRITABLE;
        self.last_heard = now;
        self.watch_for_silence();
        if self.snd.is_finished() {
            self.state = State::FinWait1;
        }
    }

    /// RFC 5681, section 3.1: "if the SYN or SYN/ACK is lost, the initial window used by a sender
    /// after a correctly transmitted SYN MUST be one segment". RFC 6928, section 2, has it that
    /// implementations "refrain from resetting the initial window to 1 segment, unless there have
    /// been more than one SYN or SYN/ACK retransmissions".
    fn initial_control(&self, segment_bytes: u16) -> Control {
        let mut control = control(&self.settings, segment_bytes);
        if self.retries > RESENT_MAX {
            control.resume(segment_bytes.into());
        }
        control
    }

    /// How long the answer to a SYN may take.
    pub(super) fn syn_timeout_ns(&self) -> u64 {
        let settings = &self.settings;
        let has_slop = settings.variants.syn_slop && self.retries > 0;
        let slop_ns = if has_slop { settings.rto_min_ns } else { 0 };
        let doublings = self.retries.saturating_sub(settings.variants.linear_syns).min(10);
        let timeout_ns = (settings.rto_initial_ns << doublings) + slop_ns;
        timeout_ns.min(settings.rto_max_ns)
    }

    /// A SYN is to be sent again. Options that something on the way may not bear are given up.
    pub(super) fn send_syn_again(&mut self) {
        self.syn_due = true;
        let settings = &mut self.settings;
        if settings.variants.plain_syns && self.retries >= PLAIN_SYN {
            settings.window_scaling = false;
            settings.timestamps = false;
            settings.sack = false;
        }
    }
}
