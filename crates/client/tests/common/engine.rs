//! An engine in the app's own thread that does nothing by itself: the test has its end of the
//! channel, and sees what it is asked for. It gives any TCP port.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use clearway_channel::control::{Empty, Reply, Request, TcpPortOpened};
use clearway_channel::{AppEnd, Command, Completion, DaemonEnd};
use clearway_client::{Channel, Embedded, Error, Options, Sizes};

/// The test's side of it.
#[derive(Clone)]
pub(crate) struct Engine(Arc<Mutex<There>>);

struct There {
    end: Box<DaemonEnd>,
    asked: Vec<Request>,
    /// For how long it was to sleep, at most.
    naps: Vec<Option<Duration>>,
    ports: u32,
}

impl Engine {
    /// A channel that it serves, with rings of 16 entries.
    pub(crate) fn start() -> (Channel, Self) {
        let sizes = Sizes {
            submission_entries: 16,
            completion_entries: 16,
            transmit_pool_bytes: 1 << 20,
            receive_pool_bytes: 1 << 16,
            shared_bytes: 0,
        };
        let (mut end, handover) = DaemonEnd::create(sizes).unwrap();
        end.share_thread();
        let app_end = AppEnd::open(handover, sizes).unwrap();
        let (end, asked, naps, ports) = (Box::new(end), Vec::new(), Vec::new(), 0);
        let engine = Self(Arc::new(Mutex::new(There { end, asked, naps, ports })));
        let options = Options { linger: Duration::ZERO, ..Options::new("test") };
        let channel = Channel::embed(app_end, "test/0", Box::new(engine.clone()), &options);
        (channel.unwrap(), engine)
    }

    fn there(&self) -> MutexGuard<'_, There> {
        self.0.lock().unwrap()
    }

    pub(crate) fn tell(&self, completion: &Completion) {
        self.there().end.complete(completion);
    }

    /// Takes what was submitted.
    pub(crate) fn commands(&self) -> Vec<Command> {
        let mut there = self.there();
        std::iter::from_fn(|| there.end.next_command().expect("the library is honest")).collect()
    }

    /// What it was asked for since the last look.
    pub(crate) fn asked(&self) -> Vec<Request> {
        std::mem::take(&mut self.there().asked)
    }

    pub(crate) fn naps(&self) -> Vec<Option<Duration>> {
        std::mem::take(&mut self.there().naps)
    }
}

impl Embedded for Engine {
    fn turn(&mut self) -> bool {
        false
    }

    fn send(&mut self) {}

    fn sleep(&mut self, at_most: Option<Duration>) {
        self.there().naps.push(at_most);
        std::thread::sleep(Duration::from_micros(100));
    }

    fn request(&mut self, request: &Request) -> Result<Reply, Error> {
        let mut there = self.there();
        there.asked.push(request.clone());
        Ok(match request {
            Request::OpenTcpPort(open) => {
                there.ports += 1;
                let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), open.port);
                Reply::TcpPortOpened(TcpPortOpened { number: there.ports, address })
            }
            Request::CloseVif(_) => Reply::VifClosed(Empty {}),
            other => panic!("{other:?}"),
        })
    }

    fn check(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
