//! What the entries of the two rings say: [`Command`] from app to daemon, [`Completion`] back.
//!
//! `encode` stores the words of an entry; `decode` loads each word once, bounds it, and returns a
//! copy. The daemon decodes commands, so that side knows every way in which they can be wrong.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use serde::{Deserialize, Serialize};

use crate::layout::{
    BURST_FRAMES_MAX, FRAME_ALIGNMENT, MESSAGE_BYTES_MAX, RELEASES_PER_ENTRY, command, completion,
};
use crate::ring::Entry;
use crate::sync::Ordering::Relaxed;
use crate::{Code, Violation};

/// From app to daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Opens a connection; `Connected` or `ConnectFailed` answers with the same token.
    Connect {
        /// The app's name for the attempt.
        token: u64,
        /// Host and port to connect to.
        peer: SocketAddr,
    },
    /// Sends a message that lies in the transmit pool.
    Send {
        /// The connection.
        connection: u64,
        /// The ordering domain inside the connection; 0 so far.
        stream: u16,
        /// Where the message starts in the transmit pool.
        offset: u32,
        /// Bytes of the message.
        length: u32,
    },
    /// Gives receive buffers back.
    Release {
        /// Their ids.
        buffers: ReleaseList,
    },
    /// Ends a connection.
    Close {
        /// The connection.
        connection: u64,
        /// False: what was sent before still arrives. True: at once.
        abort: bool,
    },
    /// Has a connection given up after another silence of its peer than the daemon's others.
    SetSilence {
        /// The connection.
        connection: u64,
        /// How long; the daemon bounds it.
        silence_ms: u32,
    },
    /// Sends a burst of frames that lies in the transmit pool, packed as `burst.rs` says. Counts as
    /// one send; `FramesSent` answers.
    SendFrames {
        /// The virtual interface.
        vif: u32,
        /// Where the burst starts in the transmit pool: a multiple of 8.
        offset: u32,
        /// Bytes of the burst, headers and padding included.
        length: u32,
        /// Frames in it.
        count: u16,
    },
}

/// From daemon to app. `sent` is the number of the connection's sends that are finished so far, in
/// order, wrapping: their buffers are the app's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Completion {
    /// A connection that the app asked for is open.
    Connected {
        /// The token of the `Connect`.
        token: u64,
        /// The new connection.
        connection: u64,
        /// Its other end.
        peer: SocketAddr,
    },
    /// A connection that the app asked for could not be opened.
    ConnectFailed {
        /// The token of the `Connect`.
        token: u64,
        /// Why.
        code: Code,
    },
    /// A peer has connected to one of the app's listeners.
    Accepted {
        /// The listener.
        listener: u32,
        /// The new connection.
        connection: u64,
        /// Its other end.
        peer: SocketAddr,
    },
    /// A message has arrived.
    Received {
        /// The connection.
        connection: u64,
        /// The ordering domain inside the connection.
        stream: u16,
        /// Where the message starts in the receive pool.
        offset: u32,
        /// Bytes of the message.
        length: u32,
        /// The buffer to release when the message has been read.
        buffer: u32,
        /// Finished sends so far.
        sent: u32,
    },
    /// Sends are finished.
    Sent {
        /// The connection.
        connection: u64,
        /// Finished sends so far.
        sent: u32,
    },
    /// A connection has ended: the last that is heard of it. All its sends are over.
    Closed {
        /// The connection.
        connection: u64,
        /// `Code::Closed` for an orderly end, else why.
        code: Code,
        /// Sends that had finished before the end.
        sent: u32,
    },
    /// A burst of frames has arrived, packed as `burst.rs` says.
    Frames {
        /// The virtual interface.
        vif: u32,
        /// Where the burst starts in the receive pool.
        offset: u32,
        /// Bytes of the burst, headers and padding included.
        length: u32,
        /// The buffer to release when the frames have been read.
        buffer: u32,
        /// Frames in it.
        count: u16,
    },
    /// What has become of the frames that a virtual interface sent, since it was opened.
    FramesSent {
        /// The virtual interface.
        vif: u32,
        /// Bursts that are finished, in order, wrapping: their memory is the app's again.
        bursts: u32,
        /// Frames that left, by the NIC or to another app.
        sent: u64,
        /// Frames that were refused.
        rejected: u64,
        /// Why the last of these was refused; 0 if none was. The engine's numbers.
        reason: u8,
    },
    /// The daemon has taken a virtual interface away: the last that is heard of it. All its sends
    /// are over.
    VifClosed {
        /// The virtual interface.
        vif: u32,
        /// Why.
        code: Code,
    },
}

/// A message that an app sends on the first stream: what most commands are, see [`Command::Send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The connection.
    pub connection: u64,
    /// Where the message starts in the transmit pool.
    pub offset: u32,
    /// Bytes of the message.
    pub length: u32,
}

/// A message that has arrived: what most completions are, see [`Completion::Received`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The connection.
    pub connection: u64,
    /// Where the message starts in the receive pool.
    pub offset: u32,
    /// Bytes of the message.
    pub length: u32,
    /// The buffer to release when the message has been read.
    pub buffer: u32,
    /// Finished sends so far.
    pub sent: u32,
}

/// Up to fourteen ids of receive buffers: what one entry carries.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct ReleaseList {
    ids: [u32; RELEASES_PER_ENTRY],
    count: u8,
}

impl ReleaseList {
    /// Adds an id; false if the list is full.
    #[inline]
    pub fn push(&mut self, id: u32) -> bool {
        let Some(place) = self.ids.get_mut(usize::from(self.count)) else { return false };
        *place = id;
        self.count += 1;
        true
    }

    /// The ids.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.ids[..usize::from(self.count)]
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether one entry holds no more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        usize::from(self.count) == RELEASES_PER_ENTRY
    }
}

impl core::fmt::Debug for ReleaseList {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl Command {
    /// Stores words 1.. and returns the upper half of word 0.
    #[inline]
    pub(crate) fn encode(&self, entry: &Entry) -> u32 {
        match self {
            Self::Connect { token, peer } => {
                entry[1].store(*token, Relaxed);
                encode_address(peer, entry, 2);
                upper(command::CONNECT, 0, 0)
            }
            Self::Send { connection, stream, offset, length } => {
                entry[1].store(*connection, Relaxed);
                entry[2].store(pair(*offset, *length), Relaxed);
                upper(command::SEND, 0, *stream)
            }
            Self::Release { buffers } => {
                for (word, ids) in entry[1..].iter().zip(buffers.ids.chunks_exact(2)) {
                    word.store(pair(ids[0], ids[1]), Relaxed);
                }
                upper(command::RELEASE, buffers.count, 0)
            }
            Self::Close { connection, abort } => {
                entry[1].store(*connection, Relaxed);
                upper(command::CLOSE, u8::from(*abort), 0)
            }
            Self::SetSilence { connection, silence_ms } => {
                entry[1].store(*connection, Relaxed);
                entry[2].store(u64::from(*silence_ms), Relaxed);
                upper(command::SET_SILENCE, 0, 0)
            }
            Self::SendFrames { vif, offset, length, count } => {
                entry[1].store(pair(*vif, 0), Relaxed);
                entry[2].store(pair(*offset, *length), Relaxed);
                upper(command::SEND_FRAMES, 0, *count)
            }
        }
    }

    /// Reads an entry that an app wrote if it is a valid `Send` on the first stream. Whatever else
    /// it is, [`Command::decode`] finds out.
    #[inline]
    pub(crate) fn decode_send(
        upper: u32,
        entry: &Entry,
        transmit_pool_bytes: u32,
    ) -> Option<Submitted> {
        let (opcode, _, stream) = split_upper(upper);
        if opcode != command::SEND || stream != 0 {
            return None;
        }
        let (offset, length) = split(entry[2].load(Relaxed));
        check_send(offset, length, transmit_pool_bytes).ok()?;
        Some(Submitted { connection: entry[1].load(Relaxed), offset, length })
    }

    /// Reads an entry that an app wrote: any bits at all. Extents are bounded to the transmit pool.
    #[inline]
    pub(crate) fn decode(
        upper: u32,
        entry: &Entry,
        transmit_pool_bytes: u32,
    ) -> Result<Self, Violation> {
        let (opcode, flags, stream) = split_upper(upper);
        match opcode {
            command::SEND => {
                let (offset, length) = split(entry[2].load(Relaxed));
                check_send(offset, length, transmit_pool_bytes)?;
                Ok(Self::Send { connection: entry[1].load(Relaxed), stream, offset, length })
            }
            command::RELEASE => Ok(Self::Release { buffers: decode_releases(flags, entry)? }),
            command::SEND_FRAMES => {
                let (offset, length) = split(entry[2].load(Relaxed));
                let (vif, count) = (split(entry[1].load(Relaxed)).0, stream);
                check_burst(offset, length, count, transmit_pool_bytes)?;
                Ok(Self::SendFrames { vif, offset, length, count })
            }
            command::CONNECT => Ok(Self::Connect {
                token: entry[1].load(Relaxed),
                peer: decode_address(entry, 2).map_err(Violation::AddressFamily)?,
            }),
            command::CLOSE => {
                Ok(Self::Close { connection: entry[1].load(Relaxed), abort: flags & 1 != 0 })
            }
            command::SET_SILENCE => Ok(Self::SetSilence {
                connection: entry[1].load(Relaxed),
                silence_ms: split(entry[2].load(Relaxed)).0,
            }),
            _ => Err(Violation::Opcode(opcode)),
        }
    }
}

#[inline]
fn check_send(offset: u32, length: u32, pool_bytes: u32) -> Result<(), Violation> {
    if length > MESSAGE_BYTES_MAX {
        return Err(Violation::MessageTooLarge(length));
    }
    check_extent(offset, length, pool_bytes)
}

#[inline]
fn check_burst(offset: u32, length: u32, count: u16, pool_bytes: u32) -> Result<(), Violation> {
    if count == 0 || count > BURST_FRAMES_MAX {
        return Err(Violation::BurstCount(count));
    }
    if !offset.is_multiple_of(FRAME_ALIGNMENT) {
        return Err(Violation::BurstMisaligned(offset));
    }
    check_extent(offset, length, pool_bytes)
}

#[inline]
fn check_extent(offset: u32, length: u32, pool_bytes: u32) -> Result<(), Violation> {
    if !fits(offset, length, pool_bytes) {
        return Err(Violation::Extent { offset, length });
    }
    Ok(())
}

#[inline]
fn fits(offset: u32, length: u32, pool_bytes: u32) -> bool {
    u64::from(offset) + u64::from(length) <= u64::from(pool_bytes)
}

#[inline]
fn decode_releases(count: u8, entry: &Entry) -> Result<ReleaseList, Violation> {
    if usize::from(count) > RELEASES_PER_ENTRY {
        return Err(Violation::ReleaseCount(count));
    }
    let mut list = ReleaseList { count, ..ReleaseList::default() };
    let words = usize::from(count).div_ceil(2);
    for (word, ids) in entry[1..=words].iter().zip(list.ids.chunks_exact_mut(2)) {
        (ids[0], ids[1]) = split(word.load(Relaxed));
    }
    Ok(list)
}

impl Completion {
    /// Stores words 1.. and returns the upper half of word 0.
    #[inline]
    pub(crate) fn encode(&self, entry: &Entry) -> u32 {
        match self {
            Self::Received { connection, stream, offset, length, buffer, sent } => {
                entry[1].store(*connection, Relaxed);
                entry[2].store(pair(*offset, *length), Relaxed);
                entry[3].store(pair(*buffer, *sent), Relaxed);
                upper(completion::RECEIVED, 0, *stream)
            }
            Self::Sent { connection, sent } => {
                entry[1].store(*connection, Relaxed);
                entry[2].store(u64::from(*sent), Relaxed);
                upper(completion::SENT, 0, 0)
            }
            Self::Connected { token, connection, peer } => {
                entry[1].store(*token, Relaxed);
                entry[2].store(*connection, Relaxed);
                encode_address(peer, entry, 3);
                upper(completion::CONNECTED, 0, 0)
            }
            Self::ConnectFailed { token, code } => {
                entry[1].store(*token, Relaxed);
                entry[2].store(pair(code.as_i32() as u32, 0), Relaxed);
                upper(completion::CONNECT_FAILED, 0, 0)
            }
            Self::Accepted { listener, connection, peer } => {
                entry[1].store(*connection, Relaxed);
                entry[2].store(u64::from(*listener), Relaxed);
                encode_address(peer, entry, 3);
                upper(completion::ACCEPTED, 0, 0)
            }
            Self::Closed { connection, code, sent } => {
                entry[1].store(*connection, Relaxed);
                entry[2].store(pair(code.as_i32() as u32, *sent), Relaxed);
                upper(completion::CLOSED, 0, 0)
            }
            Self::Frames { vif, offset, length, buffer, count } => {
                entry[1].store(pair(*vif, *buffer), Relaxed);
                entry[2].store(pair(*offset, *length), Relaxed);
                upper(completion::FRAMES, 0, *count)
            }
            Self::FramesSent { vif, bursts, sent, rejected, reason } => {
                entry[1].store(pair(*vif, *bursts), Relaxed);
                entry[2].store(*sent, Relaxed);
                entry[3].store(*rejected, Relaxed);
                upper(completion::FRAMES_SENT, *reason, 0)
            }
            Self::VifClosed { vif, code } => {
                entry[1].store(pair(*vif, 0), Relaxed);
                entry[2].store(pair(code.as_i32() as u32, 0), Relaxed);
                upper(completion::VIF_CLOSED, 0, 0)
            }
        }
    }

    /// Reads an entry that the daemon wrote if it is a valid `Received`. Whatever else it is,
    /// [`Completion::decode`] finds out.
    #[inline]
    pub(crate) fn decode_received(
        upper: u32,
        entry: &Entry,
        receive_pool_bytes: u32,
    ) -> Option<Received> {
        if split_upper(upper).0 != completion::RECEIVED {
            return None;
        }
        let (offset, length) = split(entry[2].load(Relaxed));
        let (buffer, sent) = split(entry[3].load(Relaxed));
        let connection = entry[1].load(Relaxed);
        let received = Received { connection, offset, length, buffer, sent };
        fits(offset, length, receive_pool_bytes).then_some(received)
    }

    /// Reads an entry that the daemon wrote; `None` if it makes no sense.
    #[inline]
    pub(crate) fn decode(upper: u32, entry: &Entry, receive_pool_bytes: u32) -> Option<Self> {
        let (opcode, flags, stream) = split_upper(upper);
        let (low, high) = split(entry[2].load(Relaxed));
        match opcode {
            completion::RECEIVED => {
                let (buffer, sent) = split(entry[3].load(Relaxed));
                let connection = entry[1].load(Relaxed);
                let (offset, length) = (low, high);
                let received = Self::Received { connection, stream, offset, length, buffer, sent };
                fits(offset, length, receive_pool_bytes).then_some(received)
            }
            completion::FRAMES => {
                let (vif, buffer) = split(entry[1].load(Relaxed));
                let (offset, length, count) = (low, high, stream);
                check_burst(offset, length, count, receive_pool_bytes).ok()?;
                Some(Self::Frames { vif, offset, length, buffer, count })
            }
            completion::FRAMES_SENT => {
                let (vif, bursts) = split(entry[1].load(Relaxed));
                let (sent, rejected) = (pair(low, high), entry[3].load(Relaxed));
                Some(Self::FramesSent { vif, bursts, sent, rejected, reason: flags })
            }
            completion::SENT => Some(Self::Sent { connection: entry[1].load(Relaxed), sent: low }),
            completion::CONNECTED => Some(Self::Connected {
                token: entry[1].load(Relaxed),
                connection: pair(low, high),
                peer: decode_address(entry, 3).ok()?,
            }),
            completion::CONNECT_FAILED => Some(Self::ConnectFailed {
                token: entry[1].load(Relaxed),
                code: Code::from_i32(low as i32)?,
            }),
            completion::ACCEPTED => Some(Self::Accepted {
                connection: entry[1].load(Relaxed),
                listener: low,
                peer: decode_address(entry, 3).ok()?,
            }),
            completion::CLOSED => Some(Self::Closed {
                connection: entry[1].load(Relaxed),
                code: Code::from_i32(low as i32)?,
                sent: high,
            }),
            completion::VIF_CLOSED => Some(Self::VifClosed {
                vif: split(entry[1].load(Relaxed)).0,
                code: Code::from_i32(low as i32)?,
            }),
            _ => None,
        }
    }
}

/// Three words from `at`: port, family and scope; then the octets.
fn encode_address(address: &SocketAddr, entry: &Entry, at: usize) {
    let (family, scope, octets) = match address {
        SocketAddr::V4(v4) => (4u16, 0, u128::from(v4.ip().to_bits())),
        SocketAddr::V6(v6) => (6, v6.scope_id(), v6.ip().to_bits()),
    };
    let word = u64::from(address.port()) | u64::from(family) << 16 | u64::from(scope) << 32;
    entry[at].store(word, Relaxed);
    entry[at + 1].store(octets as u64, Relaxed);
    entry[at + 2].store((octets >> 64) as u64, Relaxed);
}

/// The address, or the family that is neither 4 nor 6.
fn decode_address(entry: &Entry, at: usize) -> Result<SocketAddr, u16> {
    let word = entry[at].load(Relaxed);
    let (port, family, scope) = (word as u16, (word >> 16) as u16, (word >> 32) as u32);
    let octets =
        u128::from(entry[at + 1].load(Relaxed)) | u128::from(entry[at + 2].load(Relaxed)) << 64;
    match family {
        4 => Ok(SocketAddrV4::new(Ipv4Addr::from_bits(octets as u32), port).into()),
        6 => Ok(SocketAddrV6::new(Ipv6Addr::from_bits(octets), port, 0, scope).into()),
        _ => Err(family),
    }
}

/// The upper half of word 0.
#[inline]
fn upper(opcode: u8, flags: u8, stream: u16) -> u32 {
    u32::from(opcode) | u32::from(flags) << 8 | u32::from(stream) << 16
}

#[inline]
fn split_upper(upper: u32) -> (u8, u8, u16) {
    (upper as u8, (upper >> 8) as u8, (upper >> 16) as u16)
}

#[inline]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[inline]
fn split(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// An IPv4 address that was written as IPv6 (`::ffff:a.b.c.d`), as IPv4. The engine knows hosts by
/// one address each.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
