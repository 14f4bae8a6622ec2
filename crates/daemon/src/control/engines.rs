//! The control plane's view of an engine: its mailbox, and what waits for room in it.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};

use clearway_engine::{Control, Event, Request};
use clearway_nic::MacAddress;
use clearway_nic::interface::Steering;

use super::neighbours::Link;
use super::vifs::Vifs;
use crate::config::Network;
use crate::nic::KernelSide;

/// One engine. Requests beyond the mailbox's depth of one wait here; there are never more than a
/// few per session, because a session has one request in work at a time.
pub(crate) struct EngineSlot {
    pub(crate) name: String,
    /// The addresses on its link.
    pub(super) networks: Vec<Network>,
    pub(super) ethernet: Ethernet,
    control: Control,
    /// Steers frames to the engine's NIC for as long as it lives.
    pub(super) steering: Option<Box<dyn Steering>>,
    /// The kernel's neighbours, if it shares the NIC.
    pub(super) link: Option<Link>,
    waiting: VecDeque<Request>,
    channel_next: u32,
    /// Channels that are in the engine, or on their way in or out.
    channels: HashMap<u32, Channel>,
    pub(super) vifs: Vifs,
    /// True once the engine has said so, or cannot any more.
    pub(crate) ended: bool,
}

/// What frames on the engine's link look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ethernet {
    /// The NIC's own address.
    pub(crate) mac: MacAddress,
    /// The largest IP packet.
    pub(crate) mtu: u16,
    /// The VLAN whose tag the host's own frames carry.
    pub(crate) vlan: Option<u16>,
}

/// What the control plane has to remember of a channel until the engine has given it back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channel {
    /// The session, by its token; it may have ended already.
    pub(super) session: u64,
    pub(super) user: u32,
    pub(super) memory_bytes: u64,
}

impl EngineSlot {
    pub(crate) fn new(
        name: &str,
        networks: Vec<Network>,
        ethernet: Ethernet,
        control: Control,
        kernel: KernelSide,
    ) -> Self {
        Self {
            name: name.to_owned(),
            networks,
            ethernet,
            control,
            steering: kernel.steering,
            link: kernel.neighbours.map(Link::new),
            waiting: VecDeque::new(),
            channel_next: 1,
            channels: HashMap::new(),
            vifs: Vifs::default(),
            ended: false,
        }
    }

    /// Hands over a request, now or when the mailbox is free.
    pub(super) fn post(&mut self, request: Request) {
        self.waiting.push_back(request);
        self.pump();
    }

    /// Fills the mailbox from what waits.
    pub(super) fn pump(&mut self) {
        while let Some(request) = self.waiting.pop_front() {
            if let Err(request) = self.control.post(request) {
                self.waiting.push_front(request);
                return;
            }
        }
    }

    pub(super) fn acknowledge(&self) {
        self.control.acknowledge();
    }

    pub(super) fn next_event(&self) -> Option<Event> {
        self.control.next_event()
    }

    /// An id that no channel of this engine has.
    pub(super) fn new_channel(&mut self, channel: Channel) -> u32 {
        while self.channels.contains_key(&self.channel_next) {
            self.channel_next = self.channel_next.wrapping_add(1);
        }
        let id = self.channel_next;
        self.channel_next = id.wrapping_add(1);
        self.channels.insert(id, channel);
        id
    }

    pub(super) fn remove_channel(&mut self, channel: u32) {
        self.post(Request::RemoveChannel { channel });
    }

    pub(super) fn channel(&self, id: u32) -> Option<Channel> {
        self.channels.get(&id).copied()
    }

    pub(super) fn forget_channel(&mut self, id: u32) -> Option<Channel> {
        self.channels.remove(&id)
    }
}

impl std::fmt::Debug for EngineSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineSlot").field("name", &self.name).finish_non_exhaustive()
    }
}

impl AsFd for EngineSlot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}
