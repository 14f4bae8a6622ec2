//! One app with many connections, in one thread: those have a turn by which something has come.

use crate::endpoint::Endpoint;
use crate::lines::{LOOK, Lines};
use crate::load::{Client, Load, Server};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// What has come.
pub(crate) enum Fresh {
    /// Something by these connections.
    Of(Vec<usize>),
    /// Nothing, or room to send, which may be for any.
    Any,
}

/// The ends of an app's connections, by number.
pub(crate) trait Ends {
    /// Waits until something comes.
    fn wait(&mut self) -> io::Result<Fresh>;

    /// A turn of the client of one of them; returns how many answers it got.
    fn turn(&mut self, at: usize, client: &mut Client) -> io::Result<usize>;
}

/// The clients of all connections are at work until then.
pub(crate) fn go_on(
    ends: &mut impl Ends,
    clients: &mut [Client],
    until: Instant,
) -> io::Result<()> {
    let mut fresh = Fresh::Any;
    while Instant::now() < until {
        match fresh {
            Fresh::Of(numbers) => {
                for at in numbers {
                    ends.turn(at, &mut clients[at])?;
                }
            }
            Fresh::Any => {
                for (at, client) in clients.iter_mut().enumerate() {
                    ends.turn(at, client)?;
                }
            }
        }
        fresh = ends.wait()?;
    }
    Ok(())
}

impl Ends for Lines {
    fn wait(&mut self) -> io::Result<Fresh> {
        Self::wait(self)
    }

    fn turn(&mut self, at: usize, client: &mut Client) -> io::Result<usize> {
        client.turn(&mut self.end(at))
    }
}

/// Sockets of the kernel's with what is made of each, as an event loop has them: each is asked
/// until it has no more, and then not before the kernel says that it has.
pub(crate) struct Sockets<E> {
    epoll: OwnedFd,
    ends: Vec<E>,
    events: Vec<epoll::Event>,
    /// Those that may have more.
    again: Vec<usize>,
    is_spinning: bool,
}

impl<E: Endpoint> Sockets<E> {
    /// `is_spinning`: never asleep.
    pub(crate) fn new(
        sockets: Vec<OwnedFd>,
        is_spinning: bool,
        end: impl Fn(OwnedFd) -> E,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        for (at, socket) in sockets.iter().enumerate() {
            epoll::add(&epoll, socket, epoll::EventData::new_u64(at as u64), flags)?;
        }
        let ends: Vec<E> = sockets.into_iter().map(end).collect();
        let events = Vec::with_capacity(ends.len());
        Ok(Self { epoll, ends, events, again: Vec::new(), is_spinning })
    }

    /// Answers until the client leaves, which an error says.
    pub(crate) fn serve(&mut self, load: &Load) -> io::Result<()> {
        let server = || Server::new(load.answer_bytes());
        let mut servers: Vec<Server> = self.ends.iter().map(|_| server()).collect();
        loop {
            for at in self.fresh()? {
                self.turn_of(at, |end| servers[at].turn(end))?;
            }
        }
    }

    /// Who may have something, after a wait where nobody is known to.
    fn fresh(&mut self) -> io::Result<Vec<usize>> {
        let is_waiting = !self.is_spinning && self.again.is_empty();
        let nanoseconds = if is_waiting { LOOK.subsec_nanos() } else { 0 };
        let timeout = Timespec { tv_sec: 0, tv_nsec: nanoseconds.into() };
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut fresh = std::mem::take(&mut self.again);
        for event in &self.events {
            fresh.push({ event.data }.u64() as usize);
        }
        fresh.sort_unstable();
        fresh.dedup();
        Ok(fresh)
    }

    fn turn_of(
        &mut self,
        at: usize,
        turn: impl FnOnce(&mut E) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let done = turn(&mut self.ends[at])?;
        if done > 0 {
            self.again.push(at);
        }
        Ok(done)
    }
}

impl<E: Endpoint> Ends for Sockets<E> {
    fn wait(&mut self) -> io::Result<Fresh> {
        self.fresh().map(Fresh::Of)
    }

    fn turn(&mut self, at: usize, client: &mut Client) -> io::Result<usize> {
        self.turn_of(at, |end| client.turn(end))
    }
}

#[cfg(test)]
mod tests;
