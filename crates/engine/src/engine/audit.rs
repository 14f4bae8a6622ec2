//! Whether the books of an engine agree with each other: for tests and for the simulator, between any two
//! turns. Of everything that there is a limited number of, what is taken and what is free make up what
//! there is; and when the last app has gone, nothing is taken.

use super::{Core, Engine};

impl Engine {
    /// Finds what does not add up.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn audit(&self) -> Result<(), String> {
        self.core.audit().map_err(|what| format!("{}: {what}", self.name()))
    }

    /// Finds what is left once all apps have gone, and all peers have heard of it or were given up.
    ///
    /// # Errors
    /// What is left, in words.
    pub fn audit_rest(&self) -> Result<(), String> {
        self.audit()?;
        self.core.audit_rest().map_err(|what| format!("{} rests: {what}", self.name()))
    }
}

impl Core {
    fn audit(&self) -> Result<(), String> {
        self.endpoint.audit()?;
        self.channels.audit(|channel| self.switch.bursts_of(channel))?;
        self.resolving.audit()?;
        self.lanes.audit()?;
        self.interface.audit()?;
        self.elsewhere.iter().try_for_each(|nic| nic.interface.audit())
    }

    fn audit_rest(&self) -> Result<(), String> {
        self.endpoint.audit_rest()?;
        self.lanes.audit_rest()?;
        let left = [
            ("channels", self.channels.iter().count()),
            ("polled channels", self.channels.polled_count()),
            ("parked channels", self.channels.parked_count()),
            ("virtual interfaces", self.switch.vif_count()),
            ("captures", self.switch.snapshot_captures().len()),
            ("attempts to connect", self.resolving.count()),
        ];
        match left.iter().find(|(_, count)| *count > 0) {
            Some((what, count)) => Err(format!("{count} {what} are left")),
            None => Ok(()),
        }
    }
}
