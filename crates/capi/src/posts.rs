//! Buffers that the app posts behind its connections, for large messages.

use core::ffi::{c_char, c_int};
use std::ffi::CString;
use std::sync::OnceLock;

use clearway_client::{ConnectionId, Error, MemoryId, PostEnd, Unposted};

use crate::attach::clearway_channel;
use crate::failure::call_int;
use crate::pointer;

/// The end of a posted buffer: it is the app's again.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct clearway_posted {
    /// The connection behind which it was posted.
    pub connection: u64,
    /// The app's name for it.
    pub tag: u64,
    /// Bytes of the message that lies in it, from its start; 0 if none does.
    pub length: u64,
    /// 0 if a message lies in it; else one of enum clearway_unposted: why none does.
    pub unposted: u32,
}

impl From<PostEnd> for clearway_posted {
    fn from(end: PostEnd) -> Self {
        let (length, unposted) = match end.outcome {
            Ok(length) => (length.into(), 0),
            Err(why) => (0, why as u32),
        };
        Self { connection: end.connection.as_u64(), tag: end.tag, length, unposted }
    }
}

/// Posts a buffer behind a connection or stream: `length` bytes at `offset` of a memory of the
/// channel, 0 for its own (clearway_shared_memory) or one of clearway_add_memory. A message of more
/// than 8 KiB that comes there goes into the first posted buffer that it fits, whatever the state
/// of the receive pool; smaller ones, and those that fit none, are received as ever. A buffer has
/// more than 8 KiB and up to 8 MiB, and overlaps no other that is posted; up to 64 of a connection
/// are at a time, and 16384 of a channel. It is not touched until its end, of which
/// clearway_next_posted tells with this `tag`, which need not be the only one of its kind. Waits
/// for room for the command, and for nothing else. Returns 0 or a negative error code:
/// CLEARWAY_CLOSED if the connection is not open, CLEARWAY_INVALID if the buffer is of another
/// size, or not in such a memory. What only the daemon finds wrong, the buffer's end tells.
///
/// # Safety
/// `channel` is NULL or valid; nobody uses the buffer before its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_post(
    channel: *mut clearway_channel,
    connection: u64,
    memory: u64,
    offset: u64,
    length: u64,
    tag: u64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        let end = offset.checked_add(length);
        let piece = offset..end.ok_or(Error::Post { why: Unposted::OutOfBounds })?;
        channel.post(ConnectionId::from_u64(connection), MemoryId::from_u64(memory), piece, tag)
    })
}

/// Takes the first buffer of this tag back that is posted behind the connection and has no message
/// coming into it: its end tells that it is the app's again (CLEARWAY_UNPOSTED_CANCELLED). If there
/// is none nothing happens: it has had its end, or will have it when the message is there. Returns
/// 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_unpost(
    channel: *mut clearway_channel,
    connection: u64,
    tag: u64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.unpost(ConnectionId::from_u64(connection), tag)
    })
}

/// Waits up to `timeout_ns` for the next end of a posted buffer, of any connection, and stores it.
/// Each has one, also if the app has closed the connection, and after clearway_reattach. Ends have
/// their place among messages in clearway_next_event (CLEARWAY_EVENT_POSTED), and calls that only
/// receive messages leave them for this one. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid; `posted` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_next_posted(
    channel: *mut clearway_channel,
    timeout_ns: i64,
    posted: *mut clearway_posted,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let clearway_channel { channel, held, .. } = unsafe { pointer::attached(channel) }?;
        let told = match held.told.posted.pop_front() {
            Some(told) => told,
            None => channel.next_posted(pointer::timeout(timeout_ns))?,
        };
        // SAFETY: the caller's promise.
        unsafe { pointer::store(posted, told.into()) };
        Ok(())
    })
}

/// Why no message lies in a buffer, in words, with what to do about it. Never NULL; valid for ever.
/// For numbers that are none of enum clearway_unposted it says so.
#[unsafe(no_mangle)]
pub extern "C" fn clearway_unposted_text(unposted: u32) -> *const c_char {
    static TEXTS: OnceLock<Vec<CString>> = OnceLock::new();
    let texts = TEXTS.get_or_init(|| {
        let texts = Unposted::ALL.iter().map(|why| why.text());
        texts.map(|text| CString::new(text).unwrap_or_default()).collect()
    });
    let index = Unposted::ALL.iter().position(|known| *known as u32 == unposted);
    match index.and_then(|index| texts.get(index)) {
        Some(text) => text.as_ptr(),
        None => c"not a reason of Clearway; use the header that belongs to the library".as_ptr(),
    }
}
