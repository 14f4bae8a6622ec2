//! What a policy says: plain values, as a configuration file has them.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use clearway_base::Prefix;
use clearway_engine::REGIONS_MAX;

use super::Peer;
use crate::filter::Template;

/// Who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Users that may attach. The daemon's own user and root always may.
    pub users: Vec<u32>,
    /// Groups whose members may attach.
    pub groups: Vec<u32>,
    /// Anybody may attach.
    pub anybody: bool,
    /// Who may listen where. The first rule that names the user decides; if none does, ports from
    /// 1024 up are free to take. Root may listen anywhere.
    pub ports: Vec<PortRule>,
    /// Who may have which virtual interfaces. The first rule that names the user decides; if none
    /// does, it is [`VifRule::unprivileged`]. Root and the daemon's own user may have any.
    pub vifs: Vec<VifRule>,
    /// Who may have an engine that serves nobody else, besides root and the daemon's own user.
    pub exclusive: People,
    /// Who may attach with memory that is shared by one-sided operations, besides root and the
    /// daemon's own user; everybody if not given.
    pub share: Option<People>,
    /// Who may ask for one-sided operations, as above.
    pub ask: Option<People>,
    /// How much of everything.
    pub limits: Limits,
}

impl Policy {
    /// True if anybody but root and the daemon's own user may ever attach.
    pub fn lets_others_in(&self) -> bool {
        self.anybody || !self.users.is_empty() || !self.groups.is_empty()
    }

    /// True if it has to be known of which groups a user is a member.
    pub fn names_groups(&self) -> bool {
        let mut people = self.ports.iter().map(|rule| &rule.people);
        let mut of_vifs = self.vifs.iter().map(|rule| &rule.people);
        let mut operations = [&self.share, &self.ask].into_iter().flatten();
        !self.groups.is_empty()
            || !self.exclusive.groups.is_empty()
            || operations.any(|people| !people.groups.is_empty())
            || people.any(|people| !people.groups.is_empty())
            || of_vifs.any(|people| !people.groups.is_empty())
    }
}

/// Whom a rule is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct People {
    /// Users.
    pub users: Vec<u32>,
    /// Groups, with all their members.
    pub groups: Vec<u32>,
    /// Everybody.
    pub anybody: bool,
}

/// One line of the policy on ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRule {
    /// Whom it is about.
    pub people: People,
    /// The ports that they may listen on.
    pub allow: Vec<RangeInclusive<u16>>,
}

/// Upper bounds, so that nobody can take everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open control connections, attached or not.
    pub sessions_total: usize,
    /// Open control connections of one user.
    pub sessions_per_user: usize,
    /// Attached channels.
    pub channels_total: usize,
    /// Attached channels of one user.
    pub channels_per_user: usize,
    /// Memories of their own that apps may add to their channels.
    pub memories_total: usize,
    /// The same of one user's apps.
    pub memories_per_user: usize,
    /// Shared memory of one user's channels.
    pub memory_per_user_bytes: u64,
    /// Shared memory of all channels.
    pub memory_total_bytes: u64,
    /// Connections of one channel.
    pub connections_per_channel: u32,
    /// Regions that one channel may share.
    pub regions_per_channel: u32,
    /// Listeners of one channel.
    pub listeners_per_channel: usize,
    /// Virtual interfaces and captures.
    pub vifs_total: usize,
    /// Virtual interfaces and captures of one user, if no rule says otherwise.
    pub vifs_per_user: usize,
    /// Alternatives in the filters of all virtual interfaces of one user, on each NIC.
    pub patterns_per_user: usize,
    /// Ports of the host's addresses that one virtual interface may be about.
    pub ports_per_vif: usize,
    /// The same of all interfaces of one user, on each NIC. Where the kernel shares the NIC, its
    /// programs cannot have them meanwhile.
    pub ports_per_user: usize,
}

/// What those that a rule names may have of virtual interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VifRule {
    /// Whom it is about.
    pub people: People,
    /// What they may receive: all that lies within one of these.
    pub receive: Vec<Template>,
    /// What they may send; if not given, the mirror image of what they may receive.
    pub send: Option<Vec<Template>>,
    /// Addresses that they may have for their own, with an Ethernet address of their own.
    pub own_addresses: Vec<Network>,
    /// They may have copies of what they may receive, and of broadcast and multicast frames.
    pub copies: bool,
    /// They may see all that passes.
    pub captures: bool,
    /// Frames per second that each of their interfaces may send.
    pub rate_frames_per_s: Option<u32>,
    /// Interfaces and captures that a user may have; `vifs_per_user` of the limits if not given.
    pub vifs_max: Option<usize>,
    /// The highest priority that they may declare.
    pub priority_max: u16,
}

impl VifRule {
    /// What applies to those whom no rule names: the ports from 1024 up of UDP and TCP (RFC 6335,
    /// section 6: system ports end at 1023), on the host's own addresses. Frames on a NIC with a
    /// VLAN carry its tag.
    #[must_use]
    pub fn unprivileged(vlan: Option<u16>) -> Self {
        let tag = vlan.map_or(String::new(), |vlan| format!("vlan {vlan} and "));
        let receive = ["udp", "tcp"].map(|protocol| {
            let text = format!("{tag}dst host own and {protocol} dst portrange 1024-65535");
            Template::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
        });
        Self { receive: receive.into(), ..Self::default() }
    }
}

/// An address and the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The host's address.
    pub address: IpAddr,
    /// Bits of it that name the link.
    pub prefix_bits: u8,
}

impl Network {
    /// True if `address` is reached without a gateway.
    #[must_use]
    pub fn on_link(&self, address: IpAddr) -> bool {
        Prefix::new(self.address, self.prefix_bits).contains(address)
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

impl Limits {
    /// Channels take their memory when they are made, so that its limits go by the machine's: half
    /// of it for all of them, a quarter for one user. A channel is for a thread, and programs have
    /// threads by the processors: 16 for each.
    #[must_use]
    pub fn of_machine(memory_bytes: u64, processors: usize) -> Self {
        let channels_per_user = (16 * processors).clamp(256, 2048);
        Self {
            sessions_total: 8 * channels_per_user,
            sessions_per_user: 2 * channels_per_user,
            channels_total: 4 * channels_per_user,
            channels_per_user,
            memories_total: 8192,
            memories_per_user: 1024,
            memory_per_user_bytes: memory_bytes / 4,
            memory_total_bytes: memory_bytes / 2,
            connections_per_channel: 4096,
            regions_per_channel: REGIONS_MAX,
            listeners_per_channel: 64,
            vifs_total: 16_384,
            vifs_per_user: 4096,
            patterns_per_user: 16_384,
            ports_per_vif: 256,
            ports_per_user: 1024,
        }
    }
}

impl Default for Limits {
    /// Those of a machine with 8 GiB and 4 processors.
    fn default() -> Self {
        Self::of_machine(8 << 30, 4)
    }
}

impl People {
    pub(super) fn include(&self, peer: &Peer) -> bool {
        self.anybody
            || self.users.contains(&peer.user)
            || peer.groups.iter().any(|group| self.groups.contains(group))
    }
}
