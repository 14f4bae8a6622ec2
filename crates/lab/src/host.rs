//! A host: time, packets, and how calls wait.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use clearway_base::Time;

use crate::settings::{self, Setting};
use crate::state::{START, State};
use crate::{Errno, address};

/// What a host begins with.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What its clock says at first, in ns.
    pub start_ns: u64,
    /// What its ports and sequence numbers are chosen by: the same for the same.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { start_ns: START.as_ns(), seed: 1 }
    }
}

/// A host. All calls may come from any thread.
#[derive(Debug)]
pub struct Host {
    state: Mutex<State>,
    /// Something has changed, or a call has found that it has to wait.
    changed: Condvar,
}

thread_local! {
    /// When the last call of this thread was done.
    static RETURNED: Cell<Time> = const { Cell::new(Time::ZERO) };
}

/// How long a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    /// For so many ns of the host's time.
    For(u64),
    Forever,
}

impl Host {
    /// A host without addresses.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let mut secret = [0x5c; 16];
        secret[..8].copy_from_slice(&options.seed.to_le_bytes());
        let state = State::new(Time::from_ns(options.start_ns), options.seed, secret);
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Gives the host an address, on a link to all others of its family. `prefix_bits` says which
    /// addresses near it are broadcast ones.
    pub fn add_address(&self, sockaddr: &[u8], prefix_bits: u8) -> Result<(), Errno> {
        let address = address::parse(sockaddr)?.ip();
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let is_one = !address.is_unspecified() && !address.is_multicast();
        if prefix_bits > bits_max || !is_one || is_mapped(address) {
            return Err(Errno::EINVAL);
        }
        self.call(|state| {
            state.link.add_address(address, prefix_bits);
            Ok(())
        })
    }

    /// Sets what [`crate::SETTINGS`] names. Sockets that are there already keep what they have, but
    /// for what is of the whole host.
    pub fn set(&self, name: &str, value: i64) -> Result<(), Errno> {
        let setting = Setting::find(name)?;
        self.call(|state| settings::set(state, setting, value))
    }

    /// What is set, or counted.
    pub fn get(&self, name: &str) -> Result<i64, Errno> {
        settings::get(&self.lock(), name)
    }

    // Time.

    /// What the clock says, in ns.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.lock().now.as_ns()
    }

    /// What the clock said, in ns, when the last call of a socket in this thread was done: by now
    /// another thread may have moved it.
    #[must_use]
    pub fn returned_ns() -> u64 {
        RETURNED.get().as_ns()
    }

    /// In how many ns something may happen by itself, or a call that waits gives up; `None` if
    /// never.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        let state = self.lock();
        let next = state.next_event();
        (next != Time::MAX).then(|| next.since(state.now))
    }

    /// Lets time pass: each thing happens at its time, and each call that it wakes is done before
    /// time goes on.
    pub fn advance(&self, ns: u64) {
        self.pass(ns, |_| false);
    }

    /// The same, but no longer than until there is a packet to take. True if there is one.
    pub fn run(&self, ns: u64) -> bool {
        self.pass(ns, State::has_packet)
    }

    fn pass(&self, ns: u64, is_done: impl Fn(&State) -> bool) -> bool {
        let mut state = self.settle(self.lock());
        let end = Time::from_ns(state.now.as_ns().saturating_add(ns));
        loop {
            if is_done(&state) {
                return true;
            }
            let next = state.next_event();
            if next > end || next == Time::MAX {
                state.advance_to(end);
                state = self.settle(state);
                return is_done(&state);
            }
            state.advance_to(next);
            state = self.settle(state);
        }
    }

    // Packets.

    /// An IP packet comes. What is wrong with it is the host's to find out: see the counter
    /// `packets_dropped`.
    pub fn put_packet(&self, packet: &[u8]) {
        let mut state = self.lock();
        state.receive(packet);
        drop(self.settle(state));
    }

    /// The next IP packet that has left, and when, in ns; `None` if there is none.
    ///
    /// # Errors
    /// EMSGSIZE if it is longer than `place`: then it can still be taken.
    pub fn take_packet(&self, place: &mut [u8]) -> Result<Option<(usize, u64)>, Errno> {
        match self.lock().take_packet(place.len()) {
            None => Ok(None),
            Some(Err(_)) => Err(Errno::EMSGSIZE),
            Some(Ok((at, packet))) => {
                place[..packet.len()].copy_from_slice(&packet);
                Ok(Some((packet.len(), at.as_ns())))
            }
        }
    }

    // Calls that wait.

    /// How many calls wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().waiters()
    }

    /// Returns when so many calls wait, or nobody will use the host again. It waits for threads to
    /// come so far, not for time.
    pub fn await_waiting(&self, count: usize) {
        let mut state = self.lock();
        while !state.is_gone && (state.waiters() < count || !state.is_quiet()) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends all calls that wait, and will wait: nobody will use the host again.
    pub fn give_up(&self) {
        let mut state = self.lock();
        state.is_gone = true;
        drop(self.settle(state));
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something at once.
    pub(crate) fn call<T>(
        &self,
        work: impl FnOnce(&mut State) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut state = self.lock();
        let result = work(&mut state);
        RETURNED.set(state.now);
        drop(self.settle(state));
        result
    }

    /// Does something as soon as it can be done: tries again, whenever something has changed, what
    /// says EAGAIN.
    pub(crate) fn wait<T>(
        &self,
        patience: Patience,
        attempt: impl FnMut(&mut State) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.wait_and_end(patience, attempt, |_| {})
    }

    /// The same, and does what is to be done when that is over, whatever has come of it.
    pub(crate) fn wait_and_end<T>(
        &self,
        patience: Patience,
        mut attempt: impl FnMut(&mut State) -> Result<T, Errno>,
        end: impl FnOnce(&mut State),
    ) -> Result<T, Errno> {
        let mut leaving = Leaving { host: self, waiter: None };
        let mut state = self.lock();
        let mut result = attempt(&mut state);
        let ns = match patience {
            Patience::None => 0,
            Patience::For(ns) => ns,
            Patience::Forever => u64::MAX,
        };
        if matches!(result, Err(Errno::EAGAIN)) && ns > 0 {
            let deadline = Time::from_ns(state.now.as_ns().saturating_add(ns));
            state = self.settle(state);
            let waiter = state.add_waiter(deadline);
            leaving.waiter = Some(waiter);
            loop {
                result = attempt(&mut state);
                let goes_on = matches!(result, Err(Errno::EAGAIN));
                if !goes_on || state.now >= deadline || state.is_gone {
                    break;
                }
                state.progress_of_part();
                state.keep_waiting(waiter);
                self.changed.notify_all();
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.remove_waiter(waiter);
            leaving.waiter = None;
            if state.is_gone {
                result = Err(Errno::EBADF);
            }
        }
        end(&mut state);
        RETURNED.set(state.now);
        drop(self.settle(state));
        result
    }

    /// After a change: does what follows from it, until each call that waits has looked whether it
    /// still has to.
    fn settle<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.progress();
        self.changed.notify_all();
        while !state.is_quiet() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
}

/// Nobody waits for a call that has panicked.
struct Leaving<'a> {
    host: &'a Host,
    waiter: Option<u64>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.host.lock().remove_waiter(waiter);
            self.host.changed.notify_all();
        }
    }
}

fn is_mapped(address: IpAddr) -> bool {
    address.to_canonical() != address
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Host, Options, Patience};
    use crate::Errno;

    #[test]
    fn nobody_waits_for_a_call_that_has_panicked() {
        let host = Arc::new(Host::new(Options::default()));
        let waiting = Arc::clone(&host);
        let thread = std::thread::spawn(move || {
            let mut attempts = 0;
            waiting.wait(Patience::Forever, |_| {
                attempts += 1;
                assert!(attempts < 3, "a bug, to be seen by the test");
                Err::<(), _>(Errno::EAGAIN)
            })
        });
        host.await_waiting(1);
        host.advance(1);
        assert!(thread.join().is_err());
        host.advance(1);
        assert_eq!(host.waiting(), 0);
    }

    #[test]
    fn nobody_waits_for_calls_of_a_host_that_is_gone() {
        let host = Arc::new(Host::new(Options::default()));
        let awaiting = Arc::clone(&host);
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            awaiting.await_waiting(1);
            done.send(())
        });
        host.give_up();
        // Longer than any machine takes; it is over at once.
        assert_eq!(is_done.recv_timeout(std::time::Duration::from_secs(60)), Ok(()));
    }
}
