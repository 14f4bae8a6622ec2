//! `getsockopt` and `setsockopt`: options by the numbers of Linux.

use std::num::NonZeroU32;

use clearway_base::{MICROSECOND, MILLISECOND, SECOND};
use clearway_tcp::{Congestion, Family, FastOpen, IpFields, Socket, SocketOptions};
use clearway_wire::Ecn;

use crate::notices::{SO_TIMESTAMPING, TCP_INQ};
use crate::state::State;
use crate::{Errno, Host, fast_open, tcp_info};

/// Of Linux, `asm-generic/socket.h` and `linux/tcp.h`, and not in `libc` for all targets.
const SO_MEMINFO: i32 = 55;
const SO_RCVBUFFORCE: i32 = 33;
const SO_SNDBUFFORCE: i32 = 32;
const TCP_FASTOPEN_KEY: i32 = 33;
const TCP_FASTOPEN_NO_COOKIE: i32 = 34;
/// Of FreeBSD, `netinet/tcp.h`: how long an attempt to connect may take.
const TCP_KEEPINIT: i32 = 128;

/// Of FreeBSD, `netinet/tcp.h`: SYNs have no options. With Linux it is TCP_LINGER2.
const TCP_NOOPT: i32 = 8;

/// Options that are remembered, and mean nothing on a link without other users.
const NOTED: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::SOL_SOCKET, libc::SO_DEBUG),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
    (libc::SOL_SOCKET, libc::SO_ZEROCOPY),
    (libc::SOL_SOCKET, SO_TIMESTAMPING),
    (libc::IPPROTO_TCP, TCP_INQ),
    (libc::IPPROTO_IP, libc::IP_FREEBIND),
    (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
    (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IP, libc::IP_RECVERR),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
];

/// As Linux has it: the least and the largest MSS that a program may set.
const SEGMENT_BYTES: core::ops::RangeInclusive<i32> = 88..=32_767;
/// The least buffers: SOCK_MIN_RCVBUF and SOCK_MIN_SNDBUF, without what Linux adds for itself.
const BUFFER_BYTES_MIN: i32 = 1152;
const BUFFER_BYTES_MAX: i32 = 1 << 29;
/// The longest that keep-alive waits, and the most probes.
const KEEP_ALIVE_SECONDS_MAX: i32 = 32_767;
const KEEP_ALIVE_PROBES_MAX: i32 = 127;

impl Host {
    /// Sets an option.
    pub fn setsockopt(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        self.call(|state| set(state, fd, level, name, value))
    }

    /// What is set, written to `place`, as much as fits. How much that is.
    pub fn getsockopt(
        &self,
        fd: i32,
        level: i32,
        name: i32,
        place: &mut [u8],
    ) -> Result<usize, Errno> {
        let value = self.call(|state| get(state, fd, level, name))?;
        let length = value.len().min(place.len());
        place[..length].copy_from_slice(&value[..length]);
        Ok(length)
    }
}

fn set(state: &mut State, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    let socket = state.descriptors.socket(fd)?;
    let descriptor = state.descriptors.get_mut(fd)?;
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
            descriptor.receive_timeout_ns = timeout(value)?;
        }
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => descriptor.send_timeout_ns = timeout(value)?,
        place if NOTED.contains(&place) => {
            let is_of_ip = matches!(level, libc::IPPROTO_IP | libc::IPPROTO_IPV6);
            let value = if is_of_ip { small_number(value)? } else { number(value)? };
            descriptor.noted.insert(place, value);
            if place == (libc::SOL_SOCKET, SO_TIMESTAMPING) {
                let status = state.sockets.status(socket);
                let queued_bytes = status.map_or(0, |status| status.queued_bytes);
                state.notices.number_bytes(socket, queued_bytes);
            }
        }
        (libc::IPPROTO_TCP, TCP_NOOPT) if state.defaults.habits.is_freebsd => {
            let mut options = *state.sockets.options(socket)?;
            let has_options = number(value)? == 0;
            let first = state.defaults.options.settings;
            options.settings.sack = first.sack && has_options;
            options.settings.timestamps = first.timestamps && has_options;
            options.settings.window_scaling = first.window_scaling && has_options;
            options.settings.variants.no_mss = !has_options;
            state.sockets.set_options(socket, options)?;
        }
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => {
            state.sockets.set_quick_acks(socket, number(value)? != 0);
        }
        (
            libc::IPPROTO_TCP,
            libc::TCP_FASTOPEN
            | libc::TCP_FASTOPEN_CONNECT
            | TCP_FASTOPEN_KEY
            | TCP_FASTOPEN_NO_COOKIE,
        ) => set_fast_open(state, socket, name, value)?,
        _ => {
            if (level, name) == (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) {
                // Told again as it was set: 0 is "as the host has it".
                descriptor.noted.insert((level, name), number(value)?);
            }
            let mut options = *state.sockets.options(socket)?;
            set_option(&mut options, level, name, value)?;
            state.sockets.set_options(socket, options)?;
            if (level, name) == (libc::IPPROTO_TCP, libc::TCP_NODELAY) && number(value)? != 0 {
                // tcp(7): "setting this option forces an explicit flush", of corked data, too.
                state.sockets.hurry(socket);
            }
        }
    }
    Ok(())
}

/// What Linux and FreeBSD have for Fast Open: before there is a connection.
fn set_fast_open(state: &mut State, socket: Socket, name: i32, value: &[u8]) -> Result<(), Errno> {
    if state.sockets.status(socket).is_some() {
        return Err(Errno::EINVAL);
    }
    let (fast_open, is_freebsd) = (state.defaults.fast_open, state.defaults.habits.is_freebsd);
    let mut options = *state.sockets.options(socket)?;
    let switch = || {
        let value = number(value)?;
        within((0..=1).contains(&value), value).map(|value| value != 0)
    };
    match name {
        TCP_FASTOPEN_KEY => options.fast_open_keys = Some(fast_open::keys_of(value)?),
        libc::TCP_FASTOPEN_CONNECT if !fast_open.has(fast_open::CLIENT) => {
            return Err(Errno::EOPNOTSUPP);
        }
        libc::TCP_FASTOPEN_CONNECT => options.defers_connect = switch()?,
        TCP_FASTOPEN_NO_COOKIE => options.settings.fast_open.without_cookies = switch()?,
        _ => fast_open.set_option(&mut options, number(value)?, is_freebsd)?,
    }
    Ok(state.sockets.set_options(socket, options)?)
}

fn set_option(
    options: &mut SocketOptions,
    level: i32,
    name: i32,
    value: &[u8],
) -> Result<(), Errno> {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_LINGER) => options.linger_ns = linger(value)?,
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
            options.settings.congestion = congestion(value)?;
        }
        (libc::SOL_SOCKET, _) => set_socket_option(options, name, number(value)?)?,
        (libc::IPPROTO_TCP, _) => set_tcp_option(options, name, number(value)?)?,
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => options.v6_only = number(value)? != 0,
        (libc::IPPROTO_IP | libc::IPPROTO_IPV6, _) => {
            set_ip_field(&mut options.settings.ip, level, name, small_number(value)?)?;
        }
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

fn set_socket_option(options: &mut SocketOptions, name: i32, value: i32) -> Result<(), Errno> {
    let bytes = value.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX) as u32;
    match name {
        libc::SO_REUSEADDR => options.reuse_address = value != 0,
        libc::SO_REUSEPORT => options.reuse_port = value != 0,
        libc::SO_KEEPALIVE => options.keeps_alive = value != 0,
        libc::SO_RCVLOWAT => options.receive_bytes_min = value.max(1) as u32,
        libc::SO_RCVBUF | SO_RCVBUFFORCE => {
            options.settings.receive_buffer_bytes = bytes;
            options.settings.receive_buffer_bytes_max = bytes;
        }
        libc::SO_SNDBUF | SO_SNDBUFFORCE => options.send_buffer_bytes = bytes,
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

/// What is written into IP headers; -1 is what was at first.
fn set_ip_field(ip: &mut IpFields, level: i32, name: i32, value: i32) -> Result<(), Errno> {
    let first = IpFields::default();
    match (level, name) {
        (libc::IPPROTO_IP, libc::IP_TTL) => {
            let is_right = value == -1 || (1..=255).contains(&value);
            ip.hop_limit = u8::try_from(within(is_right, value)?).unwrap_or(first.hop_limit);
        }
        (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
            let is_right = (-1..=255).contains(&value);
            ip.hop_limit = u8::try_from(within(is_right, value)?).unwrap_or(first.hop_limit);
        }
        // The bits of ECN are TCP's affair: programs cannot set them.
        (libc::IPPROTO_IP, libc::IP_TOS) => ip.traffic_class = value as u8 & !Ecn::BITS,
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            let is_right = (-1..=255).contains(&value);
            let class = u8::try_from(within(is_right, value)?).unwrap_or(first.traffic_class);
            ip.traffic_class = class & !Ecn::BITS;
        }
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

fn set_tcp_option(options: &mut SocketOptions, name: i32, value: i32) -> Result<(), Errno> {
    let settings = &mut options.settings;
    match name {
        libc::TCP_NODELAY => settings.no_delay = value != 0,
        libc::TCP_CORK => settings.cork = value != 0,
        libc::TCP_MAXSEG => {
            let is_right = value == 0 || SEGMENT_BYTES.contains(&value);
            settings.segment_bytes_max = (value != 0).then_some(within(is_right, value)? as u16);
        }
        libc::TCP_KEEPIDLE => options.keep_alive.idle_ns = keep_alive_ns(value)?,
        libc::TCP_KEEPINTVL => options.keep_alive.interval_ns = keep_alive_ns(value)?,
        libc::TCP_KEEPCNT => {
            let is_right = (1..=KEEP_ALIVE_PROBES_MAX).contains(&value);
            options.keep_alive.probes = within(is_right, value)? as u8;
        }
        TCP_KEEPINIT => {
            let ms = keep_alive_ns(value)? / MILLISECOND;
            settings.opening_ms = NonZeroU32::new(ms as u32);
        }
        libc::TCP_USER_TIMEOUT => {
            let ms = within(value >= 0, value)? as u64;
            settings.user_timeout_ns = (ms > 0).then_some(ms * MILLISECOND);
        }
        libc::TCP_SYNCNT => {
            settings.syn_retries = within((1..=127).contains(&value), value)? as u8;
        }
        libc::TCP_LINGER2 => {
            let seconds = if value == 0 { 60 } else { value.clamp(0, 120) };
            settings.fin_wait_ns = seconds as u64 * SECOND;
        }
        libc::TCP_DEFER_ACCEPT => settings.defer_accept = retries_within(value.max(0) as u64),
        libc::TCP_WINDOW_CLAMP => {
            let bytes = within(value > 0, value)?.max(BUFFER_BYTES_MIN / 2) as u32;
            settings.receive_buffer_bytes = settings.receive_buffer_bytes.min(bytes);
            settings.receive_buffer_bytes_max = settings.receive_buffer_bytes_max.min(bytes);
        }
        libc::TCP_NOTSENT_LOWAT => {
            options.unsent_bytes_max = if value == 0 { u32::MAX } else { value as u32 };
        }
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

fn get(state: &mut State, fd: i32, level: i32, name: i32) -> Result<Vec<u8>, Errno> {
    let socket = state.descriptors.socket(fd)?;
    let descriptor = state.descriptors.get(fd)?;
    let value = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => return Ok(timeval(descriptor.receive_timeout_ns)),
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => return Ok(timeval(descriptor.send_timeout_ns)),
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            state.sockets.take_error(socket)?.map_or(0, |fault| Errno::from(fault).0)
        }
        (libc::IPPROTO_TCP, libc::TCP_INFO) => return Ok(info(state, socket)),
        (libc::IPPROTO_TCP, TCP_FASTOPEN_KEY) => return fast_open_keys(state, socket),
        // Linux has some for Vegas, DCTCP and BBR.
        (libc::IPPROTO_TCP, libc::TCP_CC_INFO) => return Ok(Vec::new()),
        (libc::SOL_SOCKET, SO_MEMINFO) => return memory_info(state, socket),
        place
            if NOTED.contains(&place) || place == (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) =>
        {
            descriptor.noted.get(&place).copied().unwrap_or(0)
        }
        _ => return get_option(state, socket, level, name),
    };
    Ok(value.to_ne_bytes().to_vec())
}

fn get_option(state: &State, socket: Socket, level: i32, name: i32) -> Result<Vec<u8>, Errno> {
    let options = state.sockets.options(socket)?;
    let value = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            let seconds = options.linger_ns.map_or(0, |ns| (ns / SECOND) as i32);
            return Ok(words([i32::from(options.linger_ns.is_some()), seconds]));
        }
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
            return Ok(congestion_name(options.settings.congestion));
        }
        (libc::SOL_SOCKET, _) => socket_option(state, socket, options, name)?,
        (libc::IPPROTO_TCP, _) => tcp_option(state, socket, options, name)?,
        (libc::IPPROTO_IP, libc::IP_MTU) | (libc::IPPROTO_IPV6, libc::IPV6_MTU) => {
            state.sockets.info(socket).ok_or(Errno::ENOTCONN)?.path_mtu.into()
        }
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => options.v6_only.into(),
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
            options.settings.ip.hop_limit.into()
        }
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            options.settings.ip.traffic_class.into()
        }
        _ => return Err(Errno::ENOPROTOOPT),
    };
    Ok(value.to_ne_bytes().to_vec())
}

fn socket_option(
    state: &State,
    socket: Socket,
    options: &SocketOptions,
    name: i32,
) -> Result<i32, Errno> {
    // Linux tells twice what was set, the half of which is its own.
    let factor = if state.defaults.habits.is_freebsd { 1 } else { 2 };
    let told = |bytes: u32| (factor * u64::from(bytes)).min(i32::MAX as u64) as i32;
    Ok(match name {
        libc::SO_TYPE => libc::SOCK_STREAM,
        libc::SO_PROTOCOL => libc::IPPROTO_TCP,
        libc::SO_DOMAIN => match state.sockets.family(socket)? {
            Family::V4 => libc::AF_INET,
            Family::V6 => libc::AF_INET6,
        },
        libc::SO_ACCEPTCONN => state.sockets.is_listening(socket).into(),
        libc::SO_REUSEADDR => options.reuse_address.into(),
        libc::SO_REUSEPORT => options.reuse_port.into(),
        libc::SO_KEEPALIVE => options.keeps_alive.into(),
        libc::SO_RCVLOWAT => options.receive_bytes_min as i32,
        libc::SO_SNDLOWAT => 1,
        libc::SO_RCVBUF if state.defaults.habits.is_freebsd => {
            let info = state.sockets.info(socket);
            let set = options.settings.receive_buffer_bytes;
            told(info.map_or(set, |info| info.receive_buffer_bytes))
        }
        libc::SO_RCVBUF => told(options.settings.receive_buffer_bytes),
        libc::SO_SNDBUF => told(options.send_buffer_bytes),
        _ => return Err(Errno::ENOPROTOOPT),
    })
}

fn tcp_option(
    state: &State,
    socket: Socket,
    options: &SocketOptions,
    name: i32,
) -> Result<i32, Errno> {
    let settings = &options.settings;
    let seconds = |ns: u64| (ns / SECOND) as i32;
    Ok(match name {
        libc::TCP_NODELAY => settings.no_delay.into(),
        libc::TCP_CORK => settings.cork.into(),
        libc::TCP_MAXSEG => match (state.sockets.info(socket), settings.segment_bytes_max) {
            (Some(info), _) => info.segment_bytes as i32,
            (None, most) => most.unwrap_or(536).into(),
        },
        libc::TCP_KEEPIDLE => seconds(options.keep_alive.idle_ns),
        libc::TCP_KEEPINTVL => seconds(options.keep_alive.interval_ns),
        libc::TCP_KEEPCNT => options.keep_alive.probes.into(),
        TCP_KEEPINIT => settings.opening_ms.map_or(0, |ms| (ms.get() / 1000) as i32),
        libc::TCP_USER_TIMEOUT => {
            settings.user_timeout_ns.map_or(0, |ns| (ns / MILLISECOND) as i32)
        }
        libc::TCP_SYNCNT => settings.syn_retries.into(),
        libc::TCP_LINGER2 => seconds(settings.fin_wait_ns),
        libc::TCP_DEFER_ACCEPT => seconds_of(settings.defer_accept),
        libc::TCP_WINDOW_CLAMP => settings.receive_buffer_bytes as i32,
        libc::TCP_QUICKACK => 1,
        // TF_FASTOPEN, as FreeBSD tells it.
        libc::TCP_FASTOPEN if state.defaults.habits.is_freebsd => match settings.fast_open {
            FastOpen { connects: false, pending_max: 0, .. } => 0,
            _ => i32::MIN,
        },
        libc::TCP_FASTOPEN => settings.fast_open.pending_max.into(),
        libc::TCP_FASTOPEN_CONNECT => options.defers_connect.into(),
        TCP_FASTOPEN_NO_COOKIE => settings.fast_open.without_cookies.into(),
        _ => return Err(Errno::ENOPROTOOPT),
    })
}

fn fast_open_keys(state: &State, socket: Socket) -> Result<Vec<u8>, Errno> {
    let keys = state.sockets.options(socket)?.fast_open_keys;
    let keys = keys.unwrap_or_else(|| state.defaults.fast_open.keys());
    Ok([Some(keys.current), keys.previous].into_iter().flatten().flatten().collect())
}

/// SK_MEMINFO_VARS words of Linux's `sock_diag`: what waits to be read, the buffers, what waits to
/// be acknowledged, and what means nothing here.
fn memory_info(state: &State, socket: Socket) -> Result<Vec<u8>, Errno> {
    let options = state.sockets.options(socket)?;
    let unread = state.sockets.unread_bytes(socket) as u32;
    let queued = state.sockets.status(socket).map_or(0, |status| status.queued_bytes as u32);
    let twice = |bytes: u32| bytes.saturating_mul(2);
    let (receive, send) = (options.settings.receive_buffer_bytes, options.send_buffer_bytes);
    let words = [unread, twice(receive), queued, twice(send), 0, queued, 0, 0, 0];
    Ok(words.iter().flat_map(|word| word.to_ne_bytes()).collect())
}

fn info(state: &State, socket: Socket) -> Vec<u8> {
    match state.sockets.info(socket) {
        Some(info) => tcp_info::emit(&info, state.now, state.observed(&info)),
        None if state.sockets.is_listening(socket) => tcp_info::of_state(tcp_info::LISTEN),
        None => tcp_info::of_state(tcp_info::CLOSE),
    }
}

// Values as C programs have them.

fn number(value: &[u8]) -> Result<i32, Errno> {
    Ok(i32::from_ne_bytes(*value.first_chunk().ok_or(Errno::EINVAL)?))
}

/// An option of IP may also be a single byte.
fn small_number(value: &[u8]) -> Result<i32, Errno> {
    match *value {
        [byte, ..] if value.len() < 4 => Ok(byte.into()),
        _ => number(value),
    }
}

fn within(is_right: bool, value: i32) -> Result<i32, Errno> {
    if is_right { Ok(value) } else { Err(Errno::EINVAL) }
}

fn words(words: [i32; 2]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A `struct linger`.
fn linger(value: &[u8]) -> Result<Option<u64>, Errno> {
    let (is_on, seconds) = (number(value)?, number(value.get(4..).ok_or(Errno::EINVAL)?)?);
    Ok((is_on != 0).then_some(seconds.max(0) as u64 * SECOND))
}

/// A `struct timeval`: 0 is for ever.
fn timeout(value: &[u8]) -> Result<Option<u64>, Errno> {
    let word = |at: usize| {
        let bytes = value.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|bytes| i64::from_ne_bytes(*bytes)).ok_or(Errno::EINVAL)
    };
    let (seconds, us) = (word(0)?, word(8)?);
    if !(0..1_000_000).contains(&us) {
        return Err(Errno::EDOM);
    }
    let ns = (seconds.max(0) as u64).saturating_mul(SECOND);
    let ns = ns.saturating_add(us as u64 * MICROSECOND);
    // A negative one is over at once: the least that there is stands for that.
    let ns = if seconds < 0 { 1 } else { ns };
    Ok((ns > 0).then_some(ns))
}

fn timeval(ns: Option<u64>) -> Vec<u8> {
    let ns = ns.unwrap_or(0);
    let words = [ns / SECOND, ns % SECOND / MICROSECOND];
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn keep_alive_ns(seconds: i32) -> Result<u64, Errno> {
    let is_right = (1..=KEEP_ALIVE_SECONDS_MAX).contains(&seconds);
    Ok(within(is_right, seconds)? as u64 * SECOND)
}

fn congestion(name: &[u8]) -> Result<Congestion, Errno> {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let found = Congestion::ALL.into_iter().find(|known| known.name().as_bytes() == name);
    found.ok_or(Errno::ENOENT)
}

/// The name in the 16 bytes that Linux has for it.
fn congestion_name(congestion: Congestion) -> Vec<u8> {
    let mut name = congestion.name().as_bytes().to_vec();
    name.resize(16, 0);
    name
}

/// After how many SYN-ACKs that were sent again so many seconds are over, and the other way round.
fn retries_within(seconds: u64) -> u8 {
    (0..u8::MAX).find(|retries| seconds_of(*retries) as u64 >= seconds).unwrap_or(u8::MAX)
}

fn seconds_of(retries: u8) -> i32 {
    (0..retries).map(|retry| (1 << retry.min(7)).min(120)).sum()
}

#[cfg(test)]
mod tests {
    use super::{MICROSECOND, SECOND, timeout};

    /// What is longer than the clock can count is as long as that, and not over at once.
    #[test]
    fn timeouts_may_be_as_long_as_a_timeval_can_say() {
        let of = |seconds: i64, us: i64| timeout(&[seconds, us].map(i64::to_ne_bytes).concat());
        assert_eq!(of(0, 0), Ok(None));
        assert_eq!(of(2, 3), Ok(Some(2 * SECOND + 3 * MICROSECOND)));
        assert_eq!(of(i64::MAX, 999_999), Ok(Some(u64::MAX)));
        assert_eq!(of((u64::MAX / SECOND) as i64, 999_999), Ok(Some(u64::MAX)));
        assert_eq!(of(-1, 0), Ok(Some(1)));
    }
}
