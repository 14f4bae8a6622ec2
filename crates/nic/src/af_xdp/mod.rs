//! AF_XDP: the default driver on a real interface, which stays the kernel's for everything else.
//!
//! ```text
//! interface ─▶ eBPF program ─┬─ registered ─▶ XSK of the receive queue ─▶ XdpQueue ─▶ engine
//!   (bpf/steer.c, program.rs)└─ all else ───▶ the kernel's stack
//! ```
//!
//! `open` makes one socket per receive queue, each with memory of its own that only the kernel
//! and this process can write, so received frames are shown to the engine without a copy.
//! It tries the fastest way first and says in `Info::mode` what it uses and why nothing better:
//!
//! | way | where the program runs | who copies |
//! |---|---|---|
//! | zero-copy | in the NIC's driver | nobody |
//! | copy | in the NIC's driver | the kernel |
//! | generic | in the kernel's stack, after it made an skb | the kernel |
//!
//! Sending takes a system call per flush in copy mode, which does all the work up to the receiver's
//! socket; the need-wakeup flag says when it can be left out. Busy polling (`SO_BUSY_POLL`) is not
//! asked for: it moves a NIC's interrupt work into our calls, which veth does not have.
//!
//! It takes CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF in the initial user namespace.
//!
//! What the kernel adds on its own account is left as it is: a VLAN tag that a NIC strips before
//! generic mode sees the frame is not seen here either (`ethtool -K eth0 rxvlan off` stops that).
//! Packets from sockets of the same machine, over veth, come with a checksum that was left for a
//! NIC to finish, and several in one: in generic mode these are left to a packet socket, which is
//! told of both ([`open_xdp`](crate::open_xdp)).

mod assembly;
mod mapping;
mod open;
mod program;
mod queue;
mod ring;
mod socket;

pub(crate) use open::Prepared;
pub use open::{Config, Mode, open};
pub(crate) use program::install;
pub(crate) use socket::{bare_socket, socket_with_memory};
