//! Sending and receiving, by copy and in place.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::time::Duration;

use clearway_client::{Channel, ConnectionId, Error, Message, SendBuffer, TcpBytes};

use crate::attach::clearway_channel;
use crate::failure::{call, call_int};
use crate::held::{Held, Value, Words, release, release_elsewhere};
use crate::pointer;

/// A received message in place, or bytes of a TCP connection. Valid until it, or a copy of it, is
/// given to clearway_release.
#[repr(C)]
pub struct clearway_message {
    /// The bytes; read only.
    pub data: *const c_void,
    /// How many.
    pub length: usize,
    /// The connection they came by.
    pub connection: u64,
    /// The library's own.
    pub reserved: [u64; 5],
}

/// A buffer for a message to be sent. Valid until it, or a copy of it, is given to clearway_commit,
/// clearway_commit_within or clearway_discard.
#[repr(C)]
pub struct clearway_writable {
    /// Where to write.
    pub data: *mut c_void,
    /// How many bytes there are.
    pub length: usize,
    /// The library's own.
    pub reserved: [u64; 5],
}

/// Sends `length` bytes (at most 8 MiB). Waits up to `timeout_ns` nanoseconds while there is no
/// room (0: not at all; negative: as long as it takes). The bytes are copied: they may be changed
/// when this returns. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid; `data` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_send(
    channel: *mut clearway_channel,
    connection: u64,
    data: *const c_void,
    length: usize,
    timeout_ns: i64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { pointer::bytes(data.cast(), length) }?;
        let connection = ConnectionId::from_u64(connection);
        channel.send_timeout(connection, bytes, pointer::timeout(timeout_ns))
    })
}

/// Sends a message that is worth nothing after `within_ns` nanoseconds (counted in microseconds, at
/// most 71 minutes): if nothing of it has left for the peer by then, because the network, the peer
/// or what was sent before holds it up, it may be dropped. CLEARWAY_EVENT_DROPPED then tells of it
/// here, and CLEARWAY_EVENT_SKIPPED at the peer if that has asked for it; else it arrives as any
/// other. Stores its number among the messages that were sent on the connection, from 0 on,
/// wrapping, unless `number` is NULL. Waits for room no longer than that, and is not sent if there
/// is none. A peer of an older release gets it, however late, and so does one if it waits behind
/// one-sided operations. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid; `data` points to `length` bytes; `number` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_send_within(
    channel: *mut clearway_channel,
    connection: u64,
    data: *const c_void,
    length: usize,
    within_ns: u64,
    number: *mut u32,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { pointer::bytes(data.cast(), length) }?;
        let connection = ConnectionId::from_u64(connection);
        let sent = channel.send_within(connection, bytes, Duration::from_nanos(within_ns))?;
        // SAFETY: the caller's promise.
        unsafe { pointer::store(number, sent) };
        Ok(())
    })
}

/// Whether clearway_next_event tells, by CLEARWAY_EVENT_SKIPPED, of messages that peers have
/// dropped (1), or not (0, as at first). Calls that only receive pass over them. Returns 0 or a
/// negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tell_skipped(
    channel: *mut clearway_channel,
    is_told: c_int,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.tell_skipped(is_told != 0)
    })
}

/// Receives the next message of any connection into `buffer`, and stores the connection unless
/// `connection` is NULL. Returns the length of the message, or a negative error code.
/// A code with `CLEARWAY_ENDED_CONNECTION` (see clearway_what_ended), or `CLEARWAY_REFUSED` of a
/// stream, tells, once, that the connection stored has ended. A message that is larger than
/// `capacity` stays the next one, and the answer is `CLEARWAY_TOO_LARGE`.
///
/// # Safety
/// Pointers are NULL or valid; `buffer` points to `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_recv(
    channel: *mut clearway_channel,
    buffer: *mut c_void,
    capacity: usize,
    timeout_ns: i64,
    connection: *mut u64,
) -> i64 {
    call(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        // SAFETY: the caller's promise.
        let place = unsafe { pointer::place(buffer.cast(), capacity) }?;
        let received = channel.recv(place, pointer::timeout(timeout_ns));
        // SAFETY: the caller's promise.
        let (_, length) = unsafe { tell_connection(received, connection, |(from, _)| *from) }?;
        Ok(length as i64)
    })
}

/// The same for the next message of one connection. What comes by others meanwhile is kept.
///
/// # Safety
/// Pointers are NULL or valid; `buffer` points to `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_recv_from(
    channel: *mut clearway_channel,
    connection: u64,
    buffer: *mut c_void,
    capacity: usize,
    timeout_ns: i64,
) -> i64 {
    call(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        // SAFETY: the caller's promise.
        let place = unsafe { pointer::place(buffer.cast(), capacity) }?;
        let connection = ConnectionId::from_u64(connection);
        Ok(channel.recv_from(connection, place, pointer::timeout(timeout_ns))? as i64)
    })
}

/// Receives the next message of any connection in place, without a copy. Release it soon: peers are
/// slowed down while many are held. Returns 0 or a negative error code (as clearway_recv; for the
/// end of a connection, `message->connection` tells which).
///
/// # Safety
/// `channel` is NULL or valid; `message` is NULL or valid for writing, and holds no message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_recv_message(
    channel: *mut clearway_channel,
    timeout_ns: i64,
    message: *mut clearway_message,
) -> c_int {
    call_int(|| {
        if message.is_null() {
            return Err(pointer::invalid("message is NULL"));
        }
        // SAFETY: the caller's promise.
        let clearway_channel { channel, held, .. } = unsafe { pointer::attached(channel) }?;
        let received = channel.recv_zero_copy(pointer::timeout(timeout_ns));
        let mut ended = 0;
        // SAFETY: `ended` is a place of our own.
        let received =
            unsafe { tell_connection(received, &raw mut ended, |found| found.connection()) };
        let (filled, result) = match received {
            Ok(found) => (clearway_message::holding(found, held), Ok(())),
            Err(error) => (clearway_message::empty(ended), Err(error)),
        };
        // SAFETY: not null; valid by the caller's promise.
        unsafe { pointer::store(message, filled) };
        result
    })
}

/// Gives a message's memory back. It may have come from another channel, or from one that was
/// detached meanwhile; `channel` may be NULL, and is if another thread has it (see Threads), but
/// with the right one it is faster. Releasing twice, by a copy or not, does nothing.
///
/// # Safety
/// `channel` is NULL or valid; `message` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_release(
    channel: *mut clearway_channel,
    message: *mut clearway_message,
) {
    // SAFETY: the caller's promise.
    unsafe { release(channel, message, clearway_message::take) };
}

/// Gets a buffer for a message of up to `length` bytes, to be filled in place. Waits up to
/// `timeout_ns` for room. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid; `writable` is NULL or valid for writing, and holds no buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_send_buffer(
    channel: *mut clearway_channel,
    length: usize,
    timeout_ns: i64,
    writable: *mut clearway_writable,
) -> c_int {
    call_int(|| {
        if writable.is_null() {
            return Err(pointer::invalid("writable is NULL"));
        }
        // SAFETY: the caller's promise.
        let clearway_channel { channel, held, .. } = unsafe { pointer::attached(channel) }?;
        let buffer = channel.send_buffer(length, pointer::timeout(timeout_ns))?;
        // SAFETY: not null; valid by the caller's promise.
        unsafe { pointer::store(writable, clearway_writable::holding(buffer, held)) };
        Ok(())
    })
}

/// Sends the first `length` bytes of a buffer, without a copy. The buffer is gone also if this
/// returns an error, but for `CLEARWAY_INVALID`. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid; `writable` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_commit(
    channel: *mut clearway_channel,
    connection: u64,
    writable: *mut clearway_writable,
    length: usize,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let clearway_channel { channel, held, .. } = unsafe { pointer::attached(channel) }?;
        // SAFETY: the caller's promise.
        let buffer = filled(unsafe { writable.as_mut() }, length, channel, held)?;
        channel.send_zero_copy(ConnectionId::from_u64(connection), buffer)
    })
}

/// The same for a message that is worth nothing after `within_ns` nanoseconds, counted from this
/// call; what that means, and what `number` is, says clearway_send_within.
///
/// # Safety
/// Each pointer is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_commit_within(
    channel: *mut clearway_channel,
    connection: u64,
    writable: *mut clearway_writable,
    length: usize,
    within_ns: u64,
    number: *mut u32,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let clearway_channel { channel, held, .. } = unsafe { pointer::attached(channel) }?;
        // SAFETY: the caller's promise.
        let buffer = filled(unsafe { writable.as_mut() }, length, channel, held)?;
        let connection = ConnectionId::from_u64(connection);
        let within = Duration::from_nanos(within_ns);
        let sent = channel.send_zero_copy_within(connection, buffer, within)?;
        // SAFETY: the caller's promise.
        unsafe { pointer::store(number, sent) };
        Ok(())
    })
}

/// Gives a buffer back that shall not be sent after all, in any thread. Twice does nothing.
///
/// # Safety
/// `writable` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_discard(writable: *mut clearway_writable) {
    let _ = call_int(|| {
        // SAFETY: the caller's promise.
        if let Some(writable) = unsafe { writable.as_mut() } {
            release_elsewhere(&writable.take());
        }
        Ok(())
    });
}

/// Makes sure that the daemon hears of every message that was released. Only needed before doing
/// something else for long; sending needs no flush.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_flush(channel: *mut clearway_channel) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        unsafe { pointer::channel(channel) }?.flush();
        Ok(())
    })
}

/// The first `length` bytes of a buffer that the channel can send, which is taken.
pub(crate) fn filled(
    writable: Option<&mut clearway_writable>,
    length: usize,
    channel: &Channel,
    held: &mut Held,
) -> Result<SendBuffer, Error> {
    let writable = writable.ok_or_else(|| pointer::invalid("writable is NULL"))?;
    let is_gone = || {
        pointer::invalid(
            "writable was sent or discarded, or is of another channel, or of before this one was \
             attached again",
        )
    };
    // Until nothing is wrong it stays the app's.
    let is_own = |value: &Value| matches!(value, Value::Buffer(own) if channel.has_made(own));
    if held.look_at(&writable.reserved, is_own) != Some(true) {
        return Err(is_gone());
    }
    if length > writable.length {
        return Err(pointer::invalid("length is larger than the buffer"));
    }
    let Some(Value::Buffer(mut buffer)) = held.take(&writable.take()) else {
        return Err(is_gone());
    };
    buffer.truncate(length);
    Ok(buffer)
}

/// Stores which connection a result is about, also if it is the end of one.
///
/// # Safety
/// `place` is NULL or valid for writing.
unsafe fn tell_connection<T>(
    result: Result<T, Error>,
    place: *mut u64,
    connection_of: impl Fn(&T) -> ConnectionId,
) -> Result<T, Error> {
    let connection = match &result {
        Ok(received) => Some(connection_of(received)),
        Err(Error::Connection { connection, .. }) => Some(*connection),
        Err(_) => None,
    };
    if let Some(connection) = connection {
        // SAFETY: the caller's promise.
        unsafe { pointer::store(place, connection.as_u64()) };
    }
    result
}

impl clearway_message {
    pub(crate) fn holding(message: Message, held: &mut Held) -> Self {
        let (data, length) = (message.as_ptr().cast(), message.len());
        let connection = message.connection().as_u64();
        Self { data, length, connection, reserved: held.keep(Value::Message(message)) }
    }

    /// Bytes of a TCP connection.
    pub(crate) fn holding_bytes(connection: u64, bytes: TcpBytes, held: &mut Held) -> Self {
        let (data, length) = (bytes.as_ptr().cast(), bytes.len());
        Self { data, length, connection, reserved: held.keep(Value::Bytes(bytes)) }
    }

    /// Nothing but the name of a connection.
    pub(crate) fn empty(connection: u64) -> Self {
        Self { data: null(), length: 0, connection, reserved: [0; 5] }
    }

    fn take(&mut self) -> Words {
        (self.data, self.length) = (null(), 0);
        std::mem::take(&mut self.reserved)
    }
}

impl clearway_writable {
    pub(crate) fn holding(mut buffer: SendBuffer, held: &mut Held) -> Self {
        let (data, length) = (buffer.as_mut_ptr().cast(), buffer.len());
        Self { data, length, reserved: held.keep(Value::Buffer(buffer)) }
    }

    pub(crate) fn take(&mut self) -> Words {
        (self.data, self.length) = (null_mut(), 0);
        std::mem::take(&mut self.reserved)
    }
}
