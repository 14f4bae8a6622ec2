//! What apps ask for, and what the control plane makes of it.

use clearway_channel::Code;
use clearway_channel::control::{Empty, Refusal, Reply, Request};

use super::ControlPlane;
use super::session::{Session, Waiting};

impl ControlPlane {
    pub(super) fn handle_request(&mut self, token: u64, request: Request) {
        let revoked = match &request {
            Request::RevokeVif(revoke) => Some(revoke.vif),
            _ => None,
        };
        let Some(request) = self.plane.handle_request(token, request) else {
            if self.is_waiting(token) {
                self.watch_again(token);
                revoked.into_iter().for_each(|vif| self.log_revoked(token, vif));
            }
            return self.carry_out();
        };
        let result = match request {
            Request::Status(Empty {}) => self.gather_status(token),
            Request::Reload(Empty {}) => self.begin_reload(token),
            Request::Ping(ping) => self.begin_ping(token, &ping),
            _ => Ok(()),
        };
        match result {
            Err(refusal) => {
                self.log_refusal(token, &refusal);
                self.reply(token, &Reply::Error(refusal));
            }
            Ok(()) if self.is_waiting(token) => self.watch_again(token),
            Ok(()) => {}
        }
    }

    /// True while the last request of a session is worked on.
    pub(super) fn is_waiting(&self, token: u64) -> bool {
        self.sessions.get(&token).is_some_and(Session::is_waiting)
            || self.plane.session(token).is_some_and(clearway_control::Session::is_waiting)
    }

    fn log_revoked(&self, token: u64, vif: u32) {
        let Some(session) = self.sessions.get(&token) else { return };
        let owner = self.plane.vifs().owner(vif);
        let channel = owner.map(|owner| owner.channel);
        tracing::info!(vif, channel, user = session.peer.user, "interface taken away");
    }

    /// Answers, and reads the session's next request.
    pub(super) fn reply(&mut self, token: u64, reply: &Reply) {
        let Some(session) = self.sessions.get_mut(&token) else { return };
        session.waiting = Waiting::Nothing;
        match session.reply(reply, &[]) {
            Ok(()) => self.watch_again(token),
            Err(reason) => self.end_session(token, &reason),
        }
    }
}

pub(super) fn refusal(code: Code, message: impl Into<String>) -> Refusal {
    Refusal { code, message: message.into() }
}
