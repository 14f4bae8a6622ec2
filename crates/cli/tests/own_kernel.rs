//! A virtual interface with an Ethernet address of its own and the kernel of the same host, on an
//! interface that is both theirs: neighbours on one link, though the wire brings nothing back.
//! Streams between them are in `own_stack.rs`. Needs root; says so and passes otherwise.

mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use clearway_client::{Channel, MacChoice, Vif, VifOptions};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr};
use support::veth::{INTERFACE, IPV4, IPV6, Veth};
use support::{Network, eventually};

const MACHINE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 50);
/// The group of mDNS (RFC 6762), but not its port.
const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP_MAC: [u8; 6] = [0x01, 0x00, 0x5e, 0, 0, 251];
const TO_ALL: [u8; 6] = [0xff; 6];
const PORT: u16 = 5399;
const MACHINE6: Ipv6Addr = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 0x50);
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Longer than anything takes that is on its way.
const MOMENT: Duration = Duration::from_millis(20);
const ENTERED: &str = "the namespace can be entered";

/// A machine in a program, beside the kernel of `veth.spaces[1]`.
struct Machine {
    channel: Channel,
    vif: Vif,
}

impl Machine {
    fn plug(network: &Network, address: &str) -> Self {
        let mut channel = network.server.attach("machine");
        let address = address.parse().expect("an address");
        let machine = VifOptions::machine(MacChoice::Own, address);
        let copies = [
            format!("dst host {GROUP} and udp dst port {PORT}"),
            format!("ether broadcast and udp dst port {PORT}"),
            "ether multicast and icmp6".to_owned(),
        ];
        let copies = copies.into();
        let vif = channel.open_vif(&VifOptions { copies, ..machine }).expect("an interface");
        Self { channel, vif }
    }

    fn send(&mut self, to: [u8; 6], ether_type: u16, packet: &[u8]) {
        let frame = [&to[..], &self.vif.mac.0, &ether_type.to_be_bytes(), packet].concat();
        self.channel.send_frame(self.vif.id, &frame).expect("sent");
        self.channel.flush_frames(self.vif.id, None).expect("flushed");
    }

    fn send_ip(&mut self, to: [u8; 6], [from, at]: [Ipv4Addr; 2], protocol: u8, payload: &[u8]) {
        let mut header = [0x45, 0, 0, 20 + payload.len() as u8, 0, 0, 0, 0, 64, protocol, 0, 0]
            .into_iter()
            .chain(from.octets())
            .chain(at.octets())
            .collect::<Vec<u8>>();
        let checksum = checksum(&header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        self.send(to, 0x0800, &[&header[..], payload].concat());
    }

    /// A datagram of one byte without a checksum, from `from`.
    fn send_udp(&mut self, to: [u8; 6], [from, at]: [Ipv4Addr; 2], number: u8) {
        let [high, low] = PORT.to_be_bytes();
        self.send_ip(to, [from, at], 17, &[high, low, high, low, 0, 9, 0, 0, number]);
    }

    fn ask_for(&mut self, address: Ipv4Addr) {
        let mac = self.vif.mac.0;
        let request =
            [&[0, 1, 8, 0, 6, 4, 0, 1][..], &mac, &MACHINE.octets(), &[0; 6], &address.octets()];
        self.send(TO_ALL, 0x0806, &request.concat());
    }

    /// A message about `target`, with its sender's Ethernet address (RFC 4861, 4.3 and 4.4).
    fn send_about(&mut self, to: [u8; 6], at: Ipv6Addr, [kind, flags]: [u8; 2], target: Ipv6Addr) {
        let address_is = if kind == SOLICITATION { 1 } else { 2 };
        let (from, mac) = (MACHINE6.octets(), self.vif.mac.0);
        let mut message =
            [&[kind, 0, 0, 0, flags, 0, 0, 0][..], &target.octets(), &[address_is, 1], &mac]
                .concat();
        let length = message.len() as u8;
        let pseudo = [&from[..], &at.octets(), &[0, 0, 0, length, 0, 0, 0, 58], &message].concat();
        message[2..4].copy_from_slice(&checksum(&pseudo).to_be_bytes());
        let header = [0x60, 0, 0, 0, 0, length, 58, 255];
        self.send(to, 0x86dd, &[&header[..], &from, &at.octets(), &message].concat());
    }

    /// Waits for a message of this kind about `target`.
    fn wait_for(&mut self, kind: u8, target: Ipv6Addr) {
        eventually("there is such a message", || {
            let mut all = self.received(0x86dd).into_iter();
            all.any(|frame| {
                frame[20] == 58 && frame[54] == kind && frame[62..78] == target.octets()
            })
        });
    }

    /// What has come since it was last asked, of this ether type.
    fn received(&mut self, ether_type: u16) -> Vec<Vec<u8>> {
        let Ok(frames) = self.channel.recv_frames(Some(MOMENT)) else { return Vec::new() };
        let all: Vec<_> = frames.iter().map(|frame| frame.bytes.to_vec()).collect();
        self.channel.release_frames(frames);
        all.into_iter().filter(|frame| frame[12..14] == ether_type.to_be_bytes()).collect()
    }

    /// The UDP payloads of it.
    fn payloads(&mut self) -> Vec<u8> {
        let datagrams = self.received(0x0800).into_iter().filter(|frame| frame[23] == 17);
        datagrams.map(|frame| frame[42]).collect()
    }

    /// Where `address` is, as its host answers, once.
    fn resolve(&mut self, address: Ipv4Addr) -> [u8; 6] {
        let mut answers = Vec::new();
        eventually("there is an answer", || {
            self.ask_for(address);
            let all = self.received(0x0806).into_iter();
            answers.extend(all.filter(|frame| frame[21] == 2 && frame[28..32] == address.octets()));
            !answers.is_empty()
        });
        answers[0][6..12].try_into().expect("six bytes")
    }

    fn ping(&mut self, mac: [u8; 6], address: Ipv4Addr) {
        let echo = Icmpv4Repr::EchoRequest { ident: 7, seq_no: 9, data: b"are you there" };
        let mut bytes = vec![0; echo.buffer_len()];
        echo.emit(&mut Icmpv4Packet::new_unchecked(&mut bytes), &ChecksumCapabilities::default());
        self.send_ip(mac, [MACHINE, address], 1, &bytes);
        let mut answers = Vec::new();
        eventually("there is an echo", || {
            let all = self.received(0x0800).into_iter();
            answers.extend(all.filter(|frame| frame[23] == 1));
            !answers.is_empty()
        });
        answers.extend(self.received(0x0800));
        assert_eq!(answers.len(), 1, "one echo");
        assert_eq!(answers[0][34], 0, "an echo reply");
        assert_eq!(&answers[0][42..55], b"are you there");
    }
}

/// RFC 1071, of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum + (sum >> 16)) as u16
}

struct World {
    network: Network,
    machine: Machine,
    /// Sockets of the kernels: of the other host, and of the own.
    kernels: [UdpSocket; 2],
    veth: Veth,
}

fn world(user: Option<&str>, nic: &str) -> Option<World> {
    let veth = Veth::new()?;
    for index in [0, 1] {
        veth.ip(index, &format!("route add 224.0.0.0/4 dev {INTERFACE}"));
    }
    let at = IPV4.map(IpAddr::V4);
    let network = match user {
        Some(user) => veth.hosts_as(user, [nic, nic], at),
        None => veth.hosts([nic, nic], at),
    };
    let kernel = |index: usize| {
        let kernel = veth.spaces[index].within(|| {
            let kernel = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
            kernel.set_broadcast(true)?;
            kernel.join_multicast_v4(&GROUP, &IPV4[index])?;
            kernel.set_read_timeout(Some(MOMENT)).map(|()| kernel)
        });
        kernel.expect(ENTERED).expect("a socket of the group")
    };
    let kernels = [kernel(0), kernel(1)];
    let machine = Machine::plug(&network, &format!("{MACHINE}/24"));
    Some(World { network, machine, kernels, veth })
}

/// The numbers that a socket receives until it is quiet, and from whom.
fn drain(socket: &UdpSocket) -> Vec<(u8, SocketAddr)> {
    let mut all = Vec::new();
    let mut payload = [0];
    while let Ok((_, from)) = socket.recv_from(&mut payload) {
        all.push((payload[0], from));
    }
    all
}

fn kernel_and_interface_are_neighbours(user: Option<&str>, nic: &str) {
    let Some(World { network, mut machine, kernels, veth }) = world(user, nic) else { return };
    let [far, mac] = [0, 1].map(|index| veth.facts(index).mac.expect("an Ethernet address"));
    assert_eq!(machine.resolve(IPV4[1]), mac);
    assert_eq!(machine.resolve(IPV4[0]), far, "who is on the wire hears it, too");
    machine.ping(mac, IPV4[1]);
    let from: SocketAddr = (MACHINE, PORT).into();

    machine.send_udp(mac, [MACHINE, IPV4[1]], 1);
    eventually("the kernel has it", || drain(&kernels[1]) == [(1, from)]);
    machine.send_udp(GROUP_MAC, [MACHINE, GROUP], 2);
    let mut seen = [vec![], vec![]];
    eventually("both kernels have it", || {
        seen.iter_mut().zip(&kernels).for_each(|(seen, kernel)| seen.extend(drain(kernel)));
        seen.iter().all(|seen| !seen.is_empty())
    });
    assert_eq!(seen, [vec![(2, from)], vec![(2, from)]], "once each");
    assert!(machine.payloads().is_empty(), "nobody gets what is his own");

    kernels[1].send_to(&[3], (MACHINE, PORT)).expect("sent");
    let mut seen = Vec::new();
    eventually("the interface has it", || {
        seen.extend(machine.payloads());
        !seen.is_empty()
    });
    for group in [Ipv4Addr::new(10, 78, 0, 255), GROUP] {
        kernels[1].send_to(&[4], (group, PORT)).expect("sent");
    }
    eventually("the interface has those to all", || {
        seen.extend(machine.payloads());
        seen.len() >= 3
    });
    seen.extend(machine.payloads());
    assert_eq!(seen, [3, 4, 4], "each once");
    let own: Vec<u8> = drain(&kernels[1]).iter().map(|(number, _)| *number).collect();
    assert_eq!(own, [4, 4], "the kernel's own come back from the kernel itself only");
    let far: Vec<u8> = drain(&kernels[0]).iter().map(|(number, _)| *number).collect();
    assert_eq!(far, [4, 4], "what is to all leaves, and what is to the interface does not");

    // Whoever it claims to be, it is itself.
    for liar in [IPV4[1], IPV4[0], Ipv4Addr::LOCALHOST] {
        machine.send_udp(mac, [liar, IPV4[1]], 5);
        machine.send_udp(GROUP_MAC, [liar, GROUP], 5);
    }
    machine.send_udp(mac, [MACHINE, IPV4[1]], 6);
    eventually("the kernel has what is true", || drain(&kernels[1]) == [(6, from)]);
    let sent = machine.channel.frames_sent(machine.vif.id).expect("a report");
    assert_eq!(sent.rejected, 6, "{sent:?}");
    veth.kernel_goes_on();
    drop(network);
}

#[test]
fn kernel_and_interface_are_neighbours_on_af_packet() {
    kernel_and_interface_are_neighbours(None, "driver = \"af_packet\"");
}

#[test]
fn kernel_and_interface_are_neighbours_on_af_xdp() {
    kernel_and_interface_are_neighbours(None, "driver = \"af_xdp\"");
}

#[test]
fn kernel_and_interface_are_neighbours_on_af_xdp_in_the_driver() {
    kernel_and_interface_are_neighbours(None, "driver = \"af_xdp\"\nmode = \"copy\"");
}

/// What it takes is opened by another process then.
#[test]
fn kernel_and_interface_are_neighbours_where_the_daemon_is_not_root() {
    for driver in ["af_packet", "af_xdp"] {
        kernel_and_interface_are_neighbours(Some("daemon"), &format!("driver = \"{driver}\""));
    }
}

/// Each asks a group for the other, and answers.
#[test]
fn kernel_and_interface_are_neighbours_over_ipv6() {
    for nic in ["driver = \"af_packet\"", "driver = \"af_xdp\""] {
        let Some(veth) = Veth::new() else { return };
        let network = veth.hosts([nic, nic], IPV4.map(IpAddr::V4));
        let mut machine = Machine::plug(&network, &format!("{MACHINE6}/64"));
        for (last, address) in [(2, IPV6[1]), (1, IPV6[0])] {
            let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, last);
            let mac = [0x33, 0x33, 0xff, 0, 0, last as u8];
            machine.send_about(mac, group, [SOLICITATION, 0], address);
            machine.wait_for(ADVERTISEMENT, address);
        }

        veth.ip(1, &format!("neigh flush dev {INTERFACE}"));
        let kernel = veth.spaces[1].within(|| UdpSocket::bind((IPV6[1], 0))).expect(ENTERED);
        let kernel = kernel.expect("a socket");
        kernel.send_to(&[1], (MACHINE6, PORT)).expect("sent");
        machine.wait_for(SOLICITATION, MACHINE6);
        let mac = veth.facts(1).mac.expect("an Ethernet address");
        machine.send_about(mac, IPV6[1], [ADVERTISEMENT, 0x60], MACHINE6);
        eventually("the datagram follows", || {
            let mut all = machine.received(0x86dd).into_iter();
            all.any(|frame| frame[20] == 17 && frame.last() == Some(&1))
        });

        drop(network);
    }
}
