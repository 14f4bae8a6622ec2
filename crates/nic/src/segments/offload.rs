//! What goes with a frame beside its bytes.

/// `struct virtio_net_hdr` (linux/virtio_net.h), in the byte order of this machine, as packet
/// sockets have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Bits: the checksum is to be filled in, the data is valid.
    pub flags: u8,
    /// What the frame is to be parted into.
    pub kind: u8,
    /// How much of the frame is headers. A hint.
    pub header_bytes: u16,
    /// The payload of each packet but the last.
    pub segment_bytes: u16,
    /// Where in the frame the checksum begins to count.
    pub checksum_start: u16,
    /// Where the checksum is, from there.
    pub checksum_offset: u16,
}

impl Offload {
    /// The length of the structure.
    pub const BYTES: usize = 10;
    /// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum field has the sum over the pseudo header.
    pub const NEEDS_CHECKSUM: u8 = 1;
    /// `VIRTIO_NET_HDR_GSO_NONE`: one packet.
    pub const ONE: u8 = 0;
    /// `VIRTIO_NET_HDR_GSO_TCPV4`.
    pub const TCP_V4: u8 = 1;
    /// `VIRTIO_NET_HDR_GSO_TCPV6`.
    pub const TCP_V6: u8 = 4;
    /// `VIRTIO_NET_HDR_GSO_UDP_L4`, of both versions of IP; since Linux 6.2.
    pub const UDP: u8 = 5;
    /// `VIRTIO_NET_HDR_GSO_ECN`, a bit beside those of TCP.
    pub const ECN: u8 = 0x80;

    /// Reads it.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [flags, kind, a, b, c, d, e, f, g, h] = bytes;
        Self {
            flags,
            kind,
            header_bytes: u16::from_ne_bytes([a, b]),
            segment_bytes: u16::from_ne_bytes([c, d]),
            checksum_start: u16::from_ne_bytes([e, f]),
            checksum_offset: u16::from_ne_bytes([g, h]),
        }
    }

    /// Writes it.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        let [a, b] = self.header_bytes.to_ne_bytes();
        let [c, d] = self.segment_bytes.to_ne_bytes();
        let [e, f] = self.checksum_start.to_ne_bytes();
        let [g, h] = self.checksum_offset.to_ne_bytes();
        [self.flags, self.kind, a, b, c, d, e, f, g, h]
    }

    /// The frame is one packet.
    #[must_use]
    pub const fn is_one(&self) -> bool {
        self.kind == Self::ONE
    }

    /// The checksum is to be filled in.
    #[must_use]
    pub const fn needs_checksum(&self) -> bool {
        self.flags & Self::NEEDS_CHECKSUM != 0
    }
}
