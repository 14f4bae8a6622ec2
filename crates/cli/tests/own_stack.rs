//! The example `own-stack` as its user sees it: smoltcp on a virtual interface of a real daemon,
//! with an Ethernet and an IP address of its own, and the Linux kernel of another namespace, or of
//! the daemon's own, as its peer. Needs root for the namespaces; says so and passes otherwise. That
//! it needs no privilege of its own is `users.rs`' to show.

mod support;

#[path = "../../client/examples/own-stack.rs"]
#[allow(dead_code, reason = "the example's `main` is not called")]
mod own_stack;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};

use clearway_client::Options;
use clearway_nic::interface::Namespace;
use support::{Network, PATIENCE, eventually};

const INTERFACE: &str = "cw0";
const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
const MACHINE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 50);

fn connect(space: &Namespace, port: u16) -> std::io::Result<TcpStream> {
    let connected = space.within(|| TcpStream::connect_timeout(&(MACHINE, port).into(), PATIENCE));
    let stream = connected.expect("the namespace can be entered")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// What a kernel sends over a veth has no checksums yet, and comes in segments of up to 64 KB.
#[test]
fn the_kernel_talks_to_a_stack_in_a_program() {
    talk("driver = \"auto\"", 0);
}

#[test]
fn the_kernel_talks_to_a_stack_in_a_program_on_af_xdp() {
    talk("driver = \"af_xdp\"", 0);
}

#[test]
fn the_kernel_of_its_own_host_talks_to_a_stack_in_a_program() {
    talk("driver = \"auto\"", 1);
}

#[test]
fn the_kernel_of_its_own_host_talks_to_a_stack_in_a_program_on_af_xdp() {
    talk("driver = \"af_xdp\"", 1);
}

#[test]
fn the_kernel_of_its_own_host_talks_to_a_stack_in_a_program_on_af_xdp_in_the_driver() {
    talk("driver = \"af_xdp\"\nmode = \"copy\"", 1);
}

/// The kernel of the other host or, as `kernel` says, of the daemon's own.
fn talk(driver: &str, kernel: usize) {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root to make network namespaces");
        return;
    }
    let spaces = [(); 2].map(|()| Namespace::create().expect("root may make namespaces"));
    let ip = |index: usize, words: &str| spaces[index].ip(words).expect("iproute2 is installed");
    let there = spaces[1].path();
    ip(
        0,
        &format!("link add {INTERFACE} type veth peer name {INTERFACE} netns {}", there.display()),
    );
    for index in [0, 1] {
        ip(index, "link set lo up");
        ip(index, &format!("addr add {}/24 dev {INTERFACE}", HOSTS[index]));
        ip(index, &format!("link set {INTERFACE} up"));
    }
    let nic = format!("[[nic]]\ninterface = \"{INTERFACE}\"\n{driver}\n");
    let [first, second] = &spaces;
    let network = Network::in_namespaces([first, second], [&nic, &nic], HOSTS.map(IpAddr::V4));
    talk_over(network, &spaces[kernel]);
}

/// The kernel of the daemon's own host, at the other end of a tap device.
#[test]
fn the_own_kernel_talks_to_a_stack_in_a_program() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root to make network namespaces");
        return;
    }
    let spaces = [(); 2].map(|()| Namespace::create().expect("root may make namespaces"));
    let ip = |index: usize, words: &str| spaces[index].ip(words).expect("iproute2 is installed");
    let nic = format!(
        "[[nic]]\ndriver = \"tap\"\ninterface = \"{INTERFACE}\"\naddresses = [\"{}/24\"]\n",
        HOSTS[1]
    );
    let [first, second] = &spaces;
    let network = Network::in_namespaces([first, second], [&nic, &nic], [IpAddr::V4(HOSTS[1]); 2]);
    ip(1, &format!("addr add {}/24 dev {INTERFACE}", HOSTS[0]));
    talk_over(network, second);
}

/// A stack at the server's daemon, and a kernel.
fn talk_over(network: Network, kernel: &Namespace) {
    let words = ["own".to_owned(), format!("{MACHINE}/24")];
    let options = Options { socket: network.server.socket.clone(), ..Options::new("own-stack") };
    let stack = std::thread::spawn(move || {
        let arguments = own_stack::Arguments::parse(&words).expect("arguments");
        own_stack::run(&options, &arguments).expect_err("the daemon ends first").to_string()
    });
    eventually("the stack is there", || {
        network.server.status()["engines"][0]["vifs"].as_array().is_some_and(|vifs| vifs.len() == 1)
    });

    let mut echo = connect(kernel, 7).expect("the echo service answers");
    let text: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
    let mut writer = echo.try_clone().expect("a second handle");
    let sent = text.clone();
    let sending = std::thread::spawn(move || writer.write_all(&sent));
    let mut answer = vec![0; text.len()];
    echo.read_exact(&mut answer).expect("all of it comes back");
    sending.join().expect("no panic").expect("all of it was sent");
    assert!(answer == text, "the echo differs");

    let mut page = connect(kernel, 80).expect("the page is served");
    page.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("sent");
    let mut answer = String::new();
    page.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.") && answer.contains("200"), "{answer}");

    // Who ends the daemon ends the interface.
    drop(network);
    let end = stack.join().expect("no panic");
    assert!(!end.is_empty());
}
