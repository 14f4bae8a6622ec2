//! Steering of a packet socket: its filter, written anew at each change.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use super::filter::{Filter, INSTRUCTIONS_MAX};
use crate::Error;
use crate::interface::{Device, MulticastGroups, PortClaims, Steering, attach_filter};

/// Steering of an interface through the filter of its packet socket.
pub struct PacketSteering {
    socket: Arc<OwnedFd>,
    filter: Filter,
    claims: PortClaims,
    groups: MulticastGroups,
}

impl PacketSteering {
    pub(super) fn new(socket: Arc<OwnedFd>, device: Device) -> Result<PacketSteering, Error> {
        let groups = MulticastGroups::new(&device)?;
        let claims = PortClaims::new(device);
        Ok(PacketSteering { socket, filter: Filter::default(), claims, groups })
    }

    /// Makes `filter` the one in use, or leaves everything as it was.
    fn apply(&mut self, filter: Filter) -> Result<(), Error> {
        let program = filter.compile();
        if program.len() > INSTRUCTIONS_MAX {
            return Err(Error::Invalid(
                "too many ports and addresses for the filter of a packet socket; register fewer, \
                 or use af_xdp"
                    .into(),
            ));
        }
        attach_filter(&*self.socket, &program).map_err(filter_failed)?;
        self.filter = filter;
        Ok(())
    }
}

impl Steering for PacketSteering {
    fn register_udp_port(&mut self, address: Option<IpAddr>, port: u16) -> Result<(), Error> {
        if self.claims.contains((address, port)) {
            return Ok(());
        }
        // First the claim: when frames come to us, the kernel must already be silent.
        self.claims.add((address, port))?;
        let mut filter = self.filter.clone();
        filter.udp_ports.insert((address, port));
        self.apply(filter).inspect_err(|_| self.claims.remove((address, port)))
    }

    fn unregister_udp_port(&mut self, address: Option<IpAddr>, port: u16) -> Result<(), Error> {
        let mut filter = self.filter.clone();
        if filter.udp_ports.remove(&(address, port)) {
            self.apply(filter)?;
        }
        self.claims.remove((address, port));
        Ok(())
    }

    fn add_own_address(&mut self, address: IpAddr) -> Result<(), Error> {
        let mut filter = self.filter.clone();
        if !filter.own_addresses.insert(address) {
            return Ok(());
        }
        self.apply(filter)?;
        self.groups.join_for(address)
    }

    fn remove_own_address(&mut self, address: IpAddr) -> Result<(), Error> {
        let mut filter = self.filter.clone();
        if !filter.own_addresses.remove(&address) {
            return Ok(());
        }
        self.groups.leave_for(address);
        self.apply(filter)
    }
}

fn filter_failed(errno: Errno) -> Error {
    Error::System {
        action: "cannot change the filter of a packet socket".into(),
        remedy: "Register fewer ports, or allow longer filters (sysctl net.core.optmem_max)".into(),
        source: errno.into(),
    }
}
