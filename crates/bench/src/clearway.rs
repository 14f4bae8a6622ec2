//! One run of Clearway: its hosts and its apps, in the layout that was asked for.
//!
//! ```text
//!  unpinned: two daemons, client app, server app, each wherever the kernel puts it
//!  hosts:  core 0: daemon, client app    core 1: daemon, server app
//!  paired: core 0: both apps in turn     core 1: the engines of both hosts in turn
//!  embedded: core 0: client app with its engine    core 1: server app with its engine
//!  with a kernel's end: as `unpinned` or `hosts`; see `half_pair`
//!  local:  as above, with one daemon on core 1 for both apps
//! ```
//! Everything is fresh in each run and gone after it: an idle engine that spins would be a burden
//! on the other contenders.

use crate::apps::{AppHost, AppPlace};
use crate::arguments::{Layout, Plan, Wire};
use crate::c_app::End;
use crate::cpu::Pins;
use crate::directory::Directory;
use crate::embedded::EmbeddedHost;
use crate::error::{Error, While};
use crate::half_pair::HalfPair;
use crate::host::{HostFiles, Nic};
use crate::interrupt::Interrupt;
use crate::kernel::{Outcome, START_PATIENCE, watch, watch_both};
use crate::process::{RoleProcess, own_program};
use crate::role::{BenchHost, Part, Role};
use crate::veth::VethPair;
use std::net::SocketAddr;

/// The hosts of a run, and the processes that they live in.
pub(crate) struct Hosts {
    pub(crate) client: HostFiles,
    pub(crate) server: HostFiles,
    pub(crate) processes: Vec<RoleProcess>,
}

/// Runs Clearway once.
pub(crate) fn run_once(
    plan: &Plan,
    pins: Pins,
    veth: Option<&VethPair>,
    interrupt: &Interrupt,
) -> Result<Outcome, Error> {
    let directory = Directory::create().while_("making a directory for sockets")?;
    if plan.layout == Layout::Embedded {
        return run_embedded(plan, pins, veth, &directory, interrupt);
    }
    if let (Some(end), Some(veth)) = (plan.kernel_end, veth) {
        let directory = &directory;
        return HalfPair { plan, pins, veth, directory, interrupt }.run_once(end);
    }
    let mut hosts = start_hosts(plan, pins, veth, &directory, interrupt)?;
    let outcome = run_apps(plan, pins, &hosts, interrupt);
    for process in &mut hosts.processes {
        process.terminate();
    }
    outcome
}

/// Starts the hosts of a plan, without a kernel's end.
pub(crate) fn start_hosts(
    plan: &Plan,
    pins: Pins,
    veth: Option<&VethPair>,
    directory: &Directory,
    interrupt: &Interrupt,
) -> Result<Hosts, Error> {
    let files = |name, core| {
        HostFiles::write(directory, name, &Nic::of(plan), core).while_("writing a configuration")
    };
    if plan.wire == Wire::Local {
        let host = files("server", pins.server)?;
        let process = daemon(&host, pins.server, None, interrupt)?;
        return Ok(Hosts { client: host.clone(), server: host, processes: vec![process] });
    }
    let client_namespace = veth.map(VethPair::client_namespace);
    let server_namespace = veth.map(VethPair::server_namespace);
    let client_core = if plan.layout == Layout::Paired { pins.server } else { pins.client };
    let (client, server) = (files("client", client_core)?, files("server", pins.server)?);
    let processes = match plan.layout {
        Layout::Unpinned | Layout::Hosts => vec![
            daemon(&server, pins.server, server_namespace, interrupt)?,
            daemon(&client, pins.client, client_namespace, interrupt)?,
        ],
        Layout::Paired => {
            let hosts = vec![
                BenchHost { config: server.config.clone(), namespace_of: server_namespace },
                BenchHost { config: client.config.clone(), namespace_of: client_namespace },
            ];
            vec![engines(hosts, &[&server, &client], pins.server, interrupt)?]
        }
        Layout::Embedded => Vec::new(),
    };
    Ok(Hosts { client, server, processes })
}

/// A daemon of its own, as an operator would start it.
pub(crate) fn daemon(
    host: &HostFiles,
    core: Option<usize>,
    namespace_of: Option<u32>,
    interrupt: &Interrupt,
) -> Result<RoleProcess, Error> {
    let config = host.config.to_string_lossy().into_owned();
    let arguments = vec!["daemon".into(), "--config".into(), config];
    let part = Part::Become { program: own_program(), arguments };
    let role = Role::new(part).on_core(core).in_namespace_of(namespace_of);
    let mut process = RoleProcess::start(&format!("the daemon of the {}", host.name), &role)?;
    process.await_condition(START_PATIENCE, interrupt, || host.socket.exists())?;
    Ok(process)
}

/// The engines of several hosts in one thread.
fn engines(
    hosts: Vec<BenchHost>,
    files: &[&HostFiles],
    core: Option<usize>,
    interrupt: &Interrupt,
) -> Result<RoleProcess, Error> {
    let role = Role::new(Part::Engines { hosts }).on_core(core);
    let mut process = RoleProcess::start("the process of both engines", &role)?;
    let all_there = || files.iter().all(|host| host.socket.exists());
    process.await_condition(START_PATIENCE, interrupt, all_there)?;
    Ok(process)
}

/// Runs the apps on them.
pub(crate) fn run_apps(
    plan: &Plan,
    pins: Pins,
    hosts: &Hosts,
    interrupt: &Interrupt,
) -> Result<Outcome, Error> {
    let load = plan.load;
    let others: Vec<u32> = hosts.processes.iter().map(RoleProcess::id).collect();
    let (client, server) = (place(plan, &hosts.client), place(plan, &hosts.server));
    let server = AppPlace { idle: plan.server_idle, ..server };
    let to = hosts.server.address;
    if plan.layout == Layout::Paired {
        let part = Part::ClearwayPair { client, server, load, to };
        let apps =
            RoleProcess::start("the apps of Clearway", &Role::new(part).on_core(pins.client))?;
        return watch(apps, &others, load, interrupt);
    }
    let mut server = start_server(plan, server, to, pins, interrupt)?;
    let role = Role::new(client_part(plan, client, to)).on_core(pins.client);
    let client = RoleProcess::start("the client of Clearway", &role)?;
    watch_both(client, &mut server, &others, load, interrupt)
}

fn client_part(plan: &Plan, client: AppPlace, to: SocketAddr) -> Part {
    match (&plan.c_app, &client.host) {
        (Some(program), AppHost::Daemon(socket)) => {
            End::Client.part(program, socket, client.idle, &plan.load, to)
        }
        _ => Part::ClearwayClient { client, load: plan.load, to },
    }
}

fn server_part(plan: &Plan, server: AppPlace, at: SocketAddr) -> Part {
    match (&plan.c_app, &server.host) {
        (Some(program), AppHost::Daemon(socket)) => {
            End::Server.part(program, socket, server.idle, &plan.load, at)
        }
        _ => Part::ClearwayServer { server, load: plan.load, at },
    }
}

pub(crate) fn place(plan: &Plan, host: &HostFiles) -> AppPlace {
    AppPlace {
        host: AppHost::Daemon(host.socket.clone()),
        idle: plan.idle,
        exchange: plan.exchange,
    }
}

pub(crate) fn start_server(
    plan: &Plan,
    server: AppPlace,
    at: SocketAddr,
    pins: Pins,
    interrupt: &Interrupt,
) -> Result<RoleProcess, Error> {
    let role = Role::new(server_part(plan, server, at)).on_core(pins.server);
    let mut server = RoleProcess::start("the server of Clearway", &role)?;
    server.ready(START_PATIENCE, interrupt)?;
    Ok(server)
}

/// Two processes, and nothing else; over UDP sockets each in its host's network namespace.
fn run_embedded(
    plan: &Plan,
    pins: Pins,
    veth: Option<&VethPair>,
    directory: &Directory,
    interrupt: &Interrupt,
) -> Result<Outcome, Error> {
    let [client, server] = [false, true].map(|is| EmbeddedHost::new(directory, is, plan));
    let at = server.address().while_("choosing an address")?;
    let (idle, exchange, load) = (plan.idle, plan.exchange, plan.load);
    let place = |host| AppPlace { host: AppHost::Embedded(host), idle, exchange };
    let part = Part::ClearwayServer { server: place(server), load, at };
    let role = Role::new(part).on_core(pins.server);
    let role = role.in_namespace_of(veth.map(VethPair::server_namespace));
    let mut server = RoleProcess::start("the server of Clearway", &role)?;
    server.ready(START_PATIENCE, interrupt)?;
    let part = Part::ClearwayClient { client: place(client), load, to: at };
    let role = Role::new(part).on_core(pins.client);
    let role = role.in_namespace_of(veth.map(VethPair::client_namespace));
    let client = RoleProcess::start("the client of Clearway", &role)?;
    watch_both(client, &mut server, &[], load, interrupt)
}
