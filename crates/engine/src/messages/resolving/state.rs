//! What waits for neighbours, as plain data, and back.

use clearway_base::state::{Invalid, ensure};
use serde::{Deserialize, Serialize};

use super::{ASKED_MAX, Neighbour, NextHop, Resolving, Settled, Target, Waiting};
use crate::host::Nic;

/// All that waits for neighbours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResolvingState {
    /// Neighbours that are asked for.
    pub(super) neighbours: Vec<NeighbourState>,
    /// What is to go on.
    pub(super) settled: Vec<(Waiting, Settled)>,
}

/// A neighbour that is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NeighbourState {
    next_hop: NextHop,
    /// The user whose app asked first.
    asked_by: Option<u32>,
    waiting: Vec<(Waiting, Target)>,
}

impl Resolving {
    pub(crate) fn save(&self) -> ResolvingState {
        let neighbours = self.neighbours.iter().map(|(next_hop, neighbour)| {
            let waiting = neighbour.waiting.iter().map(|(waiting, target)| (*waiting, *target));
            NeighbourState {
                next_hop: *next_hop,
                asked_by: neighbour.asked_by,
                waiting: waiting.collect(),
            }
        });
        ResolvingState {
            neighbours: neighbours.collect(),
            settled: self.settled.iter().map(|(waiting, settled)| (*waiting, *settled)).collect(),
        }
    }

    /// `other_nics`: how many the host has besides the engine's own.
    pub(crate) fn restore(saved: ResolvingState, other_nics: usize) -> Result<Self, Invalid> {
        let mut resolving = Self::default();
        for NeighbourState { next_hop, asked_by, waiting } in saved.neighbours {
            ensure(next_hop.is_on(other_nics), "a neighbour on a NIC that there is not")?;
            resolving.restore_neighbour(next_hop, asked_by)?;
            for (waiting, target) in waiting {
                ensure(target.is_on(other_nics), "a peer on a NIC that there is not")?;
                let is_new = !resolving.waiting.contains_key(&waiting);
                ensure(is_new, "what waits for two neighbours")?;
                resolving.insert(next_hop, waiting, target, asked_by);
            }
        }
        for (waiting, settled) in saved.settled {
            let is_possible =
                settled.target.is_on(other_nics) && settled.next_hop.is_on(other_nics);
            ensure(is_possible, "a peer on a NIC that there is not")?;
            let is_new = !resolving.waiting.contains_key(&waiting)
                && resolving.settled.insert(waiting, settled).is_none();
            ensure(is_new, "what waits and has waited")?;
        }
        Ok(resolving)
    }

    /// A neighbour that is asked for, whoever waits.
    fn restore_neighbour(
        &mut self,
        next_hop: NextHop,
        asked_by: Option<u32>,
    ) -> Result<(), Invalid> {
        let neighbour = Neighbour { asked_by, waiting: Default::default() };
        let is_new = self.neighbours.insert(next_hop, neighbour).is_none();
        ensure(is_new, "a neighbour that is asked for twice")?;
        if let Some(user) = asked_by {
            *self.asked.entry(user).or_default() += 1;
            self.asked_total += 1;
        }
        ensure(self.asked_total <= ASKED_MAX, "more neighbours than may be asked for")
    }

    /// The attempts to connect that wait, or go on: channel, slot and service port.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = (u32, u32, u16)> + '_ {
        let all = self.waiting.keys().chain(self.settled.keys());
        all.filter_map(|waiting| match *waiting {
            Waiting::Connect { channel, slot, service_port } => Some((channel, slot, service_port)),
            Waiting::Ping { .. } => None,
        })
    }
}

impl NextHop {
    fn is_on(&self, other_nics: usize) -> bool {
        is_there(self.nic, other_nics)
    }
}

impl Target {
    fn is_on(&self, other_nics: usize) -> bool {
        is_there(self.nic, other_nics) && self.local.is_ipv4() == self.peer.is_ipv4()
    }
}

fn is_there(nic: Nic, other_nics: usize) -> bool {
    match nic {
        Nic::Own => true,
        Nic::Other(index) => index < other_nics,
    }
}
