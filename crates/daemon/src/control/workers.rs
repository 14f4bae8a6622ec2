//! Threads for what takes time and is nobody's but one user's: making the memory of channels,
//! filling it once the app has it, and giving it back. A gigabyte takes half a second, and nothing
//! else may wait for that.
//!
//! Each user has a queue of its own, of which one job at a time is worked on, and users take turns.
//! So a user waits for others only if as many as there are threads have jobs in work. Queues are
//! bounded by the limits of the policy: a session has one request in work, and a channel is given
//! back once.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use clearway_channel::control::Refusal;
use clearway_channel::{DaemonEnd, Handover, NotSecured, Sizes};
use clearway_control::ChannelPlace;
use clearway_nic::Bell;

/// One user can hold up one of them.
const THREADS: usize = 3;

/// The threads, and what they have done.
#[derive(Debug)]
pub(super) struct Workers {
    shared: Arc<Shared>,
    tells: Sender<Done>,
    has_started: bool,
    done: Receiver<Done>,
}

/// By which others say that they have done something.
pub(super) struct Teller {
    shared: Arc<Shared>,
    tells: Sender<Done>,
}

/// A job of one user.
pub(super) enum Job {
    /// Memory for this channel of this engine.
    Make { place: ChannelPlace, version: u32, sizes: Sizes },
    /// No page of this memory, which the app has mapped, may be missing any more.
    Secure { place: ChannelPlace, end: Box<DaemonEnd>, memory: OwnedFd },
    /// The memory of a channel that has ended.
    GiveBack { place: ChannelPlace, end: Box<DaemonEnd> },
    /// Memory of an app's own that no engine has any more.
    GiveMemoryBack { memory: u64, shared: clearway_channel::Shared },
}

/// What has become of a job.
pub(super) enum Done {
    Made { place: ChannelPlace, made: io::Result<(Box<DaemonEnd>, Handover)> },
    Secured { place: ChannelPlace, secured: Result<Box<DaemonEnd>, NotSecured> },
    GivenBack(ChannelPlace),
    Taken { memory: u64, taken: Result<clearway_channel::Shared, Refusal> },
    MemoryGivenBack(u64),
}

#[derive(Debug)]
struct Shared {
    queues: Mutex<Queues<Job>>,
    wake: Condvar,
    /// Readable when something is done.
    bell: Bell,
}

/// The queues of all users.
struct Queues<J> {
    of_users: HashMap<u32, VecDeque<J>>,
    /// Users of whom a job may be begun, in the order of their turns: each once, and none of whom
    /// one is in work.
    turns: VecDeque<u32>,
    /// Nobody will need anything any more.
    closed: bool,
}

impl Workers {
    pub(super) fn new() -> io::Result<Self> {
        let bell = Bell::new()?;
        let (tells, done) = channel();
        let shared = Shared { queues: Mutex::default(), wake: Condvar::new(), bell };
        Ok(Self { shared: Arc::new(shared), tells, has_started: false, done })
    }

    /// Starts the threads, which are confined if the caller is.
    pub(super) fn start(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.has_started, true) {
            return Ok(());
        }
        for number in 0..THREADS {
            let (teller, name) = (self.teller(), format!("worker {number}"));
            std::thread::Builder::new().name(name).spawn(move || work(&teller))?;
        }
        Ok(())
    }

    /// For threads that are not of these.
    pub(super) fn teller(&self) -> Teller {
        Teller { shared: Arc::clone(&self.shared), tells: self.tells.clone() }
    }

    /// Has a job of `user` done.
    pub(super) fn post(&self, user: u32, job: Job) {
        self.shared.queues().push(user, job);
        self.shared.wake.notify_one();
    }

    /// The next job that is done.
    pub(super) fn next_done(&self) -> Option<Done> {
        self.done.try_recv().ok()
    }

    pub(super) fn acknowledge(&self) {
        self.shared.bell.silence();
    }
}

impl AsFd for Workers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.queues().closed = true;
        self.shared.wake.notify_all();
    }
}

impl Shared {
    /// A thread that has panicked has left nothing half done here: it holds no lock while it works.
    fn queues(&self) -> MutexGuard<'_, Queues<Job>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job and whose it is, waiting for one; `None` if there will be none.
    fn next(&self) -> Option<(u32, Job)> {
        let mut queues = self.queues();
        loop {
            if queues.closed {
                return None;
            }
            if let Some(next) = queues.begin() {
                return Some(next);
            }
            queues = self.wake.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Teller {
    /// Tells the control plane, if it is still there.
    pub(super) fn tell(&self, done: Done) {
        if self.tells.send(done).is_ok() {
            self.shared.bell.ring();
        }
    }
}

fn work(teller: &Teller) {
    let shared = &teller.shared;
    while let Some((user, job)) = shared.next() {
        let done = job.outcome();
        shared.queues().end(user);
        shared.wake.notify_one();
        teller.tell(done);
    }
}

impl Job {
    fn outcome(self) -> Done {
        let otherwise = self.failure();
        done_by(|| self.work(), otherwise)
    }

    /// What is told if it panics: what it has taken over is gone then, too.
    fn failure(&self) -> Done {
        let error = || io::Error::other("a bug; see the daemon's log");
        match *self {
            Self::Make { place, .. } => Done::Made { place, made: Err(error()) },
            Self::Secure { place, .. } => {
                Done::Secured { place, secured: Err(NotSecured::Io(error())) }
            }
            Self::GiveBack { place, .. } => Done::GivenBack(place),
            Self::GiveMemoryBack { memory, .. } => Done::MemoryGivenBack(memory),
        }
    }

    fn work(self) -> Done {
        match self {
            Self::Make { place, version, sizes } => {
                let made = DaemonEnd::create_for(version, sizes);
                Done::Made { place, made: made.map(|(end, handover)| (Box::new(end), handover)) }
            }
            Self::Secure { place, mut end, memory } => {
                Done::Secured { place, secured: end.secure(&memory).map(|()| end) }
            }
            Self::GiveBack { place, end } => {
                drop(end);
                Done::GivenBack(place)
            }
            Self::GiveMemoryBack { memory, shared } => {
                drop(shared);
                Done::MemoryGivenBack(memory)
            }
        }
    }
}

/// What comes of `work`; `otherwise` if it panics, which is reported by then. The thread goes on,
/// and the user's next job is begun.
pub(super) fn done_by(work: impl FnOnce() -> Done, otherwise: Done) -> Done {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

impl<J> Queues<J> {
    fn push(&mut self, user: u32, job: J) {
        // A user with an entry waits for a turn already, or has a job in work.
        let queue = self.of_users.entry(user).or_insert_with(|| {
            self.turns.push_back(user);
            VecDeque::new()
        });
        queue.push_back(job);
    }

    /// The job whose turn it is.
    fn begin(&mut self) -> Option<(u32, J)> {
        let user = self.turns.pop_front()?;
        let job = self.of_users.get_mut(&user)?.pop_front()?;
        Some((user, job))
    }

    /// The job of this user that was in work is done: the next is, when it is the user's turn
    /// again.
    fn end(&mut self, user: u32) {
        if self.of_users.get(&user).is_some_and(VecDeque::is_empty) {
            self.of_users.remove(&user);
        } else {
            self.turns.push_back(user);
        }
    }
}

impl<J> Default for Queues<J> {
    fn default() -> Self {
        Self { of_users: HashMap::new(), turns: VecDeque::new(), closed: false }
    }
}

impl<J> std::fmt::Debug for Queues<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queues").field("turns", &self.turns).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_channel::Versions;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    /// Who posts a job does none of it: as long as there are no threads, nothing is done.
    #[test]
    fn who_posts_a_job_does_not_do_it() {
        let mut workers = Workers::new().expect("an eventfd");
        let place = ChannelPlace { engine: 0, channel: 1 };
        workers
            .post(1, Job::Make { place, version: Versions::DAEMON.max, sizes: Sizes::default() });
        assert!(workers.next_done().is_none(), "the caller has waited for it");
        workers.start().expect("threads");
        let mut bell = [PollFd::new(&workers, PollFlags::IN)];
        let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
        assert_eq!(poll(&mut bell, Some(&patience)), Ok(1), "it is done in time");
        assert!(matches!(workers.next_done(), Some(Done::Made { made: Ok(_), .. })));
    }

    #[test]
    fn a_job_that_panics_is_told_as_one_that_has_failed() {
        let place = ChannelPlace { engine: 0, channel: 1 };
        let job = Job::Make { place, version: Versions::DAEMON.max, sizes: Sizes::default() };
        let done = done_by(|| panic!("a test"), job.failure());
        assert!(matches!(done, Done::Made { made: Err(_), .. }));
    }

    /// Of a user with a hundred jobs, one is in work, whatever the others do; and they come next.
    #[test]
    fn users_take_turns_and_have_one_job_in_work_each() {
        let mut queues = Queues::default();
        (0..100).for_each(|job| queues.push(1, job));
        assert_eq!(queues.begin(), Some((1, 0)));
        assert_eq!(queues.begin(), None, "one at a time");
        queues.push(2, 0);
        queues.push(2, 1);
        assert_eq!(queues.begin(), Some((2, 0)));
        queues.end(1);
        queues.push(3, 0);
        queues.end(2);
        let order: Vec<(u32, i32)> = std::iter::from_fn(|| {
            let next = queues.begin()?;
            queues.end(next.0);
            Some(next)
        })
        .take(5)
        .collect();
        assert_eq!(order, [(1, 1), (3, 0), (2, 1), (1, 2), (1, 3)]);
        while let Some((user, _)) = queues.begin() {
            queues.end(user);
        }
        assert!(queues.of_users.is_empty() && queues.turns.is_empty(), "nothing is left behind");
    }
}
