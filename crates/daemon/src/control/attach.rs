//! The memory of channels on its way between the workers, the app and an engine.
//!
//! ```text
//!  attach ─▶ [memory is made] ─▶ attached, with descriptors
//!  mapped ─▶ [seals are checked, holes filled] ─▶ engine ─▶ mapped
//! ```
//! What is in brackets is done by [`super::workers`], while the session waits.

use std::io;
use std::os::fd::OwnedFd;

use clearway_channel::control::{Refusal, Reply};
use clearway_channel::{Code, DaemonEnd, Handover, NotSecured};
use clearway_control::ChannelPlace;

use super::ControlPlane;
use super::requests::refusal;
use super::session::Offer;
use super::workers::{Done, Job};

impl ControlPlane {
    /// The workers have done something.
    pub(super) fn take_work(&mut self) {
        self.workers.acknowledge();
        while let Some(done) = self.workers.next_done() {
            match done {
                Done::Made { place, made: Ok((end, handover)) } => {
                    self.hand_over(place, end, handover);
                }
                Done::Made { place, made: Err(error) } => {
                    let bytes = self.plane.channel(place).map_or(0, |record| record.memory_bytes);
                    self.plane.handle_not_made(place, no_memory(bytes, &error));
                }
                Done::Secured { place, secured: Ok(end) } => {
                    if let Err(end) = self.plane.handle_secured(place, end) {
                        self.give_back(place, end);
                    }
                }
                Done::Secured { place, secured: Err(error) } => {
                    self.plane.handle_not_secured(place, not_secured(&error));
                }
                Done::GivenBack(place) => self.plane.handle_given_back(place),
                Done::Taken { memory, taken } => self.memory_taken(memory, taken),
                Done::MemoryGivenBack(memory) => self.plane.handle_memory_given_back(memory),
            }
            self.carry_out();
        }
    }

    /// Gives the app the descriptors of its channel, if it still waits for them.
    fn hand_over(&mut self, place: ChannelPlace, end: Box<DaemonEnd>, handover: Handover) {
        let Some((token, attached)) = self.plane.handle_made(place) else {
            return self.withdraw(place, end, handover.memory);
        };
        if let Err(refusal) = self.may_have_descriptors(token, &handover) {
            self.withdraw(place, end, handover.memory);
            return self.plane.withhold(token, refusal);
        }
        let Some(session) = self.sessions.get_mut(&token) else { return };
        let told = session.reply(&Reply::Attached(attached), &handover.descriptors());
        session.offer = Some(Offer { place, end, memory: handover.memory });
        match told {
            Ok(()) => self.watch_again(token),
            Err(reason) => self.end_session(token, &reason),
        }
    }

    fn may_have_descriptors(&self, token: u64, handover: &Handover) -> Result<(), Refusal> {
        let peer = self.sessions.get(&token).map(|session| &session.peer);
        if peer.is_some_and(|peer| self.plane.is_administrator(peer)) {
            return Ok(());
        }
        self.descriptors.check(&handover.app_doorbell)
    }

    /// The app says that it has mapped its memory.
    pub(super) fn secure(&mut self, token: u64, user: u32) {
        let offer = self.sessions.get_mut(&token).and_then(|session| session.offer.take());
        if let Some(Offer { place, end, memory }) = offer {
            self.workers.post(user, Job::Secure { place, end, memory });
        }
    }

    /// Takes back a channel that no engine has seen.
    pub(super) fn withdraw(&self, place: ChannelPlace, end: Box<DaemonEnd>, memory: OwnedFd) {
        // Not the last reference to the memory: its mapping is one.
        drop(memory);
        self.give_back(place, end);
    }

    /// Has the memory of a channel given back that no engine has any more.
    pub(super) fn give_back(&self, place: ChannelPlace, end: Box<DaemonEnd>) {
        let user = self.plane.channel(place).map_or(0, |record| record.user);
        self.workers.post(user, Job::GiveBack { place, end });
    }
}

fn no_memory(bytes: u64, error: &io::Error) -> Refusal {
    let lacks = match error.kind() {
        io::ErrorKind::FileTooLarge => "larger files (ulimit -f, or LimitFSIZE= of its service)",
        _ => "more memory and open files",
    };
    let text = format!(
        "a channel of {bytes} bytes cannot be made ({error}); use a smaller one, or give the \
         daemon {lacks}"
    );
    refusal(Code::OutOfMemory, text)
}

fn not_secured(error: &NotSecured) -> Refusal {
    let code = match error {
        NotSecured::NotSealed => Code::Violation,
        NotSecured::Io(_) => Code::OutOfMemory,
    };
    refusal(code, error.to_string())
}
