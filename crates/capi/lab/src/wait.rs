//! Waiting for many descriptors.

use std::ffi::c_int;

use lab::{Epolled, Polled};

use crate::hosts::call_of;
use crate::pointer::{EFAULT, place};

/// poll(2), with the timeout in ms of the host's time: 0 does not wait, -1 waits for ever.
///
/// # Safety
/// `fds` points to `count` items that nobody else uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_poll(
    host: c_int,
    fds: *mut libc::pollfd,
    count: usize,
    timeout_ms: c_int,
) -> c_int {
    call_of(host, |host| {
        // SAFETY: the caller's promise; any bytes are a pollfd.
        let fds = unsafe { place(fds, count) }?;
        let mut polled: Vec<Polled> =
            fds.iter().map(|it| Polled { fd: it.fd, events: it.events, revents: 0 }).collect();
        let count = host.poll(&mut polled, timeout_ms.into())?;
        for (fd, polled) in fds.iter_mut().zip(polled) {
            fd.revents = polled.revents;
        }
        Ok(count as c_int)
    })
}

/// epoll_create1(2).
#[unsafe(no_mangle)]
pub extern "C" fn clearway_lab_epoll_create(host: c_int) -> c_int {
    call_of(host, |host| host.epoll_create())
}

/// epoll_ctl(2): EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL. EPOLLET and EPOLLONESHOT work.
///
/// # Safety
/// `event` is null or valid for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_epoll_ctl(
    host: c_int,
    epfd: c_int,
    operation: c_int,
    fd: c_int,
    event: *const libc::epoll_event,
) -> c_int {
    call_of(host, |host| {
        let event = match event.is_null() {
            true if operation != libc::EPOLL_CTL_DEL => return Err(EFAULT),
            true => Epolled { events: 0, data: 0 },
            false => {
                // SAFETY: not null; the caller's promise. It may be packed.
                let event = unsafe { event.read_unaligned() };
                Epolled { events: event.events, data: event.u64 }
            }
        };
        host.epoll_ctl(epfd, operation, fd, event).map(|()| 0)
    })
}

/// epoll_wait(2), with the timeout in ms of the host's time: 0 does not wait, -1 waits for ever.
///
/// # Safety
/// `events` points to `most` items that nobody else uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_epoll_wait(
    host: c_int,
    epfd: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    timeout_ms: c_int,
) -> c_int {
    call_of(host, |host| {
        let most = usize::try_from(most).unwrap_or(0);
        // SAFETY: the caller's promise; any bytes are an epoll_event.
        let events = unsafe { place(events, most) }?;
        let told = host.epoll_wait(epfd, most, timeout_ms.into())?;
        for (event, told) in events.iter_mut().zip(&told) {
            *event = libc::epoll_event { events: told.events, u64: told.data };
        }
        Ok(told.len() as c_int)
    })
}
