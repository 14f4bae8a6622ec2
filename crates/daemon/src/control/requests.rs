//! What apps ask for, and what the control plane makes of it.

use clearway_channel::Code;
use clearway_channel::control::{Empty, Refusal, Reply, Request};

use super::ControlPlane;
use super::session::{Session, Waiting};

impl ControlPlane {
    pub(super) fn handle_request(&mut self, token: u64, request: Request) {
        let result = match request {
            Request::Leave(leave) => {
                if let Some(session) = self.sessions.get_mut(&token) {
                    session.leave(leave);
                }
                Ok(())
            }
            Request::Attach(attach) => self.attach(token, attach),
            Request::Mapped(Empty {}) => self.mapped(token),
            Request::Listen(listen) => self.listen(token, &listen),
            Request::Unlisten(unlisten) => self.unlisten(token, &unlisten),
            Request::Status(Empty {}) => self.gather_status(token),
            Request::Reload(Empty {}) => self.begin_reload(token),
            Request::Ping(ping) => self.begin_ping(token, &ping),
            Request::OpenVif(open) => self.open_vif(token, &open),
            Request::OpenCapture(open) => self.open_capture(token, &open),
            Request::CloseVif(close) => self.close_vif(token, &close),
            Request::RevokeVif(revoke) => self.revoke_vif(token, &revoke),
        };
        match result {
            Err(refusal) => {
                self.log_refusal(token, &refusal);
                self.reply(token, &Reply::Error(refusal));
            }
            Ok(()) => {
                let waiting = self.sessions.get(&token).is_some_and(Session::is_waiting);
                if waiting {
                    self.watch_again(token);
                }
            }
        }
    }

    /// Answers, and reads the session's next request.
    pub(super) fn reply(&mut self, token: u64, reply: &Reply) {
        let Some(session) = self.sessions.get_mut(&token) else { return };
        let was_waiting = session.is_waiting();
        session.waiting = Waiting::Nothing;
        if let Err(reason) = session.reply(reply, None) {
            self.end_session(token, &reason);
        } else if was_waiting {
            self.watch_again(token);
        }
    }
}

pub(super) fn refusal(code: Code, message: impl Into<String>) -> Refusal {
    Refusal { code, message: message.into() }
}

pub(super) fn not_attached() -> Refusal {
    refusal(Code::Invalid, "this connection has no channel; send `attach` first")
}
