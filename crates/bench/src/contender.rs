//! Who takes part in a comparison.

use crate::arguments::Compare;
use crate::load::Load;
use serde::{Deserialize, Serialize};

/// One way for two apps to exchange messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contender {
    /// Clearway, over the wire and in the layout that were asked for.
    Clearway,
    /// TCP of Clearway, likewise, everything that is pending in one call.
    ClearwayTcp,
    /// The same, and no app copies anything.
    ClearwayTcpInPlace,
    /// Kernel TCP, a call per message, never sleeping.
    TcpSpin,
    /// Kernel TCP, a call per message, sleeping in `recv`.
    TcpBlock,
    /// Kernel TCP, never sleeping, everything that is pending in one call.
    TcpBatch,
    /// Kernel UDP, a call per message, never sleeping.
    UdpSpin,
    /// A Unix stream socket, a call per message, never sleeping.
    UnixSpin,
}

/// The most that one UDP datagram over IPv4 can carry: 65,535 less the headers (RFC 768, RFC 791).
const DATAGRAM_BYTES_MAX: usize = 65_507;

impl Contender {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clearway => "clearway",
            Self::ClearwayTcp => "clearway_tcp",
            Self::ClearwayTcpInPlace => "clearway_tcp_in_place",
            Self::TcpSpin => "tcp_spin",
            Self::TcpBlock => "tcp_block",
            Self::TcpBatch => "tcp_batch",
            Self::UdpSpin => "udp_spin",
            Self::UnixSpin => "unix_spin",
        }
    }

    /// The contenders of the kernel that `compare` asks for, and why any of them is left out.
    pub(crate) fn of_kernel(compare: &[Compare], load: &Load) -> (Vec<Self>, Vec<String>) {
        let mut contenders = Vec::new();
        let mut notes = Vec::new();
        if compare.contains(&Compare::Tcp) {
            contenders.extend([Self::TcpSpin, Self::TcpBlock]);
            if load.window > 1 {
                contenders.push(Self::TcpBatch);
            }
        }
        if load.connections > 1 {
            if compare.iter().any(|wanted| *wanted != Compare::Tcp) {
                notes.push("udp_spin and unix_spin are left out: they have one connection".into());
            }
            return (contenders, notes);
        }
        if compare.contains(&Compare::Udp) && load.size <= DATAGRAM_BYTES_MAX {
            contenders.push(Self::UdpSpin);
        } else if compare.contains(&Compare::Udp) {
            notes.push(format!(
                "udp_spin is left out: {DATAGRAM_BYTES_MAX} bytes at most fit into a datagram"
            ));
        }
        if compare.contains(&Compare::Unix) {
            contenders.push(Self::UnixSpin);
        }
        (contenders, notes)
    }

    /// Whether it is Clearway, with which the others are compared.
    pub(crate) const fn is_clearway(self) -> bool {
        matches!(self, Self::Clearway | Self::ClearwayTcp | Self::ClearwayTcpInPlace)
    }

    /// Whether its bytes cross the veth pair when there is one.
    pub(crate) const fn crosses_wire(self) -> bool {
        !matches!(self, Self::UnixSpin)
    }
}
