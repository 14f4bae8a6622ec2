//! Whether the books of an endpoint agree with each other: for tests and for the simulator, after
//! any call.

use clearway_base::Time;

use super::Endpoint;
use super::table::Slot;

impl Endpoint {
    /// Finds what does not add up: places for flows that are neither taken nor free, flows that
    /// nobody will look at again.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn audit(&self) -> Result<(), String> {
        let taken = self.slots.iter().filter(|slot| slot.flow.is_some()).count();
        let (made, free) = (self.slots.len(), self.free.len());
        if taken + free != made {
            return Err(format!(
                "{made} places for flows, of which {taken} are taken, {free} free"
            ));
        }
        if self.by_peer.len() > taken {
            return Err(format!("{taken} flows, but {} by peer", self.by_peer.len()));
        }
        let flows = self.slots.iter().filter_map(|slot| slot.flow.as_ref());
        let accepted = flows.filter(|flow| flow.was_accepted()).count();
        if accepted != self.shares.taken() as usize {
            let held = self.shares.taken();
            return Err(format!("{accepted} flows were accepted, but hosts hold {held} of them"));
        }
        let flows = self.slots.iter().filter_map(|slot| slot.flow.as_ref());
        self.unused.audit(flows.filter(|flow| flow.was_accepted() && flow.is_unused()).count())?;
        let ready = self.slots.iter().filter(|slot| slot.is_ready).count();
        let in_line = self.ready.len() + self.resting.len();
        if ready != in_line {
            return Err(format!("{ready} flows are ready, {in_line} in line"));
        }
        let set: usize = self.slots.iter().map(Slot::alarms_set).sum();
        if set > self.timers.len() + self.due.len() {
            let (wheel, due) = (self.timers.len(), self.due.len());
            return Err(format!(
                "flows wait for {set} timers of {wheel} in the wheel and {due} due"
            ));
        }
        if let Some(slot) = self.slots.iter().position(|slot| slot.is_late(&self.config)) {
            return Err(format!("flow {slot} is due before it is looked at"));
        }
        match self.slots.iter().position(|slot| slot.is_forgotten(self.turn.began)) {
            Some(slot) => Err(format!("no timer fires when flow {slot} is due")),
            None => Ok(()),
        }
    }

    /// Finds what is left once every flow is over and every timer has fired.
    ///
    /// # Errors
    /// What is left, in words.
    pub fn audit_rest(&self) -> Result<(), String> {
        self.audit()?;
        let flows = self.slots.len() - self.free.len();
        let timer = self.next_timeout().map(Time::as_ns);
        let (replies, pings) = (self.replies.len() + self.farewells.len(), self.pings.len());
        let ports = self.listeners.len();
        if (flows, timer, replies, pings, ports) == (0, None, 0, 0, 0) {
            return Ok(());
        }
        Err(format!(
            "{flows} flows, {replies} replies, {pings} pings and {ports} listeners are left, and \
             a timer at {timer:?}"
        ))
    }
}
