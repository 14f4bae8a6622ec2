//! One end of a connection between two apps, each at its end of a channel.

use clearway_channel::{
    AppEnd, Command, Completion, Extent, Operated, OperationKind, Received, Told,
};
use std::collections::VecDeque;

/// One end of a connection.
pub(crate) struct End {
    pub(crate) app: AppEnd,
    connection: u64,
    /// Sent and not finished.
    sent: VecDeque<Extent>,
    finished: u32,
    /// Received so far.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl End {
    pub(crate) fn new((app, connection): (AppEnd, u64)) -> Self {
        Self { app, connection, sent: VecDeque::new(), finished: 0, messages: 0, bytes: 0 }
    }

    /// Messages that were sent and are not finished.
    pub(crate) fn under_way(&self) -> usize {
        self.sent.len()
    }

    /// Sends so many bytes, if there is room.
    pub(crate) fn send(&mut self, length: u32) {
        if !self.app.has_room() {
            return;
        }
        let Some(extent) = self.app.allocate(length) else { return };
        let (connection, offset) = (self.connection, extent.offset());
        let send = Command::Send { connection, stream: 0, offset, length };
        self.app.submit(&send).expect("there is room");
        self.sent.push_back(extent);
    }

    /// Takes what has come; returns how many messages that were.
    pub(crate) fn poll(&mut self) -> usize {
        let before = self.messages;
        while let Some(told) = self.app.next_told().expect("the engine is our own") {
            match told {
                Told::Message(Received { bytes, sent, .. }) => {
                    self.free_up_to(sent);
                    self.messages += 1;
                    self.bytes += u64::from(bytes.length());
                    self.app.release(bytes);
                }
                Told::Other(Completion::Sent { sent, .. }) => self.free_up_to(sent),
                other => panic!("nobody asked for {other:?}"),
            }
        }
        (self.messages - before) as usize
    }

    /// Begins a read of the first `bytes` of a region; false if there is no room.
    pub(crate) fn read(&mut self, region: u64, token: u64, bytes: u32) -> bool {
        let ask = Command::Ask {
            kind: OperationKind::Read as u8,
            stride: 0,
            connection: self.connection,
            token,
            region,
            place: 0,
            bytes,
            count: 0,
            operand: 0,
            second: 0,
        };
        self.app.has_room() && self.app.submit(&ask).is_ok()
    }

    /// Takes what reads have brought; returns how many are over.
    pub(crate) fn take_reads(&mut self) -> u64 {
        let mut over = 0;
        while let Some(told) = self.app.next_told().expect("the engine is our own") {
            match told {
                Told::Operated(Operated { status: 0, bytes: Some(bytes), .. }) => {
                    self.app.release(bytes)
                }
                other => panic!("a read brings {other:?}"),
            }
            over += 1;
        }
        over
    }

    fn free_up_to(&mut self, finished: u32) {
        while self.finished != finished {
            self.finished = self.finished.wrapping_add(1);
            let extent = self.sent.pop_front().expect("no more finished than were sent");
            self.app.free(extent);
        }
    }
}
