//! Whether the books of an engine agree with each other: for tests and for the simulator, between
//! any two turns. Of everything that there is a limited number of, what is taken and what is free
//! make up what there is; and when the last app has gone, nothing is taken.

use super::{Core, Engine};
use crate::common::Common;
use crate::component::Component;

impl<X: Component<Owner = ()>> Engine<X> {
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

impl<X> Core<X> {
    fn audit(&self) -> Result<(), String> {
        self.messages.endpoint.audit()?;
        self.messages.resolving.audit()?;
        let sends_of = |channel| self.frames.bursts_of(channel) + self.tcp.sends_of(channel);
        self.common.channels.audit(sends_of)?;
        self.tcp.audit_held_up(&self.common.channels)?;
        self.common.lanes.audit()?;
        self.common.host.audit()
    }

    fn audit_rest(&self) -> Result<(), String> {
        self.messages.endpoint.audit_rest()?;
        let Common { channels, lanes, captures, switch, .. } = &self.common;
        lanes.audit_rest()?;
        switch.audit_rest()?;
        let left = [
            ("channels", channels.iter().count()),
            ("polled channels", channels.polled_count()),
            ("parked channels", channels.parked_count()),
            ("virtual interfaces", self.frames.count()),
            ("TCP ports", self.tcp.port_count()),
            ("TCP connections", self.tcp.count()),
            ("captures", captures.snapshot().len()),
            ("attempts to connect", self.messages.resolving.count()),
        ];
        match left.iter().find(|(_, count)| *count > 0) {
            Some((what, count)) => Err(format!("{count} {what} are left")),
            None => Ok(()),
        }
    }
}
