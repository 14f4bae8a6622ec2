//! What a memif is to be, and whether that is possible.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use super::link::region_bytes;
use super::message::SECRET_BYTES;
use super::region::REGION_BYTES_TOTAL_MAX;
use super::ring::SIZE_LOG2_MAX;
use crate::{Error, LCD_DESCRIPTORS, MacAddress};

/// Longest path of a Unix socket: `sun_path` less the final NUL.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Smallest and largest value of [`Config::frame_bytes_max`].
const FRAME_BYTES: std::ops::RangeInclusive<usize> = 64..=65_536;
/// Smallest and largest value of [`Config::buffer_bytes`].
const BUFFER_BYTES: std::ops::RangeInclusive<u32> = 64..=65_536;
/// Buffers are of whole cache lines.
const LINE_BYTES: usize = 64;
/// The largest buffer that [`Config::with_frames`] asks for: of a packet of 9000 bytes. All buffers
/// of a ring are used in turn, so with larger ones small frames, too, would go through more memory
/// than caches hold. An odd number of lines, so that nothing is between two of them
/// (`Buffers::stride`).
const BUFFER_BYTES_WHOLE: usize = 9024;
/// Most queue pairs: as many as any implementation takes.
const QUEUE_PAIRS_MAX: u16 = 256;

/// Where the control socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Socket {
    /// A path in the file system.
    Path(PathBuf),
    /// A name in Linux's abstract namespace, which exists only as long as someone listens.
    Abstract(String),
}

impl From<&str> for Socket {
    /// A leading `@` means an abstract name, as in other tools.
    fn from(text: &str) -> Self {
        match text.strip_prefix('@') {
            Some(name) => Self::Abstract(name.into()),
            None => Self::Path(text.into()),
        }
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

/// Which side of the link we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Listens on the socket; formerly "master".
    Server,
    /// Connects to the socket and owns the memory; formerly "slave".
    Client,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Client => "client",
        })
    }
}

/// Connects to a server for a client whose process may not do so itself.
pub trait Connect: fmt::Debug + Send + Sync {
    /// The connection, non-blocking, of type `SOCK_SEQPACKET`. Never waits: an error of kind
    /// `WouldBlock` means that it is on its way, and the client asks again later.
    fn connect(&self) -> io::Result<OwnedFd>;
}

/// Hears of what users should know, for a log.
pub trait Witness: fmt::Debug + Send + Sync {
    /// A peer was refused, and this is why. Called by a thread of its own; a peer that keeps coming
    /// back is refused many times a second.
    fn refused(&self, reason: &str);
}

/// What a memif is to be.
#[derive(Clone)]
pub struct Config {
    /// Where the control socket is.
    pub socket: Socket,
    /// Which side we are.
    pub role: Role,
    /// Which interface behind the socket; both sides must say the same.
    pub id: u32,
    /// If set, a server demands it and a client shows it. At most 23 bytes, no NUL.
    pub secret: Option<String>,
    /// How many queues to open. The link has as many as the smaller of both sides.
    pub queue_pairs: u16,
    /// Descriptors per ring as a power of two; the client's wins unless the server allows fewer.
    pub ring_size_log2: u8,
    /// Bytes per buffer; the client decides. Larger frames are spread over several buffers.
    pub buffer_bytes: u32,
    /// Our own Ethernet address. memif does not carry it; whoever builds frames does.
    pub mac: MacAddress,
    /// Largest frame that is sent or received, Ethernet header included. The peer is told; what it
    /// is sent is no larger than it says itself.
    pub frame_bytes_max: usize,
    /// Largest frame that is sent to a peer that does not say what it takes; that of
    /// `frame_bytes_max` if `None`.
    pub frame_bytes_unsaid: Option<usize>,
    /// Our name for the interface, shown to the peer; cut after 31 bytes.
    pub name: String,
    /// Who connects to the server, if it is not this process.
    pub connector: Option<Arc<dyn Connect>>,
    /// What a server listens on, if it is not to make that itself ([`super::listen`]).
    pub listening: Option<Arc<OwnedFd>>,
    /// Who hears of refused peers.
    pub witness: Option<Arc<dyn Witness>>,
}

impl fmt::Debug for Config {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("socket", &self.socket)
            .field("role", &self.role)
            .field("id", &self.id)
            .field("queue_pairs", &self.queue_pairs)
            .field("ring_size_log2", &self.ring_size_log2)
            .field("buffer_bytes", &self.buffer_bytes)
            .field("frame_bytes_max", &self.frame_bytes_max)
            .field("frame_bytes_unsaid", &self.frame_bytes_unsaid)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// One queue pair of 256 descriptors with buffers of 2048 bytes, for frames of up to 1518 bytes
    /// (1500 and an Ethernet header with one VLAN tag), with id 0 and no secret.
    #[must_use]
    pub fn new(socket: impl Into<Socket>, role: Role, mac: MacAddress) -> Self {
        Self {
            socket: socket.into(),
            role,
            id: 0,
            secret: None,
            queue_pairs: 1,
            ring_size_log2: LCD_DESCRIPTORS.ilog2() as u8,
            buffer_bytes: 2048,
            mac,
            frame_bytes_max: 1518,
            frame_bytes_unsaid: None,
            name: "clearway0".into(),
            connector: None,
            listening: None,
            witness: None,
        }
    }

    /// The same for frames of up to so many bytes: each in one buffer, or, if it is larger than
    /// 9,024 bytes, in several that are side by side. With so many queue pairs that this
    /// were more memory than a link may have, buffers stay as they are, and frames are copied once
    /// more, the small ones, too.
    #[must_use]
    pub fn with_frames(self, frame_bytes_max: usize) -> Self {
        let as_it_is = Self { frame_bytes_max, ..self };
        let whole = frame_bytes_max.min(BUFFER_BYTES_WHOLE).next_multiple_of(LINE_BYTES) as u32;
        let larger = Self { buffer_bytes: as_it_is.buffer_bytes.max(whole), ..as_it_is.clone() };
        if region_bytes(&larger) > REGION_BYTES_TOTAL_MAX { as_it_is } else { larger }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let invalid = |text: String| Err(Error::Invalid(format!("memif: {text}")));
        if self.queue_pairs == 0 || self.queue_pairs > QUEUE_PAIRS_MAX {
            return invalid(format!("{} queue pairs; choose 1 to 256", self.queue_pairs));
        }
        if self.ring_size_log2 > SIZE_LOG2_MAX {
            return invalid(format!(
                "rings of 2^{} descriptors; choose at most 2^{SIZE_LOG2_MAX}",
                self.ring_size_log2
            ));
        }
        if !BUFFER_BYTES.contains(&self.buffer_bytes) {
            return invalid(format!("buffers of {} bytes; choose 64 to 65536", self.buffer_bytes));
        }
        if !FRAME_BYTES.contains(&self.frame_bytes_max) {
            return invalid(format!(
                "frames of {} bytes; choose 64 to 65536",
                self.frame_bytes_max
            ));
        }
        if (self.buffer_bytes as usize) << self.ring_size_log2 < self.frame_bytes_max {
            return invalid(format!(
                "a ring of {} buffers of {} bytes does not hold a frame of {}; enlarge the ring \
                 or its buffers",
                1u32 << self.ring_size_log2,
                self.buffer_bytes,
                self.frame_bytes_max
            ));
        }
        if region_bytes(self) > REGION_BYTES_TOTAL_MAX {
            return invalid("the rings need more than 1 GiB; choose fewer or smaller ones".into());
        }
        self.check_texts()
    }

    fn check_texts(&self) -> Result<(), Error> {
        if let Some(secret) = &self.secret
            && (secret.is_empty() || secret.len() >= SECRET_BYTES || secret.contains('\0'))
        {
            return Err(Error::Invalid(
                "memif: the secret must have 1 to 23 bytes, none NUL".into(),
            ));
        }
        let length = match &self.socket {
            Socket::Path(path) => path.as_os_str().len(),
            Socket::Abstract(name) => name.len(),
        };
        if length == 0 || length > SOCKET_PATH_BYTES_MAX {
            return Err(Error::Invalid(format!(
                "memif: socket {} has a name of {length} bytes; choose one of 1 to \
                 {SOCKET_PATH_BYTES_MAX}",
                self.socket
            )));
        }
        Ok(())
    }
}
