//! Sending: frames collect in buffers of our own, and leave as few messages with as few system
//! calls as can be.
//!
//! ```text
//!  frames, in order:  a a a a' b c c c      a: one flow, one size; a' shorter
//!  messages:         [a a a a'][b][c c c]   one UDP_SEGMENT each
//!  system calls:     [ socket 1   ][ 2 ]    messages in a row that leave from one port
//! ```

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;

use super::control::{Control, Name, Writer, mtu_of_error};
use super::frame::{Datagram, Flow, TOO_LARGE_BYTES_MAX, too_large};
use super::socket::{Family, Sockets};
use crate::batch::Batch;

/// Messages per system call.
const MESSAGES: usize = 32;
/// `UDP_MAX_SEGMENTS` of linux/udp.h, as long as it has been there.
const SEGMENTS_MAX: usize = 64;
/// What fits in one packet behind the headers of IPv6 and UDP, which is as much as the kernel takes
/// in one message.
const MESSAGE_BYTES_MAX: usize = 65_535 - 40 - 8;
/// ICMP messages that wait for the engine. Others will follow.
const NEWS_MAX: usize = 8;
/// Entries of an error queue that are read at a time: more than a call can add.
const ERRORS_MAX: usize = 64;

/// What became of the frames that were queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) frames: u64,
    pub(super) bytes: u64,
    pub(super) dropped: u64,
}

/// The frames that wait for the next flush, in order.
pub(super) struct Sender {
    buffers: Vec<u8>,
    buffer_bytes: usize,
    frames: Vec<Waiting>,
    /// How many of them have left already.
    gone: usize,
    /// The kernel makes packets of segments.
    segments: bool,
    /// Frames before this one go alone: the kernel did not take them together.
    alone_until: usize,
    pieces: Vec<libc::iovec>,
    names: [Name; MESSAGES],
    controls: [Control; MESSAGES],
    /// What a router would say of frames that were too large.
    news: Vec<Vec<u8>>,
}

// SAFETY: the pointers in `pieces` are made and used within one call of `send_batch`.
unsafe impl Send for Sender {}

/// A frame that waits.
#[derive(Clone, Copy)]
struct Waiting {
    datagram: Datagram,
    frame_bytes: usize,
}

/// A message of the batch that is being put together.
#[derive(Clone, Copy, Default)]
struct Planned {
    frames: usize,
    name_bytes: u32,
    control_bytes: usize,
}

impl Sender {
    pub(super) fn new(descriptors: usize, buffer_bytes: usize) -> Sender {
        Sender {
            buffers: vec![0; descriptors * buffer_bytes],
            buffer_bytes,
            frames: Vec::with_capacity(descriptors),
            gone: 0,
            segments: true,
            alone_until: 0,
            pieces: Vec::with_capacity(descriptors),
            names: [Name::empty(); MESSAGES],
            controls: [Control::EMPTY; MESSAGES],
            news: Vec::new(),
        }
    }

    /// The next free buffer; `None` if all are in use.
    #[inline]
    pub(super) fn free_buffer(&mut self) -> Option<&mut [u8]> {
        let start = self.frames.len() * self.buffer_bytes;
        self.buffers.get_mut(start..start + self.buffer_bytes)
    }

    /// Queues `length` bytes of the buffer that was last free. False if that is nothing for a UDP
    /// socket.
    #[inline]
    pub(super) fn push(&mut self, length: usize) -> bool {
        let start = self.frames.len() * self.buffer_bytes;
        let Some(datagram) = Datagram::of(&self.buffers[start..start + length]) else {
            return false;
        };
        self.frames.push(Waiting { datagram, frame_bytes: length });
        true
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// True as long as the kernel makes packets of segments.
    pub(super) fn segments(&self) -> bool {
        self.segments
    }

    /// The next frame that the engine is to hear of, as if it had been received.
    pub(super) fn next_news(&mut self) -> Option<Vec<u8>> {
        self.news.pop()
    }

    pub(super) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Hands the queued frames to the kernel. What it has no room for now stays queued.
    pub(super) fn send(&mut self, sockets: &Sockets) -> Sent {
        let mut sent = Sent::default();
        let mut is_second_try = false;
        while self.gone < self.frames.len() {
            let socket = sockets.at_port(self.frames[self.gone].datagram.flow.source.port());
            match self.send_batch(socket, sockets) {
                Ok(count) => {
                    let done = &self.frames[self.gone..self.gone + count];
                    sent.frames += count as u64;
                    sent.bytes += done.iter().map(|frame| frame.frame_bytes as u64).sum::<u64>();
                    self.gone += count;
                    is_second_try = false;
                }
                // The socket's send buffer is full of packets that a NIC has yet to send.
                Err((Errno::AGAIN, _)) => return sent,
                Err((Errno::INTR, _)) => {}
                Err((errno, frames)) if frames > 1 => self.split(errno, frames),
                // Perhaps it is about a packet that has left long ago, which may have been too
                // large for its way: such news come once.
                Err(_) if !is_second_try => {
                    forget_errors(socket);
                    is_second_try = true;
                }
                Err((errno, _)) => {
                    self.give_up(errno, socket);
                    sent.dropped += 1;
                    is_second_try = false;
                }
            }
        }
        self.frames.clear();
        (self.gone, self.alone_until) = (0, 0);
        sent
    }

    /// The kernel does not take these frames together.
    #[cold]
    fn split(&mut self, errno: Errno, frames: usize) {
        // What leaves by a device or tunnel that has no checksums cannot be segmented (udp(7)).
        self.segments &= errno != Errno::IO;
        self.alone_until = self.gone + frames;
    }

    /// Drops the next frame. If it was too large, the engine is told.
    #[cold]
    fn give_up(&mut self, errno: Errno, socket: BorrowedFd<'_>) {
        let start = self.gone * self.buffer_bytes;
        let Waiting { datagram, frame_bytes } = self.frames[self.gone];
        self.gone += 1;
        let mtu = forget_errors(socket);
        if errno != Errno::MSGSIZE || self.news.len() >= NEWS_MAX {
            return;
        }
        // A socket that is told of no errors has no number: 0 is what old routers say, who do not
        // know it either (RFC 1191, section 5).
        let mtu = mtu.unwrap_or(0);
        let mut answer = vec![0; TOO_LARGE_BYTES_MAX];
        let frame = &self.buffers[start..start + frame_bytes];
        let length = too_large(frame, &datagram, mtu, &mut answer);
        answer.truncate(length);
        self.news.push(answer);
    }

    /// How many of the frames from `first` on can be one message.
    fn segments_from(&self, first: usize) -> usize {
        let Waiting { datagram: Datagram { flow, length, .. }, .. } = self.frames[first];
        if !self.segments || first < self.alone_until || length == 0 {
            return 1;
        }
        let (mut count, mut bytes) = (1, length);
        for next in &self.frames[first + 1..] {
            let Datagram { flow: other, length: more, .. } = next.datagram;
            let fits = count < SEGMENTS_MAX && bytes + more <= MESSAGE_BYTES_MAX;
            if !fits || more > length || more == 0 || other != flow {
                break;
            }
            (count, bytes) = (count + 1, bytes + more);
            if more < length {
                break;
            }
        }
        count
    }

    /// Sends the next frames that leave from `socket`. Returns how many did; or why the first
    /// message did not, and how many frames it had.
    fn send_batch(
        &mut self,
        socket: BorrowedFd<'_>,
        sockets: &Sockets,
    ) -> Result<usize, (Errno, usize)> {
        let port = self.frames[self.gone].datagram.flow.source.port();
        let mut planned = [Planned::default(); MESSAGES];
        let (mut count, mut next) = (0, self.gone);
        self.pieces.clear();
        while count < MESSAGES && next < self.frames.len() {
            let flow = self.frames[next].datagram.flow;
            if flow.source.port() != port {
                break;
            }
            let frames = self.segments_from(next);
            planned[count] = self.plan(count, next, frames, sockets.family);
            next += frames;
            count += 1;
        }
        let mut pieces = self.pieces.as_mut_slice();
        let mut batch = Batch::<MESSAGES>::new();
        for (index, message) in planned[..count].iter().enumerate() {
            let (own, others) = pieces.split_at_mut(message.frames);
            pieces = others;
            let header = batch.add();
            header.msg_name = std::ptr::from_mut(&mut self.names[index]).cast();
            header.msg_namelen = message.name_bytes;
            header.msg_iov = own.as_mut_ptr();
            header.msg_iovlen = own.len() as _;
            header.msg_control = self.controls[index].0.as_mut_ptr().cast();
            header.msg_controllen = message.control_bytes as _;
        }
        // SAFETY: the messages point to names, control data and pieces, and these to buffers, that
        // live until the call returns.
        let sent = unsafe { batch.send(socket) }.map_err(|errno| (errno, planned[0].frames))?;
        Ok(planned[..sent].iter().map(|message| message.frames).sum())
    }

    /// Writes the name, the control data and the pieces of a message of `frames` frames.
    fn plan(&mut self, index: usize, first: usize, frames: usize, family: Family) -> Planned {
        let Datagram { flow, length, .. } = self.frames[first].datagram;
        let Flow { source, destination, traffic_class } = flow;
        let (name, name_bytes) = Name::of(family, destination);
        self.names[index] = name;
        let mut control = Writer::new(&mut self.controls[index]);
        control.source(source.ip());
        if traffic_class != 0 {
            control.traffic_class(destination.ip(), traffic_class);
        }
        if frames > 1 {
            control.segment_bytes(length as u16); // of a packet
        }
        let control_bytes = control.length();
        for (frame, waiting) in self.frames[first..first + frames].iter().enumerate() {
            let Datagram { start, length, .. } = waiting.datagram;
            let at = (first + frame) * self.buffer_bytes + start;
            let payload = &mut self.buffers[at..at + length];
            let iov_base = payload.as_mut_ptr().cast();
            self.pieces.push(libc::iovec { iov_base, iov_len: length });
        }
        Planned { frames, name_bytes, control_bytes }
    }
}

impl Sockets {
    /// The socket that sends what is to leave from `port`: the one that has it, else always the
    /// same of the others.
    #[inline]
    fn at_port(&self, port: u16) -> BorrowedFd<'_> {
        if port == self.port {
            return self.receiver.as_fd();
        }
        let index = match self.senders.binary_search_by_key(&port, |(port, _)| *port) {
            Ok(index) => index,
            // The low bits of ports are random.
            Err(_) => usize::from(port) % self.senders.len(),
        };
        self.senders[index].1.as_fd()
    }
}

/// Empties the error queue of a socket. Returns the largest packet that a path takes, if one of
/// the errors was about that: the last.
#[cold]
fn forget_errors(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut mtu = None;
    for _ in 0..ERRORS_MAX {
        let mut control = ErrorControl([0; 512]);
        // SAFETY: all-zero is valid: no bytes, no address, no control data.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the message points to room for control data of its length, that lives until the
        // call returns.
        let outcome = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        if outcome < 0 {
            break;
        }
        mtu = mtu_of_error(&message).or(mtu);
    }
    mtu
}

/// Room for what an error queue says, aligned as control messages are.
#[repr(C, align(8))]
struct ErrorControl([u8; 512]);
