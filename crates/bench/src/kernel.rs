//! One run of one of the kernel's contenders: a server on one core, a client on another.

use crate::contender::Contender;
use crate::cpu::{Pins, seconds_used};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::load::{Load, Sample};
use crate::process::{Event, RoleProcess};
use crate::role::{Part, Role};
use crate::veth::{SERVER, VethPair};
use std::time::Duration;

/// What a run measured, the CPU time of all its processes included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) sample: Sample,
    pub(crate) cpu_s: f64,
    /// The same for each Gbit of payload; 0 if there was none.
    pub(crate) cpu_s_per_gbit: f64,
}

impl Outcome {
    /// Of a run that was to take so long.
    fn new(sample: Sample, cpu_s: f64, seconds: f64) -> Self {
        let gbit = sample.gbit_per_s * seconds;
        Self { sample, cpu_s, cpu_s_per_gbit: if gbit > 0.0 { cpu_s / gbit } else { 0.0 } }
    }
}

/// How long a process may take to start.
pub(crate) const START_PATIENCE: Duration = Duration::from_secs(10);
/// How much longer than planned a measurement may take.
const EXTRA_PATIENCE: Duration = Duration::from_secs(10);

/// Runs `contender` once.
pub(crate) fn run_once(
    contender: Contender,
    load: Load,
    pins: Pins,
    veth: Option<&VethPair>,
    interrupt: &Interrupt,
) -> Result<Outcome, Error> {
    let veth = veth.filter(|_| contender.crosses_wire());
    let bind = match (contender, veth) {
        (Contender::UnixSpin, _) => format!("clearway-bench-{}", std::process::id()),
        (_, Some(_)) => format!("{SERVER}:0"),
        (_, None) => "127.0.0.1:0".to_owned(),
    };
    let server = Role::new(Part::Server { contender, load, bind })
        .on_core(pins.server)
        .in_namespace_of(veth.map(VethPair::server_namespace));
    let mut server = RoleProcess::start(&format!("the server of {}", contender.name()), &server)?;
    let address = server.ready(START_PATIENCE, interrupt)?;
    let client = Role::new(Part::Client { contender, load, server: address })
        .on_core(pins.client)
        .in_namespace_of(veth.map(VethPair::client_namespace));
    let client = RoleProcess::start(&format!("the client of {}", contender.name()), &client)?;
    watch_both(client, &mut server, &[], load, interrupt)
}

/// [`watch`], with a server's process. If that fails, the client sees no more than the end of a
/// connection: the server's reason is told, then.
pub(crate) fn watch_both(
    client: RoleProcess,
    server: &mut RoleProcess,
    others: &[u32],
    load: Load,
    interrupt: &Interrupt,
) -> Result<Outcome, Error> {
    let others = [others, &[server.id()]].concat();
    watch(client, &others, load, interrupt)
        .map_err(|error| server.failure(interrupt).unwrap_or(error))
}

/// Listens to a client's process through warm-up and measurement, and counts its CPU time and that
/// of `others` during the measurement.
pub(crate) fn watch(
    mut client: RoleProcess,
    others: &[u32],
    load: Load,
    interrupt: &Interrupt,
) -> Result<Outcome, Error> {
    let id = client.id();
    let used = || std::iter::once(&id).chain(others).map(|&id| seconds_used(id)).sum::<f64>();
    let mut before = used();
    loop {
        match client.event(load.warm_up() + load.duration() + EXTRA_PATIENCE, interrupt)? {
            Event::Measuring => before = used(),
            Event::Finished(sample) => {
                return Ok(Outcome::new(sample, used() - before, load.seconds));
            }
            Event::Ready(_) | Event::Counted { .. } | Event::Failed(_) => {}
        }
    }
}
