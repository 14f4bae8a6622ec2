//! What `shim.c` offers. The declarations here and there have to agree; nothing checks it.

use std::ffi::{c_char, c_int, c_uint};

/// A frame's memory and what DPDK knows of it (`struct rte_mbuf`).
#[repr(C)]
pub(super) struct Mbuf {
    _opaque: [u8; 0],
}

/// `struct rte_mempool`.
#[repr(C)]
pub(super) struct Mempool {
    _opaque: [u8; 0],
}

/// `RTE_ETH_NAME_MAX_LEN`.
pub(super) const NAME_BYTES: usize = 64;

/// What a port can do.
#[repr(C)]
pub(super) struct Facts {
    pub(super) driver: [c_char; 64],
    pub(super) mac: [u8; 6],
    pub(super) queues_max: u16,
    pub(super) mtu_max: u16,
    /// Mbufs of one packet that is sent.
    pub(super) segments_max: u16,
    /// Of those below.
    pub(super) offloads: u32,
    /// The NUMA node of the device; negative if it has none.
    pub(super) node: i32,
    /// How many this machine has.
    pub(super) nodes: u16,
    /// Memory is of huge pages, of which DPDK knows the node.
    pub(super) has_huge_pages: u8,
    pub(super) spreads: u8,
}

/// The device says of each frame of UDP or TCP whether its checksums are right.
pub(super) const VERIFIES: u32 = 1;
/// It may put segments of TCP together.
pub(super) const COALESCES: u32 = 2;
/// It fills in checksums of TCP.
pub(super) const SUMS_TCP: u32 = 4;
/// It fills in checksums of UDP.
pub(super) const SUMS_UDP: u32 = 8;
/// It fills in checksums of IPv4.
pub(super) const SUMS_IP: u32 = 16;
/// It parts packets of TCP.
pub(super) const SEGMENTS: u32 = 32;

#[repr(C)]
pub(super) struct Settings {
    pub(super) queues: u16,
    /// Changed to what the port can do.
    pub(super) descriptors: u16,
    pub(super) mtu: u16,
    pub(super) wants_interrupts: u8,
    /// Those to be used.
    pub(super) offloads: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) bytes: *mut u8,
    pub(super) length: u32,
    /// What of it is at `bytes`: all of it, unless it `is_several`.
    pub(super) head_length: u16,
    /// The payload of each of several; 0 if the device does not say.
    pub(super) segment_bytes: u16,
    /// What the device says of the checksum of IPv4, and of that of UDP or TCP: [`RIGHT`],
    /// [`MISSING`], or something else.
    pub(super) ip_checksum: u8,
    pub(super) transport_checksum: u8,
    /// Several packets that came as one, or a frame that is too long.
    pub(super) is_several: u8,
}

pub(super) const RIGHT: u8 = 1;
pub(super) const MISSING: u8 = 2;

/// What is left to the device with a packet.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offload {
    pub(super) link_bytes: u16,
    pub(super) network_bytes: u16,
    pub(super) transport_bytes: u16,
    /// The payload of each packet, if it is to be parted; 0 otherwise.
    pub(super) segment_bytes: u16,
    pub(super) checksum_at: u16,
    pub(super) is_v4: u8,
    pub(super) is_tcp: u8,
    /// The device fills in the checksum of IPv4, too.
    pub(super) sums_ip: u8,
}

unsafe extern "C" {
    pub(super) fn rte_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    pub(super) fn rte_dev_probe(devargs: *const c_char) -> c_int;

    pub(super) fn clearway_dpdk_errno() -> c_int;
    pub(super) fn clearway_dpdk_find(name: *const c_char, port: *mut u16) -> c_int;
    pub(super) fn clearway_dpdk_next(port: *mut u16, name: *mut [c_char; NAME_BYTES]) -> c_int;
    pub(super) fn clearway_dpdk_facts(port: u16, facts: *mut Facts) -> c_int;
    pub(super) fn clearway_dpdk_configure(port: u16, settings: *mut Settings) -> c_int;
    pub(super) fn clearway_dpdk_set_mtu(port: u16, mtu: u16) -> c_int;
    pub(super) fn clearway_dpdk_pool(
        name: *const c_char,
        node: i32,
        mbufs: u32,
        cached: u32,
        frame_bytes: u16,
    ) -> *mut Mempool;
    pub(super) fn clearway_dpdk_free_pool(pool: *mut Mempool);
    pub(super) fn clearway_dpdk_set_up_queue(
        port: u16,
        queue: u16,
        descriptors: u16,
        node: i32,
        pool: *mut Mempool,
    ) -> c_int;
    pub(super) fn clearway_dpdk_start(port: u16) -> c_int;
    pub(super) fn clearway_dpdk_close(port: u16, remove: c_int) -> c_int;
    pub(super) fn clearway_dpdk_link_is_up(port: u16) -> c_int;
    pub(super) fn clearway_dpdk_missed(port: u16) -> u64;
    pub(super) fn clearway_dpdk_receive(
        port: u16,
        queue: u16,
        count: u16,
        frame_bytes_max: u32,
        mbufs: *mut *mut Mbuf,
        frames: *mut Frame,
        dropped: *mut u64,
    ) -> u16;
    pub(super) fn clearway_dpdk_copy(
        mbuf: *const Mbuf,
        pieces: *const libc::iovec,
        count: usize,
    ) -> c_int;
    pub(super) fn clearway_dpdk_free(mbufs: *mut *mut Mbuf, count: c_uint);
    pub(super) fn clearway_dpdk_buffer(pool: *mut Mempool, bytes: *mut *mut u8) -> *mut Mbuf;
    pub(super) fn clearway_dpdk_set_length(mbuf: *mut Mbuf, length: u16);
    pub(super) fn clearway_dpdk_join(mbufs: *const *mut Mbuf, count: u16, header_bytes: u16);
    pub(super) fn clearway_dpdk_offload(mbuf: *mut Mbuf, offload: *const Offload);
    pub(super) fn clearway_dpdk_prepare(
        port: u16,
        queue: u16,
        mbufs: *mut *mut Mbuf,
        count: u16,
    ) -> u16;
    pub(super) fn clearway_dpdk_transmit(
        port: u16,
        queue: u16,
        mbufs: *mut *mut Mbuf,
        count: u16,
    ) -> u16;
    pub(super) fn clearway_dpdk_enter() -> c_int;
    pub(super) fn clearway_dpdk_leave();
    pub(super) fn clearway_dpdk_watch(port: u16, queue: u16, epoll: c_int) -> c_int;
    pub(super) fn clearway_dpdk_unwatch(port: u16, queue: u16, epoll: c_int);
    pub(super) fn clearway_dpdk_arm(port: u16, queue: u16) -> c_int;
    pub(super) fn clearway_dpdk_disarm(port: u16, queue: u16, epoll: c_int);
}
