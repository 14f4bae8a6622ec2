//! Operations that are not over, found by their tokens without a hash: a token is a place, and
//! above it how often the place was used before.

use clearway_channel::Extent;

/// What each takes along, until the daemon says that it is over.
#[derive(Default)]
pub(super) struct Outstanding {
    places: Vec<Place>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Place {
    generation: u32,
    /// Somebody has it.
    is_taken: bool,
    payload: Option<Extent>,
}

impl Outstanding {
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// One more; its token.
    pub(super) fn begin(&mut self, payload: Option<Extent>) -> u64 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[at as usize];
        place.generation = place.generation.wrapping_add(1);
        (place.is_taken, place.payload) = (true, payload);
        u64::from(place.generation) << 32 | u64::from(at)
    }

    /// It is over; what it took along. A token of none is the daemon's mistake, and changes
    /// nothing.
    pub(super) fn end(&mut self, token: u64) -> Option<Extent> {
        let place = self.places.get_mut(token as u32 as usize)?;
        if !place.is_taken || u64::from(place.generation) != token >> 32 {
            return None;
        }
        place.is_taken = false;
        self.free.push(token as u32);
        place.payload.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_means_another_operation_later() {
        let mut outstanding = Outstanding::default();
        let first = outstanding.begin(None);
        let second = outstanding.begin(None);
        assert_eq!((outstanding.len(), first == second), (2, false));
        outstanding.end(first);
        let third = outstanding.begin(None);
        assert_eq!(first as u32, third as u32, "the place is used again");
        outstanding.end(first);
        assert_eq!(outstanding.len(), 2, "and the old token is nobody's");
        outstanding.end(u64::MAX);
        outstanding.end(second);
        outstanding.end(third);
        assert_eq!(outstanding.len(), 0);
    }
}
