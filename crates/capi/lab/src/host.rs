//! Hosts, their clock and their packets.

use std::ffi::{c_char, c_int, c_void};

use lab::{Host, Options};

use crate::hosts::{add, call, call_of, long_call_of, remove};
use crate::pointer::{bytes, place, store, text};

/// What a host begins with. All zero is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct clearway_lab_options {
    /// What the clock says at first, in ns; 0: a thousand seconds.
    pub start_ns: u64,
    /// What ports and sequence numbers are chosen by: the same for the same. 0: 1.
    pub seed: u64,
}

/// A host without addresses: its number, which is above 0. `options` may be NULL.
///
/// # Safety
/// `options` is null or valid for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_create(options: *const clearway_lab_options) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let given = unsafe { options.as_ref() }.copied().unwrap_or_default();
        let default = Options::default();
        let or = |value, default| if value == 0 { default } else { value };
        let options = Options {
            start_ns: or(given.start_ns, default.start_ns),
            seed: or(given.seed, default.seed),
        };
        add(Host::new(options)).map(i64::from)
    }) as c_int
}

/// Ends a host. Calls that wait there end with -EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn clearway_lab_destroy(host: c_int) -> c_int {
    call(|| {
        remove(host)?.give_up();
        Ok(0)
    }) as c_int
}

/// Gives a host an address, of IPv4 or IPv6, on a link to everybody of that family. `prefix_bits`
/// says which addresses near it are broadcast ones. The port means nothing.
///
/// # Safety
/// `address` points to `length` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_add_address(
    host: c_int,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
    prefix_bits: u8,
) -> c_int {
    call_of(host, |host| {
        // SAFETY: the caller's promise.
        let address = unsafe { bytes(address.cast(), length as usize) }?;
        host.add_address(address, prefix_bits).map(|()| 0)
    })
}

/// Sets what docs/lab.md names: -ENOENT if there is no such setting, -EINVAL if it has another
/// range. What is of sockets is for those that are made from then on.
///
/// # Safety
/// `name` points to a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_set(host: c_int, name: *const c_char, value: i64) -> c_int {
    // SAFETY: the caller's promise.
    call_of(host, |host| host.set(unsafe { text(name) }?, value).map(|()| 0))
}

/// What is set, or counted, under a name of docs/lab.md.
///
/// # Safety
/// `name` points to a NUL-terminated string; `value` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_get(
    host: c_int,
    name: *const c_char,
    value: *mut i64,
) -> c_int {
    call_of(host, |host| {
        // SAFETY: the caller's promise.
        let found = host.get(unsafe { text(name) }?)?;
        // SAFETY: the caller's promise.
        unsafe { store(value, found) };
        Ok(0)
    })
}

/// What the host's clock says, in ns.
///
/// # Safety
/// `now_ns` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_now(host: c_int, now_ns: *mut u64) -> c_int {
    call_of(host, |host| {
        // SAFETY: the caller's promise.
        unsafe { store(now_ns, host.now_ns()) };
        Ok(0)
    })
}

/// What the host's clock said, in ns, when the last call of a socket in this thread was done: by
/// now another thread may have moved it.
///
/// # Safety
/// `returned_ns` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_returned(returned_ns: *mut u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { store(returned_ns, Host::returned_ns()) };
    0
}

/// In how many ns something may happen by itself, or a call that waits gives up. 1 if ever, else 0.
///
/// # Safety
/// `in_ns` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_next(host: c_int, in_ns: *mut u64) -> c_int {
    call_of(host, |host| {
        let next = host.next_ns();
        // SAFETY: the caller's promise.
        unsafe { store(in_ns, next.unwrap_or(u64::MAX)) };
        Ok(next.is_some().into())
    })
}

/// Lets time pass. Each thing happens at its time, and each call that it wakes is done before time
/// goes on.
#[unsafe(no_mangle)]
pub extern "C" fn clearway_lab_advance(host: c_int, ns: u64) -> c_int {
    call_of(host, |host| {
        host.advance(ns);
        Ok(0)
    })
}

/// The same, but no longer than until there is a packet to take. 1 if there is one, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn clearway_lab_run(host: c_int, ns: u64) -> c_int {
    call_of(host, |host| Ok(host.run(ns).into()))
}

/// An IP packet comes. 0 whatever it is: the host drops what it does not like, and counts it.
///
/// # Safety
/// `packet` points to `length` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_put_packet(
    host: c_int,
    packet: *const c_void,
    length: usize,
) -> c_int {
    call_of(host, |host| {
        // SAFETY: the caller's promise.
        host.put_packet(unsafe { bytes(packet, length) }?);
        Ok(0)
    })
}

/// The next IP packet that has left: how long it is, 0 if there is none, -EMSGSIZE if it is longer
/// than `length`. `time_ns`, which may be NULL, is when it has left.
///
/// # Safety
/// `packet` points to `length` writable bytes; `time_ns` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_take_packet(
    host: c_int,
    packet: *mut c_void,
    length: usize,
    time_ns: *mut u64,
) -> i64 {
    long_call_of(host, |host| {
        // SAFETY: the caller's promise.
        let Some((length, at)) = host.take_packet(unsafe { place(packet.cast(), length) }?)? else {
            return Ok(0);
        };
        // SAFETY: the caller's promise.
        unsafe { store(time_ns, at) };
        Ok(length as i64)
    })
}

/// How many calls wait.
#[unsafe(no_mangle)]
pub extern "C" fn clearway_lab_waiting(host: c_int) -> c_int {
    call_of(host, |host| Ok(host.waiting() as c_int))
}

/// Returns when so many calls wait: for whoever has started threads that are to wait. It waits for
/// the threads to come so far, and not for time.
#[unsafe(no_mangle)]
pub extern "C" fn clearway_lab_await_waiting(host: c_int, count: c_int) -> c_int {
    call_of(host, |host| {
        host.await_waiting(usize::try_from(count).unwrap_or(0));
        Ok(0)
    })
}
