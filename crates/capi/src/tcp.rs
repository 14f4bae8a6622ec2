//! TCP connections to any peer: ports, connecting, bytes by copy and in place, options.

use std::ffi::{c_char, c_int, c_void};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::ptr::null;

use clearway_client::{
    Error, ListenAddress, TcpId, TcpOption, TcpPortId, TcpPortOptions, TcpReady, ToPeers,
};

use crate::attach::clearway_channel;
use crate::connect::{clearway_address, found_peers, peers};
use crate::failure::{call, call_int};
use crate::message::{clearway_message, clearway_writable, filled};
use crate::pointer;

/// What can be done with a TCP connection; bits.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum clearway_tcp_ready_bits {
    /// There are bytes to receive, or there will be no more.
    CLEARWAY_TCP_READABLE = 1,
    /// It takes bytes to be sent, if the channel has room (CLEARWAY_EVENT_WRITABLE).
    CLEARWAY_TCP_WRITABLE = 2,
    /// It has ended: close it. What has come before can still be received.
    CLEARWAY_TCP_OVER = 4,
}

/// What can be set for a TCP connection.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum clearway_tcp_option {
    /// Not 0: small segments are sent even while others are not acknowledged (TCP_NODELAY). 0 at
    /// first.
    CLEARWAY_TCP_NO_DELAY = 1,
    /// A connection that has been idle for so many seconds is probed (SO_KEEPALIVE); 0, as at
    /// first: never.
    CLEARWAY_TCP_KEEP_ALIVE = 2,
    /// After so many milliseconds without an acknowledgement it is given up (TCP_USER_TIMEOUT); 0,
    /// as at first: after the retries of RFC 9293, which take many minutes.
    CLEARWAY_TCP_USER_TIMEOUT = 3,
    /// Sending waits while so many bytes are not acknowledged (SO_SNDBUF). At first a quarter of
    /// the channel's transmit pool. A buffer of clearway_send_buffer counts whole, however much of
    /// it is sent.
    CLEARWAY_TCP_SEND_BUFFER = 4,
    /// So many seconds pass between the probes of CLEARWAY_TCP_KEEP_ALIVE (TCP_KEEPINTVL), 1 or
    /// more. That option sets 75, or as many as the connection has to be idle if that is less: set
    /// this after it. Without it a connection is probed after two hours from then on.
    CLEARWAY_TCP_KEEP_ALIVE_INTERVAL = 5,
    /// After so many probes in a row without an answer it is given up (TCP_KEEPCNT), 1 to 255. At
    /// first 9. Without CLEARWAY_TCP_KEEP_ALIVE it is probed after two hours from then on.
    CLEARWAY_TCP_KEEP_ALIVE_PROBES = 6,
    /// What its packets say of their kind (IP_TOS, IPV6_TCLASS), 0 to 255: the upper six bits are a
    /// DSCP (RFC 2474), the lower two are of ECN and stay as they are. 0 at first.
    CLEARWAY_TCP_TRAFFIC_CLASS = 7,
    /// Routers that its packets may pass (IP_TTL, IPV6_UNICAST_HOPS), 1 to 255. 64 at first.
    CLEARWAY_TCP_HOP_LIMIT = 8,
    /// What is sent from now on is in segments of so many bytes at most, payload and TCP's options
    /// (TCP_MAXSEG), 64 to 65535. It is for good: a later one can only be less.
    CLEARWAY_TCP_MAXIMUM_SEGMENT = 9,
    /// Not 0: what comes is acknowledged at once for a while. 0: as late as may be (TCP_QUICKACK).
    /// As there, what comes later may change it again.
    CLEARWAY_TCP_QUICK_ACKS = 10,
}

/// Takes TCP port `port` of `address` (NULL: of all addresses of the host), which nobody else on
/// this host has then, neither an app nor the kernel's programs, and accepts connections there;
/// `backlog` of them may wait for the engine (0: 1024, the most is 4096). An address is written as
/// for clearway_connect. Stores the port's number, which is never 0, and the address and port,
/// which is one that is free if `port` is 0; both places may be NULL. Returns 0 or a negative error
/// code: CLEARWAY_ADDRESS_IN_USE (another app has it), CLEARWAY_REFUSED (a program of the kernel's
/// has it), CLEARWAY_DENIED, CLEARWAY_ADDRESS_UNAVAILABLE.
///
/// # Safety
/// Pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_listen(
    channel: *mut clearway_channel,
    address: *const c_char,
    port: u16,
    backlog: u32,
    tcp_port: *mut u32,
    bound: *mut clearway_address,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        unsafe { listen(channel, address, port, backlog, null(), tcp_port, bound) }
    })
}

/// How a TCP port is taken. All zeros is as clearway_tcp_listen has it; new fields are added at the
/// end, so set `size` to `sizeof(struct clearway_tcp_port_options)`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct clearway_tcp_port_options {
    /// `sizeof(struct clearway_tcp_port_options)`.
    pub size: usize,
    /// Not 0: other channels of this user may have the port besides, if they say so, too
    /// (SO_REUSEPORT), at any engines of the NIC (clearway_options.engine). Each connection that
    /// comes is for one of those that listen: at the engine to whose queue it comes, if there is
    /// one, and of several by a hash of its addresses and ports. CLEARWAY_ADDRESS_IN_USE says that
    /// others have the port and do not share it, and, of connecting from such a port, that channels
    /// at other engines have it.
    pub shared: u32,
    /// Where the port's peers are: "10.1.0.0/16", "fd00::/8", "10.1.0.7", at most 32 of them, and
    /// NULL at the end; anywhere if this is NULL. To all others it is as if nobody listened there,
    /// and connecting to one of them is CLEARWAY_DENIED. Nobody else has the port for them.
    pub peers: *const *const c_char,
}

/// The same as clearway_tcp_listen with options, which may be NULL. CLEARWAY_DENIED is also told if
/// the daemon's policy gives the port for other peers only; the message says for which.
///
/// # Safety
/// Pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_listen_with(
    channel: *mut clearway_channel,
    address: *const c_char,
    port: u16,
    backlog: u32,
    options: *const clearway_tcp_port_options,
    tcp_port: *mut u32,
    bound: *mut clearway_address,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        unsafe { listen(channel, address, port, backlog, options, tcp_port, bound) }
    })
}

/// # Safety
/// Pointers are NULL or valid.
unsafe fn listen(
    channel: *mut clearway_channel,
    address: *const c_char,
    port: u16,
    backlog: u32,
    options: *const clearway_tcp_port_options,
    tcp_port: *mut u32,
    bound: *mut clearway_address,
) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    let channel = unsafe { pointer::channel(channel) }?;
    // SAFETY: the caller's promise.
    let address = match unsafe { pointer::text(address, "address") }? {
        None => ListenAddress::from(port),
        Some(text) => ListenAddress::from((text, port).to_peers()?[0]),
    };
    // SAFETY: the caller's promise.
    let opened = channel.tcp_bind_with(address, unsafe { port_options(options) }?)?;
    channel.tcp_listen(opened.id, if backlog == 0 { BACKLOG } else { backlog })?;
    // SAFETY: the caller's promise.
    unsafe { pointer::store(tcp_port, opened.id.as_u32()) };
    // SAFETY: the caller's promise.
    unsafe { pointer::store(bound, opened.address.into()) };
    Ok(())
}

/// # Safety
/// `options` is NULL or valid, and its fields are as their comments say.
unsafe fn port_options(options: *const clearway_tcp_port_options) -> Result<TcpPortOptions, Error> {
    // SAFETY: the caller's promise.
    let Some(given) = (unsafe { options.as_ref() }) else { return Ok(TcpPortOptions::default()) };
    if given.size != size_of::<clearway_tcp_port_options>() {
        let text = "options->size is not sizeof(struct clearway_tcp_port_options)";
        return Err(pointer::invalid(text));
    }
    // SAFETY: the caller's promise.
    let peers = unsafe { pointer::texts(given.peers, "options->peers") }?.unwrap_or_default();
    let peers = peers.iter().map(|text| pointer::parse(text)).collect::<Result<_, _>>()?;
    Ok(TcpPortOptions { shared: given.shared != 0, peers })
}

/// Connections that may wait for the engine, of a listener that says nothing else.
const BACKLOG: u32 = 1024;

/// Stops accepting at a TCP port, and gives it back. Connections that nobody has accepted are
/// reset; others go on, and then the port stays the app's for them: until clearway_tcp_listen takes
/// it again, with the same address and options, until clearway_tcp_close_port, or until the call of
/// the channel that learns that the last of them has ended. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_unlisten(
    channel: *mut clearway_channel,
    tcp_port: u32,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.tcp_unlisten(TcpPortId::from_u32(tcp_port))
    })
}

/// Gives a TCP port back. Connections that are left there are reset; calls for them are
/// CLEARWAY_CLOSED from then on, those that receive included. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_close_port(
    channel: *mut clearway_channel,
    tcp_port: u32,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.tcp_close_port(TcpPortId::from_u32(tcp_port))
    })
}

/// Waits for the next connection that a peer has opened to a TCP port. Stores it, which is never
/// 0, and the peer's address unless `peer` is NULL. What comes while the channel has as many
/// connections as it may (`connections_per_channel` of the daemon's policy) is reset; see
/// connections_refused in `clearway status`. Returns 0 or a negative error code.
///
/// # Safety
/// Pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_accept(
    channel: *mut clearway_channel,
    tcp_port: u32,
    timeout_ns: i64,
    connection: *mut u64,
    peer: *mut clearway_address,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        let port = TcpPortId::from_u32(tcp_port);
        let (accepted, address) = channel.tcp_accept(port, pointer::timeout(timeout_ns))?;
        // SAFETY: the caller's promise.
        unsafe { pointer::store(connection, accepted.as_u64()) };
        // SAFETY: the caller's promise.
        unsafe { pointer::store(peer, address.into()) };
        Ok(())
    })
}

/// Opens a TCP connection to a host that need not know of Clearway, and stores it, which is never
/// 0. From the port with the number `tcp_port` of clearway_tcp_listen, or, if that is 0, from one
/// that is free, for which the daemon may have to be asked within the same time. The address is
/// written as for clearway_connect. Returns 0 or a negative error code: CLEARWAY_REFUSED (nobody
/// listens there), CLEARWAY_UNREACHABLE, CLEARWAY_LOST (no answer to any retry),
/// CLEARWAY_ADDRESS_IN_USE (there is such a connection already), CLEARWAY_TIMED_OUT;
/// CLEARWAY_WOULD_BLOCK with a `timeout_ns` of 0, and nothing was begun (who does not wait begins
/// by clearway_tcp_start_connect).
///
/// # Safety
/// Pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_connect(
    channel: *mut clearway_channel,
    tcp_port: u32,
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
        let timeout = pointer::timeout(timeout_ns);
        let opened = channel.tcp_connect(port_of(tcp_port), peers, timeout)?;
        // SAFETY: the caller's promise.
        unsafe { pointer::store(connection, opened.as_u64()) };
        Ok(())
    })
}

/// Begins to open a TCP connection, and does not wait for the peer; clearway_next_event tells the
/// outcome, with the token that is stored here. Of a name, which is looked up first, the first
/// address counts. If `tcp_port` is 0, and no port is free of those that the channel has taken for
/// that before, the daemon is asked for another one (see Times). Returns 0 or a negative error
/// code.
///
/// # Safety
/// Pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_start_connect(
    channel: *mut clearway_channel,
    tcp_port: u32,
    address: *const c_char,
    port: u16,
    token: *mut u64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        // SAFETY: the caller's promise.
        let peers = unsafe { peers(address, port) }?;
        let begun = channel.tcp_start_connect(port_of(tcp_port), peers[0])?;
        // SAFETY: the caller's promise.
        unsafe { pointer::store(token, begun.as_u64()) };
        Ok(())
    })
}

/// A port of the app's; the library's choice for 0, which no port has.
fn port_of(number: u32) -> Option<TcpPortId> {
    (number != 0).then(|| TcpPortId::from_u32(number))
}

/// Sends some of `length` bytes, at least one unless that is 0; waits up to `timeout_ns` for room.
/// The bytes are copied: they may be changed when this returns. Returns how many were taken, which
/// may be fewer than `length`, or a negative error code. After CLEARWAY_WOULD_BLOCK,
/// CLEARWAY_EVENT_TCP_READY with CLEARWAY_TCP_WRITABLE follows, or CLEARWAY_EVENT_WRITABLE.
///
/// # Safety
/// `channel` is NULL or valid; `data` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_send(
    channel: *mut clearway_channel,
    connection: u64,
    data: *const c_void,
    length: usize,
    timeout_ns: i64,
) -> i64 {
    call(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { pointer::bytes(data.cast(), length) }?;
        let connection = TcpId::from_u64(connection);
        Ok(channel.tcp_send(connection, bytes, pointer::timeout(timeout_ns))? as i64)
    })
}

/// The same, and more will follow: what does not fill a segment waits for that (MSG_MORE).
///
/// # Safety
/// `channel` is NULL or valid; `data` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_send_more(
    channel: *mut clearway_channel,
    connection: u64,
    data: *const c_void,
    length: usize,
    timeout_ns: i64,
) -> i64 {
    call(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { pointer::bytes(data.cast(), length) }?;
        let connection = TcpId::from_u64(connection);
        Ok(channel.tcp_send_more(connection, bytes, pointer::timeout(timeout_ns))? as i64)
    })
}

/// Closes a connection, as clearway_tcp_close does, when the peer has acknowledged all that was
/// sent (SO_LINGER with a time). Returns 0; CLEARWAY_TIMED_OUT if that takes longer than
/// `timeout_ns`, and the daemon goes on with it; or another negative error code if the connection
/// has ended, and not all may have arrived. It is closed in any case.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_linger(
    channel: *mut clearway_channel,
    connection: u64,
    timeout_ns: i64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.tcp_linger(TcpId::from_u64(connection), pointer::timeout(timeout_ns))
    })
}

/// Sends the first `length` bytes of a buffer of clearway_send_buffer, without a copy: it is the
/// daemon's until the peer has acknowledged it. `has_more` not 0: what does not fill a segment
/// waits for the next call (MSG_MORE). Waits up to `timeout_ns` for room. Returns 0 or a negative
/// error code; then the buffer is the app's as before, and may be sent again or given to
/// clearway_discard.
///
/// # Safety
/// `channel` is NULL or valid; `writable` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_send_buf(
    channel: *mut clearway_channel,
    connection: u64,
    writable: *mut clearway_writable,
    length: usize,
    has_more: u32,
    timeout_ns: i64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let clearway_channel { channel, held, .. } = unsafe { pointer::attached(channel) }?;
        // SAFETY: the caller's promise.
        let mut writable = unsafe { writable.as_mut() };
        let buffer = filled(writable.as_deref_mut(), length, channel, held)?;
        let (connection, timeout) = (TcpId::from_u64(connection), pointer::timeout(timeout_ns));
        let sent = channel.tcp_send_buffer(connection, buffer, has_more != 0, timeout);
        sent.map_err(|(mut buffer, error)| {
            if let Some(writable) = writable {
                buffer.restore();
                *writable = clearway_writable::holding(buffer, held);
            }
            error
        })
    })
}

/// Receives up to `capacity` bytes; waits up to `timeout_ns` until there are some. Returns how
/// many; 0 if the peer has closed its half, and there will be no more; or a negative error code:
/// CLEARWAY_RESET (the peer gave the connection up), CLEARWAY_LOST (it is silent),
/// CLEARWAY_UNREACHABLE.
///
/// # Safety
/// `channel` is NULL or valid; `buffer` points to `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_recv(
    channel: *mut clearway_channel,
    connection: u64,
    buffer: *mut c_void,
    capacity: usize,
    timeout_ns: i64,
) -> i64 {
    call(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        // SAFETY: the caller's promise.
        let place = unsafe { pointer::place(buffer.cast(), capacity) }?;
        let connection = TcpId::from_u64(connection);
        Ok(channel.tcp_recv(connection, place, pointer::timeout(timeout_ns))? as i64)
    })
}

/// Receives bytes where the daemon put them, without a copy: at least one, and as many as
/// `bytes->length` says, which may be those of many segments. To be given to clearway_release,
/// after which the peer may send as many more. With length 0 there will be no more bytes, and there
/// is nothing to release. Returns 0 or a negative error code, as clearway_tcp_recv.
///
/// # Safety
/// `channel` is NULL or valid; `bytes` is NULL or valid for writing, and holds no message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_recv_buf(
    channel: *mut clearway_channel,
    connection: u64,
    timeout_ns: i64,
    bytes: *mut clearway_message,
) -> c_int {
    call_int(|| {
        if bytes.is_null() {
            return Err(pointer::invalid("bytes is NULL"));
        }
        // SAFETY: the caller's promise.
        let clearway_channel { channel, held, .. } = unsafe { pointer::attached(channel) }?;
        let timeout = pointer::timeout(timeout_ns);
        let received = channel.tcp_recv_buffer(TcpId::from_u64(connection), timeout);
        let empty = clearway_message::empty(connection);
        let (filled, result) = match received {
            Ok(None) => (empty, Ok(())),
            Ok(Some(found)) => (clearway_message::holding_bytes(connection, found, held), Ok(())),
            Err(error) => (empty, Err(error)),
        };
        // SAFETY: not null; valid by the caller's promise.
        unsafe { pointer::store(bytes, filled) };
        result
    })
}

/// Closes the app's half of a TCP connection: the peer reads to the end of what was sent. What it
/// sends is still received. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_shutdown(
    channel: *mut clearway_channel,
    connection: u64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.tcp_shutdown(TcpId::from_u64(connection))
    })
}

/// Lets go of a TCP connection, which has ended or not. What was sent still arrives; but if
/// something has come that was not received, the peer gets a reset (RFC 9293, section 3.6.1). Bytes
/// that are held in place stay readable. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_close(
    channel: *mut clearway_channel,
    connection: u64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.tcp_close(TcpId::from_u64(connection))
    })
}

/// Gives a TCP connection up: the peer gets a reset, and what was sent may be lost. Returns 0 or a
/// negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_abort(
    channel: *mut clearway_channel,
    connection: u64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.tcp_abort(TcpId::from_u64(connection))
    })
}

/// Sets an option of a TCP connection: one of `enum clearway_tcp_option`, which says the unit of
/// `value`. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_set(
    channel: *mut clearway_channel,
    connection: u64,
    option: u32,
    value: u32,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.tcp_set(TcpId::from_u64(connection), option_of(option, value)?)
    })
}

fn option_of(option: u32, value: u32) -> Result<TcpOption, Error> {
    let given = (value != 0).then_some(value);
    Ok(match option {
        1 => TcpOption::NoDelay(value != 0),
        2 => TcpOption::KeepAlive(given),
        3 => TcpOption::UserTimeout(given),
        4 => TcpOption::SendBuffer(value),
        5 => TcpOption::KeepAliveInterval(within(value, 1..=u32::MAX)?),
        6 => TcpOption::KeepAliveProbes(within(value, 1..=u8::MAX)?),
        7 => TcpOption::TrafficClass(within(value, 0..=u8::MAX)?),
        8 => TcpOption::HopLimit(within(value, 1..=u8::MAX)?),
        9 => TcpOption::MaximumSegment(within(value, 64..=u16::MAX)?),
        10 => TcpOption::QuickAcks(value != 0),
        _ => return Err(pointer::invalid("option is not of enum clearway_tcp_option")),
    })
}

fn within<T>(value: u32, range: RangeInclusive<T>) -> Result<T, Error>
where
    T: TryFrom<u32> + PartialOrd + Display,
{
    T::try_from(value).ok().filter(|found| range.contains(found)).ok_or_else(|| {
        let (least, most) = (range.start(), range.end());
        pointer::invalid(&format!("value is {value}, not {least} to {most}"))
    })
}

/// From now on clearway_next_event and clearway_next_events tell of a TCP connection again
/// (CLEARWAY_EVENT_TCP_READY) while something of `watched`, bits of `enum
/// clearway_tcp_ready_bits`, can be done with it, and there is nothing new to tell: by level, as
/// epoll and poll do. With 0, as at first, they tell of it once each time that something happens
/// to it: by edge, as EPOLLET. That it takes bytes is not told again while the channel has no room
/// for them. Returns 0 or a negative error code: CLEARWAY_INVALID if `watched` has other bits.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_watch(
    channel: *mut clearway_channel,
    connection: u64,
    watched: u32,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.tcp_watch(TcpId::from_u64(connection), ready_of(watched)?)
    })
}

/// Stores this end of a TCP connection and the peer; both places may be NULL. This end's host is
/// the address that the peer has connected to, also where the app listens at all addresses. Returns
/// 0 or a negative error code.
///
/// # Safety
/// Pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_addresses(
    channel: *mut clearway_channel,
    connection: u64,
    local: *mut clearway_address,
    peer: *mut clearway_address,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        let connection = TcpId::from_u64(connection);
        let found = channel.tcp_addresses(connection);
        let (here, there) = found.ok_or(Error::TcpNotOpen { connection })?;
        // SAFETY: the caller's promise.
        unsafe { pointer::store(local, here.into()) };
        // SAFETY: the caller's promise.
        unsafe { pointer::store(peer, there.into()) };
        Ok(())
    })
}

/// What can be done with a TCP connection, as far as the calls of the channel so far have learnt:
/// bits of `enum clearway_tcp_ready_bits`, or a
/// negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_ready(
    channel: *mut clearway_channel,
    connection: u64,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        let connection = TcpId::from_u64(connection);
        let ready = channel.tcp_ready(connection);
        Ok(bits(ready.ok_or(Error::TcpNotOpen { connection })?).into())
    }) as c_int
}

/// How many bytes of a TCP connection the peer has not acknowledged, of those that were sent, as
/// far as the calls of the channel so far have learnt: those of a send count until all of them are.
/// 0 of one that has ended. Or a negative error code: CLEARWAY_CLOSED if it is not open on this
/// channel.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_tcp_unacknowledged(
    channel: *mut clearway_channel,
    connection: u64,
) -> i64 {
    call(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        let connection = TcpId::from_u64(connection);
        let found = channel.tcp_unacknowledged(connection);
        Ok(found.ok_or(Error::TcpNotOpen { connection })?.0 as i64)
    })
}

fn ready_of(watched: u32) -> Result<TcpReady, Error> {
    use clearway_tcp_ready_bits as Bits;
    let has = |bit: Bits| watched & bit as u32 != 0;
    let ready = TcpReady {
        is_readable: has(Bits::CLEARWAY_TCP_READABLE),
        is_writable: has(Bits::CLEARWAY_TCP_WRITABLE),
        is_over: has(Bits::CLEARWAY_TCP_OVER),
    };
    match bits(ready) == watched {
        true => Ok(ready),
        false => {
            Err(pointer::invalid("watched has bits that enum clearway_tcp_ready_bits has not"))
        }
    }
}

/// As C has it.
pub(crate) fn bits(ready: TcpReady) -> u32 {
    use clearway_tcp_ready_bits as Bits;
    let TcpReady { is_readable, is_writable, is_over } = ready;
    [
        (is_readable, Bits::CLEARWAY_TCP_READABLE),
        (is_writable, Bits::CLEARWAY_TCP_WRITABLE),
        (is_over, Bits::CLEARWAY_TCP_OVER),
    ]
    .into_iter()
    .filter(|(is_so, _)| *is_so)
    .fold(0, |bits, (_, bit)| bits | bit as u32)
}
