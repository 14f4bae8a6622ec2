//! Neighbours of NICs that the kernel shares: the engine asks, the kernel knows or finds out.

use std::collections::HashSet;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use clearway_engine::Request as EngineRequest;
use clearway_nic::Error;
use clearway_nic::interface::{Neighbour, Neighbours};

use super::ControlPlane;

/// Neighbours whose changes are passed on; beyond that the engine has to ask again.
const FOLLOWED_MAX: usize = 4096;

/// The kernel's neighbours on the link of one NIC.
#[derive(Debug)]
pub(super) struct Followed {
    table: Neighbours,
    /// Those that an engine has asked for, whose changes all engines are told.
    followed: HashSet<IpAddr>,
}

impl Followed {
    pub(super) fn new(table: Neighbours) -> Self {
        Self { table, followed: HashSet::new() }
    }

    /// What the kernel knows already. Has it look in any case: what it knows may be old.
    fn ask(&mut self, address: IpAddr) -> Result<Option<Neighbour>, Error> {
        if self.followed.len() >= FOLLOWED_MAX {
            self.followed.clear();
        }
        self.followed.insert(address);
        let known = self.table.entries()?.into_iter().find(|known| known.address == address);
        self.table.resolve(address)?;
        Ok(known.filter(|known| known.mac.is_some()))
    }

    /// The next change that the engine wants to know of.
    fn next_change(&mut self) -> Result<Option<Neighbour>, Error> {
        while let Some(change) = self.table.next_change()? {
            let settled = change.mac.is_some() || change.failed;
            if settled && self.followed.contains(&change.address) {
                return Ok(Some(change));
            }
        }
        Ok(None)
    }
}

impl AsFd for Followed {
    /// Readable when something has changed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}

impl ControlPlane {
    /// An engine needs a neighbour on the link of a NIC, or of its own.
    pub(super) fn resolve(&mut self, engine: usize, nic: Option<usize>, address: IpAddr) {
        let nic = nic.unwrap_or(self.plane.engines()[engine].nic);
        let Some(neighbours) = &mut self.nics[nic].neighbours else { return };
        match neighbours.ask(address) {
            Ok(Some(known)) => self.tell_neighbour(engine, nic, known),
            Ok(None) => {}
            Err(error) => {
                let engine = &self.plane.engines()[engine].name;
                tracing::warn!(engine, %address, %error, "cannot ask for a neighbour");
            }
        }
    }

    /// The kernel has found something out.
    pub(super) fn take_neighbours(&mut self, nic: usize) {
        while let Some(neighbours) = &mut self.nics[nic].neighbours {
            match neighbours.next_change() {
                Ok(Some(change)) => {
                    for engine in 0..self.mailboxes.len() {
                        self.tell_neighbour(engine, nic, change);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    let nic = &self.nics[nic].name;
                    tracing::warn!(nic, %error, "cannot read the changes of neighbours");
                    return;
                }
            }
        }
    }

    fn tell_neighbour(&mut self, engine: usize, nic: usize, neighbour: Neighbour) {
        let Neighbour { address, mac, .. } = neighbour;
        let known = &self.plane.engines()[engine];
        tracing::debug!(engine = known.name, %address, found = mac.is_some());
        let nic = (known.nic != nic).then_some(nic);
        self.mailboxes[engine].post(EngineRequest::Neighbour { nic, address, mac });
    }
}
