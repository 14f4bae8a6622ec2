//! TCP of a host with two NICs, whose app is attached at an engine of one: it reaches the kernels
//! behind both, and is reached by both at each address, with real daemons over veth. Needs root for
//! the namespaces.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};

use clearway_client::{Code, Options, Tcp, TcpPortOptions};
use support::kernel_peer::{SIZES, bytes, exchange};
use support::veth::{INTERFACE, IPV4, Veth};
use support::{Network, PATIENCE, eventually};

/// The name of the second pair's interface, and the addresses there.
const SECOND: &str = "cw1";
const SECOND_IPV4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 79, 0, 1), Ipv4Addr::new(10, 79, 0, 2)];
const SECOND_IPV6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd79, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd79, 0, 0, 0, 0, 0, 0, 2)];
/// Smaller than that of the first: segments have to fit.
const SECOND_MTU: u32 = 1400;
const PORT: u16 = 8080;
const BULK_BYTES: usize = 10 << 20;

/// Two namespaces with two veth pairs, and a daemon in each; the first is the kernel peer's.
struct World {
    network: Network,
    veth: Veth,
}

impl World {
    fn start(driver: &str) -> Option<Self> {
        let veth = Veth::new()?;
        veth.connect(SECOND, 79);
        for (index, address) in SECOND_IPV6.iter().enumerate() {
            veth.ip(index, &format!("addr add {address}/64 dev {SECOND} nodad"));
            veth.ip(index, &format!("link set {SECOND} mtu {SECOND_MTU}"));
        }
        let nic = |interface| format!("[[nic]]\ninterface = \"{interface}\"\n{driver}\n");
        let nics = nic(INTERFACE) + &nic(SECOND);
        let [first, second] = &veth.spaces;
        let at = IPV4.map(IpAddr::V4);
        let network = Network::in_namespaces([first, second], [&nics, &nics], at);
        Some(Self { network, veth })
    }

    /// An app at an engine of this NIC.
    fn tcp(&self, nic: &str) -> Tcp {
        let socket = self.network.server.socket.clone();
        let engine = Some(nic.to_owned());
        let options = Options { socket, engine, sizes: SIZES, ..Options::new("tcp") };
        Tcp::attach(&options).expect("attached")
    }

    /// The kernel peer connects.
    fn connect(&self, to: SocketAddr) -> std::io::Result<TcpStream> {
        let connected = self.veth.spaces[0].within(|| TcpStream::connect_timeout(&to, PATIENCE));
        let stream = connected.expect("the namespace can be entered")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// A program of the kernel's listens in one of the namespaces.
    fn bind(&self, index: usize, at: impl Into<SocketAddr>) -> std::io::Result<TcpListener> {
        let at = at.into();
        let bound = self.veth.spaces[index].within(|| TcpListener::bind(at));
        bound.expect("the namespace can be entered")
    }
}

fn an_app_is_reached_and_reaches_over_both(driver: &str) {
    let Some(world) = World::start(driver) else { return };
    let tcp = world.tcp(INTERFACE);
    let mut listener = tcp.listen(PORT).expect("a listener");
    listener.set_timeout(Some(PATIENCE));
    let own: [IpAddr; 3] = [IPV4[1].into(), SECOND_IPV4[1].into(), SECOND_IPV6[1].into()];
    for (round, address) in own.into_iter().enumerate() {
        let kernel = world.connect(SocketAddr::new(address, PORT)).expect("connected");
        let (app, peer) = listener.accept().expect("accepted");
        assert_eq!(peer, kernel.local_addr().expect("an address"));
        assert_eq!(app.local_addr(), kernel.peer_addr().expect("an address"));
        exchange(&kernel, app, BULK_BYTES, round);
    }
    let peers: [IpAddr; 3] = [IPV4[0].into(), SECOND_IPV4[0].into(), SECOND_IPV6[0].into()];
    for ((round, address), own) in peers.into_iter().enumerate().zip(own) {
        let listener = world.bind(0, (address, 0)).expect("a listener");
        let to = listener.local_addr().expect("its address");
        let app = tcp.connect(to, Some(PATIENCE)).expect("connected");
        assert_eq!(app.local_addr().ip(), own);
        let (kernel, peer) = listener.accept().expect("accepted");
        assert_eq!(peer, app.local_addr());
        kernel.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        exchange(&kernel, app, BULK_BYTES, 7 + round);
        drop(listener);
        let refused = tcp.connect(to, Some(PATIENCE)).expect_err("nobody listens");
        assert_eq!(refused.code(), Code::Refused);
    }
    // The kernel's own TCP goes on beside it.
    world.veth.kernel_goes_on();
}

#[test]
fn an_app_is_reached_and_reaches_over_both_on_af_packet() {
    an_app_is_reached_and_reaches_over_both("driver = \"af_packet\"");
}

#[test]
fn an_app_is_reached_and_reaches_over_both_on_af_xdp() {
    an_app_is_reached_and_reaches_over_both("driver = \"af_xdp\"");
}

/// On each NIC nobody else has it; where a program has it on one, the app has it on none.
#[test]
fn a_port_is_had_on_all_nics_or_on_none() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let (first, second) = (world.tcp(INTERFACE), world.tcp(SECOND));
    let listener = first.listen(PORT).expect("a listener");
    for address in [IPV4[1], SECOND_IPV4[1]] {
        assert!(world.bind(1, (address, PORT)).is_err(), "a program has it at {address}");
    }
    let refused = second.listen(PORT).expect_err("another app has it");
    assert_eq!(refused.code(), Code::AddressInUse);
    drop(listener);
    let theirs = world.bind(1, (SECOND_IPV4[1], PORT)).expect("it is given back");
    let refused = first.listen(PORT).expect_err("a program has it on the other NIC");
    assert_eq!(refused.code(), Code::Refused);
    let text = refused.to_string();
    assert!(text.contains("10.79.0.2") && text.contains("an address of NIC cw0"), "{text}");
    drop(world.bind(1, (IPV4[1], PORT)).expect("it is the app's nowhere"));
    let listener = first.listen(SocketAddr::from((IPV4[1], PORT))).expect("at one address");
    drop((listener, theirs));
    let elsewhere = first.listen(SocketAddr::from((SECOND_IPV4[1], PORT))).expect_err("not its");
    assert_eq!(elsewhere.code(), Code::AddressUnavailable);
    assert!(elsewhere.to_string().contains("an engine of NIC cw1"), "{elsewhere}");
}

/// Apps at engines of different NICs, and of the same, at each address of the host; nobody listens
/// at another port, and that is said at once.
#[test]
fn apps_of_one_host_talk_at_each_address() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let apps = [world.tcp(INTERFACE), world.tcp(SECOND)];
    for (place, server) in apps.iter().enumerate() {
        let port = PORT + place as u16;
        let mut listener = server.listen(port).expect("a listener");
        listener.set_timeout(Some(PATIENCE));
        for client in &apps {
            for address in [IPV4[1], SECOND_IPV4[1]] {
                let to = SocketAddr::from((address, port));
                let mut client = client.connect(to, Some(PATIENCE)).expect("connected");
                let (mut server, peer) = listener.accept().expect("accepted");
                assert_eq!(peer, client.local_addr());
                client.set_timeout(Some(PATIENCE));
                server.set_timeout(Some(PATIENCE));
                let sent = bytes(100_000, place);
                for is_back in [false, true] {
                    let (from, to) = match is_back {
                        false => (&mut client, &mut server),
                        true => (&mut server, &mut client),
                    };
                    from.write_all(&sent).expect("written");
                    from.shutdown(Shutdown::Write).expect("its half");
                    let mut received = Vec::new();
                    to.read_to_end(&mut received).expect("read");
                    assert!(received == sent, "{address}");
                }
            }
        }
        for address in [IPV4[1], SECOND_IPV4[1]] {
            let nobody = SocketAddr::from((address, 9));
            let refused = server.connect(nobody, Some(PATIENCE)).expect_err("nobody listens");
            assert_eq!(refused.code(), Code::Refused, "{address}");
        }
    }
}

/// `clearway status` says so of a connection, and without a listener the engine refuses: the kernel
/// says nothing for it.
#[test]
fn a_connection_over_another_nic_is_seen_and_refused_as_any_other() {
    let Some(world) = World::start("driver = \"auto\"") else { return };
    let tcp = world.tcp(INTERFACE);
    let mut listener = tcp.listen(PORT).expect("a listener");
    listener.set_timeout(Some(PATIENCE));
    let to = SocketAddr::from((SECOND_IPV4[1], PORT));
    let mut kernel = world.connect(to).expect("connected");
    let (mut app, _) = listener.accept().expect("accepted");
    app.set_timeout(Some(PATIENCE));
    app.write_all(b"hello").expect("written");
    kernel.read_exact(&mut [0; 5]).expect("read");
    let mut status = serde_json::Value::Null;
    eventually("it is shown", || {
        status = world.network.server.status();
        status["engines"][0]["flows"][0]["path"] == "tcp-other-nic"
    });
    app.abort().expect("given up");
    let error = kernel.read(&mut [0; 1]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    drop(listener);
    let refused = world.connect(to).expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let listener = tcp.listen_with(PORT + 1, peers("10.78.0.0/24")).expect("a listener");
    let to = SocketAddr::from((SECOND_IPV4[1], PORT + 1));
    let refused = world.connect(to).expect_err("it is for others");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    drop(listener);
}

fn peers(prefix: &str) -> TcpPortOptions {
    let peers = vec![prefix.parse().expect("a prefix")];
    TcpPortOptions { peers, ..TcpPortOptions::default() }
}
