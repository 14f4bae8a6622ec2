//! What the entries of the two rings say: [`Command`] from app to daemon, [`Completion`] back. Each
//! is declared once: opcode, fields and their places, and what must hold. The rest follows from
//! that (`entry/declared.rs`).
//!
//! An entry of an opcode that the reader does not know ends the channel: for the daemon it is a
//! [`Violation`], for the app damage. Neither happens between versions, see `layout/versions.rs`.
//! Bits and words that an opcode does not name are not read.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::layout::{BURST_FRAMES_MAX, FRAME_ALIGNMENT, MESSAGE_BYTES_MAX, RELEASES_PER_ENTRY};
use crate::operation::{DESCRIPTION_BYTES_MAX, GROUP_BYTES_MAX};
use crate::ring::Entry;
use crate::{Code, Violation};

mod declared;
mod submitted;
use declared::entries;
pub(crate) use declared::{Kind, Place};
pub use submitted::{Next, Submitted, SubmittedBytes};

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
                /// Must be 0: a stream is a connection of its own.
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
        /// Has a TCP port of the app accept connections, of which so many may wait for the engine;
        /// again to change how many, and none any more with 0. `TcpAccepted` tells of each.
        TCP_LISTEN = 7 => TcpListen {
            1 {
                /// The port, as the control socket has named it.
                port: u32,
                /// Connections that may wait, at most.
                backlog: u32
            }
        }
        /// Opens a TCP connection from a TCP port of the app; `TcpConnected` or `TcpConnectFailed`
        /// answers with the same token.
        TCP_CONNECT = 8 => TcpConnect {
            1 {
                /// The app's name for the attempt.
                token: u64
            }
            2 {
                /// The port, as the control socket has named it.
                port: u32
            }
            3 {
                /// Address and port to connect to.
                peer: SocketAddr
            }
        }
        /// Appends bytes that lie in the transmit pool to what a TCP connection sends. They are the
        /// engine's until `sent` says that this send is finished: it reads them whenever a segment
        /// with them leaves. Counts as one send.
        TCP_SEND = 9 => TcpSend {
            flags {
                /// More follows at once: what does not fill a segment may wait for it.
                has_more: bool
            }
            1 {
                /// The connection.
                connection: u64
            }
            2 {
                /// Where the bytes start in the transmit pool.
                offset: u32,
                /// How many there are, at least one.
                length: u32
            }
        } [check_bytes(offset, length)]
        /// The app will send no more on a TCP connection; it still receives.
        TCP_SHUTDOWN = 10 => TcpShutdown {
            1 {
                /// The connection.
                connection: u64
            }
        }
        /// Lets go of a TCP connection: nothing more is received. `TcpClosed` answers, in the end.
        TCP_CLOSE = 11 => TcpClose {
            flags {
                /// False: what was sent before still arrives. True: the peer gets a reset.
                abort: bool
            }
            1 {
                /// The connection.
                connection: u64
            }
        }
        /// Sets an option of a TCP connection. One that the engine does not know changes nothing.
        TCP_SET = 12 => TcpSet {
            1 {
                /// The connection.
                connection: u64
            }
            2 {
                /// Which: one of [`tcp_option`](crate::tcp_option).
                option: u32,
                /// The new value.
                value: u32
            }
        }
        /// Shares a piece of the shared memory; `Shared` answers with the same token.
        SHARE = 13 => Share {
            1 {
                /// The app's name for the attempt.
                token: u64
            }
            2 {
                /// Where the description starts in the transmit pool; see `operation.rs`.
                offset: u32,
                /// Bytes of it.
                length: u32
            }
            3 {
                /// Where the region starts in the shared memory, a multiple of 8.
                start: u32,
                /// Bytes of the region, a multiple of 8.
                bytes: u32
            }
        } [check_description(offset, length)]
        /// Revokes a region; `Unshared` answers with the same token.
        UNSHARE = 14 => Unshare {
            1 {
                /// The app's name for the attempt.
                token: u64
            }
            2 {
                /// The handle.
                region: u64
            }
        }
        /// Asks for a one-sided operation that takes nothing along; `Operated` answers with the
        /// same token. What the words mean for each kind is in `docs/operations.md`.
        ASK = 15 => Ask {
            flags {
                /// Which operation.
                kind: u8
            }
            stream {
                /// Bytes from one entry to the next.
                stride: u16
            }
            1 {
                /// The connection to the owner.
                connection: u64
            }
            2 {
                /// The app's name for the operation.
                token: u64
            }
            3 {
                /// The handle of the region.
                region: u64
            }
            4 {
                /// Where in it.
                place: u64
            }
            5 {
                /// Bytes to read, at most.
                bytes: u32,
                /// How many entries.
                count: u32
            }
            6 {
                /// What to add, to expect or to look for.
                operand: u64
            }
            7 {
                /// What to put there, or the handle of the region that is pointed to.
                second: u64
            }
        }
        /// The same with a payload: bytes to write, a name, or offsets.
        ASK_WITH = 16 => AskWith {
            flags {
                /// Which operation.
                kind: u8
            }
            1 {
                /// The connection to the owner.
                connection: u64
            }
            2 {
                /// The app's name for the operation.
                token: u64
            }
            3 {
                /// The handle of the region.
                region: u64
            }
            4 {
                /// Where in it.
                place: u64
            }
            5 {
                /// Where the payload starts in the transmit pool. It stays there until `Operated`.
                offset: u32,
                /// Bytes of it.
                length: u32
            }
            6 {
                /// What to tell the owner, or bytes to read at most of each.
                operand: u64
            }
            7 {
                /// The handle of the region that is pointed to.
                second: u64
            }
        } [check_send(offset, length)]
        /// Opens a stream: another connection to the same app, which needs no packets of its own to
        /// be opened and ends with this one. `Connected` or `ConnectFailed` answers with the same
        /// token.
        OPEN_STREAM = 17 => OpenStream {
            1 {
                /// The app's name for the attempt.
                token: u64
            }
            2 {
                /// The connection, which is no stream itself.
                connection: u64
            }
        }
        /// Whether peers may open streams of this channel's connections: `StreamAccepted` tells of
        /// them. Before this is sent they may not.
        TAKE_STREAMS = 18 => TakeStreams {
            flags {
                /// They may.
                are_taken: bool
            }
        }
        /// What a connection may send beside its streams, and each of these beside the others.
        SET_PRIORITY = 19 => SetPriority {
            flags {
                /// From 0, which goes first, to 7.
                urgency: u8
            }
            stream {
                /// Its part among those of the same urgency, from 1 to 256.
                weight: u16
            }
            1 {
                /// The connection.
                connection: u64
            }
        }
        /// From now on messages of a connection are delivered as they become whole, in whatever
        /// order.
        SET_UNORDERED = 20 => SetUnordered {
            1 {
                /// The connection.
                connection: u64
            }
        }
        /// The same as `Connect`, of a connection that shares its way through the network with
        /// others of the user to the same peer which are opened so.
        CONNECT_SHARED = 21 => ConnectShared {
            1 {
                /// The app's name for the attempt.
                token: u64
            }
            2 {
                /// Host and port to connect to.
                peer: SocketAddr
            }
        }
        /// Shares a piece of any memory of the channel; `Shared` answers with the same token.
        SHARE_MEMORY = 22 => ShareMemory {
            1 {
                /// The app's name for the attempt.
                token: u64
            }
            2 {
                /// Where the description starts in the transmit pool; see `operation.rs`.
                offset: u32,
                /// Bytes of it.
                length: u32
            }
            3 {
                /// Which memory: 0 for the channel's own, or the number of one that was added.
                memory: u64
            }
            4 {
                /// Where the region starts in it, a multiple of 8.
                start: u64
            }
            5 {
                /// Bytes of the region, a multiple of 8.
                bytes: u64
            }
        } [check_description(offset, length)]
        /// Sends a message that lies in the transmit pool, as `Send`, unless nothing of it can
        /// leave in time: then `Dropped` tells of it before it counts as finished.
        SEND_WITHIN = 23 => SendWithin {
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
            3 {
                /// Its time in microseconds, from when the engine takes this command.
                within_us: u32
            }
        } [check_send(offset, length)]
        /// Whether the app is told, by `Skipped`, of messages that peers have dropped. Before this
        /// is sent it is not.
        TELL_SKIPPED = 24 => TellSkipped {
            flags {
                /// It is.
                is_told: bool
            }
        }
        /// Lines up a piece of any memory of the channel for a large message of a connection. It is
        /// the engine's until `Placed` or `Unposted` tells of its end.
        POST = 25 => Post {
            1 {
                /// The connection.
                connection: u64
            }
            2 {
                /// The app's name for it, which need not be the only one of it.
                tag: u64
            }
            3 {
                /// Which memory: 0 for the channel's own, or the number of one that was added.
                memory: u64
            }
            4 {
                /// Where the piece starts in it.
                start: u64
            }
            5 {
                /// Bytes of it.
                bytes: u64
            }
        }
        /// Takes back the first buffer of this tag that is posted on a connection and has no
        /// message coming into it: `Unposted` answers. If there is none, nothing does.
        UNPOST = 26 => Unpost {
            1 {
                /// The connection.
                connection: u64
            }
            2 {
                /// The tag.
                tag: u64
            }
        }
        /// Says who is in a group of peers, from now on; `GroupSet` answers with the same token.
        SET_GROUP = 27 => SetGroup {
            1 {
                /// The app's name for the attempt.
                token: u64
            }
            2 {
                /// Where the group starts in the transmit pool; see `operation/group.rs`.
                offset: u32,
                /// Bytes of it.
                length: u32
            }
        } [check_group(offset, length)]
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
                /// 0: a stream is a connection of its own.
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
        /// A peer has connected to a TCP port of the app.
        TCP_ACCEPTED = 10 => TcpAccepted {
            1 {
                /// The new connection.
                connection: u64
            }
            2 {
                /// The port, as the control socket has named it.
                port: u32
            }
            3 {
                /// Its other end.
                peer: SocketAddr
            }
            6 {
                /// The address of this host that the peer has connected to, one of IPv4 as
                /// `::ffff:a.b.c.d` (RFC 4291, section 2.5.5.2).
                local: Ipv6Addr
            }
        }
        /// A TCP connection that the app asked for is open.
        TCP_CONNECTED = 11 => TcpConnected {
            flags {
                /// What its peer sends comes to another engine's queue: from another port it may
                /// come to this one's.
                is_detour: bool
            }
            1 {
                /// The token of the `TcpConnect`.
                token: u64
            }
            2 {
                /// The new connection.
                connection: u64
            }
            3 {
                /// This end of it.
                local: SocketAddr
            }
        }
        /// A TCP connection that the app asked for could not be opened.
        TCP_CONNECT_FAILED = 12 => TcpConnectFailed {
            1 {
                /// The token of the `TcpConnect`.
                token: u64
            }
            2 {
                /// Why.
                code: Code
            }
        }
        /// The next bytes of a TCP connection have arrived.
        TCP_RECEIVED = 13 => TcpReceived {
            1 {
                /// The connection.
                connection: u64
            }
            2 {
                /// Where they start in the receive pool.
                offset: u32,
                /// How many there are.
                length: u32
            }
            3 {
                /// The buffer to release when they have been read; the peer's window grows by that.
                buffer: u32,
                /// Finished sends so far.
                sent: u32
            }
        } [check_extent(offset, length)]
        /// Sends of a TCP connection are finished: the peer has acknowledged them.
        TCP_SENT = 14 => TcpSent {
            1 {
                /// The connection.
                connection: u64
            }
            2 {
                /// Finished sends so far.
                sent: u32
            }
        }
        /// The peer of a TCP connection has sent all that it will send; it still receives.
        TCP_FINISHED = 15 => TcpFinished {
            1 {
                /// The connection.
                connection: u64
            }
        }
        /// A TCP connection has ended: the last that is heard of it. All its sends are over.
        TCP_CLOSED = 16 => TcpClosed {
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
        /// A region is shared, or is not.
        SHARED = 17 => Shared {
            flags {
                /// What came of it: 0 if it is.
                status: u8
            }
            1 {
                /// The token of the `Share`.
                token: u64
            }
            2 {
                /// Its handle.
                region: u64
            }
        }
        /// A region is revoked: nobody reads or changes it any more.
        UNSHARED = 18 => Unshared {
            flags {
                /// What came of it: 0 if it is.
                status: u8
            }
            1 {
                /// The token of the `Unshare`.
                token: u64
            }
        }
        /// A one-sided operation is over: what it took along is the app's again.
        OPERATED = 19 => Operated {
            flags {
                /// What came of it: 0 if it was done.
                status: u8
            }
            1 {
                /// Its token.
                token: u64
            }
            2 {
                /// What was there before, the entry, the index of the match, or the handle.
                value: u64
            }
            3 {
                /// Bytes of the region that was found.
                extra: u64
            }
            4 {
                /// Where what was read starts in the receive pool.
                offset: u32,
                /// Bytes of it.
                length: u32
            }
            5 {
                /// The buffer to release when it has been read; 2^32 - 1 if nothing was.
                buffer: u32
            }
        } [check_extent(offset, length)]
        /// A peer has written into a region, and says so.
        NOTIFIED = 20 => Notified {
            1 {
                /// The connection that it came by.
                connection: u64
            }
            2 {
                /// The handle of the region.
                region: u64
            }
            3 {
                /// Where in it.
                place: u64
            }
            4 {
                /// Bytes that were written.
                bytes: u32
            }
            5 {
                /// What the peer says.
                value: u64
            }
        }
        /// A peer has opened a stream.
        STREAM_ACCEPTED = 21 => StreamAccepted {
            1 {
                /// The new connection.
                connection: u64
            }
            2 {
                /// The one of which it is a stream.
                parent: u64
            }
        }
        /// A message of `SendWithin` could not leave in time, and is not sent. The peer's daemon
        /// knows.
        DROPPED = 22 => Dropped {
            1 {
                /// The connection.
                connection: u64
            }
            2 {
                /// Which of the connection's sends it was, from 0 on, wrapping.
                send: u32
            }
        }
        /// The peer has dropped messages that would have been next.
        SKIPPED = 23 => Skipped {
            1 {
                /// The connection.
                connection: u64
            }
            2 {
                /// How many.
                messages: u32
            }
        }
        /// A message has arrived in a posted buffer, which is the app's again.
        PLACED = 24 => Placed {
            1 {
                /// The connection.
                connection: u64
            }
            2 {
                /// The tag of the buffer.
                tag: u64
            }
            3 {
                /// Bytes of the message, from the start of the buffer.
                length: u32,
                /// Finished sends so far.
                sent: u32
            }
        }
        /// A posted buffer is the app's again without a message.
        UNPOSTED = 25 => Unposted {
            flags {
                /// Why: see `unposted.rs`.
                why: u8
            }
            1 {
                /// The connection.
                connection: u64
            }
            2 {
                /// The tag of the buffer.
                tag: u64
            }
        }
        /// A group has the members that the app has said, or is as it was. If it has: who was in it
        /// and is no longer does nothing more by it.
        GROUP_SET = 26 => GroupSet {
            flags {
                /// What came of it: 0 if it has.
                status: u8
            }
            1 {
                /// The token of the `SetGroup`.
                token: u64
            }
        }
    }
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

#[inline]
fn check_send(offset: u32, length: u32, pool_bytes: u32) -> Result<(), Violation> {
    if length > MESSAGE_BYTES_MAX {
        return Err(Violation::MessageTooLarge(length));
    }
    check_extent(offset, length, pool_bytes)
}

#[inline]
fn check_bytes(offset: u32, length: u32, pool_bytes: u32) -> Result<(), Violation> {
    if length == 0 {
        return Err(Violation::Extent { offset, length });
    }
    check_send(offset, length, pool_bytes)
}

#[inline]
fn check_description(offset: u32, length: u32, pool_bytes: u32) -> Result<(), Violation> {
    if length as usize > DESCRIPTION_BYTES_MAX {
        return Err(Violation::Description(length));
    }
    check_extent(offset, length, pool_bytes)
}

#[inline]
fn check_group(offset: u32, length: u32, pool_bytes: u32) -> Result<(), Violation> {
    if length as usize > GROUP_BYTES_MAX {
        return Err(Violation::Description(length));
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
