//! One run of Clearway's TCP at one end of a veth pair, with the kernel's at the other: what goes
//! to and comes from a host without Clearway.

use crate::arguments::{KernelEnd, Plan};
use crate::clearway::{daemon, place, start_server};
use crate::contender::Contender;
use crate::cpu::Pins;
use crate::directory::Directory;
use crate::error::{Error, While};
use crate::host::{HostFiles, Nic};
use crate::interrupt::Interrupt;
use crate::kernel::{Outcome, START_PATIENCE, watch_both};
use crate::process::RoleProcess;
use crate::role::{Part, Role};
use crate::veth::{SERVER, VethPair};

/// What the kernel's app does, as an ordinary program.
const KERNEL: Contender = Contender::TcpBlock;

/// What a run needs.
pub(crate) struct HalfPair<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) pins: Pins,
    pub(crate) veth: &'a VethPair,
    pub(crate) directory: &'a Directory,
    pub(crate) interrupt: &'a Interrupt,
}

impl HalfPair<'_> {
    /// Runs it once; `end` is the kernel's.
    pub(crate) fn run_once(&self, end: KernelEnd) -> Result<Outcome, Error> {
        match end {
            KernelEnd::Client => self.run_with_kernel_client(),
            KernelEnd::Server => self.run_with_kernel_server(),
        }
    }

    fn run_with_kernel_client(&self) -> Result<Outcome, Error> {
        let (plan, pins, load) = (self.plan, self.pins, self.plan.load);
        let files = self.files("server", pins.server)?;
        let namespace = self.veth.server_namespace();
        let mut daemon = daemon(&files, pins.server, Some(namespace), self.interrupt)?;
        let to = files.address;
        let mut server = start_server(plan, place(plan, &files), to, pins, self.interrupt)?;
        let part = Part::Client { contender: KERNEL, load, server: to.to_string() };
        let namespace = self.veth.client_namespace();
        let role = Role::new(part).on_core(pins.client).in_namespace_of(Some(namespace));
        let client = RoleProcess::start("the kernel's client", &role)?;
        let outcome = watch_both(client, &mut server, &[daemon.id()], load, self.interrupt);
        daemon.terminate();
        outcome
    }

    fn run_with_kernel_server(&self) -> Result<Outcome, Error> {
        let (plan, pins, load) = (self.plan, self.pins, self.plan.load);
        let part = Part::Server { contender: KERNEL, load, bind: format!("{SERVER}:0") };
        let namespace = self.veth.server_namespace();
        let role = Role::new(part).on_core(pins.server).in_namespace_of(Some(namespace));
        let mut server = RoleProcess::start("the kernel's server", &role)?;
        let address = server.ready(START_PATIENCE, self.interrupt)?;
        let files = self.files("client", pins.client)?;
        let namespace = self.veth.client_namespace();
        let mut daemon = daemon(&files, pins.client, Some(namespace), self.interrupt)?;
        let to = address.parse().expect("a socket has an address");
        let part = Part::ClearwayClient { client: place(plan, &files), load, to };
        let role = Role::new(part).on_core(pins.client);
        let client = RoleProcess::start("the client of Clearway", &role)?;
        let outcome = watch_both(client, &mut server, &[daemon.id()], load, self.interrupt);
        daemon.terminate();
        outcome
    }

    fn files(&self, name: &'static str, core: Option<usize>) -> Result<HostFiles, Error> {
        HostFiles::write(self.directory, name, &Nic::of(self.plan), core)
            .while_("writing a configuration")
    }
}
