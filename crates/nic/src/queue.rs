//! The queue trait, and what a driver says about itself.

use std::os::fd::BorrowedFd;

use clearway_wire::{MacAddress, ethernet, vlan};

use crate::segments::fill_checksum;

/// Ethernet header and one VLAN tag, which an MTU does not count.
pub const HEADER_BYTES_MAX: usize = ethernet::HEADER_LENGTH + vlan::TAG_LENGTH;

/// Descriptors per queue that every NIC has (Machnet, section 3.1, table 2).
pub const LCD_DESCRIPTORS: usize = 256;

/// Descriptors per queue of a kernel's interface, whose rings are memory of this host and not of
/// the NIC: what comes at 250,000 packets/s while the scheduler gives an engine's core to somebody
/// else for 4 ms waits, and is not lost.
pub(crate) const KERNEL_DESCRIPTORS: usize = 1024;

/// The most frames that [`Queue::receive`] shows at a time.
pub const BURST_FRAMES: usize = 32;

/// What a queue can do beyond the LCD floor, and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Largest frame in bytes, Ethernet header included, frame check sequence not.
    pub frame_bytes_max: usize,
    /// [`Queue::transmit_segments`] saves work: not all checksums of TCP have to be filled in.
    pub transmit_checksum: bool,
    /// Frames with a wrong IPv4, UDP or TCP checksum do not reach the engine.
    pub receive_checksum: bool,
    /// The kernel shares the NIC: it answers ARP, NDP and ICMP for its own addresses and knows the
    /// neighbours; the engine sees only what was steered to it.
    pub kernel_shares: bool,
    /// Frames can be given to the kernel that shares the NIC ([`Queue::send_to_kernel`]).
    pub reaches_kernel: bool,
    /// To find out that nothing has come takes a system call. Where nothing can have come, it is
    /// better not to ask.
    pub receive_is_call: bool,
    /// What is flushed leaves by a system call, one for many frames.
    pub flush_is_call: bool,
    /// Segments of TCP may come together ([`Queue::receive_together`]).
    pub receive_together: bool,
}

/// What a NIC is and which path its frames take, for `clearway status` and the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The driver: `memif`, `af_xdp`, `af_packet`, `tap`, `udp`, `dpdk` or `fabric`.
    pub driver: &'static str,
    /// The mode in use and why none better, as a sentence: "copy mode: the driver of eth0 has no
    /// zero-copy support (bind: EOPNOTSUPP)".
    pub mode: String,
    /// The NIC's own Ethernet address.
    pub mac: MacAddress,
}

clearway_base::counters! {
    /// Frames and bytes that a queue moved or lost, since it was opened.
    pub struct Counters {
        /// Frames received.
        rx_frames: Frames, "with each frame that comes to the queue", "nothing: this is traffic";
        /// Bytes received.
        rx_bytes: Bytes, "with rx_frames", "nothing: this is traffic";
        /// Frames received but dropped by the driver: malformed descriptors, oversize, no buffer.
        rx_frames_dropped: Frames,
            "when frames come faster than the engine takes them, or they are larger than the MTU",
            "give the NIC more engines, or the engine a core of its own; compare the MTU of all \
             hosts on the link";
        /// Super-frames received, each of several frames of one flow, which are counted as such.
        rx_super_frames: Frames,
            "when the sender or this kernel has put packets together", "nothing: this is traffic";
        /// Frames sent.
        tx_frames: Frames, "with each frame that leaves", "nothing: this is traffic";
        /// Bytes sent.
        tx_bytes: Bytes, "with tx_frames", "nothing: this is traffic";
        /// Frames that were to be sent but were dropped: link down, or refused by the kernel.
        tx_frames_dropped: Frames,
            "while the link is down, and when the kernel or the NIC refuses a frame",
            "see `link up` in status, and the log";
        /// Super-frames sent, each of several frames of one flow, which are counted as such.
        tx_super_frames: Frames,
            "with packets of a flow that leave together; super_frames = false in [[nic]] forbids \
             it",
            "nothing: this is traffic";
    }
}

/// What is known of the checksums of frames that a queue shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Nothing: they are to be checked, unless [`Capabilities::receive_checksum`] says otherwise.
    Unknown,
    /// Those of IPv4, UDP and TCP are right. Who made them from what they carry knew it to be what
    /// had been sent.
    Right,
}

/// What takes received frames, oldest first, 1 to [`BURST_FRAMES`] at a time.
pub type Sink<'a> = dyn FnMut(&[&[u8]], Checksums) + 'a;

/// Segments of TCP that came as one super-frame. Their headers differ in nothing but their places
/// in the stream and the packets' lengths and numbers, and their flags are ACK and PSH at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Together<'a> {
    /// The frame of the first. Its checksums are right.
    pub first: &'a [u8],
    /// The payloads of the others, one behind the other.
    pub others: &'a [&'a [u8]],
}

/// What takes received frames, and segments of TCP as they came.
pub trait Receiver {
    /// As [`Sink`].
    fn frames(&mut self, frames: &[&[u8]], checksums: Checksums);

    /// Takes all of the segments, or returns false: then they come as frames. They stay where they
    /// are, and as they are, until this returns.
    fn together(&mut self, segments: Together<'_>) -> bool;
}

/// A receiver that has everything as frames.
pub(crate) struct InFrames<'a, 's>(pub(crate) &'a mut Sink<'s>);

impl Receiver for InFrames<'_, '_> {
    #[inline]
    fn frames(&mut self, frames: &[&[u8]], checksums: Checksums) {
        (self.0)(frames, checksums);
    }

    fn together(&mut self, _: Together<'_>) -> bool {
        false
    }
}

/// What [`Queue::transmit`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// A frame was written; it leaves at the next [`Queue::flush`] at the latest.
    Queued,
    /// The fill function had nothing to send (it returned zero); no descriptor was used.
    Nothing,
    /// No free descriptor; the fill function was not called.
    Full,
}

/// What [`Queue::transmit_segments`] is given in a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    /// The length of the frame; 0 for none.
    pub bytes: usize,
    /// The payload of each segment but the last, if it is several; 0 for one.
    pub segment_bytes: usize,
}

/// Why a driver could not open a NIC or a queue died. The text names the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The interface, socket path or address does not exist.
    #[error("{0}")]
    NotFound(String),
    /// A privilege or permission is missing.
    #[error("{0}")]
    Permission(String),
    /// The configuration does not fit this NIC.
    #[error("{0}")]
    Invalid(String),
    /// The operating system said no.
    #[error("{action}: {source}. {remedy}")]
    System {
        /// What was being done.
        action: String,
        /// What the user can do about it.
        remedy: String,
        /// The system's own error.
        #[source]
        source: std::io::Error,
    },
}

/// One RX/TX pair of a NIC. Used by one thread at a time; no call blocks.
///
/// Frames are whole Ethernet frames without frame check sequence. Memory that another process can
/// write (memif) is never handed out on receive: the driver takes a private copy first, so that a
/// frame cannot change while it is parsed.
pub trait Queue: Send {
    /// Limits and offloads of this queue; they do not change while it is open.
    fn capabilities(&self) -> Capabilities;

    /// What this NIC is. May change: a memif link connects and disconnects.
    fn info(&self) -> Info;

    /// True while frames can leave. A queue whose link is down drops what it is given.
    fn link_up(&self) -> bool;

    /// Takes up to `budget` received frames, oldest first, and shows them to `sink` in bursts,
    /// whose bytes stay where they are and as they are until `sink` returns.
    /// Returns how many frames there were. Also does the driver's own housekeeping (reconnecting a
    /// memif, refilling rings), which never blocks.
    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize;

    /// The same for whoever takes segments of TCP as they came: a super-frame is shown whole first,
    /// and may be more frames than were left of the budget. A queue around another passes it on,
    /// and so need not where [`Capabilities::receive_together`] is not so.
    fn receive_together(&mut self, budget: usize, receiver: &mut dyn Receiver) -> usize {
        self.receive(budget, &mut |frames, checksums| receiver.frames(frames, checksums))
    }

    /// Calls `fill` with a free frame buffer of `frame_bytes_max` bytes, whose content is
    /// arbitrary. `fill` returns the length of the frame it wrote, or 0 for none.
    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit;

    /// The same for a frame that an app made: what it says of itself, it says to whoever receives
    /// it, and a wrong checksum stays wrong. A queue that puts frames together has a look at it
    /// before. A queue around another passes it on.
    fn transmit_as_is(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        self.transmit(fill)
    }

    /// The same for segments of TCP whose checksum nobody has filled in: the queue does, or the
    /// kernel, where it cuts a super-frame into segments, if it ever does. `fill` is told how many
    /// it may write, of one connection, in one frame: the buffer has room for so many of full
    /// length, or for as much as a packet may have. What each segment says for itself is then as
    /// where a NIC does this: a FIN or PSH is the last one's. A queue around another passes it on.
    fn transmit_segments(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8], usize) -> Segments,
    ) -> Transmit {
        self.transmit(&mut |frame| {
            let Segments { bytes, .. } = fill(frame, 1);
            fill_checksum(&mut frame[..bytes]);
            bytes
        })
    }

    /// Gives a frame at once to the kernel that shares the NIC, as if it had come by the wire, and
    /// not to the wire. Lost where [`Capabilities::reaches_kernel`] is not so. A queue around
    /// another passes it on.
    fn send_to_kernel(&mut self, _frame: &[u8]) {}

    /// Hands all queued frames to the wire: publishes indexes, rings the peer, kicks the kernel.
    /// What kernel or device has no room for then leaves with a later flush or
    /// [`receive`](Self::receive).
    fn flush(&mut self);

    /// A descriptor that becomes readable when frames may have arrived, once [`Queue::arm`] has
    /// been called. `None` if the driver can only be polled. It may change when a link reconnects:
    /// ask again before each sleep.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Asks for a wake-up through [`Queue::wait_fd`]. Returns false if frames are already waiting,
    /// or there are some that are flushed and that the kernel or the device had no room for, though
    /// the link is up: nobody tells when it has. Then the caller must not sleep.
    fn arm(&mut self) -> bool;

    /// Ends what [`Queue::arm`] began and consumes the wake-up.
    fn disarm(&mut self);

    /// What this queue has moved and lost so far.
    fn counters(&self) -> Counters;
}
