//! What apps ask for, and what the control plane makes of it.

use std::io;

use clearway_channel::control::{Attach, Attached, Empty, Refusal, Reply, Request};
use clearway_channel::{Code, DaemonEnd, Sizes};
use clearway_engine::Request as EngineRequest;

use super::ControlPlane;
use super::engines::Channel;
use super::session::{self, Session, Waiting};

impl ControlPlane {
    pub(super) fn handle_request(&mut self, token: u64, request: Request) {
        let result = match request {
            Request::Attach(attach) => self.attach(token, attach),
            Request::Listen(listen) => self.listen(token, &listen),
            Request::Unlisten(unlisten) => self.unlisten(token, &unlisten),
            Request::Status(Empty {}) => {
                self.gather_status(token);
                Ok(())
            }
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

    fn attach(&mut self, token: u64, attach: Attach) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get(&token) else { return Ok(()) };
        if session.attached.is_some() {
            let text = "this connection has a channel already; open another connection";
            return Err(refusal(Code::Invalid, text));
        }
        if !attach.layout_matches() {
            return Err(refusal(Code::Mismatch, Code::Mismatch.text()));
        }
        attach.sizes.check().map_err(|error| refusal(Code::Invalid, error.to_string()))?;
        let engine = self.place(&session.peer, &attach)?;
        let memory_bytes = attach.sizes.total_bytes() as u64;
        let user = session.peer.user;
        self.accounts.open_channel(user, memory_bytes)?;
        let opened = self.open_channel(token, engine, &attach);
        if opened.is_err() {
            self.accounts.close_channel(user, memory_bytes);
        }
        opened
    }

    /// Makes the channel, hands one end to the engine and the other to the app.
    fn open_channel(&mut self, token: u64, index: usize, attach: &Attach) -> Result<(), Refusal> {
        let session = &self.sessions[&token];
        let user = session.peer.user;
        let (end, handover) =
            DaemonEnd::create(attach.sizes).map_err(|error| no_memory(attach.sizes, &error))?;
        let memory_bytes = attach.sizes.total_bytes() as u64;
        let engine = &mut self.engines[index];
        let channel = self.channel_numbers.take();
        let attached = Attached {
            channel,
            engine: index as u32,
            engine_name: engine.name.clone(),
            sizes: attach.sizes,
        };
        if let Err(reason) = session.reply(&Reply::Attached(attached), Some(&handover)) {
            self.channel_numbers.give_back(channel);
            return Err(refusal(Code::Internal, reason));
        }
        let is_exclusive = attach.exclusive;
        engine.add_channel(channel, Channel { session: token, user, memory_bytes, is_exclusive });
        engine.post(EngineRequest::AddChannel {
            channel,
            app: attach.app.clone(),
            user,
            end: Box::new(end),
            connections_max: self.accounts.connections_per_channel(),
        });
        let process = session.peer.process;
        if self.log_budget.take() {
            let engine = &engine.name;
            tracing::info!(app = attach.app, user, process, engine, channel, "attached");
        }
        let app = attach.app.clone();
        if let Some(session) = self.sessions.get_mut(&token) {
            session.attached = Some(session::Attached {
                engine: index,
                channel,
                app,
                listeners: Vec::new(),
                listener_next: 1,
            });
        }
        Ok(())
    }
}

pub(super) fn refusal(code: Code, message: impl Into<String>) -> Refusal {
    Refusal { code, message: message.into() }
}

pub(super) fn not_attached() -> Refusal {
    refusal(Code::Invalid, "this connection has no channel; send `attach` first")
}

fn no_memory(sizes: Sizes, error: &io::Error) -> Refusal {
    let text = format!(
        "a channel of {} bytes cannot be made ({error}); use a smaller one, or give the daemon \
         more memory and open files",
        sizes.total_bytes()
    );
    refusal(Code::OutOfMemory, text)
}
