//! The kernel's interfaces change while the daemon runs: addresses, routes, MTU, carrier. Here is
//! what follows for steering and for the engine. One with another Ethernet address is another NIC.
//!
//! The kernel's news come in bursts, several for one command of an administrator. So they are
//! waited for a little, and then everything is read again, at most a few times per second, however
//! fast the routes of a busy router change.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use clearway_engine::Request as EngineRequest;
use clearway_engine::ip::{self, Conflict};

use super::ControlPlane;
use super::nics::NicSlot;
use crate::config::Driver;
use crate::nic::Follower;

/// How long further news are waited for after the first.
const SETTLE_TIME: Duration = Duration::from_millis(10);
/// Time between two readings.
const READING_PAUSE: Duration = Duration::from_millis(200);

/// What has become of a network.
enum Followed {
    Same,
    Changed(ip::Config),
    /// The interface is not what it was, or is gone; and why.
    Lost(&'static str),
}

/// The follower of a NIC, and when it is to read.
#[derive(Debug)]
pub(super) struct Following {
    follower: Follower,
    read_at: Option<Instant>,
    last_read: Option<Instant>,
}

impl Following {
    pub(super) fn new(follower: Follower) -> Self {
        Self { follower, read_at: None, last_read: None }
    }

    /// There are news: reads soon.
    fn note(&mut self, now: Instant) {
        let earliest = self.last_read.map_or(now, |last| last + READING_PAUSE);
        self.read_at.get_or_insert((now + SETTLE_TIME).max(earliest));
    }
}

impl AsFd for Following {
    /// Readable when there are news.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.follower.as_fd()
    }
}

impl ControlPlane {
    /// The kernel has news about the interface of a NIC.
    pub(super) fn take_news(&mut self, nic: usize) {
        let nic = &mut self.nics[nic];
        let Some(following) = &mut nic.following else { return };
        match following.follower.has_changed() {
            Ok(false) => {}
            Ok(true) => following.note(Instant::now()),
            Err(error) => tracing::warn!(nic = nic.name, %error),
        }
    }

    /// When [`ControlPlane::follow_networks`] has something to do.
    pub(super) fn networks_due(&self) -> Option<Instant> {
        self.nics.iter().filter_map(|nic| nic.following.as_ref()?.read_at).min()
    }

    /// Reads what has changed, where it is time to.
    pub(super) fn follow_networks(&mut self) {
        let now = Instant::now();
        let mut lost = Vec::new();
        for (index, nic) in self.nics.iter_mut().enumerate() {
            let read_at = nic.following.as_ref().and_then(|following| following.read_at);
            if read_at.is_none_or(|due| now < due) {
                continue;
            }
            let before: Vec<IpAddr> = self.plane.nics()[index].addresses().collect();
            match nic.follow(now, &before, self.facts.udp_port) {
                Followed::Same => {}
                Followed::Changed(network) => {
                    self.plane.set_network(index, &network);
                    for (engine, mailbox) in self.plane.engines().iter().zip(&mut self.mailboxes) {
                        let network = Box::new(network.clone());
                        mailbox.post(if engine.nic == index {
                            EngineRequest::Network(network)
                        } else {
                            EngineRequest::NetworkElsewhere { nic: index, network }
                        });
                    }
                }
                Followed::Lost(why) => lost.push((index, why)),
            }
        }
        for (nic, why) in lost {
            self.close_nic(nic, why);
        }
    }

    /// Another host has an address of an engine's NIC.
    pub(super) fn address_conflict(&mut self, engine: usize, conflict: Conflict) {
        let Conflict { address, mac } = conflict;
        let mac = mac.map(|octet| format!("{octet:02x}")).join(":");
        let engine = &self.plane.engines()[engine].name;
        tracing::error!(
            engine,
            "the host at {mac} uses the address {address}, too; give one of the two another address"
        );
    }
}

impl NicSlot {
    /// Reads the facts again.
    fn follow(&mut self, now: Instant, before: &[IpAddr], udp_port: u16) -> Followed {
        let Some(following) = self.following.as_mut() else { return Followed::Same };
        (following.read_at, following.last_read) = (None, Some(now));
        let change = match following.follower.read() {
            Ok(change) => change,
            Err(error) => {
                tracing::debug!(nic = self.name, %error, "the interface cannot be read");
                return Followed::Lost("its interface was removed; it is waited for");
            }
        };
        if change.is_another {
            return Followed::Lost(
                "its Ethernet address, or its name, is another; it is opened again",
            );
        }
        if let Some(is_up) = change.carrier {
            tracing::info!(nic = self.name, "the link is {}", if is_up { "up" } else { "down" });
        }
        let of_kernel = following.follower.is_of_kernel();
        let network = following.follower.network().clone();
        self.note_unused(change.mtu_unused, network.mtu);
        if !change.is_other {
            return Followed::Same;
        }
        Followed::Changed(self.set_network(network, before, of_kernel, udp_port))
    }

    /// The interface carries packets of so many bytes and is used for those of `mtu` at most, which
    /// whoever has raised it is told. To open the NIC again unasked would cost apps connections of
    /// TCP: while it is closed, the kernel resets those at its own addresses.
    fn note_unused(&mut self, unused: Option<u16>, mtu: u16) {
        // A daemon may have given up what sockets at all addresses take.
        let is_for_restart = self.config.driver == Driver::Udp;
        let trouble = unused.map_or_else(String::new, |unused| {
            let told = format!(
                "packets have {mtu} bytes at most, although {unused} would be carried now; "
            );
            told + &match is_for_restart {
                true => "restart the daemon".to_owned(),
                false => format!(
                    "set `mtu_bytes = {unused}` for this NIC and have the configuration read again \
                     (clearway reload), or restart the daemon"
                ),
            }
        });
        if !trouble.is_empty() && self.trouble != trouble {
            tracing::warn!(nic = self.name, "{trouble}");
        }
        self.trouble = trouble;
    }

    /// Has packets to new addresses steered here, and those to old ones not any more. Returns what
    /// the engines are to know.
    fn set_network(
        &mut self,
        mut network: ip::Config,
        before: &[IpAddr],
        of_kernel: bool,
        udp_port: u16,
    ) -> ip::Config {
        network.addresses.retain(|(address, _)| {
            before.contains(address) || self.take_address(*address, of_kernel, udp_port)
        });
        let is_there = |address: IpAddr| network.addresses.iter().any(|(own, _)| *own == address);
        for address in before.iter().filter(|address| !is_there(**address)) {
            self.leave_address(*address, udp_port);
        }
        let text = |(address, prefix_bits): &(IpAddr, u8)| format!("{address}/{prefix_bits}");
        tracing::info!(
            nic = self.name,
            addresses = network.addresses.iter().map(text).collect::<Vec<_>>().join(" "),
            mtu_bytes = network.mtu,
            routes = network.routes.len(),
            "the network has changed"
        );
        network
    }

    /// True if messages to `address` come here from now on.
    fn take_address(&mut self, address: IpAddr, of_kernel: bool, udp_port: u16) -> bool {
        let Some(steering) = &mut self.steering else { return true };
        let added = if of_kernel {
            steering.add_shared_address(address)
        } else {
            steering.add_own_address(address)
        };
        let taken = added.and_then(|()| steering.register_udp_port(Some(address), udp_port));
        if let Err(error) = &taken {
            tracing::error!(nic = self.name, %address, %error, "the new address is not used");
            self.leave_address(address, udp_port);
            return false;
        }
        true
    }

    fn leave_address(&mut self, address: IpAddr, udp_port: u16) {
        let Some(steering) = &mut self.steering else { return };
        let warn = |error| {
            tracing::warn!(nic = self.name, %address, %error, "cannot give an address back");
        };
        steering.unregister_udp_port(Some(address), udp_port).unwrap_or_else(warn);
        steering.remove_address(address).unwrap_or_else(warn);
    }
}
