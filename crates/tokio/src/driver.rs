//! The task that takes what happens on the channel, and wakes those whom it concerns.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Sleep, sleep_until};

use crate::shared::{Shared, Users};

/// See the module. It ends with the channel, or when nobody has anything of it any more.
struct Driver<U> {
    shared: Weak<Shared<U>>,
    /// The channel's, of which there may be another after it.
    descriptor: AsyncFd<OwnedFd>,
    /// Until the users' deadline, if they have one.
    sleep: Option<Pin<Box<Sleep>>>,
}

/// Spawns the task on the runtime of the caller.
pub(crate) fn spawn<U: Users>(shared: &Arc<Shared<U>>) -> io::Result<()> {
    let descriptor = shared.lock().channel().as_fd().try_clone_to_owned()?;
    #[allow(deprecated, reason = "an OwnedFd stays the same and open, as the unsafe one asks")]
    let descriptor = AsyncFd::with_interest(descriptor, Interest::READABLE)?;
    tokio::spawn(Driver { shared: Arc::downgrade(shared), descriptor, sleep: None });
    Ok(())
}

impl<U: Users> Future for Driver<U> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(shared) = self.shared.upgrade() else {
            return Poll::Ready(());
        };
        let mut state = shared.lock();
        state.set_driver(context.waker());
        state.disarm();
        if state.take_events().is_err() || self.forget_readiness(context).is_err() {
            return Poll::Ready(());
        }
        let is_due = self.sleep_until(state.deadline(), context);
        // The runtime hears of a change only, and one may have come before it was forgotten.
        if is_due || !state.arm() || self.is_readable() {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl<U> Driver<U> {
    /// Has the runtime tell of the next change. An error if it ends.
    fn forget_readiness(&self, context: &mut Context<'_>) -> io::Result<()> {
        while let Poll::Ready(ready) = self.descriptor.poll_read_ready(context) {
            ready?.clear_ready();
        }
        Ok(())
    }

    /// Has the runtime wake the task at this time. True if it has come.
    fn sleep_until(&mut self, deadline: Option<Instant>, context: &mut Context<'_>) -> bool {
        let Some(deadline) = deadline else {
            self.sleep = None;
            return false;
        };
        let deadline = deadline.into();
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(context).is_ready()
    }

    fn is_readable(&self) -> bool {
        let mut waiting = [PollFd::new(&self.descriptor, PollFlags::IN)];
        poll(&mut waiting, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
    }
}
