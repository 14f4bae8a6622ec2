//! How buffers come back that other threads drop, and how the owner of the channel, the thread that
//! has its end, hears of that while it sleeps.
//!
//! ```text
//!   who gives back: put it into its list, under the list's lock; look at `sleeps` ─ set ─▶ ring
//!   the owner:      set `sleeps`; take each list, under its lock ─ nothing there ─▶ sleep
//! ```
//!
//! Whoever has the lock of a list second sees what the other did before: as in `sleep.rs`, with a
//! lock where that has fences. So giving something back to an owner who is awake takes the lock of
//! a list and no more.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::doorbell::OwnerBell;

/// What was given back, in whatever thread, until the owner takes it.
pub(super) struct Returned<T> {
    list: Mutex<Vec<T>>,
    /// Whether there is any: a hint that spares the lock.
    any: AtomicBool,
    owner: Arc<Sleeper>,
}

impl<T> Returned<T> {
    pub(super) fn new(owner: &Arc<Sleeper>) -> Self {
        Self { list: Mutex::default(), any: AtomicBool::new(false), owner: Arc::clone(owner) }
    }

    /// Gives something back.
    pub(super) fn put(&self, thing: T) {
        let mut list = lock(&self.list);
        list.push(thing);
        // The lock orders the list; the flag needs no order: what it hides now, it shows later.
        self.any.store(true, Ordering::Relaxed);
        drop(list);
        self.owner.wake();
    }

    /// Whether there is something. What it overlooks now, it sees later.
    #[inline]
    pub(super) fn has_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Exchanges the list for an empty one.
    pub(super) fn take(&self, empty: &mut Vec<T>) {
        let mut list = lock(&self.list);
        self.any.store(false, Ordering::Relaxed);
        std::mem::swap(&mut *list, empty);
    }
}

/// The owner of a channel, to be woken by other threads.
pub struct Sleeper {
    /// It sleeps, or is about to, and nobody has woken it yet.
    sleeps: AtomicBool,
    /// Whoever ends that has it: whether the bell was rung is then known for certain, and who
    /// clears it clears all of it.
    ending: Mutex<()>,
    bell: OwnerBell,
}

impl Sleeper {
    pub(super) fn new(bell: OwnerBell) -> Arc<Self> {
        Arc::new(Self { sleeps: AtomicBool::new(false), ending: Mutex::default(), bell })
    }

    /// Wakes the owner if it sleeps. For those who have noted, under a lock, that something was
    /// given back; the owner looks for that, under the same lock, between
    /// [`AppEnd::expect_returns`](super::AppEnd::expect_returns) and its sleep.
    #[inline]
    pub fn wake(&self) {
        // Pairs with the store in `lie_down`, by the lock of what was noted.
        if self.sleeps.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    #[cold]
    fn ring(&self) {
        let _ending = lock(&self.ending);
        if self.sleeps.swap(false, Ordering::Relaxed) {
            self.bell.ring();
        }
    }

    /// The owner: from now on it is rung.
    pub(super) fn lie_down(&self) {
        self.sleeps.store(true, Ordering::Relaxed);
    }

    /// The owner: it is awake again.
    pub(super) fn get_up(&self) {
        let _ending = lock(&self.ending);
        if !self.sleeps.swap(false, Ordering::Relaxed) {
            self.bell.clear();
        }
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.own()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
