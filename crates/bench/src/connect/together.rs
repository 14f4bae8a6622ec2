//! Set-ups between hosts that take turns in one thread.

use clearway_base::{MILLISECOND, SECOND};
use clearway_engine::FlowSnapshot;
use std::io;

use super::measure::{Bed, Setup};
use super::world::{World, refused};
use crate::error::{Error, While};

/// A wire on which nothing has been sent for so long, and for two round trips, is quiet: longer
/// than an acknowledgement is delayed, and than the transport waits before it asks again on so
/// short a way.
pub(super) const QUIET_NS: u64 = 3 * MILLISECOND;
/// No set-up takes so long on a way that works.
const PATIENCE_NS: u64 = 30 * SECOND;

impl Bed for World {
    fn set_up(&mut self, from: usize, to: usize) -> Result<Setup, Error> {
        set_up(self, from, to).while_("opening a connection")
    }

    fn rekey(&mut self) -> Result<(), Error> {
        self.rekey_both();
        Ok(())
    }
}

fn set_up(world: &mut World, from: usize, to: usize) -> io::Result<Setup> {
    let packets_before = world.packets();
    let peer = world.listener(to);
    let begin = world.clock();
    world.client.apps[from].connect(peer);
    let passes = pass_until(world, |world| {
        if let Some(code) = world.client.apps[from].failed.take() {
            return Err(refused(code));
        }
        Ok(world.client.apps[from].connected.is_some())
    })?;
    let ns = world.clock().since(begin);
    pass_until(world, |world| Ok(world.server.apps[to].accepted.is_some()))?;
    settle(world)?;
    let packets = world.packets() - packets_before;
    let mut flows = world.flows(from, to)?;
    // Those of earlier set-ups may linger.
    flows.retain(|flow| flow.state == "open");
    end(world, from, to)?;
    settle(world)?;
    let retries = |flow: &FlowSnapshot| u64::from(flow.setup_retries);
    let is_detour = flows.iter().any(|flow| flow.detour);
    Ok(Setup { ns, passes, packets, retries: flows.iter().map(retries).sum(), is_detour })
}

/// Ends the connection between two engines on both sides.
fn end(world: &mut World, from: usize, to: usize) -> io::Result<()> {
    let (client, server) = (&mut world.client.apps[from], &mut world.server.apps[to]);
    server.accepted = None;
    if let Some(connection) = client.connected.take() {
        client.close(connection);
    }
    pass_until(world, |world| Ok(world.server.apps[to].closed.take().is_some()))?;
    Ok(())
}

/// Passes until nothing was sent for a while.
fn settle(world: &mut World) -> io::Result<()> {
    let (mut packets, mut since) = (world.packets(), world.now());
    pass_until(world, |world| {
        let (sent, now) = (world.packets(), world.now());
        if sent != packets {
            (packets, since) = (sent, now);
        }
        Ok(now.since(since) >= world.quiet_ns)
    })?;
    Ok(())
}

/// Passes until `done`; how many.
fn pass_until(
    world: &mut World,
    mut done: impl FnMut(&mut World) -> io::Result<bool>,
) -> io::Result<u64> {
    let (begin, mut passes) = (world.now(), 0);
    while !done(world)? {
        passes += 1;
        if world.pass()?.since(begin) > PATIENCE_NS {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "nothing happened for 30 s; choose a network that loses less",
            ));
        }
    }
    Ok(passes)
}
