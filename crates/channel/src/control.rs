//! The control socket: what an app (or the `clearway` command) and the daemon say to each other
//! outside of the rings.
//!
//! A Unix socket of type `SOCK_SEQPACKET`; one JSON object per packet; a reply for each request, in
//! order (only `status` may be answered in several packets). `attached` carries three descriptors:
//! memory, the daemon's doorbell, the app's doorbell. The app maps the memory, seals it, and says
//! `mapped`; an engine serves the channel from then on. `bring_memory` carries a socket, by which
//! the app sends a memfd of its own. Nothing else carries descriptors, and a daemon ends a
//! connection on which an app sends one. One channel per connection, and the end of
//! the connection is the end of the session: that is how each side learns of the other's death.
//!
//! Parsing is a pure function of the bytes ([`Request::parse`], [`Reply::parse`]); moving packets
//! is [`send`], [`receive`] and [`receive_bare`].

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use serde::de::{IntoDeserializer, value};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::layout::PAGE_BYTES;
use crate::{Code, Sizes, Understood, Versions};

mod path;
mod socket;
mod vif;
pub use path::{client_path, daemon_path};
pub use socket::{Packet, receive, receive_bare, send};
pub use vif::{
    BadAddress, CloseVif, FILTER_BYTES_MAX, FILTERS_MAX, InterfaceAddress, Mac, MacChoice,
    OpenCapture, OpenTcpPort, OpenVif, PEER_PREFIXES_MAX, TcpPortOpened, VifOpened,
};

/// The ports of listeners that do not care which (RFC 6335, section 6: "the Dynamic Ports, also
/// known as the Private or Ephemeral Ports, from 49152-65535").
pub const DYNAMIC_PORTS: RangeInclusive<u16> = 49152..=u16::MAX;

/// The largest packet, in bytes.
pub const PACKET_BYTES_MAX: usize = 64 * 1024;
/// The largest [`StatusPart`], in bytes of its text. In a packet, each `"` and `\\` of it takes
/// two; there is nothing else in it that has to be escaped.
pub const STATUS_PART_BYTES_MAX: usize = (PACKET_BYTES_MAX - 64) / 2;
/// The longest name of an app, in bytes.
pub const APP_NAME_BYTES_MAX: usize = 64;
/// The longest name of an engine, in bytes: that of a NIC, and a number.
pub const ENGINE_NAME_BYTES_MAX: usize = 80;
/// The longest name of a kernel's interface, in bytes: `IFNAMSIZ` without the zero at its end.
pub const ZONE_BYTES_MAX: usize = 15;
/// The most bytes of a probe: what a UDP datagram over IPv4 carries.
pub const PING_BYTES_MAX: u16 = 65_507;

/// What an app or the `clearway` command asks for. A field that the daemon does not know is
/// refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Opens a channel. Once per connection.
    Attach(Attach),
    /// The memory of the channel is mapped and sealed. Once, after `attach` and before all that
    /// needs a channel.
    Mapped(Empty),
    /// The app ends, or lets the channel go, in good order. Not answered. After `mapped`.
    Leave(Leave),
    /// Adds memory of the app's own that it can share. After `mapped`.
    AddMemory(AddMemory),
    /// The memory was sent by the socket that came with `bring_memory`.
    MemorySent(Empty),
    /// Takes memory of the app's own back, in which no region is shared any more.
    RemoveMemory(RemoveMemory),
    /// Accepts connections to a port. After `mapped`.
    Listen(Listen),
    /// Stops accepting.
    Unlisten(Unlisten),
    /// Opens a virtual interface. After `mapped`.
    OpenVif(OpenVif),
    /// Takes a TCP port. After `mapped`.
    OpenTcpPort(OpenTcpPort),
    /// Closes a virtual interface, a capture, or a TCP port.
    CloseVif(CloseVif),
    /// Takes a virtual interface, or a capture, away from another app, which is told. For root and
    /// the daemon's own user; needs no `attach`.
    RevokeVif(CloseVif),
    /// Opens an interface that gets copies of what others send and receive. After `mapped`.
    OpenCapture(OpenCapture),
    /// Asks for the state of the daemon. Needs no `attach`.
    Status(Empty),
    /// Measures round trips to a peer's daemon. Needs no `attach`.
    Ping(Ping),
    /// Has the daemon read its configuration again. For root and the daemon's own user; needs no
    /// `attach`.
    Reload(Empty),
}

/// What the daemon answers. Fields that the reader does not know are passed over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    /// The channel; three descriptors come with it.
    Attached(Attached),
    /// An engine serves the channel.
    Mapped(Empty),
    /// The memory is to be sent: a socket comes with it, which takes one packet with a memfd.
    BringMemory(Empty),
    /// The memory can be shared.
    MemoryAdded(MemoryAdded),
    /// The memory is the app's alone.
    MemoryRemoved(Empty),
    /// The port is open.
    Listening(Listening),
    /// The port is closed.
    Unlistened(Empty),
    /// The virtual interface is open.
    VifOpened(VifOpened),
    /// The TCP port is the app's.
    TcpPortOpened(TcpPortOpened),
    /// The virtual interface is closed.
    VifClosed(Empty),
    /// The daemon's state, or the next part of it.
    Status(StatusPart),
    /// The round trips.
    Pong(Pong),
    /// The configuration was read.
    Reloaded(Reloaded),
    /// The request was refused.
    Error(Refusal),
}

/// Opens a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// Which layouts of the memory the app's library understands.
    pub layout: Understood,
    /// The app's name, for people: up to 64 bytes, no control characters.
    pub app: String,
    /// Which engine to attach to: its name or its number in `clearway status`, or the name of a
    /// NIC for any of its engines. The daemon chooses one of its first NIC's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The app wants to share the engine with no other, and is refused if that cannot be.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exclusive: bool,
    /// How large the channel shall be.
    #[serde(serialize_with = "said_to_all_releases")]
    pub sizes: Sizes,
}

/// Apps and daemons of releases that know of no shared memory refuse what they do not know: it is
/// said only where there is some.
fn said_to_all_releases<S: Serializer>(sizes: &Sizes, serializer: S) -> Result<S::Ok, S::Error> {
    let all = [
        ("submission_entries", sizes.submission_entries),
        ("completion_entries", sizes.completion_entries),
        ("transmit_pool_bytes", sizes.transmit_pool_bytes),
        ("receive_pool_bytes", sizes.receive_pool_bytes),
        ("shared_bytes", sizes.shared_bytes),
    ];
    let known = if sizes.shared_bytes == 0 { &all[..4] } else { &all[..] };
    serializer.collect_map(known.iter().copied())
}

/// What is to become of the channel once the connection ends: what the app has sent is delivered,
/// and its peers see an orderly close. Without it the app has died, and its peers see a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leave {
    /// How long that may take; the daemon bounds it.
    pub linger_ms: u32,
}

/// Adds memory of the app's own, a memfd of which the size is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddMemory {
    /// Its size: a multiple of 4096, above 0.
    pub bytes: u64,
}

/// Takes memory of the app's own back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveMemory {
    /// From `memory_added`.
    pub memory: u64,
}

/// Accepts connections to a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listen {
    /// One of the host's addresses; all of them if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The port; 0 lets the daemon choose.
    pub port: u16,
}

/// Stops accepting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unlisten {
    /// From `listening`.
    pub listener: u32,
}

/// Measures round trips. Each probe is answered by a [`Pong`], when it is known what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    /// The host to probe.
    pub peer: IpAddr,
    /// The kernel's interface on whose link it is, by name: what stands behind the `%` of an
    /// address of one link. The daemon chooses a NIC if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The UDP port of its daemon, if that is to be another than this daemon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_port: Option<u16>,
    /// How many probes, at least 1.
    pub count: u32,
    /// Time between probes: up to a minute.
    pub interval_ms: u32,
    /// The next probe is sent as soon as the last is answered, if that is earlier.
    #[serde(default, skip_serializing_if = "is_false")]
    pub eager: bool,
    /// How long an answer may take: up to a minute.
    pub timeout_ms: u32,
    /// Bytes in each probe.
    pub bytes: u16,
}

/// What became of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// It was answered after so many nanoseconds.
    Answered(u64),
    /// It was not, in time.
    Lost,
    /// The host, or the gateway to it, does not say its Ethernet address.
    NoNeighbour,
    /// The host is there, and nobody on it has the UDP port.
    NoPort,
    /// A router says that the host cannot be reached.
    NoWay,
}

/// A request or reply without content: `{}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

/// The channel that was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The daemon's number for the channel, as in `clearway status`.
    pub channel: u32,
    /// The engine it belongs to: its number in `clearway status`.
    pub engine: u32,
    /// That engine's name.
    pub engine_name: String,
    /// How large it is (the daemon may have lowered what was asked).
    #[serde(serialize_with = "said_to_all_releases")]
    pub sizes: Sizes,
    /// What it takes on this machine until a thread runs that slept, in nanoseconds; 0 if nobody
    /// knows, and to an app of the first release, which refuses what it does not know.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wake_up_ns: u64,
}

/// The memory that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryAdded {
    /// Names it in `ShareMemory` and `remove_memory`; never 0.
    pub memory: u64,
}

/// The port that was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Names the listener in `Accepted` and `unlisten`.
    pub listener: u32,
    /// The address and port that it has.
    pub address: SocketAddr,
}

/// A part of the daemon's state. The texts of all parts, one after the other, are the JSON that
/// `clearway status --json` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusPart {
    /// The text.
    pub text: String,
    /// Whether another part follows.
    pub more: bool,
}

/// The answer to a probe, in the order in which that becomes known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    /// Which probe, from 1.
    pub number: u32,
    /// What became of it.
    pub probe: Probe,
    /// No other follows.
    pub last: bool,
}

/// What has become of a configuration that was read again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// What the daemon has taken over, as it is written in the configuration.
    pub taken: Vec<String>,
    /// What stays as it was until the daemon is started again.
    pub needs_restart: Vec<String>,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// For programs. One that the reader does not know is `Mismatch` to it.
    #[serde(deserialize_with = "known")]
    pub code: Code,
    /// For people: cause and remedy.
    pub message: String,
}

/// A packet that is not a message.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// Larger than any message.
    #[error("a control packet has {0} bytes; at most {PACKET_BYTES_MAX} are allowed")]
    TooLarge(usize),
    /// Not the JSON of a message.
    #[error("a control packet is not a known message ({0}); is its sender of another version?")]
    Json(#[from] serde_json::Error),
    /// A field is out of range.
    #[error("{field} of a control message must be {range}")]
    Range {
        /// The field.
        field: &'static str,
        /// What is allowed.
        range: &'static str,
    },
}

impl Request {
    /// Reads a request: any bytes at all.
    pub fn parse(packet: &[u8]) -> Result<Self, ParseError> {
        let request = parse(packet)?;
        match &request {
            Self::Attach(attach) => attach.check()?,
            Self::Ping(ping) => ping.check()?,
            Self::OpenVif(open) => open.check()?,
            Self::OpenCapture(open) => open.check()?,
            Self::OpenTcpPort(open) => open.check()?,
            Self::AddMemory(add) => add.check()?,
            Self::Listen(_)
            | Self::Unlisten(_)
            | Self::Mapped(_)
            | Self::MemorySent(_)
            | Self::RemoveMemory(_)
            | Self::Leave(_)
            | Self::CloseVif(_)
            | Self::RevokeVif(_)
            | Self::Status(_)
            | Self::Reload(_) => {}
        }
        Ok(request)
    }
}

impl Reply {
    /// Reads a reply: any bytes at all.
    pub fn parse(packet: &[u8]) -> Result<Self, ParseError> {
        parse(packet)
    }

    /// A refusal in the words of its code.
    #[must_use]
    pub fn error(code: Code) -> Self {
        Self::error_with(code, code.text())
    }

    /// A refusal in other words.
    pub fn error_with(code: Code, message: impl Into<String>) -> Self {
        Self::Error(Refusal { code, message: message.into() })
    }
}

impl Attach {
    /// A request of this build of the library.
    pub fn new(app: impl Into<String>, engine: Option<String>, sizes: Sizes) -> Self {
        let layout = Understood::Versions(Versions::APP);
        Self { layout, app: app.into(), engine, exclusive: false, sizes }
    }

    fn check(&self) -> Result<(), ParseError> {
        let named = !self.app.is_empty() && self.app.len() <= APP_NAME_BYTES_MAX;
        if !named || self.app.chars().any(char::is_control) {
            return range("app", "1 to 64 bytes without control characters");
        }
        if self.engine.as_ref().is_some_and(|engine| engine.len() > ENGINE_NAME_BYTES_MAX) {
            return range("engine", "at most 80 bytes");
        }
        if matches!(&self.layout, Understood::Hash(hash) if hash.len() > 64) {
            return range("layout", "at most 64 bytes");
        }
        Ok(())
    }
}

impl AddMemory {
    fn check(self) -> Result<(), ParseError> {
        if self.bytes == 0 || !self.bytes.is_multiple_of(PAGE_BYTES as u64) {
            return range("bytes", "a multiple of 4096 above 0");
        }
        Ok(())
    }
}

impl Ping {
    fn check(&self) -> Result<(), ParseError> {
        if self.count == 0 {
            return range("count", "at least 1");
        }
        if self.zone.as_ref().is_some_and(|zone| zone.len() > ZONE_BYTES_MAX) {
            return range("zone", "at most 15 bytes");
        }
        if self.udp_port == Some(0) {
            return range("udp_port", "1 to 65535");
        }
        if self.interval_ms > 60_000 {
            return range("interval_ms", "at most 60000");
        }
        if self.timeout_ms > 60_000 {
            return range("timeout_ms", "at most 60000");
        }
        if self.bytes > PING_BYTES_MAX {
            return range("bytes", "at most 65507");
        }
        Ok(())
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
    let name = String::deserialize(deserializer)?;
    let code: Result<Code, value::Error> = Code::deserialize(name.into_deserializer());
    Ok(code.unwrap_or(Code::Mismatch))
}

fn parse<T: for<'de> Deserialize<'de>>(packet: &[u8]) -> Result<T, ParseError> {
    if packet.len() > PACKET_BYTES_MAX {
        return Err(ParseError::TooLarge(packet.len()));
    }
    Ok(serde_json::from_slice(packet)?)
}

fn range(field: &'static str, range: &'static str) -> Result<(), ParseError> {
    Err(ParseError::Range { field, range })
}

#[cfg(test)]
mod tests;
