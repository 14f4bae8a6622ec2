//! The calls that programs have for sockets, with the meaning and the errors that Linux gives them.

use std::cell::RefCell;

use clearway_tcp::{Family, Fault, Info, Socket};

use crate::descriptors::{Descriptor, Kind};
use crate::fast_open::{Begun, Early};
use crate::host::Patience;
use crate::notices::Wanted;
use crate::state::State;
use crate::{Errno, Host, address};

/// What [`Host::shutdown`] ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// Nothing will be read any more.
    pub receive: bool,
    /// Nothing will be written any more.
    pub send: bool,
}

impl Shutdown {
    /// SHUT_RD, SHUT_WR or SHUT_RDWR.
    pub fn from_number(how: i32) -> Result<Self, Errno> {
        match how {
            libc::SHUT_RD => Ok(Self { receive: true, send: false }),
            libc::SHUT_WR => Ok(Self { receive: false, send: true }),
            libc::SHUT_RDWR => Ok(Self { receive: true, send: true }),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// SOCK_NONBLOCK and SOCK_CLOEXEC stand beside the type.
const TYPE_FLAGS: i32 = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

impl Host {
    /// A socket of TCP.
    pub fn socket(&self, domain: i32, kind: i32, protocol: i32) -> Result<i32, Errno> {
        let family = match domain {
            libc::AF_INET => Family::V4,
            libc::AF_INET6 => Family::V6,
            _ => return Err(Errno::EAFNOSUPPORT),
        };
        match (kind & !TYPE_FLAGS, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {}
            (libc::SOCK_STREAM, _) => return Err(Errno::EPROTONOSUPPORT),
            _ => return Err(Errno::ESOCKTNOSUPPORT),
        }
        self.call(|state| {
            let socket = state.sockets.socket(family, state.defaults.options)?;
            let is_nonblocking = kind & libc::SOCK_NONBLOCK != 0;
            Ok(state.descriptors.insert(Descriptor::new(Kind::Socket(socket), is_nonblocking)))
        })
    }

    /// Gives a socket its address.
    pub fn bind(&self, fd: i32, sockaddr: &[u8]) -> Result<(), Errno> {
        self.call(|state| {
            let socket = state.descriptors.socket(fd)?;
            let address = address::parse(sockaddr)?;
            Ok(state.sockets.bind(socket, address, &state.link)?)
        })
    }

    /// Lets others connect.
    pub fn listen(&self, fd: i32, backlog: i32) -> Result<(), Errno> {
        self.call(|state| {
            let socket = state.descriptors.socket(fd)?;
            // A negative one is as large as may be, for Linux.
            let backlog = u32::try_from(backlog).unwrap_or(u32::MAX);
            let mut options = *state.sockets.options(socket)?;
            state.defaults.fast_open.prepare_listener(&mut options, backlog);
            state.sockets.set_options(socket, options)?;
            Ok(state.sockets.listen(socket, backlog, &state.link)?)
        })
    }

    /// A connection that has come, with its peer's address. `flags` are those of `accept4`.
    pub fn accept(&self, fd: i32, flags: i32) -> Result<(i32, Vec<u8>), Errno> {
        if flags & !TYPE_FLAGS != 0 {
            return Err(Errno::EINVAL);
        }
        let patience = self.patience(fd, 0, |descriptor| descriptor.receive_timeout_ns)?;
        self.wait(patience, |state| {
            let socket = state.descriptors.socket(fd)?;
            let (accepted, peer) = state.sockets.accept(socket)?;
            let family = state.sockets.family(accepted)?;
            let is_nonblocking = flags & libc::SOCK_NONBLOCK != 0;
            let kind = Kind::Socket(accepted);
            let descriptor = state.descriptors.get(fd)?.accepted(kind, is_nonblocking);
            Ok((state.descriptors.insert(descriptor), address::emit(peer, family)))
        })
    }

    /// Connects; or, if the address is of AF_UNSPEC, disconnects.
    pub fn connect(&self, fd: i32, sockaddr: &[u8]) -> Result<(), Errno> {
        if address::family(sockaddr)? == libc::AF_UNSPEC {
            return self.call(|state| {
                let socket = state.descriptors.socket(fd)?;
                Ok(state.sockets.disconnect(state.now, socket, &mut state.store)?)
            });
        }
        let patience = self.patience(fd, 0, |descriptor| descriptor.send_timeout_ns)?;
        let begun = self.call(|state| {
            let socket = state.descriptors.socket(fd)?;
            let address = address::parse(sockaddr)?;
            Ok(state.sockets.connect(state.now, socket, address, &state.link)?)
        });
        if patience == Patience::None || !matches!(begun, Err(Errno::EINPROGRESS | Errno::EALREADY))
        {
            return begun;
        }
        self.wait_until_open(fd, patience)
    }

    /// Waits for the end of an attempt to connect.
    fn wait_until_open(&self, fd: i32, patience: Patience) -> Result<(), Errno> {
        let outcome = self.wait(patience, |state| outcome(state, fd));
        outcome.map_err(|errno| if errno == Errno::EAGAIN { Errno::EINPROGRESS } else { errno })
    }

    /// Writes. `flags` are those of `send`.
    pub fn send(&self, fd: i32, bytes: &[u8], flags: i32) -> Result<usize, Errno> {
        self.send_to(fd, bytes, flags, None)
    }

    /// The same with an address, to which MSG_FASTOPEN connects.
    pub fn send_to(
        &self,
        fd: i32,
        bytes: &[u8],
        flags: i32,
        sockaddr: Option<&[u8]>,
    ) -> Result<usize, Errno> {
        if flags & libc::MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let has_flag = flags & libc::MSG_FASTOPEN != 0;
        let patience = self.patience(fd, flags, |descriptor| descriptor.send_timeout_ns)?;
        let mut wanted = Wanted::default();
        let begun = self.call(|state| {
            let socket = state.descriptors.socket(fd)?;
            let is_patient = patience != Patience::None;
            wanted = Wanted::of(state, fd, flags, is_patient)?;
            let early = Early { has_flag, is_patient };
            state.begin_to_send(socket, bytes, sockaddr, early, &mut wanted)
        })?;
        match begun {
            Begun::Connected => self.send_rest(fd, bytes, flags, 0, patience, wanted),
            Begun::Queued => Ok(bytes.len()),
            Begun::Connecting(0) if patience == Patience::None => Err(Errno::EINPROGRESS),
            Begun::Connecting(sent) if patience == Patience::None => Ok(sent),
            Begun::Connecting(sent) => {
                self.send_when_open(fd, bytes, flags, sent, patience, wanted)
            }
        }
    }

    /// Waits for the end of an attempt to connect, and writes what is behind the first `sent` of
    /// `bytes` in that moment.
    fn send_when_open(
        &self,
        fd: i32,
        bytes: &[u8],
        flags: i32,
        mut sent: usize,
        patience: Patience,
        wanted: Wanted,
    ) -> Result<usize, Errno> {
        let mut is_open = false;
        let result = self.wait_to_send(patience, wanted, |state, wanted| {
            if !is_open {
                outcome(state, fd)?;
                is_open = true;
            }
            write_rest(state, fd, bytes, flags, &mut sent, wanted)
        });
        match result {
            Err(Errno::EAGAIN) if !is_open && sent == 0 => Err(Errno::EINPROGRESS),
            Err(errno) if sent == 0 || !is_open && errno != Errno::EAGAIN => Err(errno),
            _ => Ok(sent),
        }
    }

    /// Writes what is behind the first `sent` of `bytes`.
    fn send_rest(
        &self,
        fd: i32,
        bytes: &[u8],
        flags: i32,
        mut sent: usize,
        patience: Patience,
        wanted: Wanted,
    ) -> Result<usize, Errno> {
        let result = self.wait_to_send(patience, wanted, |state, wanted| {
            write_rest(state, fd, bytes, flags, &mut sent, wanted)
        });
        if sent > 0 { Ok(sent) } else { result.map(|()| 0) }
    }

    /// Waits with an attempt to send, and says what is `wanted` of a send that is over then,
    /// perhaps before all of it was taken.
    fn wait_to_send(
        &self,
        patience: Patience,
        wanted: Wanted,
        mut attempt: impl FnMut(&mut State, &mut Wanted) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let wanted = RefCell::new(wanted);
        self.wait_and_end(
            patience,
            |state| attempt(state, &mut wanted.borrow_mut()),
            |state| wanted.borrow().end(state),
        )
    }

    /// Reads. `flags` are those of `recv`.
    pub fn recv(&self, fd: i32, place: &mut [u8], flags: i32) -> Result<usize, Errno> {
        if flags & libc::MSG_OOB != 0 {
            return Err(Errno::EINVAL); // nothing is ever out of band: RFC 6093, section 4
        }
        if flags & libc::MSG_ERRQUEUE != 0 {
            return self.recv_message(fd, place, flags).map(|message| message.length);
        }
        let patience = self.patience(fd, flags, |descriptor| descriptor.receive_timeout_ns)?;
        let mut got = 0;
        let result = self.wait(patience, |state| {
            let socket = state.descriptors.socket(fd)?;
            let enough = match flags & libc::MSG_WAITALL {
                0 => state.sockets.options(socket)?.receive_bytes_min.max(1) as usize,
                _ => usize::MAX,
            };
            let enough = enough.min(place.len());
            if flags & libc::MSG_PEEK != 0 {
                return peek(state, socket, place, enough, &mut got);
            }
            read(state, socket, place, flags & libc::MSG_TRUNC == 0, enough, &mut got)
        });
        if got > 0 { Ok(got) } else { result.map(|()| 0) }
    }

    /// Ends one half of a connection, or both; or a listener.
    pub fn shutdown(&self, fd: i32, how: Shutdown) -> Result<(), Errno> {
        self.call(|state| {
            let socket = state.descriptors.socket(fd)?;
            let State { now, sockets, store, .. } = state;
            Ok(sockets.shutdown(*now, socket, how.receive, how.send, store)?)
        })
    }

    /// Closes. With SO_LINGER it waits until all is acknowledged.
    pub fn close(&self, fd: i32) -> Result<(), Errno> {
        let lingering = self.call(|state| {
            let descriptor = state.descriptors.remove(fd)?;
            let Kind::Socket(socket) = descriptor.kind else {
                return Ok(None);
            };
            let linger_ns = state.sockets.options(socket)?.linger_ns;
            state.close_socket(socket);
            Ok(linger_ns.filter(|ns| *ns > 0).map(|ns| (socket, ns)))
        })?;
        if let Some((socket, ns)) = lingering {
            // Linux returns without an error when the time is over.
            let _ = self.wait(Patience::For(ns), |state| {
                if state.sockets.is_lingering(socket) { Err(Errno::EAGAIN) } else { Ok(()) }
            });
        }
        Ok(())
    }

    /// The own address.
    pub fn getsockname(&self, fd: i32) -> Result<Vec<u8>, Errno> {
        self.call(|state| {
            let socket = state.descriptors.socket(fd)?;
            Ok(address::emit(state.sockets.local(socket)?, state.sockets.family(socket)?))
        })
    }

    /// The peer's address.
    pub fn getpeername(&self, fd: i32) -> Result<Vec<u8>, Errno> {
        self.call(|state| {
            let socket = state.descriptors.socket(fd)?;
            Ok(address::emit(state.sockets.peer(socket)?, state.sockets.family(socket)?))
        })
    }

    /// F_GETFL, F_SETFL, F_GETFD and F_SETFD: only O_NONBLOCK means something.
    pub fn fcntl(&self, fd: i32, command: i32, argument: i32) -> Result<i32, Errno> {
        self.call(|state| {
            let descriptor = state.descriptors.get_mut(fd)?;
            match command {
                libc::F_GETFL if descriptor.is_nonblocking => Ok(libc::O_RDWR | libc::O_NONBLOCK),
                libc::F_GETFL => Ok(libc::O_RDWR),
                libc::F_SETFL => {
                    descriptor.is_nonblocking = argument & libc::O_NONBLOCK != 0;
                    Ok(0)
                }
                libc::F_GETFD | libc::F_SETFD => Ok(0),
                _ => Err(Errno::EINVAL),
            }
        })
    }

    /// FIONREAD, SIOCOUTQ, SIOCOUTQNSD: the number; FIONBIO: takes one.
    pub fn ioctl(&self, fd: i32, request: u64, argument: i32) -> Result<i32, Errno> {
        /// Linux, `sockios.h`: bytes that have never been sent; and whether urgent data is next.
        const SIOCOUTQNSD: u64 = 0x894b;
        const SIOCATMARK: u64 = 0x8905;
        self.call(|state| {
            if request == libc::FIONBIO {
                state.descriptors.get_mut(fd)?.is_nonblocking = argument != 0;
                return Ok(0);
            }
            let socket = state.descriptors.socket(fd)?;
            if state.sockets.is_listening(socket) {
                return Err(Errno::EINVAL);
            }
            let status = state.sockets.status(socket);
            let bytes = match request {
                libc::FIONREAD => status.map_or(0, |status| status.unread_bytes),
                libc::TIOCOUTQ => status.map_or(0, |status| status.queued_bytes),
                SIOCOUTQNSD => status.map_or(0, |status| status.unsent_bytes),
                SIOCATMARK => 0,
                _ => return Err(Errno::ENOTTY),
            };
            Ok(i32::try_from(bytes).unwrap_or(i32::MAX))
        })
    }

    /// All that can be told of a connection. ENOTCONN if there is none.
    pub fn info(&self, fd: i32) -> Result<Info, Errno> {
        self.call(|state| {
            let socket = state.descriptors.socket(fd)?;
            state.sockets.info(socket).ok_or(Errno::ENOTCONN)
        })
    }

    /// How long a call may wait.
    fn patience(
        &self,
        fd: i32,
        flags: i32,
        timeout: impl Fn(&Descriptor) -> Option<u64>,
    ) -> Result<Patience, Errno> {
        let state = self.lock();
        let descriptor = state.descriptors.get(fd)?;
        if descriptor.is_nonblocking || flags & libc::MSG_DONTWAIT != 0 {
            return Ok(Patience::None);
        }
        Ok(timeout(descriptor).map_or(Patience::Forever, Patience::For))
    }
}

/// Reads until there is nothing more, or `place` is full. EAGAIN as long as it is not `enough`.
fn read(
    state: &mut State,
    socket: Socket,
    place: &mut [u8],
    copies: bool,
    enough: usize,
    got: &mut usize,
) -> Result<(), Errno> {
    while *got < place.len() {
        let most = u32::try_from(place.len() - *got).unwrap_or(u32::MAX);
        if *got > 0 && state.sockets.unread_bytes(socket) == 0 {
            // An error waits for a call that has nothing else to say.
            let ready = state.sockets.ready(socket)?;
            let is_all = *got >= enough || ready.is_finished || ready.has_error;
            return if is_all { Ok(()) } else { Err(Errno::EAGAIN) };
        }
        match state.sockets.recv(socket, most) {
            Ok(None) => return Ok(()),
            Ok(Some(extent)) => {
                let length = extent.length as usize;
                if copies {
                    place[*got..*got + length].copy_from_slice(state.store.read(extent));
                }
                state.store.free(extent);
                state.sockets.release(socket, extent.length.into());
                *got += length;
            }
            Err(fault) => return Err(fault.into()),
        }
    }
    Ok(())
}

/// The same, but what is read stays.
fn peek(
    state: &mut State,
    socket: Socket,
    place: &mut [u8],
    enough: usize,
    got: &mut usize,
) -> Result<(), Errno> {
    let extents = state.sockets.peek(socket)?;
    *got = 0;
    for extent in extents {
        let bytes = state.store.read(extent);
        let length = bytes.len().min(place.len() - *got);
        place[*got..*got + length].copy_from_slice(&bytes[..length]);
        *got += length;
    }
    let is_all = state.sockets.status(socket).is_none_or(|status| status.is_finished);
    if *got >= enough || is_all { Ok(()) } else { Err(Errno::EAGAIN) }
}

/// How an attempt to connect has ended; EAGAIN if it has not.
fn outcome(state: &mut State, fd: i32) -> Result<(), Errno> {
    let socket = state.descriptors.socket(fd)?;
    state.sockets.outcome(socket).map_err(|fault| match fault {
        Fault::InProgress => Errno::EAGAIN,
        fault => fault.into(),
    })
}

/// Writes what is behind the first `sent` of `bytes`; EAGAIN if there is no room for all of it.
fn write_rest(
    state: &mut State,
    fd: i32,
    bytes: &[u8],
    flags: i32,
    sent: &mut usize,
    wanted: &mut Wanted,
) -> Result<(), Errno> {
    let has_more = flags & libc::MSG_MORE != 0;
    let socket = state.descriptors.socket(fd)?;
    loop {
        if *sent > 0 && state.sockets.ready(socket)?.has_error {
            return Ok(()); // it waits for a call that has nothing else to say
        }
        let room = state.sockets.send_room(socket)?;
        let rest = &bytes[*sent..];
        if rest.is_empty() {
            return Ok(());
        }
        let length = rest.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let extent = state.store.fill(&rest[..length], has_more && length == rest.len());
        if let Err(fault) = state.sockets.send(socket, extent, has_more) {
            state.store.free(extent);
            return Err(fault.into());
        }
        wanted.on_piece(state, socket, extent, length == rest.len());
        *sent += length;
        state.has_more.retain(|other| *other != socket);
        state.has_more.extend(has_more.then_some(socket));
        state.on_written(socket, *sent == bytes.len());
        if *sent == bytes.len() {
            if flags & libc::MSG_EOR != 0 {
                state.sockets.end_record(socket);
            }
            return Ok(());
        }
    }
}
