//! What is measured between two hosts, over their daemons as they are: `clearway bench --to` and
//! `--serve`. The figures say nothing here, and are only checked for being there.

mod support;

use std::net::IpAddr;

use serde_json::Value;
use support::server::Server;
use support::veth::{IPV4, Veth};
use support::{Daemon, Network, as_nobody, clearway};

fn bench(from: &Daemon, words: &str) -> Value {
    let words = format!("bench {words} --runs 1 --seconds 0.1 --json");
    let output = clearway(&words.split_whitespace().collect::<Vec<_>>(), from);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {told}");
    serde_json::from_slice(&output.stdout).expect("a report in JSON")
}

/// The driver at both ends, and all figures.
fn check(report: &Value, driver: &str) {
    for end in ["here", "there"] {
        let [path] = &report[end].as_array().expect("paths")[..] else {
            panic!("{end} has changed: {report:#}");
        };
        assert_eq!((&path["path"], &path["driver"]), (&"wire".into(), &driver.into()), "{path:#}");
        assert!(path["mode"].as_str().is_some_and(|mode| !mode.is_empty()), "{path:#}");
        assert!(path["packet_bytes"].as_u64() > Some(500), "{path:#}");
    }
    for case in report["cases"].as_array().expect("cases") {
        for figure in ["p50_ns", "p99_ns", "p999_ns", "rate_per_s", "gbit_per_s"] {
            assert!(case[figure].as_f64() > Some(0.0), "{figure} is missing in {case:#}");
        }
        let [p50, p99] = ["p50_ns", "p99_ns"].map(|figure| case[figure].as_f64());
        assert!(p50 <= p99 && p99 <= case["p999_ns"].as_f64(), "{case:#}");
    }
}

#[test]
fn all_is_measured_to_another_host_and_the_path_is_named() {
    let network = Network::start();
    let server = Server::start(&network.server, &[]);
    let report = bench(&network.client, "--to 10.8.0.2");
    check(&report, "memif");
    let cases = report["cases"].as_array().expect("cases");
    let of = |key: &str, value: Value| cases.iter().filter(|case| case[key] == value).count();
    for workload in ["rtt", "rate", "stream"] {
        assert!(of("workload", workload.into()) >= 3, "{workload} is missing in {report:#}");
    }
    assert!(of("connections", 16.into()) >= 1 && of("size", (1 << 20).into()) >= 1, "{report:#}");
    // Nobody is left behind, and the server goes on.
    support::eventually("the clients have gone", || network.server.flows() == 0);
    let report = bench(&network.client, "rate --to 10.8.0.2:5001 --size 0,7 --connections 3");
    assert_eq!(report["cases"].as_array().expect("cases").len(), 2);
    check_sizes(&report, &[0, 7]);
    server.interrupt();
}

/// Without bytes there is no rate of bits.
fn check_sizes(report: &Value, sizes: &[u64]) {
    for (case, size) in report["cases"].as_array().expect("cases").iter().zip(sizes) {
        assert_eq!((&case["size"], &case["connections"]), (&(*size).into(), &3.into()));
        assert!(case["rate_per_s"].as_f64() > Some(0.0), "{case:#}");
    }
}

/// Whoever measures to the own host measures no network, and is told so.
#[test]
fn a_host_that_measures_to_itself_is_told_that_there_is_no_nic() {
    let network = Network::start();
    let _server = Server::start(&network.server, &["10.8.0.2:77"]);
    let report = bench(&network.server, "rtt --to 10.8.0.2:77 --size 64");
    for end in ["here", "there"] {
        assert_eq!(report[end][0]["path"], "local", "{report:#}");
        assert_eq!(report[end][0]["driver"], Value::Null, "{report:#}");
    }
    let words = ["bench", "rtt", "--to", "10.8.0.2:77", "--seconds", "0.1", "--runs", "1"];
    let output = clearway(&words, &network.server);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("no NIC") && text.contains("p99.9 µs"), "{text}");
}

/// An ordinary user, on kernel interfaces of two namespaces: each driver is named as what it is.
#[test]
fn each_driver_is_named_as_what_it_is() {
    let Some(veth) = Veth::new() else { return };
    let allow = "[policy]\nusers = [\"*\"]\n";
    for drivers in [["af_xdp", "af_packet"], ["udp", "udp"]] {
        let nics = drivers.map(|driver| {
            let interface = if driver == "udp" { "" } else { "interface = \"cw0\"\n" };
            format!("{allow}[[nic]]\n{interface}driver = \"{driver}\"\n")
        });
        let [first, second] = &veth.spaces;
        let network =
            Network::in_namespaces([first, second], [&nics[0], &nics[1]], IPV4.map(IpAddr::V4));
        let _server = Server::start(&network.server, &[]);
        let words = "bench rate --to 10.78.0.2 --size 100 --runs 1 --seconds 0.1 --json";
        let output = as_nobody(&network.client, &words.split_whitespace().collect::<Vec<_>>());
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report in JSON");
        for (end, driver) in ["here", "there"].iter().zip(drivers) {
            assert_eq!(report[end][0]["driver"], driver, "{report:#}");
        }
    }
}
