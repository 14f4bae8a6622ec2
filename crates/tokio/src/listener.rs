//! Ports at which peers connect.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use clearway_client::{ListenAddress, TcpPort, TcpPortOptions};

use crate::TcpStream;
use crate::shared::Shared;
use crate::sockets::Sockets;

/// Connections that may wait for the engine.
const BACKLOG: u32 = 1024;

/// A port at which peers connect. Dropping it refuses those that were not accepted, and gives the
/// port back unless connections are left there.
#[derive(Debug)]
pub struct TcpListener {
    shared: Arc<Shared<Sockets>>,
    port: TcpPort,
}

impl TcpListener {
    pub(crate) fn open(
        shared: &Arc<Shared<Sockets>>,
        address: ListenAddress,
        options: TcpPortOptions,
    ) -> io::Result<Self> {
        let mut state = shared.enter();
        let port = state.channel.tcp_bind_with(address, options)?;
        state.add_port(port.id);
        let listener = Self { shared: Arc::clone(shared), port };
        let listening = state.channel.tcp_listen(port.id, BACKLOG);
        drop(state);
        listening?;
        Ok(listener)
    }

    /// Its address and port; the address is `0.0.0.0` if it is all of the host's.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.port.address
    }

    /// The next connection that a peer has opened. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// If the port was taken away, or the daemon has gone.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    /// The same, for futures written by hand.
    pub fn poll_accept(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let accepted = self.shared.enter().poll_accept(self.port.id, context);
        accepted.map(|accepted| {
            let (id, peer) = accepted?;
            Ok((TcpStream::new(&self.shared, id)?, peer))
        })
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.shared.enter().remove_port(self.port.id);
    }
}
