//! Having the NIC give an interface its frames. Over memif everything comes anyway.

use clearway_channel::Code;
use clearway_channel::control::Refusal;

use super::super::engines::EngineSlot;
use super::super::requests::refusal;

impl EngineSlot {
    /// Steers the frames of an interface to the engine, or says why not.
    pub(super) fn steer(&mut self, number: u32) -> Result<(), Refusal> {
        let is_capture = self.vifs.grant(number).is_none();
        if self.steering.is_none() || is_capture {
            return Ok(());
        }
        let text = "frames of the kernel's interfaces cannot be steered to virtual interfaces in \
                    this version; use a memif link";
        Err(refusal(Code::Unsupported, text))
    }
}
