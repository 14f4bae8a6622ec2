//! TCP Fast Open as Linux and FreeBSD give it to programs: `net.ipv4.tcp_fastopen`, keys, and calls
//! that connect with what they send.

use std::net::SocketAddr;

use clearway_tcp::{FastOpenKeys, Fault, Socket, SocketOptions};

use crate::notices::Wanted;
use crate::state::State;
use crate::{Errno, address};

/// What is set of the whole host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastOpen {
    /// `net.ipv4.tcp_fastopen`.
    pub(crate) bits: u32,
    /// `net.ipv4.tcp_fastopen_key`, in the four words that are written there.
    pub(crate) key: [u32; 4],
}

/// The bits of `net.ipv4.tcp_fastopen`.
pub(crate) const CLIENT: u32 = 1;
pub(crate) const SERVER: u32 = 2;
const CLIENT_WITHOUT_COOKIE: u32 = 4;
const SERVER_WITHOUT_COOKIE: u32 = 0x200;
/// Each listener has it, with its backlog as limit.
const SERVER_ALWAYS: u32 = 0x400;

impl Default for FastOpen {
    fn default() -> Self {
        Self { bits: CLIENT, key: [0; 4] }
    }
}

impl FastOpen {
    pub(crate) const fn has(&self, bit: u32) -> bool {
        self.bits & bit != 0
    }

    pub(crate) const fn set(&mut self, bit: u32, is_on: bool) {
        self.bits = if is_on { self.bits | bit } else { self.bits & !bit };
    }

    /// The key, whose words are little-endian ones.
    pub(crate) fn keys(&self) -> FastOpenKeys {
        let mut current = [0; 16];
        for (place, word) in current.as_chunks_mut().0.iter_mut().zip(self.key) {
            *place = word.to_le_bytes();
        }
        FastOpenKeys { current, previous: None }
    }

    /// TCP_FASTOPEN: the limit of a listener, or with FreeBSD whether a socket wants it at all.
    pub(crate) fn set_option(
        &self,
        options: &mut SocketOptions,
        value: i32,
        is_freebsd: bool,
    ) -> Result<(), Errno> {
        let fast_open = &mut options.settings.fast_open;
        if is_freebsd {
            fast_open.connects = value != 0 && self.has(CLIENT);
            fast_open.pending_max = if value != 0 && self.has(SERVER) { u16::MAX } else { 0 };
            return Ok(());
        }
        let most = u16::try_from(value.min(u16::MAX.into())).map_err(|_| Errno::EINVAL)?;
        fast_open.pending_max = if self.has(SERVER) { most } else { 0 };
        Ok(())
    }

    /// What a socket that begins to listen has because of what is set of the whole host.
    pub(crate) fn prepare_listener(&self, options: &mut SocketOptions, backlog: u32) {
        let fast_open = &mut options.settings.fast_open;
        if self.has(SERVER) && self.has(SERVER_ALWAYS) && fast_open.pending_max == 0 {
            fast_open.pending_max = u16::try_from(backlog).unwrap_or(u16::MAX);
        }
        fast_open.without_cookies |= self.has(SERVER_WITHOUT_COOKIE);
    }
}

/// TCP_FASTOPEN_KEY: the key, and one from before if there is one.
pub(crate) fn keys_of(value: &[u8]) -> Result<FastOpenKeys, Errno> {
    let (current, rest) = value.split_first_chunk().ok_or(Errno::EINVAL)?;
    let previous = match rest {
        [] => None,
        rest => Some(rest.try_into().map_err(|_| Errno::EINVAL)?),
    };
    Ok(FastOpenKeys { current: *current, previous })
}

/// How bytes are sent that may connect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Early {
    /// MSG_FASTOPEN.
    pub(crate) has_flag: bool,
    /// The call waits.
    pub(crate) is_patient: bool,
}

/// How sending has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// The socket has a connection, or an error to tell.
    Connected,
    /// It connects, and has so many bytes already.
    Connecting(usize),
    /// FreeBSD: all bytes wait for the connection.
    Queued,
}

impl State {
    /// Connects, if sending `bytes` does: with MSG_FASTOPEN, after a `connect` that has waited for
    /// that, or with FreeBSD because there is an address.
    pub(crate) fn begin_to_send(
        &mut self,
        socket: Socket,
        bytes: &[u8],
        sockaddr: Option<&[u8]>,
        Early { has_flag, is_patient }: Early,
        wanted: &mut Wanted,
    ) -> Result<Begun, Errno> {
        let deferred = self.sockets.deferred(socket);
        let is_implied = sockaddr.is_some() && self.defaults.habits.is_freebsd;
        if !has_flag && deferred.is_none() && !is_implied {
            return Ok(Begun::Connected);
        }
        if has_flag {
            let is_nobody = match sockaddr {
                Some(sockaddr) => address::family(sockaddr)? == libc::AF_UNSPEC,
                None => false,
            };
            if is_nobody || !self.defaults.fast_open.has(CLIENT) {
                return Err(Errno::EOPNOTSUPP);
            }
        }
        match self.sockets.is_connecting(socket) {
            None => {}
            Some(true) if has_flag => return Err(Errno::EALREADY),
            Some(_) => return Ok(Begun::Connected),
        }
        let remote = match (deferred, sockaddr) {
            (Some(remote), _) => remote,
            (None, Some(sockaddr)) => address::parse(sockaddr)?,
            (None, None) => return Err(Errno::EDESTADDRREQ),
        };
        let is_early = has_flag || deferred.is_some();
        let begun = self.connect_to_send(socket, remote, is_early)?;
        if begun == Begun::Connected {
            return Ok(begun);
        }
        // Who does not wait has to hear what has gone with the SYN.
        let room = match is_early && !is_patient {
            true => self.sockets.syn_room(socket),
            false => self.sockets.options(socket)?.send_buffer_bytes.into(),
        };
        let length = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        if length > 0 {
            let extent = self.store.fill(&bytes[..length], false);
            if let Err(fault) = self.sockets.send(socket, extent, false) {
                self.store.free(extent);
                return Err(fault.into());
            }
            wanted.on_piece(self, socket, extent, length == bytes.len());
        }
        let is_queued = !is_early && length == bytes.len();
        Ok(if is_queued { Begun::Queued } else { Begun::Connecting(length) })
    }

    fn connect_to_send(
        &mut self,
        socket: Socket,
        remote: SocketAddr,
        is_early: bool,
    ) -> Result<Begun, Errno> {
        let mut options = *self.sockets.options(socket)?;
        options.settings.fast_open.without_cookies |=
            is_early && self.defaults.fast_open.has(CLIENT_WITHOUT_COOKIE);
        self.sockets.set_options(socket, options)?;
        let begun = match is_early {
            true => self.sockets.connect_early(self.now, socket, remote, &self.link),
            false => self.sockets.connect(self.now, socket, remote, &self.link),
        };
        match begun {
            Err(Fault::InProgress) => Ok(Begun::Connecting(0)),
            begun => Ok(begun.map(|()| Begun::Connected)?),
        }
    }
}
