//! How an app comes by its channel: memory is made and handed over, the app maps and seals it, and
//! only then does an engine get it (`clearway_channel`'s `memory/mapped.rs` says why).
//!
//! ```text
//!  attach ─▶ place, count ─▶ [memory is made] ─▶ attached, with descriptors
//!  mapped ─▶ [seals are checked, holes filled] ─▶ engine ─▶ mapped
//! ```
//! What is in brackets is done by [`super::workers`], while the session waits.

use std::io;
use std::os::fd::OwnedFd;

use clearway_channel::control::{Attach, Attached, Empty, Refusal, Reply};
use clearway_channel::{Code, DaemonEnd, Handover, NotSecured, Sizes, Versions};
use clearway_engine::Request as EngineRequest;

use super::ControlPlane;
use super::engines::Channel;
use super::requests::{not_attached, refusal};
use super::session::{self, Offer, Waiting};
use super::workers::{ChannelPlace, Done, Job};

impl ControlPlane {
    /// Finds a place for the channel, and has its memory made.
    pub(super) fn attach(&mut self, token: u64, attach: Attach) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get(&token) else { return Ok(()) };
        if session.attached.is_some() || session.offer.is_some() {
            let text = "this connection has a channel already; open another connection";
            return Err(refusal(Code::Invalid, text));
        }
        let version = attach.layout.common(Versions::DAEMON);
        let version = version.map_err(|error| refusal(Code::Mismatch, error.to_string()))?;
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
        self.workers.post(user, Job::Make { place, version, sizes: attach.sizes });
        if let Some(session) = self.sessions.get_mut(&token) {
            session.waiting = Waiting::Attaching(Box::new(attach));
        }
        Ok(())
    }

    /// The app has mapped its memory: has that made sure of.
    pub(super) fn mapped(&mut self, token: u64) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get_mut(&token) else { return Ok(()) };
        let Offer { place, app, end, memory } = session.offer.take().ok_or_else(not_attached)?;
        session.waiting = Waiting::Mapped(app);
        self.workers.post(session.peer.user, Job::Secure { place, end, memory });
        Ok(())
    }

    /// The workers have done something.
    pub(super) fn take_work(&mut self) {
        self.workers.acknowledge();
        while let Some(done) = self.workers.next_done() {
            match done {
                Done::Made { place, made: Ok((end, handover)) } => {
                    self.hand_over(place, end, handover);
                }
                Done::Made { place, made: Err(error) } => self.not_made(place, &error),
                Done::Secured { place, secured: Ok(end) } => self.begin_channel(place, end),
                Done::Secured { place, secured: Err(error) } => self.not_secured(place, &error),
                Done::GivenBack(place) => self.forget_channel(place),
            }
        }
    }

    /// Gives the app the descriptors of its channel, if it still waits for them.
    fn hand_over(&mut self, place: ChannelPlace, end: Box<DaemonEnd>, handover: Handover) {
        let Some((token, Waiting::Attaching(attach))) = self.take_waiting(place) else {
            return self.withdraw(place, end, handover.memory);
        };
        if let Err(refusal) = self.may_have_descriptors(token, &handover) {
            self.withdraw(place, end, handover.memory);
            return self.reply_and_watch(token, &Reply::Error(refusal));
        }
        let Some(session) = self.sessions.get_mut(&token) else { return };
        let attached = Attached {
            channel: place.channel,
            engine: place.engine as u32,
            engine_name: self.engines[place.engine].name.clone(),
            sizes: attach.sizes,
        };
        let told = session.reply(&Reply::Attached(attached), Some(&handover));
        let Handover { memory, .. } = handover;
        session.offer = Some(Offer { place, app: attach.app, end, memory });
        match told {
            Ok(()) => self.watch_again(token),
            Err(reason) => self.end_session(token, &reason),
        }
    }

    fn may_have_descriptors(&self, token: u64, handover: &Handover) -> Result<(), Refusal> {
        let peer = self.sessions.get(&token).map(|session| &session.peer);
        if peer.is_some_and(|peer| self.accounts.is_administrator(peer)) {
            return Ok(());
        }
        self.descriptors.check(&handover.app_doorbell)
    }

    /// Gives the channel to its engine, if the app is still there.
    fn begin_channel(&mut self, place: ChannelPlace, end: Box<DaemonEnd>) {
        let Some((token, Waiting::Mapped(app))) = self.take_waiting(place) else {
            return self.give_back(place, end);
        };
        let Some(session) = self.sessions.get_mut(&token) else { return };
        let (user, process) = (session.peer.user, session.peer.process);
        let ChannelPlace { engine: index, channel } = place;
        let engine = &mut self.engines[index];
        engine.post(EngineRequest::AddChannel {
            channel,
            app: app.clone(),
            user,
            end,
            connections_max: self.accounts.connections_per_channel(),
        });
        if self.log_budget.take(user) {
            let engine = &engine.name;
            tracing::info!(app, user, process, engine, channel, "attached");
        }
        let (listeners, listener_next) = (Vec::new(), 1);
        let leave = None;
        session.attached = Some(session::Attached {
            engine: index,
            channel,
            app,
            listeners,
            listener_next,
            leave,
        });
        self.reply_and_watch(token, &Reply::Mapped(Empty {}));
    }

    /// There is no memory for a channel.
    fn not_made(&mut self, place: ChannelPlace, error: &io::Error) {
        let waiting = self.take_waiting(place);
        self.forget_channel(place);
        if let Some((token, Waiting::Attaching(attach))) = waiting {
            let refusal = no_memory(attach.sizes, error);
            self.log_refusal(token, &refusal);
            self.reply_and_watch(token, &Reply::Error(refusal));
        }
    }

    /// The app has not sealed the memory of its channel, or took pages away for which there is no
    /// memory.
    fn not_secured(&mut self, place: ChannelPlace, error: &NotSecured) {
        let waiting = self.take_waiting(place);
        self.forget_channel(place);
        if let Some((token, _)) = waiting {
            let code = match error {
                NotSecured::NotSealed => Code::Violation,
                NotSecured::Io(_) => Code::OutOfMemory,
            };
            let refusal = refusal(code, error.to_string());
            self.log_refusal(token, &refusal);
            self.expel(token, &refusal);
        }
    }

    /// The session that a channel is made for, if it is still there, and what it waits for: that
    /// has come.
    fn take_waiting(&mut self, place: ChannelPlace) -> Option<(u64, Waiting)> {
        let token = self.engines[place.engine].channel(place.channel)?.session;
        let session = self.sessions.get_mut(&token)?;
        Some((token, std::mem::take(&mut session.waiting)))
    }

    /// Answers a session that does not wait any more, and whose socket is not read yet.
    fn reply_and_watch(&mut self, token: u64, reply: &Reply) {
        self.reply(token, reply);
        self.watch_again(token);
    }

    /// Takes back a channel that no engine has seen.
    pub(super) fn withdraw(&self, place: ChannelPlace, end: Box<DaemonEnd>, memory: OwnedFd) {
        // Not the last reference to the memory: its mapping is one.
        drop(memory);
        self.give_back(place, end);
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

fn no_memory(sizes: Sizes, error: &io::Error) -> Refusal {
    let text = format!(
        "a channel of {} bytes cannot be made ({error}); use a smaller one, or give the daemon \
         more memory and open files",
        sizes.total_bytes()
    );
    refusal(Code::OutOfMemory, text)
}
