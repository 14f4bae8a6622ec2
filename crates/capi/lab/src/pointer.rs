//! Pointers from C, checked as far as that is possible.

use std::ffi::{CStr, c_char, c_void};

use lab::Errno;

/// Bytes that are read.
///
/// # Safety
/// `data` is null, or points to `length` readable bytes that stay as they are for the call.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, length: usize) -> Result<&'a [u8], Errno> {
    match (data.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(EFAULT),
        // SAFETY: not null; the rest is the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(data.cast(), length) }),
    }
}

/// Items that are read and written. Those that are given as a place only are not read before they
/// are written.
///
/// # Safety
/// `data` is null, or points to `length` items that nobody else uses during the call, of a type for
/// which any bytes are valid.
pub(crate) unsafe fn place<'a, T>(data: *mut T, length: usize) -> Result<&'a mut [T], Errno> {
    match (data.is_null(), length) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(EFAULT),
        // SAFETY: not null; the rest is the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(data, length) }),
    }
}

/// A string.
///
/// # Safety
/// `text` is null, or points to a NUL-terminated string that stays as it is for the call.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Errno> {
    if text.is_null() {
        return Err(EFAULT);
    }
    // SAFETY: not null; the rest is the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| Errno::EINVAL)
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

/// Stores a socket address as `getsockname` does: as much as there is room for, and how long it is.
///
/// # Safety
/// `address` or `length` is null, or `address` points to as many writable bytes as `length` says,
/// which is valid for reading and writing.
pub(crate) unsafe fn store_address(
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
    value: &[u8],
) -> Result<(), Errno> {
    if address.is_null() || length.is_null() {
        return Ok(());
    }
    // SAFETY: not null; the caller's promise.
    let most = unsafe { length.read() } as usize;
    let count = most.min(value.len());
    // SAFETY: there are `most` bytes by the caller's promise, and any bytes are valid ones.
    unsafe { place(address.cast::<u8>(), count) }?.copy_from_slice(&value[..count]);
    // SAFETY: the caller's promise.
    unsafe { store(length, value.len() as libc::socklen_t) };
    Ok(())
}

/// A pointer that must not be NULL is.
pub(crate) const EFAULT: Errno = Errno(libc::EFAULT);
