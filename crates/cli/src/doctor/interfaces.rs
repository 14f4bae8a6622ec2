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
    let state = match (device.is_up().unwrap_or(false), device.running().unwrap_or(false)) {
        (_, true) => "up",
        (true, false) => "up without a carrier",
        (false, false) => "down",
    };
    let driver = device.driver().unwrap_or_else(|| "unknown".to_owned());
    let text = format!(
        "driver {driver}, queues {queues}, MTU {}, {state}",
        device.mtu().map_or_else(|_| "unknown".to_owned(), |mtu| mtu.to_string()),
    );
    if state == "up" {
        return Finding::good(subject, text);
    }
    Finding::limited(subject, text, how_to_start(name, &driver, state == "down"))
}

/// How an interface that does not run comes to carry frames.
fn how_to_start(name: &str, driver: &str, is_down: bool) -> String {
    let up = is_down.then(|| format!("ip link set {name} up"));
    let steps: Vec<String> = up.into_iter().chain(carrier(name, driver)).collect();
    steps.join(", and ")
}

/// What gives an interface of this kernel driver a carrier; `None` if it needs none.
fn carrier(name: &str, driver: &str) -> Option<String> {
    Some(match driver {
        "veth" => {
            format!("set its other end up, too: `ip link show {name}` names it (NAME@OTHER)")
        }
        "tun" => "start the program that holds its other end".to_owned(),
        "bridge" | "bonding" | "team" => format!(
            "have an interface in it that is up: `ip link show master {name}` lists them, `ip link \
             set OTHER master {name}` adds one"
        ),
        "802.1Q VLAN Support" | "macvlan" | "ipvlan" => format!(
            "set the interface up on which it is: `ip link show {name}` tells which (NAME@OTHER)"
        ),
        "dummy" | "ifb" | "vxlan" => return None,
        "virtio_net" | "vmxnet3" | "hv_netvsc" => {
            "have the hypervisor connect it: it is a virtual machine's".to_owned()
        }
        _ => "check the cable".to_owned(),
    })
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

#[cfg(test)]
mod tests {
    use super::how_to_start;

    /// Only what has a cable is said to have one.
    #[test]
    fn what_is_wanting_depends_on_the_kind_of_interface() {
        for (driver, wanting) in [
            ("e1000e", "check the cable"),
            ("unknown", "check the cable"),
            ("veth", "its other end"),
            ("tun", "the program"),
            ("bridge", "master i0"),
            ("bonding", "master i0"),
            ("802.1Q VLAN Support", "NAME@OTHER"),
            ("virtio_net", "hypervisor"),
        ] {
            let advice = how_to_start("i0", driver, false);
            assert!(advice.contains(wanting) && !advice.contains("up, and"), "{advice}");
            let has_cable = ["e1000e", "unknown"].contains(&driver);
            assert_eq!(advice.contains("cable"), has_cable, "{advice}");
            let advice = how_to_start("i0", driver, true);
            assert!(advice.starts_with("ip link set i0 up, and "), "{advice}");
            assert!(advice.contains(wanting), "{advice}");
        }
        assert_eq!(how_to_start("i0", "dummy", true), "ip link set i0 up");
    }
}
