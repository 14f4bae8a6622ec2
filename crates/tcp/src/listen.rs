//! Listeners, and connections that strangers have begun to open with them.
//!
//! ```text
//! SYN ──▶ half-open (a few words) ──ACK──▶ connection, to be accepted
//!  └───── too many: a cookie (nothing) ──ACK with the cookie──┘
//! ```

use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeSet, VecDeque};

use clearway_base::{Prefix, SlotId, Time};
use clearway_wire::tcp::{Extra, Flags, Options, Repr, Timestamps};

use crate::config::Settings;
use crate::connection::{Accepted, Arrival, Challenges, Connecting, Transmit};
use crate::ecn::Asked;
use crate::fast_open::FastOpenKeys;
use crate::isn::{Secret, Use};
use crate::timestamps::is_before;
use crate::tuple::{Tuple, bits};
use crate::{ecn, mtu, rcv};

/// Where a listener is: one address or several, and a port.
pub(crate) type Place = (Option<u128>, u16);

/// A port that connections may be opened to.
#[derive(Debug)]
pub(crate) struct ListenSocket {
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) mtu: u16,
    pub(crate) settings: Settings,
    /// Whose connections it takes; everybody's if there are none.
    pub(crate) peers: Vec<Prefix>,
    /// Connections that are open and not accepted, at most; and that many half-open.
    pub(crate) backlog: u32,
    pub(crate) accepted: VecDeque<SlotId>,
    pub(crate) half_open: BTreeSet<SlotId>,
    /// What its cookies of Fast Open are made with, if not with the stack's keys.
    pub(crate) keys: Option<FastOpenKeys>,
    /// How many connections are open early: the app has them, or they wait for it, and their
    /// handshake is not over.
    pub(crate) early: u32,
    /// Those that were reset before it was, each until when it counts.
    pub(crate) reset_early: VecDeque<Time>,
}

/// What is kept of a stranger that has sent a SYN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HalfOpen {
    /// Its listener's, if it is kept.
    pub(crate) account: u32,
    pub(crate) tuple: Tuple,
    pub(crate) listener: SlotId,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) isn: u32,
    pub(crate) peer_isn: u32,
    pub(crate) offer: Offer,
    pub(crate) timestamp_offset: u32,
    pub(crate) sent: Time,
    pub(crate) retries: u8,
    /// How often the answer was sent again: not while its listener waits for data.
    pub(crate) resent: u8,
    /// Its SYN has come more than once.
    pub(crate) is_again: bool,
    /// It has answered, and its listener waits for data.
    pub(crate) is_deferred: bool,
    pub(crate) challenges: Challenges,
}

/// What a SYN offers, as far as this end wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) segment_bytes: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack: bool,
    /// The peer's clock.
    pub(crate) timestamp: Option<u32>,
    pub(crate) ecn: Asked,
}

impl ListenSocket {
    /// One to which nobody has come.
    pub(crate) fn new(
        address: Option<IpAddr>,
        port: u16,
        backlog: u32,
        mtu: u16,
        settings: Settings,
    ) -> Self {
        Self {
            address,
            port,
            mtu,
            settings,
            peers: Vec::new(),
            backlog: backlog.max(1),
            accepted: VecDeque::new(),
            half_open: BTreeSet::new(),
            keys: None,
            early: 0,
            reset_early: VecDeque::new(),
        }
    }

    /// Where it is.
    pub(crate) fn place(&self) -> Place {
        (self.address.map(bits), self.port)
    }

    /// True if a peer at this address may connect.
    pub(crate) fn takes(&self, peer: IpAddr) -> bool {
        Prefix::admit(&self.peers, peer)
    }

    /// True if no more can wait to be accepted.
    pub(crate) fn is_full(&self) -> bool {
        self.accepted.len() >= self.backlog as usize
    }

    /// True if one more may be open early. RFC 7413, section 5.1: one that was reset counts for a
    /// while, since whoever sends SYNs for others can reset them, too.
    pub(crate) fn may_open_early(&mut self, now: Time) -> bool {
        while self.reset_early.front().is_some_and(|until| *until <= now) {
            self.reset_early.pop_front();
        }
        let count = self.early as usize + self.reset_early.len();
        count < u32::from(self.settings.fast_open.pending_max).min(self.backlog) as usize
    }

    /// True if what it has answered can be another's: what peers have been told holds there, too.
    pub(crate) fn is_set_as(&self, mtu: u16, settings: Settings) -> bool {
        let account = self.settings.account;
        (self.mtu, self.settings) == (mtu, Settings { account, ..settings })
    }
}

impl Offer {
    pub(crate) fn of(arrival: &Arrival, settings: &Settings) -> Self {
        let repr = &arrival.repr;
        let options = &repr.options;
        Self {
            segment_bytes: options.maximum_segment_size,
            window_scale: options.window_scale.filter(|_| settings.window_scaling),
            sack: options.sack_permitted && settings.sack,
            timestamp: options
                .timestamps
                .filter(|_| settings.timestamps)
                .map(|option| option.value),
            ecn: match settings.ecn {
                true => Asked::by(repr.flags, arrival.ecn, settings.accurate_ecn),
                false => Asked::Nothing,
            },
        }
    }

    /// What of it comes back with a cookie: most of it by the timestamp, and so without that the
    /// segment size alone. What the peer is told is no more, since it would go by it: it would take
    /// windows to be shifted that are not.
    pub(crate) fn in_cookie(self) -> Self {
        match self.timestamp {
            Some(_) => Self { ecn: self.ecn.without_accuracy(), ..self },
            None => Self { segment_bytes: self.segment_bytes, ..Self::default() },
        }
    }

    /// The same as options of a SYN.
    fn options(&self) -> Options {
        Options {
            maximum_segment_size: self.segment_bytes,
            window_scale: self.window_scale,
            sack_permitted: self.sack,
            timestamps: self.timestamp.map(|value| Timestamps { value, echo: 0 }),
            ..Options::default()
        }
    }
}

impl HalfOpen {
    /// The answer to the SYN, with a timestamp of `value`.
    pub(crate) fn syn_ack(&self, socket: &ListenSocket, value: u32) -> Transmit {
        let settings = &socket.settings;
        let size = mtu::SegmentSize::new(self.remote.ip(), socket.mtu);
        let scale = rcv::scale_for(settings.window_bytes_max());
        let options = Options {
            maximum_segment_size: (!settings.variants.no_mss)
                .then(|| size.offer(settings.segment_bytes_max)),
            window_scale: self.offer.window_scale.map(|_| scale),
            sack_permitted: self.offer.sack,
            timestamps: self.offer.timestamp.map(|echo| Timestamps { value, echo }),
            // RFC 9768, section 3.2.3.2.2: something on the way may not bear it.
            extra: match self.retries == 0 && !self.is_again && self.offer.ecn.is_accurate() {
                true => settings.ecn_option.initial(),
                false => Extra::default(),
            },
        };
        let mut flags = Flags::SYN | Flags::ACK;
        if self.retries <= self.offer.ecn.answers_again_max() {
            flags |= self.offer.ecn.answer();
        }
        let repr = Repr {
            source_port: self.local.port(),
            destination_port: self.remote.port(),
            sequence: self.isn,
            acknowledgement: self.peer_isn.wrapping_add(1),
            flags,
            window: u16::try_from(settings.receive_buffer_bytes).unwrap_or(u16::MAX),
            urgent: 0,
            options,
        };
        let bare = Transmit::bare(self.local, self.remote, repr, settings.ip);
        let ecn_capable = flags.intersects(ecn::ALL) && settings.variants.capable.has_syn_acks();
        Transmit { ecn_capable, ..bare }
    }

    /// An acknowledgement that says where this end stands, to a segment that may be an attacker's:
    /// "<SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>".
    pub(crate) fn challenge(&self, socket: &ListenSocket, value: u32) -> Transmit {
        let settings = &socket.settings;
        let scale = match self.offer.window_scale {
            Some(_) => rcv::scale_for(settings.window_bytes_max()),
            None => 0,
        };
        let window = settings.receive_buffer_bytes.min(u16::MAX.into()) >> scale;
        let repr = Repr {
            source_port: self.local.port(),
            destination_port: self.remote.port(),
            sequence: self.isn.wrapping_add(1),
            acknowledgement: self.peer_isn.wrapping_add(1),
            flags: Flags::ACK,
            window: window as u16,
            urgent: 0,
            options: Options {
                timestamps: self.offer.timestamp.map(|echo| Timestamps { value, echo }),
                ..Options::default()
            },
        };
        Transmit::bare(self.local, self.remote, repr, settings.ip)
    }

    /// RFC 7323, section 5.3, R1, as for a connection: whether a segment may be of the peer that
    /// has sent the SYN. `None` if it has no timestamp that says it.
    pub(crate) fn is_recent(&self, repr: &Repr) -> Option<bool> {
        let Some(recent) = self.offer.timestamp else { return Some(true) };
        repr.options.timestamps.map(|option| !is_before(option.value, recent))
    }

    /// How long the next answer is waited for.
    pub(crate) fn timeout(&self, settings: &Settings) -> Time {
        self.sent + (settings.rto_initial_ns << self.retries.min(6)).min(settings.rto_max_ns)
    }

    /// The stranger has shown that it receives at its address.
    pub(crate) fn accepted(&self, socket: &ListenSocket) -> Accepted {
        Accepted {
            connecting: Connecting {
                local: self.local,
                remote: self.remote,
                settings: socket.settings,
                mtu: socket.mtu,
                isn: self.isn,
                timestamp_offset: self.timestamp_offset,
            },
            peer_isn: self.peer_isn,
            options: self.offer.options(),
            ecn: self.offer.ecn.answered(self.retries),
            sent: (self.retries == 0).then_some(self.sent),
            resent: self.resent,
        }
    }
}

/// SYN cookies (RFC 4987, section 3.6): all that would be kept of a half-open connection travels in
/// the SYN-ACK's sequence number, and what has no room there in its timestamp.
///
/// ```text
/// sequence number  │ 5 bits of time │ 3 bits of segment size │ 24 bits of a keyed hash │
/// timestamp        │ 26 bits of the clock │ ECN │ SACK │ 4 bits of window scale │
/// ```
pub(crate) mod cookie {
    use super::{Asked, Offer, Secret, Time, Tuple, Use};
    use clearway_base::SECOND;

    /// How long a step of the cookies' clock is. A cookie is good for two of them.
    const STEP_NS: u64 = 64 * SECOND;
    /// How long cookies may come back after the last was given out.
    pub(crate) const LIFETIME_NS: u64 = 2 * STEP_NS;
    /// Segment sizes that are told apart: what is offered is rounded down.
    const SIZES: [u16; 8] = [64, 512, 536, 1220, 1300, 1440, 1460, 8940];
    const NO_SCALE: u32 = 15;

    fn hash(secret: &Secret, tuple: &Tuple, peer_isn: u32, step: u64, size: usize) -> u32 {
        secret.hash(Use::Cookie, &(tuple, peer_isn, step, size)) as u32 & 0xff_ffff
    }

    /// The sequence number for a SYN-ACK.
    pub(crate) fn make(
        secret: &Secret,
        now: Time,
        tuple: &Tuple,
        peer_isn: u32,
        segment_bytes: u16,
    ) -> u32 {
        let step = now.as_ns() / STEP_NS;
        let size = SIZES.iter().rposition(|size| *size <= segment_bytes).unwrap_or(0);
        let hash = hash(secret, tuple, peer_isn, step, size);
        (step as u32 & 0x1f) << 27 | (size as u32) << 24 | hash
    }

    /// The segment size that a cookie stands for, if it is one that was made not long ago.
    pub(crate) fn check(
        secret: &Secret,
        now: Time,
        tuple: &Tuple,
        peer_isn: u32,
        cookie: u32,
    ) -> Option<u16> {
        let current = now.as_ns() / STEP_NS;
        let size = (cookie >> 24 & 7) as usize;
        let is_right = |step: &u64| {
            cookie >> 27 == *step as u32 & 0x1f
                && cookie & 0xff_ffff == hash(secret, tuple, peer_isn, *step, size)
        };
        let steps = [Some(current), current.checked_sub(1)];
        steps.iter().flatten().any(is_right).then_some(SIZES[size])
    }

    /// The timestamp of a SYN-ACK with a cookie, no later than `clock`.
    pub(crate) fn timestamp(clock: u32, offer: &Offer) -> u32 {
        let scale = offer.window_scale.map_or(NO_SCALE, u32::from);
        let bits = scale | u32::from(offer.sack) << 4 | u32::from(offer.ecn != Asked::Nothing) << 5;
        let value = clock & !0x3f | bits;
        if value > clock { value.wrapping_sub(0x40) } else { value }
    }

    /// What such a timestamp says when it comes back, from a peer whose clock is `value`.
    pub(crate) fn offer(echo: u32, value: u32) -> Offer {
        let scale = echo & 0xf;
        Offer {
            segment_bytes: None,
            window_scale: (scale <= 14).then_some(scale as u8),
            sack: echo & 0x10 != 0,
            timestamp: Some(value),
            ecn: Asked::from_bit(echo & 0x20 != 0),
        }
    }
}

/// A half-open connection as a cookie brings it back.
pub(crate) fn from_cookie(
    arrival: &Arrival,
    segment_bytes: u16,
    tuple: Tuple,
    listener: SlotId,
    timestamp_offset: u32,
) -> HalfOpen {
    let repr = &arrival.repr;
    let offer = match repr.options.timestamps {
        Some(option) => cookie::offer(option.echo, option.value),
        None => Offer::default(),
    };
    HalfOpen {
        account: 0,
        tuple,
        listener,
        local: arrival.to,
        remote: arrival.from,
        isn: repr.acknowledgement.wrapping_sub(1),
        peer_isn: repr.sequence.wrapping_sub(1),
        offer: Offer { segment_bytes: Some(segment_bytes), ..offer },
        timestamp_offset,
        sent: Time::ZERO,
        retries: 1, // the round-trip time is not known
        resent: 0,  // by its timer, and there was none
        is_again: false,
        is_deferred: false,
        challenges: Challenges::default(),
    }
}
