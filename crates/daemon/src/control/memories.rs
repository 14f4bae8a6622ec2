//! Memory of an app's own on its way to an engine: a memfd, which comes by a socket made for it.
//!
//! ```text
//!  add_memory ─▶ bring_memory, with a socket        app ── memfd ──▶ socket
//!  memory_sent ─▶ [it is received, mapped, sealed, filled] ─▶ engine ─▶ memory_added
//! ```
//! What is in brackets the app can make last for as long as it likes: by what it sends instead,
//! which takes long to close, or by holding the lock of its file. So spare threads do it, two for
//! each user, and the control connection itself never carries a descriptor. Unmapping is for
//! [`super::workers`].

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use clearway_channel::control::{self, Empty, Refusal, Reply};
use clearway_channel::{Code, NotShareable, Shared};
use clearway_nic::strangers::{Account, File};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::ControlPlane;
use super::requests::refusal;
use super::workers::{Done, Job, done_by};

/// The end of a socket that an app sends memory by.
#[derive(Debug)]
pub(super) struct Inlet {
    /// The number of the memory.
    pub(super) memory: u64,
    pub(super) socket: File,
}

impl ControlPlane {
    /// Gives an app a socket to send its memory by.
    pub(super) fn await_memory(&mut self, token: u64, memory: u64) {
        let made = self.make_inlet(token, memory);
        let Some(session) = self.sessions.get_mut(&token) else { return };
        match made {
            Ok((inlet, for_app)) => {
                session.inlet = Some(inlet);
                let told = session.reply(&Reply::BringMemory(Empty {}), &[for_app.as_fd()]);
                match told {
                    Ok(()) => self.watch_again(token),
                    Err(reason) => self.end_session(token, &reason),
                }
            }
            Err(refusal) => self.plane.handle_not_taken(memory, refusal),
        }
    }

    fn make_inlet(&self, token: u64, memory: u64) -> Result<(Inlet, OwnedFd), Refusal> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (own, for_app) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|error| no_socket(&error.into()))?;
        let peer = self.sessions.get(&token).map(|session| &session.peer);
        if !peer.is_some_and(|peer| self.plane.is_administrator(peer)) {
            self.descriptors.check(&for_app)?;
        }
        let user = peer.map_or(0, |peer| peer.user);
        let socket = File::new(own, Account::new(user, self.strangers.clone()));
        Ok((Inlet { memory, socket }, for_app))
    }

    /// Has memory mapped and secured that an app has sent.
    pub(super) fn take_memory(&mut self, token: u64, user: u32, bytes: u64) {
        let inlet = self.sessions.get_mut(&token).and_then(|session| session.inlet.take());
        if let Some(inlet) = inlet {
            self.empty(inlet, user, move |socket| take(socket, bytes));
        }
    }

    /// Nobody sends memory by it any more. What was sent may take long to close.
    pub(super) fn close_inlet(&self, inlet: Inlet, user: u32) {
        self.empty(inlet, user, |_| Err(refusal(Code::Closed, "the app has gone")));
    }

    /// Has an inlet closed by a spare thread, when `work` is done with it.
    fn empty(
        &self,
        inlet: Inlet,
        user: u32,
        work: impl FnOnce(&OwnedFd) -> Result<Shared, Refusal> + Send + 'static,
    ) {
        let teller = self.workers.teller();
        self.strangers.run(user, move || teller.tell(inlet.emptied(work)));
    }

    /// Memory that an app has sent is there, or is none.
    pub(super) fn memory_taken(&mut self, memory: u64, taken: Result<Shared, Refusal>) {
        match taken {
            Ok(shared) => {
                let user = self.plane.memory_user(memory);
                if let Err(shared) = self.plane.handle_taken(memory, shared) {
                    self.give_memory_back(user, memory, shared);
                }
            }
            Err(refusal) => self.plane.handle_not_taken(memory, refusal),
        }
    }

    /// Has memory unmapped that no engine has.
    pub(super) fn give_memory_back(&self, user: u32, memory: u64, shared: Shared) {
        self.workers.post(user, Job::GiveMemoryBack { memory, shared });
    }
}

impl Inlet {
    /// What has become of the memory when `work` is done with the socket, or has panicked.
    pub(super) fn emptied(self, work: impl FnOnce(&OwnedFd) -> Result<Shared, Refusal>) -> Done {
        let Self { memory, socket } = self;
        let failed = Err(refusal(Code::Internal, Code::Internal.text()));
        let work = || {
            let socket = socket.into_inner();
            let taken = work(&socket);
            // What else is in it is closed now, and not told before that: it counts until then.
            drop(socket);
            Done::Taken { memory, taken }
        };
        done_by(work, Done::Taken { memory, taken: failed })
    }
}

/// What has come by a socket, mapped and secured. Waits for as long as its sender likes.
fn take(socket: &OwnedFd, bytes: u64) -> Result<Shared, Refusal> {
    let came = control::receive(socket).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => nothing_came(),
        _ => refusal(Code::Invalid, format!("the memory did not come: {error}")),
    })?;
    let descriptors = came.ok_or_else(nothing_came)?.descriptors;
    let [memfd] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|others| {
        let text = format!("{} descriptors came; send a memfd, and nothing else", others.len());
        refusal(Code::Invalid, text)
    })?;
    Shared::adopt(&memfd, bytes).map_err(|error| {
        let code = match error {
            NotShareable::Io(_) => Code::OutOfMemory,
            _ => Code::Invalid,
        };
        refusal(code, format!("the memory cannot be shared: {error}"))
    })
}

fn nothing_came() -> Refusal {
    refusal(Code::Invalid, "no memory came; send the memfd by the socket before `memory_sent`")
}

fn no_socket(error: &io::Error) -> Refusal {
    let text = format!("memory cannot be awaited ({error}); give the daemon more open files");
    refusal(Code::OutOfMemory, text)
}
