//! Options of sockets.

use std::ffi::{c_int, c_void};

use crate::hosts::call_of;
use crate::pointer::{EFAULT, bytes, place, store};

/// setsockopt(2): the options of docs/lab.md, -ENOPROTOOPT for others.
///
/// # Safety
/// `value` points to `length` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_setsockopt(
    host: c_int,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: libc::socklen_t,
) -> c_int {
    call_of(host, |host| {
        // SAFETY: the caller's promise.
        host.setsockopt(fd, level, name, unsafe { bytes(value, length as usize) }?).map(|()| 0)
    })
}

/// getsockopt(2): the options of docs/lab.md, TCP_INFO among them, -ENOPROTOOPT for others.
///
/// # Safety
/// `length` is valid and says how many writable bytes `value` points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_getsockopt(
    host: c_int,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut libc::socklen_t,
) -> c_int {
    call_of(host, |host| {
        if length.is_null() {
            return Err(EFAULT);
        }
        // SAFETY: not null; the caller's promise.
        let most = unsafe { length.read() } as usize;
        // SAFETY: the caller's promise.
        let count = host.getsockopt(fd, level, name, unsafe { place(value.cast(), most) }?)?;
        // SAFETY: the caller's promise.
        unsafe { store(length, count as libc::socklen_t) };
        Ok(0)
    })
}
