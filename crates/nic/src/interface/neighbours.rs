//! The kernel's neighbour table: which MAC address an IP address has on a link.
//!
//! The kernel does ARP and NDP; we ask it to resolve an address, read what it found and hear of
//! changes. For a control thread: a question is a system call that answers at once, the resolving
//! itself takes as long as the neighbour takes to answer.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rustix::io::Errno;

use super::Device;
use super::facts::family;
use super::netlink::Netlink;
use crate::{Error, MacAddress};

/// Multicast group mask for changes of the neighbour table (`RTMGRP_NEIGH`).
const NEIGHBOUR_CHANGES: u32 = 4;

/// What the kernel knows of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address; `None` while it is being resolved, when it does not answer, or when the
    /// kernel has forgotten it.
    pub mac: Option<MacAddress>,
    /// Nobody answered.
    pub failed: bool,
}

/// The neighbours on one interface, in the network namespace of the thread that opened this.
#[derive(Debug)]
pub struct Neighbours {
    interface_index: u32,
    questions: Netlink,
    changes: Netlink,
    waiting: VecDeque<Neighbour>,
}

impl Neighbours {
    /// Begins to listen for changes on `interface`.
    pub fn open(interface: &str) -> Result<Neighbours, Error> {
        let device = Device::open(interface)?;
        Ok(Neighbours {
            interface_index: device.index(),
            questions: Netlink::open(0)?,
            changes: Netlink::open(NEIGHBOUR_CHANGES)?,
            waiting: VecDeque::new(),
        })
    }

    /// All neighbours that the kernel knows now.
    pub fn entries(&mut self) -> Result<Vec<Neighbour>, Error> {
        let question = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let answers = self.questions.dump(question).map_err(failed)?;
        Ok(answers.iter().filter_map(|answer| neighbour(answer, self.interface_index)).collect())
    }

    /// Asks the kernel to find `address`, or to make sure that it is still where it was, and
    /// returns what is known already. What comes of the asking is among the changes, unless it
    /// changes nothing. One that failed is not tried again before it is asked for again, which is
    /// worth it: just after an interface has come up, IPv6 is still checking its own addresses and
    /// asks nobody. Needs CAP_NET_ADMIN.
    pub fn resolve(&mut self, address: IpAddr) -> Result<Option<Neighbour>, Error> {
        let mut request = NeighbourMessage::default();
        request.header.family = family(address);
        request.header.ifindex = self.interface_index;
        // NTF_USE: behave as if a packet were being sent to it.
        request.header.flags = NeighbourFlags::Use;
        request.header.state = NeighbourState::None;
        request.attributes.push(NeighbourAttribute::Destination(match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        }));
        let request = RouteNetlinkMessage::NewNeighbour(request);
        self.questions.ask(request, NLM_F_CREATE | NLM_F_REPLACE).map_err(failed)?;
        Ok(self.entries()?.into_iter().find(|neighbour| neighbour.address == address))
    }

    /// The next change since this was opened; `None` if there is none yet.
    pub fn next_change(&mut self) -> Result<Option<Neighbour>, Error> {
        while self.waiting.is_empty() {
            match self.changes.changes() {
                Ok(None) => return Ok(None),
                Ok(Some(messages)) => {
                    let index = self.interface_index;
                    self.waiting.extend(messages.iter().filter_map(|one| neighbour(one, index)));
                }
                // Changes came faster than they were read: take stock instead.
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                    let entries = self.entries()?;
                    self.waiting.extend(entries);
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(self.waiting.pop_front())
    }
}

/// Readable when [`Neighbours::next_change`] has something.
impl AsFd for Neighbours {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }
}

fn neighbour(message: &RouteNetlinkMessage, index: u32) -> Option<Neighbour> {
    let (message, gone) = match message {
        RouteNetlinkMessage::NewNeighbour(message) => (message, false),
        RouteNetlinkMessage::DelNeighbour(message) => (message, true),
        _ => return None,
    };
    if message.header.ifindex != index {
        return None;
    }
    let (mut address, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => {
                address = Some((*ip).into())
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => {
                address = Some((*ip).into())
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok(),
            _ => {}
        }
    }
    let usable = !gone && is_usable(message.header.state);
    Some(Neighbour {
        address: address?,
        mac: mac.filter(|_| usable),
        failed: message.header.state == NeighbourState::Failed,
    })
}

/// A stale entry is still the best there is: the kernel sends to it too, and checks meanwhile.
fn is_usable(state: NeighbourState) -> bool {
    matches!(
        state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
    )
}

fn failed(source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::PermissionDenied => Error::Permission(
            "cannot ask the kernel to resolve a neighbour: that needs CAP_NET_ADMIN. Run as root \
             or add that capability"
                .into(),
        ),
        _ => Error::System {
            action: "cannot use the kernel's neighbour table".into(),
            remedy: "The interface may have been removed; check with `ip neigh`".into(),
            source,
        },
    }
}
