//! What is saved of an engine, so that another process goes on with it, or the same one.
//!
//! Plain data with a version, and the only place where it becomes bytes. What lives on in
//! descriptors is not in it: queues, and the apps' memory with its doorbells (see
//! [`Remains`](crate::Remains)). Nor is what follows from the rest, or can be found out again.
//!
//! [`Engine::restore`](crate::Engine::restore) trusts nothing of it.

use std::net::{IpAddr, SocketAddr};

pub use clearway_base::state::Invalid;
use clearway_base::{SlotState, SteadyClock, Time};
use clearway_channel::{Completion, DaemonEndState};
use clearway_classify::Filter;
use clearway_nic::MacAddress;
use clearway_transport::{EndpointState, Owner};
use serde::{Deserialize, Serialize};

use crate::channels::{Held, PostState};
use crate::frames::VifTexts;
use crate::host::HostState;
use crate::messages::{ResolvingState, SharedWay};
use crate::operations::{CopyingState, ExchangeState, RegionState};
use crate::tcp::TcpState;

/// The version of [`State`] that this crate writes and reads. Any change of what the state is made
/// of is another version.
pub const STATE_VERSION: u32 = 28;

/// An engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// [`STATE_VERSION`].
    pub version: u32,
    /// Which engine of the host it is.
    pub engine: u32,
    /// The apps.
    pub channels: Vec<ChannelState>,
    /// Channels whose apps are gone and whose connections are being ended.
    pub leaving: Vec<u32>,
    /// Channels whose apps have left in good order, and what they have sent is being delivered.
    pub lingering: Vec<LingeringState>,
    /// The flows, and what waits for neighbours.
    pub messages: MessagesState,
    /// What is known of the host's links.
    pub host: HostState,
    /// Virtual interfaces, and those of the NIC's other engines.
    pub frames: FramesState,
    /// See `frames`.
    pub sibling_vifs: Vec<SiblingVifState>,
    /// TCP ports and their connections.
    pub tcp: TcpState,
    /// Captures, of other engines as well.
    pub captures: Vec<CaptureState>,
    /// Snapshots that were asked for: they are gathered anew.
    pub snapshots: Vec<u64>,
    /// The engine is to end by then.
    pub end_by: Option<Time>,
    /// It has.
    pub has_ended: bool,
    /// There was nothing to do until now.
    pub has_rested: bool,
    /// The link was up.
    pub was_up: bool,
    /// Its time.
    pub clock: SteadyClock,
    /// Turns, and those in which there was something to do.
    pub turns: u64,
    /// See `turns`.
    pub turns_busy: u64,
    /// What the engine has counted, itself and about its apps.
    pub counters: Vec<(String, u64)>,
    /// See `counters`.
    pub app_counters: Vec<(String, u64)>,
}

/// A channel whose app has left in good order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LingeringState {
    /// The channel.
    pub channel: u32,
    /// It goes then at the latest.
    pub until: Time,
    /// Nothing more is taken from its ring, and no connection is open but those of TCP.
    pub is_closing: bool,
    /// The last connection of TCP that was closed: the number of its port, and its place. Those
    /// behind it are still to be closed.
    pub tcp_closed: Option<(u32, u32)>,
}

/// Messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessagesState {
    /// The flows.
    pub endpoint: EndpointState,
    /// What waits for neighbours.
    pub resolving: ResolvingState,
    /// The flows that connections share, by their ids.
    pub shared: Vec<(SharedWay, u64)>,
    /// Which other engine listens on a service port.
    pub listeners_elsewhere: Vec<(u16, u32)>,
}

/// An attached app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChannelState {
    /// The channel.
    pub channel: u32,
    /// The app's name, and its user.
    pub app: String,
    /// See `app`.
    pub user: u32,
    /// The end of its shared memory.
    pub end: DaemonEndState,
    /// How many connections it may have.
    pub connections_max: u32,
    /// Its connections, by slot.
    pub slots: Vec<SlotState<ConnectionState>>,
    /// Completions that the ring has no room for.
    pub pending: Vec<Completion>,
    /// Its listeners: the listener's id, the port, and the address that it is limited to.
    pub ports: Vec<(u32, u16, Option<IpAddr>)>,
    /// The app broke the contract, or is gone.
    pub is_condemned: bool,
    /// The app has left in good order.
    pub has_left: bool,
    /// It takes streams that peers open.
    pub takes_streams: bool,
    /// It is told of messages that peers have dropped.
    pub hears_of_skipped: bool,
    /// It is not looked at until its app rings, which the engine hears.
    pub is_parked: bool,
    /// See `is_parked`.
    pub can_park: bool,
    /// When its app last said or was told something.
    pub busy_at: Time,
    /// Who waits for room in the receive pool.
    pub line: LineState,
    /// Somebody in line is to be told or tried when there is memory, and there may be some.
    pub is_starved: bool,
    /// See `is_starved`.
    pub has_freed: bool,
    /// Messages, for status.
    pub messages_sent: u64,
    /// See `messages_sent`.
    pub messages_received: u64,
    /// What the app shares.
    pub regions: Vec<SlotState<RegionState>>,
    /// Of these it may have so many.
    pub regions_max: u32,
    /// The groups that it shares with, as it writes them.
    pub groups: Vec<Vec<u8>>,
    /// It may ask for operations.
    pub may_ask: bool,
    /// What is being copied for it.
    pub copying: Option<CopyingState>,
    /// The connections that stand in line for that.
    pub to_copy: Vec<u32>,
    /// Buffers that it has posted, those of each connection in their order.
    pub posts: Vec<PostState>,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionState {
    /// The other end.
    pub peer: SocketAddr,
    /// Where its messages go.
    pub bearer: BearerState,
    /// The app's name for its attempt to connect, while that goes on.
    pub connecting: Option<u64>,
    /// The user of the app at its other end, if another engine of the host serves that and has said
    /// so.
    pub peer_user: Option<u32>,
    /// Another host has opened it.
    pub is_accepted: bool,
    /// Its app wants to share a flow.
    pub shares: bool,
    /// The app has closed.
    pub is_closing: bool,
    /// Sends taken, those of them that are finished, and those that the app knows to be.
    pub submitted: u32,
    /// See `submitted`.
    pub sent: u64,
    /// See `submitted`.
    pub sent_told: u32,
    /// It stands among those whose app is to be told.
    pub is_untold: bool,
    /// Messages given to the app.
    pub received: u64,
    /// One-sided operations, if there have been any.
    pub exchange: Option<ExchangeState>,
}

/// Where the messages of a connection go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum BearerState {
    /// The neighbour is being asked for.
    Resolving,
    /// Over the flow with this id, and which stream of it.
    Flow(u64, u32),
    /// To another connection on this host.
    Local {
        /// That one.
        peer: Owner,
        /// Messages that there is no room for yet.
        waiting: Vec<Held>,
        /// Positions that the app has been given and has not released.
        held: u64,
        /// It ends when nothing waits.
        is_closing: bool,
        /// The slot of the connection of which it is a stream.
        parent: Option<u32>,
    },
}

/// Who waits for room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineState {
    /// Slots, with the length of what was turned away, the first first.
    pub waiting: Vec<(u32, u32)>,
    /// Slots of peers that are to be told, and of senders that are to be tried.
    pub to_tell: Vec<u32>,
    /// See `to_tell`.
    pub to_try: Vec<u32>,
    /// So many are tried even if others before them find no room.
    pub sweep_left: u32,
    /// The claim of the first is suspended.
    pub is_suspended: bool,
    /// Since when nothing has changed.
    pub since: Option<Time>,
}

/// Virtual interfaces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FramesState {
    /// All of them.
    pub vifs: Vec<VifState>,
    /// Those that have something to send, by their places among all, the next one first.
    pub senders: Vec<u32>,
}

/// A virtual interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VifState {
    /// Its app's channel, and its id there.
    pub channel: u32,
    /// See `channel`.
    pub vif: u32,
    /// What it receives and may send.
    pub spec: VifSpecState,
    /// How much it may send at once, and since when that has grown, if it has a rate.
    pub rate: Option<(u64, Time)>,
    /// Bursts that were submitted and are not sent.
    pub bursts: Vec<BurstState>,
    /// What it has moved and lost.
    pub counters: Vec<(String, u64)>,
    /// Frames refused, by reason.
    pub refused: Vec<(u8, u64)>,
    /// What its app is told of what it sent, and whether it is yet to be.
    pub report: ReportState,
    /// See `report`.
    pub is_untold: bool,
}

/// What a virtual interface receives and may send.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VifSpecState {
    /// What it owns, gets copies of, and may send.
    pub receive: Vec<FilterState>,
    /// See `receive`.
    pub copies: Vec<FilterState>,
    /// See `receive`.
    pub transmit: Vec<FilterState>,
    /// The higher is asked first.
    pub priority: u16,
    /// Its Ethernet address.
    pub mac: MacAddress,
    /// Frames that it may send per second.
    pub rate_frames_per_s: Option<u32>,
    /// The filters as they were written.
    pub texts: VifTexts,
}

/// A filter: its alternatives as text, which no layout of digests changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterState(Vec<String>);

impl FilterState {
    pub(crate) fn of_all(filters: &[Filter]) -> Vec<Self> {
        let alternatives = |filter: &Filter| {
            let clauses = filter.clauses().iter();
            Self(clauses.map(|clause| Filter::from(*clause).to_string()).collect())
        };
        filters.iter().map(alternatives).collect()
    }

    pub(crate) fn restore_all(saved: &[Self]) -> Result<Vec<Filter>, Invalid> {
        saved.iter().map(Self::restore).collect()
    }

    fn restore(&self) -> Result<Filter, Invalid> {
        let invalid = Invalid("a filter that is none");
        let mut clauses = Vec::new();
        for text in &self.0 {
            let alternative: Filter = text.parse().map_err(|_| invalid)?;
            clauses.extend_from_slice(alternative.clauses());
        }
        Filter::of(clauses).ok_or(invalid)
    }
}

/// What is left of a burst of frames, in the transmit pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BurstState {
    /// Where it begins.
    pub offset: u32,
    /// Its bytes.
    pub length: u32,
    /// Its frames.
    pub frames: u16,
}

/// What has become of the frames that an app sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportState {
    /// Bursts that are over.
    pub bursts: u32,
    /// Frames that left, and those that were refused, the last one for this reason.
    pub sent: u64,
    /// See `sent`.
    pub refused: u64,
    /// See `sent`.
    pub reason: u8,
}

/// A virtual interface of another engine of the NIC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiblingVifState {
    /// Whose it is.
    pub engine: u32,
    /// Its app's channel there, and its id.
    pub channel: u32,
    /// See `channel`.
    pub vif: u32,
    /// What it receives and may send.
    pub spec: VifSpecState,
}

/// A capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureState {
    /// Its app's channel, and its id there.
    pub channel: u32,
    /// See `channel`.
    pub vif: u32,
    /// The engine whose it is, if that is another one.
    pub engine: Option<u32>,
    /// What it wants to see; everything if there is nothing.
    pub filter: Vec<FilterState>,
    /// Whose frames.
    pub app: Option<u32>,
    /// Of which of its connections.
    pub connection: Option<u64>,
    /// Frames shown, and those that there was no room for.
    pub shown: u64,
    /// See `shown`.
    pub dropped: u64,
}

/// Why an engine cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It was saved by a program that makes other states.
    #[error("the state is of version {0}, and this program reads {STATE_VERSION}: start anew")]
    Version(u32),
    /// It is no state.
    #[error("the state cannot be read: {0}")]
    Malformed(#[from] postcard::Error),
    /// It contradicts itself, or what it is to be restored on.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The books do not agree.
    #[error("the state cannot be used: {0}")]
    Books(String),
    /// The system does not give what an engine needs.
    #[error("no engine: {0}")]
    Io(#[from] std::io::Error),
}

impl State {
    /// The state as bytes: the version, then all else.
    ///
    /// # Panics
    /// Never: there is nothing in a state that has no bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("plain data")
    }

    /// The state that these bytes are. The version is looked at before anything else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StateError> {
        let (version, _) = postcard::take_from_bytes::<u32>(bytes)?;
        if version != STATE_VERSION {
            return Err(StateError::Version(version));
        }
        Ok(postcard::from_bytes(bytes)?)
    }
}
