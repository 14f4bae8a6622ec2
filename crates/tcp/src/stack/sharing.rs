//! What stacks ask each other that share listeners' ports: whose a segment is that has come to any
//! of them.

use core::hash::BuildHasher;
use core::net::SocketAddr;

use clearway_base::{SlotId, Time};
use clearway_wire::tcp::Flags;

use super::{Entry, Listener, Stack};
use crate::connection::Arrival;
use crate::saved::{Orphan, SavedHalfOpen};
use crate::time_wait::is_syn;
use crate::tuple::Tuple;

impl Stack {
    /// True if a segment is of something that is kept here: of a connection, or a half-open one; or
    /// if it is a SYN, of one in TIME-WAIT, which judges it. If it may take the ports of that, and
    /// nobody here listens for it, they are free for whoever does elsewhere.
    pub fn knows(&mut self, arrival: &Arrival) -> bool {
        let tuple = Tuple::new(arrival.to, arrival.from);
        match self.table.get(&tuple).copied() {
            None => false,
            Some(Entry::TimeWait(_)) if !is_syn(&arrival.repr) => false,
            Some(Entry::TimeWait(key)) if self.listener_for(arrival.to, &tuple).is_none() => {
                let entry = self.time_waits.get_mut(key);
                let is_over = entry.is_some_and(|entry| entry.is_new_syn(arrival));
                if is_over {
                    self.time_waits.remove(key);
                    self.table.remove(&tuple);
                }
                !is_over
            }
            Some(_) => true,
        }
    }

    /// True if a segment that no stack knows is late of a connection that is over here, in
    /// TIME-WAIT. What is known goes before: who has the ports now may have connected from them.
    #[must_use]
    pub fn remembers(&self, arrival: &Arrival) -> bool {
        let entry = self.table.get(&Tuple::new(arrival.to, arrival.from));
        matches!(entry, Some(Entry::TimeWait(_)))
    }

    /// True if a segment that no stack knows is for a listener here: it is a SYN, or brings a
    /// cookie back.
    #[must_use]
    pub fn welcomes(&self, now: Time, arrival: &Arrival) -> bool {
        let (tuple, flags) = (Tuple::new(arrival.to, arrival.from), arrival.repr.flags);
        let Some(listener) = self.listener_for(arrival.to, &tuple) else { return false };
        match flags.contains(Flags::ACK) {
            _ if flags.contains(Flags::RST) => false,
            true => {
                self.expects_cookie(now, listener, &arrival.repr)
                    && self.cookie_of(now, &tuple, &arrival.repr).is_some()
            }
            false => flags.contains(Flags::SYN),
        }
    }

    /// Takes out what is half-open at a listener that is to end, if there is no other one at its
    /// place here: for another stack.
    pub fn take_orphans(&mut self, listener: Listener) -> Vec<Orphan> {
        let Some(socket) = self.listeners.get(listener.0) else { return Vec::new() };
        let (mtu, settings) = (socket.mtu, socket.settings);
        let has_heirs = self.listeners.at(&socket.place()).len() > 1;
        let keys: Vec<SlotId> = socket.half_open.iter().copied().collect();
        let orphans = keys.into_iter().filter(|_| !has_heirs).filter_map(|key| {
            let half_open = self.half_open.get(key)?.save();
            self.drop_half_open(key);
            Some(Orphan { half_open, mtu, settings })
        });
        orphans.collect()
    }

    /// Goes on with one that another stack had, if a listener here would have answered its peer the
    /// same, and there is room. False if not.
    pub fn adopt(&mut self, now: Time, orphan: &Orphan) -> bool {
        let Orphan { half_open, mtu, settings } = orphan;
        let (local, remote) = half_open.ends;
        let tuple = Tuple::new(local, remote);
        let Some(listener) = self.listener_for(local, &tuple) else { return false };
        let socket = self.listeners.get(listener).filter(|it| it.is_set_as(*mtu, *settings));
        let has_room = socket.is_some_and(|it| self.half_open.may_enter(it.settings.account));
        let adopted = SavedHalfOpen { listener, ..half_open.clone() };
        has_room
            && !self.table.contains_key(&tuple)
            && self.restore_half_open(now, &adopted).is_ok()
    }

    /// Which of `count` stacks a connection falls to, by a hash of its addresses and ports that
    /// does not depend on the one by which the listeners of a stack share.
    #[must_use]
    pub fn share_of(&self, local: SocketAddr, remote: SocketAddr, count: usize) -> usize {
        let hash = self.table.hasher().hash_one(Tuple::new(local, remote));
        let share = u64::from(hash as u32) * count as u64;
        (share >> 32) as usize
    }
}
