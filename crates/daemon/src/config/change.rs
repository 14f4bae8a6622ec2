//! What a daemon that runs can take over from a configuration that has become another one.

use super::{Config, Driver, Nic, Policy};

/// As the user writes it.
const LEVEL: &str = "[log] level";

/// The difference between two configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// What a running daemon takes over, as the user writes it.
    pub taken: Vec<String>,
    /// What stays as it was until the daemon is started again, and why if that is not plain.
    pub needs_restart: Vec<String>,
    /// What becomes of NICs, of those parts that are taken over.
    pub nics: Vec<NicChange>,
}

/// What becomes of a NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NicChange {
    /// It is new.
    New(Nic),
    /// It is to be closed, and opened like this.
    Other(Nic),
    /// The one of this name is named no more.
    Gone(String),
}

impl Change {
    /// A NIC that was to be taken over cannot be, since something is lacking.
    pub(crate) fn note_failed(&mut self, name: &str, why: &str) {
        let nic = format!("[[nic]] {name}");
        self.taken.retain(|taken| *taken != nic);
        self.needs_restart.push(format!("{nic}: {why}"));
    }

    /// Who may read metrics goes by the modes of a socket and a file, which stay as they were made:
    /// for all if the policy let anybody in.
    pub(crate) fn note_metrics(&mut self, are_for_all: bool, policy: &Policy) {
        if are_for_all != policy.lets_others_in() {
            self.needs_restart.push("who may read metrics, which goes by [policy]".to_owned());
        }
    }
}

impl Config {
    /// Takes over what can be while the daemon runs: who may do what, how long apps may linger, how
    /// much is logged, and NICs, unless `refuses` says why not.
    pub fn reload(&mut self, new: &Self, refuses: &dyn Fn(&Nic) -> Option<String>) -> Change {
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
            change.taken.push(LEVEL.to_owned());
        }
        change.needs_restart = self.differences(new);
        self.reload_nics(new, refuses, &mut change);
        change
    }

    /// What `RUST_LOG` says of the level of the log goes before the configuration: it stays as it
    /// was `before`.
    pub(crate) fn keep_level(&mut self, before: &Self, change: &mut Change) {
        if self.log.level != before.log.level {
            self.log.level.clone_from(&before.log.level);
            change.taken.retain(|taken| taken != LEVEL);
            change.needs_restart.push(format!("{LEVEL}: RUST_LOG says how much is logged"));
        }
    }

    fn reload_nics(
        &mut self,
        new: &Self,
        refuses: &dyn Fn(&Nic) -> Option<String>,
        change: &mut Change,
    ) {
        for nic in &new.nics {
            if self.nics.contains(nic) {
                continue;
            }
            let name = format!("[[nic]] {}", nic.name);
            if let Some(why) = refuses(nic) {
                change.needs_restart.push(format!("{name}: {why}"));
                continue;
            }
            change.taken.push(name);
            match self.nics.iter_mut().find(|own| own.name == nic.name) {
                Some(own) => {
                    own.clone_from(nic);
                    change.nics.push(NicChange::Other(nic.clone()));
                }
                None => {
                    self.nics.push(nic.clone());
                    change.nics.push(NicChange::New(nic.clone()));
                }
            }
        }
        let is_named = |own: &Nic| new.nics.iter().any(|nic| nic.name == own.name);
        for gone in self.nics.iter().filter(|own| !is_named(own)) {
            change.taken.push(format!("[[nic]] {}, which is gone", gone.name));
            change.nics.push(NicChange::Gone(gone.name.clone()));
        }
        self.nics.retain(is_named);
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
        keys.map(|(key, _)| key.to_owned()).collect()
    }
}

impl Nic {
    /// What cannot become otherwise while this NIC's engines run.
    pub(crate) fn keeps(&self, new: &Self) -> Option<&'static str> {
        if std::mem::discriminant(&self.driver) != std::mem::discriminant(&new.driver) {
            return Some("it was of another kind when the daemon started");
        }
        let keys = [
            ("`engines` is that of threads which run", self.engines != new.engines),
            ("`idle` is that of threads which run", self.idle != new.idle),
            ("`cores` are those of threads which run", self.cores != new.cores),
            ("DPDK opens its devices when it starts", matches!(new.driver, Driver::Dpdk(_))),
        ];
        keys.into_iter().find(|(_, differs)| *differs).map(|(why, _)| why)
    }
}
