//! What the driver and those whom it serves share: the channel, and who waits for what.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use clearway_client::{Channel, Error};

/// A call that does not wait.
pub(crate) const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// A channel, and tasks that wait for what happens on it.
pub(crate) trait Users: Send + 'static {
    fn channel(&mut self) -> &mut Channel;

    /// Takes all that has happened, and wakes whom it concerns. An error is the end of the channel,
    /// which all are told by their next call.
    fn take_events(&mut self) -> Result<(), Error>;

    /// The channel rings from now on. False if there is something already.
    fn arm(&mut self) -> bool {
        self.channel().arm()
    }

    /// When there is something to do even if nothing happens.
    fn deadline(&self) -> Option<Instant> {
        None
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared<U>(Mutex<State<U>>);

/// The same, locked.
#[derive(Debug)]
pub(crate) struct State<U> {
    users: U,
    /// The driver sleeps: the channel rings for it.
    is_armed: bool,
    driver: Option<Waker>,
}

impl<U: Users> Shared<U> {
    pub(crate) fn new(users: U) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { users, is_armed: false, driver: None })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State<U>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For calls of the channel by anybody but the driver, which has to look at it again then:
    /// calls take in news of others than they are about.
    pub(crate) fn enter(&self) -> MutexGuard<'_, State<U>> {
        let mut state = self.lock();
        if std::mem::take(&mut state.is_armed) {
            state.channel().disarm_early();
            state.driver.iter().for_each(Waker::wake_by_ref);
        }
        state
    }
}

impl<U> Deref for State<U> {
    type Target = U;

    fn deref(&self) -> &U {
        &self.users
    }
}

impl<U> DerefMut for State<U> {
    fn deref_mut(&mut self) -> &mut U {
        &mut self.users
    }
}

impl<U> Drop for State<U> {
    /// The driver ends, since there is nothing to drive any more.
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }
}

impl<U: Users> State<U> {
    /// Before any call of the channel by the driver, whom it may have woken.
    pub(crate) fn disarm(&mut self) {
        if std::mem::take(&mut self.is_armed) {
            self.channel().disarm();
        }
    }

    /// The channel rings from now on, unless there is something already.
    pub(crate) fn arm(&mut self) -> bool {
        self.is_armed = self.users.arm();
        if !self.is_armed {
            self.channel().disarm();
        }
        self.is_armed
    }

    pub(crate) fn set_driver(&mut self, waker: &Waker) {
        match &mut self.driver {
            Some(driver) => driver.clone_from(waker),
            None => self.driver = Some(waker.clone()),
        }
    }
}
