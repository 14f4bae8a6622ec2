//! Hears of every change of an interface: its state, addresses and routes.
//!
//! Changes are not followed one by one: that something has changed is a reason to read everything
//! again. So what was lost because it came too fast is not missed. Neighbours are not here, see
//! `neighbours`: of those only single ones matter.

use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_route::RouteNetlinkMessage;
use rustix::io::Errno;

use super::netlink::Netlink;
use super::{Device, Facts, routes};
use crate::Error;

/// Multicast group masks of linux/rtnetlink.h: `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`,
/// `RTMGRP_IPV4_ROUTE`, `RTMGRP_IPV6_IFADDR` and `RTMGRP_IPV6_ROUTE`.
pub(super) const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;

/// A watch over one interface, in the network namespace of the thread that opened it. Whatever it
/// needs is open from then on, so that it works in a process that is confined.
#[derive(Debug)]
pub struct Watch {
    device: Device,
    questions: Netlink,
    changes: Netlink,
}

impl Watch {
    /// Begins to watch `interface`.
    pub fn open(interface: &str) -> Result<Watch, Error> {
        Ok(Watch {
            device: Device::open(interface)?,
            changes: Netlink::open(GROUPS)?,
            questions: Netlink::open(0)?,
        })
    }

    /// What is true of the interface now.
    pub fn facts(&mut self) -> Result<Facts, Error> {
        Facts::read(&self.device, &mut self.questions)
    }

    /// Takes all the news. True if [`Watch::facts`] may be others than before.
    pub fn has_changed(&mut self) -> Result<bool, Error> {
        let mut has_changed = false;
        loop {
            match self.changes.changes() {
                Ok(None) => return Ok(has_changed),
                Ok(Some(news)) => {
                    let index = self.device.index();
                    has_changed |= news.iter().any(|one| is_about(one, index));
                }
                // Changes came faster than they were read.
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                    has_changed = true;
                }
                Err(source) => {
                    return Err(Error::System {
                        action: format!("cannot hear of changes of {}", self.device.name()),
                        remedy: "Restart the daemon to have it take note of them".into(),
                        source,
                    });
                }
            }
        }
    }
}

impl AsFd for Watch {
    /// Readable when there are news.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }
}

fn is_about(news: &RouteNetlinkMessage, index: u32) -> bool {
    match news {
        RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link) => {
            link.header.index == index
        }
        RouteNetlinkMessage::NewAddress(address) | RouteNetlinkMessage::DelAddress(address) => {
            address.header.index == index
        }
        RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) => {
            routes::is_by(route, index)
        }
        _ => false,
    }
}
