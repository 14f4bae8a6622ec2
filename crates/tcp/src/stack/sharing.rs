//! What stacks ask each other that share listeners' ports: whose a segment is that has come to any
//! of them.

use core::hash::BuildHasher;

use clearway_base::Time;
use clearway_wire::tcp::Flags;

use super::{Entry, Stack};
use crate::connection::Arrival;
use crate::tuple::Tuple;

impl Stack {
    /// True if a segment is of something that is kept here: a connection, a half-open one, or one
    /// in TIME-WAIT. If a SYN may take the ports of the last, and nobody here listens for it, they
    /// are free for whoever does elsewhere.
    pub fn knows(&mut self, arrival: &Arrival) -> bool {
        let tuple = Tuple::new(arrival.to, arrival.from);
        match self.table.get(&tuple).copied() {
            None => false,
            Some(Entry::TimeWait(key)) if self.listener_for(arrival.to, &tuple).is_none() => {
                let entry = self.time_waits.get_mut(key);
                let is_over = entry.is_some_and(|entry| entry.may_begin_anew(arrival));
                if is_over {
                    self.time_waits.remove(key);
                    self.table.remove(&tuple);
                }
                !is_over
            }
            Some(_) => true,
        }
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

    /// Which of `count` stacks the connection of a segment falls to, by a hash of its addresses and
    /// ports that does not depend on the one by which the listeners of a stack share.
    #[must_use]
    pub fn share_of(&self, arrival: &Arrival, count: usize) -> usize {
        let hash = self.table.hasher().hash_one(Tuple::new(arrival.to, arrival.from));
        let share = u64::from(hash as u32) * count as u64;
        (share >> 32) as usize
    }
}
