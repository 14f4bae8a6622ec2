//! Socket addresses as C programs have them: `sockaddr_in` and `sockaddr_in6`.
//!
//! ```text
//! sockaddr_in   │ family │ port │ address (4)  │ nothing (8) │
//! sockaddr_in6  │ family │ port │ flow label (4) │ address (16) │ scope (4) │
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clearway_tcp::Family;

use crate::Errno;

/// The length of a `sockaddr_in`, and of a `sockaddr_in6`.
const V4_BYTES: usize = 16;
const V6_BYTES: usize = 28;
/// RFC 2133 had no scope, and what was built then is still let in.
const V6_BYTES_MIN: usize = 24;

/// The family of an address.
pub(crate) fn family(bytes: &[u8]) -> Result<i32, Errno> {
    let family = bytes.first_chunk::<2>().ok_or(Errno::EINVAL)?;
    Ok(u16::from_ne_bytes(*family).into())
}

/// What such an address says.
pub(crate) fn parse(bytes: &[u8]) -> Result<SocketAddr, Errno> {
    let port = || Some(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?));
    let (address, port): (IpAddr, _) = match (family(bytes)?, bytes.len()) {
        (libc::AF_INET, V4_BYTES..) => {
            let octets = bytes[4..].first_chunk::<4>().ok_or(Errno::EINVAL)?;
            (Ipv4Addr::from(*octets).into(), port())
        }
        (libc::AF_INET6, V6_BYTES_MIN..) => {
            let octets = bytes[8..].first_chunk::<16>().ok_or(Errno::EINVAL)?;
            (Ipv6Addr::from(*octets).into(), port())
        }
        (libc::AF_INET | libc::AF_INET6, _) => return Err(Errno::EINVAL),
        _ => return Err(Errno::EAFNOSUPPORT),
    };
    Ok(SocketAddr::new(address, port.ok_or(Errno::EINVAL)?))
}

/// The address as a socket of `family` shows it.
pub(crate) fn emit(address: SocketAddr, family: Family) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(V6_BYTES);
    let port = address.port().to_be_bytes();
    match (address.ip(), family) {
        (IpAddr::V4(address), Family::V4) => {
            bytes.extend((libc::AF_INET as u16).to_ne_bytes());
            bytes.extend(port);
            bytes.extend(address.octets());
            bytes.resize(V4_BYTES, 0);
        }
        (address, _) => {
            let address = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            bytes.extend((libc::AF_INET6 as u16).to_ne_bytes());
            bytes.extend(port);
            bytes.extend([0; 4]);
            bytes.extend(address.octets());
            bytes.resize(V6_BYTES, 0);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::{emit, parse};
    use crate::Errno;
    use clearway_tcp::Family;

    #[test]
    fn addresses_survive_both_ways() {
        for (text, family) in [
            ("10.1.2.3:80", Family::V4),
            ("10.1.2.3:80", Family::V6),
            ("[fd00::1]:65535", Family::V6),
        ] {
            let address: std::net::SocketAddr = text.parse().unwrap();
            let bytes = emit(address, family);
            let back = parse(&bytes).unwrap();
            assert_eq!((back.ip().to_canonical(), back.port()), (address.ip(), address.port()));
            for length in 0..bytes.len().min(24) {
                let refused = parse(&bytes[..length]);
                assert!(length >= 16 && refused.is_ok() || refused == Err(Errno::EINVAL));
            }
        }
        assert_eq!(parse(&[0; 16]), Err(Errno::EAFNOSUPPORT));
    }
}
