//! A stack as plain data, and back.

use std::collections::BTreeSet;

use clearway_base::Time;

use super::{Entry, Listener, Slot, Stack};
use crate::config::Config;
use crate::connection::Connection;
use crate::listen::{HalfOpen, ListenSocket, Offer};
use crate::saved::{
    Invalid, SAVED_VERSION, Saved, SavedConnection, SavedHalfOpen, SavedListener, ensure,
};
use crate::table::{Key, Slab, Tuple};

impl Stack {
    /// All that another stack needs to go on. Segments and events that wait to be polled are not in
    /// it: poll before, or they are as if lost.
    #[must_use]
    pub fn save(&self) -> Saved {
        Saved {
            version: SAVED_VERSION,
            secret: self.secret.key(),
            seed: self.random.state(),
            generation: self.connections.next_generation(),
            listeners: self
                .listeners
                .iter()
                .map(|(key, socket)| save_listener(key, socket))
                .collect(),
            connections: self.connections.iter().map(|(key, slot)| slot.save(key)).collect(),
            half_open: self.half_open.iter().map(|(_, half_open)| half_open.save()).collect(),
            time_waits: self.time_waits.save(),
        }
    }

    /// A stack that goes on where another one was saved, with the same keys. Nothing of `saved` is
    /// trusted: what cannot be is refused.
    pub fn restore(saved: Saved, config: Config, now: Time) -> Result<Self, Invalid> {
        ensure(saved.version == SAVED_VERSION, "it is of another version")?;
        let mut stack = Self::new(config, now, saved.seed, saved.secret);
        stack.restore_listeners(&saved.listeners)?;
        stack.restore_connections(now, saved.generation, saved.connections)?;
        stack.restore_accepted(saved.listeners)?;
        for half_open in saved.half_open {
            stack.restore_half_open(half_open)?;
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

    fn restore_listeners(&mut self, saved: &[SavedListener]) -> Result<(), Invalid> {
        let sockets = saved.iter().map(|saved| {
            let socket = ListenSocket {
                address: saved.address,
                port: saved.port,
                mtu: saved.mtu,
                settings: saved.settings,
                backlog: saved.backlog.max(1),
                accepted: saved.accepted.iter().copied().map(Key::restored).collect(),
                half_open: BTreeSet::new(),
                cookies_until: saved.cookies_until,
            };
            (Key::restored(saved.key), socket)
        });
        let listeners = Slab::restore(u32::from(u16::MAX), 0, sockets.collect());
        self.listeners = listeners.ok_or(Invalid("two listeners have one place"))?;
        for (key, socket) in self.listeners.iter() {
            self.listening.entry(socket.place()).or_default().push(key);
        }
        Ok(())
    }

    fn restore_connections(
        &mut self,
        now: Time,
        generation: u32,
        saved: Vec<SavedConnection>,
    ) -> Result<(), Invalid> {
        let mut slots = Vec::with_capacity(saved.len());
        for saved in saved {
            let key = Key::restored(saved.key);
            let (is_offered, is_forgotten) = (saved.is_offered, saved.is_forgotten);
            let connection = Connection::restore(now, saved)?;
            slots.push((key, Slot { is_offered, is_forgotten, ..Slot::new(connection) }));
        }
        let connections = Slab::restore(self.config.connections_max, generation, slots);
        self.connections = connections.ok_or(Invalid("two connections have one place"))?;
        let keys: Vec<Key> = self.connections().collect();
        for key in keys {
            let slot = self.connections.get(key).expect("it is there");
            if !slot.connection.state().is_over() {
                let tuple = Tuple::new(slot.connection.local(), slot.connection.remote());
                self.name(tuple, Entry::Connection(key))?;
            }
            self.change(key, |_| ());
        }
        Ok(())
    }

    /// What waits at a listener is a connection that nobody has, and that waits nowhere else.
    fn restore_accepted(&mut self, saved: Vec<SavedListener>) -> Result<(), Invalid> {
        let mut waiting: Vec<Key> =
            saved.iter().flat_map(|saved| &saved.accepted).copied().map(Key::restored).collect();
        let offered = |key: &Key| self.connections.get(*key).is_some_and(|slot| slot.is_offered);
        ensure(waiting.iter().all(offered), "a listener has what is not there")?;
        let count = self.connections.iter().filter(|(_, slot)| slot.is_offered).count();
        ensure(count == waiting.len(), "what nobody has waits at no listener")?;
        waiting.sort_unstable();
        ensure(waiting.windows(2).all(|pair| pair[0] != pair[1]), "one waits at two listeners")?;
        let not_empty = saved.iter().filter(|saved| !saved.accepted.is_empty());
        self.acceptable = not_empty.map(|saved| Listener(Key::restored(saved.key))).collect();
        Ok(())
    }

    fn restore_half_open(&mut self, saved: SavedHalfOpen) -> Result<(), Invalid> {
        let mut half_open = HalfOpen::restore(self, &saved)?;
        let socket = self.listeners.get_mut(half_open.listener);
        let socket = socket.ok_or(Invalid("a listener is not there"))?;
        half_open.account = socket.settings.account;
        self.half_open_shares.enter(half_open.account);
        let timeout = half_open.timeout(&socket.settings);
        let key = self.half_open.insert(half_open).ok_or(Invalid("too many are half open"))?;
        socket.half_open.insert(key);
        self.half_open_deadlines.set(key.index, timeout);
        self.name(half_open.tuple, Entry::HalfOpen(key))
    }
}

impl Slot {
    fn save(&self, key: Key) -> SavedConnection {
        let (is_offered, is_forgotten) = (self.is_offered, self.is_forgotten);
        SavedConnection { is_offered, is_forgotten, ..self.connection.save(key.saved()) }
    }
}

fn save_listener(key: Key, socket: &ListenSocket) -> SavedListener {
    SavedListener {
        key: key.saved(),
        address: socket.address,
        port: socket.port,
        mtu: socket.mtu,
        settings: socket.settings,
        backlog: socket.backlog,
        accepted: socket.accepted.iter().map(|key| key.saved()).collect(),
        cookies_until: socket.cookies_until,
    }
}

impl HalfOpen {
    fn save(&self) -> SavedHalfOpen {
        SavedHalfOpen {
            listener: self.listener.saved(),
            ends: (self.local, self.remote),
            isns: (self.isn, self.peer_isn),
            segment_bytes: self.offer.segment_bytes,
            window_scale: self.offer.window_scale,
            timestamp: self.offer.timestamp,
            sack: self.offer.sack,
            ecn: self.offer.ecn,
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
            listener: Key::restored(saved.listener),
            local,
            remote,
            isn: saved.isns.0,
            peer_isn: saved.isns.1,
            offer: Offer {
                segment_bytes: saved.segment_bytes,
                window_scale: saved.window_scale,
                sack: saved.sack,
                timestamp: saved.timestamp,
                ecn: saved.ecn,
            },
            timestamp_offset: stack.timestamp_offset(&tuple),
            sent: saved.sent,
            retries: saved.retries,
            is_deferred: false,
        })
    }
}
