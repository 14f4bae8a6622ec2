//! What a socket tells beside its bytes: with MSG_ERRQUEUE, that what was sent with MSG_ZEROCOPY is
//! not needed any more, and when what was sent has left and arrived (SO_TIMESTAMPING); with
//! TCP_INQ, how much more there is to read.

use std::collections::{HashMap, VecDeque};

use clearway_base::{SECOND, Time};
use clearway_tcp::{Extent, Family, Socket};

use crate::state::State;
use crate::{Errno, Host};

/// Of Linux, `linux/errqueue.h`, `linux/net_tstamp.h` and `linux/tcp.h`.
const ORIGIN_TIMESTAMPING: u8 = 4;
const ORIGIN_ZEROCOPY: u8 = 5;
/// The bytes were copied all the same, as they are here.
const CODE_COPIED: u8 = 1;
const WANTS_DEPARTURE: i32 = 1 << 1;
const WANTS_NUMBERS: i32 = 1 << 7;
const WANTS_SCHEDULE: i32 = 1 << 8;
const WANTS_ARRIVAL: i32 = 1 << 9;
const WANTS_NO_BYTES: i32 = 1 << 11;
pub(crate) const TCP_INQ: i32 = 36;
pub(crate) const SO_TIMESTAMPING: i32 = libc::SO_TIMESTAMPING;

/// A part of a `struct cmsghdr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// `cmsg_level` and `cmsg_type`.
    pub level: i32,
    /// See `level`.
    pub kind: i32,
    /// What stands behind the header.
    pub data: Vec<u8>,
}

/// What `recvmsg` gives beside the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// How many bytes there were.
    pub length: usize,
    /// `msg_flags`.
    pub flags: i32,
    /// `msg_control`.
    pub control: Vec<Control>,
}

/// What waits to be told.
#[derive(Clone, Copy, Debug)]
enum Notice {
    /// The sends with these numbers are over.
    Unneeded { first: u32, last: u32 },
    /// Byte `number` has come so far at a time.
    Reached { stage: Stage, number: u32, at: Time, has_bytes: bool },
}

/// SCM_TSTAMP_SND, SCM_TSTAMP_SCHED and SCM_TSTAMP_ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Departed = 0,
    Scheduled = 1,
    Arrived = 2,
}

/// What is to be told of the last piece of a send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    socket: Socket,
    /// The number of a send with MSG_ZEROCOPY.
    send: Option<u32>,
    /// The number of its last byte, and what SO_TIMESTAMPING wants.
    stamp: Option<(u32, i32)>,
    has_left: bool,
    /// The send waits for room: there may be more of it, and then nothing is told of this piece.
    is_open: bool,
}

#[derive(Debug, Default)]
struct Queue {
    /// Sends with MSG_ZEROCOPY, and bytes since they have numbers.
    sends: u32,
    bytes: u32,
    waiting: VecDeque<Notice>,
}

/// Those of all sockets that have any.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    queues: HashMap<Socket, Queue>,
}

impl Notices {
    pub(crate) fn has_any(&self, socket: Socket) -> bool {
        self.queues.get(&socket).is_some_and(|queue| !queue.waiting.is_empty())
    }

    pub(crate) fn forget(&mut self, socket: Socket) {
        self.queues.remove(&socket);
    }

    /// Bytes have numbers from now on, with `queued_bytes` that are not acknowledged.
    pub(crate) fn number_bytes(&mut self, socket: Socket, queued_bytes: u64) {
        self.queues.entry(socket).or_default().bytes = queued_bytes as u32;
    }

    fn tell(&mut self, socket: Socket, notice: Notice) -> bool {
        let Some(queue) = self.queues.get_mut(&socket) else { return false };
        if let (Some(Notice::Unneeded { last, .. }), Notice::Unneeded { first, last: end }) =
            (queue.waiting.back_mut(), notice)
            && last.wrapping_add(1) == first
        {
            *last = end;
            return true;
        }
        queue.waiting.push_back(notice);
        true
    }
}

/// What a send wants to be told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    is_zero_copy: bool,
    stamps: i32,
    /// It waits for room.
    is_patient: bool,
    /// The number of the send, once it has one.
    send: Option<u32>,
    /// The last piece so far, and what is to be told of it.
    last: Option<(Extent, Note)>,
}

impl Wanted {
    /// What a send with `flags` through a descriptor wants, which waits for room if it
    /// `is_patient`.
    pub(crate) fn of(state: &State, fd: i32, flags: i32, is_patient: bool) -> Result<Self, Errno> {
        let noted = &state.descriptors.get(fd)?.noted;
        let value = |name| noted.get(&(libc::SOL_SOCKET, name)).copied().unwrap_or(0);
        let is_zero_copy = flags & libc::MSG_ZEROCOPY != 0 && value(libc::SO_ZEROCOPY) != 0;
        let stamps = value(SO_TIMESTAMPING);
        Ok(Self { is_zero_copy, stamps, is_patient, ..Self::default() })
    }

    /// The next piece of it has been taken, which is the last one if it `is_end`: what is told is
    /// told of that.
    pub(crate) fn on_piece(
        &mut self,
        state: &mut State,
        socket: Socket,
        extent: Extent,
        is_end: bool,
    ) {
        if !self.is_zero_copy && self.stamps == 0 {
            return;
        }
        let queue = state.notices.queues.entry(socket).or_default();
        queue.bytes = queue.bytes.wrapping_add(extent.length);
        if self.is_zero_copy && self.send.is_none() {
            self.send = Some(queue.sends);
            queue.sends = queue.sends.wrapping_add(1);
        }
        let number = if self.stamps & WANTS_NUMBERS == 0 { 0 } else { queue.bytes.wrapping_sub(1) };
        let stamp = (self.stamps != 0).then_some((number, self.stamps));
        let is_open = self.is_patient && !is_end;
        let note = Note { socket, send: self.send, stamp, has_left: false, is_open };
        if let Some((before, _)) = self.last.replace((extent, note)) {
            state.store.set_note(before, None);
        }
        state.store.set_note(extent, Some(note));
    }

    /// The send is over: if not all of it was taken, the last piece so far is the last.
    pub(crate) fn end(&self, state: &mut State) {
        let Some((extent, note)) = self.last.filter(|(_, note)| note.is_open) else { return };
        let note = Note { is_open: false, ..note };
        let has_left = match state.store.note_mut(extent) {
            Some(kept) => {
                kept.is_open = false;
                kept.has_left
            }
            None => {
                state.store.notes_done.push(note);
                state.is_alive(note.socket)
            }
        };
        if has_left {
            state.tell_departure(&note);
        }
    }
}

impl State {
    /// What ends with `extent` leaves.
    pub(crate) fn on_departure(&mut self, extent: Extent) {
        let Some(note) = self.store.note_mut(extent).filter(|note| !note.has_left) else { return };
        note.has_left = true;
        let note = *note;
        if !note.is_open {
            self.tell_departure(&note);
        }
    }

    fn tell_departure(&mut self, note: &Note) {
        self.stamp(note, WANTS_SCHEDULE, Stage::Scheduled);
        self.stamp(note, WANTS_DEPARTURE, Stage::Departed);
    }

    fn is_alive(&self, socket: Socket) -> bool {
        self.sockets.status(socket).is_some_and(|status| status.end.is_none())
    }

    /// Pieces have been given back. Those of connections that are over have not arrived.
    pub(crate) fn on_given_back(&mut self) {
        for note in std::mem::take(&mut self.store.notes_done) {
            if note.is_open {
                continue; // its send goes on, or says so when it is over
            }
            if self.is_alive(note.socket) {
                self.stamp(&note, WANTS_ARRIVAL, Stage::Arrived);
            }
            if let Some(send) = note.send {
                self.tell(note.socket, Notice::Unneeded { first: send, last: send });
            }
        }
    }

    fn stamp(&mut self, note: &Note, flag: i32, stage: Stage) {
        if let Some((number, wanted)) = note.stamp.filter(|(_, wanted)| wanted & flag != 0) {
            let has_bytes = wanted & WANTS_NO_BYTES == 0;
            let at = self.now;
            self.tell(note.socket, Notice::Reached { stage, number, at, has_bytes });
        }
    }

    fn tell(&mut self, socket: Socket, notice: Notice) {
        if self.notices.tell(socket, notice) {
            self.store.changed.push(socket);
        }
    }

    /// What MSG_ERRQUEUE gives.
    pub(crate) fn take_notice(&mut self, socket: Socket) -> Result<Message, Errno> {
        let queue = self.notices.queues.get_mut(&socket).ok_or(Errno::EAGAIN)?;
        let notice = queue.waiting.pop_front().ok_or(Errno::EAGAIN)?;
        let family = self.sockets.family(socket)?;
        Ok(match notice {
            Notice::Unneeded { first, last } => Message {
                length: 0,
                flags: libc::MSG_ERRQUEUE,
                control: vec![error(family, 0, ORIGIN_ZEROCOPY, CODE_COPIED, first, last)],
            },
            Notice::Reached { stage, number, at, has_bytes } => {
                let errno = libc::ENOMSG as u32;
                let truncated = if has_bytes { libc::MSG_TRUNC } else { 0 };
                let what = error(family, errno, ORIGIN_TIMESTAMPING, 0, stage as u32, number);
                Message {
                    length: 0,
                    flags: libc::MSG_ERRQUEUE | truncated,
                    control: vec![timestamp(at), what],
                }
            }
        })
    }
}

/// IP_RECVERR, or that of IPv6: a `struct sock_extended_err`, and no address.
fn error(family: Family, errno: u32, origin: u8, code: u8, info: u32, data: u32) -> Control {
    let (level, kind, address_bytes) = match family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_RECVERR, size_of::<libc::sockaddr_in>()),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, size_of::<libc::sockaddr_in6>()),
    };
    let mut bytes = errno.to_ne_bytes().to_vec();
    bytes.extend([origin, 0, code, 0]);
    bytes.extend(info.to_ne_bytes());
    bytes.extend(data.to_ne_bytes());
    bytes.resize(bytes.len() + address_bytes, 0);
    Control { level, kind, data: bytes }
}

/// SCM_TIMESTAMPING: three `struct timespec`, of which the first means something.
fn timestamp(at: Time) -> Control {
    let words = [at.as_ns() / SECOND, at.as_ns() % SECOND, 0, 0, 0, 0];
    let data = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    Control { level: libc::SOL_SOCKET, kind: SO_TIMESTAMPING, data }
}

impl Host {
    /// Reads, and what there is to be told beside it: `recvmsg`.
    pub fn recv_message(&self, fd: i32, place: &mut [u8], flags: i32) -> Result<Message, Errno> {
        if flags & libc::MSG_ERRQUEUE != 0 {
            return self.call(|state| {
                let socket = state.descriptors.socket(fd)?;
                state.take_notice(socket)
            });
        }
        let length = self.recv(fd, place, flags)?;
        let control = self.call(|state| {
            let noted = &state.descriptors.get(fd)?.noted;
            if noted.get(&(libc::IPPROTO_TCP, TCP_INQ)).is_none_or(|value| *value == 0) {
                return Ok(Vec::new());
            }
            let status = state.sockets.status(state.descriptors.socket(fd)?);
            // The end counts as a byte, as with Linux.
            let more = status.map_or(0, |status| match status.unread_bytes {
                0 => i32::from(status.is_finished),
                bytes => i32::try_from(bytes).unwrap_or(i32::MAX),
            });
            let data = more.to_ne_bytes().to_vec();
            Ok(vec![Control { level: libc::IPPROTO_TCP, kind: TCP_INQ, data }])
        })?;
        Ok(Message { length, flags: 0, control })
    }
}
