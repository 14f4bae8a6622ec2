//! Ethernet frames as what goes through a network.

use clearway_world::{Connection, Packet};

use super::ecn;
use super::tuple::Tuple;

/// A frame, for [`super::Way::enter`].
#[derive(Debug)]
pub struct Frame<'a>(pub &'a mut [u8]);

impl Packet for Frame<'_> {
    fn bytes(&mut self) -> &mut [u8] {
        self.0
    }

    fn frame_bytes(&self) -> usize {
        self.0.len()
    }

    fn mark(&mut self) -> bool {
        ecn::mark(self.0)
    }

    fn connection(&self) -> Option<Connection> {
        Tuple::of(self.0).and_then(|tuple| tuple.connection())
    }
}
