//! How much of an app's receive pool each peer holds in messages that cannot be delivered yet, and
//! how much it may. A peer decides by itself when such a message is complete, if ever; without a
//! bound one that begins many and ends none would keep all other peers from the app.
//!
//! The bound is by host, not by connection, because a host can open as many connections as the
//! app takes. Messages that the app has are none of this: it gives those back itself.
//!
//! An implementation of [`crate::App`] keeps one of these for each pool, and asks it in `begin`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use crate::app::Order;

/// The smallest piece that a pool gives out.
const PIECE_BYTES_MIN: u32 = 64;
/// Messages that came before their turn may take this part of the pool in all.
const AHEAD_PARTS: u64 = 4;

/// The books of one pool.
///
/// A message that is due has its own: were those that wait for it counted with it, they could keep
/// it out, and would then wait for ever.
#[derive(Debug)]
pub struct Unfinished {
    due: Book,
    ahead: Book,
}

#[derive(Debug)]
struct Book {
    bytes_max: u64,
    total_bytes: u64,
    /// By host; none with nothing.
    held_bytes: HashMap<IpAddr, u64>,
}

impl Unfinished {
    /// Books for a pool of this size, of which nothing is held.
    #[must_use]
    pub fn new(pool_bytes: u32) -> Self {
        let book = |bytes_max| Book { bytes_max, total_bytes: 0, held_bytes: HashMap::new() };
        let pool_bytes = u64::from(pool_bytes);
        Self { due: book(pool_bytes), ahead: book(pool_bytes / AHEAD_PARTS) }
    }

    /// True if `peer` may begin a message of `length` bytes. One that is due is always taken if
    /// there is no other: a pool of less than twice its size could otherwise never receive it.
    #[must_use]
    pub fn allows(&self, peer: IpAddr, length: u32, order: Order) -> bool {
        match order {
            Order::Due => self.due.total_bytes == 0 || self.due.has_room(host(peer), length),
            Order::Ahead => self.ahead.has_room(host(peer), length),
        }
    }

    /// A message of `peer` has got its buffer.
    pub fn begin(&mut self, peer: IpAddr, length: u32, order: Order) {
        self.book(order).add(host(peer), piece_bytes(length));
    }

    /// The message is complete, or never will be.
    pub fn end(&mut self, peer: IpAddr, length: u32, order: Order) {
        self.book(order).remove(host(peer), piece_bytes(length));
    }

    /// True if nobody holds anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        [&self.due, &self.ahead].iter().all(|book| {
            let held: u64 = book.held_bytes.values().sum();
            (held, book.total_bytes, book.held_bytes.len()) == (0, 0, 0)
        })
    }

    fn book(&mut self, order: Order) -> &mut Book {
        match order {
            Order::Due => &mut self.due,
            Order::Ahead => &mut self.ahead,
        }
    }
}

impl Book {
    /// A host may hold half of what the others leave: dynamic thresholds as in Choudhury and
    /// Hahne, "Dynamic queue length thresholds for shared-memory packet switches" (1998), with an
    /// alpha of one.
    fn has_room(&self, host: IpAddr, length: u32) -> bool {
        let held = self.held_bytes.get(&host).copied().unwrap_or(0);
        let others = self.total_bytes - held;
        held + piece_bytes(length) <= self.bytes_max.saturating_sub(others) / 2
    }

    fn add(&mut self, host: IpAddr, bytes: u64) {
        self.total_bytes += bytes;
        *self.held_bytes.entry(host).or_default() += bytes;
    }

    fn remove(&mut self, host: IpAddr, bytes: u64) {
        let Some(held) = self.held_bytes.get_mut(&host) else { return };
        *held -= bytes;
        self.total_bytes -= bytes;
        if *held == 0 {
            self.held_bytes.remove(&host);
        }
    }
}

/// What a pool gives out for a message of this length.
fn piece_bytes(length: u32) -> u64 {
    u64::from(length.max(PIECE_BYTES_MIN)).next_power_of_two()
}

/// RFC 6177, section 2: a site has at least a /64, so all addresses of one count as one host.
pub(crate) fn host(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::Unfinished;
    use crate::app::Order;
    use std::net::IpAddr;

    const POOL_BYTES: u32 = 16 << 20;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn each_host_gets_half_of_what_the_others_leave() {
        let mut unfinished = Unfinished::new(POOL_BYTES);
        let (a, b, c) = (address("10.0.0.1"), address("10.0.0.2"), address("10.0.0.3"));
        assert!(unfinished.allows(a, 8 << 20, Order::Due));
        unfinished.begin(a, (8 << 20) - 1, Order::Due);
        assert!(!unfinished.allows(a, 1, Order::Due));
        assert!(!unfinished.allows(b, (4 << 20) + 1, Order::Due));
        assert!(unfinished.allows(b, 4 << 20, Order::Due));
        unfinished.begin(b, 4 << 20, Order::Due);
        assert!(!unfinished.allows(b, 0, Order::Due) && unfinished.allows(c, 2 << 20, Order::Due));
        unfinished.end(a, (8 << 20) - 1, Order::Due);
        assert!(unfinished.allows(c, 4 << 20, Order::Due));
        assert!(!unfinished.allows(c, 8 << 20, Order::Due));
        unfinished.end(b, 4 << 20, Order::Due);
        assert!(unfinished.due.held_bytes.is_empty() && unfinished.due.total_bytes == 0);
    }

    #[test]
    fn one_message_that_is_due_is_taken_however_large() {
        let mut unfinished = Unfinished::new(1 << 20);
        let peer = address("10.0.0.1");
        assert!(unfinished.allows(peer, 1 << 20, Order::Due));
        unfinished.begin(peer, 64, Order::Due);
        assert!(!unfinished.allows(peer, 1 << 20, Order::Due));
    }

    #[test]
    fn what_came_early_leaves_room_for_what_is_due() {
        let mut unfinished = Unfinished::new(POOL_BYTES);
        let peer = address("10.0.0.1");
        while unfinished.allows(peer, 1000, Order::Ahead) {
            unfinished.begin(peer, 1000, Order::Ahead);
        }
        assert_eq!(unfinished.ahead.total_bytes, 2 << 20);
        assert!(unfinished.allows(peer, 8 << 20, Order::Due));
    }

    #[test]
    fn books_are_empty_when_all_have_ended() {
        for order in [Order::Due, Order::Ahead] {
            let mut unfinished = Unfinished::new(POOL_BYTES);
            let (a, b) = (address("10.0.0.1"), address("10.0.0.2"));
            assert!(unfinished.is_empty());
            unfinished.begin(a, 100, order);
            unfinished.begin(a, 1000, order);
            unfinished.begin(b, 0, order);
            for (peer, length) in [(a, 100), (b, 0), (a, 1000)] {
                assert!(!unfinished.is_empty());
                unfinished.end(peer, length, order);
            }
            assert!(unfinished.is_empty());
            unfinished.end(a, 100, order);
            assert!(unfinished.is_empty(), "of one who holds nothing");
        }
    }

    #[test]
    fn many_addresses_of_one_network_are_one_host() {
        let mut unfinished = Unfinished::new(POOL_BYTES);
        unfinished.begin(address("fd00::1"), 8 << 20, Order::Due);
        assert!(!unfinished.allows(address("fd00::2"), 64, Order::Due));
        assert!(unfinished.allows(address("fd00:0:0:1::1"), 64, Order::Due));
    }
}
