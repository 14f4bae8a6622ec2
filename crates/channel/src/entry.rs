//! What the entries of the two rings say: [`Command`] from app to daemon, [`Completion`] back. Each
//! is declared once: opcode, fields and their places, and what must hold. The rest follows from
//! that (`entry/declared.rs`).
//!
//! An entry of an opcode that the reader does not know ends the channel: for the daemon it is a
//! [`Violation`], for the app damage. Neither happens between versions, see `layout/versions.rs`.
//! Bits and words that an opcode does not name are not read.

use core::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::layout::{BURST_FRAMES_MAX, FRAME_ALIGNMENT, MESSAGE_BYTES_MAX, RELEASES_PER_ENTRY};
use crate::ring::Entry;
use crate::{Code, Violation};

mod declared;
use declared::entries;
pub(crate) use declared::{Kind, Place};

entries! {
    /// From app to daemon.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Command {
        /// Opens a connection; `Connected` or `ConnectFailed` answers with the same token.
        CONNECT = 1 => Connect {
            1 {
                /// The app's name for the attempt.
                token: u64
            }
            2 {
                /// Host and port to connect to.
                peer: SocketAddr
            }
        }
        /// Sends a message that lies in the transmit pool.
        SEND = 2 => Send {
            stream {
                /// The ordering domain inside the connection; 0 so far.
                stream: u16
            }
            1 {
                /// The connection.
                connection: u64
            }
            2 {
                /// Where the message starts in the transmit pool.
                offset: u32,
                /// Bytes of the message.
                length: u32
            }
        } [check_send(offset, length)]
        /// Gives receive buffers back.
        RELEASE = 3 => Release {
            list {
                /// Their ids.
                buffers: ReleaseList
            }
        }
        /// Ends a connection.
        CLOSE = 4 => Close {
            flags {
                /// False: what was sent before still arrives. True: at once.
                abort: bool
            }
            1 {
                /// The connection.
                connection: u64
            }
        }
        /// Sends a burst of frames that lies in the transmit pool, packed as `burst.rs` says.
        /// Counts as one send; `FramesSent` answers.
        SEND_FRAMES = 5 => SendFrames {
            stream {
                /// Frames in it.
                count: u16
            }
            1 {
                /// The virtual interface.
                vif: u32
            }
            2 {
                /// Where the burst starts in the transmit pool: a multiple of 8.
                offset: u32,
                /// Bytes of the burst, headers and padding included.
                length: u32
            }
        } [check_burst(offset, length, count)]
        /// Has a connection given up after another silence of its peer than the daemon's others.
        SET_SILENCE = 6 => SetSilence {
            1 {
                /// The connection.
                connection: u64
            }
            2 {
                /// How long; the daemon bounds it.
                silence_ms: u32
            }
        }
    }
}

entries! {
    /// From daemon to app. `sent` is the number of the connection's sends that are finished so far,
    /// in order, wrapping: their buffers are the app's again.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Completion {
        /// A connection that the app asked for is open.
        CONNECTED = 1 => Connected {
            1 {
                /// The token of the `Connect`.
                token: u64
            }
            2 {
                /// The new connection.
                connection: u64
            }
            3 {
                /// Its other end.
                peer: SocketAddr
            }
        }
        /// A connection that the app asked for could not be opened.
        CONNECT_FAILED = 2 => ConnectFailed {
            1 {
                /// The token of the `Connect`.
                token: u64
            }
            2 {
                /// Why.
                code: Code
            }
        }
        /// A peer has connected to one of the app's listeners.
        ACCEPTED = 3 => Accepted {
            1 {
                /// The new connection.
                connection: u64
            }
            2 {
                /// The listener.
                listener: u32
            }
            3 {
                /// Its other end.
                peer: SocketAddr
            }
        }
        /// A message has arrived.
        RECEIVED = 4 => Received {
            stream {
                /// The ordering domain inside the connection.
                stream: u16
            }
            1 {
                /// The connection.
                connection: u64
            }
            2 {
                /// Where the message starts in the receive pool.
                offset: u32,
                /// Bytes of the message.
                length: u32
            }
            3 {
                /// The buffer to release when the message has been read.
                buffer: u32,
                /// Finished sends so far.
                sent: u32
            }
        } [check_extent(offset, length)]
        /// Sends are finished.
        SENT = 5 => Sent {
            1 {
                /// The connection.
                connection: u64
            }
            2 {
                /// Finished sends so far.
                sent: u32
            }
        }
        /// A connection has ended: the last that is heard of it. All its sends are over.
        CLOSED = 6 => Closed {
            1 {
                /// The connection.
                connection: u64
            }
            2 {
                /// `Code::Closed` for an orderly end, else why.
                code: Code,
                /// Sends that had finished before the end.
                sent: u32
            }
        }
        /// A burst of frames has arrived, packed as `burst.rs` says.
        FRAMES = 7 => Frames {
            stream {
                /// Frames in it.
                count: u16
            }
            1 {
                /// The virtual interface.
                vif: u32,
                /// The buffer to release when the frames have been read.
                buffer: u32
            }
            2 {
                /// Where the burst starts in the receive pool.
                offset: u32,
                /// Bytes of the burst, headers and padding included.
                length: u32
            }
        } [check_burst(offset, length, count)]
        /// What has become of the frames that a virtual interface sent, since it was opened.
        FRAMES_SENT = 8 => FramesSent {
            flags {
                /// Why the last of these was refused; 0 if none was. The engine's numbers.
                reason: u8
            }
            1 {
                /// The virtual interface.
                vif: u32,
                /// Bursts that are finished, in order, wrapping: their memory is the app's again.
                bursts: u32
            }
            2 {
                /// Frames that left, by the NIC or to another app.
                sent: u64
            }
            3 {
                /// Frames that were refused.
                rejected: u64
            }
        }
        /// The daemon has taken a virtual interface away: the last that is heard of it. All its
        /// sends are over.
        VIF_CLOSED = 9 => VifClosed {
            1 {
                /// The virtual interface.
                vif: u32
            }
            2 {
                /// Why.
                code: Code
            }
        }
    }
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
    /// Reads an entry that an app wrote if it is a valid `Send` on the first stream. Whatever else
    /// it is, [`Command::decode`] finds out.
    #[inline]
    pub(crate) fn decode_send(
        upper: u32,
        entry: &Entry,
        transmit_pool_bytes: u32,
    ) -> Option<Submitted> {
        if upper as u8 != Self::SEND {
            return None;
        }
        match Self::decode_as::<{ Self::SEND }>(upper, entry, transmit_pool_bytes) {
            Ok(Self::Send { connection, stream: 0, offset, length }) => {
                Some(Submitted { connection, offset, length })
            }
            _ => None,
        }
    }
}

impl Completion {
    /// Reads an entry that the daemon wrote if it is a valid `Received`. Whatever else it is,
    /// [`Completion::decode`] finds out.
    #[inline]
    pub(crate) fn decode_received(
        upper: u32,
        entry: &Entry,
        receive_pool_bytes: u32,
    ) -> Option<Self> {
        if upper as u8 != Self::RECEIVED {
            return None;
        }
        Self::decode_as::<{ Self::RECEIVED }>(upper, entry, receive_pool_bytes).ok()
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
    if u64::from(offset) + u64::from(length) > u64::from(pool_bytes) {
        return Err(Violation::Extent { offset, length });
    }
    Ok(())
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
