//! Frames to super-frames.

use clearway_wire::tcp::{self, Flags};
use clearway_wire::{ipv4, ipv6, udp};

use super::layout::{
    FLAGS_AT, HEADERS_MAX, Layout, PACKET_BYTES_MAX, SEQUENCE_AT, array, put, u16_at,
};
use super::offload::Offload;

/// What a segment says that others may follow: acknowledgements, and that its sender has seen
/// congestion. That it has slowed down (CWR) is said once, and whoever cuts need not know that.
const REPEATED: Flags = Flags::ACK.union(Flags::ECE);
/// What the last one may say besides.
const SAID_LAST: Flags = Flags::PSH.union(Flags::FIN);

/// What is known of the checksum of a frame that is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    /// It is right.
    Right,
    /// It is whatever an app has made it.
    Any,
    /// It is to be filled in.
    Missing,
}

impl Checksum {
    /// Whether `frame` may be put together with others, all of which get right ones then: nobody
    /// would see any more that it had another. It is one that [`Merge`] takes. To be asked
    /// last: all of it may be summed.
    #[inline]
    pub(crate) fn may_be_merged(self, frame: &[u8]) -> bool {
        self != Self::Any || sums_up(frame)
    }
}

#[inline(never)]
fn sums_up(frame: &[u8]) -> bool {
    let split = |layout: Layout| (layout, frame.split_at(layout.payload_at));
    Layout::of(frame)
        .map(split)
        .is_some_and(|(layout, (headers, payload))| layout.sums_up(headers, payload))
}

/// Frames of UDP or TCP in a row that can be one super-frame: their headers say the same, and all
/// have the same length, but for the last, which may be shorter. Segments follow each other in the
/// stream, and only the last may end it, or ask for its bytes to be handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    layout: Layout,
    segment_bytes: usize,
    payload_bytes: usize,
    frames: usize,
    /// What the last segment says, of [`SAID_LAST`].
    flags_last: Flags,
    is_full: bool,
}

impl Merge {
    /// Begins with a frame; `None` if no other can be merged with it.
    #[must_use]
    pub fn new(frame: &[u8]) -> Option<Merge> {
        let layout = Layout::of(frame)?;
        let payload_bytes = frame.len() - layout.payload_at;
        let ip_bytes = layout.transport_at - layout.ip_at;
        let is_plain =
            ip_bytes == if layout.is_v4 { ipv4::HEADER_LENGTH } else { ipv6::HEADER_LENGTH };
        if !is_plain || payload_bytes == 0 || !says_lengths(&layout, frame) {
            return None;
        }
        let has_more = !layout.is_tcp || flags(&layout, frame).without(REPEATED) == Flags::NONE;
        (has_more && !layout.may_be_fragmented(frame)).then_some(Merge {
            layout,
            segment_bytes: payload_bytes,
            payload_bytes,
            frames: 1,
            flags_last: Flags::NONE,
            is_full: false,
        })
    }

    /// Segments of TCP that were written as one: `frame` has the headers of the first, and the
    /// payload of all, of which each but the last has `segment_bytes`. `None` if it has not.
    #[must_use]
    pub fn built(frame: &[u8], segment_bytes: usize) -> Option<Merge> {
        let layout = Layout::of(frame).filter(|layout| layout.is_tcp)?;
        let payload_bytes = frame.len() - layout.payload_at;
        let is_several = (1..payload_bytes).contains(&segment_bytes);
        let fits = layout.packet_bytes(payload_bytes) <= PACKET_BYTES_MAX;
        (is_several && fits).then(|| Merge {
            layout,
            segment_bytes,
            payload_bytes,
            frames: payload_bytes.div_ceil(segment_bytes),
            flags_last: flags(&layout, frame).without(REPEATED),
            is_full: true,
        })
    }

    /// False if the first or the last segment says what whoever cuts does not know to be its only.
    #[must_use]
    pub fn can_be_cut(&self) -> bool {
        self.flags_last.without(SAID_LAST) == Flags::NONE
    }

    /// Adds `next` if it goes with `first`, with which this began. A super-frame has at most
    /// `frame_bytes_max` bytes and `frames_max` frames.
    pub fn add(
        &mut self,
        first: &[u8],
        next: &[u8],
        frame_bytes_max: usize,
        frames_max: usize,
    ) -> bool {
        let header_bytes = self.layout.payload_at;
        let Some(more) = next.len().checked_sub(header_bytes).filter(|more| *more > 0) else {
            return false;
        };
        let payload_bytes = self.payload_bytes + more;
        let fits = header_bytes + payload_bytes <= frame_bytes_max
            && self.layout.packet_bytes(payload_bytes) <= PACKET_BYTES_MAX
            && self.frames < frames_max;
        let goes_on = !self.is_full && more <= self.segment_bytes && fits;
        if !goes_on || !self.is_alike(first, next) || !says_lengths(&self.layout, next) {
            return false;
        }
        if self.layout.is_tcp {
            self.flags_last = flags(&self.layout, next).without(REPEATED);
        }
        self.payload_bytes = payload_bytes;
        self.frames += 1;
        self.is_full = more < self.segment_bytes || self.flags_last != Flags::NONE;
        true
    }

    /// How many frames it has.
    #[must_use]
    pub const fn frames(&self) -> usize {
        self.frames
    }

    /// They are of TCP; of UDP otherwise.
    #[must_use]
    pub const fn is_tcp(&self) -> bool {
        self.layout.is_tcp
    }

    /// The headers of each frame, and of the super-frame.
    #[must_use]
    pub const fn header_bytes(&self) -> usize {
        self.layout.payload_at
    }

    /// Writes the headers of the super-frame, of which those of its first frame are `first`, and
    /// what is to be said of it.
    ///
    /// # Panics
    /// If there is no room for them in `headers`.
    pub fn put_headers(&self, first: &[u8], headers: &mut [u8]) -> Offload {
        let layout = self.layout;
        let headers = &mut headers[..layout.payload_at];
        headers.copy_from_slice(&first[..layout.payload_at]);
        layout.put_lengths(headers, self.payload_bytes);
        layout.put_ip_checksum(headers);
        if layout.is_tcp {
            headers[layout.transport_at + FLAGS_AT] |= self.flags_last.bits() as u8;
        }
        let pseudo = layout.pseudo_header(headers, self.payload_bytes);
        put(headers, layout.checksum_at(), !pseudo.checksum());
        Offload {
            flags: Offload::NEEDS_CHECKSUM,
            kind: layout.offload_kind(),
            header_bytes: layout.payload_at as u16,
            segment_bytes: self.segment_bytes as u16,
            checksum_start: layout.transport_at as u16,
            checksum_offset: layout.checksum_offset() as u16,
        }
    }

    /// The headers of both say the same, but for lengths, checksums, and what each segment has of
    /// its own.
    fn is_alike(&self, first: &[u8], next: &[u8]) -> bool {
        let Layout { is_v4, is_tcp, ip_at, transport_at, .. } = self.layout;
        let same = |from: usize, to: usize| first[from..to] == next[from..to];
        let ip_is_alike = if is_v4 {
            same(0, ip_at + ipv4::TOTAL_LENGTH_AT)
                && same(ip_at + ipv4::TOTAL_LENGTH_AT + 2, ip_at + ipv4::CHECKSUM_AT)
                && same(ip_at + ipv4::CHECKSUM_AT + 2, transport_at)
        } else {
            same(0, ip_at + ipv6::PAYLOAD_LENGTH_AT)
                && same(ip_at + ipv6::PAYLOAD_LENGTH_AT + 2, transport_at)
        };
        ip_is_alike
            && if is_tcp {
                self.is_next_segment(first, next)
            } else {
                self.is_datagram(first, next)
            }
    }

    /// The ports are the same. A datagram without a checksum goes with others without one.
    fn is_datagram(&self, first: &[u8], next: &[u8]) -> bool {
        let Layout { transport_at, payload_at, .. } = self.layout;
        let ports = transport_at..transport_at + udp::LENGTH_AT;
        let has_checksum =
            |frame: &[u8]| frame[transport_at + udp::CHECKSUM_AT..payload_at] != [0, 0];
        first[ports.clone()] == next[ports] && has_checksum(first) == has_checksum(next)
    }

    /// `next` goes on where the segments so far end.
    fn is_next_segment(&self, first: &[u8], next: &[u8]) -> bool {
        let Layout { transport_at: at, payload_at, .. } = self.layout;
        let same = |from: usize, to: usize| first[from..to] == next[from..to];
        let sequence = |frame: &[u8]| u32::from_be_bytes(array(frame, at + SEQUENCE_AT));
        let expected = sequence(first).wrapping_add(self.payload_bytes as u32);
        let flags_next = flags(&self.layout, next).without(SAID_LAST);
        // Where flags begin is how long the header is, too.
        sequence(next) == expected
            && flags_next == flags(&self.layout, first)
            && same(at, at + SEQUENCE_AT)
            && same(at + SEQUENCE_AT + 4, at + FLAGS_AT)
            && same(at + FLAGS_AT + 1, at + tcp::CHECKSUM_AT)
            && same(at + tcp::CHECKSUM_AT + 2, payload_at)
    }
}

/// The packet ends where the frame does, by all that its headers say.
fn says_lengths(layout: &Layout, frame: &[u8]) -> bool {
    let udp_bytes = || u16_at(frame, layout.transport_at + udp::LENGTH_AT).map(usize::from);
    layout.packet_end(frame) == Some(frame.len())
        && (layout.is_tcp || udp_bytes() == Some(frame.len() - layout.transport_at))
}

/// The flags of a segment.
fn flags(layout: &Layout, frame: &[u8]) -> Flags {
    let at = layout.transport_at + FLAGS_AT - 1;
    let [high, low] = [frame[at], frame[at + 1]];
    Flags::from_bits(u16::from_be_bytes([high & 0xf, low]))
}

/// What [`Merge::put_headers`] writes fits.
const _: () = assert!(HEADERS_MAX >= 14 + 2 * 4 + ipv6::HEADER_LENGTH + tcp::HEADER_LENGTH_MAX);
