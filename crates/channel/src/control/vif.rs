//! Virtual interfaces over the control socket: opening and closing them, and captures. Filters are
//! text here (`dst host 10.0.0.2 and udp dst port 7000`); what they mean, the daemon knows.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use clearway_base::Prefix;
use serde::{Deserialize, Serialize};

use super::{APP_NAME_BYTES_MAX, ParseError, range};

/// The most filters in one list of a request.
pub const FILTERS_MAX: usize = 64;
/// The most prefixes that the peers of a TCP port may be of.
pub const PEER_PREFIXES_MAX: usize = 32;
/// The longest filter, in bytes.
pub const FILTER_BYTES_MAX: usize = 1024;

/// Opens a virtual interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenVif {
    /// What it receives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receive: Vec<String>,
    /// What it may send; the mirror image of `receive` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transmit: Option<Vec<String>>,
    /// Of what it receives a copy while the owner gets it as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<String>,
    /// Above 0: before the entries of messages, the highest first.
    #[serde(default)]
    pub priority: u16,
    /// An Ethernet address of its own; the NIC's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacChoice>,
    /// An address of its own. Only with an Ethernet address of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<InterfaceAddress>,
}

/// Takes a TCP port of the host's, which is the app's until it closes it: from the kernel's
/// programs, and from all other apps. It listens there, or connects from there, by its ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenTcpPort {
    /// One of the host's addresses on the NIC of the channel's engine; all of the host's, on all
    /// its NICs, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// Other channels of the same user that say so, too, may have it besides (SO_REUSEPORT): those
    /// that listen share the connections that come.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub shared: bool,
    /// Where its peers may be, who connect to it and to whom it connects; anywhere if empty. At
    /// most [`PEER_PREFIXES_MAX`]. The port is the app's for other peers, too: to them it is as if
    /// nobody listened there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<Prefix>,
}

/// The TCP port that the app has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpPortOpened {
    /// Names it in the rings and in `close_vif`.
    pub number: u32,
    /// Its address and port.
    pub address: SocketAddr,
}

/// Closes a virtual interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloseVif {
    /// From `vif_opened`.
    pub vif: u32,
}

/// Opens an interface that gets a copy of what others send and receive, and may send nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenCapture {
    /// What to capture; everything if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<String>,
    /// Only what concerns the app of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// Only what concerns this connection of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<u64>,
}

/// The virtual interface that was opened. Patterns are as they are in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VifOpened {
    /// Names it in the rings and in `close_vif`.
    pub vif: u32,
    /// Its Ethernet address: its own, or the NIC's.
    pub mac: Mac,
    /// The most bytes of a packet in a frame, without the Ethernet header.
    pub mtu: u32,
    /// What it receives.
    pub receive: Vec<String>,
    /// What it may send.
    pub transmit: Vec<String>,
    /// Of what it gets copies.
    pub copies: Vec<String>,
}

/// An Ethernet address, written `02:00:00:00:00:01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

/// Which Ethernet address an interface wants: `own` lets the daemon choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum MacChoice {
    /// One that the daemon chooses.
    Own,
    /// This one.
    Fixed(Mac),
}

/// An address and the length of its network's prefix, written `10.0.0.9/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of the network: at most 32 or 128.
    pub prefix_length: u8,
}

/// Text that is not an address of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct BadAddress {
    text: String,
    expected: &'static str,
}

impl OpenVif {
    pub(super) fn check(&self) -> Result<(), ParseError> {
        check_filters("receive", &self.receive)?;
        check_filters("transmit", self.transmit.as_deref().unwrap_or_default())?;
        check_filters("copies", &self.copies)?;
        if let Some(MacChoice::Fixed(mac)) = self.mac
            && !mac.is_unicast()
        {
            return range(
                "mac",
                "\"own\" or the address of one interface, with an even first byte",
            );
        }
        if self.address.is_some() && self.mac.is_none() {
            return range("address", "absent unless mac is there");
        }
        let lists_empty = self.receive.is_empty() && self.copies.is_empty();
        if lists_empty && self.transmit.is_none() && self.address.is_none() {
            return range(
                "receive",
                "at least one filter, unless the interface has an own address",
            );
        }
        Ok(())
    }
}

impl OpenTcpPort {
    pub(super) fn check(&self) -> Result<(), ParseError> {
        // RFC 6335, section 6: port 0 is reserved.
        if self.port == 0 {
            return range("port", "1 to 65535");
        }
        if self.peers.len() > PEER_PREFIXES_MAX {
            return range("peers", "at most 32 prefixes");
        }
        Ok(())
    }
}

impl OpenCapture {
    pub(super) fn check(&self) -> Result<(), ParseError> {
        check_filters("filter", &self.filter)?;
        let app = self.app.as_deref();
        if app.is_some_and(|app| app.is_empty() || app.len() > APP_NAME_BYTES_MAX) {
            return range("app", "1 to 64 bytes");
        }
        if self.connection.is_some() && app.is_none() {
            return range("connection", "absent unless app is there");
        }
        Ok(())
    }
}

fn check_filters(field: &'static str, filters: &[String]) -> Result<(), ParseError> {
    let is_sound = |filter: &String| {
        filter.len() <= FILTER_BYTES_MAX && !filter.chars().any(|character| character.is_control())
    };
    if filters.len() > FILTERS_MAX || !filters.iter().all(is_sound) {
        return range(field, "at most 64 filters of 1024 bytes each without control characters");
    }
    Ok(())
}

impl Mac {
    /// IEEE 802.3, clause 3.2.3: the first bit on the wire is 0 in the address of one interface.
    fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress::new(text, "an Ethernet address like 02:00:00:00:00:01");
        let mut parts = text.split(':');
        let mut octets = [0; 6];
        for octet in &mut octets {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(bad)?;
            let is_hex = part.bytes().all(|byte| byte.is_ascii_hexdigit());
            *octet = u8::from_str_radix(part, 16).ok().filter(|_| is_hex).ok_or_else(bad)?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(Self(octets)) }
    }
}

impl fmt::Display for MacChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("own"),
            Self::Fixed(mac) => mac.fmt(f),
        }
    }
}

impl FromStr for MacChoice {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        if text == "own" { Ok(Self::Own) } else { text.parse().map(Self::Fixed) }
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_length)
    }
}

impl FromStr for InterfaceAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress::new(text, "an address with its prefix like 10.0.0.9/24");
        let (address, prefix_length) = text.split_once('/').ok_or_else(bad)?;
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let prefix_length = prefix_length.parse().map_err(|_| bad())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        if prefix_length > bits { Err(bad()) } else { Ok(Self { address, prefix_length }) }
    }
}

impl BadAddress {
    fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.into(), expected }
    }
}

/// Serde goes through the text form.
macro_rules! as_text {
    ($($name:ident)*) => {$(
        impl TryFrom<String> for $name {
            type Error = BadAddress;

            fn try_from(text: String) -> Result<Self, BadAddress> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    )*};
}

as_text!(Mac MacChoice InterfaceAddress);
