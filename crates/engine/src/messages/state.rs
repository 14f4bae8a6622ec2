//! Messages as plain data, and back. The headers of each path are made again when a packet is to
//! be sent.

use std::collections::{BTreeMap, HashSet};

use clearway_base::Time;
use clearway_base::state::{Invalid, ensure};
use clearway_channel::Buffer;
use clearway_transport::Endpoint;

use super::{Messages, Resolving, SharedFlows};
use crate::channels::{Bearer, Channels};
use crate::lanes::Lanes;
use crate::state::MessagesState;

impl Messages {
    pub(crate) fn save(&self) -> MessagesState {
        let elsewhere = self.listeners_elsewhere.iter();
        let mut elsewhere: Vec<_> = elsewhere.map(|(port, by)| (*port, *by as u32)).collect();
        elsewhere.sort_unstable();
        MessagesState {
            endpoint: self.endpoint.save(),
            resolving: self.resolving.save(),
            shared: self.shared.save(&self.endpoint),
            listeners_elsewhere: elsewhere,
        }
    }

    /// Messages that go on at `now`, on channels that are there again.
    pub(crate) fn restore(
        saved: MessagesState,
        new: impl FnOnce(Endpoint) -> Self,
        transport: clearway_transport::Config,
        lanes: &Lanes,
        other_nics: usize,
        now: Time,
    ) -> Result<Self, Invalid> {
        let mut messages = new(Endpoint::restore(saved.endpoint, transport, now)?);
        messages.resolving = Resolving::restore(saved.resolving, other_nics)?;
        messages.shared = SharedFlows::restore(saved.shared, &messages.endpoint)?;
        for (port, engine) in saved.listeners_elsewhere {
            let is_other = (engine as usize) < lanes.count() && engine as usize != lanes.index();
            ensure(is_other, "a listener at an engine that there is not")?;
            messages.listeners_elsewhere.insert(port, engine as usize);
        }
        Ok(messages)
    }

    /// Holds what was restored against the channels.
    pub(crate) fn match_channels(
        &self,
        channels: &mut Channels,
        claimed: BTreeMap<u32, Vec<Buffer>>,
    ) -> Result<(), Invalid> {
        channels.match_flows(self.endpoint.memory(), claimed)?;
        let resolving = channels.iter().flat_map(|(id, channel)| {
            let slots = channel.slots_of(|bearer| matches!(bearer, Bearer::Resolving));
            slots.filter_map(move |slot| Some((id, slot, channel.peer(slot)?.port())))
        });
        let (all, attempts): (HashSet<_>, HashSet<_>) =
            (resolving.collect(), self.resolving.attempts().collect());
        ensure(all == attempts, "a connection that waits for nothing, or an attempt of nobody")
    }
}
