//! Having the NIC give an interface its frames.
//!
//! Over memif everything comes anyway. A NIC that the kernel shares gives us what a pattern asks for and
//! leaves everything else to the kernel; what it gives us, the kernel does not see. So copies are not
//! asked for, which are of frames that are somebody else's: they are copies of what comes in any case.
//! Only a machine on the LAN needs more: questions for its address come by broadcast and multicast.

use std::net::IpAddr;

use clearway_channel::Code;
use clearway_channel::control::Refusal;
use clearway_classify::{Filter, Pattern};
use clearway_nic::interface::SteerPattern;
use clearway_nic::{Error, MacAddress};
use clearway_wire::ipv6;

use super::super::engines::EngineSlot;
use super::super::requests::refusal;
use crate::policy::Grant;

/// What the NIC was asked for.
#[derive(Debug, Default)]
pub(super) struct Steered {
    patterns: Vec<SteerPattern>,
    mac: Option<MacAddress>,
}

impl EngineSlot {
    /// Steers the frames of an interface to the engine: all of them or, with a refusal, none.
    pub(super) fn steer(&mut self, number: u32) -> Result<(), Refusal> {
        let Some(vif) = self.vifs.table.get_mut(&number) else { return Ok(()) };
        let (Some(steering), Some(grant)) = (&mut self.steering, &vif.grant) else { return Ok(()) };
        let mut steer = || {
            if grant.has_own_mac {
                steering.add_mac(grant.mac)?;
                vif.steered.mac = Some(grant.mac);
            }
            for pattern in patterns(grant)? {
                steering.add_pattern(&pattern)?;
                vif.steered.patterns.push(pattern);
            }
            Ok::<(), Error>(())
        };
        let result = steer();
        result.map_err(|error| {
            self.unsteer(number);
            refusal(Code::Refused, format!("the NIC cannot steer these frames here: {error}"))
        })
    }

    /// Gives the frames back to the kernel.
    pub(super) fn unsteer(&mut self, number: u32) {
        let Some(vif) = self.vifs.table.get_mut(&number) else { return };
        let Some(steering) = &mut self.steering else { return };
        let Steered { patterns, mac } = std::mem::take(&mut vif.steered);
        let mut undone = patterns.iter().try_for_each(|pattern| steering.remove_pattern(pattern));
        if let Some(mac) = mac {
            undone = undone.and(steering.remove_mac(mac));
        }
        if let Err(error) = undone {
            tracing::warn!(engine = self.name, vif = number, %error, "cannot give frames back");
        }
    }
}

fn patterns(grant: &Grant) -> Result<Vec<SteerPattern>, Error> {
    let questions = grant.address.into_iter().flat_map(questions);
    let filters = grant.receive.iter().cloned().chain(questions);
    filters.flat_map(|filter| filter.patterns().map(steer_pattern).collect::<Vec<_>>()).collect()
}

/// What a machine with this address has to hear to be found: ARP requests (RFC 826), neighbour
/// solicitations (RFC 4861, section 7.2.2: to the solicited-node multicast address).
fn questions(address: IpAddr) -> Option<Filter> {
    let text = match address {
        IpAddr::V4(address) => {
            format!("vlan optional and ether broadcast and arp target {address}")
        }
        IpAddr::V6(address) => {
            format!("vlan optional and dst host {}", ipv6::solicited_node(address))
        }
    };
    text.parse().ok()
}

/// The NIC's patterns have a word more than those of crate classify: the digest's last, for which
/// nobody asks.
fn steer_pattern(pattern: Pattern) -> Result<SteerPattern, Error> {
    let padded = |words: &[u64]| std::array::from_fn(|word| words.get(word).copied().unwrap_or(0));
    SteerPattern::new(padded(pattern.mask()), padded(pattern.value()))
}
