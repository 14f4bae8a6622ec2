//! Packets of any type but data: how they are written, and the versions that they may be of.

use clearway_wire::clearway::{
    self, Header, PacketType, VERSION, VERSION_OPERATIONS, VERSION_SHARED, VERSION_STREAMS,
};

/// The versions that this host speaks, best first.
pub(crate) const VERSIONS: &[u8] = &[VERSION_SHARED, VERSION_STREAMS, VERSION_OPERATIONS, VERSION];

/// Those of them that it offers: all, to who may share the flow.
pub(crate) fn versions_offered(is_shared: bool) -> &'static [u8] {
    if is_shared { VERSIONS } else { &VERSIONS[1..] }
}

/// The best that is spoken here as well as there.
pub(crate) fn common_version(theirs: &[u8]) -> Option<u8> {
    VERSIONS.iter().copied().find(|version| theirs.contains(version))
}

/// Writes a packet of any type but data: header, body, CRC.
pub(crate) fn emit_control(
    bytes: &mut [u8],
    packet_type: PacketType,
    flow: u64,
    token: u64,
    body: impl FnOnce(&mut [u8]) -> usize,
) -> usize {
    let head = Header::control(packet_type, flow, token).emit(bytes);
    let length = head + body(&mut bytes[head..]);
    clearway::seal(&mut bytes[..length]);
    length
}
