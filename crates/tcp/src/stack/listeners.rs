//! Who listens where, and what waits there to be accepted.

use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::{BTreeMap, VecDeque};

use clearway_base::{SlotId, SlotState, Slots, Time};

use super::Listener;
use crate::listen::{ListenSocket, Place};
use crate::saved::{Invalid, SavedListener};
use crate::tuple::{Hashing, Tuple, bits};

/// All listeners.
#[derive(Debug)]
pub(super) struct Listeners {
    sockets: Slots<ListenSocket>,
    places: BTreeMap<Place, Group>,
    /// Those that have something to be accepted since they had nothing.
    acceptable: VecDeque<Listener>,
}

/// Those of one place, which share what comes to it.
#[derive(Debug, Default)]
struct Group {
    /// In order.
    listeners: Vec<SlotId>,
    /// When the last cookie that one of them has given out is too old: until then one that comes
    /// back is looked at, and it may come to another of them.
    cookies_until: Time,
}

const LISTENERS_MAX: u32 = u16::MAX as u32;

impl Listeners {
    pub(super) const fn new() -> Self {
        Self {
            sockets: Slots::new(LISTENERS_MAX),
            places: BTreeMap::new(),
            acceptable: VecDeque::new(),
        }
    }

    pub(super) fn set_mtu(&mut self, mtu: u16) {
        for id in self.places.values().flat_map(|group| &group.listeners) {
            if let Some(socket) = self.sockets.get_mut(*id) {
                socket.mtu = mtu;
            }
        }
    }

    pub(super) fn save(&self) -> Vec<SlotState<SavedListener>> {
        self.sockets.save(|socket| {
            let group = self.places.get(&socket.place());
            socket.save(group.map_or(Time::ZERO, |group| group.cookies_until))
        })
    }

    /// Those that were saved.
    pub(super) fn restore(saved: Vec<SlotState<SavedListener>>) -> Result<Self, Invalid> {
        let cookies_until = |place: &SlotState<SavedListener>| {
            place.value.as_ref().map_or(Time::ZERO, |saved| saved.cookies_until)
        };
        let cookies_until: Vec<Time> = saved.iter().map(cookies_until).collect();
        let restore = |saved| Ok(ListenSocket::restore(saved));
        let mut listeners =
            Self { sockets: Slots::restore(LISTENERS_MAX, saved, restore)?, ..Self::new() };
        for (key, socket) in listeners.sockets.iter() {
            let group = listeners.places.entry(socket.place()).or_default();
            group.listeners.push(key);
            group.cookies_until = group.cookies_until.max(cookies_until[key.slot as usize]);
            if !socket.accepted.is_empty() {
                listeners.acceptable.push_back(Listener(key));
            }
        }
        Ok(listeners)
    }

    pub(super) fn len(&self) -> usize {
        self.sockets.count() as usize
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotId, &ListenSocket)> {
        self.sockets.iter()
    }

    #[inline]
    pub(super) fn get(&self, key: SlotId) -> Option<&ListenSocket> {
        self.sockets.get(key)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: SlotId) -> Option<&mut ListenSocket> {
        self.sockets.get_mut(key)
    }

    /// Those at a place.
    pub(super) fn at(&self, place: &Place) -> &[SlotId] {
        self.places.get(place).map_or(&[], |group| group.listeners.as_slice())
    }

    pub(super) fn insert(&mut self, socket: ListenSocket) -> Option<Listener> {
        let place = socket.place();
        let key = self.sockets.insert(socket)?;
        let group = &mut self.places.entry(place).or_default().listeners;
        let at = group.partition_point(|other| *other < key);
        group.insert(at, key);
        Some(Listener(key))
    }

    pub(super) fn remove(&mut self, listener: Listener) -> Option<ListenSocket> {
        let socket = self.sockets.remove(listener.0)?;
        let place = socket.place();
        if let Some(group) = self.places.get_mut(&place) {
            group.listeners.retain(|other| *other != listener.0);
            if group.listeners.is_empty() {
                self.places.remove(&place);
            }
        }
        Some(socket)
    }

    /// The listener for a connection: of those that take its peer, at the place that says most of
    /// the address; always the same one, as long as no other comes or goes.
    pub(super) fn for_connection(
        &self,
        to: SocketAddr,
        tuple: &Tuple,
        hashing: &Hashing,
    ) -> Option<SlotId> {
        let every = match to.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let places = [Some(bits(to.ip())), Some(bits(every)), None];
        places.into_iter().find_map(|place| self.choose(&(place, to.port()), tuple, hashing))
    }

    /// The listener that has what a connection was to one that has ended.
    pub(super) fn heir(
        &self,
        gone: &ListenSocket,
        tuple: &Tuple,
        hashing: &Hashing,
    ) -> Option<SlotId> {
        let heir = self.choose(&gone.place(), tuple, hashing)?;
        self.sockets.get(heir).filter(|it| it.is_set_as(gone.mtu, gone.settings)).map(|_| heir)
    }

    /// Of those at a place, the one that a hash of the connection says, or the next behind it that
    /// takes its peer.
    fn choose(&self, place: &Place, tuple: &Tuple, hashing: &Hashing) -> Option<SlotId> {
        let peer = tuple.ends().1.ip();
        let takes = |key: &&SlotId| self.sockets.get(**key).is_some_and(|it| it.takes(peer));
        match self.at(place) {
            alone @ ([] | [_]) => alone.iter().find(takes).copied(),
            group => {
                let share = u128::from(hashing.hash_one(tuple)) * group.len() as u128;
                let (before, behind) = group.split_at((share >> 64) as usize);
                behind.iter().chain(before).find(takes).copied()
            }
        }
    }

    /// Until when a cookie may come back to a listener.
    pub(super) fn cookies_until(&self, listener: SlotId) -> Time {
        let place = self.sockets.get(listener).map(ListenSocket::place);
        let group = place.and_then(|place| self.places.get(&place));
        group.map_or(Time::ZERO, |group| group.cookies_until)
    }

    /// One that a listener has given out may come back until then.
    pub(super) fn expect_cookies(&mut self, listener: SlotId, until: Time) {
        let place = self.sockets.get(listener).map(ListenSocket::place);
        if let Some(group) = place.and_then(|place| self.places.get_mut(&place)) {
            group.cookies_until = group.cookies_until.max(until);
        }
    }

    /// Has a connection wait at a listener, if that has room.
    pub(super) fn offer(&mut self, listener: SlotId, key: SlotId) -> bool {
        let Some(socket) = self.sockets.get_mut(listener).filter(|it| !it.is_full()) else {
            return false;
        };
        socket.accepted.push_back(key);
        if socket.accepted.len() == 1 {
            self.acceptable.push_back(Listener(listener));
        }
        true
    }

    /// The first connection that waits at a listener.
    pub(super) fn accept(&mut self, listener: Listener) -> Option<SlotId> {
        self.sockets.get_mut(listener.0)?.accepted.pop_front()
    }

    /// True if [`Listeners::poll_acceptable`] has something.
    #[inline]
    pub(super) fn has_acceptable(&self) -> bool {
        !self.acceptable.is_empty()
    }

    /// One that has something to be accepted, and nobody was told.
    pub(super) fn poll_acceptable(&mut self) -> Option<Listener> {
        self.acceptable.pop_front()
    }
}
