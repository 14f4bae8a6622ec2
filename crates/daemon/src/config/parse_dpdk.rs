//! What a `[[nic]]` with `driver = "dpdk"` says besides.

use super::parse_nic::report_queues;
use super::reader::Section;
use super::{Dpdk, Driver, Nic};

/// What `net_memif` has, and more than any NIC is given cores.
const QUEUES_MAX: u64 = 256;

/// One queue for each engine if not given.
pub(super) fn dpdk(section: &mut Section<'_>, engines: usize) -> Option<Dpdk> {
    let eal = section.strings("eal", false);
    let queues = section.integer("queues", 1..=QUEUES_MAX);
    if let Some(queues) = queues.as_ref().filter(|queues| (queues.value as usize) < engines) {
        report_queues(section, &queues.span.clone(), engines, "queues");
    }
    let Some(device) = section.string("device") else {
        section.report(
            section.span(),
            "this dpdk NIC names no `device`",
            "add `device = \"...\"`: a PCI address (`dpdk-devbind.py --status`), or a virtual \
             device with its arguments",
        );
        return None;
    };
    if device.value.is_empty() {
        section.report(&device.span, "an empty `device` is none", "name one");
    }
    Some(Dpdk {
        eal: eal.into_iter().map(|argument| argument.value).collect(),
        device: device.value,
        queues: queues.map_or(engines as u16, |queues| queues.value as u16),
        offloads: section.boolean("offloads").unwrap_or(true),
    })
}

/// DPDK starts once per process, and a device has one user.
pub(super) fn refuse_duplicates(before: &[Nic], nic: &Nic, section: &Section<'_>) {
    let Driver::Dpdk(dpdk) = &nic.driver else { return };
    let others = before.iter().filter_map(|nic| match &nic.driver {
        Driver::Dpdk(other) => Some(other),
        _ => None,
    });
    for other in others {
        if other.eal != dpdk.eal {
            section.report(
                section.span(),
                "DPDK starts once, and two NICs want it with different arguments",
                "give all NICs with `driver = \"dpdk\"` the same `eal`",
            );
        }
        if other.name() == dpdk.name() {
            section.report(
                section.span(),
                format!("there are two NICs on the device {}", dpdk.name()),
                "describe each device once; one [[nic]] uses all its queues",
            );
        }
    }
}
