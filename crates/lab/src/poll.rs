//! Waiting for many descriptors: `poll` and `epoll`.

use std::collections::BTreeMap;

use clearway_base::MILLISECOND;
use clearway_tcp::Ready;

use crate::descriptors::{Descriptor, Descriptors, Kind};
use crate::host::Patience;
use crate::state::State;
use crate::{Errno, Host};

/// A descriptor that is polled: a `struct pollfd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// Its number; a negative one is passed over.
    pub fd: i32,
    /// What is asked.
    pub events: i16,
    /// What is answered.
    pub revents: i16,
}

/// What `epoll` tells of a descriptor: a `struct epoll_event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epolled {
    /// What can be done.
    pub events: u32,
    /// What the program has said that it is to be told.
    pub data: u64,
}

/// What waits for many descriptors.
#[derive(Debug, Default)]
pub(crate) struct Epoll {
    items: BTreeMap<i32, Item>,
    /// Who was told last, so that all take turns.
    last: i32,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    events: u32,
    data: u64,
    /// The last change when it was told of.
    seen: Option<u64>,
    /// EPOLLONESHOT: it was told.
    is_spent: bool,
}

impl Epoll {
    pub(crate) fn forget(&mut self, fd: i32) {
        self.items.remove(&fd);
    }
}

const EDGE: u32 = libc::EPOLLET as u32;
const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;
/// What is told whether it is asked or not.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
/// `epoll` nested in `epoll`, as deep as Linux allows.
const NESTED_MAX: u32 = 5;

impl Host {
    /// Waits until one of `polled` can do what is asked, for so many ms; a negative number waits as
    /// long as it takes. How many can.
    pub fn poll(&self, polled: &mut [Polled], timeout_ms: i64) -> Result<usize, Errno> {
        let count = self.wait(patience(timeout_ms), |state| {
            let mut count = 0;
            for polled in polled.iter_mut().filter(|polled| polled.fd >= 0) {
                let asked = polled.events as u16 as u32 | ALWAYS;
                polled.revents = match events(&state.descriptors, state, polled.fd, 0) {
                    Ok(events) => (events & asked) as i16,
                    Err(_) => libc::POLLNVAL,
                };
                count += usize::from(polled.revents != 0);
            }
            if count > 0 { Ok(count) } else { Err(Errno::EAGAIN) }
        });
        none_in_time(count, 0)
    }

    /// A descriptor that waits for others.
    pub fn epoll_create(&self) -> Result<i32, Errno> {
        self.call(|state| {
            Ok(state.descriptors.insert(Descriptor::new(Kind::Epoll(Epoll::default()), false)))
        })
    }

    /// EPOLL_CTL_ADD, EPOLL_CTL_MOD or EPOLL_CTL_DEL.
    pub fn epoll_ctl(
        &self,
        epoll: i32,
        operation: i32,
        fd: i32,
        event: Epolled,
    ) -> Result<(), Errno> {
        self.call(|state| {
            state.descriptors.get(fd)?;
            if epoll == fd {
                return Err(Errno::EINVAL);
            }
            let Epolled { events, data } = event;
            let item = Item { events, data, seen: None, is_spent: false };
            let items = &mut state.descriptors.epoll_mut(epoll)?.items;
            match (operation, items.contains_key(&fd)) {
                (libc::EPOLL_CTL_ADD, false) | (libc::EPOLL_CTL_MOD, true) => {
                    items.insert(fd, item);
                    state.descriptors.note_change_of(epoll);
                }
                (libc::EPOLL_CTL_DEL, true) => {
                    items.remove(&fd);
                }
                (libc::EPOLL_CTL_ADD, true) => return Err(Errno::EEXIST),
                (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, false) => return Err(Errno::ENOENT),
                _ => return Err(Errno::EINVAL),
            }
            Ok(())
        })
    }

    /// Waits until one of those that `epoll` has can do what is asked, for so many ms; a negative
    /// number waits as long as it takes. At most `most` are told.
    pub fn epoll_wait(
        &self,
        epoll: i32,
        most: usize,
        timeout_ms: i64,
    ) -> Result<Vec<Epolled>, Errno> {
        if most == 0 {
            return Err(Errno::EINVAL);
        }
        let told = self.wait(patience(timeout_ms), |state| {
            let told = tell(state, epoll, most)?;
            if told.is_empty() { Err(Errno::EAGAIN) } else { Ok(told) }
        });
        none_in_time(told, Vec::new())
    }
}

fn patience(timeout_ms: i64) -> Patience {
    match u64::try_from(timeout_ms) {
        Ok(0) => Patience::None,
        Ok(ms) => Patience::For(ms.saturating_mul(MILLISECOND)),
        Err(_) => Patience::Forever,
    }
}

/// To wait in vain is no error.
fn none_in_time<T>(result: Result<T, Errno>, none: T) -> Result<T, Errno> {
    match result {
        Err(Errno::EAGAIN) => Ok(none),
        result => result,
    }
}

fn tell(state: &mut State, epoll: i32, most: usize) -> Result<Vec<Epolled>, Errno> {
    let Epoll { items, last } = state.descriptors.epoll_mut(epoll)?;
    let (after, before) = (items.range(*last + 1..), items.range(..=*last));
    let turns: Vec<(i32, Item)> = after.chain(before).map(|(fd, item)| (*fd, *item)).collect();
    let mut told = Vec::new();
    for (fd, item) in turns {
        let events = events(&state.descriptors, state, fd, 0)? & (item.events | ALWAYS);
        let changed = last_change(&state.descriptors, fd, 0)?;
        let is_news = item.events & EDGE == 0 || item.seen.is_none_or(|seen| seen < changed);
        if events == 0 || item.is_spent || !is_news {
            continue;
        }
        told.push(Epolled { events, data: item.data });
        let epoll = state.descriptors.epoll_mut(epoll)?;
        epoll.last = fd;
        let is_spent = item.events & ONE_SHOT != 0;
        epoll.items.insert(fd, Item { seen: Some(changed), is_spent, ..item });
        if told.len() == most {
            break;
        }
    }
    Ok(told)
}

/// The last change of what a descriptor tells of.
fn last_change(descriptors: &Descriptors, fd: i32, depth: u32) -> Result<u64, Errno> {
    let descriptor = descriptors.get(fd)?;
    let below = match &descriptor.kind {
        Kind::Epoll(epoll) if depth < NESTED_MAX => {
            let changes = |fd: &i32| last_change(descriptors, *fd, depth + 1).unwrap_or(0);
            epoll.items.keys().map(changes).max()
        }
        _ => None,
    };
    Ok(descriptor.changed.max(below.unwrap_or(0)))
}

/// What can be done with a descriptor, as EPOLL events, whose numbers are those of POLL events.
fn events(descriptors: &Descriptors, state: &State, fd: i32, depth: u32) -> Result<u32, Errno> {
    match &descriptors.get(fd)?.kind {
        Kind::Socket(socket) => {
            let mut ready = state.sockets.ready(*socket)?;
            ready.has_error |= state.notices.has_any(*socket);
            Ok(bits(ready))
        }
        Kind::Epoll(epoll) => {
            let is_ready = |(fd, item): (&i32, &Item)| {
                let events = events(descriptors, state, *fd, depth + 1).unwrap_or(0);
                !item.is_spent && events & (item.events | ALWAYS) != 0
            };
            let is_ready = depth < NESTED_MAX && epoll.items.iter().any(is_ready);
            Ok(if is_ready { (libc::EPOLLIN | libc::EPOLLRDNORM) as u32 } else { 0 })
        }
    }
}

fn bits(ready: Ready) -> u32 {
    let all = [
        (ready.is_readable, libc::EPOLLIN | libc::EPOLLRDNORM),
        (ready.is_writable, libc::EPOLLOUT | libc::EPOLLWRNORM),
        (ready.is_finished, libc::EPOLLRDHUP),
        (ready.is_over, libc::EPOLLHUP),
        (ready.has_error, libc::EPOLLERR),
    ];
    all.iter().filter(|(is, _)| *is).fold(0, |bits, (_, bit)| bits | *bit as u32)
}
