//! The classic BPF filter that keeps everything but registered frames from our socket.
//!
//! It decides as `bpf/steer.c` does, with two differences that come from where it runs: the kernel
//! has already taken the outer VLAN tag off, and the registered values are in the program itself,
//! which is written anew at each change.

use std::collections::BTreeSet;
use std::net::IpAddr;

use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JA, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX,
    BPF_MEM, BPF_MSH, BPF_ST, BPF_W, sock_filter,
};

use crate::interface::return_instruction;

/// Instructions that the kernel takes (`BPF_MAXINSNS`).
pub(super) const INSTRUCTIONS_MAX: usize = 4096;

/// More bytes than any frame has: let all of it through.
const ALL: u32 = u32::MAX;

// Where fields are in a frame without VLAN tag.
const ETHERTYPE: u32 = 12;
const ARP_LENGTHS: u32 = 18;
const ARP_TARGET: u32 = 38;
const IPV4_HEADER: u32 = 14;
const IPV4_FRAGMENT: u32 = 20;
const IPV4_PROTOCOL: u32 = 23;
const IPV4_DESTINATION: u32 = 30;
const IPV6_NEXT_HEADER: u32 = 20;
const IPV6_DESTINATION: u32 = 38;
const IPV6_PAYLOAD: u32 = 54;
const NEIGHBOUR_TARGET: u32 = IPV6_PAYLOAD + 8;
/// Where the destination port is in a UDP header.
const UDP_PORT: u32 = 2;

/// The scratch word that holds the destination port.
const PORT: u32 = 0;

type Instructions = Vec<sock_filter>;

/// What is registered.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    pub(super) udp_ports: BTreeSet<(Option<IpAddr>, u16)>,
    pub(super) own_addresses: BTreeSet<IpAddr>,
}

impl Filter {
    /// The program. Every path through it ends with a return.
    pub(super) fn compile(&self) -> Instructions {
        let ipv6 = switch(
            load(BPF_B, IPV6_NEXT_HEADER),
            vec![(17, self.udp_over_ipv6()), (58, self.icmpv6())],
        );
        switch(
            load(BPF_H, ETHERTYPE),
            vec![(0x0800, self.ipv4()), (0x86dd, ipv6), (0x0806, self.arp())],
        )
    }

    fn arp(&self) -> Instructions {
        switch(load(BPF_H, ARP_LENGTHS), vec![(0x0604, self.to_own(false, ARP_TARGET))])
    }

    /// Accepts if the address at `offset` is one of ours of this family, else drops.
    fn to_own(&self, ipv6: bool, offset: u32) -> Instructions {
        let mut program = self.accept_own(ipv6, offset);
        program.push(return_instruction(0));
        program
    }

    /// Accepts if the address at `offset` is one of ours, else goes on.
    fn accept_own(&self, ipv6: bool, offset: u32) -> Instructions {
        let own = self.own_addresses.iter().filter(|address| address.is_ipv6() == ipv6);
        own.flat_map(|address| when_address(offset, *address, accept())).collect()
    }

    fn ipv4(&self) -> Instructions {
        // RFC 791: more-fragments flag or an offset.
        let mut program = vec![load(BPF_H, IPV4_FRAGMENT), jump(BPF_JSET, 0x3fff, 0, 1)];
        program.push(return_instruction(0));
        let cases = vec![(17, self.udp_over_ipv4()), (1, self.to_own(false, IPV4_DESTINATION))];
        program.extend(switch(load(BPF_B, IPV4_PROTOCOL), cases));
        program
    }

    fn udp_over_ipv4(&self) -> Instructions {
        let mut program = vec![statement(BPF_LDX | BPF_B | BPF_MSH, IPV4_HEADER)];
        program.push(statement(BPF_LD | BPF_H | BPF_IND, IPV4_HEADER + UDP_PORT));
        program.push(statement(BPF_ST, PORT));
        program.extend(self.accept_ports(false, IPV4_DESTINATION));
        program
    }

    fn udp_over_ipv6(&self) -> Instructions {
        let mut program = vec![load(BPF_H, IPV6_PAYLOAD + UDP_PORT), statement(BPF_ST, PORT)];
        program.extend(self.accept_ports(true, IPV6_DESTINATION));
        program
    }

    /// Accepts if the port in scratch memory is registered for the address at `offset`.
    fn accept_ports(&self, ipv6: bool, offset: u32) -> Instructions {
        let fits = |address: &Option<IpAddr>| address.is_none_or(|ip| ip.is_ipv6() == ipv6);
        let mut program = Vec::new();
        for (address, port) in self.udp_ports.iter().filter(|(address, _)| fits(address)) {
            let body = match address {
                None => accept(),
                Some(address) => when_address(offset, *address, accept()),
            };
            program.extend(when(statement(BPF_LD | BPF_MEM, PORT), (*port).into(), body));
        }
        program.push(return_instruction(0));
        program
    }

    /// Neighbour solicitations go to a multicast group, and advertisements may: there the target
    /// says whom it is about (RFC 4861, 4.3 and 4.4).
    fn icmpv6(&self) -> Instructions {
        let mut program = self.accept_own(true, IPV6_DESTINATION);
        let about_own = self.to_own(true, NEIGHBOUR_TARGET);
        let cases = vec![(135, about_own.clone()), (136, about_own)];
        program.extend(switch(load(BPF_B, IPV6_PAYLOAD), cases));
        program
    }
}

/// Goes to the program of the case that equals the loaded value, or drops. The bodies must end
/// with a return.
fn switch(load: sock_filter, cases: Vec<(u32, Instructions)>) -> Instructions {
    let mut program = vec![load];
    // What lies between a case's jump and its body: the tests after it and the bodies before it.
    let mut distance = 2 * (cases.len() as u32 - 1) + 1;
    for (value, body) in &cases {
        program.push(jump(BPF_JEQ, *value, 0, 1));
        program.push(statement(BPF_JMP | BPF_JA, distance));
        distance = distance + body.len() as u32 - 2;
    }
    program.push(return_instruction(0));
    program.extend(cases.into_iter().flat_map(|(_, body)| body));
    program
}

/// Runs `body` if the loaded value is `value`, else skips it. For short bodies only: a conditional
/// jump reaches 255 instructions.
fn when(load: sock_filter, value: u32, body: Instructions) -> Instructions {
    let skip = u8::try_from(body.len()).expect("bodies have at most nine instructions");
    let mut program = vec![load, jump(BPF_JEQ, value, 0, skip)];
    program.extend(body);
    program
}

/// Runs `body` if the address at `offset` is `address`, word by word.
fn when_address(offset: u32, address: IpAddr, body: Instructions) -> Instructions {
    let octets = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let words =
        octets.chunks_exact(4).map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    let offsets = (offset..).step_by(4);
    let backwards: Vec<_> = offsets.zip(words).collect();
    backwards
        .into_iter()
        .rev()
        .fold(body, |body, (offset, word)| when(load(BPF_W, offset), word, body))
}

fn accept() -> Instructions {
    vec![return_instruction(ALL)]
}

fn load(size: u32, offset: u32) -> sock_filter {
    statement(BPF_LD | size | BPF_ABS, offset)
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn jump(condition: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | condition | BPF_K) as u16, jt, jf, k }
}

#[cfg(test)]
mod tests;
