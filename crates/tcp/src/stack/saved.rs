//! A stack as plain data, and back.

use clearway_base::{SlotId, SlotState, Time};

use super::connections::Connections;
use super::listeners::Listeners;
use super::{Entry, Stack};
use crate::config::Config;
use crate::connection::{Challenges, Connection};
use crate::ecn::Asked;
use crate::fast_open::Peers;
use crate::listen::{HalfOpen, ListenSocket, Offer};
use crate::saved::{
    Invalid, SAVED_VERSION, Saved, SavedConnection, SavedHalfOpen, SavedListener, ensure,
};
use crate::tuple::Tuple;

impl Stack {
    /// All that another stack needs to go on. Segments and events that wait to be polled are not in
    /// it: poll before, or they are as if lost.
    #[must_use]
    pub fn save(&self) -> Saved {
        Saved {
            version: SAVED_VERSION,
            secret: self.secret.key(),
            seed: self.random.state(),
            listeners: self.listeners.save(),
            connections: self.connections.save(),
            half_open: self.half_open.iter().map(HalfOpen::save).collect(),
            time_waits: self.time_waits.save(),
            peers: self.peers.save(),
            keys: self.keys,
            early: self.early.iter().map(|(key, listener)| (*key, *listener)).collect(),
        }
    }

    /// A stack that goes on where another one was saved, with the same keys. Nothing of `saved` is
    /// trusted: what cannot be is refused. `mtu` is that of the interface now: no connection goes
    /// on with a larger one.
    pub fn restore(mut saved: Saved, config: Config, mtu: u16, now: Time) -> Result<Self, Invalid> {
        ensure(saved.version == SAVED_VERSION, "it is of another version")?;
        saved.bound_mtu(mtu);
        let mut stack = Self::new(config, now, saved.seed, saved.secret);
        stack.listeners = Listeners::restore(saved.listeners)?;
        stack.restore_connections(now, saved.connections)?;
        stack.check_accepted()?;
        stack.restore_early(&saved.early)?;
        stack.keys = saved.keys;
        stack.peers = Peers::restore(now, config.fast_open_peers_max, saved.peers)?;
        for half_open in saved.half_open {
            stack.restore_half_open(now, &half_open)?;
        }
        for time_wait in saved.time_waits {
            if let Some((key, tuple)) = stack.time_waits.restore(now, &time_wait)? {
                stack.name(tuple, Entry::TimeWait(key))?;
            }
        }
        Ok(stack)
    }

    /// Two must not have the same addresses and ports.
    fn name(&mut self, tuple: Tuple, entry: Entry) -> Result<(), Invalid> {
        ensure(self.table.insert(tuple, entry).is_none(), "two connections have the same ports")
    }

    fn restore_connections(
        &mut self,
        now: Time,
        saved: Vec<SlotState<SavedConnection>>,
    ) -> Result<(), Invalid> {
        let max = self.config.connections_max;
        self.connections = Connections::restore(now, max, saved)?;
        let keys: Vec<SlotId> = self.connections().collect();
        for key in keys {
            let connection = self.connections.get(key).expect("it is there");
            if !connection.state().is_over() {
                let tuple = Tuple::new(connection.local(), connection.remote());
                let entry = match connection.is_attempt() {
                    true => Entry::Attempt(key),
                    false => Entry::Connection(key),
                };
                self.name(tuple, entry)?;
            }
            self.connections.change(key, |_| ());
        }
        Ok(())
    }

    /// What waits at a listener is a connection that nobody has, and that waits nowhere else.
    fn check_accepted(&self) -> Result<(), Invalid> {
        let waiting = self.listeners.iter().flat_map(|(_, socket)| &socket.accepted);
        let mut waiting: Vec<SlotId> = waiting.copied().collect();
        let is_offered = |key: &SlotId| self.connections.is_offered(*key);
        ensure(waiting.iter().all(is_offered), "a listener has what is not there")?;
        let count = self.connections.offered();
        ensure(count == waiting.len(), "what nobody has waits at no listener")?;
        waiting.sort_unstable();
        ensure(waiting.windows(2).all(|pair| pair[0] != pair[1]), "one waits at two listeners")
    }

    /// What counts as open early is so, and once.
    fn restore_early(&mut self, saved: &[(SlotId, SlotId)]) -> Result<(), Invalid> {
        for (key, listener) in saved.iter().copied() {
            let is_attempt = self.connections.get(key).is_some_and(Connection::is_attempt);
            ensure(is_attempt && !self.early.contains_key(&key), "what is open early is not")?;
            self.begin_early(key, listener);
        }
        Ok(())
    }

    /// It is given up when others are: it was answered by now, and not more often than may be.
    pub(super) fn restore_half_open(
        &mut self,
        now: Time,
        saved: &SavedHalfOpen,
    ) -> Result<(), Invalid> {
        let mut half_open = HalfOpen::restore(self, saved)?;
        let socket = self.listeners.get_mut(half_open.listener);
        let socket = socket.ok_or(Invalid("a listener is not there"))?;
        half_open.account = socket.settings.account;
        half_open.sent = half_open.sent.min(now);
        let retries_max = self.config.syn_ack_retries.max(socket.settings.defer_accept);
        half_open.retries = half_open.retries.min(retries_max);
        let timeout = half_open.timeout(&socket.settings);
        let key = self.half_open.insert(half_open, timeout);
        let key = key.ok_or(Invalid("too many are half open"))?;
        socket.half_open.insert(key);
        self.name(half_open.tuple, Entry::HalfOpen(key))
    }
}

impl Saved {
    fn bound_mtu(&mut self, mtu: u16) {
        for listener in self.listeners.iter_mut().filter_map(|place| place.value.as_mut()) {
            listener.mtu = listener.mtu.min(mtu);
        }
        for connection in self.connections.iter_mut().filter_map(|place| place.value.as_mut()) {
            let of_link = &mut connection.agreed.mtus.0;
            *of_link = mtu.min(*of_link);
        }
    }
}

impl ListenSocket {
    /// With when the last cookie that was given out there is too old.
    pub(super) fn save(&self, cookies_until: Time) -> SavedListener {
        SavedListener {
            address: self.address,
            port: self.port,
            mtu: self.mtu,
            settings: self.settings,
            peers: self.peers.clone(),
            backlog: self.backlog,
            accepted: self.accepted.iter().copied().collect(),
            cookies_until,
            keys: self.keys,
            reset_early: self.reset_early.iter().copied().collect(),
        }
    }

    pub(super) fn restore(saved: SavedListener) -> Self {
        let SavedListener { address, port, mtu, settings, peers, backlog, .. } = saved;
        let (accepted, reset_early) = (saved.accepted.into(), saved.reset_early.into());
        let socket = Self::new(address, port, backlog, mtu, settings);
        Self { peers, accepted, keys: saved.keys, reset_early, ..socket }
    }
}

impl HalfOpen {
    pub(super) fn save(&self) -> SavedHalfOpen {
        SavedHalfOpen {
            listener: self.listener,
            ends: (self.local, self.remote),
            isns: (self.isn, self.peer_isn),
            segment_bytes: self.offer.segment_bytes,
            window_scale: self.offer.window_scale,
            timestamp: self.offer.timestamp,
            sack: self.offer.sack,
            ecn: self.offer.ecn.save(),
            sent: self.sent,
            retries: self.retries,
        }
    }

    fn restore(stack: &Stack, saved: &SavedHalfOpen) -> Result<Self, Invalid> {
        let (local, remote) = saved.ends;
        ensure(local.is_ipv4() == remote.is_ipv4(), "two families of addresses")?;
        ensure(saved.window_scale.is_none_or(|scale| scale <= 14), "a scale of more than 14")?;
        let tuple = Tuple::new(local, remote);
        Ok(Self {
            account: 0,
            tuple,
            listener: saved.listener,
            local,
            remote,
            isn: saved.isns.0,
            peer_isn: saved.isns.1,
            offer: Offer {
                segment_bytes: saved.segment_bytes,
                window_scale: saved.window_scale,
                sack: saved.sack,
                timestamp: saved.timestamp,
                ecn: Asked::restore(saved.ecn)?,
            },
            timestamp_offset: stack.timestamp_offset(&tuple),
            sent: saved.sent,
            retries: saved.retries,
            resent: saved.retries, // at most
            is_again: true,        // for all that is known
            is_deferred: false,
            challenges: Challenges::default(),
        })
    }
}
