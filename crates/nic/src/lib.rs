//! NICs: whatever moves Ethernet frames, behind one trait.
//!
//! A driver opens a NIC and yields its [`Queue`]s; an engine owns a queue and calls it from one
//! thread. The floor that every driver meets, and the most that the stack takes for granted, is
//! the least-common-denominator (LCD) NIC of the Machnet paper (section 3.1, table 2): Ethernet
//! frames, at most as many queues as cores, 256 descriptors per queue, opaque RSS. What a driver
//! offers beyond that it says in its [`Capabilities`].
#![allow(unsafe_code, reason = "drivers share memory with the kernel and with other processes")]

pub mod af_packet;
pub mod af_xdp;
mod batch;
mod bell;
mod burst;
#[cfg(feature = "dpdk")]
pub mod dpdk;
mod ebpf;
pub mod fabric;
pub mod interface;
mod joined;
pub mod memif;
mod open_interface;
mod queue;
mod roomy;
pub mod seccomp;
pub mod segments;
pub mod strangers;
pub mod tap;
#[cfg(test)]
mod test_frames;
mod to_kernel;
pub mod udp;
mod unplugged;
mod vnet;

pub use bell::Bell;
pub use clearway_wire::MacAddress;
pub use ebpf::{AttachMode, Installed, Memory, NotInstalled, Opener, ThisProcess, XdpSocket};
pub use open_interface::{Opened, open_interface, open_xdp, probe};
use queue::KERNEL_DESCRIPTORS;
pub use queue::{
    BURST_FRAMES, Capabilities, Checksums, Counters, Error, HEADER_BYTES_MAX, Info,
    LCD_DESCRIPTORS, Queue, Receiver, Segments, Sink, Together, Transmit,
};
pub use roomy::Roomy;
pub use unplugged::Unplugged;
