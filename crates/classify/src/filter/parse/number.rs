//! Numbers, addresses and prefixes in a filter.

use crate::Ports;
use crate::filter::FilterError;
use crate::filter::lexer::{Token, Tokens};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A number up to `max`, decimal or with 0x.
pub(super) fn number(tokens: &mut Tokens<'_>, what: &str, max: u64) -> Result<u64, FilterError> {
    let token = tokens.take(&format!("{what}, a number up to {max}"))?;
    parse(token.text).filter(|&number| number <= max).ok_or_else(|| {
        let problem = format!("`{}` is no {what}", token.text);
        FilterError::new(token.column, problem, format!("write a number from 0 to {max}"))
    })
}

/// A decimal number, or a hexadecimal one with 0x.
pub(super) fn parse(text: &str) -> Option<u64> {
    if text.starts_with('+') {
        return None;
    }
    match text.strip_prefix("0x") {
        Some(digits) if digits.starts_with('+') => None,
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// `1000-2000`.
pub(super) fn port_range(tokens: &mut Tokens<'_>) -> Result<Ports, FilterError> {
    let token = tokens.take("a range of ports, such as 1000-2000")?;
    let port = |text: &str| parse(text).and_then(|number| u16::try_from(number).ok());
    let range = token.text.split_once('-');
    let range = range.and_then(|(first, last)| Ports::new(port(first)?, port(last)?));
    range.ok_or_else(|| {
        let problem = format!("`{}` is no range of ports", token.text);
        FilterError::new(token.column, problem, "write the lower and the higher, as in 1000-2000")
    })
}

/// `02:00:00:00:00:aa`.
pub(super) fn mac(token: Token<'_>) -> Result<u64, FilterError> {
    let mut octets = token.text.split([':', '-']);
    let mut address = 0;
    let mut fits = true;
    for _ in 0..6 {
        let octet = octets.next().filter(|octet| (1..=2).contains(&octet.len()));
        let octet = octet.filter(|octet| octet.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let octet = octet.and_then(|octet| u64::from_str_radix(octet, 16).ok());
        fits &= octet.is_some();
        address = address << 8 | octet.unwrap_or(0);
    }
    if fits && octets.next().is_none() {
        return Ok(address);
    }
    let problem = format!("`{}` is no Ethernet address", token.text);
    Err(FilterError::new(token.column, problem, "write it as 02:00:00:00:00:0a"))
}

/// An address with the number of its bits that matter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefix {
    pub(super) address: IpAddr,
    pub(super) bits: u32,
}

impl Prefix {
    /// An address, all of it.
    pub(super) fn host(token: Token<'_>) -> Result<Self, FilterError> {
        let Ok(address) = token.text.parse::<IpAddr>() else {
            let problem = format!("`{}` is no IP address", token.text);
            let remedy = "write one as 10.0.0.2 or 2001:db8::2; prefixes go with `net`";
            return Err(FilterError::new(token.column, problem, remedy));
        };
        Ok(Self { address, bits: width(address) })
    }

    /// `10.0.0.0/8`, `10/8`, `2001:db8::/32`, or an address alone.
    pub(super) fn net(token: Token<'_>) -> Result<Self, FilterError> {
        let (address, length) = match token.text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (token.text, None),
        };
        let wrong = || {
            let problem = format!("`{}` is no prefix of addresses", token.text);
            FilterError::new(token.column, problem, "write one as 10.0.0.0/8 or 2001:db8::/32")
        };
        let address = full_address(address).ok_or_else(wrong)?;
        let bits = match length {
            Some(length) => parse(length).filter(|&bits| bits <= u64::from(width(address))),
            None => Some(u64::from(width(address))),
        };
        let prefix = Self { address, bits: bits.ok_or_else(wrong)? as u32 };
        prefix.without_rest(token)
    }

    /// Refuses bits behind the prefix, as tcpdump does: they mean that something was mistyped.
    fn without_rest(self, token: Token<'_>) -> Result<Self, FilterError> {
        let (number, width) = match self.address {
            IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        let kept = number & !(u128::MAX.checked_shr(self.bits).unwrap_or(0));
        if kept == number {
            return Ok(self);
        }
        let right = match width {
            32 => IpAddr::V4(Ipv4Addr::from((kept >> 96) as u32)),
            _ => IpAddr::V6(Ipv6Addr::from(kept)),
        };
        let problem = format!("`{}` has bits behind its prefix", token.text);
        Err(FilterError::new(token.column, problem, format!("write {right}/{}", self.bits)))
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// An address; IPv4 may leave octets out at the end, as in `10/8`.
fn full_address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let missing = 4usize.checked_sub(text.split('.').count())?;
    format!("{text}{}", ".0".repeat(missing)).parse().ok()
}
