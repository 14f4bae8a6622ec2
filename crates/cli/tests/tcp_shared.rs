//! A TCP port that apps at two engines of one daemon share, with the Linux kernel as peer: veth
//! spreads its connections over the engines' queues as it likes. Needs root for the namespaces.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clearway_client::{self as client, Code, Options, Tcp, TcpPortOptions};
use support::kernel_peer::{SIZES, World, exchange};
use support::veth::IPV4;
use support::{PATIENCE, eventually};

const PORT: u16 = 8080;
const ENGINES: &str = "driver = \"af_packet\"\nname = \"nic\"\nengines = 2\n";

/// An app at an engine, which shares the port.
struct App {
    tcp: Tcp,
    listener: client::TcpListener,
}

/// A connection, as the kernel and an app have it.
struct Pair {
    kernel: TcpStream,
    app: client::TcpStream,
    /// Whose it is.
    owner: usize,
}

impl App {
    fn at(world: &World, engine: usize) -> Self {
        let (socket, engine) = (world.daemon().socket.clone(), Some(format!("nic/{engine}")));
        let options = Options { socket, engine, sizes: SIZES, ..Options::new("shared") };
        let tcp = Tcp::attach(&options).expect("attached");
        let shared = TcpPortOptions { shared: true, ..TcpPortOptions::default() };
        let mut listener = tcp.listen_with(PORT, shared).expect("a listener");
        listener.set_timeout(Some(Duration::ZERO));
        Self { tcp, listener }
    }
}

impl Pair {
    /// A connection of the kernel's, which one of the apps accepts.
    fn open(world: &World, apps: &[App]) -> Self {
        let kernel = world.connect((IPV4[1], PORT).into()).expect("connected");
        let accept = |owner: usize| Some((owner, apps[owner].listener.accept().ok()?.0));
        let mut accepted = None;
        eventually("one of them accepts", || {
            accepted = (0..apps.len()).find_map(accept);
            accepted.is_some()
        });
        let (owner, mut app) = accepted.expect("it has");
        app.set_timeout(Some(PATIENCE));
        Self { kernel, app, owner }
    }

    /// Each says something that the other hears.
    fn talk(&mut self, word: u8) {
        let (said, mut heard) = ([word; 3000], [0; 3000]);
        self.kernel.write_all(&said).expect("written");
        self.app.read_exact(&mut heard).expect("read");
        assert!(heard == said);
        self.app.write_all(&said).expect("written");
        heard.fill(0);
        self.kernel.read_exact(&mut heard).expect("read");
        assert!(heard == said);
    }
}

#[test]
fn connections_are_spread_and_stay_whoever_comes_and_goes() {
    let Some(world) = World::start(ENGINES) else { return };
    let mut apps = vec![App::at(&world, 0)];
    let mut pairs: Vec<Pair> = (0..12).map(|_| Pair::open(&world, &apps)).collect();
    pairs.iter_mut().for_each(|pair| pair.talk(1));

    // One joins: those that are there stay, and both have some of those that come.
    apps.push(App::at(&world, 1));
    pairs.extend((0..24).map(|_| Pair::open(&world, &apps)));
    pairs.iter_mut().for_each(|pair| pair.talk(2));
    let of = |pairs: &[Pair], owner| pairs.iter().filter(|pair| pair.owner == owner).count();
    assert!(of(&pairs, 0) > 12 && of(&pairs, 1) > 0, "{} of {}", of(&pairs, 1), pairs.len());

    // Who does not share it has no part of it.
    let part = SocketAddr::from((IPV4[1], PORT));
    let unshared = apps[1].tcp.listen(part).expect_err("others share it");
    assert_eq!(unshared.code(), Code::AddressInUse);

    // One leaves: its connections are reset, and no others.
    let leaver = apps.pop().expect("two");
    let (gone, stay): (Vec<Pair>, Vec<Pair>) = pairs.into_iter().partition(|it| it.owner == 1);
    let (kernels, streams): (Vec<_>, Vec<_>) =
        gone.into_iter().map(|pair| (pair.kernel, pair.app)).unzip();
    streams.into_iter().for_each(|stream| stream.abort().expect("given up"));
    drop(leaver);
    for mut kernel in kernels {
        let error = kernel.read(&mut [0]).expect_err("a reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    let mut pairs = stay;
    pairs.iter_mut().for_each(|pair| pair.talk(3));
    pairs.extend((0..12).map(|_| Pair::open(&world, &apps)));
    assert_eq!(of(&pairs, 0), pairs.len(), "all are the other's");

    // Another one comes, and much goes each way while it does.
    apps.push(App::at(&world, 1));
    pairs.extend((0..24).map(|_| Pair::open(&world, &apps)));
    assert!(of(&pairs, 1) > 0);
    for (number, mut pair) in pairs.into_iter().enumerate() {
        pair.talk(4);
        exchange(&pair.kernel, pair.app, 200_000, number);
    }
    world.veth.kernel_goes_on();
}
