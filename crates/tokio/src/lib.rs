//! Clearway for programs on tokio. TCP: streams with `AsyncRead` and `AsyncWrite`, and listeners.
//! What is served on `tokio::net::TcpStream` is served on these unchanged, hyper for instance
//! (`examples/http.rs`).
//!
//! ```no_run
//! use clearway_client::Options;
//! use clearway_tokio::Tcp;
//! use tokio::io::{copy, split};
//!
//! # async fn run() -> std::io::Result<()> {
//! let tcp = Tcp::attach(&Options::new("echo"))?;
//! let listener = tcp.listen(7)?;
//! loop {
//!     let (stream, _peer) = listener.accept().await?;
//!     tokio::spawn(async move {
//!         let (mut reader, mut writer) = split(stream);
//!         let _ = copy(&mut reader, &mut writer).await;
//!     });
//! }
//! # }
//! ```
//!
//! All that is made of a [`Tcp`] shares one channel, under a lock that is held for a call. What
//! scales is a `Tcp` for each thread, with a runtime of its own.
//!
//! ```text
//!  stream, listener ── calls ──▶ Shared: the channel, ◀── events ── driver: a task that sleeps on
//!                   ◀── wakes ── who waits for what                  the channel's descriptor
//! ```
//!
//! [`Calls`] are requests and answers between apps of Clearway, in the same way.
//!
//! *Not* here: messages, frames and one-sided operations; use a channel of their own for these.

#![forbid(unsafe_code)]

mod attempts;
mod calls;
mod driver;
mod lent;
mod listener;
mod shared;
mod sockets;
mod stream;

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use clearway_client::{Channel, ListenAddress, Options, TcpPortOptions, Token};

pub use calls::Calls;
pub use lent::Lent;
pub use listener::TcpListener;
use shared::Shared;
use sockets::Sockets;
pub use stream::TcpStream;

/// TCP over one channel. Clones share it.
#[derive(Clone, Debug)]
pub struct Tcp {
    shared: Arc<Shared<Sockets>>,
}

impl Tcp {
    /// Attaches a channel, and spawns the task that drives it.
    ///
    /// # Errors
    /// If the daemon does not take it.
    ///
    /// # Panics
    /// Outside of a runtime of tokio's, or if that has no I/O.
    pub fn attach(options: &Options) -> io::Result<Self> {
        let shared = Shared::new(Sockets::new(Channel::attach(options)?));
        driver::spawn(&shared)?;
        Ok(Self { shared })
    }

    /// Accepts connections from now on: at a port of all addresses of the host (`8080`), or of one
    /// (a `SocketAddr`). Waits for the daemon, without giving way to other tasks.
    ///
    /// # Errors
    /// If somebody else has the port, or the daemon's policy does not allow it.
    pub fn listen(&self, address: impl Into<ListenAddress>) -> io::Result<TcpListener> {
        self.listen_with(address, TcpPortOptions::default())
    }

    /// The same at a port that is taken with options.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    pub fn listen_with(
        &self,
        address: impl Into<ListenAddress>,
        options: TcpPortOptions,
    ) -> io::Result<TcpListener> {
        TcpListener::open(&self.shared, address.into(), options)
    }

    /// Opens a connection, from a port that is free. If the future is dropped, there is none. If
    /// no port is free of those that were taken for that before, it waits for the daemon to give
    /// one, without giving way to other tasks: a moment, and ten seconds at most.
    ///
    /// # Errors
    /// If nobody listens there, or the peer does not answer.
    pub async fn connect(&self, peer: SocketAddr) -> io::Result<TcpStream> {
        let token = self.shared.enter().start_connect(peer)?;
        let attempt = Attempt { shared: &self.shared, token };
        let id =
            poll_fn(|context| attempt.shared.enter().poll_outcome(token, peer, context)).await?;
        TcpStream::new(&self.shared, id)
    }
}

/// An attempt to connect, which is given up when it is dropped.
struct Attempt<'a> {
    shared: &'a Arc<Shared<Sockets>>,
    token: Token,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.shared.enter().forget_attempt(self.token);
    }
}
