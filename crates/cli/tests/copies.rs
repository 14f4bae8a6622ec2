//! Copies of broadcast and multicast on kernel interfaces: a virtual interface sees what the kernel
//! gets, too. Needs root; says so and passes otherwise.

mod support;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::Duration;

use clearway_client::{Channel, VifOptions};
use support::eventually;
use support::veth::{INTERFACE, IPV4, Veth};

/// The group of mDNS (RFC 6762), but not its port.
const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const BROADCAST: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 255);
const PORT: u16 = 5399;
/// Longer than anything takes that is on its way.
const MOMENT: Duration = Duration::from_millis(20);

/// The UDP payloads of what has come to the channel since it was last asked.
fn payloads(channel: &mut Channel) -> Vec<u8> {
    let Ok(frames) = channel.recv_frames(Some(MOMENT)) else { return Vec::new() };
    frames.iter().map(|frame| frame.bytes[42]).collect()
}

fn kernel_and_interface_both_see(driver: &str) {
    let Some(veth) = Veth::new() else { return };
    let nic = format!("driver = \"{driver}\"");
    let network = veth.hosts([&nic, &nic], IPV4.map(IpAddr::V4));
    veth.ip(0, &format!("route add 224.0.0.0/4 dev {INTERFACE}"));
    let entered = "the namespace can be entered";
    let sender = veth.spaces[0].within(|| UdpSocket::bind((IPV4[0], 0))).expect(entered);
    let sender = sender.expect("a socket");
    sender.set_broadcast(true).expect("a socket may");
    let kernel = veth.spaces[1].within(|| {
        let kernel = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
        kernel.join_multicast_v4(&GROUP, &IPV4[1]).map(|()| kernel)
    });
    let kernel = kernel.expect(entered).expect("a socket of the group");
    kernel.set_read_timeout(Some(MOMENT)).expect("a timeout");
    let mut channel = network.server.attach("watcher");
    let copies = [
        format!("dst host {GROUP} and udp dst port {PORT}"),
        format!("ether broadcast and udp dst port {PORT}"),
    ];
    let options = VifOptions { copies: copies.into(), ..VifOptions::default() };
    let vif = channel.open_vif(&options).expect("an interface");
    for group in [GROUP, BROADCAST] {
        each_sees_each_once(&sender, group, &kernel, &mut channel);
    }
    // What is to the host alone is the kernel's alone.
    let alone = |number: u8| sender.send_to(&[number], (IPV4[1], PORT)).expect("sent");
    alone(77);
    eventually("the kernel gets it", || kernel.recv(&mut [0]).is_ok());
    assert!(payloads(&mut channel).is_empty(), "a copy of the kernel's own");
    channel.close_vif(vif.id).expect("closed");
    sender.send_to(&[88], (GROUP, PORT)).expect("sent");
    eventually("the kernel goes on to get it", || kernel.recv(&mut [0]).is_ok());
}

/// Sends to a group until all have been seen by both, and sees to it that none is seen twice.
fn each_sees_each_once(
    sender: &UdpSocket,
    group: Ipv4Addr,
    kernel: &UdpSocket,
    channel: &mut Channel,
) {
    let (mut at_kernel, mut at_channel) = (Vec::new(), Vec::new());
    for number in 0..20_u8 {
        sender.send_to(&[number], (group, PORT)).expect("sent");
        eventually("both see it", || {
            let mut payload = [0];
            if kernel.recv(&mut payload).is_ok() {
                at_kernel.push(payload[0]);
            }
            at_channel.extend(payloads(channel));
            at_kernel.last() == Some(&number) && at_channel.last() == Some(&number)
        });
    }
    at_channel.extend(payloads(channel));
    let all: Vec<u8> = (0..20).collect();
    assert_eq!((at_kernel, at_channel), (all.clone(), all), "to {group}");
}

#[test]
fn kernel_and_interface_both_see_on_af_xdp() {
    kernel_and_interface_both_see("af_xdp");
}

#[test]
fn kernel_and_interface_both_see_on_af_packet() {
    kernel_and_interface_both_see("af_packet");
}
