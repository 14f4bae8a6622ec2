//! 802.1Q tags (IEEE 802.1Q, clause 9.6): the four bytes behind the ether type 0x8100.
//!
//! ```text
//!  0               1               2               3
//! +-----+-+-----------------------+-------------------------------+
//! | PCP |D|        VLAN id        |          ether type           |
//! +-----+-+-----------------------+-------------------------------+
//! ```

use crate::Malformed;
use crate::bytes::{head_mut, put, u16_at};
use crate::view::view;

/// The length of a tag, counted from behind the ether type that announces it.
pub const TAG_LENGTH: usize = 4;
/// The highest VLAN id; 0xfff is reserved. 0 says that the frame has a priority and no VLAN.
pub const ID_MAX: u16 = 0xffe;

view! {
    /// The bytes that follow the ether type 0x8100.
    at_least TAG_LENGTH
}

impl<'a> View<'a> {
    /// The priority code point, 0 to 7.
    #[inline]
    #[must_use]
    pub fn priority(&self) -> u8 {
        self.bytes[0] >> 5
    }

    /// The drop eligible indicator.
    #[inline]
    #[must_use]
    pub fn drop_eligible(&self) -> bool {
        self.bytes[0] & 0x10 != 0
    }

    /// The VLAN id.
    #[inline]
    #[must_use]
    pub fn id(&self) -> u16 {
        u16_at(self.bytes, 0) & 0xfff
    }

    /// What the payload is.
    #[inline]
    #[must_use]
    pub fn ether_type(&self) -> u16 {
        u16_at(self.bytes, 2)
    }

    /// What follows the tag.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[TAG_LENGTH..]
    }
}

/// A valid tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// 0 to 7.
    pub priority: u8,
    /// May be dropped first when the network is congested.
    pub drop_eligible: bool,
    /// 0 to [`ID_MAX`].
    pub id: u16,
    /// What the payload is.
    pub ether_type: u16,
}

impl Repr {
    /// Refuses the reserved id.
    #[inline]
    pub fn parse(view: &View<'_>) -> Result<Self, Malformed> {
        if view.id() > ID_MAX {
            return Err(Malformed::Field);
        }
        Ok(Self {
            priority: view.priority(),
            drop_eligible: view.drop_eligible(),
            id: view.id(),
            ether_type: view.ether_type(),
        })
    }

    /// Writes the tag.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let tag: &mut [u8; TAG_LENGTH] = head_mut(bytes);
        let control =
            u16::from(self.priority) << 13 | u16::from(self.drop_eligible) << 12 | self.id;
        put(tag, 0, control.to_be_bytes());
        put(tag, 2, self.ether_type.to_be_bytes());
        TAG_LENGTH
    }

    /// The length of the tag.
    #[must_use]
    pub const fn length(&self) -> usize {
        TAG_LENGTH
    }
}
