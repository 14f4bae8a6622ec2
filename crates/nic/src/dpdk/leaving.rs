//! Frames that are to leave: written into mbufs, and handed over together.
//!
//! ```text
//!  written, in order:  a a a' b c     a: segments of one stream that follow each other
//!  packets:           [a a a'][b][c]  for the device to part, if it can; a frame each otherwise
//! ```
//!
//! The payloads stay where they are: the mbufs of a packet are chained, and all but the first lose
//! their headers. Checksums that nobody has filled in are left to the device, if it can.
//!
//! Not for datagrams: what DPDK calls segmentation of UDP are fragments of one by its description
//! of `RTE_MBUF_F_TX_UDP_SEG`, and datagrams by what some devices make of it.

use crate::segments::{Checksum, HEADERS_MAX, Layout, Merge, Offload, fill_checksum};
use crate::{Counters, LCD_DESCRIPTORS, Transmit};

use super::arrived::free;
use super::eal;
use super::port::Port;
use super::sys::{self, Mbuf};

/// Frames of a super-frame, as many as kernels take.
const SEGMENTS_MAX: usize = 64;
/// Bytes of one, a packet of IP with its Ethernet header and one tag.
const SUPER_FRAME_BYTES_MAX: usize = 65_535;
/// Payload of a segment that a device is asked to make: what the pickiest wants (i40e, 256). In a
/// super-frame of smaller ones there is little to be saved.
const SEGMENT_BYTES_MIN: usize = 256;

/// See the module.
pub(super) struct Leaving {
    /// What is left to the device: bits of [`sys`].
    offloads: u32,
    segments_max: usize,
    frame_bytes_max: usize,
    /// Not looked at yet, in order, behind the packets.
    written: Vec<Frame>,
    packets: Vec<*mut Mbuf>,
    /// What each of them is.
    contents: Vec<Contents>,
    /// How many frames wait, in packets or not.
    frames: usize,
    /// So many packets are ready in the device's own way.
    prepared: usize,
    /// Where the next frame is to be written, if it has been fetched.
    spare: Option<(*mut Mbuf, *mut u8)>,
    /// Why the device has refused a packet.
    refused: Option<std::io::Error>,
}

/// A frame in its mbuf.
#[derive(Clone, Copy)]
struct Frame {
    mbuf: *mut Mbuf,
    bytes: *mut u8,
    length: usize,
    checksum: Checksum,
}

/// Frames that are one packet to the device.
#[derive(Clone, Copy)]
struct Contents {
    frames: usize,
    bytes: usize,
}

impl Leaving {
    pub(super) fn new(port: &Port) -> Self {
        Self {
            offloads: port.offloads,
            segments_max: port.segments_max.clamp(1, SEGMENTS_MAX),
            frame_bytes_max: port.frame_bytes_max,
            written: Vec::with_capacity(LCD_DESCRIPTORS),
            packets: Vec::with_capacity(LCD_DESCRIPTORS),
            contents: Vec::with_capacity(LCD_DESCRIPTORS),
            frames: 0,
            prepared: 0,
            spare: None,
            refused: None,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Why checksums and segments are not left to the device any more.
    pub(super) const fn refused(&self) -> Option<&std::io::Error> {
        self.refused.as_ref()
    }

    /// See [`Queue::transmit`](crate::Queue::transmit), for one with any checksum
    /// [`Queue::transmit_as_is`](crate::Queue::transmit_as_is), and for one without
    /// [`Queue::transmit_segments`](crate::Queue::transmit_segments).
    #[inline]
    pub(super) fn transmit(
        &mut self,
        port: &Port,
        queue: u16,
        checksum: Checksum,
        fill: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> Transmit {
        if self.frames == LCD_DESCRIPTORS {
            return Transmit::Full;
        }
        let Some((mbuf, bytes)) = self.buffer(port, queue) else { return Transmit::Full };
        let room = self.frame_bytes_max;
        // SAFETY: the mbuf is ours alone, and the pool was made so that each has that much room.
        let buffer = unsafe { std::slice::from_raw_parts_mut(bytes, room) };
        let length = fill(buffer);
        assert!(length <= room, "fill wrote {length} bytes into a buffer of {room}");
        if length == 0 {
            self.spare = Some((mbuf, bytes));
            return Transmit::Nothing;
        }
        // SAFETY: the mbuf is ours, and so many bytes of it are written.
        unsafe { sys::clearway_dpdk_set_length(mbuf, length as u16) };
        self.written.push(Frame { mbuf, bytes, length, checksum });
        self.frames += 1;
        Transmit::Queued
    }

    /// An mbuf for the next frame.
    #[inline]
    fn buffer(&mut self, port: &Port, queue: u16) -> Option<(*mut Mbuf, *mut u8)> {
        if self.spare.is_some() {
            return self.spare.take();
        }
        let mut bytes = std::ptr::null_mut();
        // SAFETY: the pool lives as long as the port.
        let mbuf = unsafe { sys::clearway_dpdk_buffer(port.pool(queue), &raw mut bytes) };
        (!mbuf.is_null()).then_some((mbuf, bytes))
    }

    /// Hands over what the device takes now. True if it took something.
    pub(super) fn hand_over(&mut self, port: &Port, queue: u16, counters: &mut Counters) -> bool {
        self.make_packets();
        self.prepare(port, queue, counters);
        // SAFETY: the port is started and has this queue, whose sending half only we use; the mbufs
        // hold a packet each, and those that are taken are removed.
        let taken = unsafe {
            sys::clearway_dpdk_transmit(
                port.number,
                queue,
                self.packets.as_mut_ptr(),
                self.prepared as u16,
            )
        };
        let taken = usize::from(taken);
        for Contents { frames, bytes } in self.contents.drain(..taken) {
            self.frames -= frames;
            counters.tx_frames += frames as u64;
            counters.tx_bytes += bytes as u64;
            counters.tx_super_frames += u64::from(frames > 1);
        }
        self.packets.drain(..taken);
        self.prepared -= taken;
        taken > 0
    }

    /// Gives back all that waits, and counts it.
    pub(super) fn drop_all(&mut self, counters: &mut Counters) {
        counters.tx_frames_dropped += self.frames as u64;
        self.give_back();
    }

    fn give_back(&mut self) {
        self.packets.extend(self.written.drain(..).map(|frame| frame.mbuf));
        free(&mut self.packets);
        self.packets.clear();
        self.contents.clear();
        (self.frames, self.prepared) = (0, 0);
    }

    /// Makes packets of what was written.
    fn make_packets(&mut self) {
        let mut next = 0;
        while let Some(first) = self.written.get(next) {
            let (mbuf, merge) = (first.mbuf, self.merge(next));
            let frames = merge.map_or(1, |merge| merge.frames());
            match merge {
                Some(merge) => self.make_super_frame(next, &merge),
                None if first.checksum == Checksum::Missing => self.leave_checksum(next),
                None => {}
            }
            let bytes = self.written[next..next + frames].iter().map(|frame| frame.length).sum();
            self.packets.push(mbuf);
            self.contents.push(Contents { frames, bytes });
            next += frames;
        }
        self.written.clear();
    }

    /// The frames from `first` on that can be one; `None` if that is no more than itself.
    #[inline]
    fn merge(&self, first: usize) -> Option<Merge> {
        if self.offloads & sys::SEGMENTS == 0 {
            return None;
        }
        let rest = &self.written[first + 1..];
        let length = self.written[first].length;
        rest.first().filter(|next| next.length <= length)?;
        let may_be_merged =
            |index: usize| self.written[index].checksum.may_be_merged(self.frame(index));
        let head = self.frame(first);
        let mut merge = Merge::new(head)
            .filter(|merge| merge.is_tcp() && length - merge.header_bytes() >= SEGMENT_BYTES_MIN)?;
        for next in first + 1..self.written.len() {
            let mut more = merge;
            let goes_on =
                more.add(head, self.frame(next), SUPER_FRAME_BYTES_MAX, self.segments_max);
            if !goes_on || !may_be_merged(next) {
                break;
            }
            merge = more;
        }
        (merge.frames() > 1 && may_be_merged(first)).then_some(merge)
    }

    fn frame(&self, index: usize) -> &[u8] {
        let Frame { bytes, length, .. } = self.written[index];
        // SAFETY: so many bytes were written, into an mbuf of ours that nobody else has.
        unsafe { std::slice::from_raw_parts(bytes, length) }
    }

    fn frame_mut(&mut self, index: usize) -> &mut [u8] {
        let Frame { bytes, length, .. } = self.written[index];
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(bytes, length) }
    }

    fn make_super_frame(&mut self, first: usize, merge: &Merge) {
        let layout = Layout::of(self.frame(first)).expect("it was merged, so it has one");
        let mut headers = [0; HEADERS_MAX];
        let Offload { segment_bytes, .. } = merge.put_headers(self.frame(first), &mut headers);
        let header_bytes = merge.header_bytes();
        self.frame_mut(first)[..header_bytes].copy_from_slice(&headers[..header_bytes]);
        let mut mbufs = [std::ptr::null_mut(); SEGMENTS_MAX];
        let frames = &self.written[first..first + merge.frames()];
        mbufs.iter_mut().zip(frames).for_each(|(mbuf, frame)| *mbuf = frame.mbuf);
        // SAFETY: the mbufs are ours; each holds a frame with so many bytes of headers.
        unsafe {
            sys::clearway_dpdk_join(mbufs.as_ptr(), frames.len() as u16, header_bytes as u16);
        }
        self.offload(mbufs[0], &layout, segment_bytes);
    }

    /// Leaves the checksum of a frame to the device, or fills it in.
    fn leave_checksum(&mut self, index: usize) {
        let is_offered = |layout: &Layout| {
            let bit = if layout.is_tcp { sys::SUMS_TCP } else { sys::SUMS_UDP };
            self.offloads & bit != 0 && !layout.has_extensions()
        };
        match Layout::of(self.frame(index)).filter(is_offered) {
            Some(layout) => self.offload(self.written[index].mbuf, &layout, 0),
            None => fill_checksum(self.frame_mut(index)),
        }
    }

    /// What is right already, the checksum of the only IP header, is left as it is.
    fn offload(&self, mbuf: *mut Mbuf, layout: &Layout, segment_bytes: u16) {
        let Layout { is_v4, is_tcp, ip_at, transport_at, payload_at } = *layout;
        let is_parted = segment_bytes != 0;
        let offload = sys::Offload {
            link_bytes: ip_at as u16,
            network_bytes: (transport_at - ip_at) as u16,
            transport_bytes: (payload_at - transport_at) as u16,
            segment_bytes,
            checksum_at: layout.checksum_at() as u16,
            is_v4: is_v4.into(),
            is_tcp: is_tcp.into(),
            sums_ip: (is_parted && self.offloads & sys::SUMS_IP != 0).into(),
        };
        // SAFETY: the mbuf is ours, and the frame in it has these headers.
        unsafe { sys::clearway_dpdk_offload(mbuf, &raw const offload) };
    }

    /// Has the device make packets ready for itself. What it refuses is dropped, and nothing is
    /// left to it any more.
    fn prepare(&mut self, port: &Port, queue: u16, counters: &mut Counters) {
        while self.prepared < self.packets.len() {
            let packets = &mut self.packets[self.prepared..];
            // SAFETY: as for `transmit`.
            let prepared = unsafe {
                let count = packets.len() as u16;
                sys::clearway_dpdk_prepare(port.number, queue, packets.as_mut_ptr(), count)
            };
            self.prepared += usize::from(prepared);
            if self.prepared < self.packets.len() {
                self.drop_refused(counters);
            }
        }
    }

    #[cold]
    fn drop_refused(&mut self, counters: &mut Counters) {
        (self.refused, self.offloads) = (Some(eal::last_error()), 0);
        free(&mut [self.packets.remove(self.prepared)]);
        let Contents { frames, .. } = self.contents.remove(self.prepared);
        self.frames -= frames;
        counters.tx_frames_dropped += frames as u64;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some((spare, _)) = self.spare.take() {
            self.packets.push(spare);
        }
        self.give_back();
    }
}
