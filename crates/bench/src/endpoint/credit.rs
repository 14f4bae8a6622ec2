//! Small messages of several connections in turn, to a receiver that has given their senders credit
//! for few messages, or for very many.

use super::{Clearway, Endpoint};
use clearway_client::ConnectionId;
use serde::{Deserialize, Serialize};
use std::io;

/// Connections that take turns. Each has the sixteenth of its receiver's pool as credit.
pub(crate) const CONNECTIONS: usize = 16;

/// How much credit there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Credit {
    /// For 512 messages of 64 bytes: the smallest pool.
    Little,
    /// For 1,048,576.
    Much,
}

impl Credit {
    /// A message takes as many positions as it has bytes, and 64 besides (`docs/wire.md`).
    pub(crate) const fn pool_bytes(self) -> u32 {
        match self {
            Self::Little => 64 << 10,
            Self::Much => 128 << 20,
        }
    }
}

/// The end that asks, one message at a time: between connections there is no order.
pub(crate) struct InTurn {
    end: Clearway,
    connections: Vec<ConnectionId>,
    next: usize,
}

impl InTurn {
    pub(crate) fn new(end: Clearway, connections: Vec<ConnectionId>) -> Self {
        Self { end, connections, next: 0 }
    }
}

impl Endpoint for InTurn {
    fn waits(&self) -> bool {
        self.end.waits()
    }

    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        let is_sent = self.end.send_to(self.connections[self.next], message)?;
        if is_sent {
            self.next = (self.next + 1) % self.connections.len();
        }
        Ok(is_sent)
    }

    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        self.end.receive()
    }

    fn reply(&mut self, length: usize) -> io::Result<bool> {
        self.end.reply(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.end.flush()
    }
}
