//! Why a VIF was not opened, and why a frame of one was not sent.

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

/// Why a frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The VIF may not send such a frame.
    Forbidden(SendFault),
    /// It is longer than the NIC takes.
    TooLong,
    /// The policy allows fewer frames per second.
    Rate,
    /// It is for the host's own kernel, which is not on this side of the NIC that both share.
    ToKernel,
}

impl Refusal {
    const OWN: [Self; 3] = [Self::TooLong, Self::Rate, Self::ToKernel];
    /// How many there are.
    pub const COUNT: usize = SendFault::ALL.len() + Self::OWN.len();

    /// All of them, in the order of [`Refusal::index`].
    pub fn all() -> impl Iterator<Item = Self> {
        SendFault::ALL.into_iter().map(Self::Forbidden).chain(Self::OWN)
    }

    /// The position among all.
    #[must_use]
    pub fn index(self) -> usize {
        Self::all().position(|other| other == self).expect("each is among all")
    }

    /// A word for it, for counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forbidden(fault) => fault.name(),
            Self::TooLong => "too-long",
            Self::Rate => "rate",
            Self::ToKernel => "to-kernel",
        }
    }

    /// The number that `FramesSent` and captures carry: 1 up; 0 is none.
    #[must_use]
    pub fn code(self) -> u8 {
        self.index() as u8 + 1
    }

    /// The reason that has this number.
    #[must_use]
    pub fn of_code(code: u8) -> Option<Self> {
        Self::all().nth(usize::from(code).checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::Refusal;

    #[test]
    fn numbers_and_names_are_unique() {
        let all: Vec<_> = Refusal::all().collect();
        assert_eq!(all.len(), Refusal::COUNT);
        for (index, reason) in all.iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert_eq!(Refusal::of_code(reason.code()), Some(*reason));
            assert!(all[..index].iter().all(|other| other.name() != reason.name()));
        }
        assert_eq!((Refusal::of_code(0), Refusal::of_code(255)), (None, None));
    }
}
