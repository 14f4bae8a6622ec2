//! What can happen in a simulated network.

/// Something that happens at its time.
#[derive(Debug)]
pub(crate) enum Happening {
    /// An engine has its turn, if that is still its next.
    Turn { host: u32, engine: u32 },
    /// An app runs, if that is still its next time.
    App { app: u32 },
    /// A frame of host `from` has reached the switch.
    AtSwitch { from: u32, frame: Vec<u8> },
    /// A frame reaches the NIC of a host.
    AtNic { to: u32, frame: Vec<u8> },
    /// Something goes wrong, or right again.
    Fault(crate::faults::Fault),
    /// The control plane of a host does something.
    Control { host: u32, task: crate::host::Task },
    /// Everything is looked at.
    Check,
}

/// What is to happen.
pub(crate) type Agenda = clearway_world::Agenda<Happening>;
