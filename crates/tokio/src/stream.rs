//! Connections.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use clearway_client::{Code, Error, TcpBytes, TcpId, TcpOption};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::lent::Lent;
use crate::shared::{AT_ONCE, Shared};
use crate::sockets::Sockets;

/// A connection. Dropping it closes it: what was written still arrives.
///
/// One task at a time reads, and one writes (`tokio::io::split`).
#[derive(Debug)]
pub struct TcpStream {
    shared: Arc<Shared<Sockets>>,
    id: TcpId,
    local: SocketAddr,
    peer: SocketAddr,
}

impl TcpStream {
    pub(crate) fn new(shared: &Arc<Shared<Sockets>>, id: TcpId) -> io::Result<Self> {
        let addresses = shared.enter().channel.tcp_addresses(id);
        let (local, peer) = addresses.ok_or(io::ErrorKind::NotConnected)?;
        Ok(Self { shared: Arc::clone(shared), id, local, peer })
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

    /// Sets an option.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn set(&self, option: TcpOption) -> io::Result<()> {
        Ok(self.shared.enter().channel.tcp_set(self.id, option)?)
    }

    /// The next bytes, where the daemon put them; `None` if there will be no more. Nothing is lost
    /// if the future is dropped.
    ///
    /// # Errors
    /// If the connection has ended, but in good order.
    pub async fn recv_buffer(&mut self) -> io::Result<Option<Lent<TcpBytes>>> {
        let receive = |context: &mut Context<'_>| {
            let mut state = self.shared.enter();
            state.poll(self.id, true, context, |channel| channel.tcp_recv_buffer(self.id, AT_ONCE))
        };
        let received = std::future::poll_fn(receive).await?;
        Ok(received.map(|bytes| Lent::new(bytes, &self.shared)))
    }

    /// Gives the connection up: the peer gets a reset.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn abort(self) -> io::Result<()> {
        Ok(self.shared.enter().channel.tcp_abort(self.id)?)
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        self.shared.enter().close(self.id);
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let place = buffer.initialize_unfilled();
        let mut state = self.shared.enter();
        let received =
            state.poll(self.id, true, context, |channel| channel.tcp_recv(self.id, place, AT_ONCE));
        received.map_ok(|count| buffer.advance(count))
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.shared.enter();
        state.poll(self.id, false, context, |channel| channel.tcp_send(self.id, bytes, AT_ONCE))
    }

    /// Nothing is held back here.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = match self.shared.enter().channel.tcp_shutdown(self.id) {
            // Both ends have closed it, as tokio's own has it.
            Err(Error::TcpEnded { code: Code::Closed, .. }) => Ok(()),
            shut => shut.map_err(io::Error::from),
        };
        Poll::Ready(shut)
    }
}
