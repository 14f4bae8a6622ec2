//! A device of DPDK: found or made, configured, started; and given back.

use std::ffi::{CStr, CString, c_char};

use super::sys::{self, Facts, Mempool, NAME_BYTES, Settings};
use super::{Config, eal};
use crate::{Error, LCD_DESCRIPTORS, MacAddress};

/// Mbufs of a queue: what a device may hold of them (the receive rings of `net_af_xdp` are the
/// largest, two of 2048), what is under way, and the caches. One less than a power of two, which is
/// what a pool's ring holds.
const MBUFS_PER_QUEUE: u32 = 8191;
/// Of them those that a thread may keep: more than a burst each way.
const MBUFS_CACHED: u32 = 256;
/// Descriptors to ask for; the device may round.
const DESCRIPTORS: u16 = 2 * LCD_DESCRIPTORS as u16;
/// DPDK's `SOCKET_ID_ANY`.
const ANY_NODE: i32 = -1;
/// An mbuf tells its length in 16 bits, and leaves some of it free in front of the frame.
const FRAME_BYTES_MAX: usize = 65_535 - 128;

/// A started device with its pools.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) number: u16,
    pub(super) queues: u16,
    pub(super) mac: MacAddress,
    pub(super) frame_bytes_max: usize,
    /// What is in use and why, as a sentence.
    pub(super) mode: String,
    pub(super) wants_interrupts: bool,
    /// What is left to the device: bits of [`sys`].
    pub(super) offloads: u32,
    /// Mbufs of one packet that is sent.
    pub(super) segments_max: usize,
    /// The NUMA node of its memory, or [`ANY_NODE`].
    node: i32,
    /// One per queue.
    pools: Vec<*mut Mempool>,
    /// We made the device, and remove it at the end.
    made: bool,
}

// SAFETY: pools are made for use by several threads; the rest of a port is plain data, and what its
// methods call may be called from any thread.
unsafe impl Send for Port {}
// SAFETY: as above.
unsafe impl Sync for Port {}

impl Port {
    pub(super) fn open(config: &Config) -> Result<Self, Error> {
        if !(64..=FRAME_BYTES_MAX).contains(&config.frame_bytes_max) {
            return Err(Error::Invalid(format!(
                "dpdk: frames of {} bytes; choose 64 to {FRAME_BYTES_MAX}",
                config.frame_bytes_max
            )));
        }
        let (number, made) = find_or_make(&config.device)?;
        let mut port = Self {
            number,
            queues: config.queues.unwrap_or(1),
            mac: [0; 6],
            frame_bytes_max: config.frame_bytes_max,
            mode: String::new(),
            wants_interrupts: true,
            offloads: 0,
            segments_max: 1,
            node: ANY_NODE,
            pools: Vec::new(),
            made,
        };
        port.set_up(config)?;
        Ok(port)
    }

    pub(super) fn pool(&self, queue: u16) -> *mut Mempool {
        self.pools[usize::from(queue)]
    }

    pub(super) fn link_is_up(&self) -> bool {
        // SAFETY: the port is open.
        unsafe { sys::clearway_dpdk_link_is_up(self.number) != 0 }
    }

    /// Frames that the device had to drop.
    pub(super) fn frames_missed(&self) -> u64 {
        // SAFETY: the port is open.
        unsafe { sys::clearway_dpdk_missed(self.number) }
    }

    fn set_up(&mut self, config: &Config) -> Result<(), Error> {
        let device = &config.device;
        let facts = self.facts(device)?;
        if self.queues == 0 || self.queues > facts.queues_max {
            return Err(Error::Invalid(format!(
                "dpdk: {} queues of {device}, which has {}; choose 1 to {0}",
                self.queues, facts.queues_max
            )));
        }
        if config.mtu_bytes > facts.mtu_max {
            return Err(Error::Invalid(format!(
                "dpdk: an MTU of {} is more than the {} that {device} can do; lower `mtu_bytes`",
                config.mtu_bytes, facts.mtu_max
            )));
        }
        self.node = facts.node;
        self.make_pools()?;
        self.begin_as_well_as_can_be(config, if config.offloads { facts.offloads } else { 0 })?;
        self.segments_max = self.segments_max.min(facts.segments_max.into());
        self.mac = facts.mac;
        self.mode = mode(&facts, config, self);
        Ok(())
    }

    /// A device that could wait for frames may be unable to where it is, for want of vectors, and
    /// what it offers may be more than it can do together.
    fn begin_as_well_as_can_be(&mut self, config: &Config, offered: u32) -> Result<(), Error> {
        let attempts = [(offered, true), (offered, false), (0, true), (0, false)];
        let mut outcome = Ok(());
        for attempt in &attempts[if offered == 0 { 2 } else { 0 }..] {
            (self.offloads, self.wants_interrupts) = *attempt;
            outcome = self.begin(config);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn facts(&self, device: &str) -> Result<Facts, Error> {
        // SAFETY: all zeros is a valid value of this plain structure.
        let mut facts: Facts = unsafe { std::mem::zeroed() };
        // SAFETY: the port is there, and the structure is written as far as it goes.
        let outcome = unsafe { sys::clearway_dpdk_facts(self.number, &raw mut facts) };
        check(outcome, format!("ask what {device} can do"))?;
        Ok(facts)
    }

    /// On the device's node; and where there is not so much memory, which is for the user to know
    /// ([`Info::mode`](crate::Info::mode)), on any.
    fn make_pools(&mut self) -> Result<(), Error> {
        while self.pools.len() < usize::from(self.queues) {
            let queue = self.pools.len() as u16;
            let mut pool = self.make_pool(queue);
            if pool.is_null() && self.node != ANY_NODE {
                self.node = ANY_NODE;
                pool = self.make_pool(queue);
            }
            if pool.is_null() {
                return Err(self.no_memory());
            }
            self.pools.push(pool);
        }
        Ok(())
    }

    /// Null if there is too little memory.
    fn make_pool(&self, queue: u16) -> *mut Mempool {
        let name = format!("clearway-{}-{queue}", self.number);
        let name = CString::new(name).expect("there is no zero in it");
        // SAFETY: the name is a string, which is copied.
        unsafe {
            sys::clearway_dpdk_pool(
                name.as_ptr(),
                self.node,
                MBUFS_PER_QUEUE,
                MBUFS_CACHED,
                self.frame_bytes_max as u16,
            )
        }
    }

    fn no_memory(&self) -> Error {
        let mebibytes = (MBUFS_PER_QUEUE as usize * (self.frame_bytes_max + 512)) >> 20;
        Error::System {
            action: "dpdk: make the buffers of a queue".into(),
            remedy: format!(
                "Each queue needs about {mebibytes} MiB: give DPDK more in `eal` (\"-m\", \
                 \"512\") or more huge pages, or open fewer queues"
            ),
            source: eal::last_error(),
        }
    }

    /// Configures and starts. A device that failed to start can be configured again.
    fn begin(&mut self, config: &Config) -> Result<(), Error> {
        let device = &config.device;
        let mut settings = Settings {
            queues: self.queues,
            descriptors: DESCRIPTORS,
            mtu: config.mtu_bytes,
            wants_interrupts: self.wants_interrupts.into(),
            offloads: self.offloads,
        };
        // SAFETY: the port is there and stopped, and the structure is whole.
        let outcome = unsafe { sys::clearway_dpdk_configure(self.number, &raw mut settings) };
        check(outcome, format!("configure {device}"))?;
        // However many descriptors there are, others find room beside one packet.
        self.segments_max = usize::from(settings.descriptors / 4);
        // SAFETY: as above.
        let outcome = unsafe { sys::clearway_dpdk_set_mtu(self.number, config.mtu_bytes) };
        // Some cannot change it because they have none.
        if outcome != -libc::ENOTSUP {
            check(outcome, format!("set the MTU of {device} to {}", config.mtu_bytes))?;
        }
        for (queue, pool) in (0..).zip(&self.pools) {
            // SAFETY: the port is configured for so many queues, and the pool lives longer than it.
            let outcome = unsafe {
                let descriptors = settings.descriptors;
                sys::clearway_dpdk_set_up_queue(self.number, queue, descriptors, self.node, *pool)
            };
            check(outcome, format!("set up queue {queue} of {device}"))?;
        }
        // SAFETY: all queues are set up.
        check(unsafe { sys::clearway_dpdk_start(self.number) }, format!("start {device}"))
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // SAFETY: the queues are gone, since each holds the port; so nobody uses it.
        let is_closed = unsafe { sys::clearway_dpdk_close(self.number, self.made.into()) != 0 };
        // A device that cannot be closed may write into its mbufs for as long as the process lives.
        if is_closed {
            // SAFETY: the device has given its mbufs back.
            unsafe { self.pools.iter().for_each(|pool| sys::clearway_dpdk_free_pool(*pool)) };
        }
    }
}

/// The port of this name, and whether it had to be made.
fn find_or_make(device: &str) -> Result<(u16, bool), Error> {
    let name = device.split(',').next().unwrap_or_default();
    let zero = || Error::Invalid("dpdk: there is a zero byte in `device`; remove it".into());
    let arguments = CString::new(device).map_err(|_| zero())?;
    let name = CString::new(name).map_err(|_| zero())?;
    if let Some(port) = find(&name) {
        return Ok((port, false));
    }
    // SAFETY: the environment runs, and the string is copied.
    let outcome = unsafe { sys::rte_dev_probe(arguments.as_ptr()) };
    match find(&name) {
        Some(port) => Ok((port, true)),
        None => Err(Error::NotFound(format!(
            "dpdk: there is no device {name:?}, and it could not be made (error {outcome}); those \
             there are: {}. Name one of them in `device`, or make one with `--vdev=...` in `eal`; \
             DPDK has said more on standard error",
            names()
        ))),
    }
}

fn find(name: &CStr) -> Option<u16> {
    let mut port = 0;
    // SAFETY: the name is a string, and one number is written.
    (unsafe { sys::clearway_dpdk_find(name.as_ptr(), &raw mut port) } == 0).then_some(port)
}

/// The names of all ports.
fn names() -> String {
    let (mut names, mut port) = (Vec::new(), 0);
    let mut name: [c_char; NAME_BYTES] = [0; NAME_BYTES];
    // SAFETY: the array has as many bytes as a name may have, its end included.
    while unsafe { sys::clearway_dpdk_next(&raw mut port, &raw mut name) } != 0 {
        names.push(text(&name));
        port += 1;
    }
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

fn text(bytes: &[c_char]) -> String {
    bytes.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte as u8)).collect()
}

/// DPDK answers with an error number, negative.
fn check(outcome: i32, action: String) -> Result<(), Error> {
    if outcome >= 0 {
        return Ok(());
    }
    Err(Error::System {
        action: format!("dpdk: {action}"),
        remedy: "DPDK has said more on standard error; see its guide for this kind of device (a \
                 net_memif with role=client, for one, needs its server to be there already)"
            .into(),
        source: std::io::Error::from_raw_os_error(-outcome),
    })
}

fn mode(facts: &Facts, config: &Config, port: &Port) -> String {
    let name = config.device.split(',').next().unwrap_or_default();
    let spreading = match (port.queues, facts.spreads) {
        (1, _) => "",
        (_, 0) => " over which it spreads frames as it likes",
        _ => " over which it spreads flows",
    };
    let place = place(facts, port.node);
    format!(
        "{name} by the poll-mode driver {}, {} of {} queues{spreading}{place}; {}",
        text(&facts.driver),
        port.queues,
        facts.queues_max,
        offloads(facts.offloads, port.offloads, config.offloads),
    )
}

/// On which NUMA node buffers are, where that makes a difference, and why on no better one.
fn place(facts: &Facts, node: i32) -> String {
    let Facts { node: device, nodes, has_huge_pages, .. } = *facts;
    if nodes < 2 || device == ANY_NODE {
        return String::new();
    }
    if has_huge_pages == 0 {
        return format!(
            "; buffers on no NUMA node in particular, which takes huge pages (the device is on \
             node {device})"
        );
    }
    if node == device {
        return format!("; buffers on NUMA node {device}, as the device");
    }
    format!("; buffers on any NUMA node, since that of the device, {device}, has no memory left")
}

/// What the device does of checksums and segments, and why no more.
fn offloads(offered: u32, used: u32, wanted: bool) -> String {
    let done = [
        (sys::VERIFIES, "verifies checksums of UDP and TCP"),
        (sys::COALESCES, "puts segments of TCP together"),
        (sys::SUMS_TCP, "fills in checksums of TCP"),
        (sys::SEGMENTS, "parts packets of TCP"),
    ];
    let done: Vec<_> =
        done.iter().filter(|(bit, _)| used & bit != 0).map(|(_, what)| *what).collect();
    if !done.is_empty() {
        return format!("the device {}", done.join(", "));
    }
    let why = match (offered, wanted) {
        (0, _) => "which the device does not offer",
        (_, false) => "as the configuration says",
        _ => "since the device did not start with what it offers",
    };
    format!("checksums in software, {why}")
}

#[cfg(test)]
mod tests {
    use super::{ANY_NODE, Facts, place};

    #[test]
    fn where_buffers_are_is_said_where_it_matters() {
        // SAFETY: all zeros is a valid value of this plain structure.
        let none: Facts = unsafe { std::mem::zeroed() };
        let facts =
            |node, nodes, huge: bool| Facts { node, nodes, has_huge_pages: huge.into(), ..none };
        assert_eq!(place(&facts(0, 1, true), 0), "", "there is one node");
        assert_eq!(place(&facts(ANY_NODE, 2, true), ANY_NODE), "", "a device of none");
        assert!(place(&facts(1, 2, true), 1).contains("on NUMA node 1, as the device"));
        assert!(place(&facts(1, 2, true), ANY_NODE).contains("has no memory left"));
        assert!(place(&facts(1, 2, false), 1).contains("takes huge pages"));
    }
}
