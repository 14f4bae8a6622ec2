//! How memory of an app's own becomes shared memory of its channel, and is taken back.
//!
//! ```text
//!  add_memory ─▶ policy, count ─▶ AwaitMemory ─▶ Reply: bring_memory, with a socket
//!  memory_sent ─▶ TakeMemory ─▶ engine ─▶ Reply: memory_added
//!  remove_memory ─▶ engine ─▶ [it is unmapped] ─▶ Reply: memory_removed
//! ```
//! Whoever asks again before it was sent has given that up, say because the answer came too late:
//! what came of it nevertheless is taken and given back.
//!
//! It counts as its user's from the first step until nothing of it is mapped any more, whether its
//! session is still there or not.

use clearway_channel::control::{AddMemory, MemoryAdded, Refusal, RemoveMemory, Reply};
use clearway_channel::{Code, MEMORIES_MAX, Shared};
use clearway_engine::Request as EngineRequest;

use super::{Plane, Step};
use crate::engines::ChannelPlace;
use crate::refusal::refusal;
use crate::session::Waiting;

/// Memories of one user that may be on their way to the daemon: each has a descriptor, and the app
/// can make it last for as long as it likes.
const COMING_PER_USER_MAX: usize = 8;

/// Memory of an app's own.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Whose it is, and the user on whose account it goes.
    session: u64,
    user: u32,
    place: ChannelPlace,
    bytes: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The app is to send it.
    Awaited,
    /// It was, and has asked for other memory instead: nobody is told what becomes of this one.
    GivenUp,
    /// It is being mapped and secured.
    Taken,
    /// The engine has it, or will have.
    Added,
    /// The engine is asked to let go of it, or has, and it is being unmapped.
    Removed,
}

impl Memory {
    const fn is_coming(&self) -> bool {
        matches!(self.stage, Stage::Awaited | Stage::GivenUp | Stage::Taken)
    }
}

impl Plane {
    pub(super) fn add_memory(&mut self, session: u64, add: AddMemory) -> Result<(), Refusal> {
        let Some(asks) = self.sessions.get(&session) else { return Ok(()) };
        let (place, user) = (asks.attached_or_refused()?.place, asks.peer.user);
        self.accounts.may_share(&asks.peer)?;
        self.take_awaited(session, Stage::GivenUp);
        if self.memories.values().filter(|memory| memory.session == session).count() >= MEMORIES_MAX
        {
            let text = format!(
                "a channel has no more than {MEMORIES_MAX} memories of its own; remove one first, \
                 or make them larger"
            );
            return Err(refusal(Code::Limit, text));
        }
        let coming = self.memories.values().filter(|it| it.user == user && it.is_coming()).count();
        if coming >= COMING_PER_USER_MAX {
            let text = format!(
                "{COMING_PER_USER_MAX} memories of this user are being added just now; try again"
            );
            return Err(refusal(Code::Limit, text));
        }
        self.accounts.open_memory(user, add.bytes)?;
        self.memory_last += 1;
        let (memory, bytes) = (self.memory_last, add.bytes);
        let stage = Stage::Awaited;
        self.memories.insert(memory, Memory { session, user, place, bytes, stage });
        self.push(Step::AwaitMemory { session, memory });
        Ok(())
    }

    pub(super) fn memory_sent(&mut self, session: u64) -> Result<(), Refusal> {
        let Some(memory) = self.take_awaited(session, Stage::Taken) else {
            let text = "no memory of this channel is awaited; say `add_memory` first";
            return Err(refusal(Code::Invalid, text));
        };
        if let Some(asks) = self.sessions.get_mut(&session) {
            asks.waiting = Waiting::Memory(memory);
        }
        Ok(())
    }

    /// Has what the app was to send taken, if it was to send any. Returns its number.
    fn take_awaited(&mut self, session: u64, stage: Stage) -> Option<u64> {
        let is_it = |it: &Memory| it.session == session && it.stage == Stage::Awaited;
        let (number, awaited) = self.memories.iter_mut().find(|(_, it)| is_it(it))?;
        awaited.stage = stage;
        let (memory, user, bytes) = (*number, awaited.user, awaited.bytes);
        self.push(Step::TakeMemory { session, memory, user, bytes });
        Some(memory)
    }

    /// On whose account memory of an app's own goes.
    #[must_use]
    pub fn memory_user(&self, memory: u64) -> u32 {
        self.memories.get(&memory).map_or(0, |memory| memory.user)
    }

    /// Memory that an app has sent is mapped and secured: its engine gets it.
    ///
    /// # Errors
    /// If the app is not there any more, or has given it up: it is to be given back.
    pub fn handle_taken(&mut self, memory: u64, shared: Shared) -> Result<(), Shared> {
        let Some(taken) = self.memories.get_mut(&memory) else { return Err(shared) };
        if taken.stage == Stage::GivenUp || !self.sessions.contains_key(&taken.session) {
            taken.stage = Stage::Removed;
            return Err(shared);
        }
        taken.stage = Stage::Added;
        let ChannelPlace { engine, channel } = taken.place;
        let request = EngineRequest::AddMemory { channel, memory, shared };
        self.push(Step::Ask { engine, request });
        Ok(())
    }

    /// Memory cannot be shared, or was not sent, and nothing of it is left. Also for what is
    /// awaited when its session ends.
    pub fn handle_not_taken(&mut self, memory: u64, refusal: Refusal) {
        let stage = self.memories.get(&memory).map(|memory| memory.stage);
        let session = self.forget_memory(memory);
        if let Some(session) = session.filter(|_| stage != Some(Stage::GivenUp)) {
            self.reply(session, Reply::Error(refusal));
        }
    }

    /// The engine has it, unless it has no place for it, and then it is to be given back.
    pub(super) fn memory_added(&mut self, memory: u64, is_refused: bool) {
        let Some(added) = self.memories.get_mut(&memory) else { return };
        let session = added.session;
        if is_refused {
            added.stage = Stage::Removed;
            let text = "the engine has no place for more memory of this channel; remove one first";
            return self.reply(session, Reply::Error(refusal(Code::Limit, text)));
        }
        self.reply(session, Reply::MemoryAdded(MemoryAdded { memory }));
    }

    pub(super) fn remove_memory(
        &mut self,
        session: u64,
        remove: RemoveMemory,
    ) -> Result<(), Refusal> {
        let memory = remove.memory;
        let found = self.memories.get_mut(&memory);
        let its = found.filter(|it| it.session == session && it.stage == Stage::Added);
        let Some(removed) = its else {
            let text = format!(
                "this channel has no memory {memory} of its own; use the number that it was given \
                 when it added it"
            );
            return Err(refusal(Code::Invalid, text));
        };
        removed.stage = Stage::Removed;
        let ChannelPlace { engine, channel } = removed.place;
        if let Some(asks) = self.sessions.get_mut(&session) {
            asks.waiting = Waiting::Memory(memory);
        }
        let request = EngineRequest::RemoveMemory { channel, memory };
        self.push(Step::Ask { engine, request });
        Ok(())
    }

    /// The engine has let go of it, and it is to be given back; or it is still used.
    pub(super) fn memory_removed(&mut self, memory: u64, is_free: bool) {
        let Some(removed) = self.memories.get_mut(&memory).filter(|_| !is_free) else { return };
        removed.stage = Stage::Added;
        let session = removed.session;
        let text = "regions are shared in this memory, or were and are still being written to, or \
                    buffers are posted there; unshare or take back all of them first, and wait for \
                    that";
        self.reply(session, Reply::Error(refusal(Code::Invalid, text)));
    }

    /// Memory that an engine has let go of, or never had, is unmapped.
    pub fn handle_memory_given_back(&mut self, memory: u64) {
        if let Some(session) = self.forget_memory(memory) {
            let waiting = self.sessions.get(&session).map(|session| session.waiting);
            if waiting == Some(Waiting::Memory(memory)) {
                self.reply(session, Reply::MemoryRemoved(Default::default()));
            }
        }
    }

    /// A channel is given back, and with it what its engine had.
    pub(super) fn forget_memories(&mut self, place: ChannelPlace) {
        let of_it = self.memories.iter();
        let of_it = of_it.filter(|(_, it)| it.place == place && it.stage == Stage::Added);
        for memory in of_it.map(|(memory, _)| *memory).collect::<Vec<_>>() {
            self.forget_memory(memory);
        }
    }

    /// Nothing is left of it. Returns whose it was.
    fn forget_memory(&mut self, memory: u64) -> Option<u64> {
        let Memory { session, user, bytes, .. } = self.memories.remove(&memory)?;
        self.accounts.close_memory(user, bytes);
        Some(session)
    }
}
