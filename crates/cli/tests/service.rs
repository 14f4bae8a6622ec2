//! What a service manager does with a daemon: it is told when the daemon is ready, has it reload
//! and end, and starts it with few privileges. Parts need root; they say so and pass otherwise.

mod support;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::traffic::Traffic;
use support::veth::{INTERFACE, Veth};
use support::{NOBODY, Network, PATIENCE, as_nobody, clearway, eventually};

const UNIT: &str = include_str!("../../../packaging/clearway.service");

/// What `clearway reload` says, and its exit code.
fn reload(network: &Network) -> (Option<i32>, String) {
    let output = clearway(&["reload"], &network.server);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// Another policy and level of the log, without cutting a connection.
#[test]
fn daemon_that_is_told_to_reloads_and_goes_on() {
    let network = Network::start();
    let traffic = Traffic::start(&network, 4000);
    traffic.goes_on();
    assert_eq!(reload(&network), (Some(0), "nothing has changed\n".to_owned()));
    let policy = format!("[policy]\nusers = [{NOBODY}]\n[policy.limits]\nvifs_total = 1\n");
    network.server.rewrite_config(|text| {
        text.replace("log.level = \"warn\"", "log.level = \"debug\"") + "engines = 1\n" + &policy
    });
    network.server.signal("HUP");
    eventually("it says what it has taken over", || {
        network.server.log().contains("taken=\"[policy], [log] level\"")
    });
    if rustix::process::geteuid().is_root() {
        let output = as_nobody(&network.server, &["status"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // And who was let in may be shut out again.
        network.server.rewrite_config(|text| text.replace(&format!("users = [{NOBODY}]"), ""));
        assert_eq!(reload(&network).0, Some(0));
        let output = as_nobody(&network.server, &["status"]);
        assert!(String::from_utf8_lossy(&output.stderr).contains("may not connect"));
        let output = as_nobody(&network.server, &["reload"]);
        assert_eq!(output.status.code(), Some(1));
    }
    let opened: Vec<bool> = [5353, 5354]
        .iter()
        .map(|port| {
            let mut app = network.server.attach("vif");
            let filter = format!("dst host own and udp dst port {port}");
            let vif = app.open_vif(&clearway_client::VifOptions::receiving(&filter));
            std::mem::forget(app);
            vif.is_ok()
        })
        .collect();
    assert_eq!(opened, [true, false], "the new limit holds");
    traffic.goes_on();
}

/// What cannot be taken over is said, again and again, and so is what is wrong; nothing else
/// happens.
#[test]
fn reload_says_what_needs_a_restart_and_what_is_wrong() {
    let network = Network::start();
    let traffic = Traffic::start(&network, 4000);
    network
        .server
        .rewrite_config(|text| "udp_port = 7\n".to_owned() + &text + "mtu_bytes = 1400\n");
    let (code, text) = reload(&network);
    assert_eq!(code, Some(0));
    let taken = "taken over: [[nic]] memif0\n";
    assert_eq!(text, format!("{taken}needs a restart of the daemon: udp_port\n"));
    assert_eq!(network.server.status()["needs_restart"][0], "udp_port");
    network.server.rewrite_config(|text| text + "nonsense = 1\n");
    let (code, text) = reload(&network);
    assert_eq!(code, Some(1));
    assert!(text.contains("unknown key `nonsense`"), "{text}");
    fs::remove_file(network.server.socket.with_extension("toml")).expect("removed");
    let (code, text) = reload(&network);
    assert_eq!(code, Some(1));
    assert!(text.contains("cannot read it"), "{text}");
    traffic.goes_on();
}

#[test]
fn no_signal_that_is_none_of_its_business_kills_a_daemon() {
    let network = Network::start();
    for name in ["USR1", "USR2", "HUP", "USR1"] {
        network.server.signal(name);
    }
    let traffic = Traffic::start(&network, 4000);
    traffic.goes_on();
    let broker = network.server.children()[0];
    for signal in [nix::sys::signal::SIGHUP, nix::sys::signal::SIGTERM] {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(broker as i32), signal).expect("sent");
    }
    assert_eq!(reload(&network).0, Some(0), "nor its broker");
}

/// The text that came on the service manager's socket.
fn told(manager: &UnixDatagram) -> String {
    let mut bytes = [0; 100];
    let length = manager.recv(&mut bytes).expect("the manager is told");
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

#[test]
fn service_manager_is_told_when_the_daemon_is_ready_alive_and_stopping() {
    let directory = std::env::temp_dir().join(format!("clearway-service-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let at = |name: &str| directory.join(name);
    let manager = UnixDatagram::bind(at("notify")).expect("bound");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let config = format!(
        "control.socket = {:?}\n[[nic]]\ndriver = \"memif\"\nsocket = {:?}\nrole = \"server\"\n\
         addresses = [\"10.8.0.1/24\"]\n",
        at("control"),
        at("memif")
    );
    fs::write(at("config"), config).expect("the configuration");
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_clearwayd"))
        .arg("--config")
        .arg(at("config"))
        .env("NOTIFY_SOCKET", at("notify"))
        .env("WATCHDOG_USEC", "100000")
        .stderr(Stdio::null())
        .spawn()
        .expect("the daemon starts");
    assert_eq!(told(&manager).lines().next(), Some("READY=1"));
    assert!(at("control").exists(), "apps may come");
    for _ in 0..3 {
        assert_eq!(told(&manager), "WATCHDOG=1");
    }
    // One that stands still is not alive.
    support::signal(&daemon, "STOP");
    manager.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    while manager.recv(&mut [0; 100]).is_ok() {}
    support::signal(&daemon, "CONT");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert_eq!(told(&manager), "WATCHDOG=1");
    support::signal(&daemon, "TERM");
    let last = std::iter::repeat_with(|| told(&manager)).find(|text| text != "WATCHDOG=1");
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
    assert!(daemon.wait().expect("gone").success());
    fs::remove_dir_all(&directory).expect("removed");
}

/// The value of a key of the unit.
fn of_unit(key: &str) -> &'static str {
    let value = |line: &'static str| line.strip_prefix(key)?.strip_prefix('=');
    UNIT.lines().find_map(value).unwrap_or_else(|| panic!("the unit has no {key}"))
}

/// A daemon on a kernel interface that a service manager starts with the privileges of the unit,
/// and as another user, opens its NIC and works.
#[test]
fn privileges_of_the_unit_are_enough() {
    let Some(veth) = Veth::new() else { return };
    let words: Vec<String> = of_unit("AmbientCapabilities")
        .split_whitespace()
        .map(|name| format!("+{}", name.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    assert_eq!(of_unit("AmbientCapabilities"), of_unit("CapabilityBoundingSet"));
    let directory = std::env::temp_dir().join(format!("clearway-unit-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    std::os::unix::fs::chown(&directory, Some(NOBODY), Some(NOBODY)).expect("handed over");
    let (socket, config) = (directory.join("control"), directory.join("config"));
    let text = format!(
        "control.socket = {socket:?}\n[[nic]]\ninterface = \"{INTERFACE}\"\n\
                        driver = \"af_xdp\"\n"
    );
    fs::write(&config, text).expect("the configuration");
    let program = fs::File::open(env!("CARGO_BIN_EXE_clearwayd")).expect("the program");
    let started = veth.spaces[0].within(|| {
        Command::new("setpriv")
            .args(["--reuid", &NOBODY.to_string(), "--regid", &NOBODY.to_string()])
            .args(["--clear-groups", "--no-new-privs", "--bounding-set"])
            .arg(format!("-all,{}", words.join(",")))
            .args(["--inh-caps", &words.join(","), "--ambient-caps", &words.join(",")])
            .args(["/proc/self/fd/0", "--config"])
            .arg(&config)
            .stdin(program)
            .spawn()
    });
    let mut daemon = started.expect("entered").expect("setpriv starts it");
    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
        command.args(arguments).arg("--socket").arg(&socket);
        command
    };
    let ask = |arguments: &[&str]| command(arguments).output().expect("it starts");
    eventually("the daemon answers", || ask(&["status"]).status.success());
    let status: Value = serde_json::from_slice(&ask(&["status", "--json"]).stdout).expect("JSON");
    assert_eq!(status["confinement"]["user"], format!("on, user {NOBODY}"));
    let queue = &status["engines"][0]["queues"][0];
    assert_eq!(queue["driver"], "af_xdp", "{queue:#}");
    let mode = queue["mode"].as_str().expect("text");
    assert!(mode.contains("with it a packet socket"), "{mode}");
    let filter = ["vif", "open", "dst host own and udp dst port 53"];
    let vif = support::until_it_has_begun(&mut command(&filter));
    assert!(vif.status.success(), "{}", String::from_utf8_lossy(&vif.stderr));
    support::signal(&daemon, "TERM");
    assert!(daemon.wait().expect("gone").success());
    assert!(!socket.exists(), "it removes its socket");
    fs::remove_dir_all(&directory).expect("removed");
}

/// As systemd counts it; 9.6 was what it said before.
#[test]
fn unit_is_not_exposed() {
    let directory = std::env::temp_dir().join(format!("clearway-exposed-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let unit = directory.join("clearway.service");
    fs::write(&unit, UNIT.replace("@prefix@", "/usr")).expect("the unit");
    let analyzed = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", "--threshold=24"])
        .arg(&unit)
        .output();
    fs::remove_dir_all(&directory).expect("removed");
    match analyzed {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let last = text.lines().last().unwrap_or_default();
            assert!(output.status.success(), "{last}");
        }
        Err(error) => println!("skipped: there is no systemd-analyze ({error})"),
    }
}
