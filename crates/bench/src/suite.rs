//! The order of events: a wire for the kernel's contenders, then rounds in which each contender
//! runs once, so that whatever else the machine does hits all of them alike.

use crate::arguments::Plan;
use crate::contender::Contender;
use crate::cpu::Cores;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::kernel::{self, Outcome};
use crate::report::Report;
use crate::veth::VethPair;

/// MTU of the kernel's veth pair when Clearway does not share it: Ethernet's own. TCP hands over
/// segments of up to 64 KB on it whatever the MTU is.
const VETH_MTU: u16 = 1500;
/// MTU of the loopback interface.
const LOOPBACK_MTU: u16 = u16::MAX;

/// Measures all contenders of `plan`. `progress` is told what runs next, and how many runs of how
/// many are done.
pub fn run(
    plan: &Plan,
    interrupt: &Interrupt,
    mut progress: impl FnMut(&str, usize, usize),
) -> Result<Report, Error> {
    let cores = Cores::choose();
    let mut notes = plan.notes.clone();
    if cores.shared() {
        notes.push("only one core may be used: all processes share it".into());
    }
    let veth = kernel_wire(plan, interrupt, &mut notes)?;
    let mut outcomes: Vec<(Contender, Vec<Outcome>)> =
        plan.contenders.iter().map(|&contender| (contender, Vec::new())).collect();
    let total = plan.runs * plan.contenders.len();
    let mut done = 0;
    for _ in 0..plan.runs {
        for (contender, runs) in &mut outcomes {
            progress(contender.name(), done, total);
            runs.push(kernel::run_once(*contender, plan.load, cores, veth.as_ref(), interrupt)?);
            done += 1;
        }
    }
    let (tcp_wire, tcp_mtu) =
        if veth.is_some() { ("veth", VETH_MTU) } else { ("loopback", LOOPBACK_MTU) };
    Ok(Report::new(plan, &outcomes, tcp_wire, tcp_mtu, notes))
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
        notes.push("TCP and UDP go over loopback; run as root for a veth pair between two network namespaces".into());
        return Ok(None);
    }
    VethPair::create(VETH_MTU, interrupt).map(Some)
}
