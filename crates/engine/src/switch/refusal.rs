//! Why a VIF was not opened, and why a frame of one was not sent.

use clearway_channel::FrameRefusal;
use clearway_classify::Filter;
use clearway_classify::registry::{self, SendFault};

/// Why a VIF was not opened. The text names cause and remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VifRefused {
    /// Another app may send what is wanted.
    #[error(
        "`{wanted}` overlaps with `{existing}`, which {owner} may send; choose other ports or addresses, or end that app"
    )]
    Transmit {
        /// The alternative that is refused.
        wanted: Filter,
        /// What it overlaps with.
        existing: Filter,
        /// Whose that is.
        owner: String,
    },
    /// Another app receives what is wanted, with the same priority.
    #[error(
        "`{wanted}` overlaps with `{existing}`, which {owner} receives with the same priority; choose other ports or addresses, or declare another priority"
    )]
    Receive {
        /// The alternative that is refused.
        wanted: Filter,
        /// What it overlaps with.
        existing: Filter,
        /// Whose that is.
        owner: String,
    },
    /// A service of the host receives all that is wanted.
    #[error("`{wanted}` is received by the host's own {service}; choose other ports or addresses")]
    OfHost {
        /// The alternative that is refused.
        wanted: Filter,
        /// Which service.
        service: &'static str,
    },
    /// There is no more room.
    #[error("{0}")]
    Limit(String),
    /// The app has no such connection.
    #[error(
        "that app has no connection {0}; `clearway status` shows the connections under \"FLOWS\""
    )]
    NoConnection(u64),
    /// The channel is gone, or has broken its contract.
    #[error("the app's channel has ended")]
    NoChannel,
    /// A priority that only the host has.
    #[error("priority {0} is too high; the highest is {max}", max = super::PRIORITY_MAX)]
    Priority(u16),
    /// The filters of one list have more alternatives than one filter may have.
    #[error("there are more than {max} alternatives in {0}; open several virtual interfaces", max = clearway_classify::filter::ALTERNATIVES_MAX)]
    Alternatives(&'static str),
}

impl VifRefused {
    /// `name` says what the owners are called.
    pub(super) fn new(
        refusal: registry::Refusal,
        name: impl Fn(registry::OwnerId) -> String,
    ) -> Self {
        match refusal {
            registry::Refusal::Send { wanted, existing, owner } => {
                Self::Transmit { wanted, existing, owner: name(owner) }
            }
            registry::Refusal::Receive { wanted, existing, owner, .. } => {
                Self::Receive { wanted, existing, owner: name(owner) }
            }
            limit => Self::Limit(limit.to_string()),
        }
    }
}

/// The reason that apps and captures are told, of what is wrong with a packet.
pub(super) const fn of_fault(fault: SendFault) -> FrameRefusal {
    match fault {
        SendFault::Nothing => FrameRefusal::Nothing,
        SendFault::MacSource => FrameRefusal::MacSource,
        SendFault::Vlan => FrameRefusal::Vlan,
        SendFault::Network => FrameRefusal::Network,
        SendFault::Protocol => FrameRefusal::Protocol,
        SendFault::Unclear => FrameRefusal::Unclear,
        SendFault::Source => FrameRefusal::Source,
        SendFault::SourcePort => FrameRefusal::SourcePort,
        SendFault::Destination => FrameRefusal::Destination,
        SendFault::Other => FrameRefusal::Other,
    }
}
