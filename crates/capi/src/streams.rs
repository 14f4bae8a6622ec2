//! Streams: connections that share what another connection has.

use core::ffi::c_int;

use clearway_client::ConnectionId;

use crate::attach::clearway_channel;
use crate::failure::call_int;
use crate::pointer;

/// Opens a stream of a connection: another connection to the same app, with messages, order, credit
/// and an end of its own, for all calls that take a connection but one-sided operations. Up to 1024
/// of a connection; they end with it at the latest. The peer has to take streams
/// (clearway_take_streams), or this one is closed with CLEARWAY_REFUSED. A stream has none itself
/// (CLEARWAY_INVALID), and a peer of an older release takes none (CLEARWAY_VERSION_UNKNOWN). Waits
/// up to `timeout_ns` for the daemon, not for the peer; if that is 0, nothing is begun
/// (CLEARWAY_WOULD_BLOCK): who does not wait begins by clearway_start_open_stream. Returns 0 and
/// stores the stream, or a negative error code.
///
/// # Safety
/// Pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_open_stream(
    channel: *mut clearway_channel,
    connection: u64,
    timeout_ns: i64,
    stream: *mut u64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        let connection = ConnectionId::from_u64(connection);
        let opened = channel.open_stream(connection, pointer::timeout(timeout_ns))?;
        // SAFETY: the caller's promise.
        unsafe { pointer::store(stream, opened.as_u64()) };
        Ok(())
    })
}

/// Begins to open a stream and returns at once; clearway_next_event tells the outcome, with the
/// token that is stored here. Returns 0 or a negative error code.
///
/// # Safety
/// Pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_start_open_stream(
    channel: *mut clearway_channel,
    connection: u64,
    token: *mut u64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        let begun = channel.start_open_stream(ConnectionId::from_u64(connection))?;
        // SAFETY: the caller's promise.
        unsafe { pointer::store(token, begun.as_u64()) };
        Ok(())
    })
}

/// Lets peers open streams of this channel's connections (1), or not (0, as at first): call it
/// before clearway_listen and clearway_connect. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_take_streams(
    channel: *mut clearway_channel,
    are_taken: c_int,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.take_streams(are_taken != 0)?;
        Ok(())
    })
}

/// Says what a connection may send beside its streams, and each stream beside the others: of those
/// that have something to send, the ones of the lowest `urgency` (0 to 7, at first 3) share what
/// the network takes, each by its `weight` (1 to 256, at first 16); others wait. Holds for this
/// side only, and for the network: between apps of one host nobody waits for another. Returns 0 or
/// a negative error code, CLEARWAY_INVALID if one of them is out of its range.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_set_priority(
    channel: *mut clearway_channel,
    connection: u64,
    urgency: u8,
    weight: u16,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.set_priority(ConnectionId::from_u64(connection), urgency, weight)
    })
}

/// Whether connections that are opened from now on share their way through the network (1), or
/// have one each (0, as at first). All of this user's to one port of a host share one, as streams
/// of a connection do, and each has messages, order, credit and an end of its own: many cost less
/// so. They share what is lost, and how much may be sent at a time. A peer of an older release
/// shares none: they then have one each. Such a connection has no streams and no one-sided
/// operations, and clearway_set_silence means nothing to it. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_share_flows(
    channel: *mut clearway_channel,
    are_shared: c_int,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.share_flows(are_shared != 0);
        Ok(())
    })
}

/// From now on messages that come by a connection are delivered as they become whole: one that is
/// lost on its way, or large, holds up none behind it. What was sent in order may then come in any.
/// For the rest of the connection, and for this direction only. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_set_unordered(
    channel: *mut clearway_channel,
    connection: u64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.set_unordered(ConnectionId::from_u64(connection))
    })
}

/// Waits for the next stream that a peer opened. Stores it, and the connection of which it is
/// unless `parent` is NULL. Returns 0 or a negative error code.
///
/// # Safety
/// Pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_accept_stream(
    channel: *mut clearway_channel,
    timeout_ns: i64,
    stream: *mut u64,
    parent: *mut u64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        let accepted = channel.accept_stream(pointer::timeout(timeout_ns))?;
        // SAFETY: the caller's promise.
        unsafe { pointer::store(stream, accepted.connection.as_u64()) };
        // SAFETY: the caller's promise.
        unsafe { pointer::store(parent, accepted.parent.as_u64()) };
        Ok(())
    })
}
