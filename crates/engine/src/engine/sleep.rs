//! How an engine goes to sleep, and until when. Who decides that it should is `group.rs`.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use clearway_base::Time;

use rustix::event::{Timespec, epoll};

use super::{Engine, Queues};
use crate::component::Component;
use crate::control::Mailbox;
use crate::lanes::Lanes;

/// Doorbells heard in one look.
const DOORBELLS_BURST: usize = 32;

/// What the doorbell of a channel says to the engine's `epoll`; mailbox and queues say 0.
pub(super) fn event_of(channel: u32) -> epoll::EventData {
    epoll::EventData::new_u64(u64::from(channel) + 1)
}

fn channel_of(event: &epoll::Event) -> Option<u32> {
    // A copy: the kernel's structure is packed.
    let data = event.data;
    data.u64().checked_sub(1).map(|id| id as u32)
}

/// What mailbox, lanes and queues end a sleep on. Doorbells of channels are added to it.
pub(super) fn sleep_on(mailbox: &Mailbox, lanes: &Lanes, queues: &Queues) -> io::Result<OwnedFd> {
    let sleep = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let readable = epoll::EventFlags::IN;
    epoll::add(&sleep, mailbox.bell(), epoll::EventData::new_u64(0), readable)?;
    epoll::add(&sleep, lanes.bell(), epoll::EventData::new_u64(0), readable)?;
    for queue in queues {
        if let Some(fd) = queue.wait_fd() {
            epoll::add(&sleep, fd, epoll::EventData::new_u64(0), readable)?;
        }
    }
    Ok(sleep)
}

impl<X: Component<Owner = ()>> Engine<X> {
    /// Prepares to sleep: from now on whatever may give work makes [`Engine::sleep_fd`] readable.
    /// False if there is work already, or no such descriptor of a queue; [`Engine::disarm`] has to
    /// follow in either case.
    pub fn arm(&mut self) -> bool {
        let mut queues = self.queues.iter_mut().chain(&mut self.copies);
        let queues = queues.all(|queue| queue.wait_fd().is_some() && queue.arm());
        queues
            && !self.core.common.channels.has_copies()
            && self.core.common.channels.arm()
            && self.core.common.lanes.arm()
            && self.mailbox.is_empty()
    }

    /// Ends what [`Engine::arm`] began.
    pub fn disarm(&mut self) {
        self.rested();
        for queue in self.queues.iter_mut().chain(&mut self.copies) {
            queue.disarm();
        }
        self.core.common.channels.disarm();
        self.core.common.lanes.disarm();
        self.mailbox.silence();
    }

    /// Looks at channels again whose apps have rung while they were parked. For whoever runs
    /// engines without a [`crate::Group`], once something has ended a sleep.
    #[cold]
    pub fn take_doorbells(&mut self) {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut space = [const { MaybeUninit::uninit() }; DOORBELLS_BURST];
        // Without a wait nothing can interrupt it; whatever else goes wrong, the next look is soon.
        let Ok((events, _)) = epoll::wait(&self.sleep, &mut space, Some(&now)) else { return };
        // What else there is to hear is looked at in each turn anyway.
        for id in events.iter().filter_map(channel_of) {
            self.core.common.channels.channel(id);
        }
    }

    /// True if a ring is full for which something waits: an app's completions, or reports of what
    /// became of its frames, the NIC's while a VIF has frames for it, TCP has segments, or somebody
    /// is to be answered, a lane to another NIC, or the control plane's events. Whoever makes room
    /// there rings no doorbell.
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        self.core.frames.has_output()
            || self.core.frames.has_reports()
            || self.core.messages.endpoint.has_replies()
            || self.core.messages.waits_for_lane
            || self.core.tcp.has_output()
            || self.mailbox.has_waiting()
            || self.core.common.channels.waits_for_room()
    }

    /// Readable when something has woken the engine.
    #[must_use]
    pub fn sleep_fd(&self) -> &OwnedFd {
        &self.sleep
    }

    /// What its clock shows when the engine has to run again, whatever happens. `None`: never.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        let next = [self.core.next_timeout(), self.lingering_until()].into_iter().flatten().min();
        next.map(|time| self.clock.shown(time))
    }
}
