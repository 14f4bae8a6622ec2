//! A rule of the policy on virtual interfaces.

use super::{Network, People};
use crate::filter::Template;

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
