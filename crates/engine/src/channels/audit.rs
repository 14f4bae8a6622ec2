//! Whether the books of all channels agree with each other, see `engine/audit.rs`.

use super::{Channel, Channels};

impl Channels {
    /// `others_of` says how many sends of a channel are not finished that are not of messages.
    pub(crate) fn audit(&self, others_of: impl Fn(u32) -> u32) -> Result<(), String> {
        for (id, channel) in self.iter() {
            channel.audit(others_of(id)).map_err(|what| format!("channel {id}: {what}"))?;
            self.check_copies(id, channel).map_err(|what| format!("channel {id}: {what}"))?;
        }
        if !self.unshared.is_empty() {
            return Err(format!("{} connections are to be begun anew", self.unshared.len()));
        }
        let parked = self.iter().filter(|(_, channel)| channel.is_parked).count();
        let (all, polled) = (self.iter().count(), self.polled_count());
        if parked != self.parked_count() || polled + parked != all {
            let noted = self.parked_count();
            return Err(format!("{all} channels: {polled} polled, {parked} parked, noted {noted}"));
        }
        Ok(())
    }
}

impl Channel {
    fn audit(&self, others: u32) -> Result<(), String> {
        self.connections.audit()?;
        let outstanding: u32 =
            self.connections.iter().map(|(_, connection)| connection.outstanding()).sum();
        let taken = self.end.counters().sends_outstanding;
        // The send that broke the contract is of no connection, and the session is about to end.
        if taken != outstanding + others && !self.is_condemned {
            return Err(format!(
                "{taken} sends are taken: {outstanding} of messages, {others} of frames and TCP"
            ));
        }
        let asked: u32 = self
            .connections
            .iter()
            .filter_map(|(_, connection)| connection.exchange.as_ref())
            .map(|exchange| exchange.outstanding())
            .sum();
        if asked != self.operations.outstanding() {
            let counted = self.operations.outstanding();
            return Err(format!("{asked} operations are outstanding, {counted} counted"));
        }
        let connections = self.connections.iter();
        self.operations.audit_readers(
            connections.filter_map(|(slot, found)| Some((slot, found.exchange.as_deref()?))),
        )?;
        let early: u32 = self.connections.iter().map(|(_, connection)| connection.early).sum();
        if early != self.early.count() {
            return Err(format!("{early} early messages, {} counted", self.early.count()));
        }
        let unfinished = self.connections.iter().any(|(_, connection)| connection.unfinished > 0);
        if !unfinished && !self.unfinished.is_empty() {
            return Err("memory is held for messages that nobody will end".to_owned());
        }
        self.posts.audit()?;
        let is_over = |slot: u32| self.connections.peek(slot).is_none();
        if let Some(slot) = self.posts.connections().find(|slot| is_over(*slot)) {
            return Err(format!("connection {slot} is over, and has buffers posted"));
        }
        if let Some(slot) = self.line.slots().find(|slot| is_over(*slot)) {
            return Err(format!("connection {slot} is over, and stands in line"));
        }
        if self.line.has_starved() && !self.is_starved {
            return Err("nobody looks at those who wait for memory".to_owned());
        }
        Ok(())
    }
}
