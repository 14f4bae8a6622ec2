//! Listeners and streams as the standard library has them, on a channel that they share.

use std::cell::{RefCell, RefMut};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use clearway_channel::Code;

use super::{TcpBytes, TcpId, TcpOption, TcpPort, TcpPortOptions};
use crate::address::{ListenAddress, ToPeers};
use crate::{Channel, Error, Options, SendBuffer};

/// Connections that may wait for the engine, of a listener that says nothing else.
const BACKLOG: u32 = 1024;

/// TCP over one channel. Clones share it: what is made of it belongs to one thread, as the channel
/// does. Threads that all want to talk attach a channel each.
#[derive(Clone, Debug)]
pub struct Tcp {
    channel: Rc<RefCell<Channel>>,
}

/// A port at which peers connect. Dropping it gives up the port, unless connections are left there:
/// then it stays the channel's for them, which may listen there again.
#[derive(Debug)]
pub struct TcpListener {
    tcp: Tcp,
    port: TcpPort,
    timeout: Option<Duration>,
}

/// A connection. Dropping it closes it: what was written still arrives.
#[derive(Debug)]
pub struct TcpStream {
    tcp: Tcp,
    id: TcpId,
    local: SocketAddr,
    peer: SocketAddr,
    timeout: Option<Duration>,
}

impl Tcp {
    /// Attaches a channel for TCP.
    pub fn attach(options: &Options) -> Result<Self, Error> {
        Channel::attach(options).map(Self::new)
    }

    /// TCP over a channel that is there.
    #[must_use]
    pub fn new(channel: Channel) -> Self {
        Self { channel: Rc::new(RefCell::new(channel)) }
    }

    /// The channel, for all else. Nothing of TCP can be used meanwhile.
    ///
    /// # Panics
    /// If it is borrowed already.
    pub fn channel(&self) -> RefMut<'_, Channel> {
        self.channel.borrow_mut()
    }

    /// Accepts connections from now on: at a port of all addresses of the host (`8080`), or of one
    /// (a `SocketAddr`).
    pub fn listen(&self, address: impl Into<ListenAddress>) -> Result<TcpListener, Error> {
        let port = self.channel().tcp_bind(address)?;
        self.listen_at(port)
    }

    /// The same at a port that is taken with options.
    pub fn listen_with(
        &self,
        address: impl Into<ListenAddress>,
        options: TcpPortOptions,
    ) -> Result<TcpListener, Error> {
        let port = self.channel().tcp_bind_with(address, options)?;
        self.listen_at(port)
    }

    fn listen_at(&self, port: TcpPort) -> Result<TcpListener, Error> {
        self.channel().tcp_listen(port.id, BACKLOG)?;
        Ok(TcpListener { tcp: self.clone(), port, timeout: None })
    }

    /// Opens a connection, from a port that is free.
    pub fn connect(
        &self,
        peer: impl ToPeers,
        timeout: Option<Duration>,
    ) -> Result<TcpStream, Error> {
        let id = self.channel().tcp_connect(None, peer, timeout)?;
        self.stream(id)
    }

    fn stream(&self, id: TcpId) -> Result<TcpStream, Error> {
        let addresses = self.channel().tcp_addresses(id);
        let (local, peer) = addresses.ok_or_else(|| super::is_not_open(id))?;
        Ok(TcpStream { tcp: self.clone(), id, local, peer, timeout: None })
    }
}

impl TcpListener {
    /// Its address and port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.port.address
    }

    /// The next connection that a peer has opened.
    pub fn accept(&self) -> Result<(TcpStream, SocketAddr), Error> {
        let (id, peer) = self.tcp.channel().tcp_accept(self.port.id, self.timeout)?;
        Ok((self.tcp.stream(id)?, peer))
    }

    /// How long [`accept`](Self::accept) waits: `None` as long as it takes, zero not at all.
    pub const fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        // What cannot be told a daemon that is gone need not be told.
        let _ = self.tcp.channel().tcp_unlisten(self.port.id);
    }
}

impl TcpStream {
    /// Names it in the calls of the channel.
    #[must_use]
    pub const fn id(&self) -> TcpId {
        self.id
    }

    /// This end, which is never "all addresses".
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The peer.
    #[must_use]
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// How long reading and writing wait: `None` as long as it takes, zero not at all.
    pub const fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Sets an option.
    pub fn set(&self, option: TcpOption) -> Result<(), Error> {
        self.tcp.channel().tcp_set(self.id, option)
    }

    /// The next bytes, where the daemon put them; `None` if there will be no more.
    pub fn recv_buffer(&self) -> Result<Option<TcpBytes>, Error> {
        self.tcp.channel().tcp_recv_buffer(self.id, self.timeout)
    }

    /// A buffer to be filled in place and sent by [`send`](Self::send).
    pub fn send_buffer(&self, length: usize) -> Result<SendBuffer, Error> {
        self.tcp.channel().send_buffer(length, self.timeout)
    }

    /// Sends a buffer that was filled in place; an error gives it up.
    pub fn send(&self, buffer: SendBuffer) -> Result<(), Error> {
        let sent = self.tcp.channel().tcp_send_buffer(self.id, buffer, false, self.timeout);
        sent.map_err(|(_, error)| error)
    }

    /// Closes one half, or both. What has come is still there to be read.
    pub fn shutdown(&self, how: Shutdown) -> Result<(), Error> {
        match how {
            Shutdown::Read => Ok(()), // what comes is thrown away when the stream is dropped
            Shutdown::Write | Shutdown::Both => self.tcp.channel().tcp_shutdown(self.id),
        }
    }

    /// Writes some of `bytes`, at least one if there are any, and more will follow: what does not
    /// fill a segment waits for that.
    pub fn write_more(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        self.tcp.channel().tcp_send_more(self.id, bytes, self.timeout)
    }

    /// Closes the connection when the peer has acknowledged all that was written; if that takes
    /// longer than the stream's timeout, the daemon goes on with it.
    pub fn linger(self) -> Result<(), Error> {
        self.tcp.channel().tcp_linger(self.id, self.timeout)
    }

    /// Gives the connection up: the peer gets a reset.
    pub fn abort(self) -> Result<(), Error> {
        self.tcp.channel().tcp_abort(self.id)
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        let _ = self.tcp.channel().tcp_close(self.id); // it may have ended
    }
}

impl Read for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.tcp.channel().tcp_recv(self.id, buffer, self.timeout)?)
    }
}

impl Write for TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.tcp.channel().tcp_send(self.id, bytes, self.timeout)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(()) // nothing is held back here
    }
}

impl From<Error> for io::Error {
    /// With the kind that the kernel's sockets have for it.
    fn from(error: Error) -> Self {
        let kind = match error.code() {
            Code::WouldBlock => io::ErrorKind::WouldBlock,
            Code::TimedOut | Code::Lost => io::ErrorKind::TimedOut,
            Code::Closed => io::ErrorKind::BrokenPipe,
            Code::Reset => io::ErrorKind::ConnectionReset,
            Code::Refused => io::ErrorKind::ConnectionRefused,
            Code::Unreachable => io::ErrorKind::HostUnreachable,
            Code::AddressInUse => io::ErrorKind::AddrInUse,
            Code::AddressUnavailable => io::ErrorKind::AddrNotAvailable,
            Code::Denied => io::ErrorKind::PermissionDenied,
            Code::DaemonGone => io::ErrorKind::ConnectionAborted,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
