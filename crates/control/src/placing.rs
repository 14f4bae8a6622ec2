//! Which engine apps are put on: the one that it names, one of its own, or the one with the fewest
//! channels.

use clearway_channel::Code;
use clearway_channel::control::{Attach, Refusal};

use crate::engines::Engine;
use crate::plane::Plane;
use crate::policy::Peer;
use crate::refusal::refusal;

impl Plane {
    /// The index of the engine for a new channel.
    pub(crate) fn place(&self, peer: &Peer, attach: &Attach) -> Result<usize, Refusal> {
        if attach.exclusive {
            self.accounts.may_have_engine(peer)?;
        }
        let wanted = attach.engine.as_deref();
        let mut candidates = self.candidates(wanted)?;
        candidates.retain(|index| !self.engines[*index].has_ended);
        if candidates.is_empty() {
            return Err(none_runs(wanted));
        }
        let is_free = |engine: &Engine| {
            if attach.exclusive { engine.channel_count() == 0 } else { !engine.is_exclusive() }
        };
        let free = candidates.iter().copied().filter(|index| is_free(&self.engines[*index]));
        free.min_by_key(|index| self.engines[*index].channel_count())
            .ok_or_else(|| none_is_free(wanted, attach.exclusive))
    }

    /// The engines that an app may mean: one by its name, all of a NIC by the NIC's, one by its
    /// number; or those of the first NIC.
    fn candidates(&self, wanted: Option<&str>) -> Result<Vec<usize>, Refusal> {
        let Some(wanted) = wanted else {
            let first = self.nics.iter().find(|nic| !nic.is_removed);
            return Ok(first.map_or(Vec::new(), |nic| nic.engines.clone().collect()));
        };
        let is_there = |engine: &Engine| !self.nics[engine.nic].is_removed;
        let named = |engine: &Engine| engine.name == wanted && is_there(engine);
        if let Some(index) = self.engines.iter().position(named) {
            return Ok(vec![index]);
        }
        if let Some(nic) = self.nics.iter().find(|nic| nic.name == wanted && !nic.is_removed) {
            return Ok(nic.engines.clone().collect());
        }
        let number = wanted.parse().ok();
        let number = number.filter(|index: &usize| self.engines.get(*index).is_some_and(is_there));
        number.map(|index| vec![index]).ok_or_else(|| self.no_such_engine(wanted))
    }

    fn no_such_engine(&self, wanted: &str) -> Refusal {
        let there = self.engines.iter().filter(|engine| !self.nics[engine.nic].is_removed);
        let names: Vec<&str> = there.map(|engine| engine.name.as_str()).collect();
        let text =
            format!("there is no engine \"{wanted}\"; those there are: {}", names.join(", "));
        refusal(Code::Invalid, text)
    }
}

/// The engines that are meant have ended, or there is no NIC.
fn none_runs(wanted: Option<&str>) -> Refusal {
    let text = format!(
        "no {} runs; `clearway status` shows those that do, and the daemon's log says why others \
         do not. Name one of those, or restart the daemon",
        named(wanted, "engine of the first NIC")
    );
    refusal(Code::Limit, text)
}

fn none_is_free(wanted: Option<&str>, exclusive: bool) -> Refusal {
    let which = named(wanted, "engine");
    let text = if exclusive {
        format!(
            "no {which} is without other apps; `clearway status` shows who has which. Raise \
             `engines` of the [[nic]] in the daemon's configuration, or end an app"
        )
    } else {
        format!(
            "every {which} is exclusively another app's; `clearway status` shows whose. Raise \
             `engines` of the [[nic]] in the daemon's configuration, or end that app"
        )
    };
    refusal(Code::Limit, text)
}

fn named(wanted: Option<&str>, otherwise: &str) -> String {
    wanted.map_or_else(|| otherwise.to_owned(), |wanted| format!("engine \"{wanted}\""))
}
