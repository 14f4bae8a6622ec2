//! Carrying out what the control plane without I/O wants done, and saying in the log what came of
//! it.

use std::collections::HashSet;
use std::time::Instant;

use clearway_channel::control::{Listening, Refusal, Reply, VifOpened};
use clearway_control::policy::HostPort;
use clearway_control::{ChannelPlace, Step, VifOwner};

use super::ControlPlane;
use super::workers::Job;

/// Comparisons of patterns between two looks at the sockets, for all users of a NIC together: some
/// tenths of a millisecond.
const COMPARISONS_PER_TURN: usize = 8192;

impl ControlPlane {
    /// Does what is to be done.
    pub(super) fn carry_out(&mut self) {
        while let Some(step) = self.plane.poll_step() {
            match step {
                Step::Ask { engine, request } => self.mailboxes[engine].post(request),
                Step::Reply { session, reply } => {
                    self.log_reply(session, &reply);
                    self.reply(session, &reply);
                }
                Step::Expel { session, refusal } => {
                    self.log_expelled(session, &refusal);
                    self.expel(session, &refusal);
                }
                Step::Make { place, user, version, sizes } => {
                    self.workers.post(user, Job::Make { place, version, sizes });
                }
                Step::Secure { session, user, .. } => self.secure(session, user),
                Step::AwaitMemory { session, memory } => self.await_memory(session, memory),
                Step::TakeMemory { session, user, bytes, .. } => {
                    self.take_memory(session, user, bytes);
                }
                Step::Claim { vif, nic, ports } => {
                    let claimed = self.claim(vif, nic, &ports);
                    self.plane.handle_claimed(vif, claimed);
                }
                Step::Steer { vif, nic, steered } => {
                    let result = self.nics[nic].steer(&steered);
                    self.plane.handle_steered(vif, result);
                }
                Step::Unsteer { nic, steered } => self.nics[nic].unsteer(&steered),
                Step::Release { nic, ports } => self.nics[nic].release(&ports),
            }
        }
    }

    fn claim(&mut self, vif: u32, nic: usize, ports: &HashSet<HostPort>) -> Result<(), Refusal> {
        let is_administrators = self.is_administrators(vif);
        self.nics[nic].claim(ports, || match is_administrators {
            true => Ok(()),
            false => self.descriptors.check_next(&self.epoll),
        })
    }

    fn is_administrators(&self, vif: u32) -> bool {
        let Some(VifOwner { engine, channel, .. }) = self.plane.vifs().owner(vif) else {
            return false;
        };
        let channel = self.plane.channel(ChannelPlace { engine, channel });
        let session = channel.and_then(|channel| self.plane.session(channel.session));
        session.is_some_and(|session| self.plane.is_administrator(session.peer()))
    }

    /// When [`ControlPlane::advance_checks`] has something to do.
    pub(super) fn checks_due(&self) -> Option<Instant> {
        self.plane.is_checking().then(Instant::now)
    }

    /// Goes on with what is being compared with what others have.
    pub(super) fn advance_checks(&mut self) {
        self.plane.advance(COMPARISONS_PER_TURN);
        self.carry_out();
    }

    fn log_reply(&mut self, token: u64, reply: &Reply) {
        match reply {
            Reply::Error(refusal) => self.log_refusal(token, refusal),
            Reply::Mapped(_) => self.log_attached(token),
            Reply::VifOpened(opened) => self.log_opened(token, opened),
            Reply::Listening(Listening { listener, address }) => {
                tracing::debug!(%address, listener, "listening");
            }
            _ => {}
        }
    }

    pub(super) fn log_refusal(&mut self, token: u64, refusal: &Refusal) {
        if let Some(session) = self.sessions.get(&token)
            && self.log_budget.take(session.peer.user)
        {
            let (user, process) = (session.peer.user, session.peer.process);
            tracing::info!(user, process, "refused: {}", refusal.message);
        }
    }

    /// The end of a session that has a channel is in the log anyway.
    fn log_expelled(&mut self, token: u64, refusal: &Refusal) {
        let session = self.plane.session(token);
        if session.is_some_and(|session| session.attached().is_none()) {
            self.log_refusal(token, refusal);
        }
    }

    fn log_attached(&mut self, token: u64) {
        let Some(session) = self.plane.session(token) else { return };
        let Some(attached) = session.attached() else { return };
        let (user, process) = (session.peer().user, session.peer().process);
        if self.log_budget.take(user) {
            let engine = &self.plane.engines()[attached.place.engine].name;
            let (app, channel) = (&attached.app, attached.place.channel);
            tracing::info!(app, user, process, engine, channel, "attached");
        }
    }

    fn log_opened(&mut self, token: u64, opened: &VifOpened) {
        let Some(session) = self.plane.session(token) else { return };
        let Some(attached) = session.attached() else { return };
        if self.log_budget.take(session.peer().user) {
            let engine = &self.plane.engines()[attached.place.engine].name;
            let (app, vif, mac) = (&attached.app, opened.vif, opened.mac);
            let receive = &opened.receive;
            tracing::info!(app, engine, vif, %mac, ?receive, "interface open");
        }
    }
}
