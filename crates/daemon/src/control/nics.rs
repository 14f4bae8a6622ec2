//! What the kernel does for a NIC, and what comes from there. What apps have to do with it is
//! [`clearway_control::Nic`].

use std::collections::HashSet;
use std::thread::JoinHandle;
use std::time::Instant;

use clearway_channel::Code;
use clearway_channel::control::Refusal;
use clearway_control::policy::HostPort;
use clearway_control::{Lost, Steered};
use clearway_engine::Plug;
use clearway_nic::Error;
use clearway_nic::interface::Steering;

use super::ledger::Ledger;
use super::neighbours::Followed;
use super::network::Following;
use super::plugging::Stage;
use super::requests::refusal;
use crate::config::Nic;
use crate::nic::{KernelSide, OpenNic};

/// One NIC.
pub(crate) struct NicSlot {
    pub(super) name: String,
    /// What it is to be.
    pub(super) config: Nic,
    pub(super) stage: Stage,
    /// Why it is not open, if it is not, or what is not as it could be.
    pub(super) trouble: String,
    /// Counted up whenever it is to be another: what was begun before is not wanted any more.
    pub(super) attempt: u64,
    /// Engines that were given queues and have not said so.
    pub(super) unanswered: usize,
    /// Room for a frame to be sent, when it was open last.
    pub(super) frame_bytes: usize,
    /// What is to be closed.
    pub(super) leftovers: Leftovers,
    /// Who is at it.
    pub(super) closing: Option<JoinHandle<()>>,
    /// What virtual interfaces have of it.
    ledger: Ledger,
    /// Steers frames to the engines for as long as it lives.
    pub(super) steering: Option<Box<dyn Steering>>,
    /// The kernel's neighbours, if it shares the NIC.
    pub(super) neighbours: Option<Followed>,
    /// Follows the kernel's interface, if the NIC is one.
    pub(super) following: Option<Following>,
}

/// What is left of a NIC that was open.
#[derive(Default)]
pub(super) struct Leftovers {
    pub(super) plugs: Vec<Plug>,
    pub(super) opened: Option<OpenNic>,
    steering: Option<Box<dyn Steering>>,
}

impl NicSlot {
    /// One that is open, with room for frames of so many bytes.
    pub(crate) fn new(config: Nic, kernel: KernelSide, frame_bytes: usize) -> Self {
        let mut slot = Self { stage: Stage::Open, frame_bytes, ..Self::not_open(config) };
        slot.trouble = String::new();
        slot.take_kernel(kernel);
        slot
    }

    /// One that is to be opened.
    pub(super) fn not_open(config: Nic) -> Self {
        Self {
            name: config.name.clone(),
            config,
            stage: Stage::Waiting(Instant::now()),
            trouble: "it has not been opened yet".to_owned(),
            attempt: 0,
            unanswered: 0,
            frame_bytes: 0,
            leftovers: Leftovers::default(),
            closing: None,
            ledger: Ledger::default(),
            steering: None,
            neighbours: None,
            following: None,
        }
    }

    /// What the kernel does for it from now on.
    pub(super) fn take_kernel(&mut self, kernel: KernelSide) {
        self.steering = kernel.steering;
        self.neighbours = kernel.neighbours.map(Followed::new);
        self.following = kernel.follower.map(Following::new);
    }

    /// The kernel does nothing more for it.
    pub(super) fn leave_kernel(&mut self) {
        self.leftovers.steering = self.steering.take();
        (self.neighbours, self.following) = (None, None);
    }

    /// It has been opened again: asks it for what virtual interfaces had. Returns what it does not
    /// give.
    pub(super) fn ask_again(&mut self) -> Vec<(Lost, Error)> {
        let Some(steering) = &mut self.steering else { return Vec::new() };
        self.ledger.ask_again(steering.as_mut())
    }

    /// Says why it is not open, once.
    pub(super) fn be_in_trouble(&mut self, why: String) {
        if self.trouble != why {
            tracing::warn!(nic = self.name, "the NIC is not open: {why}");
            self.trouble = why;
        }
    }

    /// Takes ports from the kernel's programs: all of them or, with a refusal, none. Each takes an
    /// open file, if there `may_be` another.
    pub(super) fn claim(
        &mut self,
        ports: &HashSet<HostPort>,
        may_be: impl Fn() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        if let Some(steering) = &mut self.steering {
            let mut claimed = HashSet::new();
            for port in ports {
                let taken = may_be().and_then(|()| claim_one(steering.as_mut(), *port));
                if taken.is_err() {
                    release_all(steering.as_mut(), &claimed);
                    return taken;
                }
                claimed.insert(*port);
            }
        }
        ports.iter().for_each(|port| self.ledger.claimed(*port));
        Ok(())
    }

    /// Gives ports back to the kernel's programs. No engine sends from them any more.
    pub(super) fn release(&mut self, ports: &HashSet<HostPort>) {
        ports.iter().for_each(|port| self.ledger.released(*port));
        if let Some(steering) = &mut self.steering {
            release_all(steering.as_mut(), ports);
        }
    }

    /// Steers frames to the engines: all of them or, with a refusal, none.
    pub(super) fn steer(&mut self, wanted: &Steered) -> Result<(), Refusal> {
        if let Some(steering) = &mut self.steering {
            let mut done = Steered::default();
            steer_into(&mut done, wanted, steering.as_mut()).map_err(|error| {
                unsteer(&done, steering.as_mut());
                refusal(Code::Refused, format!("the NIC cannot steer these frames here: {error}"))
            })?;
        }
        self.ledger.steered(wanted);
        Ok(())
    }

    /// Gives frames back to the kernel.
    pub(super) fn unsteer(&mut self, steered: &Steered) {
        self.ledger.unsteered(steered);
        if let Some(steering) = &mut self.steering {
            unsteer(steered, steering.as_mut());
        }
    }
}

fn claim_one(steering: &mut dyn Steering, port: HostPort) -> Result<(), Refusal> {
    let (protocol, address, port) = port;
    steering.claim_port(protocol, address, port).map_err(|error| {
        let text = format!("the kernel's programs keep a port that is asked for: {error}");
        refusal(Code::Refused, text)
    })
}

fn release_all(steering: &mut dyn Steering, ports: &HashSet<HostPort>) {
    for &(protocol, address, port) in ports {
        steering.release_port(protocol, address, port);
    }
}

fn steer_into(
    done: &mut Steered,
    wanted: &Steered,
    steering: &mut dyn Steering,
) -> Result<(), Error> {
    if let Some(mac) = wanted.mac {
        steering.add_mac(mac, wanted.of_kernel)?;
        done.mac = Some(mac);
    }
    for pattern in &wanted.patterns {
        steering.add_pattern(pattern)?;
        done.patterns.push(*pattern);
    }
    for pattern in &wanted.copies {
        steering.add_copies(pattern)?;
        done.copies.push(*pattern);
    }
    Ok(())
}

/// Gives back as much as can be, and says in the log what cannot.
fn unsteer(steered: &Steered, steering: &mut dyn Steering) {
    let warn = |error| tracing::warn!(%error, "cannot give frames back to the kernel");
    for pattern in &steered.patterns {
        steering.remove_pattern(pattern).unwrap_or_else(warn);
    }
    for pattern in &steered.copies {
        steering.remove_copies(pattern).unwrap_or_else(warn);
    }
    if let Some(mac) = steered.mac {
        steering.remove_mac(mac).unwrap_or_else(warn);
    }
}

impl std::fmt::Debug for NicSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NicSlot").field("name", &self.name).finish_non_exhaustive()
    }
}
