//! Connections that wait for answers, beside others that send much on the same engine.
//!
//! Who sends one small message, and has no other under way, waits for an answer. Until it has not
//! done so for a while, the packets of those who have much to send are short, and whoever has sent
//! one rests for as long as that turn took. So half of an engine's time is left to those who wait,
//! and none of what they wait for is longer than such a turn. While nobody waits, no packets are
//! shorter.

use clearway_base::{MICROSECOND, Time};

use crate::app::Owner;

/// Who waits has sent a packet with so many bytes of messages at most, frames included.
const LONE_BYTES: usize = 1500;
/// Who has sent a lone message counts for so long as one who waits.
const MEMORY_NS: u64 = 250 * MICROSECOND;
/// Positions that are under way or wait from which on a connection has much to send. Less is over
/// soon, and whoever waits for it need not wait for what is small.
const MUCH: u64 = 64 << 10;
/// What an operation counts besides its positions: it takes an engine as long as so many bytes of a
/// message.
pub(crate) const OPERATION_POSITIONS: u64 = 1024;
/// Bytes of a packet beside those who wait. It has room for three frames of Ethernet: less would
/// leave to what each packet costs more of the time than to its bytes.
const PACKET_BYTES: usize = 4500;
/// Operations in such a packet.
const OPERATIONS: usize = 4;
/// The longest rest: what took a turn longer were not its packets, but others who had the core.
const REST_NS_MAX: u64 = 10 * MICROSECOND;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Company {
    /// The connection that has sent a lone message last, and until when it counts.
    last: (Owner, Time),
    /// Until when one of the others counts.
    others: Time,
    /// The packet that was built last is of one who sends much beside those who wait.
    is_large: bool,
    /// So is one of this turn.
    is_burdened: bool,
    /// Until when those who have sent much rest.
    rest_until: Time,
}

/// What a packet may have of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Bytes of the whole packet.
    pub(crate) bytes: usize,
    /// What each operation takes of these besides its own; 0 if nobody waits for an answer.
    pub(crate) operation_bytes: usize,
}

/// When a packet is built, and beside whom.
#[derive(Debug)]
pub(crate) struct Sending<'a> {
    pub(crate) now: Time,
    pub(crate) company: &'a mut Company,
}

impl Default for Company {
    fn default() -> Self {
        Self {
            last: (Owner::NOBODY, Time::ZERO),
            others: Time::ZERO,
            is_large: false,
            is_burdened: false,
            rest_until: Time::ZERO,
        }
    }
}

impl Company {
    /// True for a message that somebody may send who waits for its answer.
    #[inline]
    pub(crate) const fn is_lone(bytes: u32) -> bool {
        bytes as usize <= LONE_BYTES
    }

    /// A turn begins. The one before took so long.
    #[inline]
    pub(crate) fn begin_turn(&mut self, now: Time, took_ns: u64) {
        if core::mem::take(&mut self.is_burdened) {
            self.rest_until = now + took_ns.min(REST_NS_MAX);
        }
    }

    /// Until when those who have sent much rest.
    pub(crate) const fn rest_until(&self) -> Time {
        self.rest_until
    }

    /// After a packet of a flow: whether what else it has is left for later.
    #[inline]
    pub(crate) fn is_to_rest(&mut self, now: Time) -> bool {
        self.take_large() | (now < self.rest_until)
    }

    /// True once after a packet of one who is to rest.
    #[inline]
    pub(crate) const fn take_large(&mut self) -> bool {
        core::mem::replace(&mut self.is_large, false)
    }

    fn is_beside(&self, now: Time, owner: Owner) -> bool {
        let until = if self.last.0 == owner { self.others } else { self.last.1 };
        now < until
    }
}

impl Sending<'_> {
    /// What a packet with room for so many bytes may have of this connection, which has so many
    /// positions under way or waiting.
    #[inline]
    pub(crate) fn share(&self, owner: Owner, positions: u64, bytes: usize) -> Share {
        if positions < MUCH || !self.company.is_beside(self.now, owner) {
            return Share { bytes, operation_bytes: 0 };
        }
        let bytes = bytes.min(PACKET_BYTES);
        Share { bytes, operation_bytes: bytes / OPERATIONS }
    }

    /// A packet has so many bytes of this connection: of which nothing else was under way, and
    /// which has nothing more to send, if that `is_all`.
    #[inline]
    pub(crate) fn sent(&mut self, owner: Owner, share: Share, bytes: usize, is_all: bool) {
        let company = &mut *self.company;
        if is_all && bytes <= LONE_BYTES {
            if company.last.0 != owner {
                company.others = company.last.1;
                company.last.0 = owner;
            }
            company.last.1 = self.now + MEMORY_NS;
        } else if share.operation_bytes > 0 {
            (company.is_large, company.is_burdened) = (true, true);
        }
    }
}
