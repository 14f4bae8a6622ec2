//! Reading the configuration again, without ending anything.
//!
//! A confined daemon reads no file: its broker does, and says what the names in it mean. What is
//! taken over is for whoever comes from now on: sessions, channels and interfaces that are there
//! stay. NICs that come, go or change are opened and closed meanwhile (`plugging.rs`).

use std::cell::Cell;

use clearway_channel::Code;
use clearway_channel::control::{Refusal, Reloaded, Reply};

use super::groups::GroupSource;
use super::manager::{Manager, NOT_READ};
use super::requests::refusal;
use super::session::Waiting;
use super::signals::Wish;
use super::{ControlPlane, Signals};
use crate::broker::{Order, Reread};
use crate::config::{self, Change, Config};
use crate::log;

/// To whoever wants the configuration read.
const NO_ORDERS: &str = "the process beside this daemon that reads its configuration takes no \
                         orders: it is at earlier ones, or has gone; try again, or restart the \
                         daemon";

impl ControlPlane {
    pub(super) fn take_signals(&mut self) {
        while let Some(wish) = self.signals.as_ref().and_then(Signals::take) {
            match wish {
                Wish::End(signal) => self.begin_shutdown(signal),
                Wish::Reload => _ = self.manager.as_mut().and_then(Manager::order_reread),
                Wish::Nothing(signal) => tracing::info!(signal, "the signal means nothing here"),
            }
        }
    }

    /// Somebody asks for it; the answer follows when the broker has read it.
    pub(super) fn begin_reload(&mut self, token: u64) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get(&token) else { return Ok(()) };
        if !self.plane.is_administrator(&session.peer) {
            let text =
                "only root and the daemon's own user may have it read its configuration again";
            return Err(refusal(Code::Denied, text));
        }
        if self.group_source == GroupSource::Nowhere {
            return Err(refusal(Code::DaemonGone, NOT_READ));
        }
        let Some(manager) = &mut self.manager else {
            let text = "this daemon is a part of another program, and has read no configuration";
            return Err(refusal(Code::Invalid, text));
        };
        let reread = manager.order_reread().ok_or_else(|| refusal(Code::Limit, NO_ORDERS))?;
        if let Some(session) = self.sessions.get_mut(&token) {
            session.waiting = Waiting::Reload(reread);
        }
        Ok(())
    }

    /// The broker has read it.
    pub(super) fn take_configuration(&mut self) {
        loop {
            let (number, reread) = match self.manager.as_mut().map(Manager::next_reread) {
                Some(Ok(Some(next))) => next,
                None | Some(Ok(None)) => return,
                Some(Err(error)) => return self.lose_broker(&error),
            };
            let reply = match self.read(reread).map(|config| self.take_over(&config)) {
                Ok(change) => Reply::Reloaded(Reloaded {
                    taken: change.taken,
                    needs_restart: change.needs_restart,
                }),
                Err(problem) => {
                    tracing::error!("the configuration stays as it was: {problem}");
                    Reply::Error(refusal(Code::Invalid, problem))
                }
            };
            self.answer_reload(number, &reply);
        }
    }

    /// Whoever has asked before the configuration was read this time: others may have changed it
    /// meanwhile, and wait for the next.
    pub(super) fn answer_reload(&mut self, done: u64, reply: &Reply) {
        let is_done =
            |waiting: &Waiting| matches!(waiting, Waiting::Reload(asked) if *asked <= done);
        let waits = self.sessions.iter().filter(|(_, session)| is_done(&session.waiting));
        for token in waits.map(|(token, _)| *token).collect::<Vec<_>>() {
            self.reply(token, reply);
        }
    }

    fn read(&self, reread: Reread) -> Result<Config, String> {
        match reread {
            Reread::Problem(problem) => Err(problem),
            Reread::Text { text, machine } => {
                config::parse(&text, "the configuration", &machine).map_err(|p| p.to_string())
            }
        }
    }

    pub(super) fn take_over(&mut self, new: &Config) -> Change {
        let was_open = self.config.policy.lets_others_in();
        let mut config = self.config.clone();
        let engines = Cell::new(self.plane.engines().len());
        let mut change = config.reload(new, &|nic| self.refuses(nic, &engines));
        if log::is_by_environment() {
            config.keep_level(&self.config, &mut change);
        }
        change.note_metrics(self.metrics_are_for_all, &config.policy);
        self.config = config;
        for (name, error) in self.change_nics(&change.nics) {
            change.note_failed(&name, &error.to_string());
            // It is not there, and new again when the configuration is read the next time.
            self.config.nics.retain(|nic| nic.name != name);
        }
        self.plane.set_policy(self.config.policy.clone());
        log::change_level(&self.config.log);
        match (was_open, self.config.policy.lets_others_in()) {
            (false, true) => self.order(Order::OpenSocket),
            (true, false) => self.order(Order::CloseSocket),
            _ => {}
        }
        tracing::info!(
            taken = change.taken.join(", "),
            needs_restart = change.needs_restart.join(", "),
            "the configuration was read again"
        );
        self.facts.needs_restart.clone_from(&change.needs_restart);
        change
    }
}
