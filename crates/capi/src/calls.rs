//! Calls: requests and answers on top of messages.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null;
use std::time::Instant;

use clearway_client::{
    CallEvent, CallId, Calls, Channel, ConnectionId, Error, Outcome, Refusal, RequestId,
};

use crate::attach::clearway_channel;
use crate::event::clearway_event;
use crate::failure::{call, call_int};
use crate::held::{Held, Value, Words, release};
use crate::pointer;

/// What an event of a channel that makes calls is about.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum clearway_call_event_kind {
    /// A call is over, once: `call`, `outcome`.
    CLEARWAY_CALL_ENDED = 1,
    /// A peer asks: `connection`, `number`, `method`, `time_left_ns`, `data`, `length`. To be
    /// answered by clearway_answer_call or clearway_refuse_call.
    CLEARWAY_CALL_ASKED = 2,
    /// A peer waits no more for the answer to a request that was told of: `connection`, `number`.
    CLEARWAY_CALL_CANCELLED = 3,
    /// Anything else: `other`, which is never a message.
    CLEARWAY_CALL_OTHER = 4,
}

/// What came of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum clearway_call_outcome {
    /// It was answered: `data`, `length`.
    CLEARWAY_OUTCOME_ANSWERED = 1,
    /// The peer has refused it: `reason`, and in `data`, `length` the same for a person (UTF-8,
    /// without NUL), or nothing.
    CLEARWAY_OUTCOME_REFUSED = 2,
    /// Its time was up. The peer may have carried it out, or may do so yet.
    CLEARWAY_OUTCOME_EXPIRED = 3,
    /// Its connection has ended: `code` says why. Whether it was carried out is not known.
    CLEARWAY_OUTCOME_LOST = 4,
}

/// Why a request was not carried out. Numbers from CLEARWAY_REFUSAL_APP on are the app's own.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum clearway_refusal {
    /// As many requests of the connection are under way as the server takes: try again later.
    CLEARWAY_REFUSAL_BUSY = 1,
    /// The server knows no such method.
    CLEARWAY_REFUSAL_NO_METHOD = 2,
    /// The server has tried and failed.
    CLEARWAY_REFUSAL_FAILED = 3,
    /// The first of the app's own.
    CLEARWAY_REFUSAL_APP = 256,
}

/// Something that happened on a channel that makes calls. Fields that its kind does not name are
/// zero. Valid until it, or a copy of it, is given to clearway_call_release, which is needed only
/// if `data` is not NULL.
#[repr(C)]
pub struct clearway_call_event {
    /// One of enum clearway_call_event_kind. Skip kinds you do not know: newer libraries may have
    /// more.
    pub kind: u32,
    /// One of enum clearway_call_outcome.
    pub outcome: u32,
    /// One of enum clearway_refusal, or the app's own.
    pub reason: u32,
    /// An error code.
    pub code: c_int,
    /// From clearway_start_call.
    pub call: u64,
    /// The connection that a request came by.
    pub connection: u64,
    /// What its peer calls the request.
    pub number: u64,
    /// What is asked for: 0 to 65535, the app's own.
    pub method: u32,
    /// Of no meaning.
    pub reserved_word: u32,
    /// How long its peer still waits, in nanoseconds; negative if it does not say.
    pub time_left_ns: i64,
    /// The body of the request or of the answer; read only.
    pub data: *const c_void,
    /// How many bytes these are.
    pub length: usize,
    /// The library's own.
    pub reserved: [u64; 5],
    /// What else has happened.
    pub other: clearway_event,
}

/// Asks the app at the other end of `connection`, and waits up to `timeout_ns` for the answer,
/// which is stored as an event of kind CLEARWAY_CALL_ENDED. What else happens meanwhile stays for
/// clearway_next_call_event. Returns 0, or a negative error code: CLEARWAY_CALL_REFUSED with
/// `event->reason`; CLEARWAY_TIMED_OUT, after which the peer is told that nobody waits;
/// CLEARWAY_CLOSED, CLEARWAY_RESET, CLEARWAY_LOST: whether it was carried out is not known;
/// CLEARWAY_WOULD_BLOCK with a `timeout_ns` of 0: nothing was asked (clearway_start_call does not
/// wait).
///
/// # Safety
/// Pointers are NULL or valid; `data` points to `length` bytes; `event` holds nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_call(
    channel: *mut clearway_channel,
    connection: u64,
    method: u16,
    data: *const c_void,
    length: usize,
    timeout_ns: i64,
    event: *mut clearway_call_event,
) -> c_int {
    call_int(|| {
        if event.is_null() {
            return Err(pointer::invalid("event is NULL"));
        }
        // SAFETY: the caller's promise.
        let clearway_channel { channel, held, calls, .. } = unsafe { pointer::attached(channel) }?;
        // SAFETY: the caller's promise.
        let body = unsafe { pointer::bytes(data.cast(), length) }?;
        let connection = ConnectionId::from_u64(connection);
        let timeout = pointer::timeout(timeout_ns);
        let mut told =
            clearway_call_event::ended(0, clearway_call_outcome::CLEARWAY_OUTCOME_ANSWERED);
        let result = calls.call(channel, connection, method, body, timeout);
        let result = match result {
            Ok(answer) => {
                (told.data, told.length) = (answer.as_ptr().cast(), answer.len());
                told.reserved = held.keep(Value::Answer(answer));
                Ok(())
            }
            Err(error) => {
                (told.outcome, told.reason) = match &error {
                    Error::CallRefused { reason, .. } => {
                        (clearway_call_outcome::CLEARWAY_OUTCOME_REFUSED as u32, reason.0)
                    }
                    _ => (0, 0),
                };
                told.code = error.code().as_i32();
                Err(error)
            }
        };
        // SAFETY: not null; valid by the caller's promise.
        unsafe { pointer::store(event, told) };
        result
    })
}

/// Asks, and does not wait: clearway_next_call_event tells of the outcome, once and always; after
/// `timeout_ns` that is CLEARWAY_OUTCOME_EXPIRED. Stores the call, which may be NULL. Returns 0 or
/// a negative error code: after CLEARWAY_WOULD_BLOCK nothing was asked, and CLEARWAY_EVENT_WRITABLE
/// tells when there is room.
///
/// # Safety
/// Pointers are NULL or valid; `data` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_start_call(
    channel: *mut clearway_channel,
    connection: u64,
    method: u16,
    data: *const c_void,
    length: usize,
    timeout_ns: i64,
    call: *mut u64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let clearway_channel { channel, calls, .. } = unsafe { pointer::attached(channel) }?;
        // SAFETY: the caller's promise.
        let body = unsafe { pointer::bytes(data.cast(), length) }?;
        let connection = ConnectionId::from_u64(connection);
        let timeout = pointer::timeout(timeout_ns);
        let id = calls.start(channel, connection, method, body, timeout)?;
        // SAFETY: the caller's promise.
        unsafe { pointer::store(call, id.as_u64()) };
        Ok(())
    })
}

/// Waits no more for a call, and tells the peer; no outcome is told. Returns 1, or 0 if it is over
/// already (then its outcome was told, or will be), or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_cancel_call(channel: *mut clearway_channel, id: u64) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let clearway_channel { channel, calls, .. } = unsafe { pointer::attached(channel) }?;
        Ok(calls.cancel(channel, CallId::from_u64(id)).into())
    }) as c_int
}

/// Waits for whatever happens next on a channel that makes calls, and stores it. Takes the place of
/// clearway_recv, clearway_next_event and the like there. Returns 0 or a negative error code; when
/// the channel has ended, its calls are told of before.
///
/// # Safety
/// `channel` is NULL or valid; `event` is NULL or valid for writing, and holds nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_next_call_event(
    channel: *mut clearway_channel,
    timeout_ns: i64,
    event: *mut clearway_call_event,
) -> c_int {
    call_int(|| {
        if event.is_null() {
            return Err(pointer::invalid("event is NULL"));
        }
        // SAFETY: the caller's promise.
        let clearway_channel { channel, held, calls, .. } = unsafe { pointer::attached(channel) }?;
        let happened = calls.next(channel, pointer::timeout(timeout_ns))?;
        // SAFETY: not null; valid by the caller's promise.
        unsafe { pointer::store(event, clearway_call_event::holding(happened, held)) };
        Ok(())
    })
}

/// Answers a request (CLEARWAY_CALL_ASKED), before or after it is released. Never waits: an answer
/// that finds no room is copied, and sent while clearway_next_call_event or clearway_call waits.
/// Returns 1, or 0 if nobody waits for it any more, or a negative error code.
///
/// # Safety
/// Pointers are NULL or valid; `data` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_answer_call(
    channel: *mut clearway_channel,
    connection: u64,
    number: u64,
    data: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        reply(channel, connection, number, |channel, calls, request| {
            // SAFETY: the caller's promise.
            let body = pointer::bytes(data.cast(), length)?;
            calls.answer(channel, request, body)
        })
    }
}

/// The same for a request that is not carried out, with a text for a person, which may be NULL.
///
/// # Safety
/// `channel` is NULL or valid; `text` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_refuse_call(
    channel: *mut clearway_channel,
    connection: u64,
    number: u64,
    reason: u32,
    text: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        reply(channel, connection, number, |channel, calls, request| {
            // SAFETY: the caller's promise.
            let text = pointer::text(text, "text")?.unwrap_or("");
            calls.refuse(channel, request, Refusal(reason), text)
        })
    }
}

/// In how many nanoseconds the first of the outstanding calls expires at the earliest, negative if
/// none does: an event loop that waits on clearway_fd wakes for it, too, and calls
/// clearway_next_call_event.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_calls_deadline(channel: *mut clearway_channel) -> i64 {
    call(|| {
        // SAFETY: the caller's promise.
        let clearway_channel { calls, .. } = unsafe { pointer::attached(channel) }?;
        Ok(time_left_ns(calls.first_deadline()))
    })
}

/// Gives back what an event holds. It may be of another channel, or of one that was detached;
/// `channel` may be NULL, but with the right one it is faster. Releasing twice does nothing.
///
/// # Safety
/// Pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_call_release(
    channel: *mut clearway_channel,
    event: *mut clearway_call_event,
) {
    // SAFETY: the caller's promise.
    unsafe {
        release(channel, event, |event| {
            (event.data, event.length) = (null(), 0);
            std::mem::take(&mut event.reserved)
        });
    }
}

/// # Safety
/// `channel` is null or valid.
unsafe fn reply(
    channel: *mut clearway_channel,
    connection: u64,
    number: u64,
    send: impl FnOnce(&mut Channel, &mut Calls, RequestId) -> Result<bool, Error>,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let clearway_channel { channel, calls, .. } = unsafe { pointer::attached(channel) }?;
        let request = RequestId { connection: ConnectionId::from_u64(connection), number };
        Ok(send(channel, calls, request)?.into())
    }) as c_int
}

fn time_left_ns(deadline: Option<Instant>) -> i64 {
    deadline.map_or(-1, |deadline| {
        let left = deadline.saturating_duration_since(Instant::now());
        i64::try_from(left.as_nanos()).unwrap_or(i64::MAX)
    })
}

impl clearway_call_event {
    fn of_kind(kind: clearway_call_event_kind) -> Self {
        Self {
            kind: kind as u32,
            outcome: 0,
            reason: 0,
            code: 0,
            call: 0,
            connection: 0,
            number: 0,
            method: 0,
            reserved_word: 0,
            time_left_ns: 0,
            data: null(),
            length: 0,
            reserved: Words::default(),
            other: clearway_event::empty(),
        }
    }

    fn ended(call: u64, outcome: clearway_call_outcome) -> Self {
        let ended = Self::of_kind(clearway_call_event_kind::CLEARWAY_CALL_ENDED);
        Self { call, outcome: outcome as u32, ..ended }
    }

    fn of_request(kind: clearway_call_event_kind, request: RequestId) -> Self {
        let RequestId { connection, number } = request;
        Self { connection: connection.as_u64(), number, ..Self::of_kind(kind) }
    }

    fn holding(event: CallEvent, held: &mut Held) -> Self {
        use clearway_call_event_kind as Kind;
        match event {
            CallEvent::Ended { call, outcome } => Self::of_outcome(call, outcome, held),
            CallEvent::Asked(request) => {
                let mut told = Self::of_request(Kind::CLEARWAY_CALL_ASKED, request.id());
                told.method = request.method().into();
                told.time_left_ns = time_left_ns(request.deadline());
                (told.data, told.length) = (request.as_ptr().cast(), request.len());
                told.reserved = held.keep(Value::Request(request));
                told
            }
            CallEvent::Cancelled(request) => {
                Self::of_request(Kind::CLEARWAY_CALL_CANCELLED, request)
            }
            CallEvent::Channel(event) => {
                let other = clearway_event::holding(event, held);
                Self { other, ..Self::of_kind(Kind::CLEARWAY_CALL_OTHER) }
            }
            _ => Self { kind: 0, ..Self::of_kind(Kind::CLEARWAY_CALL_OTHER) },
        }
    }

    fn of_outcome(call: CallId, outcome: Outcome, held: &mut Held) -> Self {
        use clearway_call_outcome as Kind;
        let ended = |kind| Self::ended(call.as_u64(), kind);
        let (mut told, bytes) = match outcome {
            Outcome::Answered(answer) => (ended(Kind::CLEARWAY_OUTCOME_ANSWERED), answer),
            Outcome::Refused { reason, text } => {
                (Self { reason: reason.0, ..ended(Kind::CLEARWAY_OUTCOME_REFUSED) }, text)
            }
            Outcome::Expired => return ended(Kind::CLEARWAY_OUTCOME_EXPIRED),
            Outcome::Lost(code) => {
                return Self { code: code.as_i32(), ..ended(Kind::CLEARWAY_OUTCOME_LOST) };
            }
        };
        (told.data, told.length) = (bytes.as_ptr().cast(), bytes.len());
        told.reserved = held.keep(Value::Answer(bytes));
        told
    }
}
