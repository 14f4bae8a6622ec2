//! Events, and waiting for them in an event loop of the app's own.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};

use clearway_client::Event;

use crate::attach::clearway_channel;
use crate::connect::clearway_address;
use crate::failure::{call, call_int};
use crate::held::Held;
use crate::message::clearway_message;
use crate::pointer;
use crate::tcp;
use crate::vif::clearway_frames;

/// What an event is about.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum clearway_event_kind {
    /// A peer has connected: `connection`, `listener`, `peer`.
    CLEARWAY_EVENT_ACCEPTED = 1,
    /// clearway_start_connect or clearway_start_open_stream has succeeded: `connection`, `token`,
    /// `peer`.
    CLEARWAY_EVENT_CONNECTED = 2,
    /// clearway_start_connect or clearway_start_open_stream has failed: `token`, `code`.
    CLEARWAY_EVENT_CONNECT_FAILED = 3,
    /// A message has come: `connection`, `message`, which must be released.
    CLEARWAY_EVENT_MESSAGE = 4,
    /// A connection has ended: `connection`, `code`.
    CLEARWAY_EVENT_CLOSED = 5,
    /// There is room to send again, after a send had answered `CLEARWAY_WOULD_BLOCK` or
    /// `CLEARWAY_TIMED_OUT`.
    CLEARWAY_EVENT_WRITABLE = 6,
    /// Frames have come: `frames`, which clearway_vif_list shows and which must be released.
    CLEARWAY_EVENT_FRAMES = 7,
    /// The daemon has taken a virtual interface away: `vif`, `code`.
    CLEARWAY_EVENT_VIF_CLOSED = 8,
    /// A one-sided operation is over: `token`. clearway_next_operated gives it, at once.
    CLEARWAY_EVENT_OPERATED = 9,
    /// A peer has written into a region, and says so: `connection`. clearway_next_notified gives
    /// it, at once.
    CLEARWAY_EVENT_NOTIFIED = 10,
    /// A peer has opened a TCP connection: `connection`, `listener` (the TCP port), `peer`.
    CLEARWAY_EVENT_TCP_ACCEPTED = 11,
    /// clearway_tcp_start_connect has succeeded: `connection`, `token`.
    CLEARWAY_EVENT_TCP_CONNECTED = 12,
    /// clearway_tcp_start_connect has failed: `token`, `code`.
    CLEARWAY_EVENT_TCP_CONNECT_FAILED = 13,
    /// Something has happened to a TCP connection since it was last named: `connection`, `ready`
    /// (0: nothing can be done now, but something was acknowledged, or was received already). Do
    /// all that can be done, until CLEARWAY_WOULD_BLOCK, or remember it: it is not told again.
    CLEARWAY_EVENT_TCP_READY = 14,
    /// The daemon has taken a TCP port away, and nobody can connect there any more: `listener`,
    /// `code`.
    CLEARWAY_EVENT_TCP_PORT_CLOSED = 15,
    /// A peer has opened a stream: `connection`, `parent`.
    CLEARWAY_EVENT_STREAM_ACCEPTED = 16,
    /// A message of clearway_send_within or clearway_commit_within could not leave in time, and was
    /// dropped; the peer knows: `connection`, `token`. Calls that only receive messages pass over
    /// it.
    CLEARWAY_EVENT_DROPPED = 17,
    /// The peer has dropped messages that would have come next (clearway_tell_skipped):
    /// `connection`, and in `token` how many.
    CLEARWAY_EVENT_SKIPPED = 18,
    /// A posted buffer is the app's again: `connection`, and in `token` its tag.
    /// clearway_next_posted gives its end, at once.
    CLEARWAY_EVENT_POSTED = 19,
}

/// Something that happened. Fields that its kind does not name are zero.
#[repr(C)]
pub struct clearway_event {
    /// One of `enum clearway_event_kind`. Skip kinds you do not know: newer libraries may have
    /// more.
    pub kind: u32,
    /// An error code: why.
    pub code: c_int,
    /// The connection.
    pub connection: u64,
    /// From clearway_start_connect, clearway_start_open_stream, clearway_start_operation or
    /// clearway_send_within; or how many messages were dropped; or the tag of clearway_post.
    pub token: u64,
    /// From clearway_listen, or the TCP port from clearway_tcp_listen.
    pub listener: u32,
    /// The other end.
    pub peer: clearway_address,
    /// The message.
    pub message: clearway_message,
    /// The virtual interface.
    pub vif: u32,
    /// The frames.
    pub frames: clearway_frames,
    /// Bits of `enum clearway_tcp_ready_bits`.
    pub ready: u32,
    /// The connection of which it is a stream.
    pub parent: u64,
}

/// Waits for whatever happens next on the channel, and stores it. Returns 0 or a negative error
/// code.
///
/// # Safety
/// `channel` is NULL or valid; `event` is NULL or valid for writing, and holds neither message nor
/// frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_next_event(
    channel: *mut clearway_channel,
    timeout_ns: i64,
    event: *mut clearway_event,
) -> c_int {
    call_int(|| {
        if event.is_null() {
            return Err(pointer::invalid("event is NULL"));
        }
        // SAFETY: the caller's promise.
        let clearway_channel { channel, held, .. } = unsafe { pointer::attached(channel) }?;
        let happened = channel.next_event(pointer::timeout(timeout_ns))?;
        // SAFETY: not null; valid by the caller's promise.
        unsafe { pointer::store(event, clearway_event::holding(happened, held)) };
        Ok(())
    })
}

/// Waits until something happens on the channel, as clearway_next_event does, and stores all that
/// has happened by then, `count` events at most: for loops that serve many. Each TCP connection of
/// clearway_tcp_watch is told of again once at most. Returns how many are stored, 1 or more, or a
/// negative error code; CLEARWAY_INVALID if `count` is 0.
///
/// # Safety
/// `channel` is NULL or valid; `events` is NULL or valid for writing so many, which hold neither
/// messages nor frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_next_events(
    channel: *mut clearway_channel,
    timeout_ns: i64,
    events: *mut clearway_event,
    count: usize,
) -> i64 {
    call(|| {
        if events.is_null() || count == 0 {
            return Err(pointer::invalid("events is NULL, or count is 0"));
        }
        // SAFETY: the caller's promise.
        let clearway_channel { channel, held, happened, .. } =
            unsafe { pointer::attached(channel) }?;
        let stored = channel.next_events(happened, count, pointer::timeout(timeout_ns))?;
        for (at, event) in happened.drain(..).enumerate() {
            // SAFETY: not null, and there are no more than `count`; valid by the caller's promise.
            unsafe { pointer::store(events.add(at), clearway_event::holding(event, held)) };
        }
        Ok(stored as i64)
    })
}

impl clearway_event {
    /// Nothing has happened.
    pub(crate) fn empty() -> Self {
        Self {
            kind: 0,
            code: 0,
            connection: 0,
            token: 0,
            listener: 0,
            peer: clearway_address { host: [0; 64], port: 0 },
            message: clearway_message::empty(0),
            vif: 0,
            frames: clearway_frames::empty(0),
            ready: 0,
            parent: 0,
        }
    }

    pub(crate) fn holding(event: Event, held: &mut Held) -> Self {
        use clearway_event_kind as Kind;
        let mut told = Self::empty();
        let kind = match event {
            Event::Accepted(accepted) => {
                told.connection = accepted.connection.as_u64();
                told.listener = accepted.listener.as_u32();
                told.peer = accepted.peer.into();
                Kind::CLEARWAY_EVENT_ACCEPTED
            }
            Event::StreamAccepted(accepted) => {
                told.connection = accepted.connection.as_u64();
                told.parent = accepted.parent.as_u64();
                Kind::CLEARWAY_EVENT_STREAM_ACCEPTED
            }
            Event::Connected { token, connection, peer } => {
                (told.token, told.connection) = (token.as_u64(), connection.as_u64());
                told.peer = peer.into();
                Kind::CLEARWAY_EVENT_CONNECTED
            }
            Event::ConnectFailed { token, code } => {
                (told.token, told.code) = (token.as_u64(), code.as_i32());
                Kind::CLEARWAY_EVENT_CONNECT_FAILED
            }
            Event::Message(message) => {
                told.connection = message.connection().as_u64();
                told.message = clearway_message::holding(message, held);
                Kind::CLEARWAY_EVENT_MESSAGE
            }
            Event::Dropped { connection, message } => {
                (told.connection, told.token) = (connection.as_u64(), message.into());
                Kind::CLEARWAY_EVENT_DROPPED
            }
            Event::Skipped { connection, messages } => {
                (told.connection, told.token) = (connection.as_u64(), messages.into());
                Kind::CLEARWAY_EVENT_SKIPPED
            }
            Event::PostEnded(end) => {
                (told.connection, told.token) = (end.connection.as_u64(), end.tag);
                held.told.posted.push_back(end);
                Kind::CLEARWAY_EVENT_POSTED
            }
            Event::Closed { connection, code } => {
                (told.connection, told.code) = (connection.as_u64(), code.as_i32());
                Kind::CLEARWAY_EVENT_CLOSED
            }
            Event::Frames(frames) => {
                told.vif = frames.vif().as_u32();
                told.frames = clearway_frames::holding(frames, held);
                Kind::CLEARWAY_EVENT_FRAMES
            }
            Event::VifClosed { vif, code } => {
                (told.vif, told.code) = (vif.as_u32(), code.as_i32());
                Kind::CLEARWAY_EVENT_VIF_CLOSED
            }
            Event::TcpAccepted { port, connection, peer } => {
                (told.listener, told.connection) = (port.as_u32(), connection.as_u64());
                told.peer = peer.into();
                Kind::CLEARWAY_EVENT_TCP_ACCEPTED
            }
            Event::TcpConnected { token, connection } => {
                (told.token, told.connection) = (token.as_u64(), connection.as_u64());
                Kind::CLEARWAY_EVENT_TCP_CONNECTED
            }
            Event::TcpConnectFailed { token, code } => {
                (told.token, told.code) = (token.as_u64(), code.as_i32());
                Kind::CLEARWAY_EVENT_TCP_CONNECT_FAILED
            }
            Event::TcpReady { connection, ready } => {
                (told.connection, told.ready) = (connection.as_u64(), tcp::bits(ready));
                Kind::CLEARWAY_EVENT_TCP_READY
            }
            Event::TcpPortClosed { port, code } => {
                (told.listener, told.code) = (port.as_u32(), code.as_i32());
                Kind::CLEARWAY_EVENT_TCP_PORT_CLOSED
            }
            Event::Operated(operated) => {
                told.token = operated.id.as_u64();
                held.told.operated.push_back(operated);
                Kind::CLEARWAY_EVENT_OPERATED
            }
            Event::Notified(notified) => {
                told.connection = notified.connection.as_u64();
                held.told.notified.push_back(notified);
                Kind::CLEARWAY_EVENT_NOTIFIED
            }
            Event::Writable => Kind::CLEARWAY_EVENT_WRITABLE,
            _ => return told,
        };
        told.kind = kind as u32;
        told
    }
}

/// A descriptor for poll, select or epoll: readable when there is something for
/// clearway_next_event, or another thread has released something, but only between clearway_arm
/// and clearway_disarm. Do not read, write or close it. Returns it, or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_fd(channel: *mut clearway_channel) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        Ok(channel.as_fd().as_raw_fd().into())
    }) as c_int
}

/// Before waiting on clearway_fd. Returns 1: wait. 0: something is there already; do not wait. Or a
/// negative error code. In every case clearway_disarm has to follow before the next call.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_arm(channel: *mut clearway_channel) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let clearway_channel { channel, calls, .. } = unsafe { pointer::attached(channel) }?;
        Ok(calls.arm(channel).into())
    }) as c_int
}

/// After waiting on clearway_fd. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_disarm(channel: *mut clearway_channel) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        unsafe { pointer::channel(channel) }?.disarm();
        Ok(())
    })
}
