//! On which link an address is, as a daemon is told.

use std::net::SocketAddr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use crate::output::Failure;

/// The interface that stands behind the `%` of an address, by name: numbers are those of this
/// network namespace, and the daemon may be in another.
pub(crate) fn of(peer: SocketAddr) -> Result<Option<String>, Failure> {
    let number = match peer {
        SocketAddr::V6(peer) => peer.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    if number == 0 {
        return Ok(None);
    }
    let failed = |error: Errno| {
        let text = "cannot find the name of interface";
        Failure::Failed(format!("{text} {number}, which {} is to be on: {error}", peer.ip()))
    };
    name(number).map(Some).map_err(failed)
}

fn name(number: u32) -> rustix::io::Result<String> {
    let (unix, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let socket = socket_with(unix, SocketType::DGRAM, flags, None)?;
    netdevice::index_to_name(&socket, number)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddrV6};

    use super::*;

    /// The loopback has the number 1 in each network namespace.
    #[test]
    fn interfaces_are_told_by_name() {
        let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
        let zone = |number| of(SocketAddrV6::new(link_local, 0, 0, number).into());
        assert_eq!(zone(1).ok().flatten().as_deref(), Some("lo"));
        assert!(matches!(zone(0), Ok(None)));
        assert!(matches!(of(([10, 0, 0, 2], 0).into()), Ok(None)));
        assert!(matches!(zone(2_147_483_647), Err(Failure::Failed(_))), "none has it");
    }
}
