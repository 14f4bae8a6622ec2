//! Fragments of packets to this host, until all of a packet have come.
//!
//! ```text
//!  fragments ──▶ packets in the making, the oldest first ──▶ whole packet
//!                     │                │
//!                     │                └─▶ after a minute: dropped, and its sender is told
//!                     └─▶ beyond a bound: the oldest is dropped
//! ```
//!
//! Whoever sends fragments can fill this table, and push out what others have in it (RFC 8900,
//! section 3.7): it is bounded in packets, bytes, fragments of a packet and packets of a source.
//! What finds it full is taken, and the oldest goes: so nobody keeps others out for a minute.
//!
//! A packet whose fragments overlap is given up (RFC 5722, section 4; RFC 8200, section 4.5), over
//! IPv4 as well: whoever looks at it on its way could see another one than this host.
//!
//! *Not* here: what is in the packets, and that they are for this host.

#[cfg(test)]
mod tests;

use super::receive::link;
use super::{DropReason, Interface};
use clearway_base::state::{Invalid, ensure};
use clearway_base::{SECOND, Time};
use clearway_wire::ethernet::ether_type;
use clearway_wire::fragment::{self, Fragment, Name};
use clearway_wire::{Ecn, Malformed, icmpv4, icmpv6, ipv4, ipv6, protocol};
use core::net::{IpAddr, Ipv6Addr};
use serde::{Deserialize, Serialize};

/// RFC 8200, section 4.5: "within 60 seconds of the reception of the first-arriving fragment". RFC
/// 1122, section 3.3.2: "between 60 seconds and 120 seconds".
const TIMEOUT_NS: u64 = 60 * SECOND;
/// Packets in the making.
const PACKETS_MAX: usize = 64;
/// The same from one source: half of the bytes, if they are as long as can be.
const PACKETS_PER_SOURCE_MAX: usize = 8;
/// Bytes of all fragments that wait: sixteen of the longest packets.
const BYTES_MAX: usize = 16 * PACKET_BYTES_MAX;
/// The longest packet, its headers and its link's included.
const PACKET_BYTES_MAX: usize = 1 << 16;
/// Fragments of a packet: those of the longest, at the least MTU that is common (576).
const FRAGMENTS_MAX: usize = 128;

/// What a fragment has led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It waits for the others.
    Kept,
    /// It was there already.
    Again,
    /// It was the last that was missing: the frame of the whole packet.
    Whole(Vec<u8>),
    /// It contradicts others of its packet, of which so many were here, or is one too many: none is
    /// taken any more.
    Contradiction { fragments: usize },
    /// It was the last that was missing, and all together make no packet.
    NoPacket { fragments: usize },
}

/// The packets in the making.
#[derive(Debug, Default)]
pub(super) struct Reassembly {
    /// The oldest first.
    packets: Vec<Making>,
    /// Those of all their fragments.
    bytes: usize,
}

/// A packet in the making.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Making {
    #[serde(with = "NameState")]
    name: Name,
    /// When the first fragment came.
    since: Time,
    /// Those that came, in the order of their offsets, and apart.
    parts: Vec<Part>,
    /// What is in front of the first part, from its frame's beginning on; empty until it has come.
    head: Vec<u8>,
    /// Where in that the IP header begins.
    ip_at: usize,
    /// Where the last part ends; known once that has come.
    end: Option<usize>,
    /// A fragment was marked, and one could not be.
    is_marked: bool,
    is_incapable: bool,
    /// Its fragments contradict each other: it stays until its time is over, so that those that are
    /// still to come find it.
    is_given_up: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Part {
    offset: usize,
    bytes: Vec<u8>,
}

/// A [`Name`] as it is saved.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Name")]
struct NameState {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    identification: u32,
}

impl Reassembly {
    /// Takes a fragment that `frame` carries, whose IP header begins at `ip_at`. Returns what
    /// became of it, and how many fragments of others had to go for it.
    pub(super) fn take(
        &mut self,
        now: Time,
        frame: &[u8],
        ip_at: usize,
        part: &Fragment<'_>,
    ) -> (Taken, usize) {
        let known = self.packets.iter().position(|making| making.name == part.name);
        let (index, pushed_out) = match known {
            Some(index) => (index, 0),
            None => self.begin(now, part.name),
        };
        let making = &mut self.packets[index];
        let before = making.bytes();
        let taken = making.take(frame, ip_at, part);
        self.bytes = self.bytes + making.bytes() - before;
        if taken == Taken::Kept && making.is_whole() {
            return (self.remove(index).into_whole(), pushed_out);
        }
        (taken, pushed_out + self.make_room())
    }

    /// A packet of which nothing has come yet. Returns its place, and how many fragments of others
    /// had to go.
    fn begin(&mut self, now: Time, name: Name) -> (usize, usize) {
        let source = network(name.source);
        let is_of_source = |making: &Making| network(making.name.source) == source;
        let mut of_source = (0..self.packets.len()).filter(|at| is_of_source(&self.packets[*at]));
        let first = of_source.next();
        let pushed_out = match first {
            Some(oldest) if of_source.count() + 1 == PACKETS_PER_SOURCE_MAX => self.forget(oldest),
            _ if self.packets.len() == PACKETS_MAX => self.forget(0),
            _ => 0,
        };
        self.packets.push(Making::new(now, name));
        (self.packets.len() - 1, pushed_out)
    }

    /// Drops the oldest until the rest has room. Returns how many fragments those had. What is left
    /// is never less than the newest: no packet alone is as long as all may be.
    fn make_room(&mut self) -> usize {
        let mut dropped = 0;
        while self.bytes > BYTES_MAX {
            dropped += self.forget(0);
        }
        dropped
    }

    /// Returns how many fragments it had.
    fn forget(&mut self, index: usize) -> usize {
        self.remove(index).parts.len()
    }

    fn remove(&mut self, index: usize) -> Making {
        let making = self.packets.remove(index);
        self.bytes -= making.bytes();
        making
    }

    /// When [`Reassembly::expire`] has something.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.packets.first().map(|oldest| oldest.since + TIMEOUT_NS)
    }

    /// The next packet whose time is over.
    pub(super) fn expire(&mut self, now: Time) -> Option<Making> {
        self.poll_timeout().filter(|due| *due <= now)?;
        Some(self.remove(0))
    }

    pub(super) fn save(&self) -> Vec<Making> {
        self.packets.clone()
    }

    /// The packets as they are known at `now`. Nothing of `saved` is trusted.
    pub(super) fn restore(saved: Vec<Making>, now: Time) -> Result<Self, Invalid> {
        ensure(saved.len() <= PACKETS_MAX, "too many packets in the making")?;
        let mut all = Self::default();
        let mut before = Time::ZERO;
        for mut making in saved {
            making.since = making.since.min(now);
            ensure(before <= making.since, "packets in the making out of order")?;
            before = making.since;
            making.check()?;
            let is_second = all.packets.iter().any(|other| other.name == making.name);
            ensure(!is_second, "a packet in the making twice")?;
            all.bytes += making.bytes();
            all.packets.push(making);
        }
        ensure(all.bytes <= BYTES_MAX, "too many bytes of packets in the making")?;
        Ok(all)
    }
}

impl Making {
    fn new(now: Time, name: Name) -> Self {
        Self {
            name,
            since: now,
            parts: Vec::new(),
            head: Vec::new(),
            ip_at: 0,
            end: None,
            is_marked: false,
            is_incapable: false,
            is_given_up: false,
        }
    }

    /// What it holds of the bytes that all may hold.
    fn bytes(&self) -> usize {
        self.head.len() + self.parts.iter().map(|part| part.bytes.len()).sum::<usize>()
    }

    /// Its first fragment from the IP header on, for an error to quote. `None` if that has not
    /// come, or is an error itself: RFC 1122, section 3.2.2, and RFC 4443, section 2.4 (e).
    fn first(&self) -> Option<Vec<u8>> {
        let first = self.parts.first().filter(|first| first.offset == 0)?;
        let message_type = first.bytes[0];
        let is_error = if self.name.source.is_ipv4() {
            self.name.protocol == protocol::ICMPV4 && message_type != icmpv4::ECHO_REQUEST
        } else {
            let next_header = self.head[self.head.len() - fragment::HEADER_LENGTH];
            next_header == protocol::ICMPV6 && icmpv6::ERRORS.contains(&message_type)
        };
        (!is_error).then(|| [&self.head[self.ip_at..], &first.bytes].concat())
    }

    fn take(&mut self, frame: &[u8], ip_at: usize, new: &Fragment<'_>) -> Taken {
        if self.is_given_up {
            return Taken::Contradiction { fragments: 0 };
        }
        let end = new.offset + new.payload.len();
        let at = self.parts.partition_point(|part| part.offset < new.offset);
        // RFC 8200, section 4.5: "an implementation may choose to detect this case and drop exact
        // duplicate fragments while keeping the other fragments belonging to the same packet".
        let same = self.parts.get(at).filter(|part| part.offset == new.offset);
        if same.is_some_and(|part| part.bytes == new.payload) && new.is_last == self.ends_at(end) {
            return Taken::Again;
        }
        let overlaps = at > 0 && self.parts[at - 1].end() > new.offset
            || self.parts.get(at).is_some_and(|next| next.offset < end);
        // What comes behind the end, or a second end.
        let is_beyond = self.end.is_some_and(|known| end > known || new.is_last)
            || new.is_last && self.parts.last().is_some_and(|last| last.end() > end);
        if overlaps || is_beyond || self.parts.len() == FRAGMENTS_MAX {
            return Taken::Contradiction { fragments: self.give_up() };
        }
        if new.offset == 0 {
            self.head = frame[..ip_at + new.head.len()].to_vec();
            self.ip_at = ip_at;
        }
        if new.is_last {
            self.end = Some(end);
        }
        self.is_marked |= new.ecn == Ecn::Marked;
        self.is_incapable |= new.ecn == Ecn::NotCapable;
        self.parts.insert(at, Part { offset: new.offset, bytes: new.payload.to_vec() });
        Taken::Kept
    }

    fn ends_at(&self, end: usize) -> bool {
        self.end == Some(end)
    }

    /// Returns how many fragments it had.
    fn give_up(&mut self) -> usize {
        self.is_given_up = true;
        self.head = Vec::new();
        core::mem::take(&mut self.parts).len()
    }

    /// True if there is no gap: parts never overlap.
    fn is_whole(&self) -> bool {
        let bytes: usize = self.parts.iter().map(|part| part.bytes.len()).sum();
        self.end == Some(bytes)
    }

    fn into_whole(self) -> Taken {
        let fragments = self.parts.len();
        self.into_frame().map_or(Taken::NoPacket { fragments }, Taken::Whole)
    }

    /// The frame of the packet, all of which is here, if there can be such a packet. RFC 3168,
    /// section 5.3: marking it "MUST NOT occur if any of the other fragments contributing to this
    /// reassembly carries the Not-ECT codepoint".
    fn into_frame(self) -> Option<Vec<u8>> {
        if self.is_marked && self.is_incapable {
            return None;
        }
        let mut head = self.head[self.ip_at..].to_vec();
        fragment::complete(&mut head, self.end?, self.is_marked).ok()?;
        let link = &self.head[..self.ip_at];
        let parts = self.parts.iter().map(|part| &part.bytes[..]);
        Some([link, &head].into_iter().chain(parts).collect::<Vec<_>>().concat())
    }

    /// Whether it can have become what it is by [`Making::take`].
    fn check(&self) -> Result<(), Invalid> {
        let is_nothing = self.parts.is_empty() && self.head.is_empty();
        ensure(self.parts.is_empty() == self.is_given_up, "a packet without fragments")?;
        if self.is_given_up {
            return ensure(is_nothing, "a packet that is given up and has a head");
        }
        ensure(self.parts.len() <= FRAGMENTS_MAX, "too many fragments of a packet")?;
        let mut before = 0;
        for part in &self.parts {
            let lengths = [part.offset, part.bytes.len()];
            let is_sound = lengths.iter().all(|length| *length < PACKET_BYTES_MAX)
                && !part.bytes.is_empty()
                && before <= part.offset;
            ensure(is_sound, "fragments that overlap")?;
            before = part.end();
        }
        let is_right = self.end.is_none_or(|end| end == before) && before < PACKET_BYTES_MAX;
        ensure(is_right && !self.is_whole(), "a packet in the making that is whole")?;
        self.check_head()
    }

    fn check_head(&self) -> Result<(), Invalid> {
        let first = self.parts.first().filter(|first| first.offset == 0);
        let Some(first) = first else {
            return ensure(self.head.is_empty(), "a head without a first fragment");
        };
        let frame = [&self.head[..], &first.bytes].concat();
        let is_it = parse(&frame, false).is_ok_and(|(ip_at, part)| {
            let length = ip_at + part.head.len();
            (part.name, part.offset) == (self.name, 0)
                && (ip_at, length) == (self.ip_at, self.head.len())
                && part.payload == first.bytes
        });
        ensure(is_it, "a head that is no first fragment's")
    }
}

impl Part {
    fn end(&self) -> usize {
        self.offset + self.bytes.len()
    }
}

impl Interface {
    /// Takes a frame for this host that was refused because it has a fragment. Returns the frame of
    /// the whole packet once all of it has come: it is to be received as any other. If it does not
    /// come, its sender is told in a minute, by [`Interface::handle_timeout`].
    ///
    /// # Errors
    /// Why it is dropped. Others of its packet that go with it are counted.
    pub fn handle_fragment(
        &mut self,
        now: Time,
        frame: &[u8],
    ) -> Result<Option<Vec<u8>>, DropReason> {
        let (ip_at, part) = parse(frame, self.verify_checksums)?;
        // The kernel puts together what is for its own addresses. Groups are sent no fragments.
        if self.kernel_shares || !self.is_own(part.name.destination) {
            return Err(Malformed::Fragment.into());
        }
        self.check_source(part.name.source)?;
        let (taken, pushed_out) = self.reassembly.take(now, frame, ip_at, &part);
        self.drops.add(DropReason::FragmentPushedOut, pushed_out);
        match taken {
            Taken::Kept | Taken::Again => Ok(None),
            Taken::Whole(frame) => self.check_whole(&frame).map(|()| Some(frame)),
            Taken::Contradiction { fragments } => {
                self.drops.add(DropReason::FragmentOverlap, fragments);
                Err(DropReason::FragmentOverlap)
            }
            Taken::NoPacket { fragments } => {
                self.drops.add(Malformed::Fragment.into(), fragments - 1);
                Err(Malformed::Fragment.into())
            }
        }
    }

    /// A packet of fragments is none that is a fragment itself, nor (RFC 6980, section 5) neighbour
    /// discovery. No NIC has seen the checksum of UDP.
    fn check_whole(&self, frame: &[u8]) -> Result<(), DropReason> {
        let packet = self.packet_from_anywhere(frame)?;
        match packet.protocol {
            protocol::UDP => packet.check_udp(),
            protocol::ICMPV6 if packet.payload.first().is_some_and(is_neighbour_discovery) => {
                Err(Malformed::Fragment.into())
            }
            _ => Ok(()),
        }
    }

    /// Drops packets that have not come, and tells their senders.
    pub(super) fn expire_fragments(&mut self, now: Time) {
        while let Some(making) = self.reassembly.expire(now) {
            self.drops.add(DropReason::FragmentTimeout, making.parts.len());
            if let (Some(first), Ok((mac, ..))) = (making.first(), link(&making.head)) {
                self.tell_of_timeout(now, &making.name, mac, &first);
            }
        }
    }
}

fn is_neighbour_discovery(message_type: &u8) -> bool {
    icmpv6::NEIGHBOUR_DISCOVERY.contains(message_type)
}

/// The fragment in a frame, and where its IP header begins.
fn parse(frame: &[u8], verify_checksum: bool) -> Result<(usize, Fragment<'_>), DropReason> {
    let (_, ether_type, packet) = link(frame)?;
    let part = if ether_type == ether_type::IPV4 {
        Fragment::of_ipv4(&ipv4::View::new(packet)?, verify_checksum)?
    } else {
        Fragment::of_ipv6(&ipv6::View::new(packet)?)?
    };
    Ok((frame.len() - packet.len(), part))
}

/// Who counts as one source: over IPv6, whoever has one address of a /64 may have them all.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !0 << 64).into(),
    }
}
