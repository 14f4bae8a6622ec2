//! The order of events: a wire for the kernel's contenders, then rounds in which each contender
//! runs once, so that whatever else the machine does hits all of them alike.

use crate::apps::Exchange;
use crate::arguments::Plan;
use crate::clearway;
use crate::contender::Contender;
use crate::cpu::{Cores, Pins};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::kernel::{self, Outcome};
use crate::progress::Progress;
use crate::report::Report;
use crate::samples::Samples;
use crate::veth::VethPair;

/// MTU of the kernel's veth pair when Clearway does not share it: Ethernet's own. TCP hands over
/// segments of up to 64 KB on it whatever the MTU is.
const VETH_MTU: u16 = 1500;
/// MTU of the loopback interface.
const LOOPBACK_MTU: u16 = u16::MAX;

/// Measures all contenders of `plan`.
pub(crate) fn run(
    plan: &Plan,
    interrupt: &Interrupt,
    progress: &Progress,
) -> Result<Report, Error> {
    let cores = Cores::choose();
    let pins = cores.pins(plan.layout);
    let mut notes = plan.notes.clone();
    let veth = kernel_wire(plan, interrupt, &mut notes)?;
    let mut samples = Samples::new(cores, plan.contenders.iter().copied());
    for _ in 0..plan.runs {
        for &contender in &plan.contenders {
            progress.next(&format!(
                "{} of {} B: {}",
                plan.load.workload.name(),
                plan.load.size,
                contender.name()
            ));
            samples
                .take(contender, || run_once(contender, plan, pins, veth.as_ref(), interrupt))?;
            progress.done();
        }
    }
    let (tcp_wire, tcp_mtu) =
        if veth.is_some() { ("veth", veth_mtu(plan)) } else { ("loopback", LOOPBACK_MTU) };
    Ok(Report::new(plan, &samples, tcp_wire, tcp_mtu, notes))
}

fn run_once(
    contender: Contender,
    plan: &Plan,
    pins: Pins,
    veth: Option<&VethPair>,
    interrupt: &Interrupt,
) -> Result<Outcome, Error> {
    if contender.is_clearway() {
        let veth = veth.filter(|_| plan.wire.is_veth());
        if contender == Contender::ClearwayTcpInPlace {
            let plan = Plan { exchange: Exchange::TcpInPlace, ..plan.clone() };
            return clearway::run_once(&plan, pins, veth, interrupt);
        }
        return clearway::run_once(plan, pins, veth, interrupt);
    }
    kernel::run_once(contender, plan.load, pins, veth, interrupt)
}

/// The veth pair, where this process may make one.
fn kernel_wire(
    plan: &Plan,
    interrupt: &Interrupt,
    notes: &mut Vec<String>,
) -> Result<Option<VethPair>, Error> {
    if !plan.contenders.iter().any(|contender| contender.crosses_wire()) {
        return Ok(None);
    }
    if !rustix::process::geteuid().is_root() {
        notes.push(
            "TCP and UDP go over loopback; run as root for a veth pair between two network \
             namespaces"
                .into(),
        );
        return Ok(None);
    }
    let veth = VethPair::create(veth_mtu(plan), interrupt)?;
    if plan.kernel_plain {
        veth.switch_offloads_off()?;
        notes.push("the veth pair's offloads are off".into());
    }
    Ok(Some(veth))
}

/// The kernel shares the pair, and its MTU, with Clearway when that runs over veth too.
fn veth_mtu(plan: &Plan) -> u16 {
    if plan.wire.is_veth() || plan.kernel_plain { plan.mtu } else { VETH_MTU }
}
