//! What each driver can do here, and on which interface.

use clearway_daemon::config::{Machine, ThisMachine};
use clearway_nic::interface::Device;

use super::{Finding, Verdict};

pub(super) fn findings(probed: Option<&str>) -> Vec<Finding> {
    let mut findings = vec![
        Finding::good(
            "udp",
            "works everywhere, needs no privilege: messages by the kernel's UDP sockets, to hosts \
             on any driver",
        ),
        Finding::good(
            "memif",
            "works everywhere, needs no privilege: shared memory to another daemon, DPDK or VPP",
        ),
        tap(),
    ];
    let mut names = ThisMachine.interfaces();
    if let Some(name) = probed.filter(|name| !names.iter().any(|other| other == name)) {
        names.push(name.to_owned());
    }
    for name in names {
        let probe = probed == Some(name.as_str());
        if name == "lo" && !probe {
            continue;
        }
        let found = interface(&name);
        let is_there = found.verdict != Verdict::Missing;
        findings.push(found);
        if probe && is_there {
            findings.push(choice(&name));
        }
    }
    findings
}

fn tap() -> Finding {
    if let Err(error) = clearway_nic::tap::is_possible() {
        let without =
            "nothing needs it but a NIC with `driver = \"tap\"`; the cause says the remedy";
        return Finding::limited("tap", error.to_string(), without);
    }
    Finding::good(
        "tap",
        "an interface of this host's own kernel whose other end is the daemon's; takes \
         CAP_NET_ADMIN, or a device that was made for the daemon's user (ip tuntap add)",
    )
}

/// What is found out about the interface of this name itself.
pub(super) fn subject(name: &str) -> String {
    format!("interface {name}")
}

fn interface(name: &str) -> Finding {
    let subject = subject(name);
    let device = match Device::open(name) {
        Ok(device) => device,
        Err(error) => {
            let advice = "name one that there is; `ip link` shows them";
            return Finding::missing(subject, error.to_string(), advice);
        }
    };
    let channels = device.channels();
    let queues = format!("{} of at most {}", channels.pairs(), channels.pairs_max());
    let running = device.running().unwrap_or(false);
    let text = format!(
        "driver {}, queues {queues}, MTU {}, {}",
        device.driver().unwrap_or_else(|| "unknown".to_owned()),
        device.mtu().map_or_else(|_| "unknown".to_owned(), |mtu| mtu.to_string()),
        if running { "up" } else { "down" },
    );
    if running {
        return Finding::good(subject, text);
    }
    Finding::limited(subject, text, format!("ip link set {name} up, and check the cable"))
}

/// Which driver `auto` chooses, and why: only trying tells.
fn choice(name: &str) -> Finding {
    let subject = format!("driver on {name}");
    match clearway_nic::probe(name) {
        Ok(sentence) => Finding::good(subject, sentence),
        Err(error) => Finding::missing(
            subject,
            error.to_string(),
            "see its line above; or use the driver \"udp\", which works on any interface",
        ),
    }
}
