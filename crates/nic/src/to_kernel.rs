//! The way to the kernel of this host, from virtual interfaces on a NIC that is the kernel's, too.
//!
//! A packet socket whose frames go by the queueing layer, other than those of queues, where an
//! eBPF program ([`Turning`]) turns them around: the kernel sees them come in by the interface, and
//! has them judged by its filters as what comes from the wire.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socket_with};

use crate::Error;
use crate::af_packet::bind;
use crate::ebpf::{Opener, Turning};
use crate::interface::{Device, set_option};

/// `TO_KERNEL` of marks.h.
pub(crate) const MARK: u32 = 0xc1ea_0001;

/// See the module. All queues of an interface may use one.
#[derive(Debug)]
pub(crate) struct ToKernel {
    socket: OwnedFd,
}

/// The ways between virtual interfaces and the kernel, or why there are none.
pub(crate) type Ways = Result<(Arc<ToKernel>, Turning), Error>;

impl ToKernel {
    /// The way by `device`, and what turns frames around there. Its frames have to be hidden
    /// already.
    pub(crate) fn begin(opener: &dyn Opener, device: &Device) -> Ways {
        let turning = Turning::begin(opener, device)?;
        let socket = open(device).map_err(|errno| Error::System {
            action: format!("cannot open a packet socket to the kernel by {}", device.name()),
            remedy: "It needs CAP_NET_RAW".into(),
            source: errno.into(),
        })?;
        Ok((Arc::new(Self { socket }), turning))
    }

    /// Gives a frame to the kernel. False if it has no room, or the interface is down.
    pub(crate) fn send(&self, frame: &[u8]) -> bool {
        send(self.socket.as_fd(), frame, SendFlags::DONTWAIT).is_ok()
    }
}

/// A socket that sends and, since it has no protocol, receives nothing.
fn open(device: &Device) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    set_option(&socket, libc::SOL_SOCKET, libc::SO_MARK, &MARK)?;
    bind(&socket, device.index(), 0)?;
    Ok(socket)
}
