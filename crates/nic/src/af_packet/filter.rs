//! The classic BPF filter that keeps from our socket what no pattern can match.
//!
//! It lets through at least what a pattern matches, not always at most: the kernel has already
//! taken the outer VLAN tag off, classic BPF cannot follow IPv6 extension headers, and where a
//! pattern leaves open what kind of packet it is about, the fields of all kinds are left out. Whose
//! a frame is, the engine's table decides anyway.
//!
//! The patterns are in the program itself, which is written anew at each change:
//!
//! ```text
//! drop what is on its way from us to the kernel
//! for each pattern: for each field: load, and with mask, next pattern unless equal; let through
//! drop
//! ```

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LDX,
    BPF_MSH, BPF_W, sock_filter,
};

use clearway_wire::digest::{Layer, Network, fields};
use clearway_wire::ethernet::ether_type;

use crate::interface::pattern::ANY_IP;
use crate::interface::{SteerPattern, return_instruction};
use crate::to_kernel;

/// Instructions that the kernel takes (`BPF_MAXINSNS`).
const INSTRUCTIONS_MAX: usize = 4096;

/// More bytes than any frame has: let all of it through.
const ALL: u32 = u32::MAX;

// Where fields are in a frame without VLAN tag.
const MAC_DESTINATION: u32 = 0;
const MAC_SOURCE: u32 = 6;
const ETHER_TYPE: u32 = 12;
const ARP_OPERATION: u32 = 20;
const ARP_SENDER_MAC: u32 = 22;
const ARP_SENDER: u32 = 28;
const ARP_TARGET_MAC: u32 = 32;
const ARP_TARGET: u32 = 38;
const AOE_ADDRESS: u32 = 16;
const IPV4_HEADER: u32 = 14;
const IPV4_FRAGMENT: u32 = 20;
const IPV4_PROTOCOL: u32 = 23;
const IPV4_SOURCE: u32 = 26;
const IPV6_NEXT_HEADER: u32 = 20;
const IPV6_SOURCE: u32 = 22;
const IPV6_PAYLOAD: u32 = 54;

/// IPv6 extension headers that a digest looks through.
const EXTENSIONS: [u32; 4] = [0, 43, 44, 60];

type Instructions = Vec<sock_filter>;

/// The program that drops everything.
pub(super) fn nothing() -> Instructions {
    vec![return_instruction(0)]
}

/// The program that lets everything through that a pattern could be about.
pub(super) fn everything() -> Instructions {
    [not_to_kernel(), let_through()].concat()
}

/// The program for these patterns; `None` if the kernel takes none as long as that.
pub(super) fn compile<'a>(
    patterns: impl Iterator<Item = &'a SteerPattern>,
) -> Option<Instructions> {
    let mut program = not_to_kernel();
    for kind in patterns.flat_map(kinds) {
        program.extend(accept(&kind));
        if program.len() >= INSTRUCTIONS_MAX {
            return None;
        }
    }
    program.extend(nothing());
    Some(program)
}

fn let_through() -> Instructions {
    vec![return_instruction(ALL)]
}

/// Drops what is on its way from us to the kernel (`to_kernel.rs`), and goes on.
fn not_to_kernel() -> Instructions {
    let mark = (libc::SKF_AD_OFF + libc::SKF_AD_MARK) as u32;
    let mut program = vec![statement(BPF_LD | BPF_W | BPF_ABS, mark), jump(to_kernel::MARK, 0, 1)];
    program.extend(nothing());
    program
}

/// A pattern about IP of either version, as one about each.
fn kinds(pattern: &SteerPattern) -> Vec<SteerPattern> {
    let of_ip = pattern.says(fields::NETWORK_IP) == Some(ANY_IP);
    if of_ip && pattern.network().is_none() {
        return [Network::Ipv4, Network::Ipv6].map(|network| pattern.of_network(network)).into();
    }
    vec![*pattern]
}

/// Lets through what `pattern` may match, else goes on.
fn accept(pattern: &SteerPattern) -> Instructions {
    let mut checks = Vec::new();
    ethernet(pattern, &mut checks);
    let mut end = let_through();
    match pattern.network() {
        Some(Network::Ipv4) => ipv4(pattern, &mut checks),
        Some(Network::Ipv6) => end = ipv6(pattern, &mut checks),
        Some(Network::Arp) => arp(pattern, &mut checks),
        Some(Network::Aoe) => aoe(pattern, &mut checks),
        _ => {}
    }
    let when = |body, check: Check| check.then(body);
    checks.into_iter().rev().fold(end, when)
}

fn ethernet(pattern: &SteerPattern, checks: &mut Vec<Check>) {
    for (word, at) in [(1, MAC_DESTINATION), (2, MAC_SOURCE)] {
        let (mask, value) = (pattern.mask()[word], pattern.value()[word]);
        checks.extend(Check::new(BPF_W, at, mask >> 32, value >> 32));
        checks.extend(Check::new(BPF_H, at + 4, mask >> 16 & 0xffff, value >> 16 & 0xffff));
    }
    let (mask, value) = pattern.of(fields::ETHER_TYPE);
    // Behind an outer tag of that type nobody looks, but the kernel has taken it off.
    if (value ^ u64::from(ether_type::SERVICE_VLAN)) & mask != 0 {
        checks.extend(Check::new(BPF_H, ETHER_TYPE, mask, value));
    }
}

fn ipv4(pattern: &SteerPattern, checks: &mut Vec<Check>) {
    checks.extend(Check::new(BPF_H, ETHER_TYPE, 0xffff, ether_type::IPV4.into()));
    addresses(pattern, 3, IPV4_SOURCE, checks);
    let (mask, value) = pattern.of(fields::PROTOCOL);
    checks.extend(Check::new(BPF_B, IPV4_PROTOCOL, mask, value));
    // RFC 791, 3.1: flags and offset. Only a first or only fragment has a transport header.
    let is_first = pattern.says(fields::FIRST_FRAGMENT);
    if is_later_fragment(pattern) {
        let is_whole_or_first = Check::new(BPF_H, IPV4_FRAGMENT, 0x1fff, 0);
        return checks.extend(is_whole_or_first.map(Check::negated));
    }
    if is_first == Some(1) {
        checks.extend(Check::new(BPF_H, IPV4_FRAGMENT, 0x3fff, 0x2000));
    }
    let Some((mut transport, layer)) = transport(pattern) else { return };
    let is_whole = is_first == Some(0);
    checks.extend(Check::new(BPF_H, IPV4_FRAGMENT, if is_whole { 0x3fff } else { 0x1fff }, 0));
    transport.load = statement(BPF_LD | layer | BPF_IND, IPV4_HEADER);
    transport.before = Some(statement(BPF_LDX | BPF_B | BPF_MSH, IPV4_HEADER));
    checks.push(transport);
}

/// Also returns how the program for the pattern ends: what comes behind the addresses may be an
/// extension header, and is let through then.
fn ipv6(pattern: &SteerPattern, checks: &mut Vec<Check>) -> Instructions {
    checks.extend(Check::new(BPF_H, ETHER_TYPE, 0xffff, ether_type::IPV6.into()));
    for word in 0..4 {
        addresses(pattern, 3 + word, IPV6_SOURCE + 8 * word as u32, checks);
    }
    let mut end = vec![statement(BPF_LD | BPF_B | BPF_ABS, IPV6_NEXT_HEADER)];
    for extension in EXTENSIONS {
        end.push(jump(extension, 0, 1));
        end.extend(let_through());
    }
    if is_later_fragment(pattern) || pattern.says(fields::FIRST_FRAGMENT) == Some(1) {
        return end;
    }
    let Some(protocol) = pattern.says(fields::PROTOCOL) else { return let_through() };
    let mut payload = let_through();
    if let Some((mut transport, layer)) = transport(pattern) {
        transport.load = statement(BPF_LD | layer | BPF_ABS, IPV6_PAYLOAD);
        payload = transport.then(payload);
    }
    end.push(jump(protocol as u32, 0, payload.len() as u8));
    end.extend(payload);
    end
}

fn arp(pattern: &SteerPattern, checks: &mut Vec<Check>) {
    checks.extend(Check::new(BPF_H, ETHER_TYPE, 0xffff, ether_type::ARP.into()));
    let (mask, value) = pattern.of(fields::ARP_OPERATION);
    checks.extend(Check::new(BPF_H, ARP_OPERATION, mask, value));
    let (mask, value) = (pattern.mask()[3], pattern.value()[3]);
    checks.extend(Check::new(BPF_W, ARP_SENDER, mask >> 32, value >> 32));
    checks.extend(Check::new(BPF_W, ARP_TARGET, mask & u64::from(u32::MAX), value));
    for (word, at) in [(4, ARP_SENDER_MAC), (5, ARP_TARGET_MAC)] {
        let (mask, value) = (pattern.mask()[word], pattern.value()[word]);
        checks.extend(Check::new(BPF_H, at, mask >> 32 & 0xffff, value >> 32));
        checks.extend(Check::new(BPF_W, at + 2, mask & u64::from(u32::MAX), value));
    }
}

fn aoe(pattern: &SteerPattern, checks: &mut Vec<Check>) {
    checks.extend(Check::new(BPF_H, ETHER_TYPE, 0xffff, 0x88a2));
    addresses(pattern, 3, AOE_ADDRESS, checks);
}

/// The eight bytes of the frame at `at` that are a word of the digest.
fn addresses(pattern: &SteerPattern, word: usize, at: u32, checks: &mut Vec<Check>) {
    let (mask, value) = (pattern.mask()[word], pattern.value()[word]);
    checks.extend(Check::new(BPF_W, at, mask >> 32, value >> 32));
    checks.extend(Check::new(BPF_W, at + 4, mask & u64::from(u32::MAX), value));
}

fn is_later_fragment(pattern: &SteerPattern) -> bool {
    pattern.says(fields::LAYER) == Some(Layer::LaterFragment as u64)
}

/// What a transport header begins with, if the pattern says that there is one, and the size of
/// that. Where it is, the caller knows.
fn transport(pattern: &SteerPattern) -> Option<(Check, u32)> {
    let (field, size) = match Layer::from_bits(pattern.says(fields::LAYER)?) {
        Layer::Ports => (fields::PORTS, BPF_W),
        Layer::Icmp => (fields::ICMP_TYPE_AND_CODE, BPF_H),
        _ => return None,
    };
    let (mask, value) = pattern.of(field);
    Some((Check::new(size, 0, mask, value)?, size))
}

/// One comparison.
struct Check {
    before: Option<sock_filter>,
    load: sock_filter,
    mask: u32,
    value: u32,
    /// They have to differ.
    is_negated: bool,
}

impl Check {
    /// Of the bytes at a fixed place; `None` if no bit of them matters.
    fn new(size: u32, at: u32, mask: u64, value: u64) -> Option<Check> {
        let (mask, value) = (mask as u32, (value & mask) as u32);
        let load = statement(BPF_LD | size | BPF_ABS, at);
        (mask != 0).then_some(Check { before: None, load, mask, value, is_negated: false })
    }

    fn negated(self) -> Check {
        Check { is_negated: true, ..self }
    }

    /// Runs `body` if the bytes are as they should be, else skips it. A conditional jump reaches
    /// 255 instructions, which is more than one pattern takes.
    fn then(self, body: Instructions) -> Instructions {
        let skip = u8::try_from(body.len()).expect("a pattern takes at most 80 instructions");
        let mut program: Instructions = self.before.into_iter().collect();
        program.push(self.load);
        program.push(statement(BPF_ALU | BPF_AND | BPF_K, self.mask));
        let (equal, different) = if self.is_negated { (skip, 0) } else { (0, skip) };
        program.push(jump(self.value, equal, different));
        program.extend(body);
        program
    }
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Skips `jt` instructions if what was loaded is `k`, else `jf`.
fn jump(k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | BPF_JEQ | BPF_K) as u16, jt, jf, k }
}

#[cfg(test)]
mod tests;
