//! Operations that are not over, found by their tokens without a hash: a token is the place of
//! its operation, and above it the operation's number, so that later tokens are larger.

use clearway_channel::{Extent, OUTSTANDING_OPERATIONS_MAX};

/// Bits of a token that say the place.
const PLACE_BITS: u32 = 16;

/// The token of what nobody waits for, and of no operation here.
pub(crate) const NOBODYS: u64 = 0;

const _: () = assert!(OUTSTANDING_OPERATIONS_MAX <= 1 << PLACE_BITS);

/// What each takes along, until the daemon says that it is over.
#[derive(Default)]
pub(super) struct Outstanding {
    places: Vec<Place>,
    free: Vec<u16>,
    /// Operations that were begun, ever.
    begun: u64,
}

/// The operation that has it, and what that took along.
struct Place {
    /// `NOBODYS` if none has it.
    token: u64,
    payload: Option<Extent>,
}

impl Outstanding {
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn has_room_for(&self, operations: usize) -> bool {
        self.len() + operations <= OUTSTANDING_OPERATIONS_MAX as usize
    }

    /// One more, for which there is room; its token.
    pub(super) fn begin(&mut self, payload: Option<Extent>) -> u64 {
        self.begun += 1;
        let at = self.free.pop().unwrap_or(self.places.len() as u16);
        let token = self.begun << PLACE_BITS | u64::from(at);
        let place = Place { token, payload };
        match self.places.get_mut(usize::from(at)) {
            Some(found) => *found = place,
            None => self.places.push(place),
        }
        token
    }

    /// It is over; what it took along. A token of none is the daemon's mistake, and changes
    /// nothing.
    pub(super) fn end(&mut self, token: u64) -> Option<Extent> {
        let at = token as u16;
        let place = self.places.get_mut(usize::from(at))?;
        if place.token != token || token == NOBODYS {
            return None;
        }
        place.token = NOBODYS;
        self.free.push(at);
        place.payload.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_tokens_are_larger_and_none_means_two_operations() {
        let mut outstanding = Outstanding::default();
        let first = outstanding.begin(None);
        let second = outstanding.begin(None);
        assert!(0 < first && first < second);
        assert_eq!(outstanding.len(), 2);
        outstanding.end(first);
        let third = outstanding.begin(None);
        assert_eq!(first as u16, third as u16, "the place is used again");
        assert!(second < third);
        outstanding.end(first);
        assert_eq!(outstanding.len(), 2, "and the old token is nobody's");
        outstanding.end(u64::MAX);
        outstanding.end(0);
        outstanding.end(second);
        outstanding.end(third);
        assert_eq!(outstanding.len(), 0);
        outstanding.end(0);
        assert_eq!(outstanding.len(), 0);
    }
}
