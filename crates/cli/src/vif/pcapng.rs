//! Writing pcapng ("PCAP Now Generic", draft-ietf-opsawg-pcapng), as far as a capture of Clearway
//! needs it. Little endian, nanoseconds, Ethernet only. Does not read, and knows nothing of where
//! packets come from.
//!
//! ```text
//! block = | type | length | body, options | padding | length |     all of 32 bits
//! file  = section header, { interface description | enhanced packet }, { interface statistics }
//! ```

use std::io::{self, Write};

/// Numbers of blocks (section 11.1 of the draft).
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// Tells the reader in which order bytes stand.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINK_TYPE_ETHERNET: u16 = 1;
/// The largest frame that may be in the file. libpcap wants it to be the same for all interfaces.
const SNAP_LENGTH: u32 = 1 << 18;
/// Timestamps count units of 10 to the power of -9 seconds.
const RESOLUTION_NANOSECONDS: u8 = 9;

/// Numbers of options. The first two are those of any block.
mod option {
    pub(super) const END: u16 = 0;
    pub(super) const COMMENT: u16 = 1;
    pub(super) const SECTION_OS: u16 = 3;
    pub(super) const SECTION_APPLICATION: u16 = 4;
    pub(super) const INTERFACE_NAME: u16 = 2;
    pub(super) const INTERFACE_DESCRIPTION: u16 = 3;
    pub(super) const INTERFACE_RESOLUTION: u16 = 9;
    pub(super) const PACKET_FLAGS: u16 = 2;
    pub(super) const STATISTICS_START: u16 = 2;
    pub(super) const STATISTICS_END: u16 = 3;
    pub(super) const STATISTICS_RECEIVED: u16 = 4;
    pub(super) const STATISTICS_DROPPED: u16 = 5;
}

/// Which way a packet went, as `epb_flags` says it in its lowest two bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Incoming = 1,
    Outgoing = 2,
}

/// A packet, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    /// From [`Writer::interface`].
    pub(super) interface: u32,
    /// Since 1970.
    pub(super) time_ns: u64,
    pub(super) direction: Direction,
    pub(super) bytes: &'a [u8],
    /// For people; none if empty.
    pub(super) comment: &'a str,
}

/// What has been seen at an interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statistics {
    /// When the capture began and ended, since 1970.
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// Packets that were captured or missed.
    pub(super) received: u64,
    /// Packets that were missed.
    pub(super) dropped: u64,
}

/// Writes one section.
#[derive(Debug)]
pub(super) struct Writer<W: Write> {
    output: W,
    interfaces: u32,
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes the section header.
    pub(super) fn start(output: W, application: &str) -> io::Result<Self> {
        let mut writer = Self { output, interfaces: 0, block: Vec::new() };
        writer.begin(SECTION_HEADER);
        writer.put(&BYTE_ORDER_MAGIC.to_le_bytes());
        // Version 1.0, then a section of unknown length.
        writer.put(&1u16.to_le_bytes());
        writer.put(&0u16.to_le_bytes());
        writer.put(&u64::MAX.to_le_bytes());
        writer.text(option::SECTION_OS, "Linux");
        writer.text(option::SECTION_APPLICATION, application);
        writer.finish()?;
        Ok(writer)
    }

    /// Adds an interface: a place where packets are seen. Returns its number.
    pub(super) fn interface(&mut self, name: &str, description: &str) -> io::Result<u32> {
        self.begin(INTERFACE_DESCRIPTION);
        self.put(&LINK_TYPE_ETHERNET.to_le_bytes());
        self.put(&0u16.to_le_bytes());
        self.put(&SNAP_LENGTH.to_le_bytes());
        self.text(option::INTERFACE_NAME, name);
        self.text(option::INTERFACE_DESCRIPTION, description);
        self.option(option::INTERFACE_RESOLUTION, &[RESOLUTION_NANOSECONDS]);
        self.finish()?;
        let number = self.interfaces;
        self.interfaces += 1;
        Ok(number)
    }

    pub(super) fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        debug_assert!(packet.interface < self.interfaces);
        let length = (packet.bytes.len() as u32).to_le_bytes();
        self.begin(ENHANCED_PACKET);
        self.put(&packet.interface.to_le_bytes());
        self.time(packet.time_ns);
        self.put(&length);
        self.put(&length);
        self.put(packet.bytes);
        self.pad();
        self.option(option::PACKET_FLAGS, &(packet.direction as u32).to_le_bytes());
        self.text(option::COMMENT, packet.comment);
        self.finish()
    }

    pub(super) fn statistics(&mut self, interface: u32, seen: &Statistics) -> io::Result<()> {
        self.begin(INTERFACE_STATISTICS);
        self.put(&interface.to_le_bytes());
        self.time(seen.end_ns);
        self.option(option::STATISTICS_START, &halves(seen.start_ns));
        self.option(option::STATISTICS_END, &halves(seen.end_ns));
        self.option(option::STATISTICS_RECEIVED, &seen.received.to_le_bytes());
        self.option(option::STATISTICS_DROPPED, &seen.dropped.to_le_bytes());
        self.finish()
    }

    /// Hands everything on to the reader.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// Starts a block; its length follows in [`Writer::finish`].
    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.put(&kind.to_le_bytes());
        self.put(&[0; 4]);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn time(&mut self, time_ns: u64) {
        self.put(&halves(time_ns));
    }

    /// A text that is empty is left out. One that is too long for an option is cut.
    fn text(&mut self, number: u16, text: &str) {
        let mut end = text.len().min(usize::from(u16::MAX));
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        if end > 0 {
            self.option(number, &text.as_bytes()[..end]);
        }
    }

    fn option(&mut self, number: u16, value: &[u8]) {
        self.put(&number.to_le_bytes());
        self.put(&(value.len() as u16).to_le_bytes());
        self.put(value);
        self.pad();
    }

    /// Writes the block with its length at both ends. All blocks here have options.
    fn finish(&mut self) -> io::Result<()> {
        self.option(option::END, &[]);
        let length = (self.block.len() as u32 + 4).to_le_bytes();
        self.block[4..8].copy_from_slice(&length);
        self.put(&length);
        self.output.write_all(&self.block)
    }
}

/// A time as pcapng has it: the upper 32 bits, then the lower.
fn halves(time_ns: u64) -> [u8; 8] {
    time_ns.rotate_left(32).to_le_bytes()
}

#[cfg(test)]
mod tests;
