//! Control messages of memif 2.0: a parser and a writer, nothing else. No I/O happens here, so that
//! any bytes can be thrown at it.
//!
//! Every message is one 128-byte packet on a `SOCK_SEQPACKET` Unix socket: a 16-bit type, then a
//! packed body; integers are in the machine's own byte order, because both ends share its memory.
//!
//! | type | body: field at offset |
//! |---|---|
//! | 1 ack | - |
//! | 2 hello | name 2 (32 bytes), lowest version 34, highest version 36, highest region index 38, highest M2S ring 40, highest S2M ring 42, ring size log2 max 44 (u8) |
//! | 3 init | version 2, id 4 (u32), mode 8 (u8), secret 9 (24 bytes), name 33 (32 bytes) |
//! | 4 add region | index 2, bytes 4 (u64); with the region's descriptor |
//! | 5 add ring | flags 2, index 4, region 6, offset 8 (u32), size log2 12 (u8), private header bytes 13; with the interrupt's descriptor |
//! | 6 connect, 7 connected | interface name 2 (32 bytes) |
//! | 8 disconnect | code 2 (u32), text 6 (96 bytes) |
//!
//! S2M rings carry frames from the client (formerly "slave") to the server ("master"), M2S rings
//! the other way. The client owns all memory.

use std::fmt;

/// Bytes of every control message.
pub const MESSAGE_BYTES: usize = 128;
/// Version 2.0, the only one spoken.
pub const VERSION: u16 = 0x0200;
/// Bytes of a name, NUL-padded.
pub const NAME_BYTES: usize = 32;
/// Bytes of a secret, NUL-padded.
pub const SECRET_BYTES: usize = 24;
/// Bytes of the text of a disconnect, NUL-padded.
pub const REASON_BYTES: usize = 96;

/// The mode of a link that carries Ethernet frames; the only one spoken.
pub const MODE_ETHERNET: u8 = 0;

const FLAG_S2M: u16 = 1;

/// Text in a field of fixed size, padded with NUL. Whatever a peer puts there is kept as bytes and
/// only shown as text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize>([u8; N]);

impl<const N: usize> Text<N> {
    /// `text`, cut to fit. One NUL always remains at the end, which C peers rely on.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; N];
        let length = text.len().min(N - 1);
        bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
        Self(bytes)
    }

    /// The bytes before the first NUL.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let length = self.0.iter().position(|&byte| byte == 0).unwrap_or(N);
        &self.0[..length]
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    /// Shows printable ASCII; everything else is escaped, so that a peer cannot forge log lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl<const N: usize> Default for Text<N> {
    /// No text.
    fn default() -> Self {
        Self([0; N])
    }
}

/// What a server offers, its first word to whoever connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The server's program and version.
    pub name: Text<NAME_BYTES>,
    /// Lowest version spoken.
    pub version_min: u16,
    /// Highest version spoken.
    pub version_max: u16,
    /// Highest region index accepted.
    pub region_max: u16,
    /// Highest index of an M2S ring accepted: one less than their number.
    pub m2s_ring_max: u16,
    /// Highest index of an S2M ring accepted.
    pub s2m_ring_max: u16,
    /// Largest ring accepted, as a power of two.
    pub ring_size_log2_max: u8,
}

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Init {
    /// The version chosen.
    pub version: u16,
    /// Which of the server's interfaces is meant.
    pub id: u32,
    /// What the frames are; see [`MODE_ETHERNET`].
    pub mode: u8,
    /// The shared secret, empty for none.
    pub secret: Text<SECRET_BYTES>,
    /// The client's program and version.
    pub name: Text<NAME_BYTES>,
}

impl fmt::Debug for Init {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Init")
            .field("version", &self.version)
            .field("id", &self.id)
            .field("mode", &self.mode)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Which way a ring carries frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    S2m,
    /// From the server to the client.
    M2s,
}

/// Where a ring lies. Comes with the descriptor of its interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddRing {
    /// Which way frames go.
    pub direction: Direction,
    /// Which ring of this direction.
    pub index: u16,
    /// The region it lies in.
    pub region: u16,
    /// Where in the region its header starts.
    pub offset: u32,
    /// Descriptors, as a power of two.
    pub size_log2: u8,
    /// Bytes of private metadata in front of each frame.
    pub private_header_bytes: u16,
}

/// A control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The last message was taken.
    Ack,
    /// See [`Hello`].
    Hello(Hello),
    /// See [`Init`].
    Init(Init),
    /// A memory region; comes with its descriptor.
    AddRegion {
        /// Regions are numbered from 0 without gaps.
        index: u16,
        /// Size in bytes.
        bytes: u64,
    },
    /// See [`AddRing`].
    AddRing(AddRing),
    /// All regions and rings have been announced.
    Connect {
        /// The client's name for its interface.
        interface: Text<NAME_BYTES>,
    },
    /// The server has accepted them.
    Connected {
        /// The server's name for its interface.
        interface: Text<NAME_BYTES>,
    },
    /// The sender leaves.
    Disconnect {
        /// Zero so far in every implementation.
        code: u32,
        /// Why.
        reason: Text<REASON_BYTES>,
    },
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not [`MESSAGE_BYTES`] long.
    #[error("control message of {0} bytes instead of 128")]
    Length(usize),
    /// A type that memif 2.0 does not have.
    #[error("unknown control message type {0}")]
    Type(u16),
}

/// Reads a control message. Values are not judged here, only the format; the handshake does that.
///
/// # Errors
/// If the length or the type is wrong.
pub fn parse(bytes: &[u8]) -> Result<Message, ParseError> {
    let packet: &[u8; MESSAGE_BYTES] =
        bytes.try_into().map_err(|_| ParseError::Length(bytes.len()))?;
    let reader = Reader(packet);
    Ok(match reader.u16(0) {
        1 => Message::Ack,
        2 => Message::Hello(Hello {
            name: reader.text(2),
            version_min: reader.u16(34),
            version_max: reader.u16(36),
            region_max: reader.u16(38),
            m2s_ring_max: reader.u16(40),
            s2m_ring_max: reader.u16(42),
            ring_size_log2_max: reader.u8(44),
        }),
        3 => Message::Init(Init {
            version: reader.u16(2),
            id: reader.u32(4),
            mode: reader.u8(8),
            secret: reader.text(9),
            name: reader.text(33),
        }),
        4 => Message::AddRegion { index: reader.u16(2), bytes: reader.u64(4) },
        5 => Message::AddRing(AddRing {
            direction: if reader.u16(2) & FLAG_S2M != 0 { Direction::S2m } else { Direction::M2s },
            index: reader.u16(4),
            region: reader.u16(6),
            offset: reader.u32(8),
            size_log2: reader.u8(12),
            private_header_bytes: reader.u16(13),
        }),
        6 => Message::Connect { interface: reader.text(2) },
        7 => Message::Connected { interface: reader.text(2) },
        8 => Message::Disconnect { code: reader.u32(2), reason: reader.text(6) },
        other => return Err(ParseError::Type(other)),
    })
}

impl Message {
    /// Writes the message in its 128-byte form.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; MESSAGE_BYTES] {
        let mut writer = Writer([0; MESSAGE_BYTES]);
        match self {
            Self::Ack => writer.put(0, 1u16.to_ne_bytes()),
            Self::Hello(hello) => writer.hello(hello),
            Self::Init(init) => writer.init(init),
            Self::AddRegion { index, bytes } => {
                writer.put(0, 4u16.to_ne_bytes());
                writer.put(2, index.to_ne_bytes());
                writer.put(4, bytes.to_ne_bytes());
            }
            Self::AddRing(ring) => writer.add_ring(ring),
            Self::Connect { interface } => {
                writer.put(0, 6u16.to_ne_bytes());
                writer.put(2, interface.0);
            }
            Self::Connected { interface } => {
                writer.put(0, 7u16.to_ne_bytes());
                writer.put(2, interface.0);
            }
            Self::Disconnect { code, reason } => {
                writer.put(0, 8u16.to_ne_bytes());
                writer.put(2, code.to_ne_bytes());
                writer.put(6, reason.0);
            }
        }
        writer.0
    }
}

/// Reads fields at constant offsets, all below [`MESSAGE_BYTES`].
struct Reader<'a>(&'a [u8; MESSAGE_BYTES]);

impl Reader<'_> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[at..at + N]);
        bytes
    }

    fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.array(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }

    fn text<const N: usize>(&self, at: usize) -> Text<N> {
        Text(self.array(at))
    }
}

struct Writer([u8; MESSAGE_BYTES]);

impl Writer {
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        self.0[at..at + N].copy_from_slice(&bytes);
    }

    fn hello(&mut self, hello: &Hello) {
        self.put(0, 2u16.to_ne_bytes());
        self.put(2, hello.name.0);
        self.put(34, hello.version_min.to_ne_bytes());
        self.put(36, hello.version_max.to_ne_bytes());
        self.put(38, hello.region_max.to_ne_bytes());
        self.put(40, hello.m2s_ring_max.to_ne_bytes());
        self.put(42, hello.s2m_ring_max.to_ne_bytes());
        self.put(44, [hello.ring_size_log2_max]);
    }

    fn init(&mut self, init: &Init) {
        self.put(0, 3u16.to_ne_bytes());
        self.put(2, init.version.to_ne_bytes());
        self.put(4, init.id.to_ne_bytes());
        self.put(8, [init.mode]);
        self.put(9, init.secret.0);
        self.put(33, init.name.0);
    }

    fn add_ring(&mut self, ring: &AddRing) {
        let flags = if ring.direction == Direction::S2m { FLAG_S2M } else { 0 };
        self.put(0, 5u16.to_ne_bytes());
        self.put(2, flags.to_ne_bytes());
        self.put(4, ring.index.to_ne_bytes());
        self.put(6, ring.region.to_ne_bytes());
        self.put(8, ring.offset.to_ne_bytes());
        self.put(12, [ring.size_log2]);
        self.put(13, ring.private_header_bytes.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests;
