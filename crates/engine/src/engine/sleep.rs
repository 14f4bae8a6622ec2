//! How an engine goes to sleep, and until when. Who decides that it should is `group.rs`.

use std::os::fd::OwnedFd;

use clearway_base::Time;

use super::Engine;

impl Engine {
    /// Prepares to sleep: from now on whatever may give work wakes the engine. False if there is
    /// work already; [`Engine::disarm`] has to follow in either case.
    pub(crate) fn arm(&mut self) -> bool {
        let queues = self.queues.iter_mut().all(|queue| queue.wait_fd().is_some() && queue.arm());
        queues
            && self.core.channels.iter_mut().all(|(_, channel)| channel.end.arm())
            && self.mailbox.is_empty()
    }

    /// Ends what [`Engine::arm`] began.
    pub(crate) fn disarm(&mut self) {
        for queue in &mut self.queues {
            queue.disarm();
        }
        for (_, channel) in self.core.channels.iter_mut() {
            channel.end.disarm();
        }
        self.mailbox.silence();
    }

    /// True if an app's completion ring is full. An app that makes room there rings no doorbell.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.core.channels.iter().any(|(_, channel)| channel.has_pending())
    }

    /// Readable when something has woken the engine.
    pub(crate) fn sleep_fd(&self) -> &OwnedFd {
        &self.sleep
    }

    /// When the engine has to run again, whatever happens. `None`: never.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let core = &self.core;
        let waiting = core.unresolved.iter().map(|unresolved| unresolved.give_up).min();
        [core.endpoint.next_timeout(), core.interface.poll_timeout(), waiting]
            .into_iter()
            .flatten()
            .min()
    }
}
