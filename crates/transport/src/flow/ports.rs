//! The UDP ports that a flow sends from.

use clearway_base::Random;

/// The lowest UDP port that flows send from; the highest is the last there is. Nothing else is
/// known by them: RFC 6335, section 6: "the Dynamic Ports, also known as the
/// Private or Ephemeral Ports, from 49152-65535 (never assigned)".
pub const SOURCE_PORT_MIN: u16 = 49152;

/// Which UDP port this side sends from.
#[derive(Debug)]
pub(super) struct Ports {
    current: u16,
}

impl Ports {
    pub(super) const fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let port = SOURCE_PORT_MIN | random.next_u32() as u16; // the rest of the bits are its own
        Self { current: port }
    }

    pub(super) const fn current(&self) -> u16 {
        self.current
    }
}
