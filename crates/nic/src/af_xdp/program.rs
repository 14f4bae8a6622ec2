//! The eBPF program (`bpf/steer.c`): loading it, attaching it, and steering through its maps.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use aya::maps::{Map, MapData, PerCpuArray, XskMap};
use aya::{Ebpf, include_bytes_aligned};

use super::open::patiently;
use crate::Error;
use crate::ebpf::{
    AttachMode, Hook, Installed, NotInstalled, Patterns, attach, in_order, load_object, loaded,
    system_error, table, tables_of, xdp_program,
};
use crate::interface::{Channels, Device, PatternTable, SteerPattern, Steered};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer.o"));

/// The program's two forms in steer.c. The second runs slower in generic mode.
const PLAIN: &str = "steer";
const FRAGMENTS: &str = "steer_fragments";

/// Its tables there; two arrays of groups come after them.
const TABLES: [&str; 4] = ["groups", "values", "sockets", "reasons"];

/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE` of linux/if_link.h.
const GENERIC: u32 = 2;
const IN_DRIVER: u32 = 4;

/// What must be undone when the last user of the interface goes: detaching the program (which the
/// kernel also does if this process is killed, because the link is a file descriptor) and putting
/// the number of queues back.
pub(super) struct Attachment {
    // Fields are dropped in this order, after `drop` has run.
    _link: OwnedFd,
    changed: Option<Changed>,
}

/// A number of queues that we changed.
pub(super) struct Changed {
    pub(super) device: Device,
    pub(super) before: Channels,
}

impl Drop for Changed {
    fn drop(&mut self) {
        // Nothing is left to do about a failure: the interface is gone or no longer ours.
        let _ = self.device.restore_channels(self.before);
    }
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment").field("changed", &self.changed.is_some()).finish()
    }
}

/// A loaded program, not yet attached.
struct Loaded {
    ebpf: Ebpf,
    function: &'static str,
}

impl Loaded {
    /// Loads the program and its maps into the kernel: the form for drivers that spread large
    /// frames over several buffers, or the plain one.
    fn new(fragments: bool) -> Result<Self, Error> {
        let function = if fragments { FRAGMENTS } else { PLAIN };
        let mut ebpf = load_object(OBJECT)?;
        loaded(xdp_program(&mut ebpf, function).load())?;
        Ok(Self { ebpf, function })
    }

    fn tables(&self) -> Result<Vec<OwnedFd>, Error> {
        tables_of(&self.ebpf, &TABLES)
    }
}

/// Has the program work on `device`.
pub(crate) fn install(device: &Device, mode: AttachMode) -> Result<Installed, NotInstalled> {
    let mut program = Loaded::new(mode.fragments)?;
    let tables = program.tables()?;
    let function = xdp_program(&mut program.ebpf, program.function);
    let descriptor = function.fd().map_err(|error| loaded(Err(error)).expect_err("an error"))?;
    let flags = if mode.generic { GENERIC } else { IN_DRIVER };
    let link = patiently(|| attach(descriptor.as_fd(), device, Hook::Xdp, flags));
    Ok(Installed { link: link.map_err(NotInstalled::NotSo)?, tables })
}

/// The tables of a program at work.
pub(super) struct Program {
    sockets: XskMap<MapData>,
    patterns: Patterns,
    reasons: PerCpuArray<MapData, u64>,
}

impl Program {
    pub(super) fn new(tables: Vec<OwnedFd>) -> Result<Self, Error> {
        let [groups, values, sockets, reasons, first, second] = in_order(tables)?;
        Ok(Self {
            sockets: table(sockets, Map::XskMap)?,
            patterns: Patterns::new(groups, values, [first, second])?,
            reasons: table(reasons, Map::PerCpuArray)?,
        })
    }

    /// Lets the frames of `queue` go to `socket`.
    pub(super) fn set_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.set(queue, socket.as_raw_fd(), 0).map_err(|error| system_error(&error))
    }

    /// Has what is ours go by the kernel's stack if it is longer than that, or a super-frame, or a
    /// packet without its checksum.
    pub(super) fn pass_unfinished(&mut self, frame_bytes_max: usize) {
        self.patterns.pass_unfinished(frame_bytes_max as u64);
    }

    /// The handle for the control thread.
    pub(super) fn into_table(self, attachment: Arc<Attachment>) -> Box<dyn PatternTable> {
        Box::new(XdpPatterns {
            patterns: self.patterns,
            reasons: self.reasons,
            _sockets: self.sockets,
            _attachment: attachment,
        })
    }
}

impl Attachment {
    pub(super) fn new(link: OwnedFd, changed: Option<Changed>) -> Attachment {
        Attachment { _link: link, changed }
    }
}

/// The patterns of an attached program.
struct XdpPatterns {
    patterns: Patterns,
    reasons: PerCpuArray<MapData, u64>,
    _sockets: XskMap<MapData>,
    _attachment: Arc<Attachment>,
}

impl PatternTable for XdpPatterns {
    fn insert(&mut self, pattern: &SteerPattern) -> Result<(), Error> {
        self.patterns.insert(pattern)
    }

    fn remove(&mut self, pattern: &SteerPattern) -> Result<(), Error> {
        self.patterns.remove(pattern)
    }

    fn steered(&self) -> Option<Steered> {
        let count = |reason: u32| match self.reasons.get(&reason, 0) {
            Ok(values) => values.iter().sum(),
            Err(_) => 0,
        };
        Some(Steered {
            redirected: count(0),
            passed_malformed: count(1),
            passed_fragment: count(2),
            passed_other: count(3),
            passed_unfinished: count(4),
        })
    }
}

#[cfg(test)]
mod tests;
