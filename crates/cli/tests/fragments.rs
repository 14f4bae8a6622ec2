//! What the Linux kernel sends in fragments to a daemon that has addresses of its own on a kernel
//! interface: answered in full. And what is for the kernel's own addresses there stays the
//! kernel's. Needs root; says so and passes otherwise.

mod support;

use std::net::IpAddr;
use std::process::Command;

use support::Daemon;
use support::veth::{IPV4, IPV6, Veth};

/// The daemons' own addresses, which no kernel has.
const OWN: [[&str; 2]; 2] = [["10.78.0.101", "fd78::101"], ["10.78.0.102", "fd78::102"]];
/// More than two packets of the link, and less than ten.
const SIZES: [&str; 3] = ["1473", "4000", "12000"];

/// Echo requests of so many bytes, from the first namespace. `ping` says "truncated" or "wrong
/// data" of answers that are not what was sent.
fn ping(veth: &Veth, to: &str, bytes: &str) {
    let words = ["-c", "3", "-i", "0.2", "-W", "5", "-p", "a5", "-s", bytes, to];
    let output = veth.spaces[0].within(|| Command::new("ping").args(words).output());
    let output = output.expect("the namespace can be entered").expect("ping is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains(" 0% packet loss"), "{text}");
    assert!(!text.contains("truncated") && !text.contains("wrong data"), "{text}");
}

fn assembled(daemon: &Daemon) -> u64 {
    let status = daemon.status();
    status["engines"][0]["counters"]["packets_assembled"].as_u64().expect("it is counted")
}

fn kernels_ping_in_fragments(driver: &str) {
    let Some(veth) = Veth::new() else { return };
    let nic = |index: usize| {
        let [v4, v6] = OWN[index];
        format!("{driver}\naddresses = [\"{v4}/24\", \"{v6}/64\"]")
    };
    let at = OWN.map(|[v4, _]| v4.parse::<IpAddr>().expect("an address"));
    let network = veth.hosts([&nic(0), &nic(1)], at);
    for to in OWN[1] {
        for (bytes, before) in SIZES.iter().zip((0..).step_by(3)) {
            let before = before + if to == OWN[1][1] { 3 * SIZES.len() as u64 } else { 0 };
            assert_eq!(assembled(&network.server), before);
            ping(&veth, to, bytes);
            assert_eq!(assembled(&network.server), before + 3);
        }
    }
    // Beside it, the kernel puts together what is its own.
    for to in [IpAddr::from(IPV4[1]), IPV6[1].into()] {
        ping(&veth, &to.to_string(), SIZES[1]);
    }
    assert_eq!(assembled(&network.server), 6 * SIZES.len() as u64);
}

#[test]
fn kernels_ping_in_fragments_on_af_xdp() {
    kernels_ping_in_fragments("driver = \"af_xdp\"");
}

#[test]
fn kernels_ping_in_fragments_on_af_packet() {
    kernels_ping_in_fragments("driver = \"af_packet\"");
}

#[test]
fn kernels_ping_in_fragments_on_what_auto_takes() {
    kernels_ping_in_fragments("driver = \"auto\"");
}
