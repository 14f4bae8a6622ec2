//! Turning around what this host sends to itself by an interface (`bpf/turn.c`): to the kernel, and
//! from the kernel to virtual interfaces that have Ethernet addresses of their own.
//!
//! It takes [`Hiding`](super::Hiding) on the same interface, which parts again what is turned.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};

use aya::maps::{HashMap, Map, MapData, MapError};
use aya::{Ebpf, include_bytes_aligned};

use super::{
    Hook, Installed, Opener, attach, classifier, in_order, load_failed, load_object, loaded,
    system_error, table, table_of,
};
use crate::interface::Device;
use crate::{Error, MacAddress};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/turn.o"));

/// Its function in turn.c, and its table there.
const FUNCTION: &str = "turn";
const TABLE: &str = "macs";

/// `GROUPS` of turn.c: stands for all groups in the table.
const GROUPS: u64 = 1 << 40;

/// The program at work on an interface.
pub(crate) struct Turning {
    macs: HashMap<MapData, u64, u32>,
    /// Those that are in the table.
    added: HashSet<MacAddress>,
    /// Keeps the program, and it the table.
    _link: OwnedFd,
}

impl Turning {
    /// Begins on `device`, where there are no virtual interfaces yet.
    pub(crate) fn begin(opener: &dyn Opener, device: &Device) -> Result<Turning, Error> {
        let Installed { link, tables } = opener.turn(device)?;
        let [macs] = in_order(tables)?;
        Ok(Turning { macs: table(macs, Map::HashMap)?, added: HashSet::new(), _link: link })
    }

    /// What the kernel sends to `mac`, which is new, or to a group, comes in again.
    pub(crate) fn add(&mut self, mac: MacAddress) -> Result<(), Error> {
        self.macs.insert(number(mac), 1, 0).map_err(failed)?;
        self.added.insert(mac);
        self.macs.insert(GROUPS, 1, 0).map_err(failed).inspect_err(|_| self.remove(mac))
    }

    /// Undoes [`Turning::add`], if that was done.
    pub(crate) fn remove(&mut self, mac: MacAddress) {
        if !self.added.remove(&mac) {
            return;
        }
        // What cannot be removed turns frames that are nobody's any more.
        let _ = self.macs.remove(&number(mac));
        if self.added.is_empty() {
            let _ = self.macs.remove(&GROUPS);
        }
    }
}

/// Has the program work on `device`.
pub(super) fn install(device: &Device) -> Result<Installed, Error> {
    let mut ebpf = load()?;
    let program =
        classifier(&mut ebpf, FUNCTION).fd().map_err(|error| load_failed(error.into()))?;
    let link = attach(program.as_fd(), device, Hook::TcxEgress, 0).map_err(|source| {
        let action = format!("cannot attach an eBPF program to what leaves by {}", device.name());
        Error::System {
            action,
            remedy: "It needs Linux 6.6 or newer and CAP_NET_ADMIN".into(),
            source,
        }
    })?;
    Ok(Installed { link, tables: vec![table_of(&ebpf, TABLE)?] })
}

/// The program in the kernel, at work nowhere.
fn load() -> Result<Ebpf, Error> {
    let mut ebpf = load_object(OBJECT)?;
    loaded(classifier(&mut ebpf, FUNCTION).load())?;
    Ok(ebpf)
}

/// As turn.c has it.
fn number(mac: MacAddress) -> u64 {
    mac.iter().fold(0, |number, octet| number << 8 | u64::from(*octet))
}

fn failed(error: MapError) -> Error {
    Error::System {
        action: "cannot let the kernel reach an Ethernet address of a virtual interface".into(),
        remedy: "The kernel may be out of memory, or the daemon has lost CAP_BPF".into(),
        source: system_error(&error),
    }
}
