//! Receiving: a batch of messages per system call, each one packet or many that came coalesced.
//!
//! ```text
//!  a message's buffer:  ┌ room for headers ┬ payload of the first ┬ second ┬ third ┐
//!                       └── frame 1 ───────────────────────────── ┘ │         │
//!  slots for frames:                          ┌ headers ┬ second ┐ ◀┘         │
//!                                             ┌ headers ┬ third ┐ ◀───────────┘
//! ```
//!
//! The first packet of a message is made a frame where it is. The others have no room for headers
//! before them, and are copied.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use super::control::{Control, Name, Received};
use super::frame::{Flow, HEADERS_MAX, Headers};
use crate::batch::Batch;
use crate::burst::Burst;
use crate::{BURST_FRAMES, Sink};

/// Messages per system call, at most. A call asks for one, which is all that a conversation has,
/// and for so many times more whenever it was given all that it asked for: to be told that there is
/// no other costs the kernel as much as half a call.
const MESSAGES: usize = 16;
const GROWTH: usize = 4;
/// Room for headers before a message. What follows begins a cache line.
const HEADROOM: usize = 64;
const _: () = assert!(HEADERS_MAX <= HEADROOM);
/// The largest UDP payload, and a little more.
const MESSAGE_BYTES: usize = 1 << 16;
const BUFFER_BYTES: usize = HEADROOM + MESSAGE_BYTES;

/// Where a frame is.
type Extent = std::ops::Range<usize>;

/// What was received, and has yet to be shown.
pub(super) struct Receiver {
    /// Buffers of messages, then slots for frames.
    memory: Vec<u8>,
    names: [Name; MESSAGES],
    controls: [Control; MESSAGES],
    lengths: [Message; MESSAGES],
    /// Messages that the next call asks for.
    wanted: usize,
    /// Messages that the last call brought, and which of them is next.
    count: usize,
    next: usize,
    /// The message before `next`, as far as it has not been shown.
    rest: Option<Rest>,
    slot_bytes: usize,
    frame_bytes_max: usize,
    /// The port that messages come to.
    port: u16,
}

/// What the kernel says of a message.
#[derive(Clone, Copy, Default)]
struct Message {
    bytes: usize,
    control_bytes: usize,
    is_truncated: bool,
}

/// A message of which some packets have been shown.
#[derive(Clone, Copy)]
struct Rest {
    headers: Headers,
    /// Where in the memory its payload is that has not been shown.
    at: usize,
    end: usize,
    segment_bytes: usize,
    /// There is room for headers before it.
    is_first: bool,
}

/// What was shown, and what was not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shown {
    pub(super) frames: usize,
    pub(super) bytes: usize,
    pub(super) dropped: usize,
}

impl Receiver {
    pub(super) fn new(port: u16, frame_bytes_max: usize) -> Receiver {
        let slot_bytes = frame_bytes_max.next_multiple_of(64);
        Receiver {
            memory: vec![0; MESSAGES * BUFFER_BYTES + BURST_FRAMES * slot_bytes],
            names: [Name::empty(); MESSAGES],
            controls: [Control::EMPTY; MESSAGES],
            lengths: [Message::default(); MESSAGES],
            wanted: 1,
            count: 0,
            next: 0,
            rest: None,
            slot_bytes,
            frame_bytes_max,
            port,
        }
    }

    /// True if there is something that was received and has not been shown.
    #[inline]
    pub(super) fn has_waiting(&self) -> bool {
        self.rest.is_some() || self.next < self.count
    }

    /// Takes messages from the socket. True if there are so many that another call is worth it at
    /// once. Only when all that was taken before has been shown.
    pub(super) fn take(&mut self, socket: &OwnedFd) -> bool {
        debug_assert!(!self.has_waiting());
        (self.count, self.next) = (0, 0);
        let wanted = self.wanted;
        let mut pieces = [const { MaybeUninit::uninit() }; MESSAGES];
        let mut batch = Batch::<MESSAGES>::new();
        let buffers = self.memory.as_chunks_mut::<BUFFER_BYTES>().0;
        let places = self.names.iter_mut().zip(&mut self.controls).zip(buffers);
        for (piece, ((name, control), buffer)) in pieces.iter_mut().zip(places).take(wanted) {
            let buffer = &mut buffer[HEADROOM..];
            let (iov_base, iov_len) = (buffer.as_mut_ptr().cast(), buffer.len());
            let header = batch.add();
            header.msg_name = std::ptr::from_mut(name).cast();
            header.msg_namelen = Name::BYTES_MAX;
            header.msg_iov = piece.write(libc::iovec { iov_base, iov_len });
            header.msg_iovlen = 1;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = control.0.len() as _;
        }
        // SAFETY: each message points to a name, a piece with its buffer, and room for control
        // data, with their lengths; all of them live until the call returns, and are nobody else's.
        let messages = unsafe { batch.receive(socket.as_fd()) };
        // What is behind an error comes with the next turn.
        let messages = messages.unwrap_or_default();
        for (message, kernels) in self.lengths.iter_mut().zip(messages) {
            *message = Message {
                bytes: kernels.msg_len as usize,
                control_bytes: kernels.msg_hdr.msg_controllen,
                is_truncated: kernels.msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0,
            };
        }
        self.count = messages.len();
        let is_full = self.count == wanted;
        self.wanted = if is_full { MESSAGES.min(wanted * GROWTH) } else { self.count.max(1) };
        is_full && wanted == MESSAGES
    }

    /// Shows the next frames, at most `budget`, in one burst.
    pub(super) fn show(&mut self, budget: usize, sink: &mut Sink<'_>) -> Shown {
        let mut shown = Shown::default();
        let mut frames: [Extent; BURST_FRAMES] = [const { 0..0 }; BURST_FRAMES];
        while shown.frames < budget.min(BURST_FRAMES) {
            let Some(rest) = self.rest.take().or_else(|| self.open_next(&mut shown)) else { break };
            let frame = self.frame(rest, shown.frames);
            shown.bytes += frame.len();
            frames[shown.frames] = frame;
            shown.frames += 1;
        }
        let mut burst = Burst::new();
        frames[..shown.frames].iter().for_each(|frame| burst.push(&self.memory[frame.clone()]));
        burst.show(sink);
        shown
    }

    /// Begins the next message that can be shown.
    fn open_next(&mut self, shown: &mut Shown) -> Option<Rest> {
        while self.next < self.count {
            let index = self.next;
            self.next += 1;
            match self.open(index) {
                Some(rest) => return Some(rest),
                None => shown.dropped += 1,
            }
        }
        None
    }

    fn open(&mut self, index: usize) -> Option<Rest> {
        let Message { bytes, control_bytes, is_truncated } = self.lengths[index];
        if is_truncated {
            return None;
        }
        // SAFETY: all-zero is valid, as in `take`.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_control = self.controls[index].0.as_mut_ptr().cast();
        message.msg_controllen = control_bytes as _;
        let received = Received::read(&message);
        let flow = Flow {
            source: self.names[index].address()?,
            destination: SocketAddr::new(received.destination?, self.port),
            traffic_class: received.traffic_class,
        };
        let segment_bytes = received.segment_bytes.unwrap_or(bytes).min(bytes);
        let headers = Headers::new(flow, segment_bytes)?;
        if headers.length() + segment_bytes > self.frame_bytes_max {
            return None;
        }
        let at = index * BUFFER_BYTES + HEADROOM;
        Some(Rest { headers, at, end: at + bytes, segment_bytes, is_first: true })
    }

    /// Makes the next frame of a message, the one of this place in its burst, and keeps what is
    /// left.
    #[inline]
    fn frame(&mut self, mut rest: Rest, place: usize) -> Extent {
        let payload = rest.at..rest.end.min(rest.at + rest.segment_bytes);
        let start = if rest.is_first {
            payload.start
        } else {
            let slot = MESSAGES * BUFFER_BYTES + place * self.slot_bytes + rest.headers.length();
            self.memory.copy_within(payload.clone(), slot);
            slot
        };
        rest.headers.put(&mut self.memory[..start], payload.len());
        let frame = start - rest.headers.length()..start + payload.len();
        if payload.end < rest.end {
            self.rest = Some(Rest { at: payload.end, is_first: false, ..rest });
        }
        frame
    }
}
