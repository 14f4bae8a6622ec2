//! Asks the kernel for Ethernet addresses of neighbours, on a thread of its own because the kernel
//! may have to ask the neighbour first.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use clearway_nic::MacAddress;
use rustix::event::{EventfdFlags, eventfd};

/// Questions that may wait. An engine asks again for what it still needs.
const QUESTIONS_MAX: usize = 256;

/// Finds the Ethernet address of a neighbour on one link; may take its time.
pub(crate) type Resolver = Box<dyn Fn(IpAddr) -> Option<MacAddress> + Send>;

/// The engine that asked, what it asked for, and the answer.
type Answer = (usize, IpAddr, Option<MacAddress>);

/// The other end of the resolver's thread. The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Neighbours {
    questions: SyncSender<(usize, IpAddr)>,
    answers: Receiver<Answer>,
    bell: Arc<OwnedFd>,
}

impl Neighbours {
    /// One resolver per engine; `None` for those whose link the kernel knows nothing of.
    pub(super) fn new(resolvers: Vec<Option<Resolver>>) -> std::io::Result<Self> {
        let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let (questions, asked) = sync_channel(QUESTIONS_MAX);
        let (answer, answers) = channel();
        let rung = Arc::clone(&bell);
        std::thread::Builder::new()
            .name("neighbours".to_owned())
            .spawn(move || resolve(&resolvers, &asked, &answer, &rung))?;
        Ok(Self { questions, answers, bell })
    }

    /// Asks; the answer comes later, or never if too much is asked at once.
    pub(super) fn ask(&self, engine: usize, address: IpAddr) {
        if self.questions.try_send((engine, address)).is_err() {
            tracing::debug!(%address, "too many neighbours are being looked for");
        }
    }

    /// What has been found since the last time.
    pub(super) fn answers(&self) -> Vec<Answer> {
        let _ = rustix::io::read(&*self.bell, &mut [0u8; 8]);
        self.answers.try_iter().collect()
    }
}

impl AsFd for Neighbours {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

fn resolve(
    resolvers: &[Option<Resolver>],
    questions: &Receiver<(usize, IpAddr)>,
    answers: &Sender<Answer>,
    bell: &OwnedFd,
) {
    for (engine, address) in questions {
        let resolver = resolvers.get(engine).and_then(Option::as_ref);
        let mac = resolver.and_then(|resolver| resolver(address));
        if answers.send((engine, address, mac)).is_err() {
            return;
        }
        // An eventfd only refuses a one when it is full, and then it is readable anyway.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}
