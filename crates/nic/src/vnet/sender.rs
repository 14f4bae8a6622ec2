//! Sending: frames collect in buffers of our own and leave together, as few as can be.
//!
//! ```text
//!  frames, in order:  a a a a' b c c c      a: one flow, one size; a' shorter
//!  messages:         [a a a a'][b][c c c]   a super-frame each, or a frame
//! ```
//!
//! The payloads of a super-frame stay in their frames' buffers, and the kernel gathers them. After
//! the [`Carrier`]'s system call has returned, the buffers are ours again. Segments of TCP that
//! were written as one have as many buffers as they are, side by side, in which they become frames
//! where super-frames are refused.

use std::mem;

use rustix::io::Errno;

use crate::interface::Link;
use crate::segments::{
    Checksum, Cut, HEADERS_MAX, Merge, Offload, PACKET_BYTES_MAX, fill_checksum,
};
use crate::{Counters, Segments, Transmit};

/// Messages that are handed over together, at most.
pub(crate) const MESSAGES: usize = 64;
/// Frames of a super-frame: `UDP_MAX_SEGMENTS` of linux/udp.h, as long as it has been there.
const SEGMENTS_MAX: usize = 64;
/// Room before a frame for its `Offload`, so that the frame begins well aligned.
const HEADROOM: usize = 16;
const _: () = assert!(HEADROOM >= Offload::BYTES);
/// Buffers begin cache lines.
const LINE_BYTES: usize = 64;
/// An `Offload` that says nothing.
const NOTHING: [u8; Offload::BYTES] = [0; Offload::BYTES];
/// An `Offload` and headers.
const HEAD_BYTES: usize = Offload::BYTES + HEADERS_MAX;
/// After a super-frame was refused, so many frames go alone before the next one is tried: it may
/// have been for the moment, and a veth takes them again when its peer's XDP program is gone. Each
/// further refusal doubles that.
const ALONE: usize = 256;
const ALONE_MAX: usize = 1 << 16;

/// The super-frames that an interface takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of each, the Ethernet header included.
    pub(crate) frame_bytes: usize,
    /// Packets in each.
    pub(crate) segments: usize,
}

impl Limits {
    /// None are to be sent.
    pub(crate) const NONE: Limits = Limits { frame_bytes: 0, segments: 1 };

    /// For the kernel's own stack, which takes what fits an IP packet, and as many packets of UDP
    /// as sockets.
    pub(crate) const OF_KERNEL: Limits = Limits { frame_bytes: 1 << 16, segments: SEGMENTS_MAX };

    /// What is as the interface says it is, and what sockets take of it.
    pub(crate) fn new(gso_bytes_max: u32, gso_segments_max: u32) -> Limits {
        Limits {
            // The kernel's check is "less than".
            frame_bytes: (gso_bytes_max as usize).saturating_sub(1),
            segments: (gso_segments_max as usize).clamp(1, SEGMENTS_MAX),
        }
    }
}

/// A way into the kernel.
pub(crate) trait Carrier {
    /// Hands messages over, in order, without waiting. How many the kernel took; or why not the
    /// first.
    ///
    /// # Safety
    /// What each piece of the messages points to is there, in its length, until this returns.
    unsafe fn carry(&self, messages: Messages<'_>) -> Result<usize, Errno>;
}

/// Messages to be handed over, each an `Offload` and a frame in pieces.
pub(crate) struct Messages<'a> {
    pieces: &'a mut [libc::iovec],
    planned: &'a [Planned],
}

impl<'a> Iterator for Messages<'a> {
    type Item = &'a mut [libc::iovec];

    #[inline]
    fn next(&mut self) -> Option<&'a mut [libc::iovec]> {
        let (first, others) = self.planned.split_first()?;
        self.planned = others;
        let (own, others) = mem::take(&mut self.pieces).split_at_mut(first.pieces);
        self.pieces = others;
        Some(own)
    }
}

/// What became of the frames that were queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sent {
    frames: u64,
    bytes: u64,
    super_frames: u64,
    dropped: u64,
}

/// A frame in its buffer.
#[derive(Clone, Copy)]
struct Frame {
    bytes: usize,
    /// One that is missing is TCP's, and was left to the sender. That of a super-frame is the
    /// kernel's.
    checksum: Checksum,
    /// It is several segments, each with so much payload; 0 for one.
    segment_bytes: usize,
}

impl Frame {
    /// The place of a segment that is in a frame before it.
    const fn within(header_bytes: usize) -> Frame {
        Frame { bytes: header_bytes, checksum: Checksum::Right, segment_bytes: 0 }
    }
}

/// The frames that wait for the next flush, in order.
pub(crate) struct Sender {
    buffers: Vec<u8>,
    /// From one buffer to the next.
    stride: usize,
    frame_bytes_max: usize,
    descriptors: usize,
    frames: Vec<Frame>,
    /// How many of them have left already.
    gone: usize,
    limits: Limits,
    /// Of UDP, and of TCP: many NICs can part TCP only.
    refusals: [Refusals; 2],
    heads: Vec<[u8; HEAD_BYTES]>,
    pieces: Vec<libc::iovec>,
}

// SAFETY: the pointers in `pieces` are made and used within one call of `send_batch`.
unsafe impl Send for Sender {}

/// A message of the batch that is being put together.
#[derive(Clone, Copy, Default)]
struct Planned {
    frames: usize,
    pieces: usize,
    is_tcp: bool,
}

impl Sender {
    pub(crate) fn new(descriptors: usize, frame_bytes_max: usize, limits: Limits) -> Sender {
        let stride = (HEADROOM + frame_bytes_max).next_multiple_of(LINE_BYTES);
        Sender {
            buffers: vec![0; descriptors * stride],
            stride,
            frame_bytes_max,
            descriptors,
            frames: Vec::with_capacity(descriptors),
            gone: 0,
            limits,
            refusals: [Refusals::default(); 2],
            heads: vec![[0; HEAD_BYTES]; MESSAGES],
            pieces: Vec::with_capacity(descriptors + MESSAGES),
        }
    }

    /// Queues the frame that `fill` writes, with a checksum that is right, or any; see
    /// [`Queue::transmit`](crate::Queue::transmit), and
    /// [`Queue::transmit_as_is`](crate::Queue::transmit_as_is). While the link is down frames are
    /// dropped.
    #[inline]
    pub(crate) fn transmit(
        &mut self,
        link: &Link,
        counters: &mut Counters,
        checksum: Checksum,
        fill: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> Transmit {
        let Some(buffer) = self.free_buffer() else { return Transmit::Full };
        let bytes = fill(buffer);
        if bytes == 0 {
            return Transmit::Nothing;
        }
        if link.is_up() {
            self.push(Frame { bytes, checksum, segment_bytes: 0 });
        } else {
            counters.tx_frames_dropped += 1;
        }
        Transmit::Queued
    }

    /// Queues the segments that `fill` writes; see
    /// [`Queue::transmit_segments`](crate::Queue::transmit_segments).
    #[inline]
    pub(crate) fn transmit_segments(
        &mut self,
        link: &Link,
        counters: &mut Counters,
        fill: &mut dyn FnMut(&mut [u8], usize) -> Segments,
    ) -> Transmit {
        let most = self.segments_now();
        if most == 0 {
            return Transmit::Full;
        }
        let start = self.frames.len() * self.stride + HEADROOM;
        let end = start + self.room(most);
        let buffer = &mut self.buffers[start..end];
        let Segments { bytes, segment_bytes } = fill(buffer, most);
        if bytes == 0 {
            return Transmit::Nothing;
        }
        let several = (segment_bytes > 0).then(|| {
            let merge = Merge::built(&buffer[..bytes], segment_bytes);
            let merge = merge.filter(|merge| merge.frames() <= most);
            merge.expect("segments are as many as there is room for")
        });
        if !link.is_up() {
            counters.tx_frames_dropped += several.map_or(1, |merge| merge.frames() as u64);
        } else if let Some(merge) = several {
            self.frames.push(Frame { bytes, checksum: Checksum::Right, segment_bytes });
            let other = Frame::within(merge.header_bytes());
            self.frames.extend(core::iter::repeat_n(other, merge.frames() - 1));
        } else {
            self.push(Frame { bytes, checksum: Checksum::Missing, segment_bytes: 0 });
        }
        Transmit::Queued
    }

    /// Room for so many segments in one frame. A packet has no more than that, whatever
    /// super-frames the interface takes.
    #[inline]
    fn room(&self, segments: usize) -> usize {
        let all = (segments * self.stride - HEADROOM).min(self.limits.frame_bytes);
        if segments == 1 { self.frame_bytes_max } else { all.min(PACKET_BYTES_MAX) }
    }

    /// How many segments there is room for, that can be written as one.
    #[inline]
    fn segments_now(&self) -> usize {
        let is_refused = self.refusals[usize::from(true)].go_alone(0);
        let has_room = self.limits.frame_bytes > self.frame_bytes_max;
        let most = if has_room && !is_refused { self.limits.segments } else { 1 };
        most.min(self.descriptors - self.frames.len())
    }

    /// Hands the queued frames to the kernel, and counts them. What it has no room for now stays
    /// queued; if it takes something not at all, the link is looked at.
    pub(crate) fn flush(
        &mut self,
        carrier: &impl Carrier,
        link: &mut Link,
        counters: &mut Counters,
    ) {
        if self.is_empty() {
            return;
        }
        let sent = self.send(carrier);
        counters.tx_frames += sent.frames;
        counters.tx_bytes += sent.bytes;
        counters.tx_super_frames += sent.super_frames;
        counters.tx_frames_dropped += sent.dropped;
        if sent.dropped > 0 {
            link.check();
        }
    }

    /// The next free buffer; `None` if all are in use.
    #[inline]
    fn free_buffer(&mut self) -> Option<&mut [u8]> {
        let index = self.frames.len();
        let start = index * self.stride + HEADROOM;
        (index < self.descriptors).then(|| &mut self.buffers[start..start + self.frame_bytes_max])
    }

    /// Queues what is in the buffer that was last free.
    #[inline]
    fn push(&mut self, frame: Frame) {
        assert!(frame.bytes <= self.frame_bytes_max, "a frame is longer than its buffer");
        self.frames.push(frame);
    }

    /// False if frames wait: for a flush, or since the kernel had no room for them at the last.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// How frames leave, to be added to a sentence; `by` is what the kernel calls the way.
    pub(crate) fn mode(&self, by: &str) -> String {
        let Limits { segments, .. } = self.limits;
        if self.descriptors == 0 {
            return String::new();
        }
        if self.limits == Limits::NONE {
            return "; packets leave one by one (super_frames = false)".to_owned();
        }
        if segments == 1 {
            return "; packets leave one by one (gso_max_segs 1)".to_owned();
        }
        let refusals = self.refusals.iter().zip(["UDP", "TCP"]).filter_map(|(refusals, kind)| {
            let errno = refusals.last?;
            Some(format!(
                "; those of {kind} leave one by one, because the way out cannot part them \
                 (`ethtool -k`, segmentation: {errno})"
            ))
        });
        format!("; up to {segments} packets of a flow leave and come as one ({by})")
            + &refusals.collect::<String>()
    }

    /// Hands the queued frames to the kernel.
    fn send(&mut self, carrier: &impl Carrier) -> Sent {
        let mut sent = Sent::default();
        while self.gone < self.frames.len() {
            match self.send_batch(carrier) {
                Ok((count, super_frames)) => {
                    sent.super_frames += super_frames;
                    let done = &self.frames[self.gone..self.gone + count];
                    sent.frames += count as u64;
                    sent.bytes += done.iter().map(|frame| frame.bytes as u64).sum::<u64>();
                    self.gone += count;
                }
                // A socket's send buffer is full of frames that a NIC has yet to send.
                Err((Errno::AGAIN, _)) => return sent,
                Err((Errno::INTR, _)) => {}
                Err((errno, first)) if first.frames > 1 && !is_closed(errno) => {
                    self.refusals[usize::from(first.is_tcp)].add(errno);
                }
                // The first one cannot be sent: its NIC is full or down, or it is oversize.
                Err((_, first)) => {
                    sent.dropped += first.frames as u64;
                    self.gone += first.frames;
                }
            }
        }
        self.frames.clear();
        self.gone = 0;
        sent
    }

    /// Sends the next frames. Returns how many left, and in how many super-frames; or why the first
    /// message did not, and which that was.
    fn send_batch(&mut self, carrier: &impl Carrier) -> Result<(usize, u64), (Errno, Planned)> {
        let mut planned = [Planned::default(); MESSAGES];
        let (mut count, mut next) = (0, self.gone);
        self.pieces.clear();
        while count < MESSAGES && next < self.frames.len() {
            planned[count] = self.plan(count, next);
            next += planned[count].frames;
            count += 1;
        }
        let messages = Messages { pieces: &mut self.pieces, planned: &planned[..count] };
        // SAFETY: the pieces point to buffers and heads that nobody moves or frees before this
        // returns.
        let sent = unsafe { carrier.carry(messages) };
        let sent = sent.map_err(|errno| (errno, planned[0]))?;
        let sent = &planned[..sent];
        for message in sent {
            self.pass(message);
        }
        let super_frames = sent.iter().filter(|message| message.frames > 1).count();
        Ok((sent.iter().map(|message| message.frames).sum(), super_frames as u64))
    }

    /// A message was taken.
    #[inline]
    fn pass(&mut self, message: &Planned) {
        self.refusals.iter_mut().for_each(|refusals| refusals.pass(message.frames));
        if message.frames > 1 {
            self.refusals[usize::from(message.is_tcp)].end();
        }
    }

    /// Adds the pieces of a message that begins with frame `first`.
    #[inline]
    fn plan(&mut self, index: usize, first: usize) -> Planned {
        if self.frames[first].segment_bytes > 0 {
            if let Some(merge) = self.built(first) {
                return self.plan_built(index, first, &merge);
            }
            self.part(first);
        }
        if let Some(merge) = self.merge(first) {
            return self.plan_super_frame(index, first, &merge);
        }
        let Frame { bytes, checksum, .. } = self.frames[first];
        let start = first * self.stride + HEADROOM - Offload::BYTES;
        if checksum == Checksum::Missing {
            fill_checksum(&mut self.buffers[start + Offload::BYTES..][..bytes]);
        }
        // A frame that needs nothing. Segments of an earlier batch may have been there.
        self.buffers[start..start + Offload::BYTES].copy_from_slice(&NOTHING);
        self.push_piece(start, Offload::BYTES + bytes);
        Planned { frames: 1, pieces: 1, is_tcp: false }
    }

    /// The segments that were written as one, if they can leave so now.
    fn built(&self, first: usize) -> Option<Merge> {
        let Frame { bytes, segment_bytes, .. } = self.frames[first];
        let start = first * self.stride + HEADROOM;
        let merge = Merge::built(&self.buffers[start..start + bytes], segment_bytes)
            .filter(Merge::can_be_cut)?;
        let goes_alone = self.refusals[usize::from(merge.is_tcp())].go_alone(first - self.gone);
        (!goes_alone).then_some(merge)
    }

    fn plan_built(&mut self, index: usize, first: usize, merge: &Merge) -> Planned {
        let (frames, header_bytes) = (merge.frames(), merge.header_bytes());
        self.push_head(index, first, merge);
        let start = first * self.stride + HEADROOM + header_bytes;
        self.push_piece(start, self.frames[first].bytes - header_bytes);
        Planned { frames, pieces: 2, is_tcp: merge.is_tcp() }
    }

    /// Makes frames of segments that were written as one, each in its buffer.
    #[cold]
    fn part(&mut self, first: usize) {
        let Frame { bytes, segment_bytes, .. } = self.frames[first];
        let start = first * self.stride + HEADROOM;
        let whole = &self.buffers[start..start + bytes];
        let cut = Cut::built(whole, segment_bytes).expect("it was built so");
        let header_bytes = cut.header_bytes();
        // From the last on: none comes to where another has not moved yet.
        for index in (0..cut.frames()).rev() {
            let (own, place) = (cut.segment(index), index * self.stride);
            let length = header_bytes + own.len();
            let from = start + header_bytes + own.start;
            self.buffers.copy_within(from..from + own.len(), start + place + header_bytes);
            cut.put_headers(index, &mut self.buffers[start + place..][..length]);
            self.frames[first + index] =
                Frame { bytes: length, checksum: Checksum::Right, segment_bytes: 0 };
        }
    }

    fn plan_super_frame(&mut self, index: usize, first: usize, merge: &Merge) -> Planned {
        let (frames, header_bytes) = (merge.frames(), merge.header_bytes());
        self.push_head(index, first, merge);
        for frame in first..first + frames {
            let start = frame * self.stride + HEADROOM + header_bytes;
            self.push_piece(start, self.frames[frame].bytes - header_bytes);
        }
        Planned { frames, pieces: 1 + frames, is_tcp: merge.is_tcp() }
    }

    /// The `Offload` and the headers of a super-frame.
    fn push_head(&mut self, index: usize, first: usize, merge: &Merge) {
        let start = first * self.stride + HEADROOM;
        let frame = &self.buffers[start..start + self.frames[first].bytes];
        let head = &mut self.heads[index];
        let offload = merge.put_headers(frame, &mut head[Offload::BYTES..]);
        head[..Offload::BYTES].copy_from_slice(&offload.to_bytes());
        let (iov_base, iov_len) = (head.as_mut_ptr().cast(), Offload::BYTES + merge.header_bytes());
        self.pieces.push(libc::iovec { iov_base, iov_len });
    }

    fn push_piece(&mut self, start: usize, length: usize) {
        let bytes = &mut self.buffers[start..start + length];
        let iov_base = bytes.as_mut_ptr().cast();
        self.pieces.push(libc::iovec { iov_base, iov_len: length });
    }

    /// The frames from `first` on that can be one; `None` if that is no more than itself.
    #[inline]
    fn merge(&self, first: usize) -> Option<Merge> {
        let is_one = |next: &Frame| next.segment_bytes == 0;
        let follows = self
            .frames
            .get(first + 1)
            .is_some_and(|next| next.bytes <= self.frames[first].bytes && is_one(next));
        if !follows || self.limits.segments == 1 {
            return None;
        }
        let frame_at = |index: usize| {
            let start = index * self.stride + HEADROOM;
            &self.buffers[start..start + self.frames[index].bytes]
        };
        let Limits { frame_bytes, segments } = self.limits;
        let may_be_merged =
            |index: usize| self.frames[index].checksum.may_be_merged(frame_at(index));
        let mut merge = Merge::new(frame_at(first))?;
        if self.refusals[usize::from(merge.is_tcp())].go_alone(first - self.gone) {
            return None;
        }
        for next in first + 1..self.frames.len() {
            let mut more = merge;
            let goes_on = is_one(&self.frames[next])
                && more.add(frame_at(first), frame_at(next), frame_bytes, segments);
            if !goes_on || !may_be_merged(next) {
                break;
            }
            merge = more;
        }
        (merge.frames() > 1 && may_be_merged(first)).then_some(merge)
    }
}

/// Nothing at all would be taken: the interface is down, as a packet socket says it and as a tap
/// device does, or it was removed.
const fn is_closed(errno: Errno) -> bool {
    matches!(errno, Errno::NETDOWN | Errno::NXIO | Errno::IO | Errno::BADFD)
}

/// What the kernel refused to take together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Refusals {
    /// Why, if it was the last super-frame.
    last: Option<Errno>,
    /// In a row.
    count: u32,
    /// Frames that go alone before the next super-frame.
    alone: usize,
}

impl Refusals {
    #[cold]
    fn add(&mut self, errno: Errno) {
        self.last = Some(errno);
        self.alone = (ALONE << self.count.min(16)).min(ALONE_MAX);
        self.count += 1;
    }

    /// If a frame goes alone, before which there are so many that were not sent.
    #[inline]
    fn go_alone(&self, before: usize) -> bool {
        self.alone > before
    }

    /// So many frames were taken.
    #[inline]
    fn pass(&mut self, frames: usize) {
        self.alone = self.alone.saturating_sub(frames);
    }

    /// A super-frame was taken.
    #[inline]
    fn end(&mut self) {
        (self.last, self.count) = (None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::{Carrier, Checksum, Frame, Limits, Messages, Sender, fill_checksum};
    use crate::test_frames;
    use clearway_wire::checksum::Sum;
    use rustix::io::Errno;

    /// Refuses super-frames, for this reason; and everything, if so.
    struct Refusing(Errno, bool);

    impl Carrier for Refusing {
        unsafe fn carry(&self, messages: Messages<'_>) -> Result<usize, Errno> {
            let Refusing(errno, all) = *self;
            let taken = messages.take_while(|pieces| !all && pieces.len() == 1).count();
            if taken == 0 { Err(errno) } else { Ok(taken) }
        }
    }

    /// A way that is closed takes nothing, and says nothing of super-frames.
    #[test]
    fn what_cannot_go_together_goes_alone_and_where_nothing_goes_it_is_dropped() {
        let datagram = frame(17, &[0, 1, 0, 2, 0, 18, 0, 0]);
        for (way, taken, dropped) in [
            (Refusing(Errno::NOBUFS, false), 3, 0),
            (Refusing(Errno::INVAL, true), 0, 3),
            (Refusing(Errno::IO, true), 0, 3),
        ] {
            let mut sender = Sender::new(8, 1514, Limits::OF_KERNEL);
            for _ in 0..3 {
                let buffer = sender.free_buffer().expect("there are eight");
                buffer[..datagram.len()].copy_from_slice(&datagram);
                sender.push(whole(&datagram));
            }
            let sent = sender.send(&way);
            assert_eq!((sent.frames, sent.dropped, sent.super_frames), (taken, dropped, 0));
            assert!(sender.is_empty());
            let says_so = sender.mode("a header").contains("those of UDP leave one by one");
            assert_eq!(says_so, way.0 != Errno::IO, "{:?}", way.0);
        }
    }

    fn whole(frame: &[u8]) -> Frame {
        Frame { bytes: frame.len(), checksum: Checksum::Right, segment_bytes: 0 }
    }

    /// Those with a wrong one go alone. A datagram that has none has no wrong one.
    #[test]
    fn what_an_app_made_is_put_together_only_if_its_checksum_is_right() {
        let merged = |frames: [&[u8]; 2], checksum| {
            let mut sender = Sender::new(8, 1514, Limits::OF_KERNEL);
            for frame in frames {
                let buffer = sender.free_buffer().expect("there are eight");
                buffer[..frame.len()].copy_from_slice(frame);
                sender.push(Frame { checksum, ..whole(frame) });
            }
            sender.merge(0).map(|merge| merge.frames())
        };
        let datagram = || summed(frame(17, &[0, 1, 0, 2, 0, 18, 0, 0]));
        let segments = (summed(segment(0)), summed(segment(10)));
        for (first, second) in [(datagram(), datagram()), segments] {
            let both = [&first[..], &second[..]];
            assert_eq!(merged(both, Checksum::Any), Some(2));
            // The payload; the checksum of IP.
            for at in [second.len() - 1, 24] {
                for index in [0, 1] {
                    let mut changed = both[index].to_vec();
                    changed[at] ^= 1;
                    let mut frames = both;
                    frames[index] = &changed[..];
                    assert_eq!(merged(frames, Checksum::Any), None, "{at} of {index}");
                    assert_eq!(merged(frames, Checksum::Right), Some(2), "{at} of {index}");
                }
            }
        }
        let mut bare = datagram();
        bare[40..42].fill(0);
        assert_eq!(merged([&bare[..], &bare[..]], Checksum::Any), Some(2));
    }

    /// The same with its checksums.
    fn summed(mut frame: Vec<u8>) -> Vec<u8> {
        let ip = Sum::new().with(&frame[14..34]).checksum();
        frame[24..26].copy_from_slice(&ip.to_be_bytes());
        fill_checksum(&mut frame);
        frame
    }

    /// A packet of IPv4 with this transport header and a payload.
    fn frame(protocol: u8, transport: &[u8]) -> Vec<u8> {
        let length = 20 + transport.len() as u8 + 10;
        let ip = [0x45, 0, 0, length, 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        test_frames::ethernet(&[], 0x0800, &[&ip[..], transport, &[7; 10]].concat())
    }

    fn segment(sequence: u8) -> Vec<u8> {
        let mut header = [0; 20];
        (header[7], header[12], header[13]) = (sequence, 0x50, 0x10);
        frame(6, &header)
    }

    /// An interface's owner may allow super-frames that are no longer than frames.
    #[test]
    fn segments_are_written_one_by_one_where_a_super_frame_has_no_more_room() {
        for (gso_bytes_max, segments) in [(1 << 16, 8), (1515, 1), (1, 1), (0, 1)] {
            let sender = Sender::new(8, 1514, Limits::new(gso_bytes_max, 64));
            assert_eq!(sender.segments_now(), segments, "with {gso_bytes_max}");
        }
    }

    /// Linux takes frames of more than 64 KiB where its owner says so, of which IP knows nothing.
    #[test]
    fn segments_that_are_written_as_one_are_one_packet_at_most() {
        for (gso_bytes_max, bytes) in [(512 << 10, 65_535), (1 << 16, 65_535), (10_000, 9999)] {
            let sender = Sender::new(256, 9014, Limits::new(gso_bytes_max, 64));
            assert_eq!(sender.room(sender.segments_now()), bytes, "with {gso_bytes_max}");
        }
        let sender = Sender::new(256, 1514, Limits::new(1 << 19, 4));
        assert_eq!(sender.room(sender.segments_now()), 4 * sender.stride - super::HEADROOM);
        assert_eq!(sender.room(1), 1514);
    }

    #[test]
    fn where_udp_is_refused_tcp_goes_together() {
        let mut sender = Sender::new(8, 1514, Limits::new(1 << 16, 64));
        let datagram = frame(17, &[0, 1, 0, 2, 0, 18, 0, 0]);
        for frame in [&datagram, &datagram, &segment(0), &segment(10)] {
            sender.free_buffer().expect("there are eight")[..frame.len()].copy_from_slice(frame);
            sender.push(whole(frame));
        }
        let merged = |sender: &Sender, first| sender.merge(first).map(|merge| merge.frames());
        assert_eq!([merged(&sender, 0), merged(&sender, 2)], [Some(2), Some(2)]);
        sender.refusals[0].add(Errno::NOBUFS);
        assert_eq!([merged(&sender, 0), merged(&sender, 2)], [None, Some(2)]);
        sender.refusals[1].add(Errno::NOBUFS);
        assert_eq!([merged(&sender, 0), merged(&sender, 2)], [None, None]);
    }
}
