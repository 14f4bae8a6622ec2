//! Ethernet addresses that a NIC must let in besides its own: the multicast groups of our own IPv6
//! addresses, those that virtual interfaces want copies of, and unicast addresses of virtual
//! interfaces.
//!
//! They are asked for by a packet socket, so the kernel forgets them when it is closed, however
//! this process ends. A NIC that has no room in its filter is made promiscuous by the kernel.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::OwnedFd;

use clearway_wire::{ethernet, ipv6};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::Device;
use super::claim::set_option;
use crate::{Error, MacAddress};

/// What one interface lets in on our behalf while this lives.
#[derive(Debug)]
pub(crate) struct Memberships {
    interface_index: u32,
    socket: OwnedFd,
}

impl Memberships {
    /// None yet, on the given interface of the calling thread's network namespace.
    pub(crate) fn new(device: &Device) -> Result<Memberships, Error> {
        // Without a protocol it receives nothing.
        let socket =
            socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)
                .map_err(|errno| failed("open a packet socket", errno))?;
        Ok(Memberships { interface_index: device.index(), socket })
    }

    /// Lets in the neighbour solicitations for `address`.
    pub(crate) fn join_for(&self, address: IpAddr) -> Result<(), Error> {
        let IpAddr::V6(address) = address else { return Ok(()) };
        self.join(solicited_node_mac(address))
    }

    /// Lets in frames to the group at `mac`. Twice has to be undone twice.
    pub(crate) fn join(&self, mac: MacAddress) -> Result<(), Error> {
        self.change(libc::PACKET_ADD_MEMBERSHIP, libc::PACKET_MR_MULTICAST, mac)
            .map_err(|errno| failed("join a multicast group", errno))
    }

    /// Undoes [`Memberships::join_for`].
    pub(crate) fn leave_for(&self, address: IpAddr) {
        let IpAddr::V6(address) = address else { return };
        self.leave(solicited_node_mac(address));
    }

    /// Undoes [`Memberships::join`] once.
    pub(crate) fn leave(&self, mac: MacAddress) {
        // Fails only if the group was not joined or the interface is gone: left either way.
        let _ = self.change(libc::PACKET_DROP_MEMBERSHIP, libc::PACKET_MR_MULTICAST, mac);
    }

    /// Lets in frames to `mac`.
    pub(crate) fn add_mac(&self, mac: MacAddress) -> Result<(), Error> {
        if mac[0] & 1 != 0 || mac == [0; 6] {
            return Err(Error::Invalid(format!(
                "{} is not the address of one machine; choose one whose first byte is even, such \
                 as 02:..., which is nobody's product",
                mac.map(|byte| format!("{byte:02x}")).join(":")
            )));
        }
        self.change(libc::PACKET_ADD_MEMBERSHIP, libc::PACKET_MR_UNICAST, mac)
            .map_err(|errno| failed("add an Ethernet address to the interface", errno))
    }

    /// Undoes [`Memberships::add_mac`].
    pub(crate) fn remove_mac(&self, mac: MacAddress) {
        // As in `leave_for`.
        let _ = self.change(libc::PACKET_DROP_MEMBERSHIP, libc::PACKET_MR_UNICAST, mac);
    }

    fn change(&self, option: i32, kind: i32, mac: MacAddress) -> Result<(), Errno> {
        let mut mr_address = [0; 8];
        mr_address[..6].copy_from_slice(&mac);
        let membership = libc::packet_mreq {
            mr_ifindex: self.interface_index as i32,
            mr_type: kind as u16,
            mr_alen: 6,
            mr_address,
        };
        set_option(&self.socket, libc::SOL_PACKET, option, &membership)
    }
}

fn solicited_node_mac(address: Ipv6Addr) -> MacAddress {
    ethernet::multicast_v6(ipv6::solicited_node(address))
}

fn failed(what: &str, errno: Errno) -> Error {
    match errno {
        Errno::PERM | Errno::ACCESS => Error::Permission(format!(
            "cannot {what}: that needs CAP_NET_RAW. Run as root or add that capability"
        )),
        _ => Error::System {
            action: format!("cannot {what}"),
            remedy: "The interface may have been removed; check with `ip link`".into(),
            source: errno.into(),
        },
    }
}
