//! Connections of the kernel's TCP: sockets that do not block, and one epoll for all of them.

use super::server::{Happened, Id, Transport};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send, sockopt};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};

/// Events that are taken in one call.
const EVENTS: usize = 256;

/// A listener, and the connections that came to it, by the numbers of their descriptors.
pub(super) struct Sockets {
    epoll: OwnedFd,
    listener: TcpListener,
    sockets: Vec<Option<OwnedFd>>,
    events: Vec<epoll::Event>,
    /// Those of them that were told.
    told: usize,
}

impl Sockets {
    pub(super) fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let data = EventData::new_u64(listener.as_raw_fd() as u64);
        epoll::add(&epoll, &listener, data, EventFlags::IN)?;
        let (sockets, events) = (Vec::new(), Vec::with_capacity(EVENTS));
        Ok(Self { epoll, listener, sockets, events, told: 0 })
    }

    /// Nothing if the client has gone again.
    fn accept(&mut self) -> io::Result<Option<Id>> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = match accept_with(&self.listener, flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        sockopt::set_tcp_nodelay(&socket, true)?;
        let at = socket.as_raw_fd() as usize;
        epoll::add(&self.epoll, &socket, EventData::new_u64(at as u64), EventFlags::IN)?;
        if self.sockets.len() <= at {
            self.sockets.resize_with(at + 1, || None);
        }
        self.sockets[at] = Some(socket);
        Ok(Some(at as Id))
    }

    /// What is waited for from now on.
    fn watch(&self, id: Id, flags: EventFlags) -> io::Result<()> {
        let socket = self.socket(id)?;
        Ok(epoll::modify(&self.epoll, socket, EventData::new_u64(id), flags)?)
    }

    fn socket(&self, id: Id) -> io::Result<&OwnedFd> {
        let socket = self.sockets.get(id as usize).and_then(Option::as_ref);
        socket.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn wait(&mut self) -> io::Result<()> {
        self.events.clear();
        self.told = 0;
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Transport for Sockets {
    fn next(&mut self) -> io::Result<Happened> {
        loop {
            let Some(event) = self.events.get(self.told).copied() else {
                self.wait()?;
                continue;
            };
            self.told += 1;
            let id = event.data.u64();
            if id == self.listener.as_raw_fd() as u64 {
                if let Some(id) = self.accept()? {
                    return Ok(Happened::Accepted(id));
                }
            } else if { event.flags }.contains(EventFlags::OUT) {
                self.watch(id, EventFlags::IN)?;
                return Ok(Happened::Writable(id));
            } else {
                return Ok(Happened::Readable(id));
            }
        }
    }

    fn receive(&mut self, id: Id, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match recv(self.socket(id)?, buffer, RecvFlags::empty()) {
            Ok((count, _)) => Ok(Some(count)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn send(&mut self, id: Id, bytes: &[u8]) -> io::Result<usize> {
        match send(self.socket(id)?, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => Ok(count),
            Err(Errno::AGAIN) => self.watch(id, EventFlags::OUT).map(|()| 0),
            Err(errno) => Err(errno.into()),
        }
    }

    fn close(&mut self, id: Id) {
        if let Some(socket) = self.sockets.get_mut(id as usize) {
            *socket = None;
        }
    }
}
