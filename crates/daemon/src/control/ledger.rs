//! What virtual interfaces have of a NIC, whichever opened NIC that is: when it is opened again, it
//! is asked for all of that again.

use std::collections::HashMap;
use std::hash::Hash;

use clearway_control::policy::HostPort;
use clearway_control::{Lost, Steered};
use clearway_nic::interface::{SteerPattern, Steering};
use clearway_nic::{Error, MacAddress};

/// Each with how often it was asked for.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    ports: HashMap<HostPort, usize>,
    /// And whether what the kernel sends there is wanted.
    macs: HashMap<(MacAddress, bool), usize>,
    patterns: HashMap<SteerPattern, usize>,
    copies: HashMap<SteerPattern, usize>,
}

impl Ledger {
    pub(super) fn claimed(&mut self, port: HostPort) {
        add(&mut self.ports, port);
    }

    pub(super) fn released(&mut self, port: HostPort) {
        take_off(&mut self.ports, &port);
    }

    pub(super) fn steered(&mut self, steered: &Steered) {
        let of_kernel = steered.of_kernel;
        steered.mac.into_iter().for_each(|mac| add(&mut self.macs, (mac, of_kernel)));
        steered.patterns.iter().for_each(|pattern| add(&mut self.patterns, *pattern));
        steered.copies.iter().for_each(|pattern| add(&mut self.copies, *pattern));
    }

    pub(super) fn unsteered(&mut self, steered: &Steered) {
        let of_kernel = steered.of_kernel;
        steered.mac.iter().for_each(|mac| take_off(&mut self.macs, &(*mac, of_kernel)));
        steered.patterns.iter().for_each(|pattern| take_off(&mut self.patterns, pattern));
        steered.copies.iter().for_each(|pattern| take_off(&mut self.copies, pattern));
    }

    /// Asks a NIC that has been opened again for all of it. What it does not give, it says.
    pub(super) fn ask_again(&self, steering: &mut dyn Steering) -> Vec<(Lost, Error)> {
        let mut lost = Vec::new();
        let mut note = |what: Lost, outcome: Result<(), Error>| {
            lost.extend(outcome.err().map(|error| (what, error)));
        };
        for &(protocol, address, port) in each(&self.ports) {
            let claimed = steering.claim_port(protocol, address, port);
            note(Lost::Port((protocol, address, port)), claimed);
        }
        for &(mac, of_kernel) in each(&self.macs) {
            note(Lost::Mac(mac), steering.add_mac(mac, of_kernel));
        }
        for pattern in each(&self.patterns) {
            note(Lost::Pattern(*pattern), steering.add_pattern(pattern));
        }
        for pattern in each(&self.copies) {
            note(Lost::Copies(*pattern), steering.add_copies(pattern));
        }
        lost
    }
}

fn each<T>(counts: &HashMap<T, usize>) -> impl Iterator<Item = &T> {
    counts.iter().flat_map(|(item, count)| std::iter::repeat_n(item, *count))
}

fn add<T: Eq + Hash>(counts: &mut HashMap<T, usize>, item: T) {
    *counts.entry(item).or_default() += 1;
}

fn take_off<T: Eq + Hash>(counts: &mut HashMap<T, usize>, item: &T) {
    match counts.get_mut(item) {
        Some(1) => _ = counts.remove(item),
        Some(count) => *count -= 1,
        None => {}
    }
}
