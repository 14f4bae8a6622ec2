//! Why a VIF is not registered.

use super::{OwnerId, UserId};
use crate::Filter;

/// Why a VIF is not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another owner may send what is wanted.
    #[error(
        "send pattern `{wanted}` overlaps with `{existing}` of owner {}; choose other ports or \
         addresses, or wait until it is removed",
        owner.0
    )]
    Send {
        /// The alternative that is refused.
        wanted: Filter,
        /// What it overlaps with.
        existing: Filter,
        /// Whose that is.
        owner: OwnerId,
    },
    /// Another owner receives what is wanted, with the same priority.
    #[error(
        "receive pattern `{wanted}` overlaps with `{existing}` of owner {}, which has the same \
         priority, {priority}; choose other ports or addresses, or declare another priority",
        owner.0
    )]
    Receive {
        /// The alternative that is refused.
        wanted: Filter,
        /// What it overlaps with.
        existing: Filter,
        /// Whose that is.
        owner: OwnerId,
        /// The priority that both have.
        priority: u16,
    },
    /// Only the host may send what is wanted.
    #[error(
        "send pattern `{wanted}` overlaps with `{existing}`, which only the host's own {name} may \
         send; choose other ports or addresses"
    )]
    SendReserved {
        /// The alternative that is refused.
        wanted: Filter,
        /// What it overlaps with.
        existing: Filter,
        /// What of the host has it.
        name: &'static str,
    },
    /// The host receives all that is wanted.
    #[error("`{wanted}` is received by the host's own {name}; choose other ports or addresses")]
    ReceiveReserved {
        /// The alternative that is refused.
        wanted: Filter,
        /// What of the host has it.
        name: &'static str,
    },
    /// There would be more than there may be.
    #[error(
        "all users together would have more than {limit} {what}, which is the limit; close some \
         first"
    )]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// The user would have more than it may have.
    #[error(
        "the virtual interfaces of user {} would have more than {limit} {what}, which is the \
         limit; close some first, or use a wider pattern that covers several",
        user.0
    )]
    TooManyOfUser {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        limit: usize,
        /// Whose.
        user: UserId,
    },
}
