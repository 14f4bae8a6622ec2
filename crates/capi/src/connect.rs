//! Listening, connecting, accepting, closing.

use std::ffi::{c_char, c_int};
use std::net::SocketAddr;
use std::time::Duration;

use clearway_client::{ConnectionId, Error, ListenAddress, ListenerId, ToPeers};

use crate::attach::clearway_channel;
use crate::failure::call_int;
use crate::pointer;

/// Bytes of `clearway_address.host`.
const HOST_BYTES: usize = 64;

/// The other end of a connection.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct clearway_address {
    /// IPv4 or IPv6 address in its usual notation.
    pub host: [c_char; 64],
    /// The port of the service, which is no UDP port; or TCP port.
    pub port: u16,
}

impl From<SocketAddr> for clearway_address {
    fn from(address: SocketAddr) -> Self {
        let text = match address {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
            _ => address.ip().to_string(),
        };
        let mut host = [0; HOST_BYTES];
        for (place, byte) in host[..HOST_BYTES - 1].iter_mut().zip(text.bytes()) {
            *place = byte as c_char;
        }
        Self { host, port: address.port() }
    }
}

/// Accepts connections to `port` of `address` (NULL: of all addresses of the host) from now on.
/// An address is written as for clearway_connect.
/// Stores the listener's number, and the port, which the daemon has chosen if `port` is 0; both
/// places may be NULL. Returns 0 or a negative error code.
///
/// # Safety
/// Pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_listen(
    channel: *mut clearway_channel,
    address: *const c_char,
    port: u16,
    listener: *mut u32,
    bound_port: *mut u16,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        // SAFETY: the caller's promise.
        let address = unsafe { pointer::text(address, "address") }?;
        let address = match address {
            None => ListenAddress::from(port),
            Some(text) => ListenAddress::from((text, port).to_peers()?[0]),
        };
        let opened = channel.listen(address)?;
        // SAFETY: the caller's promise.
        unsafe { pointer::store(listener, opened.id.as_u32()) };
        // SAFETY: the caller's promise.
        unsafe { pointer::store(bound_port, opened.address.port()) };
        Ok(())
    })
}

/// Stops accepting. Connections that exist go on. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_unlisten(channel: *mut clearway_channel, listener: u32) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.unlisten(ListenerId::from_u32(listener))
    })
}

/// Connects to an app that listens on `port` of the host at `address`, and stores the connection,
/// which is never 0. Addresses are written as usual: "10.0.0.2", "fe80::1%eth0", or a host's name,
/// which is looked up (getaddrinfo) and whose addresses are tried in turn; with port 0 also
/// "10.0.0.2:4000", "[fe80::1%eth0]:4000", "host.example:4000". With a `timeout_ns` of 0 nothing is
/// begun (CLEARWAY_WOULD_BLOCK): who does not wait begins by clearway_start_connect. Returns 0 or a
/// negative error code.
///
/// # Safety
/// Pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_connect(
    channel: *mut clearway_channel,
    address: *const c_char,
    port: u16,
    timeout_ns: i64,
    connection: *mut u64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        // SAFETY: the caller's promise.
        let peers = found_peers(unsafe { peers(address, port) }?);
        let opened = channel.connect(peers, pointer::timeout(timeout_ns))?;
        // SAFETY: the caller's promise.
        unsafe { pointer::store(connection, opened.as_u64()) };
        Ok(())
    })
}

/// Begins to connect and returns at once; clearway_next_event tells the outcome, with the token
/// that is stored here. Of a name, which is looked up first, the first address counts. Returns 0 or
/// a negative error code.
///
/// # Safety
/// Pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_start_connect(
    channel: *mut clearway_channel,
    address: *const c_char,
    port: u16,
    token: *mut u64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        // SAFETY: the caller's promise.
        let peers = unsafe { peers(address, port) }?;
        let begun = channel.start_connect(peers[0])?;
        // SAFETY: the caller's promise.
        unsafe { pointer::store(token, begun.as_u64()) };
        Ok(())
    })
}

/// Waits for the next connection that a peer opened. Stores it, and the peer's address unless
/// `peer` is NULL. Returns 0 or a negative error code.
///
/// # Safety
/// Pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_accept(
    channel: *mut clearway_channel,
    timeout_ns: i64,
    connection: *mut u64,
    peer: *mut clearway_address,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        let accepted = channel.accept(pointer::timeout(timeout_ns))?;
        // SAFETY: the caller's promise.
        unsafe { pointer::store(connection, accepted.connection.as_u64()) };
        // SAFETY: the caller's promise.
        unsafe { pointer::store(peer, accepted.peer.into()) };
        Ok(())
    })
}

/// Gives a connection up (CLEARWAY_LOST) after another silence of its peer's host than the daemon's
/// others (silence_s in clearway.toml): `silence_ns` from one second to two days; what lies outside
/// is taken for the nearer of these. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_set_silence(
    channel: *mut clearway_channel,
    connection: u64,
    silence_ns: u64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        let silence = Duration::from_nanos(silence_ns);
        channel.set_silence(ConnectionId::from_u64(connection), silence)
    })
}

/// Closes a connection after everything that was sent has been delivered. Returns 0 or a negative
/// error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_close(channel: *mut clearway_channel, connection: u64) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let clearway_channel { channel, calls, .. } = unsafe { pointer::attached(channel) }?;
        calls.close(channel, ConnectionId::from_u64(connection))
    })
}

/// Closes a connection at once; what is on its way is lost. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_abort(channel: *mut clearway_channel, connection: u64) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let clearway_channel { channel, calls, .. } = unsafe { pointer::attached(channel) }?;
        calls.abort(channel, ConnectionId::from_u64(connection))
    })
}

/// # Safety
/// `address` is NULL or a string.
pub(crate) unsafe fn peers(address: *const c_char, port: u16) -> Result<Vec<SocketAddr>, Error> {
    // SAFETY: the caller's promise.
    let address = unsafe { pointer::text(address, "address") }?;
    (address.ok_or_else(|| pointer::invalid("address is NULL"))?, port).to_peers()
}

/// Addresses that have been found, as the library takes them.
pub(crate) fn found_peers(peers: Vec<SocketAddr>) -> impl ToPeers {
    Peers(peers)
}

struct Peers(Vec<SocketAddr>);

impl ToPeers for Peers {
    fn to_peers(&self) -> Result<Vec<SocketAddr>, Error> {
        Ok(self.0.clone())
    }
}
