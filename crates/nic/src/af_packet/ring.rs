//! The receive ring of a packet socket (PACKET_MMAP, TPACKET_V2): slots that the kernel fills in
//! turn and that we hand back.
//!
//! ```text
//! slot: tpacket2_hdr { status, length, captured, mac, ... } | padding | Offload | frame at `mac`
//! ```
//!
//! A slot holds the longest frame that a wire may carry. Of what is longer, super-frames, it holds
//! the beginning, and the whole waits at the socket (PACKET_COPY_THRESH), from where it goes, with
//! one copy, where it is wanted.
//!
//! Not TPACKET_V3: its slots are blocks that are closed by a timer, which a lone frame would have
//! to wait for.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use clearway_wire::vlan;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::interface::set_option;
use crate::segments::{Offload, complete};

/// What the kernel puts before a frame: its header, a socket address, alignment, an `Offload`.
const SLOT_HEADER_BYTES: usize = 128;

/// The smallest block: a multiple of every page size in use.
const BLOCK_BYTES_MIN: usize = 1 << 16;

/// Where a VLAN tag stands in a frame: after the two Ethernet addresses.
const VLAN_OFFSET: usize = 12;

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

    /// One in which nothing ever comes.
    #[cfg(test)]
    pub(super) fn silent() -> Ring {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let (length, flags) = (BLOCK_BYTES_MIN, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), length, access, flags) };
        let start = NonNull::new(start.expect("a little memory").cast());
        let start = start.expect("mmap never returns null");
        Ring { start, slot_bytes: length, slots: 1, next: 0 }
    }

    /// True if a frame waits.
    pub(super) fn is_ready(&self) -> bool {
        self.is_filled(self.next)
    }

    /// Lets `work` take frames out, whose slots go back to the kernel when it is done.
    pub(super) fn take<R>(&mut self, work: impl for<'a> FnOnce(&mut Waiting<'a>) -> R) -> R {
        let first = self.next;
        let mut waiting = Waiting { ring: self, next: first, taken: 0 };
        let outcome = work(&mut waiting);
        let (next, taken) = (waiting.next, waiting.taken);
        for slot in (first..first + taken).map(|slot| slot % self.slots) {
            // Pairs with the kernel's acquire (packet_lookup_frame): we are done reading.
            self.status(slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
        self.next = next;
        outcome
    }

    fn is_filled(&self, slot: usize) -> bool {
        // Pairs with the kernel's release of a filled slot (__packet_set_status): the frame is
        // visible once the status is.
        self.status(slot).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    fn status(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: each slot starts with its status, which is only ever accessed atomically.
        unsafe { self.slot_start(slot).cast::<AtomicU32>().as_ref() }
    }

    fn slot_start(&self, slot: usize) -> NonNull<u8> {
        assert!(slot < self.slots);
        // SAFETY: so many slots were mapped.
        unsafe { self.start.add(slot * self.slot_bytes) }
    }
}

/// The frames that wait in a ring, in the order in which they came.
pub(super) struct Waiting<'a> {
    ring: &'a Ring,
    next: usize,
    taken: usize,
}

impl<'a> Waiting<'a> {
    /// The next slot with a frame.
    pub(super) fn next(&mut self) -> Option<Slot<'a>> {
        if self.taken == self.ring.slots || !self.ring.is_filled(self.next) {
            return None;
        }
        let slot = self.slot();
        self.next = (self.next + 1) % self.ring.slots;
        self.taken += 1;
        Some(slot)
    }

    /// What is in slot `next`, with the VLAN tag in its place that the kernel took off.
    fn slot(&self) -> Slot<'a> {
        let slot = self.ring.slot_start(self.next);
        // SAFETY: the slot is ours until `Ring::take` ends, starts with this header and is aligned
        // for it.
        let header = unsafe { slot.cast::<SlotHeader>().read() };
        let (mut offset, mut captured) = (usize::from(header.mac), header.captured as usize);
        let is_copied = header.status & libc::TP_STATUS_COPY != 0;
        assert!(offset + captured <= self.ring.slot_bytes, "the kernel wrote past its slot");
        assert!(
            offset >= size_of::<SlotHeader>() + vlan::TAG_LENGTH.max(Offload::BYTES),
            "the kernel leaves room before a frame"
        );
        // SAFETY: inside the slot, and of bytes without alignment.
        let offload =
            unsafe { slot.add(offset - Offload::BYTES).cast::<[u8; Offload::BYTES]>().read() };
        let mut tag_bytes = 0;
        if header.status & libc::TP_STATUS_VLAN_VALID != 0 && captured >= VLAN_OFFSET {
            tag_bytes = vlan::TAG_LENGTH;
            offset -= tag_bytes;
            captured += tag_bytes;
            let [type_high, type_low] = header.vlan_type.to_be_bytes();
            let [control_high, control_low] = header.vlan_control.to_be_bytes();
            let tag = [type_high, type_low, control_high, control_low];
            // SAFETY: from `offset` on there are at least 16 bytes of this slot, which is ours and
            // of which no reference exists yet: the addresses move forward, the tag comes after.
            unsafe {
                let start = slot.add(offset).as_ptr();
                start.add(vlan::TAG_LENGTH).copy_to(start, VLAN_OFFSET);
                tag.as_ptr().copy_to_nonoverlapping(start.add(VLAN_OFFSET), vlan::TAG_LENGTH);
            }
        }
        // SAFETY: inside the slot, which nobody else touches before `Ring::take` ends, which
        // outlives 'a, and of which there is no other reference: the next call is about the next.
        let bytes = unsafe { std::slice::from_raw_parts_mut(slot.add(offset).as_ptr(), captured) };
        Slot {
            offload: Offload::from_bytes(offload),
            bytes,
            frame_bytes: header.length as usize + tag_bytes,
            tag_bytes,
            is_copied,
        }
    }
}

/// A frame that came.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    /// What the kernel says of it.
    pub(super) offload: Offload,
    /// What of it is here, a VLAN tag included.
    pub(super) bytes: &'a mut [u8],
    /// All of it.
    pub(super) frame_bytes: usize,
    /// How much of `bytes` is the tag that the kernel took off. `offload` does not count it.
    pub(super) tag_bytes: usize,
    /// All of it, without that tag, is the next that can be read from the socket.
    pub(super) is_copied: bool,
}

impl<'a> Slot<'a> {
    /// The frame, if it is one packet, and all of it is here.
    pub(super) fn into_frame(self) -> Option<&'a [u8]> {
        let is_whole = self.bytes.len() == self.frame_bytes && self.frame_bytes >= VLAN_OFFSET;
        let is_right = is_whole && complete(&self.offload, self.bytes, self.tag_bytes);
        is_right.then_some(&*self.bytes)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own and nothing borrowed from it outlives it.
        let outcome = unsafe { munmap(self.start.as_ptr().cast(), self.slots * self.slot_bytes) };
        debug_assert!(outcome.is_ok());
    }
}
