//! The host's IP layers as plain data, and back. Its NICs, and what is configured of them, those
//! have who restore it.

use clearway_base::Time;
use clearway_base::state::{Invalid, ensure};
use serde::{Deserialize, Serialize};

use super::{Host, OtherNic};
use crate::ip::{Interface, InterfaceState};

/// The IP layer of each NIC of the host: the engine's own, and the others in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostState {
    own: InterfaceState,
    others: Vec<InterfaceState>,
}

impl Host {
    pub(crate) fn save(&self) -> HostState {
        HostState {
            own: self.own.save(),
            others: self.others.iter().map(|nic| nic.interface.save()).collect(),
        }
    }

    /// The other NICs, of which nothing is known but what is configured.
    pub(crate) fn into_others(self) -> Vec<OtherNic> {
        let others = self.others.into_iter();
        others.map(|nic| OtherNic::new(nic.number, nic.engines, &nic.config)).collect()
    }

    /// A host with these NICs, of which nothing is known, that goes on at `now`.
    pub(crate) fn restore(
        own: Interface,
        others: Vec<OtherNic>,
        saved: HostState,
        now: Time,
    ) -> Result<Self, Invalid> {
        ensure(saved.others.len() == others.len(), "NICs that there are not")?;
        let own = own.restore(saved.own, now)?;
        let others = others.into_iter().zip(saved.others).map(|(nic, saved)| {
            Ok(OtherNic { interface: nic.interface.restore(saved, now)?, ..nic })
        });
        Ok(Self::new(own, others.collect::<Result<_, Invalid>>()?))
    }
}
