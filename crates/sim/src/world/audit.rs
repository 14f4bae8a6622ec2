//! Looks at the books of flows.

use std::collections::BTreeMap;

use super::{CHECK_NS, World};
use crate::Finding;
use crate::checks::credit::{AppSide, Entry, alone};

impl World {
    /// What one engine says of its flows, by itself.
    pub(super) fn look_at_books(&self, host: u32, engine: u32) -> Result<(), Finding> {
        let runner = &self.hosts[host as usize].runners[engine as usize];
        runner.engine.flow_books().try_for_each(|(_, books)| alone(host, &books))
    }

    /// What all engines say, against each other and against their apps.
    pub(super) fn audit(&mut self) -> Result<(), Finding> {
        for (host, place) in (0..).zip(&self.hosts) {
            let audited = place.runners.iter().try_for_each(|runner| runner.engine.audit());
            audited.map_err(|what| Finding { what, hosts: vec![host] })?;
        }
        let entries = self.entries();
        entries.iter().try_for_each(|entry| alone(entry.host, &entry.books))?;
        self.auditor.audit(&entries)
    }

    /// What engines and control planes have left, once all apps are gone.
    pub(super) fn audit_rest(&self) -> Result<(), Finding> {
        for (host, place) in (0..).zip(&self.hosts) {
            let rests = place.runners.iter().try_for_each(|runner| runner.engine.audit_rest());
            let rests = rests.and_then(|()| place.control.audit_rest());
            rests.map_err(|what| Finding { what, hosts: vec![host] })?;
        }
        Ok(())
    }

    fn entries(&self) -> Vec<Entry> {
        let apps = self.residents.iter().flatten().map(|app| &self.apps[*app as usize]);
        let by_channel: BTreeMap<(u32, u32), _> =
            apps.map(|app| ((app.character.host, app.channel), app)).collect();
        let is_calm = self.calm.is_some_and(|calm| self.now.since(calm) > 2 * CHECK_NS);
        let mut entries = Vec::new();
        for (host, place) in (0..).zip(&self.hosts) {
            let flows = place.runners.iter().flat_map(|runner| runner.engine.flow_books());
            entries.extend(flows.map(|(connection, books)| {
                let app = by_channel.get(&(host, books.owner.channel));
                let held = app.and_then(|app| app.held_positions(connection));
                let app = held.map(|held| AppSide { held, is_at_ease: is_calm });
                Entry { host, books, app }
            }));
        }
        entries
    }
}
