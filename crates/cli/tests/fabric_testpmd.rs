//! `clearway fabric` with another implementation at its ports: DPDK's `dpdk-testpmd` sends many
//! flows through it over two queues. Where the program is not installed (Debian package
//! `dpdk-dev`), the test says so and passes.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use support::eventually;
use support::fabric::Fabric;

#[test]
fn testpmd_gets_its_flows_spread_over_its_queues() {
    let Some(program) = find_program() else {
        return println!("skipped: dpdk-testpmd is not installed (Debian package dpdk-dev)");
    };
    let directory = std::env::temp_dir().join(format!("clearway-fabric-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let sockets = ["a", "b"].map(|name| directory.join(name));
    let ports = [("a", &sockets[0]), ("b", &sockets[1])];
    let mut fabric =
        Fabric::start(&ports.map(|(name, socket)| format!("{name}={},queues=2", socket.display())));
    eventually("the fabric listens", || sockets.iter().all(|socket| socket.exists()));
    let mut testpmd = start(&program, &sockets);
    eventually("frames arrive at all queues of both ports", || {
        let ports = fabric.counters();
        (0..2).all(|port| {
            let queues = ports[port]["queues"].as_array().expect("queues");
            queues.iter().all(|queue| queue["sent_frames"].as_u64() > Some(1000))
        })
    });
    testpmd.kill().expect("killed");
    testpmd.wait().expect("gone");
    eventually("the fabric notices that it has gone", || {
        let ports = fabric.counters();
        ports[0]["queues_up"] == 0 && ports[1]["queues_up"] == 0
    });
    fabric.finish();
    let _ = std::fs::remove_dir_all(&directory);
}

/// Each of its ports sends frames of many source addresses, and takes what comes.
fn start(program: &Path, sockets: &[PathBuf; 2]) -> Child {
    let devices = sockets.iter().zip(0..).flat_map(|(socket, number)| {
        let socket = socket.display();
        let device =
            format!("net_memif{number},role=client,id=0,socket={socket},socket-abstract=no");
        ["--vdev".to_owned(), device]
    });
    Command::new(program)
        .args(["--lcores", "0@0,1@0", "--no-huge", "-m", "128", "--no-pci", "--no-shconf"])
        .args(["--no-telemetry", "--log-level=error"])
        .args(devices)
        .args(["--", "-i", "--auto-start", "--forward-mode=flowgen", "--rxq=2", "--txq=2"])
        .args(["--burst=32", "--total-num-mbufs=8192", "--no-mlockall"])
        // Its command line waits for words that never come.
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("testpmd starts")
}

fn find_program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|directory| directory.join("dpdk-testpmd"));
    places.find(|place| place.exists())
}
