//! How large the frames are that a peer is sent.
//!
//! The handshake of memif has no field for that. So each side says in its name, which others ignore
//! or show, how large the packets are that it takes: `clearway 0.1.0 mtu 33000`. A side sends no
//! more than the other takes, nor more than it takes itself. To a peer that does not say it sends
//! what its configuration has for such ([`Config::frame_bytes_unsaid`]).
//!
//! What a peer says is only believed to make frames smaller than this side has room for: whoever
//! says too much loses what it does not take.

use std::fmt;

use super::Config;
use super::message::{NAME_BYTES, Text};
use crate::HEADER_BYTES_MAX;

const PROGRAM: &str = concat!("clearway ", env!("CARGO_PKG_VERSION"));
/// What stands between the program and the size.
const MARK: &str = " mtu ";
/// RFC 791, section 3.1: every host takes packets of that size. Who says less has said nothing.
const MTU_MIN: u16 = 576;
const MTU_DIGITS: usize = 5;

const _: () = assert!(PROGRAM.len() + MARK.len() + MTU_DIGITS < NAME_BYTES, "the name is cut off");

/// Our name, with the size of the packets that we take.
pub(super) fn own_name(config: &Config) -> Text<NAME_BYTES> {
    let mtu = config.frame_bytes_max.saturating_sub(HEADER_BYTES_MAX);
    Text::new(&format!("{PROGRAM}{MARK}{mtu}"))
}

/// The largest frame that a peer is sent, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its bytes, Ethernet header included.
    pub frame_bytes: usize,
    /// What they come from.
    pub reason: Reason,
}

/// Why frames are no larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Both sides take that and no more.
    Both,
    /// The peer takes no more.
    Peer,
    /// This side takes no more.
    Own,
    /// The peer does not say what it takes.
    Unsaid,
}

impl Limit {
    /// What a peer of this name is sent.
    pub(super) fn of(config: &Config, name: &Text<NAME_BYTES>) -> Self {
        let own = config.frame_bytes_max;
        let Some((_, mtu)) = split(name) else {
            let frame_bytes = config.frame_bytes_unsaid.unwrap_or(own).min(own);
            return Self { frame_bytes, reason: Reason::Unsaid };
        };
        let theirs = usize::from(mtu) + HEADER_BYTES_MAX;
        let reason = match theirs.cmp(&own) {
            std::cmp::Ordering::Less => Reason::Peer,
            std::cmp::Ordering::Equal => Reason::Both,
            std::cmp::Ordering::Greater => Reason::Own,
        };
        Self { frame_bytes: own.min(theirs), reason }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mtu = self.frame_bytes.saturating_sub(HEADER_BYTES_MAX);
        let reason = match self.reason {
            Reason::Both => "as both sides take",
            Reason::Peer => "as the peer takes",
            Reason::Own => "the peer takes more, but not this side",
            Reason::Unsaid => "the peer does not say what it takes",
        };
        write!(f, "packets of up to {mtu} bytes ({reason})")
    }
}

/// The name of a peer's program, for people.
pub(super) fn program(name: &Text<NAME_BYTES>) -> String {
    let program = split(name).map_or(name.as_bytes(), |(program, _)| program);
    program.escape_ascii().to_string()
}

/// The program, and the size of packets that it takes, if it says one.
fn split(name: &Text<NAME_BYTES>) -> Option<(&[u8], u16)> {
    let name = name.as_bytes();
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (rest, digits) = name.split_at(name.len() - digits);
    let mtu: u16 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (mtu >= MTU_MIN).then_some((rest.strip_suffix(MARK.as_bytes())?, mtu))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memif::{Role, Socket};

    fn config(frame_bytes_max: usize, unsaid: Option<usize>) -> Config {
        let config = Config::new(Socket::Abstract("none".into()), Role::Server, [2; 6]);
        Config { frame_bytes_max, frame_bytes_unsaid: unsaid, ..config }
    }

    fn limit(config: &Config, name: &str) -> (usize, Reason) {
        let Limit { frame_bytes, reason } = Limit::of(config, &Text::new(name));
        (frame_bytes, reason)
    }

    #[test]
    fn the_smaller_of_both_sides_is_used() {
        let large = config(33_018, Some(1518));
        let said = own_name(&large);
        assert_eq!(said.to_string(), concat!("clearway ", env!("CARGO_PKG_VERSION"), " mtu 33000"));
        assert_eq!(program(&said), PROGRAM);
        let small = own_name(&config(9018, None)).to_string();
        assert_eq!(limit(&large, &said.to_string()), (33_018, Reason::Both));
        assert_eq!(limit(&large, &small), (9018, Reason::Peer));
        assert_eq!(limit(&config(1518, None), &small), (1518, Reason::Own));
        assert_eq!(limit(&config(65_536, None), "any 1.0 mtu 65535"), (65_536, Reason::Own));
    }

    #[test]
    fn who_says_nothing_is_sent_what_the_configuration_says() {
        for name in ["", "clearway 0.1.0", "DPDK 22.11.4", "VPP 24.02", "mtu", "mtu 9000"] {
            assert_eq!(limit(&config(33_018, Some(1518)), name), (1518, Reason::Unsaid), "{name}");
            assert_eq!(limit(&config(33_018, None), name), (33_018, Reason::Unsaid), "{name}");
            assert_eq!(program(&Text::new(name)), name);
        }
        assert_eq!(limit(&config(1000, Some(1518)), "DPDK"), (1000, Reason::Unsaid));
    }

    #[test]
    fn whatever_a_peer_says_is_bounded() {
        let lies = ["0", "1", "575", "65536", "99999999999", "-1", "+9000", "9000 ", "", "0x9000"];
        for lie in lies {
            let name = format!("x mtu {lie}");
            assert_eq!(limit(&config(33_018, Some(1518)), &name), (1518, Reason::Unsaid), "{name}");
        }
        assert_eq!(limit(&config(33_018, None), "x mtu 65535"), (33_018, Reason::Own));
        assert_eq!(limit(&config(33_018, None), "x mtu 576"), (594, Reason::Peer));
        assert_eq!(program(&Text::new("\u{1b}[31m mtu 9000")), "\\x1b[31m");
    }
}
