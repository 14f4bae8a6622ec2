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
    pub(super) offers_checksums: u8,
    pub(super) spreads: u8,
}

#[repr(C)]
pub(super) struct Settings {
    pub(super) queues: u16,
    /// Changed to what the port can do.
    pub(super) descriptors: u16,
    pub(super) mtu: u16,
    pub(super) wants_interrupts: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) bytes: *const u8,
    pub(super) length: usize,
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
        port: u16,
        mbufs: u32,
        cached: u32,
        frame_bytes: u16,
    ) -> *mut Mempool;
    pub(super) fn clearway_dpdk_free_pool(pool: *mut Mempool);
    pub(super) fn clearway_dpdk_set_up_queue(
        port: u16,
        queue: u16,
        descriptors: u16,
        pool: *mut Mempool,
    ) -> c_int;
    pub(super) fn clearway_dpdk_start(port: u16) -> c_int;
    pub(super) fn clearway_dpdk_close(port: u16, remove: c_int);
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
    pub(super) fn clearway_dpdk_free(mbufs: *mut *mut Mbuf, count: c_uint);
    pub(super) fn clearway_dpdk_buffer(pool: *mut Mempool, bytes: *mut *mut u8) -> *mut Mbuf;
    pub(super) fn clearway_dpdk_set_length(mbuf: *mut Mbuf, length: u16);
    pub(super) fn clearway_dpdk_length(mbuf: *const Mbuf) -> u32;
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
