//! An app at its end of a channel, which does nothing but open and end connections.

use clearway_channel::{AppEnd, Code, Command, Completion, DaemonEnd, Sizes};
use std::io;
use std::net::SocketAddr;

const SIZES: Sizes = Sizes {
    submission_entries: 64,
    completion_entries: 64,
    transmit_pool_bytes: 64 << 10,
    receive_pool_bytes: 64 << 10,
    shared_bytes: 0,
};

#[derive(Debug)]
pub(super) struct App {
    end: AppEnd,
    /// What it was told last.
    pub(super) connected: Option<u64>,
    pub(super) accepted: Option<u64>,
    pub(super) failed: Option<Code>,
    pub(super) closed: Option<u64>,
}

impl App {
    /// An app, and the other end of its channel, which belongs to an engine.
    pub(super) fn new() -> io::Result<(Self, DaemonEnd)> {
        let (daemon_end, handover) = DaemonEnd::create(SIZES)?;
        let end = AppEnd::open(handover, SIZES).map_err(io::Error::other)?;
        let app = Self { end, connected: None, accepted: None, failed: None, closed: None };
        Ok((app, daemon_end))
    }

    pub(super) fn connect(&mut self, peer: SocketAddr) {
        self.submit(&Command::Connect { token: 1, peer });
    }

    pub(super) fn close(&mut self, connection: u64) {
        self.submit(&Command::Close { connection, abort: false });
    }

    /// There is never more than one command under way.
    fn submit(&mut self, command: &Command) {
        self.end.submit(command).expect("room for one command");
        self.end.flush();
    }

    pub(super) fn poll(&mut self) -> io::Result<()> {
        while let Some(told) = self.end.next_told().map_err(io::Error::other)? {
            match told.completion() {
                Completion::Connected { connection, .. } => self.connected = Some(connection),
                Completion::Accepted { connection, .. } => self.accepted = Some(connection),
                Completion::ConnectFailed { code, .. } => self.failed = Some(code),
                Completion::Closed { connection, .. } => self.closed = Some(connection),
                _ => {}
            }
        }
        Ok(())
    }
}
