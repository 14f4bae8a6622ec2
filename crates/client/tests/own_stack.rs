//! The example `own-stack` against a second stack, over the wire that the daemon in a thread
//! (`common`) makes of a virtual interface. With a real daemon and the Linux kernel as the other
//! side it is run by the daemon's tests.

mod common;
#[path = "../examples/own-stack.rs"]
mod own_stack;

use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clearway_client::Waiting;
use common::vifs::MAC;
use common::{Daemon, Order, PATIENCE};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, ChecksumCapabilities, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    Icmpv4Packet, Icmpv4Repr, IpProtocol, Ipv4Address, Ipv4Packet, Ipv4Repr,
};

const STACK: Ipv4Address = Ipv4Address::new(10, 0, 0, 9);
const PEER: Ipv4Address = Ipv4Address::new(10, 0, 0, 1);
const PEER_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);

/// The other end of the wire.
struct Wire {
    daemon: Daemon,
    from_stack: Receiver<Vec<u8>>,
    stack: Option<JoinHandle<String>>,
}

impl Wire {
    /// Starts the example; the daemon gives it the interface 1.
    fn start() -> Self {
        let (daemon, from_stack) = Daemon::tapped();
        let options = daemon.options(Waiting::Adaptive);
        let words = ["own", "10.0.0.9/24", "--gateway", "10.0.0.1"].map(str::to_owned);
        let stack = std::thread::spawn(move || {
            let arguments = own_stack::Arguments::parse(&words).expect("good arguments");
            own_stack::run(&options, &arguments).unwrap_err().to_string()
        });
        Self { daemon, from_stack, stack: Some(stack) }
    }

    fn send(&self, frame: Vec<u8>) {
        self.daemon.order(Order::Frames { vif: 1, frames: vec![frame] });
    }

    /// Sends a frame, again and again until the interface is there, and waits for the first answer.
    fn ask(&self, frame: &[u8]) -> Vec<u8> {
        let deadline = Instant::now() + PATIENCE.unwrap();
        loop {
            assert!(Instant::now() < deadline, "no answer");
            self.send(frame.to_vec());
            if let Ok(answer) = self.from_stack.recv_timeout(Duration::from_millis(100)) {
                return answer;
            }
        }
    }

    /// Ends the daemon; the example's last words.
    fn end(mut self) -> String {
        self.daemon.order(Order::Shutdown);
        self.stack.take().unwrap().join().unwrap()
    }
}

fn arp(operation: ArpOperation) -> ArpRepr {
    ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: PEER_MAC,
        source_protocol_addr: PEER,
        target_hardware_addr: EthernetAddress([0; 6]),
        target_protocol_addr: STACK,
    }
}

fn frame(to: EthernetAddress, protocol: EthernetProtocol, payload: usize) -> Vec<u8> {
    let mut bytes = vec![0; EthernetFrame::<&[u8]>::buffer_len(payload)];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes);
    frame.set_src_addr(PEER_MAC);
    frame.set_dst_addr(to);
    frame.set_ethertype(protocol);
    bytes
}

fn arp_request() -> Vec<u8> {
    let repr = arp(ArpOperation::Request);
    let mut bytes = frame(EthernetAddress::BROADCAST, EthernetProtocol::Arp, repr.buffer_len());
    repr.emit(&mut ArpPacket::new_unchecked(&mut bytes[14..]));
    bytes
}

fn ping() -> Vec<u8> {
    let icmp = Icmpv4Repr::EchoRequest { ident: 7, seq_no: 1, data: b"are you there?" };
    let ip = Ipv4Repr {
        src_addr: PEER,
        dst_addr: STACK,
        next_header: IpProtocol::Icmp,
        payload_len: icmp.buffer_len(),
        hop_limit: 64,
    };
    let checksums = ChecksumCapabilities::default();
    let length = ip.buffer_len() + icmp.buffer_len();
    let mut bytes = frame(EthernetAddress(MAC.0), EthernetProtocol::Ipv4, length);
    let mut packet = Ipv4Packet::new_unchecked(&mut bytes[14..]);
    ip.emit(&mut packet, &checksums);
    icmp.emit(&mut Icmpv4Packet::new_unchecked(packet.payload_mut()), &checksums);
    bytes
}

#[test]
fn it_answers_arp_and_ping() {
    let wire = Wire::start();
    let answer = wire.ask(&arp_request());
    let answer = ArpRepr::parse(&ArpPacket::new_checked(&answer[14..]).unwrap()).unwrap();
    let ArpRepr::EthernetIpv4 { operation, source_hardware_addr, source_protocol_addr, .. } =
        answer
    else {
        panic!("{answer:?}");
    };
    assert_eq!((operation, source_protocol_addr), (ArpOperation::Reply, STACK));
    assert_eq!(source_hardware_addr.0, MAC.0);
    let answer = wire.ask(&ping());
    let packet = Ipv4Packet::new_checked(&answer[14..]).unwrap();
    let icmp = Icmpv4Packet::new_checked(packet.payload()).unwrap();
    let icmp = Icmpv4Repr::parse(&icmp, &ChecksumCapabilities::default()).unwrap();
    let expected = Icmpv4Repr::EchoReply { ident: 7, seq_no: 1, data: b"are you there?" };
    assert_eq!((packet.dst_addr(), icmp), (PEER, expected));
    assert!(wire.end().contains("daemon"));
}

#[test]
fn it_echoes_and_serves_a_page() {
    let mut peer = Peer::new();
    let text: Vec<u8> = (0..100_000u32).map(|at| (at * 7) as u8).collect();
    assert!(peer.talk(7, &text, text.len()) == text, "the echo is not what was sent");
    for _ in 0..3 {
        let page = peer.talk(80, b"GET / HTTP/1.1\r\nHost: stack\r\n\r\n", usize::MAX);
        let page = String::from_utf8(page).unwrap();
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("my own stack.</p>\n"));
    }
    let refusal = peer.talk(80, b"POST / HTTP/1.1\r\n\r\n", usize::MAX);
    assert!(refusal.starts_with(b"HTTP/1.1 405 "));
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let refused = [
        "",
        "own",
        "own 10.0.0.9",
        "02:00 10.0.0.9/24",
        "own 10.0.0.9/24 --gateway",
        "own 10.0.0.9/24 --gateway host",
        "own 10.0.0.9/24 --other",
    ];
    for words in refused {
        let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        assert!(own_stack::Arguments::parse(&words).is_err(), "{words:?}");
    }
}

/// A second smoltcp at the other end of the wire.
struct Peer {
    wire: Wire,
    interface: Interface,
    begun: Instant,
    port: u16,
}

impl Peer {
    fn new() -> Self {
        let mut wire = Wire::start();
        wire.ask(&arp_request());
        let config = Config::new(PEER_MAC.into());
        let now = smoltcp::time::Instant::ZERO;
        let mut interface = Interface::new(config, &mut wire, now);
        let address = smoltcp::wire::IpCidr::new(PEER.into(), 24);
        interface.update_ip_addrs(|addresses| addresses.push(address).unwrap());
        Self { wire, interface, begun: Instant::now(), port: 50_000 }
    }

    /// Connects, sends `text`, and receives until the stack closes or `wanted` bytes have come.
    fn talk(&mut self, port: u16, text: &[u8], wanted: usize) -> Vec<u8> {
        let buffer = || tcp::SocketBuffer::new(vec![0; 8192]);
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(tcp::Socket::new(buffer(), buffer()));
        self.port += 1;
        let socket = sockets.get_mut::<tcp::Socket<'_>>(handle);
        socket.connect(self.interface.context(), (STACK, port), self.port).unwrap();
        let (mut sent, mut received) = (0, Vec::new());
        while received.len() < wanted {
            self.poll(&mut sockets);
            let socket = sockets.get_mut::<tcp::Socket<'_>>(handle);
            if socket.can_send() {
                sent += socket.send_slice(&text[sent..]).unwrap();
            }
            while socket.can_recv() {
                socket.recv(|bytes| (bytes.len(), received.extend_from_slice(bytes))).unwrap();
            }
            if !socket.may_recv() && socket.may_send() && sent > 0 {
                break;
            }
        }
        self.close(&mut sockets, handle);
        received
    }

    /// Until the other side knows of the end.
    fn close(&mut self, sockets: &mut SocketSet<'_>, handle: SocketHandle) {
        sockets.get_mut::<tcp::Socket<'_>>(handle).close();
        let ended = |state| matches!(state, tcp::State::TimeWait | tcp::State::Closed);
        while !ended(sockets.get_mut::<tcp::Socket<'_>>(handle).state()) {
            self.poll(sockets);
        }
    }

    fn poll(&mut self, sockets: &mut SocketSet<'_>) {
        assert!(self.begun.elapsed() < PATIENCE.unwrap(), "it never ends");
        let now = smoltcp::time::Instant::from_micros(self.begun.elapsed().as_micros() as i64);
        self.interface.poll(now, &mut self.wire, sockets);
        std::thread::yield_now();
    }
}

impl phy::Device for Wire {
    type RxToken<'t> = Received;
    type TxToken<'t> = Sending<'t>;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Received, Sending<'_>)> {
        Some((Received(self.from_stack.try_recv().ok()?), Sending(self)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Sending<'_>> {
        Some(Sending(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

struct Received(Vec<u8>);

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

struct Sending<'a>(&'a Wire);

impl phy::TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let mut frame = vec![0; length];
        let result = write(&mut frame);
        self.0.send(frame);
        result
    }
}
