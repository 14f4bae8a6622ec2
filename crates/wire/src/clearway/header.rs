//! The header of every Clearway packet, and its CRC.
//!
//! ```text
//!  0       1       2       3       4       5       6       7
//! +-------+-------+---------------+-------------------------------+
//! |version| type  |     flags     |            crc32c             |
//! +-------+-------+---------------+-------------------------------+
//! |                             flow                              |
//! +---------------------------------------------------------------+
//! |                            number                             |
//! +---------------------------------------------------------------+
//! ```

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

use super::{Frames, HEADER_LENGTH, VERSION, VERSION_NEGOTIATION};
use crate::Malformed;
use crate::bytes::{head_mut, put, u16_at, u32_at, u64_at};

const FLAGS_AT: usize = 2;
const CRC_AT: usize = 4;
const FLOW_AT: usize = 8;
const NUMBER_AT: usize = 16;

const ACK_REQUESTED: u16 = 1 << 0;

/// What counts as short when a CRC is checked: to copy so much costs less than to hash it in
/// pieces.
const SHORT_BYTES_MAX: usize = 256;

#[repr(align(64))]
struct Aligned([u8; SHORT_BYTES_MAX]);

/// The bytes of a packet: the whole UDP payload. The layout of the header is the same in every
/// version of the protocol, so these accessors can be trusted before the version is known.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    head: &'a [u8; HEADER_LENGTH],
    body: &'a [u8],
}

impl<'a> Packet<'a> {
    /// A view of `payload`, if it is long enough to have a header.
    #[inline]
    pub fn new(payload: &'a [u8]) -> Result<Self, Malformed> {
        let (head, body) = payload.split_first_chunk().ok_or(Malformed::Truncated)?;
        Ok(Self { head, body })
    }

    /// The version octet.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u8 {
        self.head[0]
    }

    /// The type octet.
    #[inline]
    #[must_use]
    pub fn type_octet(&self) -> u8 {
        self.head[1]
    }

    /// The flags.
    #[inline]
    #[must_use]
    pub fn flags(&self) -> u16 {
        u16_at(self.head, FLAGS_AT)
    }

    /// The CRC that the packet carries.
    #[inline]
    #[must_use]
    pub fn crc(&self) -> u32 {
        u32_at(self.head, CRC_AT)
    }

    /// The flow id of the packet's receiver.
    #[inline]
    #[must_use]
    pub fn flow(&self) -> u64 {
        u64_at(self.head, FLOW_AT)
    }

    /// The packet number or token.
    #[inline]
    #[must_use]
    pub fn number(&self) -> u64 {
        u64_at(self.head, NUMBER_AT)
    }

    /// What follows the header.
    #[inline]
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The frames of a data packet.
    #[inline]
    #[must_use]
    pub fn frames(&self) -> Frames<'a> {
        Frames::new(self.body)
    }

    /// The length of the packet.
    #[inline]
    #[must_use]
    pub fn length(&self) -> usize {
        HEADER_LENGTH + self.body.len()
    }

    /// True if the CRC matches the bytes.
    #[inline]
    #[must_use]
    pub fn crc_is_right(&self) -> bool {
        self.crc() == crc_of(self.head, self.body)
    }
}

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// Frames of an open flow.
    Data = 0,
    /// "I would like to connect."
    Syn = 1,
    /// "Show me that you receive at your address: send this cookie back."
    Challenge = 2,
    /// "Connected."
    SynAck = 3,
    /// "I do not know this flow."
    Reset = 4,
    /// "I speak only these versions."
    Version = 5,
    /// "Are you there?"
    Ping = 6,
    /// "Yes."
    Pong = 7,
}

impl PacketType {
    #[inline]
    fn from_octet(octet: u8) -> Result<Self, Malformed> {
        Ok(match octet {
            0 => Self::Data,
            1 => Self::Syn,
            2 => Self::Challenge,
            3 => Self::SynAck,
            4 => Self::Reset,
            5 => Self::Version,
            6 => Self::Ping,
            7 => Self::Pong,
            _ => return Err(Malformed::Type),
        })
    }

    /// The version octet that goes with this type.
    #[inline]
    const fn version(self) -> u8 {
        if matches!(self, Self::Version) { VERSION_NEGOTIATION } else { VERSION }
    }
}

/// The header of a packet of version 1, or of version negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// What the body is.
    pub packet_type: PacketType,
    /// The sender wants an acknowledgement at once. Data packets only.
    pub ack_requested: bool,
    /// The flow id that the receiver of this packet chose; 0 if it has not chosen one yet.
    pub flow: u64,
    /// The packet number of a data packet; else a random token that the answer echoes.
    pub number: u64,
}

impl Header {
    /// The header of a data packet.
    #[inline]
    #[must_use]
    pub const fn data(flow: u64, number: u64, ack_requested: bool) -> Self {
        Self { packet_type: PacketType::Data, ack_requested, flow, number }
    }

    /// The header of a packet of any other type.
    #[inline]
    #[must_use]
    pub const fn control(packet_type: PacketType, flow: u64, token: u64) -> Self {
        Self { packet_type, ack_requested: false, flow, number: token }
    }

    /// Checks the CRC first (bytes that were damaged say nothing), then version and type.
    ///
    /// [`Malformed::Version`] means that the packet is intact but of another version: if
    /// [`Packet::type_octet`] says syn, answer with a version packet.
    #[inline]
    pub fn parse(packet: &Packet<'_>) -> Result<Self, Malformed> {
        if !packet.crc_is_right() {
            return Err(Malformed::Checksum);
        }
        if packet.version() != VERSION && packet.version() != VERSION_NEGOTIATION {
            return Err(Malformed::Version);
        }
        let packet_type = PacketType::from_octet(packet.type_octet())?;
        if packet.version() != packet_type.version() {
            return Err(Malformed::Version);
        }
        Ok(Self {
            packet_type,
            ack_requested: packet_type == PacketType::Data && packet.flags() & ACK_REQUESTED != 0,
            flow: packet.flow(),
            number: packet.number(),
        })
    }

    /// Writes the header with a CRC of zero; [`seal`] fills it in. Returns [`HEADER_LENGTH`].
    ///
    /// # Panics
    /// If `bytes` is shorter than that.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let head: &mut [u8; HEADER_LENGTH] = head_mut(bytes);
        let flags = if self.ack_requested { ACK_REQUESTED } else { 0 };
        head[0] = self.packet_type.version();
        head[1] = self.packet_type as u8;
        put(head, FLAGS_AT, flags.to_be_bytes());
        put(head, CRC_AT, [0; 4]);
        put(head, FLOW_AT, self.flow.to_be_bytes());
        put(head, NUMBER_AT, self.number.to_be_bytes());
        HEADER_LENGTH
    }

    /// The length of the header.
    #[must_use]
    pub const fn length(&self) -> usize {
        HEADER_LENGTH
    }
}

/// Fills in the CRC of `packet`, the whole UDP payload, whatever the CRC field held before.
///
/// # Panics
/// If `packet` is shorter than [`HEADER_LENGTH`].
#[inline]
pub fn seal(packet: &mut [u8]) {
    put(packet, CRC_AT, [0; 4]);
    let crc = crc32_iscsi(packet);
    put(packet, CRC_AT, crc.to_be_bytes());
}

/// CRC32C of the packet with its CRC field as zero. A short packet is copied to make it so, to
/// where it is aligned: its CRC is then one run of whole words. Of a long one only the header is
/// copied, and the body is hashed where it lies.
#[inline]
fn crc_of(head: &[u8; HEADER_LENGTH], body: &[u8]) -> u32 {
    let mut copy = Aligned([0; SHORT_BYTES_MAX]);
    if let Some(place) = copy.0.get_mut(HEADER_LENGTH..HEADER_LENGTH + body.len()) {
        place.copy_from_slice(body);
        put(&mut copy.0, 0, *head);
        put(&mut copy.0, CRC_AT, [0; 4]);
        return crc32_iscsi(&copy.0[..HEADER_LENGTH + body.len()]);
    }
    crc_of_long(head, body)
}

fn crc_of_long(head: &[u8; HEADER_LENGTH], body: &[u8]) -> u32 {
    let mut head = *head;
    put(&mut head, CRC_AT, [0; 4]);
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&head);
    digest.update(body);
    digest.finalize() as u32
}
