//! The control plane's view of a NIC: what is on its link, what the kernel does for it, and which
//! engines serve it.

use std::collections::HashMap;
use std::ops::Range;

use clearway_nic::MacAddress;
use clearway_nic::interface::Steering;

use super::neighbours::Link;
use super::network::Following;
use super::vifs::Held;
use crate::config::Network;
use crate::nic::KernelSide;

/// One NIC.
pub(crate) struct NicSlot {
    pub(crate) name: String,
    /// Indexes of the engines that serve it.
    pub(super) engines: Range<usize>,
    /// The addresses on its link.
    pub(super) networks: Vec<Network>,
    pub(super) ethernet: Ethernet,
    /// Steers frames to the engines for as long as it lives.
    pub(super) steering: Option<Box<dyn Steering>>,
    /// The kernel's neighbours, if it shares the NIC.
    pub(super) link: Option<Link>,
    /// Follows the kernel's interface, if the NIC is one.
    pub(super) following: Option<Following>,
    /// Why there are no interfaces here, if so, and what to do about it.
    pub(super) only_messages: Option<&'static str>,
    /// By user, what it was asked for, for interfaces.
    pub(super) held: HashMap<u32, Held>,
}

/// What frames on a link look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ethernet {
    /// The NIC's own address.
    pub(crate) mac: MacAddress,
    /// The largest IP packet.
    pub(crate) mtu: u16,
    /// The VLAN whose tag the host's own frames carry.
    pub(crate) vlan: Option<u16>,
}

impl NicSlot {
    pub(crate) fn new(
        name: &str,
        engines: Range<usize>,
        networks: Vec<Network>,
        ethernet: Ethernet,
        kernel: KernelSide,
    ) -> Self {
        Self {
            name: name.to_owned(),
            engines,
            networks,
            ethernet,
            steering: kernel.steering,
            link: kernel.neighbours.map(Link::new),
            following: kernel.follower.map(Following::new),
            only_messages: kernel.only_messages,
            held: HashMap::new(),
        }
    }

    /// True if the engine of this index is one of the NIC's.
    pub(crate) fn serves(&self, engine: usize) -> bool {
        self.engines.contains(&engine)
    }
}

impl std::fmt::Debug for NicSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NicSlot").field("name", &self.name).finish_non_exhaustive()
    }
}
