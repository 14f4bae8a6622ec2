//! Descriptors: small numbers for sockets, and for what waits for many of them.

use std::collections::BTreeMap;

use clearway_tcp::Socket;

use crate::Errno;
use crate::poll::Epoll;

/// What stands behind a number.
#[derive(Debug)]
pub(crate) enum Kind {
    Socket(Socket),
    Epoll(Epoll),
}

#[derive(Debug)]
pub(crate) struct Descriptor {
    pub(crate) kind: Kind,
    pub(crate) is_nonblocking: bool,
    /// SO_RCVTIMEO and SO_SNDTIMEO.
    pub(crate) receive_timeout_ns: Option<u64>,
    pub(crate) send_timeout_ns: Option<u64>,
    /// Options that are only remembered, by level and name.
    pub(crate) noted: BTreeMap<(i32, i32), i32>,
    /// Which change of all was its last: for edges.
    pub(crate) changed: u64,
}

impl Descriptor {
    pub(crate) fn new(kind: Kind, is_nonblocking: bool) -> Self {
        Self {
            kind,
            is_nonblocking,
            receive_timeout_ns: None,
            send_timeout_ns: None,
            noted: BTreeMap::new(),
            changed: 0,
        }
    }

    /// That of a connection that this one, a listener, has accepted: it has the same options.
    pub(crate) fn accepted(&self, kind: Kind, is_nonblocking: bool) -> Self {
        Self {
            receive_timeout_ns: self.receive_timeout_ns,
            send_timeout_ns: self.send_timeout_ns,
            noted: self.noted.clone(),
            ..Self::new(kind, is_nonblocking)
        }
    }
}

/// All of a host. Numbers begin with 3, as those of a program that was just started; the lowest
/// that is free is taken.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    table: Vec<Option<Descriptor>>,
    numbers: BTreeMap<Socket, i32>,
    /// Changes, ever.
    changes: u64,
}

const FIRST: i32 = 3;

impl Descriptors {
    pub(crate) fn insert(&mut self, descriptor: Descriptor) -> i32 {
        let free = self.table.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.table.push(None);
            self.table.len() - 1
        });
        let number = index as i32 + FIRST;
        if let Kind::Socket(socket) = descriptor.kind {
            self.numbers.insert(socket, number);
        }
        self.table[index] = Some(descriptor);
        number
    }

    pub(crate) fn get(&self, number: i32) -> Result<&Descriptor, Errno> {
        let slot = self.table.get(index_of(number)?);
        slot.and_then(Option::as_ref).ok_or(Errno::EBADF)
    }

    pub(crate) fn get_mut(&mut self, number: i32) -> Result<&mut Descriptor, Errno> {
        let slot = self.table.get_mut(index_of(number)?);
        slot.and_then(Option::as_mut).ok_or(Errno::EBADF)
    }

    /// The socket behind a number.
    pub(crate) fn socket(&self, number: i32) -> Result<Socket, Errno> {
        match self.get(number)?.kind {
            Kind::Socket(socket) => Ok(socket),
            Kind::Epoll(_) => Err(Errno::ENOTSOCK),
        }
    }

    /// All sockets.
    pub(crate) fn sockets(&self) -> Vec<Socket> {
        self.numbers.keys().copied().collect()
    }

    pub(crate) fn epoll_mut(&mut self, number: i32) -> Result<&mut Epoll, Errno> {
        match &mut self.get_mut(number)?.kind {
            Kind::Epoll(epoll) => Ok(epoll),
            Kind::Socket(_) => Err(Errno::EINVAL),
        }
    }

    /// Takes a number away, and from whatever waits for it.
    pub(crate) fn remove(&mut self, number: i32) -> Result<Descriptor, Errno> {
        let slot = self.table.get_mut(index_of(number)?);
        let descriptor = slot.and_then(Option::take).ok_or(Errno::EBADF)?;
        if let Kind::Socket(socket) = descriptor.kind {
            self.numbers.remove(&socket);
        }
        for other in self.table.iter_mut().flatten() {
            if let Kind::Epoll(epoll) = &mut other.kind {
                epoll.forget(number);
            }
        }
        Ok(descriptor)
    }

    pub(crate) fn note_change(&mut self, socket: Socket) {
        if let Some(number) = self.numbers.get(&socket).copied() {
            self.note_change_of(number);
        }
    }

    /// The same of any descriptor.
    pub(crate) fn note_change_of(&mut self, number: i32) {
        self.changes += 1;
        let changes = self.changes;
        if let Ok(descriptor) = self.get_mut(number) {
            descriptor.changed = changes;
        }
    }
}

fn index_of(number: i32) -> Result<usize, Errno> {
    number.checked_sub(FIRST).and_then(|index| usize::try_from(index).ok()).ok_or(Errno::EBADF)
}
