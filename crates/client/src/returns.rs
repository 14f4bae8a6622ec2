//! What other threads give back while the channel's own thread waits. Messages and buffers that
//! they drop the channel's end takes back by itself; here is what is left for the channel.

use std::sync::Arc;

use clearway_channel::Sleeper;

use crate::Channel;

/// What [`Channel::collect_by`] was given.
pub(crate) type Collector = Box<dyn FnMut(&mut Channel, bool) + Send>;

impl Channel {
    /// For bindings to languages without owners, which keep what was received and give out numbers
    /// for it. What another thread releases they can only note, under a lock, and then wake the
    /// [`owner`](Self::owner). `collect` gives it back. It is called with true whenever a call is
    /// about to sleep until it is woken, or the channel is [armed](Self::arm), and looks at what is
    /// noted under the same lock then. It is called with false once in a while when a call waits
    /// and will look again, and may go by a hint then that spares the lock. It calls nothing that
    /// waits.
    pub fn collect_by(&mut self, collect: impl FnMut(&mut Self, bool) + Send + 'static) {
        self.collector = Some(Box::new(collect));
    }

    /// Who waits in calls of this channel, or for its descriptor: to be woken by others that have
    /// given something back. Another one after [`reattach`](Self::reattach).
    #[must_use]
    pub fn owner(&self) -> Arc<Sleeper> {
        self.end.owner()
    }

    /// Gives back what a binding has noted: all of it if the caller `sleeps` then.
    #[inline]
    pub(crate) fn collect(&mut self, sleeps: bool) {
        if let Some(mut collect) = self.collector.take() {
            collect(self, sleeps);
            self.collector = Some(collect);
        }
    }

    /// For who waits awake, and looks again: takes what other threads have given back, as far as it
    /// shows, and has the daemon told. True if somebody wanted room for sending, and there is more.
    pub(crate) fn take_returns(&mut self) -> bool {
        self.collect(false);
        let mut makes_room = false;
        if self.wants_room {
            makes_room = self.end.expect_returns();
            if makes_room {
                self.room_is_made();
            }
            self.end.disarm();
        }
        self.end.flush_releases();
        makes_room
    }

    /// Before the channel's end is armed: from now on those who give something back wake this
    /// thread, and what they gave back before is taken. True if that makes room for sending.
    pub(crate) fn expect_returns(&mut self) -> bool {
        let makes_room = self.end.expect_returns();
        if makes_room {
            self.room_is_made();
        }
        self.collect(true);
        makes_room
    }
}
