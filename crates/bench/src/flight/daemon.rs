//! A running daemon, asked over its control socket.

use crate::kernel::START_PATIENCE;
use clearway_channel::control::{self, Empty, Ping, Probe, Reply, Request};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::Value;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Probes that are sent, one after the other.
const PROBES: u32 = 200;
/// How long the answer to one may take.
const PATIENCE_MS: u32 = 1000;

/// A connection to it.
pub(super) struct Daemon(OwnedFd);

impl Daemon {
    /// Waits for a daemon that has just been started: its socket is there before it listens.
    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            match connected(path) {
                Ok(socket) => return Ok(Self(socket)),
                Err(Errno::CONNREFUSED) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// What it says of itself.
    pub(super) fn status(&self) -> io::Result<Value> {
        control::send(&self.0, &Request::Status(Empty {}), &[])?;
        let mut text = String::new();
        loop {
            match self.reply()? {
                Reply::Status(part) => {
                    text += &part.text;
                    if !part.more {
                        return serde_json::from_str(&text).map_err(io::Error::other);
                    }
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// What a packet of so many bytes takes to another host and back, from engine to engine; the
    /// least of many.
    pub(super) fn round_trip_ns_least(&self, peer: IpAddr, bytes: u16) -> io::Result<u64> {
        let ping = Ping {
            peer,
            zone: None,
            udp_port: None,
            count: PROBES,
            interval_ms: PATIENCE_MS,
            eager: true,
            timeout_ms: PATIENCE_MS,
            bytes,
        };
        control::send(&self.0, &Request::Ping(ping), &[])?;
        let mut least_ns = None;
        loop {
            match self.reply()? {
                Reply::Pong(pong) => {
                    if let Probe::Answered(ns) = pong.probe {
                        least_ns = Some(least_ns.unwrap_or(ns).min(ns));
                    }
                    if pong.last {
                        return least_ns.ok_or_else(|| io::Error::other("no probe was answered"));
                    }
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    fn reply(&self) -> io::Result<Reply> {
        let packet = control::receive(&self.0)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Reply::parse(&packet.bytes).map_err(io::Error::other)
    }
}

fn connected(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn unexpected(reply: &Reply) -> io::Error {
    io::Error::other(format!("the daemon has answered {reply:?}"))
}
