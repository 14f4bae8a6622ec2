//! How an app comes by its channel: memory is made and handed over, the app maps and seals it, and
//! only then does an engine get it (`clearway_channel`'s `memory/mapped.rs` says why).

use clearway_channel::control::{Attach, Attached, Empty, Refusal, Reply};
use clearway_channel::{Code, DaemonEnd, Understood, Versions};
use clearway_engine::Request as EngineRequest;

use super::{Plane, Step};
use crate::engines::{Channel, ChannelPlace};
use crate::refusal::{not_attached, refusal};
use crate::session::{self, Stage};

impl Plane {
    /// Finds a place for the channel, and has its memory made.
    pub(super) fn attach(&mut self, session: u64, attach: Attach) -> Result<(), Refusal> {
        let Some(asks) = self.sessions.get(&session) else { return Ok(()) };
        if !matches!(asks.stage, Stage::Bare) {
            let text = "this connection has a channel already; open another connection";
            return Err(refusal(Code::Invalid, text));
        }
        let version = attach.layout.common(Versions::DAEMON);
        let version = version.map_err(|error| refusal(Code::Mismatch, error.to_string()))?;
        attach.sizes.check().map_err(|error| refusal(Code::Invalid, error.to_string()))?;
        if attach.sizes.shared_bytes > 0 {
            self.accounts.may_share(&asks.peer)?;
        }
        let engine = self.place(&asks.peer, &attach)?;
        let (memory_bytes, sizes) = (attach.sizes.total_bytes() as u64, attach.sizes);
        let user = asks.peer.user;
        self.accounts.open_channel(user, memory_bytes)?;
        // From here on the channel counts, so that an app that wants the engine to itself sees it.
        let place = ChannelPlace { engine, channel: self.channel_numbers.take() };
        let is_exclusive = attach.exclusive;
        let channel = Channel { session, user, memory_bytes, is_exclusive };
        self.engines[engine].channels.insert(place.channel, channel);
        if let Some(asks) = self.sessions.get_mut(&session) {
            asks.stage = Stage::Making { place, attach: Box::new(attach) };
        }
        self.push(Step::Make { place, user, version, sizes });
        Ok(())
    }

    /// The memory of a channel is there. Returns who is to have it, and what it is told with it; or
    /// nobody, who is still there, and then the memory is to be given back.
    pub fn handle_made(&mut self, place: ChannelPlace) -> Option<(u64, Attached)> {
        let session = self.channel(place)?.session;
        let engine_name = self.engines[place.engine].name.clone();
        let waits = self.sessions.get_mut(&session)?;
        let attach = waits.leave_stage(|stage| match stage {
            Stage::Making { place: awaited, attach } if awaited == place => Ok(attach),
            other => Err(other),
        })?;
        waits.stage = Stage::Offered { place, app: attach.app };
        let attached = Attached {
            channel: place.channel,
            engine: place.engine as u32,
            engine_name,
            sizes: attach.sizes,
            wake_up_ns: match attach.layout {
                Understood::Versions(_) => self.wake_up_ns,
                Understood::Hash(_) => 0,
            },
        };
        Some((session, attached))
    }

    /// There is no memory for a channel.
    pub fn handle_not_made(&mut self, place: ChannelPlace, refusal: Refusal) {
        if let Some(session) = self.unplaced(place) {
            self.reply(session, Reply::Error(refusal));
        }
    }

    /// The app cannot be given its channel, whose memory is to be given back.
    pub fn withhold(&mut self, session: u64, refusal: Refusal) {
        if let Some(waits) = self.sessions.get_mut(&session) {
            waits.stage = Stage::Bare;
            self.reply(session, Reply::Error(refusal));
        }
    }

    /// The app has mapped its memory: has that made sure of.
    pub(super) fn mapped(&mut self, session: u64) -> Result<(), Refusal> {
        let Some(asks) = self.sessions.get_mut(&session) else { return Ok(()) };
        let offered = asks.leave_stage(|stage| match stage {
            Stage::Offered { place, app } => Ok((place, app)),
            other => Err(other),
        });
        let (place, app) = offered.ok_or_else(not_attached)?;
        asks.stage = Stage::Securing { place, app };
        let user = asks.peer.user;
        self.push(Step::Secure { session, place, user });
        Ok(())
    }

    /// The app has sealed its memory: the engine gets the channel.
    ///
    /// # Errors
    /// If the app is not there any more: its memory is to be given back.
    pub fn handle_secured(
        &mut self,
        place: ChannelPlace,
        end: Box<DaemonEnd>,
    ) -> Result<(), Box<DaemonEnd>> {
        let Some(&Channel { session, user, .. }) = self.channel(place) else { return Err(end) };
        let Some(waits) = self.sessions.get_mut(&session) else { return Err(end) };
        let app = waits.leave_stage(|stage| match stage {
            Stage::Securing { place: awaited, app } if awaited == place => Ok(app),
            other => Err(other),
        });
        let Some(app) = app else { return Err(end) };
        waits.stage = Stage::Attached(session::Attached::new(place, app.clone()));
        let ChannelPlace { engine, channel } = place;
        let allowance = self.accounts.allowance(&waits.peer);
        let request = EngineRequest::AddChannel { channel, app, user, end, allowance };
        self.push(Step::Ask { engine, request });
        self.reply(session, Reply::Mapped(Empty {}));
        Ok(())
    }

    /// The app has not sealed the memory of its channel, or took pages away for which there is no
    /// memory.
    pub fn handle_not_secured(&mut self, place: ChannelPlace, refusal: Refusal) {
        if let Some(session) = self.unplaced(place) {
            self.push(Step::Expel { session, refusal });
        }
    }

    /// The memory of a channel is given back, and nothing else is left of it but the TCP ports of
    /// one that has lingered: its number and its share of the limits are free.
    pub fn handle_given_back(&mut self, place: ChannelPlace) {
        self.vifs.forget(place.engine, place.channel);
        self.gather();
        self.forget_memories(place);
        let channels = &mut self.engines[place.engine].channels;
        if let Some(channel) = channels.remove(&place.channel) {
            self.accounts.close_channel(channel.user, channel.memory_bytes);
            self.channel_numbers.give_back(place.channel);
        }
    }

    /// There will be no such channel. Returns who waits for it.
    fn unplaced(&mut self, place: ChannelPlace) -> Option<u64> {
        let session = self.channel(place)?.session;
        self.handle_given_back(place);
        self.sessions.get_mut(&session)?.stage = Stage::Bare;
        Some(session)
    }
}
