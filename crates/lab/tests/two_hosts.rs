//! Two hosts with a wire between them that loses and swaps packets, and programs that wait in their
//! calls, in threads of their own: what happens is the same however the threads are scheduled.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::thread::JoinHandle;

use clearway_base::{MILLISECOND, Random, SECOND};
use lab::{Host, Options, Shutdown};

const PORT: u16 = 80;
const BYTES: usize = 300_000;
/// One way.
const DELAY_NS: u64 = 5 * MILLISECOND;

/// A `sockaddr_in` or `sockaddr_in6`.
fn sockaddr(address: IpAddr, port: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    bytes.extend((family as u16).to_ne_bytes());
    bytes.extend(port.to_be_bytes());
    match address {
        IpAddr::V4(address) => {
            bytes.extend(address.octets());
            bytes.resize(16, 0);
        }
        IpAddr::V6(address) => {
            bytes.extend([0; 4]);
            bytes.extend(address.octets());
            bytes.resize(28, 0);
        }
    }
    bytes
}

fn stream() -> Vec<u8> {
    (0..BYTES as u32).map(|at| (at ^ (at >> 8)) as u8).collect()
}

/// Sends back what it gets, until there is no more.
fn serve(host: &Host, domain: i32, address: IpAddr) {
    let listener = host.socket(domain, libc::SOCK_STREAM, 0).unwrap();
    host.bind(listener, &sockaddr(address, PORT)).unwrap();
    host.listen(listener, 1).unwrap();
    let (fd, _) = host.accept(listener, 0).unwrap();
    let mut place = vec![0; 10_000];
    loop {
        let count = host.recv(fd, &mut place, 0).unwrap();
        if count == 0 {
            break;
        }
        assert_eq!(host.send(fd, &place[..count], 0), Ok(count));
    }
    host.close(fd).unwrap();
    host.close(listener).unwrap();
}

/// Sends all in pieces, each of which it has back before the next, and ends.
fn ask(host: &Host, domain: i32, server: IpAddr) {
    let fd = host.socket(domain, libc::SOCK_STREAM, 0).unwrap();
    host.connect(fd, &sockaddr(server, PORT)).unwrap();
    for piece in stream().chunks(20_000) {
        assert_eq!(host.send(fd, piece, 0), Ok(piece.len()));
        let mut place = vec![0; piece.len()];
        assert_eq!(host.recv(fd, &mut place, libc::MSG_WAITALL), Ok(piece.len()));
        assert!(place == piece);
    }
    host.shutdown(fd, Shutdown { receive: false, send: true }).unwrap();
    assert_eq!(host.recv(fd, &mut [0; 1], 0), Ok(0));
    host.close(fd).unwrap();
}

/// What was on the wire: when, from which host, how long.
type Trace = Vec<(u64, usize, usize)>;

/// A program that was woken goes on until it waits again, or has ended, before anything else
/// happens.
fn await_programs(hosts: &[Arc<Host>; 2], programs: &[JoinHandle<()>]) {
    for (host, program) in hosts.iter().zip(programs) {
        while host.waiting() == 0 && !program.is_finished() {
            std::thread::yield_now();
        }
    }
}

/// Carries packets, and moves the clocks of both hosts together, until the programs are done.
fn carry(hosts: &[Arc<Host>; 2], programs: &[JoinHandle<()>], seed: u64) -> Trace {
    let mut random = Random::new(seed);
    let mut wire: Vec<(u64, usize, Vec<u8>)> = Vec::new();
    let mut trace = Trace::new();
    let end_ns = hosts[0].now_ns() + 1000 * SECOND;
    loop {
        await_programs(hosts, programs);
        for (side, host) in hosts.iter().enumerate() {
            let mut place = [0; 2000];
            while let Some((length, at)) = host.take_packet(&mut place).unwrap() {
                trace.push((at, side, length));
                let swapped_ns = if random.chance(1, 50) { DELAY_NS } else { 0 };
                if !random.chance(1, 50) {
                    wire.push((at + DELAY_NS + swapped_ns, side, place[..length].to_vec()));
                }
            }
        }
        if programs.iter().all(JoinHandle::is_finished) && wire.is_empty() {
            return trace;
        }
        wire.sort_by_key(|(at, ..)| *at);
        let now_ns = hosts[0].now_ns();
        assert!(now_ns < end_ns, "it does not end");
        let due = wire.first().map_or(u64::MAX, |(at, ..)| at.saturating_sub(now_ns));
        let timers = hosts.iter().filter_map(|host| host.next_ns()).min();
        let step = due.min(timers.unwrap_or(u64::MAX));
        assert!(step < u64::MAX, "nothing will ever happen");
        hosts.iter().for_each(|host| host.advance(step));
        while wire.first().is_some_and(|(at, ..)| *at <= now_ns + step) {
            let (_, side, packet) = wire.remove(0);
            hosts[1 - side].put_packet(&packet);
            await_programs(hosts, programs);
        }
    }
}

fn play(addresses: [IpAddr; 2], domain: i32, seed: u64) -> Trace {
    let hosts = addresses.map(|address| {
        let host = Host::new(Options { seed, ..Options::default() });
        host.add_address(&sockaddr(address, 0), 8).unwrap();
        Arc::new(host)
    });
    let [client, server] = hosts.clone();
    let serving = {
        let server = Arc::clone(&server);
        std::thread::spawn(move || serve(&server, domain, addresses[1]))
    };
    server.await_waiting(1);
    let asking = {
        let client = Arc::clone(&client);
        std::thread::spawn(move || ask(&client, domain, addresses[1]))
    };
    client.await_waiting(1);
    let programs = [asking, serving];
    let trace = carry(&hosts, &programs, seed);
    programs.into_iter().for_each(|program| program.join().expect("all is as it should be"));
    for host in &hosts {
        host.advance(1000 * SECOND);
        for name in ["sockets", "buffers", "time_wait", "half_open"] {
            assert_eq!(host.get(name), Ok(0), "{name}");
        }
    }
    trace
}

#[test]
fn what_threads_do_is_the_same_each_time() {
    let addresses = [Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into()];
    let first = play(addresses, libc::AF_INET, 1);
    assert!(first.len() > 2 * BYTES / 1460);
    for _ in 0..3 {
        assert!(play(addresses, libc::AF_INET, 1) == first, "another trace");
    }
    assert!(play(addresses, libc::AF_INET, 2) != first, "the same trace of another seed");
}

#[test]
fn over_ipv6() {
    let address = |last| IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
    play([address(1), address(2)], libc::AF_INET6, 1);
}

/// ipv6(7): a socket of IPv6 speaks IPv4 by IPv4-mapped addresses.
#[test]
fn a_socket_of_ipv6_speaks_ipv4() {
    let mapped = |last| Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped().into();
    let host = Host::new(Options::default());
    let address = sockaddr(Ipv4Addr::new(10, 0, 0, 1).into(), 0);
    host.add_address(&address, 24).unwrap();
    let fd = host.socket(libc::AF_INET6, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).unwrap();
    host.bind(fd, &sockaddr(mapped(1), 1234)).unwrap();
    let begun = host.connect(fd, &sockaddr(mapped(2), 80));
    assert_eq!(begun, Err(lab::Errno::EINPROGRESS));
    assert_eq!(host.getsockname(fd), Ok(sockaddr(mapped(1), 1234)));
    let mut packet = [0; 100];
    let (length, _) = host.take_packet(&mut packet).unwrap().expect("a SYN");
    assert_eq!((packet[0] >> 4, length), (4, 60));
}
