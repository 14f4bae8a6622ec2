//! Pointers and numbers from C, checked as far as that is possible.

use std::ffi::{CStr, c_char};
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use clearway_client::{Channel, Code, Error};

use crate::attach::clearway_channel;

/// An argument is wrong.
pub(crate) fn invalid(what: &str) -> Error {
    let message = format!("{what}; see the comment of the call in clearway.h");
    Error::Declined { code: Code::Invalid, message }
}

/// The channel behind a pointer.
///
/// # Safety
/// `channel` is null, or came from `clearway_attach`, was not given to `clearway_detach`, and no
/// other thread uses it.
pub(crate) unsafe fn channel<'a>(channel: *mut clearway_channel) -> Result<&'a mut Channel, Error> {
    // SAFETY: the caller's promise.
    unsafe { attached(channel) }.map(|found| &mut found.channel)
}

/// The same with what C holds of it.
///
/// # Safety
/// As for `channel`.
pub(crate) unsafe fn attached<'a>(
    channel: *mut clearway_channel,
) -> Result<&'a mut clearway_channel, Error> {
    // SAFETY: the caller's promise; `clearway_attach` made it from a `Box`.
    let found = unsafe { channel.as_mut() }.ok_or_else(|| invalid("channel is NULL"))?;
    found.held.collect(&mut found.channel);
    Ok(found)
}

/// A string; `None` for a null pointer.
///
/// # Safety
/// `text` is null or points to a NUL-terminated string that stays as it is for the call.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>, Error> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null; the rest is the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| invalid(&format!("{what} is not UTF-8")))
}

/// A list of strings that ends with NULL; `None` for a null pointer.
///
/// # Safety
/// `list` is null or points to an array that ends with NULL, of strings that stay as they are for
/// the call.
pub(crate) unsafe fn texts(
    list: *const *const c_char,
    what: &str,
) -> Result<Option<Vec<String>>, Error> {
    if list.is_null() {
        return Ok(None);
    }
    let mut texts = Vec::new();
    // SAFETY: the array has an element at `texts.len()`, for none of those before was its end.
    while let Some(found) = unsafe { text(*list.add(texts.len()), what) }? {
        texts.push(found.to_owned());
    }
    Ok(Some(texts))
}

/// What a text says.
pub(crate) fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T, Error> {
    text.parse().map_err(|error: T::Err| invalid(&error.to_string()))
}

/// Bytes to be sent.
///
/// # Safety
/// `data` points to `length` readable bytes that stay as they are for the call, or `length` is 0.
pub(crate) unsafe fn bytes<'a>(data: *const u8, length: usize) -> Result<&'a [u8], Error> {
    if data.is_null() || length.cast_signed() <= 0 {
        check_empty("data", length)?;
        return Ok(&[]);
    }
    // SAFETY: not null, and not too long; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data, length) })
}

/// A place for received bytes. The caller gives it initialised or not; only what is written is
/// read again.
///
/// # Safety
/// `data` points to `length` writable bytes that nobody else uses during the call, or `length` is
/// 0.
pub(crate) unsafe fn place<'a>(data: *mut u8, length: usize) -> Result<&'a mut [u8], Error> {
    if data.is_null() || length.cast_signed() <= 0 {
        check_empty("buffer", length)?;
        return Ok(&mut []);
    }
    // SAFETY: not null, and not too long; the rest is the caller's promise. Bytes have no invalid
    // values.
    Ok(unsafe { std::slice::from_raw_parts_mut(data, length) })
}

/// An error if there should be an array. None is longer than half of all addresses: such a length
/// was negative, as what read() returns may be.
#[cold]
fn check_empty(name: &str, length: usize) -> Result<(), Error> {
    match length.cast_signed() {
        0 => Ok(()),
        ..0 => Err(invalid(&format!("the length of {name} is {length}, and no array has that"))),
        _ => Err(invalid(&format!("{name} is NULL and its length is not 0"))),
    }
}

/// Stores a result, unless the caller does not want it.
///
/// # Safety
/// `place` is null, or valid for writing a `T`.
pub(crate) unsafe fn store<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(value) }
    }
}

/// A timeout in nanoseconds: negative waits for ever.
pub(crate) fn timeout(timeout_ns: i64) -> Option<Duration> {
    u64::try_from(timeout_ns).ok().map(Duration::from_nanos)
}
