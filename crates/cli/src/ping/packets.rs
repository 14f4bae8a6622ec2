//! Probes that the local daemon sends.

use std::net::SocketAddr;
use std::time::Duration;

use clearway_channel::control::{Ping, Pong, Refusal, Reply, Request};

use super::Arguments;
use crate::client::{Client, PATIENCE, unexpected};
use crate::output::Failure;
use crate::stop::Stop;
use crate::zone;

/// A request in work.
pub(super) struct Packets {
    client: Client,
    /// Within which something is heard.
    patience: Duration,
    is_over: bool,
}

/// What comes of it.
pub(super) enum Next {
    Pong(Pong),
    Refused(Refusal),
    /// There was a Ctrl-C.
    Interrupted,
    /// All is told.
    End,
}

impl Packets {
    pub(super) fn begin(arguments: &Arguments, peer: SocketAddr) -> Result<Self, Failure> {
        let client = Client::connect(arguments.socket.as_deref())?;
        let (interval, timeout) = (arguments.interval(), arguments.timeout());
        let ping = Ping {
            peer: peer.ip(),
            zone: zone::of(peer)?,
            udp_port: arguments.udp_port,
            count: arguments.count(),
            interval_ms: interval.as_millis() as u32,
            eager: arguments.is_eager(),
            timeout_ms: timeout.as_millis() as u32,
            // Larger ones are messages.
            bytes: arguments.size as u16,
        };
        let patience = interval + timeout + PATIENCE;
        client.request(&Request::Ping(ping), patience)?;
        Ok(Self { client, patience, is_over: false })
    }

    pub(super) fn next(&mut self, stop: &Stop) -> Result<Next, Failure> {
        if self.is_over {
            return Ok(Next::End);
        }
        if !stop.comes_after(&self.client, self.patience)? {
            return Ok(Next::Interrupted);
        }
        match self.client.reply()? {
            Reply::Pong(pong) => {
                self.is_over = pong.last;
                Ok(Next::Pong(pong))
            }
            Reply::Error(refusal) => Ok(Next::Refused(refusal)),
            _ => Err(unexpected()),
        }
    }
}
