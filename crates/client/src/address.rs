//! Where apps are, as people write it: `10.0.0.2:4000`, `[fe80::1%eth0]:4000`, `host.example:4000`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use crate::Error;

/// Something that says where an app listens: an address and port, or their text, with names looked
/// up as the system does (`getaddrinfo`), which may take seconds.
pub trait ToPeers {
    /// The addresses, best first; at least one.
    ///
    /// # Errors
    /// If there is no such host, or the text says nothing of the kind.
    fn to_peers(&self) -> Result<Vec<SocketAddr>, Error>;
}

impl ToPeers for SocketAddr {
    fn to_peers(&self) -> Result<Vec<SocketAddr>, Error> {
        Ok(vec![*self])
    }
}

impl ToPeers for (IpAddr, u16) {
    fn to_peers(&self) -> Result<Vec<SocketAddr>, Error> {
        Ok(vec![SocketAddr::from(*self)])
    }
}

/// A host, and a port, which may stand in the text as well, or there alone if it is 0 here.
impl ToPeers for (&str, u16) {
    fn to_peers(&self) -> Result<Vec<SocketAddr>, Error> {
        let (text, port) = *self;
        match split(text) {
            Some((_, in_text)) if port != 0 && port != in_text => {
                let cause = format!("it has port {in_text}, and port is {port}");
                Err(unknown(text, std::io::Error::other(cause)))
            }
            _ => resolve(text, port),
        }
    }
}

/// `HOST:PORT`.
impl ToPeers for str {
    fn to_peers(&self) -> Result<Vec<SocketAddr>, Error> {
        let (host, port) = split(self).ok_or_else(|| {
            let text = "expected HOST:PORT, and [ADDRESS]:PORT for IPv6";
            unknown(self, std::io::Error::other(text))
        })?;
        resolve_host(host, port)
    }
}

impl ToPeers for String {
    fn to_peers(&self) -> Result<Vec<SocketAddr>, Error> {
        self.as_str().to_peers()
    }
}

impl<T: ToPeers + ?Sized> ToPeers for &T {
    fn to_peers(&self) -> Result<Vec<SocketAddr>, Error> {
        (**self).to_peers()
    }
}

/// What to listen on: a port of all addresses (`4000`), or one address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// One of the host's addresses, or all.
    pub address: Option<IpAddr>,
    /// The port; 0 lets the daemon choose.
    pub port: u16,
}

impl From<u16> for ListenAddress {
    fn from(port: u16) -> Self {
        Self { address: None, port }
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        let one = (!address.ip().is_unspecified()).then(|| address.ip());
        Self { address: one, port: address.port() }
    }
}

/// `4000`, `*:4000`, or what [`ToPeers`] understands.
impl FromStr for ListenAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.strip_prefix("*:").unwrap_or(text).parse::<u16>() {
            Ok(port) => Ok(port.into()),
            Err(_) => Ok(text.to_peers()?[0].into()),
        }
    }
}

/// The host and the port of `HOST:PORT`; an IPv6 address stands in brackets.
pub fn split(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = inner.or((!host.contains(':')).then_some(host))?;
    (!host.is_empty()).then_some(())?;
    Some((host, port.parse().ok()?))
}

/// The addresses of a host, each with this port. An address of one link has its interface, by name
/// or number: `fe80::1%eth0`.
pub fn resolve_host(host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    // No name of a host has a colon (RFC 1123, section 2.1).
    if host.contains(':') && !host.contains('%') {
        let text = "it is no address, nor has it a port from 0 to 65535 behind one";
        return Err(unknown(host, std::io::Error::other(text)));
    }
    let found =
        (host, port).to_socket_addrs().map_err(|cause| unknown(host, why_unknown(host, cause)))?;
    let mut addresses: Vec<SocketAddr> = found.collect();
    addresses.dedup();
    if let Some((address, interface)) = host.split_once('%')
        && !addresses.iter().all(has_interface)
    {
        return Err(unknown(host, no_interface(address, interface)));
    }
    if addresses.is_empty() {
        return Err(unknown(host, std::io::Error::other("it has no address")));
    }
    Ok(addresses)
}

/// The addresses of `HOST` or `HOST:PORT`, with this port if there is none.
pub fn resolve(text: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
    match split(text) {
        Some((host, port)) => resolve_host(host, port),
        None => resolve_host(text, port),
    }
}

/// An error if no app can listen there.
pub(crate) fn check_peer(peer: SocketAddr) -> Result<(), Error> {
    if peer.port() != 0 {
        return Ok(());
    }
    Err(Error::argument(format!("nobody listens on port 0 of {}; name the peer's port", peer.ip())))
}

/// The resolver says nothing of interfaces, which are those of the program's network namespace. The
/// daemon may be in another.
fn why_unknown(host: &str, cause: std::io::Error) -> std::io::Error {
    let zoned = host.split_once('%').filter(|(address, _)| {
        address.parse().is_ok_and(|address: Ipv6Addr| address.is_unicast_link_local())
    });
    let Some((address, interface)) = zoned else { return cause };
    no_interface(address, interface)
}

fn no_interface(address: &str, interface: &str) -> std::io::Error {
    let text = format!(
        "where this program runs is no interface \"{interface}\"; if it is the daemon's, write \
         {address} alone"
    );
    std::io::Error::other(text)
}

/// False if an address names its interface by a number that none has: the resolver takes any. So
/// does this where the program may not ask. 0 stands for none (RFC 4007, section 6).
fn has_interface(address: &SocketAddr) -> bool {
    let SocketAddr::V6(address) = address else { return true };
    if address.scope_id() == 0 {
        return true;
    }
    let (unix, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let Ok(socket) = socket_with(unix, SocketType::DGRAM, flags, None) else { return true };
    let name = netdevice::index_to_name_inlined(&socket, address.scope_id());
    !matches!(name, Err(Errno::NODEV | Errno::NXIO))
}

fn unknown(name: &str, cause: std::io::Error) -> Error {
    Error::UnknownHost { name: name.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(text: &str) -> Vec<SocketAddr> {
        text.to_peers().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn an_interface_that_the_program_does_not_see_is_named() {
        let told = "[fe80::1%not-here]:7".to_peers().expect_err("there is none").to_string();
        assert!(told.contains("no interface \"not-here\""), "{told}");
        assert!(told.contains("write fe80::1 alone"), "{told}");
        let told = "[fe80::1%2147483647]:7".to_peers().expect_err("none has it").to_string();
        assert!(told.contains("no interface \"2147483647\""), "{told}");
        assert_eq!(peers("[fe80::1%0]:7")[0].to_string(), "[fe80::1]:7", "that is none");
    }

    #[test]
    fn addresses_are_understood_as_people_write_them() {
        let expected = SocketAddr::from(([10, 0, 0, 2], 4000));
        assert_eq!(peers("10.0.0.2:4000"), [expected]);
        for text in ["10.0.0.2", "10.0.0.2:4000"] {
            assert_eq!((text, 4000).to_peers().expect("an address"), [expected]);
        }
        assert_eq!(("10.0.0.2:4000", 0).to_peers().expect("an address"), [expected]);
        let error = ("10.0.0.2:4000", 7).to_peers().expect_err("two ports").to_string();
        assert!(error.contains("it has port 4000, and port is 7"), "{error}");
        assert_eq!(peers("[2001:db8::1]:80")[0].to_string(), "[2001:db8::1]:80");
        assert_eq!(("2001:db8::1", 80).to_peers().expect("an address").len(), 1);
    }

    /// The loopback has the number 1 in each network namespace.
    #[test]
    fn an_address_of_one_link_has_its_interface() {
        for text in ["[fe80::1%lo]:7", "[fe80::1%1]:7"] {
            let SocketAddr::V6(found) = peers(text)[0] else { panic!("{text}") };
            assert_eq!((found.scope_id(), found.port()), (1, 7), "{text}");
        }
        let SocketAddr::V6(found) = resolve_host("fe80::1%lo", 9).expect("an address")[0] else {
            panic!();
        };
        assert_eq!(found.scope_id(), 1);
    }

    #[test]
    fn a_port_may_be_left_out() {
        let found = |text| resolve(text, 9).expect("an address")[0].to_string();
        assert_eq!(found("10.0.0.2"), "10.0.0.2:9");
        assert_eq!(found("10.0.0.2:4000"), "10.0.0.2:4000");
        assert_eq!(found("2001:db8::1"), "[2001:db8::1]:9");
        assert_eq!(found("[2001:db8::1]"), "[2001:db8::1]:9");
        assert_eq!(found("[fe80::1%lo]:7"), "[fe80::1%1]:7");
        assert_eq!(found("fe80::1%lo"), "[fe80::1%1]:9");
    }

    #[test]
    fn names_are_looked_up() {
        assert!(peers("localhost:4000").iter().all(|peer| peer.ip().is_loopback()));
        let error = "no-such-host.invalid:4000".to_peers().expect_err("RFC 6761: there is none");
        assert!(error.to_string().contains("no-such-host.invalid"), "{error}");
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_form_that_is() {
        for text in ["", ":1", "10.0.0.2", "fe80::1:4000", "host:port", "host:99999", "[]:4"] {
            let error = text.to_peers().expect_err(text);
            assert!(error.to_string().contains("HOST:PORT"), "{text}: {error}");
        }
        for text in ["10.0.0.2:99999", "host:port", "1:2:3", "[::1]:x"] {
            let error = resolve(text, 9).expect_err(text);
            assert!(error.to_string().contains("nor has it a port"), "{text}: {error}");
        }
    }

    #[test]
    fn listeners_have_a_port_or_an_address_too() {
        let parse = |text: &str| text.parse::<ListenAddress>().expect("an address");
        assert_eq!(parse("4000"), 4000.into());
        assert_eq!(parse("*:4000"), 4000.into());
        assert_eq!(parse("0.0.0.0:4000"), 4000.into());
        assert_eq!(parse("10.0.0.2:0"), SocketAddr::from(([10, 0, 0, 2], 0)).into());
    }
}
