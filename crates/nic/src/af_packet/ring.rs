//! The receive ring of a packet socket (PACKET_MMAP, TPACKET_V2): slots that the kernel fills in
//! turn and that we hand back.
//!
//! ```text
//! slot: tpacket2_hdr { status, length, captured, mac, ... } | padding | frame at `mac`
//! ```
//!
//! Not TPACKET_V3: its slots are blocks that are closed by a timer, which a lone frame would have
//! to wait for.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::interface::set_option;

/// What the kernel puts before a frame: its header, a socket address, alignment.
const SLOT_HEADER_BYTES: usize = 128;

/// The smallest block: a multiple of every page size in use.
const BLOCK_BYTES_MIN: usize = 1 << 16;

/// `struct tpacket2_hdr` in words of two and four bytes (linux/if_packet.h).
#[repr(C)]
#[derive(Clone, Copy)]
struct SlotHeader {
    status: u32,
    length: u32,
    captured: u32,
    mac: u16,
    net: u16,
    seconds: u32,
    nanoseconds: u32,
    vlan_control: u16,
    vlan_type: u16,
    padding: [u8; 4],
}

/// A received frame as it lies in its slot.
pub(super) struct Slot<'a> {
    /// The bytes that are there.
    pub(super) bytes: &'a [u8],
    /// The frame was longer than the slot.
    pub(super) truncated: bool,
    /// The VLAN tag that the kernel took off: type and control, as they go into the frame again.
    pub(super) vlan: Option<[u8; 4]>,
}

/// The mapped ring.
#[derive(Debug)]
pub(super) struct Ring {
    start: NonNull<u8>,
    slot_bytes: usize,
    slots: usize,
    next: usize,
}

// SAFETY: the mapping belongs to the process; only the owner of the ring touches it.
unsafe impl Send for Ring {}

impl Ring {
    /// Gives `socket` a ring of so many slots, for frames of up to `frame_bytes`. Both the number
    /// of slots and the bytes per slot are powers of two.
    pub(super) fn new(socket: &OwnedFd, slots: usize, frame_bytes: usize) -> Result<Ring, Errno> {
        let slot_bytes = (frame_bytes + SLOT_HEADER_BYTES).next_power_of_two();
        let length = slots * slot_bytes;
        let block_bytes = BLOCK_BYTES_MIN.max(slot_bytes).min(length);
        set_option(
            socket,
            libc::SOL_PACKET,
            libc::PACKET_VERSION,
            &libc::tpacket_versions::TPACKET_V2,
        )?;
        let request = libc::tpacket_req {
            tp_block_size: block_bytes as u32,
            tp_block_nr: (length / block_bytes) as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: slots as u32,
        };
        set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap(ptr::null_mut(), length, access, flags, socket.as_fd(), 0)? };
        let start = NonNull::new(start.cast()).expect("mmap never returns null");
        Ok(Ring { start, slot_bytes, slots, next: 0 })
    }

    /// True if a frame waits.
    pub(super) fn is_ready(&self) -> bool {
        // Pairs with the kernel's release of a filled slot (__packet_set_status): the frame is
        // visible once the status is.
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Shows the oldest frame and gives its slot back; false if there is none.
    pub(super) fn take(&mut self, show: impl FnOnce(Slot<'_>)) -> bool {
        if !self.is_ready() {
            return false;
        }
        show(self.slot());
        // Pairs with the kernel's acquire (packet_lookup_frame): we are done reading.
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.slots;
        true
    }

    fn slot(&self) -> Slot<'_> {
        // SAFETY: the slot is ours, starts with this header and is aligned for it.
        let header = unsafe { self.slot_start().cast::<SlotHeader>().read() };
        let (offset, length) = (usize::from(header.mac), header.captured as usize);
        assert!(offset + length <= self.slot_bytes, "the kernel wrote past its slot");
        // SAFETY: inside the slot, which the kernel does not touch before it has it back.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.slot_start().add(offset).as_ptr(), length) };
        let [type_high, type_low] = header.vlan_type.to_be_bytes();
        let [control_high, control_low] = header.vlan_control.to_be_bytes();
        let tagged = header.status & libc::TP_STATUS_VLAN_VALID != 0;
        Slot {
            bytes,
            truncated: header.captured < header.length,
            vlan: tagged.then_some([type_high, type_low, control_high, control_low]),
        }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: each slot starts with its status, which is only ever accessed atomically.
        unsafe { self.slot_start().cast::<AtomicU32>().as_ref() }
    }

    fn slot_start(&self) -> NonNull<u8> {
        // SAFETY: `next` is below the number of slots that were mapped.
        unsafe { self.start.add(self.next * self.slot_bytes) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own and nothing borrowed from it outlives it.
        let outcome = unsafe { munmap(self.start.as_ptr().cast(), self.slots * self.slot_bytes) };
        debug_assert!(outcome.is_ok());
    }
}
