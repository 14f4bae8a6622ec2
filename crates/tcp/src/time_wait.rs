//! TIME-WAIT: what guards the ports of a connection that is over, so that what is left of it in the
//! network is not taken for a part of the next one. Far smaller than a connection.

use std::collections::{BTreeMap, VecDeque};

use clearway_base::{SlotId, Slots, Time};
use clearway_wire::tcp::{Flags, Options, Repr};

use crate::connection::{Arrival, Challenges, Remains, Transmit};
use crate::saved::{self, Invalid, SavedTimeWait, ensure};
use crate::seq;
use crate::shares::Shares;
use crate::timestamps::{Timestamps, is_before};
use crate::tuple::Tuple;

/// One that is over.
#[derive(Clone, Debug)]
pub(crate) struct TimeWait {
    pub(crate) tuple: Tuple,
    remains: Remains,
    until: Time,
    challenges: Challenges,
}

/// What is to be done about a segment that comes for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Drop,
    /// Something old, or an attacker's: it is acknowledged.
    Acknowledge,
    /// Its FIN again: it is acknowledged, and TIME-WAIT begins anew.
    Restart,
    /// A SYN that cannot be an old one: the ports are free for it.
    Reuse,
}

impl TimeWait {
    fn save(&self) -> SavedTimeWait {
        let remains = &self.remains;
        SavedTimeWait {
            ends: self.tuple.ends(),
            snd_next: remains.snd_next,
            rcv_next: remains.rcv_next,
            rcv_window: remains.rcv_window,
            rcv_scale: remains.rcv_scale,
            timestamps: remains.timestamps.as_ref().map(Timestamps::save),
            ip: remains.ip,
            account: remains.account,
            until: self.until,
        }
    }

    /// RFC 9293, section 3.10.7.4, as far as it is about TIME-WAIT. Only who `listens`, and has
    /// room, may take its ports again for a peer (section 3.6.1). Who `is_silent` answers nothing
    /// else that has no ACK.
    pub(crate) fn judge(
        &mut self,
        now: Time,
        arrival: &Arrival,
        listens: bool,
        is_silent: bool,
    ) -> Verdict {
        let repr = &arrival.repr;
        let start = seq::position(self.remains.rcv_next, repr.sequence);
        if repr.flags.contains(Flags::RST) {
            // RFC 1337, section 3, (F1): "Ignore RST segments in TIME-WAIT state."
            return Verdict::Drop;
        }
        let is_syn = is_syn(repr);
        if is_syn && listens && self.is_new_syn(arrival) {
            return Verdict::Reuse;
        }
        if is_silent && !repr.flags.contains(Flags::ACK) {
            return Verdict::Drop;
        }
        if is_syn {
            return self.acknowledge_rarely(now);
        }
        let is_old = match (&self.remains.timestamps, repr.options.timestamps) {
            (Some(timestamps), Some(option)) => timestamps.is_old(now, option.value),
            _ => false,
        };
        let length = arrival.length();
        let is_acceptable = start >= self.remains.rcv_next
            && start < self.remains.rcv_next + self.remains.rcv_window.max(1);
        if !repr.flags.intersects(Flags::ACK | Flags::SYN) && is_acceptable && !is_old {
            return Verdict::Drop; // "if the ACK bit is off, drop the segment and return"
        }
        if repr.flags.contains(Flags::FIN) && start + length == self.remains.rcv_next && !is_old {
            return Verdict::Restart;
        }
        match length > 0 || is_old || start != self.remains.rcv_next {
            true => self.acknowledge_rarely(now),
            false => Verdict::Drop,
        }
    }

    /// RFC 5961, section 7: so that nobody is made to answer for ever, by another end that does the
    /// same least of all.
    fn acknowledge_rarely(&mut self, now: Time) -> Verdict {
        if self.challenges.allow(now) { Verdict::Acknowledge } else { Verdict::Drop }
    }

    /// True once what is left of the connection in the network is old by its timestamps for one
    /// that is opened from here (RFC 7323, section 5.3): not before the peer's clock has ticked,
    /// since a peer that does not know of this connection any more may begin with numbers that have
    /// been used. What has no timestamps is not taken for one that has them.
    pub(crate) fn has_rested(&self, now: Time) -> bool {
        self.remains.timestamps.as_ref().is_none_or(|timestamps| timestamps.has_ticked(now))
    }

    /// True if a SYN cannot be an old one. RFC 6191, section 2: a SYN with a timestamp "greater
    /// than the last timestamp seen", or without one and with a sequence number "larger than the
    /// last sequence number".
    pub(crate) fn is_new_syn(&self, arrival: &Arrival) -> bool {
        match (&self.remains.timestamps, arrival.repr.options.timestamps) {
            (Some(timestamps), Some(option)) if option.value != timestamps.recent() => {
                is_before(timestamps.recent(), option.value)
            }
            _ => {
                let rcv_next = self.remains.rcv_next;
                seq::position(rcv_next, arrival.repr.sequence) > rcv_next
            }
        }
    }

    /// The acknowledgement of all that there was.
    pub(crate) fn acknowledgement(&self, now: Time, arrival: &Arrival) -> Transmit {
        let remains = &self.remains;
        let timestamps = remains.timestamps.as_ref().map(|timestamps| timestamps.option(now));
        let window = (remains.rcv_window >> remains.rcv_scale).min(u64::from(u16::MAX)) as u16;
        let repr = Repr {
            source_port: arrival.to.port(),
            destination_port: arrival.from.port(),
            sequence: remains.snd_next,
            acknowledgement: remains.rcv_next as u32,
            flags: Flags::ACK,
            window,
            urgent: 0,
            options: Options { timestamps, ..Options::default() },
        };
        Transmit::bare(arrival.to, arrival.from, repr, remains.ip)
    }

    /// An initial sequence number for the next connection: RFC 9293, section 3.6.1 (MAY-2): "larger
    /// than the largest sequence number it used on the previous connection incarnation". That is
    /// the one by the clock, unless this connection was faster; no larger than need be, since the
    /// connection after it has one by the clock again.
    pub(crate) const fn next_isn(&self, by_clock: u32) -> u32 {
        let least = self.remains.snd_next.wrapping_add(1);
        if (by_clock.wrapping_sub(least) as i32) < 0 { least } else { by_clock }
    }
}

/// True for what opens a connection.
pub(crate) fn is_syn(repr: &Repr) -> bool {
    repr.flags.contains(Flags::SYN) && !repr.flags.intersects(Flags::ACK | Flags::RST)
}

/// All of them. All wait for equally long, so the first to come is the first to go.
#[derive(Debug)]
pub(crate) struct TimeWaits {
    slots: Slots<TimeWait>,
    /// All of them; some are gone.
    order: VecDeque<(Time, SlotId)>,
    shares: Shares,
    /// Those of each account, the first to come first; some are gone.
    of_accounts: BTreeMap<u32, VecDeque<SlotId>>,
    duration_ns: u64,
}

impl TimeWaits {
    pub(crate) fn new(max: u32, duration_ns: u64) -> Self {
        Self {
            slots: Slots::new(max.max(1)),
            order: VecDeque::new(),
            shares: Shares::default(),
            of_accounts: BTreeMap::new(),
            duration_ns,
        }
    }

    pub(crate) const fn set_duration(&mut self, duration_ns: u64) {
        self.duration_ns = duration_ns;
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.count() as usize
    }

    /// See [`TimeWait::has_rested`].
    pub(crate) fn has_rested(&self, now: Time, key: SlotId) -> bool {
        self.slots.get(key).is_some_and(|entry| entry.has_rested(now))
    }

    pub(crate) fn get_mut(&mut self, key: SlotId) -> Option<&mut TimeWait> {
        self.slots.get_mut(key)
    }

    /// Adds one, if there is room for it at all. If its account has too many, the oldest of those
    /// has to go: it is returned.
    pub(crate) fn insert(
        &mut self,
        now: Time,
        tuple: Tuple,
        remains: Remains,
    ) -> (Option<SlotId>, Option<Tuple>) {
        let gone = self.make_room(remains.account);
        let until = now + self.duration_ns;
        let entry = TimeWait { tuple, remains, until, challenges: Challenges::default() };
        (self.push(entry), gone.map(|gone| gone.tuple))
    }

    /// All of them, in the order in which they end.
    pub(crate) fn save(&self) -> Vec<SavedTimeWait> {
        let entries = self.order.iter().filter_map(|(_, key)| self.slots.get(*key));
        let mut saved: Vec<_> = entries.map(TimeWait::save).collect();
        saved.sort_by_key(|entry| entry.until);
        saved
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &TimeWait> {
        self.slots.iter().map(|(_, entry)| entry)
    }

    /// One that was saved. `None` if there are too many.
    pub(crate) fn restore(
        &mut self,
        now: Time,
        saved: &SavedTimeWait,
    ) -> Result<Option<(SlotId, Tuple)>, Invalid> {
        let is_so = saved::is_position(saved.rcv_next)
            && saved.rcv_window <= 1 << 30
            && saved.rcv_scale <= 14
            && saved.ends.0.is_ipv4() == saved.ends.1.is_ipv4();
        ensure(is_so, "what guards its ports is none")?;
        let tuple = Tuple::new(saved.ends.0, saved.ends.1);
        let remains = Remains {
            snd_next: saved.snd_next,
            rcv_next: saved.rcv_next,
            rcv_window: saved.rcv_window,
            rcv_scale: saved.rcv_scale,
            timestamps: saved.timestamps.map(Timestamps::restore),
            ip: saved.ip,
            account: saved.account,
        };
        let until = saved.until.min(now + self.duration_ns);
        let entry = TimeWait { tuple, remains, until, challenges: Challenges::default() };
        Ok(self.push(entry).map(|key| (key, tuple)))
    }

    /// The peer's FIN has come again: "Restart the 2 MSL time-wait timeout."
    pub(crate) fn restart(&mut self, now: Time, key: SlotId) {
        if let Some(entry) = self.slots.get_mut(key) {
            entry.until = now + self.duration_ns;
        }
    }

    pub(crate) fn remove(&mut self, key: SlotId) -> Option<TimeWait> {
        let entry = self.slots.remove(key)?;
        let account = entry.remains.account;
        self.shares.leave(account);
        if self.shares.count(account) == 0 {
            self.of_accounts.remove(&account);
        }
        Some(entry)
    }

    fn push(&mut self, entry: TimeWait) -> Option<SlotId> {
        let (account, until) = (entry.remains.account, entry.until);
        let key = self.slots.insert(entry)?;
        self.order.push_back((until, key));
        if self.order.len() > 2 * self.len() {
            self.order.retain(|(_, key)| self.slots.get(*key).is_some());
        }
        self.shares.enter(account);
        let of_account = self.of_accounts.entry(account).or_default();
        of_account.push_back(key);
        if of_account.len() > 2 * self.shares.count(account) {
            of_account.retain(|key| self.slots.get(*key).is_some());
        }
        Some(key)
    }

    /// Has one go if an account may not have more; if it has none, and others have all, it is
    /// anybody's oldest.
    fn make_room(&mut self, account: u32) -> Option<TimeWait> {
        if self.shares.may_enter(account, self.slots.room() as usize) {
            return None;
        }
        let Self { slots, order, of_accounts, .. } = self;
        let is_there = |key: &SlotId| slots.get(*key).is_some();
        // What is passed over is gone for good: nobody passes it a second time.
        let oldest = match of_accounts.get_mut(&account) {
            Some(own) => core::iter::from_fn(|| own.pop_front()).find(is_there),
            None => core::iter::from_fn(|| order.pop_front()).map(|(_, key)| key).find(is_there),
        };
        self.remove(oldest?)
    }

    /// One that has waited long enough.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Tuple> {
        while let Some((due, key)) = self.order.front().copied().filter(|(due, _)| *due <= now) {
            self.order.pop_front();
            let Some(entry) = self.slots.get(key) else {
                continue;
            };
            if entry.until > due {
                let again = entry.until;
                self.order.push_back((again, key)); // a little out of order, and so a little late
                continue;
            }
            return self.remove(key).map(|entry| entry.tuple);
        }
        None
    }

    pub(crate) fn next_timeout(&self) -> Time {
        self.order.front().map_or(Time::MAX, |(due, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remains() -> Remains {
        Remains {
            snd_next: 0,
            rcv_next: 1 << 32,
            rcv_window: 0,
            rcv_scale: 0,
            timestamps: None,
            ip: crate::IpFields::default(),
            account: 7,
        }
    }

    /// The next connection's number is behind all of this one, and what the clock says if that is.
    #[test]
    fn the_next_connection_begins_behind_this_one() {
        let mut all = TimeWaits::new(2, 1_000_000_000);
        let local = ([10, 0, 0, 1], 80).into();
        let tuple = Tuple::new(local, ([10, 0, 0, 2], 1234).into());
        let over = Remains { snd_next: u32::MAX - 1, ..remains() };
        let (key, _) = all.insert(Time::ZERO, tuple, over);
        let entry = all.get_mut(key.expect("there is room")).expect("just made");
        for (by_clock, next) in [
            (u32::MAX - 1000, u32::MAX),
            (u32::MAX - 1, u32::MAX),
            (u32::MAX, u32::MAX),
            (5, 5),
            (1 << 30, 1 << 30),
        ] {
            assert_eq!(entry.next_isn(by_clock), next);
        }
    }

    /// Who closes far more connections than there is room for makes neither the books grow nor the
    /// next one cost more.
    #[test]
    fn what_is_gone_is_passed_over_once() {
        let mut all = TimeWaits::new(1000, 1_000_000_000);
        for port in 0..20_000 {
            let remote = std::net::SocketAddr::from(([10, 0, 0, 2], port));
            let tuple = Tuple::new(([10, 0, 0, 1], 80).into(), remote);
            all.insert(Time::ZERO, tuple, remains());
            assert!(all.order.len() <= 2 * all.len());
            let own = &all.of_accounts[&7];
            assert!(own.front().is_some_and(|oldest| all.slots.get(*oldest).is_some()));
        }
        assert_eq!(all.len(), 500);
        let until = Time::from_ns(1_000_000_000);
        assert_eq!(core::iter::from_fn(|| all.pop_due(until)).count(), 500);
        assert!(all.order.is_empty() && all.of_accounts.is_empty());
    }
}
