//! What a daemon that runs can take over from a configuration that has become another one.

use super::Config;

/// The difference between two configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// What a running daemon takes over, as the user writes it.
    pub taken: Vec<String>,
    /// What stays as it was until the daemon is started again.
    pub needs_restart: Vec<String>,
}

impl Config {
    /// Takes over what can be while the daemon runs: who may do what, how long
    /// apps may linger, and how much is logged.
    pub fn reload(&mut self, new: &Self) -> Change {
        let mut change = Change::default();
        if self.policy != new.policy {
            self.policy.clone_from(&new.policy);
            change.taken.push("[policy]".to_owned());
        }
        if self.linger_max != new.linger_max {
            self.linger_max = new.linger_max;
            change.taken.push("linger_s_max".to_owned());
        }
        if self.log.level != new.log.level {
            self.log.level.clone_from(&new.log.level);
            change.taken.push("[log] level".to_owned());
        }
        change.needs_restart = self.differences(new);
        change
    }

    /// Everything else that is not the same.
    fn differences(&self, new: &Self) -> Vec<String> {
        let keys = [
            ("[control] socket", self.control != new.control),
            ("udp_port", self.udp_port != new.udp_port),
            ("congestion", self.congestion != new.congestion),
            ("silence_s", self.silence != new.silence),
            ("[log] format", self.log.format != new.log.format),
            ("[metrics]", self.metrics != new.metrics),
            ("confine", self.confine != new.confine),
            ("user", self.user != new.user),
        ];
        let keys = keys.into_iter().filter(|(_, differs)| *differs);
        let mut found: Vec<String> = keys.map(|(key, _)| key.to_owned()).collect();
        let nics = new.nics.iter().filter(|nic| !self.nics.contains(nic));
        found.extend(nics.map(|nic| format!("[[nic]] {}", nic.name)));
        let gone = self.nics.iter().filter(|nic| new.nics.iter().all(|n| n.name != nic.name));
        found.extend(gone.map(|nic| format!("[[nic]] {}, which is gone", nic.name)));
        found
    }
}
