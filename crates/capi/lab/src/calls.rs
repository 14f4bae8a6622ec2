//! The calls of sockets.

use std::ffi::{c_int, c_ulong, c_void};

use lab::{Control, Shutdown};

use crate::hosts::{call_of, long_call_of};
use crate::pointer::{EFAULT, bytes, place, store, store_address};

/// Bytes that are read at a time, at most: as many as a window of TCP can have (RFC 7323, section
/// 2.3), so that no connection ever has more.
const READ_BYTES_MAX: usize = 1 << 30;

/// socket(2): AF_INET or AF_INET6, SOCK_STREAM with SOCK_NONBLOCK if wanted, 0 or IPPROTO_TCP. A
/// descriptor, 3 or above.
#[unsafe(no_mangle)]
pub extern "C" fn clearway_lab_socket(
    host: c_int,
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> c_int {
    call_of(host, |host| host.socket(domain, kind, protocol))
}

/// bind(2).
///
/// # Safety
/// `address` points to `length` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_bind(
    host: c_int,
    fd: c_int,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> c_int {
    call_of(host, |host| {
        // SAFETY: the caller's promise.
        host.bind(fd, unsafe { bytes(address.cast(), length as usize) }?).map(|()| 0)
    })
}

/// listen(2).
#[unsafe(no_mangle)]
pub extern "C" fn clearway_lab_listen(host: c_int, fd: c_int, backlog: c_int) -> c_int {
    call_of(host, |host| host.listen(fd, backlog).map(|()| 0))
}

/// accept4(2): waits, unless the listener is SOCK_NONBLOCK. `address` and `length` may be NULL.
/// `flags`: 0, SOCK_NONBLOCK, SOCK_CLOEXEC.
///
/// # Safety
/// `address` is null, or `length` is valid and says how many writable bytes `address` points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_accept(
    host: c_int,
    fd: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
    flags: c_int,
) -> c_int {
    call_of(host, |host| {
        let (accepted, peer) = host.accept(fd, flags)?;
        // SAFETY: the caller's promise.
        unsafe { store_address(address, length, &peer) }?;
        Ok(accepted)
    })
}

/// connect(2): waits, unless the socket is SOCK_NONBLOCK. An address of AF_UNSPEC disconnects.
///
/// # Safety
/// `address` points to `length` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_connect(
    host: c_int,
    fd: c_int,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> c_int {
    call_of(host, |host| {
        // SAFETY: the caller's promise.
        host.connect(fd, unsafe { bytes(address.cast(), length as usize) }?).map(|()| 0)
    })
}

/// send(2), and write(2) with `flags` of 0: waits, unless the socket is SOCK_NONBLOCK or `flags`
/// has MSG_DONTWAIT. MSG_MORE and MSG_EOR work; MSG_OOB is refused. How many bytes were taken.
///
/// # Safety
/// `data` points to `length` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_send(
    host: c_int,
    fd: c_int,
    data: *const c_void,
    length: usize,
    flags: c_int,
) -> i64 {
    long_call_of(host, |host| {
        // SAFETY: the caller's promise.
        host.send(fd, unsafe { bytes(data, length) }?, flags).map(|count| count as i64)
    })
}

/// sendto(2), and sendmsg(2) with what its buffers have: the same as `clearway_lab_send` with an
/// address, to which MSG_FASTOPEN connects. Without that flag it means nothing, but with `freebsd`.
///
/// # Safety
/// `data` points to `length` readable bytes, `address` is null or points to `address_length` ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_sendto(
    host: c_int,
    fd: c_int,
    data: *const c_void,
    length: usize,
    flags: c_int,
    address: *const libc::sockaddr,
    address_length: libc::socklen_t,
) -> i64 {
    long_call_of(host, |host| {
        let address = match address.is_null() {
            true => None,
            // SAFETY: the caller's promise.
            false => Some(unsafe { bytes(address.cast(), address_length as usize) }?),
        };
        // SAFETY: the caller's promise.
        let data = unsafe { bytes(data, length) }?;
        host.send_to(fd, data, flags, address).map(|count| count as i64)
    })
}

/// recv(2), and read(2) with `flags` of 0: waits, unless the socket is SOCK_NONBLOCK or `flags` has
/// MSG_DONTWAIT. MSG_PEEK, MSG_WAITALL and MSG_TRUNC work. How many bytes there were, 0 at the end.
///
/// # Safety
/// `data` points to `length` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_recv(
    host: c_int,
    fd: c_int,
    data: *mut c_void,
    length: usize,
    flags: c_int,
) -> i64 {
    long_call_of(host, |host| {
        // SAFETY: the caller's promise.
        let data = unsafe { place(data.cast(), length) }?;
        host.recv(fd, data, flags).map(|count| count as i64)
    })
}

/// shutdown(2): SHUT_RD, SHUT_WR, SHUT_RDWR.
#[unsafe(no_mangle)]
pub extern "C" fn clearway_lab_shutdown(host: c_int, fd: c_int, how: c_int) -> c_int {
    call_of(host, |host| host.shutdown(fd, Shutdown::from_number(how)?).map(|()| 0))
}

/// close(2), of whatever descriptor. With SO_LINGER it waits.
#[unsafe(no_mangle)]
pub extern "C" fn clearway_lab_close(host: c_int, fd: c_int) -> c_int {
    call_of(host, |host| host.close(fd).map(|()| 0))
}

/// getsockname(2).
///
/// # Safety
/// `length` is valid and says how many writable bytes `address` points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_getsockname(
    host: c_int,
    fd: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    call_of(host, |host| {
        // SAFETY: the caller's promise.
        unsafe { store_address(address, length, &host.getsockname(fd)?) }?;
        Ok(0)
    })
}

/// getpeername(2).
///
/// # Safety
/// `length` is valid and says how many writable bytes `address` points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_getpeername(
    host: c_int,
    fd: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    call_of(host, |host| {
        // SAFETY: the caller's promise.
        unsafe { store_address(address, length, &host.getpeername(fd)?) }?;
        Ok(0)
    })
}

/// fcntl(2): F_GETFL, F_SETFL (O_NONBLOCK), F_GETFD, F_SETFD.
#[unsafe(no_mangle)]
pub extern "C" fn clearway_lab_fcntl(
    host: c_int,
    fd: c_int,
    command: c_int,
    argument: c_int,
) -> c_int {
    call_of(host, |host| host.fcntl(fd, command, argument))
}

/// ioctl(2): FIONREAD, SIOCOUTQ, SIOCOUTQNSD and SIOCATMARK store in `argument`, FIONBIO reads it.
///
/// # Safety
/// `argument` is null or valid for reading and writing an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_ioctl(
    host: c_int,
    fd: c_int,
    request: c_ulong,
    argument: *mut c_int,
) -> c_int {
    call_of(host, |host| {
        if argument.is_null() {
            return Err(EFAULT);
        }
        let is_input = request == libc::FIONBIO;
        // SAFETY: not null; the caller's promise.
        let given = if is_input { unsafe { argument.read() } } else { 0 };
        let answer = host.ioctl(fd, request, given)?;
        if !is_input {
            // SAFETY: the caller's promise.
            unsafe { store(argument, answer) };
        }
        Ok(0)
    })
}

/// recvmsg(2): the same as `clearway_lab_recv`, with MSG_ERRQUEUE of what is told there, and with
/// what TCP_INQ tells. `msg_name` is not touched.
///
/// # Safety
/// `message` is valid, and so is what it points to, as recvmsg(2) has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_recvmsg(
    host: c_int,
    fd: c_int,
    message: *mut libc::msghdr,
    flags: c_int,
) -> i64 {
    long_call_of(host, |host| {
        if message.is_null() {
            return Err(EFAULT);
        }
        // SAFETY: not null; the caller's promise.
        let message = unsafe { &mut *message };
        // SAFETY: the caller's promise.
        let parts = unsafe { place(message.msg_iov, message.msg_iovlen) }?;
        let room = parts.iter().fold(0, |room: usize, part| room.saturating_add(part.iov_len));
        let mut data = vec![0; room.min(READ_BYTES_MAX)];
        let told = host.recv_message(fd, &mut data, flags)?;
        let mut rest = &data[..told.length];
        for part in parts {
            let (head, tail) = rest.split_at(rest.len().min(part.iov_len));
            // SAFETY: the caller's promise.
            unsafe { place(part.iov_base.cast::<u8>(), head.len()) }?.copy_from_slice(head);
            rest = tail;
        }
        message.msg_namelen = 0;
        message.msg_flags = told.flags;
        // SAFETY: the caller's promise.
        let control = unsafe { place(message.msg_control.cast::<u8>(), message.msg_controllen) }?;
        match lay_out(&told.control, control) {
            Some(length) => message.msg_controllen = length,
            None => {
                message.msg_controllen = 0;
                message.msg_flags |= libc::MSG_CTRUNC;
            }
        }
        Ok(told.length as i64)
    })
}

/// Control messages as cmsg(3) has them: how long they are. `None` if there is no room.
fn lay_out(all: &[Control], mut place: &mut [u8]) -> Option<usize> {
    let header = size_of::<libc::cmsghdr>();
    let mut length = 0;
    for control in all {
        let bytes = header + control.data.len();
        let whole = bytes.next_multiple_of(size_of::<usize>()).min(place.len().max(bytes));
        let (here, rest) = place.split_at_mut_checked(whole)?;
        let words = [control.level.to_ne_bytes(), control.kind.to_ne_bytes()].concat();
        let filled = [&bytes.to_ne_bytes()[..], &words, &control.data].concat();
        here[..bytes].copy_from_slice(&filled);
        (place, length) = (rest, length + whole);
    }
    Some(length)
}
