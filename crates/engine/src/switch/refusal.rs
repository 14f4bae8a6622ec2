//! Why a VIF was not opened, and why a frame of one was not sent.

use clearway_channel::FrameRefusal;
use clearway_classify::directory::SendFault;

/// Why a VIF was not opened. The text names cause and remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VifRefused {
    /// The app has no such connection.
    #[error(
        "that app has no connection {0}; `clearway status` shows the connections under \"FLOWS\""
    )]
    NoConnection(u64),
    /// The channel is gone, or has broken its contract.
    #[error("the app's channel has ended")]
    NoChannel,
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
