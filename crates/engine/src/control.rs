//! How the control plane talks to an engine: a mailbox of depth one in, events out. Neither side
//! ever waits for the other inside an engine's turn (Snap, section 2.3).

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use clearway_channel::{Code, DaemonEnd, Violation};
use clearway_nic::{Bell, MacAddress, Queue};
use clearway_transport::Undelivered;
use crossbeam_queue::ArrayQueue;

use crate::captures::CaptureSpec;
use crate::frames::VifSpec;
use crate::host::OtherNic;
use crate::ip;
use crate::lanes::{Door, Ends};
use crate::operations::REGIONS_MAX;
use crate::snapshot::Snapshot;
use crate::switch::VifRefused;
use crate::tcp::TcpPortSpec;

/// Events that may wait for the control plane; one that does not fit waits inside the engine.
const EVENTS_MAX: usize = 64;

/// What the control plane lets an app have and do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Connections at a time.
    pub connections_max: u32,
    /// Regions of its memory that it may share at a time.
    pub regions_max: u32,
    /// It may ask for one-sided operations.
    pub may_ask: bool,
}

impl Allowance {
    /// So many connections, and of operations what anybody may.
    #[must_use]
    pub const fn of_connections(connections_max: u32) -> Self {
        Self { connections_max, regions_max: REGIONS_MAX, may_ask: true }
    }
}

/// What the control plane asks of an engine. Executed by the engine between two turns.
#[derive(Debug)]
pub enum Request {
    /// Serve this channel. The control plane chose the id, unique in this engine.
    AddChannel {
        /// The id by which both sides name the channel from now on.
        channel: u32,
        /// The app's name, for status.
        app: String,
        /// Whose the app is: what there is a limited number of is shared among users.
        user: u32,
        /// The daemon's end; the engine owns it until [`Event::ChannelRemoved`].
        end: Box<DaemonEnd>,
        /// What the app may have and do.
        allowance: Allowance,
    },
    /// The app is gone or is to go: reset its connections and give the channel back.
    RemoveChannel {
        /// The channel.
        channel: u32,
    },
    /// The app has ended in good order: deliver what it has sent, close its connections, and give
    /// the channel back when that is done, or reset what is left after so long.
    LetLinger {
        /// The channel.
        channel: u32,
        /// How long at most.
        linger_ns: u64,
    },
    /// Give an app another memory that it can share. Answered by [`Event::MemoryAdded`].
    AddMemory {
        /// The channel.
        channel: u32,
        /// The memory's number, chosen by the control plane: larger than those before it.
        memory: u64,
        /// The memory, of which no page can be missing.
        shared: clearway_channel::Shared,
    },
    /// Take a memory from an app, unless it shares a part of it. Answered by
    /// [`Event::MemoryRemoved`].
    RemoveMemory {
        /// The channel.
        channel: u32,
        /// The memory.
        memory: u64,
    },
    /// Accept connections to `port` for this channel. Answered by [`Event::Listening`].
    Listen {
        /// The channel that will get the connections.
        channel: u32,
        /// The listener's id, chosen by the control plane, unique in this channel.
        listener: u32,
        /// Only connections to this address of the host; any if `None`.
        address: Option<IpAddr>,
        /// The service port.
        port: u16,
    },
    /// Stop accepting. Connections that were accepted live on.
    Unlisten {
        /// The channel.
        channel: u32,
        /// The listener.
        listener: u32,
    },
    /// Open a virtual interface. Answered by [`Event::VifOpened`].
    OpenVif {
        /// The channel that its frames go to.
        channel: u32,
        /// Its id, chosen by the control plane, unique in this channel.
        vif: u32,
        /// What it may receive and send.
        spec: Box<VifSpec>,
    },
    /// Give an app a TCP port. Answered by [`Event::VifOpened`]; closed as an interface is.
    OpenTcpPort {
        /// The channel of its app.
        channel: u32,
        /// Its number, from the same numbers as those of virtual interfaces.
        number: u32,
        /// The port.
        spec: Box<TcpPortSpec>,
    },
    /// Copy what passes to this channel. Answered by [`Event::VifOpened`].
    OpenCapture {
        /// The channel that the frames go to.
        channel: u32,
        /// Its id, from the same numbers as those of virtual interfaces.
        vif: u32,
        /// What is to be seen.
        spec: Box<CaptureSpec>,
    },
    /// Take note of a virtual interface that another engine of the NIC serves, so that its frames
    /// find it. Answered by [`Event::VifOpened`].
    NoteVif {
        /// The index of that engine among the host's.
        engine: usize,
        /// Its channel there.
        channel: u32,
        /// Its id.
        vif: u32,
        /// What it may receive and send.
        spec: Box<VifSpec>,
    },
    /// Take note of a TCP port that an app at another engine has, and shares or has on this
    /// engine's NIC as well, so that its segments find it. Answered by [`Event::VifOpened`]; closed
    /// as an interface is.
    NoteTcpPort {
        /// The index of that engine among the host's.
        engine: usize,
        /// Its channel there.
        channel: u32,
        /// Its number.
        number: u32,
        /// The port.
        spec: Box<TcpPortSpec>,
    },
    /// Show a capture of another engine of the NIC what passes here. Answered by
    /// [`Event::VifOpened`].
    NoteCapture {
        /// The index of that engine among the host's.
        engine: usize,
        /// Its channel there.
        channel: u32,
        /// Its id.
        vif: u32,
        /// What is to be seen.
        spec: Box<CaptureSpec>,
    },
    /// Take note of who listens on a port: another engine of the host, or no longer. Answered by
    /// [`Event::ListenerNoted`].
    NoteListener {
        /// Comes back in the answer.
        id: u64,
        /// The service port.
        port: u16,
        /// Its index among the host's; `None`: nobody elsewhere any more.
        engine: Option<usize>,
    },
    /// Close a virtual interface or a capture, of this engine or of another that it has taken note
    /// of. What it has submitted and is not sent is dropped. Answered by [`Event::VifClosed`].
    CloseVif {
        /// The channel.
        channel: u32,
        /// The virtual interface or capture.
        vif: u32,
        /// If it was not the app that wanted this: why, which the app is told.
        told: Option<Code>,
    },
    /// The addresses, routes or MTU of the engine's NIC have changed. Its Ethernet address, its
    /// VLAN and whether the kernel shares it are as they were.
    Network(Box<ip::Config>),
    /// Serve these queues from now on, instead of those so far, with this network behind them.
    /// Answered by [`Event::Unplugged`].
    Plug {
        /// The queues.
        plug: Box<Plug>,
        /// The network.
        network: Box<ip::Config>,
    },
    /// Engines of another NIC come to the host ([`crate::Engine::join`]). Answered by
    /// [`Event::Met`].
    Meet(Box<Newcomers>),
    /// Those of a NIC that other engines of the host serve.
    NetworkElsewhere {
        /// The index of that NIC among the host's.
        nic: usize,
        /// The network there.
        network: Box<ip::Config>,
    },
    /// The kernel's answer to [`Event::Resolve`].
    Neighbour {
        /// The index of the NIC on whose link it is, if that is not the engine's own.
        nic: Option<usize>,
        /// The address that was asked for.
        address: IpAddr,
        /// Its Ethernet address; `None` if it does not answer.
        mac: Option<MacAddress>,
    },
    /// Send a Clearway ping. Answered by [`Event::Pong`].
    Ping {
        /// Chosen by the control plane; comes back in the answer.
        id: u64,
        /// The peer.
        peer: IpAddr,
        /// The port of its daemon, if that is to be another than this one's.
        udp_port: Option<u16>,
        /// Bytes of UDP payload, at least 24.
        bytes: u16,
    },
    /// Tell the state. Answered by [`Event::Snapshot`].
    Snapshot {
        /// Comes back in the answer.
        id: u64,
    },
    /// Mark all channels closed, reset all connections, and end: when the resets have left, or two
    /// seconds later.
    Shutdown,
}

/// The queues of one engine.
pub struct Plug {
    /// The first sends.
    pub queues: Vec<Box<dyn Queue>>,
    /// Where copies come of what goes to others.
    pub copies: Option<Box<dyn Queue>>,
}

impl std::fmt::Debug for Plug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plug").field("queues", &self.queues.len()).finish_non_exhaustive()
    }
}

/// The engines of a NIC that comes to a host later, as one of those before them sees them.
#[derive(Debug)]
pub struct Newcomers {
    pub(crate) ends: Ends,
    pub(crate) nic: OtherNic,
}

/// Why a ping has no answer, and will have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PingFailure {
    /// There is no route to its host.
    NoRoute,
    /// Its host, or the gateway to it, is on a link of this host, and does not say its Ethernet
    /// address.
    NoNeighbour,
    /// No packet on the way to it is that large.
    TooLarge {
        /// The largest, in bytes of UDP payload.
        limit: u16,
    },
    /// Somebody on its way has sent it back.
    Undelivered(Undelivered),
}

impl From<Undelivered> for PingFailure {
    fn from(undelivered: Undelivered) -> Self {
        Self::Undelivered(undelivered)
    }
}

/// What an engine tells the control plane.
#[derive(Debug)]
pub enum Event {
    /// The answer to [`Request::Listen`].
    Listening {
        /// The channel.
        channel: u32,
        /// The listener.
        listener: u32,
        /// The reason of a refusal.
        result: Result<(), Code>,
    },
    /// The answer to [`Request::NoteListener`].
    ListenerNoted {
        /// The id of the request.
        id: u64,
    },
    /// The answer to [`Request::OpenVif`], [`Request::OpenTcpPort`], [`Request::OpenCapture`],
    /// [`Request::NoteVif`], [`Request::NoteTcpPort`] and [`Request::NoteCapture`].
    VifOpened {
        /// The channel.
        channel: u32,
        /// The virtual interface or capture.
        vif: u32,
        /// Why it was not opened.
        result: Result<(), VifRefused>,
    },
    /// The answer to [`Request::CloseVif`]. From now on nothing comes to it, and it sends nothing.
    VifClosed {
        /// The channel.
        channel: u32,
        /// The virtual interface or capture.
        vif: u32,
    },
    /// The channel is out of the engine; dropping `end` unmaps its memory.
    ChannelRemoved {
        /// The channel.
        channel: u32,
        /// The daemon's end.
        end: Box<DaemonEnd>,
    },
    /// The answer to [`Request::AddMemory`].
    MemoryAdded {
        /// The channel.
        channel: u32,
        /// The memory.
        memory: u64,
        /// What the channel has no place for; whoever drops it unmaps it.
        refused: Option<clearway_channel::Shared>,
    },
    /// The answer to [`Request::RemoveMemory`].
    MemoryRemoved {
        /// The channel.
        channel: u32,
        /// The memory.
        memory: u64,
        /// What the engine does not use any more; whoever drops it unmaps it. `None` if it still
        /// does, or there is no such memory.
        removed: Option<clearway_channel::Shared>,
    },
    /// The app broke the contract. The engine has stopped serving the channel; the control plane
    /// ends the session and posts [`Request::RemoveChannel`].
    Violation {
        /// The channel.
        channel: u32,
        /// What was wrong.
        violation: Violation,
    },
    /// The engine needs the Ethernet address of this neighbour from the kernel.
    Resolve {
        /// The index of the NIC on whose link the neighbour is, if that is not the engine's own.
        nic: Option<usize>,
        /// The neighbour.
        address: IpAddr,
    },
    /// Another host on the link uses an address of this one.
    AddressConflict(ip::Conflict),
    /// The answer to [`Request::Ping`].
    Pong {
        /// The id of the request.
        id: u64,
        /// Round-trip time in ns, or why there is none.
        result: Result<u64, PingFailure>,
    },
    /// The answer to [`Request::Plug`]: the queues so far, to be closed by who has time for that.
    Unplugged(Box<Plug>),
    /// The answer to [`Request::Meet`]. When all have given it, those that come may run.
    Met,
    /// The answer to [`Request::Snapshot`].
    Snapshot {
        /// The id of the request.
        id: u64,
        /// The state.
        snapshot: Box<Snapshot>,
    },
    /// The engine has ended after [`Request::Shutdown`].
    Ended,
}

/// A peer for [`crate::Engine`] in the control plane. One per engine.
#[derive(Debug)]
pub struct Control {
    shared: Arc<Shared>,
    /// Where other engines tell the engine that something has come.
    pub(crate) door: Arc<Door>,
}

#[derive(Debug)]
struct Shared {
    requests: ArrayQueue<Request>,
    events: ArrayQueue<Event>,
    /// Readable when a request waits.
    request_bell: Bell,
    /// Readable when an event waits, or the mailbox has become free.
    event_bell: Bell,
}

/// The engine's side of [`Control`].
#[derive(Debug)]
pub(crate) struct Mailbox {
    shared: Arc<Shared>,
    /// Events that did not fit; empty but for a control plane that has stopped.
    waiting: std::collections::VecDeque<Event>,
}

/// Makes the two ends of a mailbox.
pub(crate) fn mailbox(door: &Arc<Door>) -> std::io::Result<(Control, Mailbox)> {
    let shared = Arc::new(Shared {
        requests: ArrayQueue::new(1),
        events: ArrayQueue::new(EVENTS_MAX),
        request_bell: Bell::new()?,
        event_bell: Bell::new()?,
    });
    let mailbox = Mailbox { shared: Arc::clone(&shared), waiting: Default::default() };
    Ok((Control { shared, door: Arc::clone(door) }, mailbox))
}

impl Control {
    /// Posts a request. Gives it back if the last one has not been taken yet: wait for
    /// [`Control::as_fd`] to become readable, take the events, and try again.
    pub fn post(&self, request: Request) -> Result<(), Request> {
        self.shared.requests.push(request)?;
        self.shared.request_bell.ring();
        Ok(())
    }

    /// The oldest event, if any.
    pub fn next_event(&self) -> Option<Event> {
        self.shared.events.pop()
    }

    /// Consumes the wake-up of [`Control::as_fd`]. Call it before taking the events.
    pub fn acknowledge(&self) {
        self.shared.event_bell.silence();
    }
}

impl AsFd for Control {
    /// Readable when events wait or the mailbox has become free.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event_bell.as_fd()
    }
}

impl Mailbox {
    /// Takes the request, if there is one, and tells the control plane that the box is free.
    pub(crate) fn take(&mut self) -> Option<Request> {
        if self.shared.requests.is_empty() {
            return None;
        }
        let request = self.shared.requests.pop();
        self.shared.event_bell.ring();
        request
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shared.requests.is_empty()
    }

    /// True if events wait for room. The control plane does not ring when it has made some.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Tells the control plane. Never waits, never loses.
    pub(crate) fn tell(&mut self, event: Event) {
        self.waiting.push_back(event);
        self.flush();
    }

    /// Hands over events that waited for room.
    pub(crate) fn flush(&mut self) {
        let mut told = false;
        while let Some(event) = self.waiting.pop_front() {
            if let Err(event) = self.shared.events.push(event) {
                self.waiting.push_front(event);
                break;
            }
            told = true;
        }
        if told {
            self.shared.event_bell.ring();
        }
    }

    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.shared.request_bell.as_fd()
    }

    pub(crate) fn silence(&self) {
        self.shared.request_bell.silence();
    }
}
