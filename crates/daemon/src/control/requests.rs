//! What apps ask for, and what the control plane makes of it.

use std::io;

use clearway_channel::control::{Attach, Attached, Empty, Refusal, Reply, Request};
use clearway_channel::{Code, DaemonEnd, Handover, Sizes};
use clearway_engine::Request as EngineRequest;

use super::ControlPlane;
use super::engines::Channel;
use super::session::{self, Session, Waiting};
use super::workers::{ChannelPlace, Done, Job};

impl ControlPlane {
    pub(super) fn handle_request(&mut self, token: u64, request: Request) {
        let result = match request {
            Request::Attach(attach) => self.attach(token, attach),
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

    /// The same for a session that does not wait any more, and whose socket is not read yet.
    fn reply_and_watch(&mut self, token: u64, reply: &Reply) {
        self.reply(token, reply);
        self.watch_again(token);
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
        // From here on the channel counts, so that an app that wants the engine to itself sees it.
        let place = ChannelPlace { engine, channel: self.channel_numbers.take() };
        let is_exclusive = attach.exclusive;
        let record = Channel { session: token, user, memory_bytes, is_exclusive };
        self.engines[engine].add_channel(place.channel, record);
        self.workers.post(user, Job::Make { place, sizes: attach.sizes });
        if let Some(session) = self.sessions.get_mut(&token) {
            session.waiting = Waiting::Attaching(Box::new(attach));
        }
        Ok(())
    }

    /// The workers have done something.
    pub(super) fn take_work(&mut self) {
        self.workers.acknowledge();
        while let Some(done) = self.workers.next_done() {
            match done {
                Done::Made { place, made: Ok((end, handover)) } => {
                    self.channel_made(place, end, handover);
                }
                Done::Made { place, made: Err(error) } => self.channel_failed(place, &error),
                Done::GivenBack(place) => self.forget_channel(place),
            }
        }
    }

    /// Hands one end of a new channel to the engine and the other to the app, if it still waits for it.
    fn channel_made(&mut self, place: ChannelPlace, end: Box<DaemonEnd>, handover: Handover) {
        match self.hand_over(place, &handover) {
            Ok((token, attach)) => self.begin_channel(token, place, attach, end),
            Err(()) => self.give_back(place, end),
        }
    }

    /// Answers the app that waits for this channel: its session, and what it has asked for.
    fn hand_over(&mut self, place: ChannelPlace, handover: &Handover) -> Result<(u64, Attach), ()> {
        let engine = &self.engines[place.engine];
        let token = engine.channel(place.channel).map(|record| record.session).ok_or(())?;
        let session = self.sessions.get_mut(&token).ok_or(())?;
        let Waiting::Attaching(attach) = std::mem::take(&mut session.waiting) else {
            return Err(());
        };
        if !self.accounts.is_administrator(&session.peer)
            && let Err(refusal) = self.descriptors.check(&handover.app_doorbell)
        {
            self.reply_and_watch(token, &Reply::Error(refusal));
            return Err(());
        }
        let attached = Attached {
            channel: place.channel,
            engine: place.engine as u32,
            engine_name: engine.name.clone(),
            sizes: attach.sizes,
        };
        if let Err(reason) = session.reply(&Reply::Attached(attached), Some(handover)) {
            self.end_session(token, &reason);
            return Err(());
        }
        Ok((token, *attach))
    }

    fn begin_channel(
        &mut self,
        token: u64,
        place: ChannelPlace,
        attach: Attach,
        end: Box<DaemonEnd>,
    ) {
        let ChannelPlace { engine: index, channel } = place;
        let Some(session) = self.sessions.get_mut(&token) else { return };
        let (user, process) = (session.peer.user, session.peer.process);
        let engine = &mut self.engines[index];
        engine.post(EngineRequest::AddChannel {
            channel,
            app: attach.app.clone(),
            user,
            end,
            connections_max: self.accounts.connections_per_channel(),
        });
        if self.log_budget.take(user) {
            let engine = &engine.name;
            tracing::info!(app = attach.app, user, process, engine, channel, "attached");
        }
        session.attached = Some(session::Attached {
            engine: index,
            channel,
            app: attach.app,
            listeners: Vec::new(),
            listener_next: 1,
        });
        self.watch_again(token);
    }

    /// There is no memory for a channel.
    fn channel_failed(&mut self, place: ChannelPlace, error: &io::Error) {
        let token = self.engines[place.engine].channel(place.channel).map(|record| record.session);
        self.forget_channel(place);
        let Some(token) = token else { return };
        let waiting =
            self.sessions.get_mut(&token).map(|session| std::mem::take(&mut session.waiting));
        if let Some(Waiting::Attaching(attach)) = waiting {
            let refusal = no_memory(attach.sizes, error);
            self.log_refusal(token, &refusal);
            self.reply_and_watch(token, &Reply::Error(refusal));
        }
    }

    /// Has the memory of a channel given back that no engine has any more.
    pub(super) fn give_back(&self, place: ChannelPlace, end: Box<DaemonEnd>) {
        let user =
            self.engines[place.engine].channel(place.channel).map_or(0, |record| record.user);
        self.workers.post(user, Job::GiveBack { place, end });
    }

    /// Nothing is left of a channel: its number and its share of the limits are free.
    fn forget_channel(&mut self, place: ChannelPlace) {
        if let Some(record) = self.engines[place.engine].forget_channel(place.channel) {
            self.accounts.close_channel(record.user, record.memory_bytes);
            self.channel_numbers.give_back(place.channel);
        }
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
