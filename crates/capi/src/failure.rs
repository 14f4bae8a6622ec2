//! From `Error` to a negative number, and the texts that go with it.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use clearway_client::{Code, Ended, Error};

thread_local! {
    /// What went wrong last in this thread.
    static LAST: RefCell<Cow<'static, CStr>> = const { RefCell::new(Cow::Borrowed(c"no error")) };
}

/// Runs the body of a call: its result, or a negative code.
pub(crate) fn call(body: impl FnOnce() -> Result<i64, Error>) -> i64 {
    // Unwind safety: after a panic the channel is in some state that Rust considers valid; calls
    // may fail, but memory stays sound.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => fail(&error),
        Err(_) => {
            remember(Code::Internal.text());
            Code::Internal.as_i32().into()
        }
    }
}

/// The same for calls that return an `int`.
pub(crate) fn call_int(body: impl FnOnce() -> Result<(), Error>) -> c_int {
    call(|| body().map(|()| 0)) as c_int
}

fn fail(error: &Error) -> i64 {
    match error {
        // It comes often, and has no more to say.
        Error::WouldBlock => LAST.with_borrow_mut(|last| *last = Cow::Borrowed(would_block())),
        error => remember(&error.to_string()),
    }
    error.code().as_i32().into()
}

fn remember(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    LAST.with_borrow_mut(|last| *last = Cow::Owned(text));
}

fn would_block() -> &'static CStr {
    &texts()[0]
}

/// Those of all codes, in the order of their numbers.
fn texts() -> &'static [CString] {
    static TEXTS: OnceLock<Vec<CString>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        Code::ALL.iter().map(|code| CString::new(code.text()).unwrap_or_default()).collect()
    })
}

/// Cause and remedy of an error code, as a sentence. Never NULL; valid for ever. For 0 and for
/// numbers that are no code it says so.
#[unsafe(no_mangle)]
pub extern "C" fn clearway_strerror(code: c_int) -> *const c_char {
    // Codes are dense from -1 downwards.
    let index = (-1i64).checked_sub(i64::from(code)).and_then(|index| usize::try_from(index).ok());
    match index.and_then(|index| texts().get(index)) {
        Some(text) => text.as_ptr(),
        None if code == 0 => c"no error".as_ptr(),
        None => {
            c"not an error code of Clearway; use the header that belongs to the library".as_ptr()
        }
    }
}

/// What is over after a failure.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum clearway_ended {
    /// Nothing: try again, wait longer, or do something else.
    CLEARWAY_ENDED_NOTHING = 0,
    /// The connection that the call was about; others go on. `CLEARWAY_CLOSED` (the peer closed
    /// it), `CLEARWAY_RESET` (the peer aborted it, or its app died), `CLEARWAY_LOST` (the peer's
    /// host is silent), `CLEARWAY_PROTOCOL_ERROR`. Two more end one, and are not told from a failed
    /// attempt to connect by their code alone: `CLEARWAY_UNREACHABLE` of what sends or receives on
    /// a TCP connection, and `CLEARWAY_REFUSED` of what does on a TCP connection or a stream.
    CLEARWAY_ENDED_CONNECTION = 1,
    /// The channel with all its connections: detach, or clearway_reattach.
    CLEARWAY_ENDED_CHANNEL = 2,
}

/// What is over after a call that returned `code`: one of enum clearway_ended. A server goes on for
/// all but CLEARWAY_ENDED_CHANNEL. CLEARWAY_UNREACHABLE and CLEARWAY_REFUSED count as those of an
/// attempt to connect: CLEARWAY_ENDED_NOTHING. Of a connection that was open they are its end.
#[unsafe(no_mangle)]
pub extern "C" fn clearway_what_ended(code: i64) -> clearway_ended {
    let code = i32::try_from(code).ok().and_then(Code::from_i32);
    match code.map_or(Ended::Nothing, Code::ended) {
        Ended::Nothing => clearway_ended::CLEARWAY_ENDED_NOTHING,
        Ended::Connection => clearway_ended::CLEARWAY_ENDED_CONNECTION,
        Ended::Channel => clearway_ended::CLEARWAY_ENDED_CHANNEL,
    }
}

/// What went wrong in the last call of this thread that failed, with more detail than
/// `clearway_strerror` (which peer, which socket, which limit, how long it waited, the daemon's own
/// words). Never NULL or empty; valid until the next call of this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn clearway_last_error() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}
