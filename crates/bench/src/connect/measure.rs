//! One set-up after the other, and what each took.

use super::ConnectCommand;
use super::processes::Processes;
use super::world::World;
use crate::error::{Error, While};
use crate::interrupt::Interrupt;

/// What a set-up took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) ns: u64,
    /// Passes over all engines, if they take turns.
    pub(super) passes: u64,
    /// Packets of both hosts.
    pub(super) packets: u64,
    /// How often either side had to send more than its first batch.
    pub(super) retries: u64,
    /// A side has found no direct way.
    pub(super) is_detour: bool,
}

/// Two hosts with many engines, and a network between them.
pub(super) trait Bed {
    /// Opens and ends a connection between two engines.
    fn set_up(&mut self, from: usize, to: usize) -> Result<Setup, Error>;

    /// Both NICs spread by other keys from now on.
    fn rekey(&mut self) -> Result<(), Error>;
}

/// Opens as many connections as the command says.
pub(super) fn run(command: &ConnectCommand, interrupt: &Interrupt) -> Result<Vec<Setup>, Error> {
    let mut bed: Box<dyn Bed> = if command.processes {
        Box::new(Processes::start(command, interrupt)?)
    } else {
        Box::new(World::open(command).while_("making two hosts")?)
    };
    let (clients, servers) = (command.client_engines, command.server_engines);
    // Each engine has met the other host once before anything is measured: neighbours are known.
    let warm_up = clients.max(servers);
    let mut setups = Vec::new();
    for number in 0..warm_up + command.count {
        interrupt.check()?;
        let (from, to) = pair(number, clients, servers);
        let setup = bed.set_up(from, to)?;
        if number >= warm_up {
            setups.push(setup);
        }
        bed.rekey()?;
    }
    Ok(setups)
}

/// Which engines are to be connected: in the long run all pairs equally often.
const fn pair(number: usize, clients: usize, servers: usize) -> (usize, usize) {
    (number % clients, (number + number / (clients * servers)) % servers)
}

#[cfg(test)]
mod tests {
    use super::pair;
    use std::collections::BTreeSet;

    #[test]
    fn all_pairs_of_engines_get_their_turn() {
        for (clients, servers) in [(1, 1), (4, 4), (2, 6), (8, 3)] {
            let numbers = 0..clients * servers * servers;
            let pairs: BTreeSet<_> = numbers.map(|n| pair(n, clients, servers)).collect();
            assert_eq!(pairs.len(), clients * servers, "{clients}x{servers}");
        }
    }
}
