//! Daemons at the other end of a tap device: the kernel of their own host is their peer. It pings
//! them, has TCP connections with their apps, and comes and goes. Needs root to make namespaces;
//! says so and passes otherwise.

mod support;

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use clearway_client::{Options, Tcp};
use clearway_nic::interface::Namespace;
use serde_json::Value;
use support::kernel_peer::{SIZES, exchange};
use support::veth::{INTERFACE, IPV4, IPV6};
use support::{Daemon, NOBODY, Network, PATIENCE, Starter, clearway, eventually};

/// A user that every Debian has.
const AS_USER: &str = "user = \"daemon\"\n";
const PORT: u16 = 8080;
const BULK_BYTES: usize = 20 << 20;
/// CAP_NET_ADMIN (linux/capability.h).
const NET_ADMIN: u64 = 1 << 12;

/// Two hosts, each of which has the kernel of its own namespace for a peer and knows nothing of the
/// other. The first is the one of most tests.
struct World {
    network: Network,
    spaces: [Namespace; 2],
}

impl World {
    /// With these keys at the top, and in the `[[nic]]` section. `None` if this is not root.
    fn start(top: &str, keys: &str) -> Option<World> {
        Self::start_by(Starter::Root, "", top, keys)
    }

    /// The same, of this user, after `ip` has done something.
    fn start_by(starter: Starter, before: &str, top: &str, keys: &str) -> Option<World> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root to make network namespaces");
            return None;
        }
        let spaces = [(); 2].map(|()| Namespace::create().expect("root may make namespaces"));
        for space in &spaces {
            ip(space, "link set lo up");
            if !before.is_empty() {
                ip(space, before);
            }
        }
        let nics = format!("{top}{}", nic(keys));
        let [first, second] = &spaces;
        let at = [IpAddr::V4(IPV4[1]); 2];
        let network = Network::in_namespaces_by([starter; 2], [first, second], [&nics; 2], at);
        network.wait_until_ready();
        spaces.iter().for_each(give_addresses);
        Some(World { network, spaces })
    }

    fn daemon(&self) -> &Daemon {
        &self.network.client
    }

    fn kernel(&self) -> &Namespace {
        &self.spaces[0]
    }

    fn tcp(&self) -> Tcp {
        let socket = self.daemon().socket.clone();
        Tcp::attach(&Options { socket, sizes: SIZES, ..Options::new("tcp") }).expect("attached")
    }

    fn ping(&self, to: IpAddr) -> bool {
        let ping = || Command::new("ping").args(["-c", "1", "-W", "5", &to.to_string()]).output();
        let output = self.kernel().within(ping).expect("entered").expect("ping is installed");
        output.status.success()
    }

    fn connect(&self, to: SocketAddr) -> TcpStream {
        let connected = self.kernel().within(|| TcpStream::connect_timeout(&to, PATIENCE));
        let stream = connected.expect("entered").unwrap_or_else(|error| panic!("{to}: {error}"));
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        stream.set_write_timeout(Some(PATIENCE)).expect("not zero");
        stream
    }
}

fn ip(space: &Namespace, words: &str) -> String {
    space.ip(words).expect("iproute2 is installed and the command is right")
}

fn nic(keys: &str) -> String {
    format!(
        "[[nic]]\ndriver = \"tap\"\ninterface = \"{INTERFACE}\"\n\
         addresses = [\"{}/24\", \"{}/64\"]\n{keys}\n",
        IPV4[1], IPV6[1]
    )
}

/// The kernel's own addresses, at its end.
fn give_addresses(space: &Namespace) {
    ip(space, &format!("addr add {}/24 dev {INTERFACE}", IPV4[0]));
    ip(space, &format!("addr add {}/64 dev {INTERFACE} nodad", IPV6[0]));
}

fn both() -> [IpAddr; 2] {
    [IPV4[1].into(), IPV6[1].into()]
}

fn queue(daemon: &Daemon) -> Value {
    daemon.status()["engines"][0]["queues"][0].clone()
}

fn count(queue: &Value, key: &str) -> u64 {
    queue[key].as_u64().unwrap_or_else(|| panic!("{key} of {queue:#}"))
}

/// A field of the status of a process.
fn of_process(process: u32, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).expect("its status");
    let prefix = format!("{field}:\t");
    text.lines().find_map(|line| line.strip_prefix(&prefix)).expect("the field").to_owned()
}

#[test]
fn the_kernel_pings_the_daemon() {
    let Some(world) = World::start("", "") else { return };
    for address in both() {
        assert!(world.ping(address), "{address}");
    }
    let queue = queue(world.daemon());
    assert_eq!((&queue["driver"], &queue["link_up"]), (&"tap".into(), &true.into()), "{queue:#}");
    let mode = queue["mode"].as_str().expect("a mode");
    assert!(mode.contains("the other end of cw0") && mode.contains("goes with this"), "{mode}");
}

/// Streams of 20 MB in both directions, over both versions of IP: nothing is missing, and they come
/// and go as super-frames.
fn kernel_and_app_talk(keys: &str) {
    let Some(mut world) = World::start(AS_USER, keys) else { return };
    let tcp = world.tcp();
    let mut listener = tcp.listen(PORT).expect("a listener");
    listener.set_timeout(Some(PATIENCE));
    for (round, address) in both().into_iter().enumerate() {
        let kernel = world.connect(SocketAddr::new(address, PORT));
        let (app, peer) = listener.accept().expect("accepted");
        assert_eq!(peer, kernel.local_addr().expect("an address"));
        exchange(&kernel, app, BULK_BYTES, round);
    }
    for (round, address) in [IpAddr::from(IPV4[0]), IPV6[0].into()].into_iter().enumerate() {
        let theirs = world.kernel().within(|| TcpListener::bind((address, 0))).expect("entered");
        let theirs = theirs.expect("a listener");
        let to = theirs.local_addr().expect("it is bound");
        let app = tcp.connect(to, Some(PATIENCE)).expect("connected");
        let (kernel, peer) = theirs.accept().expect("accepted");
        assert_eq!(peer, app.local_addr());
        kernel.set_read_timeout(Some(PATIENCE)).expect("not zero");
        exchange(&kernel, app, BULK_BYTES, round);
    }
    let status = world.daemon().status();
    let engines = status["engines"].as_array().expect("engines");
    let sum = |key| engines.iter().map(|engine| count(&engine["queues"][0], key)).sum::<u64>();
    // 80 MB each way in packets of 1448 bytes, of which up to 64 are one.
    for [all, together] in [["rx_frames", "rx_super_frames"], ["tx_frames", "tx_super_frames"]] {
        let [all, together] = [sum(all), sum(together)];
        assert!(all > 50_000 && together > 500, "{all} frames, {together} super-frames");
    }
    drop((listener, tcp));
    assert!(world.network.client.terminate(), "not in good order");
    let log = world.daemon().log();
    assert!(!log.contains("refused the system call"), "{log}");
}

#[test]
fn kernel_and_app_talk_in_super_frames() {
    kernel_and_app_talk("");
}

#[test]
fn kernel_and_app_talk_over_several_queues() {
    kernel_and_app_talk("engines = 2\n");
}

/// A device that was made for it takes no privilege, and is there after it.
#[test]
fn an_ordinary_user_has_the_device_that_was_made_for_it() {
    let made = format!("tuntap add dev {INTERFACE} mode tap multi_queue user {NOBODY}");
    let Some(mut world) = World::start_by(Starter::Nobody, &made, "", "engines = 2\n") else {
        return;
    };
    for space in &world.spaces {
        ip(space, &format!("link set {INTERFACE} up"));
    }
    eventually("the kernel reaches it", || both().into_iter().all(|address| world.ping(address)));
    let status = world.daemon().status();
    let queue = &status["engines"][1]["queues"][0];
    let mode = queue["mode"].as_str().expect("a mode");
    assert!(queue["driver"] == "tap" && mode.contains("stays without this daemon"), "{queue:#}");
    assert!(world.network.client.terminate(), "not in good order");
    assert!(ip(world.kernel(), &format!("link show {INTERFACE}")).contains("NO-CARRIER"));
}

/// Streams go on in smaller segments when the interface takes no larger ones.
#[test]
fn the_mtu_of_the_interface_is_followed() {
    let Some(world) = World::start(AS_USER, "") else { return };
    world.daemon().rewrite_config(|text| text.replace("\"warn\"", "\"info\""));
    assert!(clearway(&["reload"], world.daemon()).status.success());
    ip(world.kernel(), &format!("link set {INTERFACE} mtu 1300"));
    eventually("it is followed", || world.daemon().log().contains("mtu_bytes=1300"));
    let tcp = world.tcp();
    let mut listener = tcp.listen(PORT).expect("a listener");
    listener.set_timeout(Some(PATIENCE));
    let kernel = world.connect((IPV4[1], PORT).into());
    let (app, _) = listener.accept().expect("accepted");
    exchange(&kernel, app, 1 << 20, 1);
}

/// Of daemon, broker and opener.
#[test]
fn only_the_opener_keeps_what_a_tap_device_needs() {
    let Some(world) = World::start(AS_USER, "") else { return };
    assert!(world.ping(IPV4[1].into()));
    let [broker, opener] = world.daemon().children()[..] else { panic!("two beside it") };
    for process in [world.daemon().process_id(), broker] {
        assert_eq!(of_process(process, "CapEff"), "0000000000000000");
        assert_eq!(of_process(process, "CapBnd"), "0000000000000000");
    }
    for field in ["CapEff", "CapPrm", "CapBnd"] {
        assert_eq!(of_process(opener, field), format!("{NET_ADMIN:016x}"));
    }
    for process in [world.daemon().process_id(), broker, opener] {
        assert_eq!(of_process(process, "Seccomp"), "2");
        assert_eq!(of_process(process, "NoNewPrivs"), "1");
    }
}

/// A device that is removed is made again by the opener, and so is one that a reload names; what
/// was attached goes on.
#[test]
fn a_device_comes_again_and_another_by_reload() {
    let Some(world) = World::start(AS_USER, "") else { return };
    let tcp = world.tcp();
    let mut listener = tcp.listen(PORT).expect("a listener");
    listener.set_timeout(Some(PATIENCE));
    assert!(world.ping(IPV4[1].into()));
    ip(world.kernel(), &format!("link del {INTERFACE}"));
    eventually("it is made again", || {
        world.kernel().ip(&format!("addr add {}/24 dev {INTERFACE}", IPV4[0])).is_ok()
    });
    eventually("the kernel reaches it again", || world.ping(IPV4[1].into()));
    let kernel = world.connect((IPV4[1], PORT).into());
    let (app, _) = listener.accept().expect("accepted");
    exchange(&kernel, app, 1 << 20, 1);

    let second = "[[nic]]\ndriver = \"tap\"\ninterface = \"cw1\"\naddresses = [\"10.79.0.2/24\"]\n";
    world.daemon().rewrite_config(|text| text + second);
    let output = clearway(&["reload"], world.daemon());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "taken over: [[nic]] cw1\n");
    eventually("the other is there", || world.kernel().ip("addr add 10.79.0.1/24 dev cw1").is_ok());
    eventually("the kernel reaches it", || world.ping(IpAddr::from([10, 79, 0, 2])));
    world.daemon().rewrite_config(|text| text.replace(second, ""));
    let output = clearway(&["reload"], world.daemon());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "taken over: [[nic]] cw1, which is gone\n");
    eventually("it is gone", || world.kernel().ip("link show cw1").is_err());
    assert!(world.ping(IPV4[1].into()));
}

/// What `daemon --check` says in a mount namespace where `prepare` was done.
fn checked(space: &Namespace, prepare: &str) -> String {
    let directory = support::new_directory();
    let path = directory.join("clearway.toml");
    let socket = directory.join("clearway.sock");
    std::fs::write(&path, format!("control.socket = {socket:?}\n{}", nic("engines = 2")))
        .expect("written");
    let (daemon, path) = (env!("CARGO_BIN_EXE_clearwayd"), path.display());
    let script = format!("{prepare} exec {daemon} --config {path} --check");
    let run = || Command::new("unshare").args(["-m", "sh", "-c", &script]).output();
    let output = space.within(run).expect("entered").expect("util-linux is installed");
    let _ = std::fs::remove_dir_all(&directory);
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn check_says_what_is_in_the_way() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root to make network namespaces");
        return;
    }
    let space = Namespace::create().expect("root may make namespaces");
    let says = |prepare: &str, parts: &[&str]| {
        let text = checked(&space, prepare);
        assert!(parts.iter().all(|part| text.contains(part)), "{prepare}: {text}");
    };
    says("", &["there is no tap device cw0: the daemon makes it"]);
    says("mount -t tmpfs none /dev/net;", &["there is no /dev/net/tun", "modprobe tun"]);
    ip(&space, &format!("link add {INTERFACE} type bridge"));
    says("", &["of another kind (driver bridge)", "Choose another name"]);
    ip(&space, &format!("link del {INTERFACE}"));
    ip(&space, &format!("tuntap add dev {INTERFACE} mode tap multi_queue"));
    ip(&space, &format!("addr add {}/24 dev {INTERFACE}", IPV4[1]));
    says("", &["the kernel has the address 10.78.0.2 on cw0 itself", "Name another"]);
}
