//! The other side where there is more than one flow: sends frames into a memif as fast as they are
//! taken. testpmd's `txonly` knows one flow, or 256.

use super::flows::{Flows, PEER_MAC};
use super::{BURST_FRAMES, RING_LOG2};
use crate::error::Error;
use crate::process::Event;
use crate::role::tell;
use clearway_nic::{Queue, Transmit, memif};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What this process does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GeneratorRole {
    pub(super) socket: PathBuf,
    pub(super) flows: u16,
}

impl GeneratorRole {
    /// Runs until it is ended from outside.
    pub(crate) fn play(&self) -> Result<(), Error> {
        let mut queue = open(&self.socket).map_err(|error| Error::Options(error.to_string()))?;
        tell(&Event::Ready(String::new()));
        let mut flows = Flows::of_peer(self.flows);
        loop {
            queue.receive(BURST_FRAMES, &mut |_, _| ());
            send_burst(&mut queue, &mut flows);
        }
    }
}

/// The other end of a host's wire.
pub(super) fn open(socket: &Path) -> Result<memif::Queue, clearway_nic::Error> {
    let mut config =
        memif::Config::new(memif::Socket::Path(socket.to_owned()), memif::Role::Server, PEER_MAC);
    config.ring_size_log2 = RING_LOG2;
    let opened = memif::open(config)?;
    Ok(opened.into_iter().next().expect("a memif has a queue"))
}

pub(super) fn send_burst(queue: &mut impl Queue, flows: &mut Flows) {
    for _ in 0..BURST_FRAMES {
        let transmit = queue.transmit(&mut |buffer| {
            let frame = flows.next_frame();
            buffer[..frame.len()].copy_from_slice(frame);
            frame.len()
        });
        if transmit == Transmit::Full {
            break;
        }
    }
    queue.flush();
}
