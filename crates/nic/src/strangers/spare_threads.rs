//! Threads on which nobody depends, for work that a stranger can make last: one that is stuck is
//! left behind, and others go on.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::thread::CpuSet;

/// How many threads there are at most. Each user can hold up [`THREADS_PER_USER`] of them.
const THREADS_MAX: usize = 16;
/// How many of them work for one user at a time.
const THREADS_PER_USER: usize = 2;
/// How much work may wait before [`SpareThreads::has_room`] says no. Work that is given
/// nevertheless is kept: there is no more of it than there are open sockets.
const WAITING_MAX: usize = 256;

/// A pool of such threads. They start when there is work and end when there is none; dropping the
/// pool leaves them to what they do.
#[derive(Clone)]
pub struct SpareThreads {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    /// Where the thread that made the pool may run: a thread takes over the place of who starts it,
    /// and that may be an engine, which has a core to itself.
    cores: Option<CpuSet>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(u32, Job)>,
    threads: usize,
    /// How many of them work for each user.
    working: HashMap<u32, usize>,
}

type Job = Box<dyn FnOnce() + Send>;

impl SpareThreads {
    /// A pool whose threads have this name (the kernel shows 15 bytes of it).
    #[must_use]
    pub fn new(name: &str) -> Self {
        let cores = rustix::thread::sched_getaffinity(None).ok();
        let state = Mutex::default();
        Self { shared: Arc::new(Shared { name: name.to_owned(), cores, state }) }
    }

    /// Whether strangers who may cause more work should be let in.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.shared.lock().waiting.len() < WAITING_MAX
    }

    /// Has a thread do `job`, now or when one is free. Returns at once.
    pub fn run(&self, user: u32, job: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.lock();
        state.waiting.push_back((user, Box::new(job)));
        if state.threads == THREADS_MAX || state.claimable().is_none() {
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(self.shared.name.clone());
        // Without a thread the job waits for one that is there, or for the next job to start one.
        if thread.spawn(move || shared.work()).is_err() {
            self.shared.lock().threads -= 1;
        }
    }
}

impl Shared {
    /// What a thread does: one job after the other, until there is none that it may do.
    fn work(&self) {
        if let Some(cores) = &self.cores {
            let _ = rustix::thread::sched_setaffinity(None, cores);
        }
        while let Some((user, job)) = self.claim() {
            // A job that panics has been reported; its user's place is not lost with it.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            self.lock().finished(user);
        }
    }

    fn claim(&self) -> Option<(u32, Job)> {
        let mut state = self.lock();
        let Some(at) = state.claimable() else {
            state.threads -= 1;
            return None;
        };
        let (user, job) = state.waiting.remove(at)?;
        *state.working.entry(user).or_default() += 1;
        Some((user, job))
    }

    /// Nothing that holds the lock can panic half-way, so a poisoned lock protects sound data.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The first job whose user has a thread to spare.
    fn claimable(&self) -> Option<usize> {
        let working = |user| self.working.get(user).copied().unwrap_or(0);
        self.waiting.iter().position(|(user, _)| working(user) < THREADS_PER_USER)
    }

    fn finished(&mut self, user: u32) {
        if let Some(working) = self.working.get_mut(&user) {
            *working -= 1;
            if *working == 0 {
                self.working.remove(&user);
            }
        }
    }
}

impl fmt::Debug for SpareThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpareThreads").field("name", &self.shared.name).finish_non_exhaustive()
    }
}
