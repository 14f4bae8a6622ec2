//! Super-frames to frames, and checksums that somebody left to the last in line.

use clearway_wire::checksum::Sum;
use clearway_wire::tcp::Flags;
use clearway_wire::udp;

use super::layout::{
    FLAGS_AT, HEADERS_MAX, Layout, PACKET_BYTES_MAX, SEQUENCE_AT, TCP_DATA_OFFSET_AT, put,
};
use super::offload::Offload;

/// Where the checksum of SCTP is, which is none of those of the Internet (RFC 9260, section 3).
const SCTP_CHECKSUM_OFFSET: usize = 8;

/// The flags of TCP that share a byte with the length of its header, and what is reserved there.
const TCP_FLAGS_HIGH: u8 = 0x0f;

/// Where the identification of an IPv4 header is.
const IDENTIFICATION_AT: usize = 4;

/// How a super-frame is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    headers: [u8; HEADERS_MAX],
    layout: Layout,
    segment_bytes: usize,
    payload_bytes: usize,
}

impl Cut {
    /// How to cut a frame of `frame_bytes` that begins with `head`, which has all of its headers
    /// at least. `None` if nobody could.
    #[must_use]
    pub fn new(offload: &Offload, head: &[u8], frame_bytes: usize) -> Option<Cut> {
        let layout = Layout::of(head)?;
        let is_right = offload.kind & !Offload::ECN == layout.offload_kind();
        let payload_bytes = frame_bytes.checked_sub(layout.payload_at)?;
        let segment_bytes = usize::from(offload.segment_bytes);
        let fits = layout.packet_bytes(payload_bytes) <= PACKET_BYTES_MAX;
        if !is_right || !fits || segment_bytes == 0 || payload_bytes == 0 {
            return None;
        }
        let mut headers = [0; HEADERS_MAX];
        headers[..layout.payload_at].copy_from_slice(&head[..layout.payload_at]);
        Some(Cut { headers, layout, segment_bytes, payload_bytes })
    }

    /// The same for segments of TCP that were written as one, without an [`Offload`].
    #[must_use]
    pub fn built(frame: &[u8], segment_bytes: usize) -> Option<Cut> {
        let kind = Layout::of(frame).filter(|layout| layout.is_tcp)?.offload_kind();
        let segment_bytes = u16::try_from(segment_bytes).ok()?;
        Cut::new(&Offload { kind, segment_bytes, ..Offload::default() }, frame, frame.len())
    }

    /// How many frames there will be: at least one.
    #[must_use]
    pub const fn frames(&self) -> usize {
        self.payload_bytes.div_ceil(self.segment_bytes)
    }

    /// The bytes of all frames.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.frames() * self.header_bytes() + self.payload_bytes
    }

    /// True for segments of TCP that say nothing but what acknowledges and pushes: then all say the
    /// same.
    #[must_use]
    pub fn is_plain_stream(&self) -> bool {
        let Layout { is_tcp, transport_at, .. } = self.layout;
        let plain = Flags::ACK.union(Flags::PSH).bits() as u8;
        let flags = &self.headers[transport_at + TCP_DATA_OFFSET_AT..];
        is_tcp && flags[0] & TCP_FLAGS_HIGH == 0 && flags[1] & !plain == 0
    }

    /// The headers of each frame.
    #[must_use]
    pub const fn header_bytes(&self) -> usize {
        self.layout.payload_at
    }

    /// The payload of the longest.
    #[must_use]
    pub fn segment_bytes(&self) -> usize {
        self.segment_bytes.min(self.payload_bytes)
    }

    /// Where the payload of one of the frames is in that of the super-frame.
    #[must_use]
    pub fn segment(&self, index: usize) -> std::ops::Range<usize> {
        let start = index * self.segment_bytes;
        start..self.payload_bytes.min(start + self.segment_bytes)
    }

    /// Writes the headers of a frame, behind which its payload already is.
    ///
    /// # Panics
    /// If `frame` is not as long as this frame is.
    pub fn put_headers(&self, index: usize, frame: &mut [u8]) {
        let Layout { is_v4, is_tcp, transport_at, .. } = self.layout;
        let (headers, payload) = frame.split_at_mut(self.header_bytes());
        assert_eq!(payload.len(), self.segment(index).len(), "the payload of another frame");
        headers.copy_from_slice(&self.headers[..self.header_bytes()]);
        self.layout.put_lengths(headers, payload.len());
        self.count_identification(index, headers);
        self.layout.put_ip_checksum(headers);
        if is_tcp {
            self.put_tcp(index, &mut headers[transport_at..]);
        }
        if is_tcp || !is_v4 {
            self.layout.put_checksum(headers, payload);
        } else {
            put(headers, self.layout.checksum_at(), 0);
        }
    }

    /// RFC 6864, section 4.1: "The IPv4 ID field MUST NOT be used for purposes other than
    /// fragmentation and reassembly". Packets that may be fragmented get one number each.
    fn count_identification(&self, index: usize, headers: &mut [u8]) {
        if self.layout.may_be_fragmented(headers) {
            let ip = &mut headers[self.layout.ip_at..];
            let first = u16::from_be_bytes([ip[IDENTIFICATION_AT], ip[IDENTIFICATION_AT + 1]]);
            put(ip, IDENTIFICATION_AT, first.wrapping_add(index as u16));
        }
    }

    /// What ends a stream is said by the last segment, and that its sender has slowed down by the
    /// first.
    fn put_tcp(&self, index: usize, header: &mut [u8]) {
        let sequence: &mut [u8; 4] = header[SEQUENCE_AT..].first_chunk_mut().expect("of a header");
        let first = u32::from_be_bytes(*sequence);
        *sequence = first.wrapping_add((index * self.segment_bytes) as u32).to_be_bytes();
        let mut gone = Flags::NONE;
        if index + 1 < self.frames() {
            gone = gone.union(Flags::FIN).union(Flags::PSH);
        }
        if index > 0 {
            gone = gone.union(Flags::CWR);
        }
        header[FLAGS_AT] &= !gone.bits() as u8;
    }
}

/// Fills in the checksum of TCP or UDP of a frame that has one packet, whatever was in its place.
pub fn fill_checksum(frame: &mut [u8]) {
    let Some(layout) = Layout::of(frame) else { return };
    let (headers, payload) = frame.split_at_mut(layout.payload_at);
    layout.put_checksum(headers, payload);
}

/// Fills in the checksum that `offload` says is missing in a frame that is one packet. The frame
/// has `tag_bytes` of VLAN tags that had been taken off when that was said. False if there is no
/// place for it.
#[must_use]
pub fn complete(offload: &Offload, frame: &mut [u8], tag_bytes: usize) -> bool {
    if !offload.needs_checksum() {
        return true;
    }
    let start = usize::from(offload.checksum_start) + tag_bytes;
    let offset = usize::from(offload.checksum_offset);
    let at = start + offset;
    if at + 2 > frame.len() {
        return false;
    }
    let layout = Layout::of(frame).filter(|layout| layout.transport_at == start);
    let is_udp = layout.is_some_and(|layout| !layout.is_tcp && offset == udp::CHECKSUM_AT);
    if is_udp && layout.is_some_and(|layout| layout.is_v4) {
        put(frame, at, 0);
    } else if offset != SCTP_CHECKSUM_OFFSET {
        // The field has the sum over the pseudo header, which so is part of this one. What a frame
        // is padded with is zero.
        let sum = Sum::new().with(&frame[start..]);
        put(frame, at, if is_udp { sum.udp_checksum() } else { sum.checksum() });
    }
    true
}
