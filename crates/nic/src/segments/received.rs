//! What a NIC says of the checksums of a frame that it has received, and what is left to do.

use clearway_wire::checksum::Sum;

use super::layout::{Layout, put};
use super::offload::Offload;
use crate::Checksums;

/// What a NIC says of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing, or that it is wrong: whoever reads the frame finds out.
    Unknown,
    /// It is right.
    Right,
    /// What it covers is intact, and the checksum itself is not filled in.
    Missing,
}

/// Fills in what is missing of a frame that came as one packet, and says what is known of it. A
/// header of IPv4 of which the NIC says nothing is summed here, since it is short.
pub fn settle(frame: &mut [u8], ip: Verdict, transport: Verdict) -> Checksums {
    if ip == Verdict::Right && transport == Verdict::Right {
        return Checksums::Right;
    }
    let Some(layout) = Layout::of(frame) else { return Checksums::Unknown };
    // What comes from a wire may be padded.
    let packet = layout.packet_end(frame).and_then(|end| frame.get_mut(..end));
    let Some(packet) = packet else { return Checksums::Unknown };
    if ip == Verdict::Missing {
        layout.put_ip_checksum(packet);
    }
    let is_ip_right = ip != Verdict::Unknown || has_right_ip_checksum(&layout, packet);
    if !is_ip_right || transport == Verdict::Unknown {
        return Checksums::Unknown;
    }
    if transport == Verdict::Missing {
        put_transport_checksum(&layout, packet);
    }
    Checksums::Right
}

/// What is to be said of several packets that came as one frame, which begins with `head`, and
/// where the last of them ends. Each of them has so much payload. If the NIC does not say how much
/// (0), segments of TCP have what fits a frame of `frame_bytes_max`: where a stream is cut is
/// nobody's concern. `None` if this is no packet, or not all of one.
#[must_use]
pub fn coalesced(
    head: &[u8],
    frame_bytes: usize,
    segment_bytes: u16,
    frame_bytes_max: usize,
) -> Option<(Offload, usize)> {
    let layout = Layout::of(head)?;
    let packet_end = layout.packet_end(head).filter(|end| *end <= frame_bytes)?;
    let segment_bytes = match segment_bytes {
        0 if layout.is_tcp => frame_bytes_max.saturating_sub(layout.payload_at) as u16,
        said => said,
    };
    Some((Offload { kind: layout.offload_kind(), segment_bytes, ..Offload::default() }, packet_end))
}

/// True if there is none.
fn has_right_ip_checksum(layout: &Layout, packet: &[u8]) -> bool {
    !layout.is_v4 || Sum::new().with(&packet[layout.ip_at..layout.transport_at]).is_right()
}

/// UDP over IPv4 goes without one, as where super-frames are cut.
fn put_transport_checksum(layout: &Layout, packet: &mut [u8]) {
    if layout.is_v4 && !layout.is_tcp {
        return put(packet, layout.checksum_at(), 0);
    }
    let (headers, payload) = packet.split_at_mut(layout.payload_at);
    layout.put_checksum(headers, payload);
}
