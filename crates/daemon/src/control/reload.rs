//! Reading the configuration again, without ending anything.
//!
//! A confined daemon reads no file: its broker does, and says what the names in it mean. What is
//! taken over is for whoever comes from now on: sessions, channels and interfaces that are there
//! stay. NICs that come, go or change are opened and closed meanwhile (`plugging.rs`).

use clearway_channel::Code;
use clearway_channel::control::{Refusal, Reloaded, Reply};

use super::requests::refusal;
use super::session::Waiting;
use super::signals::Wish;
use super::{ControlPlane, Signals};
use crate::broker::{Order, Reread};
use crate::config::{self, Change, Config};
use crate::log;

impl ControlPlane {
    pub(super) fn take_signals(&mut self) {
        while let Some(wish) = self.signals.as_ref().and_then(Signals::take) {
            match wish {
                Wish::End(signal) => self.begin_shutdown(signal),
                Wish::Reload => self.order(Order::Reread),
                Wish::Nothing(signal) => tracing::info!(signal, "the signal means nothing here"),
            }
        }
    }

    /// Somebody asks for it; the answer follows when the broker has read it.
    pub(super) fn begin_reload(&mut self, token: u64) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get_mut(&token) else { return Ok(()) };
        if !self.plane.is_administrator(&session.peer) {
            let text =
                "only root and the daemon's own user may have it read its configuration again";
            return Err(refusal(Code::Denied, text));
        }
        if self.manager.is_none() {
            let text = "this daemon is a part of another program, and has read no configuration";
            return Err(refusal(Code::Invalid, text));
        }
        session.waiting = Waiting::Reload;
        self.order(Order::Reread);
        Ok(())
    }

    /// The broker has read it.
    pub(super) fn take_configuration(&mut self) {
        loop {
            let reread = match self.manager.as_ref().map(|manager| manager.broker.reread()) {
                Some(Ok(Some(reread))) => reread,
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
            self.answer_reload(&reply);
        }
    }

    /// All who have asked until now.
    fn answer_reload(&mut self, reply: &Reply) {
        let waits = self.sessions.iter().filter(|(_, s)| matches!(s.waiting, Waiting::Reload));
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

    fn take_over(&mut self, new: &Config) -> Change {
        let was_open = self.config.policy.lets_others_in();
        let mut config = self.config.clone();
        let change = config.reload(new, &|nic| self.refuses(nic));
        self.config = config;
        self.change_nics(&change.nics);
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
