//! How large segments are: RFC 9293, section 3.7.1, and RFC 6691; the path's MTU by RFC 1191 and
//! RFC 8201.

use core::net::IpAddr;

use clearway_base::{SECOND, Time};
use clearway_wire::{ipv4, ipv6, tcp};

/// What bounds the size of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentSize {
    /// IP and TCP headers without options.
    headers: u16,
    /// The MTU of the own interface, and what the path has been found to take.
    link_mtu: u16,
    path_mtu: u16,
    /// The peer's MSS option, or the default.
    peer_bytes: u16,
    /// What every segment has in options.
    options: u16,
    is_v6: bool,
    /// How often, and since when, routers have been believed.
    decreases: u8,
    believed_since: Time,
}

/// RFC 9293, section 3.7.1: "If an MSS Option is not received at connection setup, TCP
/// implementations MUST assume a default send MSS of 536 (576 - 40) for IPv4 or 1220 (1280 - 60)
/// for IPv6".
const DEFAULT_V4: u16 = 536;
const DEFAULT_V6: u16 = 1220;
/// Less than this is an attack, whoever asks for it: a peer's MSS of 1 would make 60 times as many
/// segments. Linux has 48 with 12 of options. Only the own link may be that narrow.
const BYTES_MIN: u16 = 64;
/// RFC 1191, section 3, and RFC 8200, section 5. IPv4 allows 68; no path has been seen with that.
const MTU_MIN_V4: u16 = 552;
const MTU_MIN_V6: u16 = 1280;

/// No path has so many links, each narrower than the one before. Without a bound whoever guesses a
/// sequence number could make this end look through its window, and send it again, a thousand
/// times.
const DECREASES_MAX: u8 = 8;
/// RFC 1191, section 6.3: what is known of a path is good for ten minutes.
const BELIEVED_NS: u64 = 600 * SECOND;

impl SegmentSize {
    pub(crate) fn new(remote: IpAddr, link_mtu: u16) -> Self {
        let is_v6 = remote.is_ipv6();
        let ip = if is_v6 { ipv6::HEADER_LENGTH } else { ipv4::HEADER_LENGTH };
        Self {
            headers: (ip + tcp::HEADER_LENGTH) as u16,
            link_mtu,
            path_mtu: link_mtu,
            peer_bytes: if is_v6 { DEFAULT_V6 } else { DEFAULT_V4 },
            options: 0,
            is_v6,
            decreases: 0,
            believed_since: Time::ZERO,
        }
    }

    /// What this end says in its MSS option.
    pub(crate) fn offer(&self, most: Option<u16>) -> u16 {
        let bytes = self.link_mtu.saturating_sub(self.headers);
        most.map_or(bytes, |most| bytes.min(most.max(BYTES_MIN)))
    }

    /// What the peer, and the app, allow; and the options that every segment has.
    pub(crate) fn agree(&mut self, peer: Option<u16>, most: Option<u16>, options: usize) {
        if let Some(peer) = peer {
            self.peer_bytes = peer;
        }
        self.peer_bytes = self.peer_bytes.min(most.unwrap_or(u16::MAX)).max(BYTES_MIN);
        self.options = options as u16;
    }

    /// The app wants no larger segments than of `most` bytes, from now on.
    pub(crate) fn bound(&mut self, most: Option<u16>) {
        self.peer_bytes = self.peer_bytes.min(most.unwrap_or(u16::MAX)).max(BYTES_MIN);
    }

    /// Payload and options of a full segment.
    #[inline]
    pub(crate) fn mss(&self) -> u32 {
        let path = self.path_mtu.saturating_sub(self.headers);
        self.peer_bytes.min(path).max(1).into()
    }

    /// Payload of a full segment.
    #[inline]
    pub(crate) fn bytes(&self) -> u32 {
        self.mss().saturating_sub(self.options.into()).max(1)
    }

    /// The same, with `options` bytes of them in it.
    #[inline]
    pub(crate) fn bytes_with(&self, options: usize) -> u32 {
        let more = (options as u32).saturating_sub(self.options.into());
        self.bytes().saturating_sub(more).max(1)
    }

    /// A router says that packets of the path may have `mtu` bytes at most. True if that is news
    /// that is believed.
    pub(crate) fn on_too_big(&mut self, now: Time, mtu: u32) -> bool {
        let least = if self.is_v6 { MTU_MIN_V6 } else { MTU_MIN_V4 };
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX).max(least);
        if mtu >= self.path_mtu || !self.is_believed(now) {
            return false;
        }
        self.path_mtu = mtu;
        true
    }

    /// What the path may take, less than it seems to, if segments of `bytes` vanish: RFC 8899,
    /// section 5.1.2, BASE_PLPMTU and MIN_PLPMTU.
    pub(crate) fn lower_than(&self, bytes: u32) -> Option<u16> {
        let sizes = [MTU_MIN_V6, MTU_MIN_V4];
        let sizes = if self.is_v6 { &sizes[..1] } else { &sizes[..] };
        let is_lower = |mtu: &u16| *mtu < self.path_mtu && self.bytes_at(*mtu, 0) < bytes;
        sizes.iter().copied().find(is_lower)
    }

    /// The length of the packet with a segment of `bytes`.
    pub(crate) fn mtu_of(&self, bytes: u32) -> u16 {
        let less = self.bytes().saturating_sub(bytes) as u16;
        self.path_mtu.min(self.mtu_max()) - less
    }

    /// The largest packet that this end and its peer would send over any path.
    pub(crate) fn mtu_max(&self) -> u16 {
        self.link_mtu.min(self.peer_bytes.saturating_add(self.headers))
    }

    /// The path takes packets of `mtu` bytes.
    pub(crate) const fn set_path_mtu(&mut self, mtu: u16) {
        self.path_mtu = mtu;
    }

    /// The payload of a packet of `mtu` bytes, with `options` bytes of them or those that every
    /// segment has.
    pub(crate) fn bytes_at(&self, mtu: u16, options: usize) -> u32 {
        Self { path_mtu: mtu, ..*self }.bytes_with(options)
    }

    fn is_believed(&mut self, now: Time) -> bool {
        if now.since(self.believed_since) >= BELIEVED_NS {
            (self.believed_since, self.decreases) = (now, 0);
        }
        self.decreases = self.decreases.saturating_add(1);
        self.decreases <= DECREASES_MAX
    }

    /// The MTUs of the link and of the path, and the peer's segment size.
    pub(crate) const fn save(&self) -> ((u16, u16), u16) {
        ((self.link_mtu, self.path_mtu), self.peer_bytes)
    }

    /// What [`SegmentSize::save`] said, of segments that have `options` bytes of them.
    pub(crate) fn restore(
        remote: IpAddr,
        (link_mtu, path_mtu): (u16, u16),
        peer_bytes: u16,
        options: usize,
    ) -> Self {
        let mut size = Self::new(remote, link_mtu);
        size.path_mtu = path_mtu.max(size.headers + BYTES_MIN).min(link_mtu);
        size.agree(Some(peer_bytes), None, options);
        size
    }

    pub(crate) const fn path_mtu(&self) -> u16 {
        self.path_mtu
    }
}
