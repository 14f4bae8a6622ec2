//! Looks at the books of flows.

use std::collections::BTreeMap;

use super::{CHECK_NS, World};
use clearway_engine::FlowBooks;

use crate::Finding;
use crate::checks::credit::{AppSide, Entry, alone};
use crate::checks::turns;

impl World {
    /// What one engine says of its flows; nothing while its host is down.
    pub(super) fn books(&self, host: u32, engine: u32) -> Vec<FlowBooks> {
        let runner = self.hosts[host as usize].runners.get(engine as usize);
        let books = runner.into_iter().flat_map(|runner| runner.engine.flow_books());
        books.map(|(_, books)| books).collect()
    }

    /// The same behind a turn, by itself, against what it was `before` that, and against what the
    /// engine has sent in it.
    pub(super) fn look_at_books(
        &mut self,
        host: u32,
        engine: u32,
        before: &[FlowBooks],
        sent: &[Vec<u8>],
    ) -> Result<(), Finding> {
        let books = self.books(host, engine);
        books.iter().try_for_each(|books| alone(host, books))?;
        self.ledger.counts.flows_in_order += turns::in_order(host, before, &books)?;
        self.ledger.counts.shares_compared += self.shares.look((host, engine), &books, sent)?;
        Ok(())
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
