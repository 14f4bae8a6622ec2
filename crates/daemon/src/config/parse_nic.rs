//! The `[[nic]]` sections.

use std::net::IpAddr;
use std::ops::Range;

use clearway_nic::MacAddress;

use super::parse::{SOCKET_PATH_BYTES_MAX, check_socket_path};
use super::parse_dpdk;
use super::parse_routes;
use super::reader::{Placed, Section};
use super::{
    Driver, ENGINES_MAX, Idle, Interface, InterfaceDriver, Machine, Memif, MemifRole, Network, Nic,
    Tap, XdpMode,
};

/// A host that only speaks IPv4 gets by with that (RFC 791, section 3.1).
const MTU_BYTES_MIN: u64 = 576;
/// RFC 8200, section 5: "IPv6 requires that every link in the Internet have an MTU of 1280 octets
/// or greater."
pub(super) const MTU_BYTES_MIN_IPV6: u64 = 1280;
/// What the total length of an IPv4 packet can say (RFC 791, section 3.1), less the room that an
/// Ethernet header and a VLAN tag take in a memif buffer of 64 KiB.
const MTU_BYTES_MAX: u64 = 65_518;
/// `memif` carries the secret in 24 bytes, and the last is zero.
const SECRET_BYTES_MAX: usize = 23;
/// What a memif can have (docs of libmemif; the protocol itself has room for more).
const QUEUE_PAIRS_MAX: usize = 16;
/// Names show up in tables and in error messages.
const NAME_BYTES_MAX: usize = 64;

/// `IFNAMSIZ` of linux/if.h, less the closing zero.
const INTERFACE_NAME_BYTES_MAX: usize = 15;

const ONLY_MEMIF: [&str; 6] = ["socket", "role", "id", "secret", "queue_pairs", "buffer_bytes"];
const MAC: [&str; 1] = ["mac"];
const ONLY_INTERFACE: [&str; 3] = ["interface", "mode", "super_frames"];
const NOT_TAP: [&str; 8] =
    ["socket", "role", "id", "secret", "queue_pairs", "buffer_bytes", "mode", "queues"];
const ONLY_DPDK: [&str; 3] = ["eal", "device", "offloads"];

#[derive(Clone, Copy)]
enum Kind {
    Memif,
    Dpdk,
    Udp,
    Tap,
    Interface(InterfaceDriver),
}

pub(super) fn nics(sections: Vec<Section<'_>>, machine: &dyn Machine) -> Vec<Nic> {
    let mut nics: Vec<Nic> = Vec::new();
    for mut section in sections {
        let parsed = nic(&mut section, machine);
        if let Some(nic) = parsed {
            refuse_duplicates(&nics, &nic, &section);
            nics.push(nic);
        }
        section.finish();
    }
    nics
}

fn nic(section: &mut Section<'_>, machine: &dyn Machine) -> Option<Nic> {
    let name = name(section);
    let (engines, cores) = engines(section, machine);
    let driver = driver(section, engines, machine);
    let addresses = addresses(section);
    let routes = parse_routes::routes(section, &addresses);
    let mtu_bytes = section.integer("mtu_bytes", MTU_BYTES_MIN..=MTU_BYTES_MAX);
    check_mtu(section, mtu_bytes.as_ref(), &addresses);
    let vlan = section.integer("vlan", 1..=4094);
    let idle = section.choice(
        "idle",
        &[
            ("adaptive", Idle::Adaptive),
            ("spin", Idle::Spin),
            ("yield", Idle::Yield),
            ("block", Idle::Block),
        ],
    );
    let driver = driver?;
    check_scope(section, &driver, &addresses);
    check_vlan(section, vlan.as_ref(), &driver, &addresses);
    if addresses.is_empty()
        && let Some(why) = needs_addresses(&driver)
    {
        section.report(section.span(), why, "add, for example, `addresses = [\"10.0.0.1/24\"]`");
    }
    Some(Nic {
        name: name.unwrap_or_else(|| default_name(&driver)),
        driver,
        addresses: addresses.into_iter().map(|address| address.value).collect(),
        routes,
        mtu_bytes: mtu_bytes.map(|mtu| mtu.value as u16),
        vlan: vlan.map(|vlan| vlan.value as u16),
        engines,
        idle: idle.unwrap_or(Idle::Adaptive),
        cores,
    })
}

/// The kernel's addresses of an interface are those of untagged frames.
fn check_vlan(
    section: &Section<'_>,
    vlan: Option<&Placed<u64>>,
    driver: &Driver,
    addresses: &[Placed<Network>],
) {
    let Some(vlan) = vlan.filter(|_| addresses.is_empty()) else { return };
    if let Driver::Interface(interface) = driver {
        section.report(
            &vlan.span,
            format!("with `vlan`, the addresses of {} are not this NIC's", interface.name),
            "add those that it has on the VLAN, for example `addresses = [\"10.0.0.1/24\"]`; or \
             remove the line, and name an interface of the VLAN (ip link add link ... type vlan)",
        );
    }
}

/// Sockets would have to be told which link it is that an address is of. Packets of the loopback's
/// addresses leave no host (RFC 1122, section 3.2.1.3): daemons of one host reach each other there
/// by the kernel's sockets only.
fn check_scope(section: &Section<'_>, driver: &Driver, addresses: &[Placed<Network>]) {
    if *driver == Driver::Udp {
        let is_of_a_link = |own: &&Placed<Network>| parse_routes::is_link_local(own.value.address);
        for own in addresses.iter().filter(is_of_a_link) {
            section.report(
                &own.span,
                format!("{} is of one link, and UDP sockets go by all", own.value.address),
                "give another address of the host, or have a NIC with `interface`",
            );
        }
        return;
    }
    for own in addresses.iter().filter(|own| own.value.address.is_loopback()) {
        section.report(
            &own.span,
            format!("{} is the loopback's, and other hosts drop it", own.value.address),
            "give an address of the network that the NIC is on",
        );
    }
}

fn check_mtu(section: &Section<'_>, mtu: Option<&Placed<u64>>, addresses: &[Placed<Network>]) {
    let Some(mtu) = mtu.filter(|mtu| mtu.value < MTU_BYTES_MIN_IPV6) else { return };
    let is_ipv6 = |address: &&Placed<Network>| address.value.address.is_ipv6();
    if let Some(address) = addresses.iter().find(is_ipv6) {
        section.report(
            &mtu.span,
            format!(
                "`mtu_bytes = {}` is too little for {}: IPv6 needs {MTU_BYTES_MIN_IPV6}",
                mtu.value, address.value.address
            ),
            "raise it, or remove the addresses of IPv6",
        );
    }
}

/// Why a NIC of this driver has no addresses but those that are given, if so.
fn needs_addresses(driver: &Driver) -> Option<&'static str> {
    match driver {
        Driver::Memif(_) | Driver::Dpdk(_) => Some(
            "a memif or dpdk NIC needs `addresses`; there is no kernel interface to take them from",
        ),
        Driver::Tap(_) => {
            Some("a tap NIC needs `addresses`; those of its interface are the kernel's own")
        }
        Driver::Interface(_) | Driver::Udp => None,
    }
}

fn default_name(driver: &Driver) -> String {
    match driver {
        Driver::Interface(interface) => interface.name.clone(),
        Driver::Tap(tap) => tap.interface.clone(),
        Driver::Memif(memif) => format!("memif{}", memif.id),
        Driver::Dpdk(dpdk) => dpdk.name().to_owned(),
        Driver::Udp => "udp".to_owned(),
    }
}

fn name(section: &mut Section<'_>) -> Option<String> {
    let name = section.string("name")?;
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    if name.value.is_empty() || name.value.len() > NAME_BYTES_MAX || !name.value.bytes().all(fine) {
        section.report(
            &name.span,
            format!("`name = \"{}\"` cannot be the name of a NIC", name.value),
            format!("use 1 to {NAME_BYTES_MAX} letters, digits, '-', '_', '.' or ':'"),
        );
    }
    Some(name.value)
}

/// How many engines there are, and their cores: one for each that is named, if it is not said
/// otherwise.
fn engines(section: &mut Section<'_>, machine: &dyn Machine) -> (usize, Vec<usize>) {
    let count = section.integer("engines", 1..=ENGINES_MAX as u64);
    let cores = cores(section, machine);
    let engines = match &count {
        Some(count) => count.value as usize,
        None => cores.len().clamp(1, ENGINES_MAX),
    };
    if !cores.is_empty() && cores.len() != engines {
        let span = count.map_or_else(|| section.span().clone(), |count| count.span);
        section.report(
            &span,
            format!("{engines} engines cannot be pinned to {} cores", cores.len()),
            "name one core for each engine in `cores`",
        );
    }
    (engines, cores)
}

fn cores(section: &mut Section<'_>, machine: &dyn Machine) -> Vec<usize> {
    let mut cores = Vec::new();
    for text in section.strings("cores", true) {
        match text.value.parse::<usize>().ok().filter(|core| machine.cores().contains(core)) {
            Some(core) if cores.contains(&core) => section.report(
                &text.span,
                format!("core {core} stands twice, and each engine has one of its own"),
                "name others, or fewer",
            ),
            Some(core) => cores.push(core),
            None => section.report(
                &text.span,
                format!("core {} does not exist or is not for this process", text.value),
                format!("choose from {:?}", machine.cores()),
            ),
        }
    }
    cores
}

/// `None` if what is given is none: then nobody knows what its other keys mean.
fn kind(section: &mut Section<'_>) -> Option<Kind> {
    let kind = section.choice(
        "driver",
        &[
            ("auto", Kind::Interface(InterfaceDriver::Auto)),
            ("af_xdp", Kind::Interface(InterfaceDriver::AfXdp)),
            ("af_packet", Kind::Interface(InterfaceDriver::AfPacket)),
            ("memif", Kind::Memif),
            ("dpdk", Kind::Dpdk),
            ("udp", Kind::Udp),
            ("tap", Kind::Tap),
        ],
    );
    if kind.is_none() && section.has("driver") {
        for keys in [&ONLY_MEMIF[..], &MAC, &ONLY_INTERFACE, &ONLY_DPDK, &["queues"]] {
            section.ignore(keys);
        }
        return None;
    }
    Some(kind.unwrap_or(Kind::Interface(InterfaceDriver::Auto)))
}

fn driver(section: &mut Section<'_>, engines: usize, machine: &dyn Machine) -> Option<Driver> {
    match kind(section)? {
        Kind::Memif => {
            const WHY: &str = "for a NIC with `driver = \"memif\"`";
            section.forbid(&ONLY_INTERFACE, WHY);
            section.forbid(&ONLY_DPDK, WHY);
            section.forbid(&["queues"], WHY);
            memif(section, engines).map(Driver::Memif)
        }
        Kind::Dpdk => {
            const WHY: &str = "for a NIC with `driver = \"dpdk\"`";
            section.forbid(&ONLY_INTERFACE, WHY);
            section.forbid(&ONLY_MEMIF, WHY);
            section.forbid(&MAC, WHY);
            parse_dpdk::dpdk(section, engines).map(Driver::Dpdk)
        }
        Kind::Udp => {
            const WHY: &str = "for a NIC with `driver = \"udp\"`, which goes by all interfaces";
            section.forbid(&ONLY_INTERFACE, WHY);
            section.forbid(&ONLY_MEMIF, WHY);
            section.forbid(&MAC, WHY);
            section.forbid(&ONLY_DPDK, WHY);
            section.forbid(&["queues", "vlan", "routes", "gateway", "gateways"], WHY);
            Some(Driver::Udp)
        }
        Kind::Tap => {
            section.forbid(
                &NOT_TAP,
                "for a NIC with `driver = \"tap\"`, which has a queue for each engine",
            );
            section.forbid(&ONLY_DPDK, "for a NIC with `driver = \"tap\"`");
            Some(Driver::Tap(tap(section)))
        }
        Kind::Interface(driver) => {
            for (keys, other) in [(&ONLY_DPDK[..], "dpdk"), (&ONLY_MEMIF[..], "memif")] {
                let why = format!("for a NIC whose driver is not \"{other}\"");
                let remedy = format!("remove the line, or have `driver = \"{other}\"`");
                section.forbid_or(keys, &why, &remedy);
            }
            section.forbid(&MAC, "for a NIC whose driver is neither \"memif\" nor \"tap\"");
            interface(section, driver, engines, machine).map(Driver::Interface)
        }
    }
}

fn interface(
    section: &mut Section<'_>,
    driver: InterfaceDriver,
    engines: usize,
    machine: &dyn Machine,
) -> Option<Interface> {
    let mode = section.choice(
        "mode",
        &[
            ("auto", XdpMode::Auto),
            ("zero-copy", XdpMode::ZeroCopy),
            ("copy", XdpMode::Copy),
            ("generic", XdpMode::Generic),
        ],
    );
    let queues = section.integer("queues", 1..=machine.cores().len() as u64);
    if let Some(queues) = queues.as_ref().filter(|queues| (queues.value as usize) < engines) {
        report_queues(section, &queues.span.clone(), engines, "queues");
    }
    if driver == InterfaceDriver::AfPacket && mode.is_some_and(|mode| mode != XdpMode::Auto) {
        section.report(
            section.span(),
            "`mode` is a choice of AF_XDP, and `driver = \"af_packet\"` is another",
            "remove one of the two lines",
        );
    }
    let super_frames = section.boolean("super_frames");
    let is_xdp = driver == InterfaceDriver::AfXdp || mode.is_some_and(|mode| mode != XdpMode::Auto);
    if is_xdp && super_frames.is_some() {
        section.report(
            section.span(),
            "`super_frames` are AF_PACKET's, and `driver` or `mode` of this NIC is AF_XDP's",
            "remove one of the lines",
        );
    }
    let Some(name) = section.string("interface") else {
        section.report(
            section.span(),
            "this [[nic]] names no `interface`",
            format!("add `interface = \"...\"`; {}", interfaces_there(machine)),
        );
        return None;
    };
    if name.value == "lo" {
        section.report(
            &name.span,
            "\"lo\" leads to no other host, and apps of this one need no NIC between them",
            format!("name an interface with a network behind it; {}", interfaces_there(machine)),
        );
    }
    if !may_be_interface(&name.value) {
        section.report(
            &name.span,
            format!("there is never an interface with the name \"{}\"", name.value),
            format!(
                "use 1 to {INTERFACE_NAME_BYTES_MAX} bytes without '/', ':' and spaces; {}",
                interfaces_there(machine)
            ),
        );
    }
    Some(Interface {
        name: name.value,
        driver,
        mode: mode.unwrap_or(XdpMode::Auto),
        queues: queues.map(|queues| queues.value as usize),
        super_frames,
    })
}

/// The interface need not be there.
fn tap(section: &mut Section<'_>) -> Tap {
    let mac = mac(section);
    let super_frames = section.boolean("super_frames").unwrap_or(true);
    let interface = section.string("interface").map(|name| {
        if !is_interface_name(&name.value) {
            section.report(
                &name.span,
                format!("\"{}\" cannot be the name of an interface", name.value),
                format!(
                    "use 1 to {INTERFACE_NAME_BYTES_MAX} letters, digits, '-', '_' or '.', but not \
                     \"lo\""
                ),
            );
        }
        name.value
    });
    let interface = interface.unwrap_or_else(|| Tap::INTERFACE_DEFAULT.to_owned());
    Tap { interface, mac, super_frames }
}

/// Whether the kernel takes it as a name, which administrators choose as they like: what it says in
/// `dev_valid_name`. For another, the daemon would wait for ever.
fn may_be_interface(name: &str) -> bool {
    let is_fine = |byte: u8| !b"/:\x0b".contains(&byte) && !byte.is_ascii_whitespace();
    let is_path = [".", ".."].contains(&name);
    (1..=INTERFACE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_fine) && !is_path
}

/// One that the daemon gives.
fn is_interface_name(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_taken = ["lo", ".", ".."].contains(&name);
    (1..=INTERFACE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fine) && !is_taken
}

pub(super) fn report_queues(
    section: &mut Section<'_>,
    span: &Range<usize>,
    engines: usize,
    key: &str,
) {
    section.report(
        span,
        format!("{engines} engines need a queue each, and there are fewer"),
        format!("raise `{key}` to {engines}, or lower `engines`"),
    );
}

fn interfaces_there(machine: &dyn Machine) -> String {
    format!("those there are: {} (see `ip link`)", machine.interfaces().join(", "))
}

fn memif(section: &mut Section<'_>, engines: usize) -> Option<Memif> {
    let roles = [("server", MemifRole::Server), ("client", MemifRole::Client)];
    let role = section.choice("role", &roles);
    let id = section.integer("id", 0..=u64::from(u32::MAX));
    let secret = secret(section);
    let queue_pairs = section.integer("queue_pairs", 1..=QUEUE_PAIRS_MAX as u64);
    match &queue_pairs {
        Some(pairs) if (pairs.value as usize) < engines => {
            report_queues(section, &pairs.span.clone(), engines, "queue_pairs");
        }
        None if engines > QUEUE_PAIRS_MAX => section.report(
            section.span(),
            format!("a memif has no more than {QUEUE_PAIRS_MAX} queue pairs, one for each engine"),
            format!("lower `engines` to {QUEUE_PAIRS_MAX}"),
        ),
        _ => {}
    }
    let buffer_bytes = section.integer("buffer_bytes", 512..=65536);
    let mac = mac(section);
    let named = section.has("socket");
    let socket = memif_socket(section);
    if !named {
        section.report(
            section.span(),
            "this memif NIC names no `socket`",
            "add `socket = \"/path/that/both/sides/know\"`",
        );
    }
    if !section.has("role") {
        section.report(
            section.span(),
            "this memif NIC has no `role`",
            "add `role = \"server\"` on one side of the link and `role = \"client\"` on the other",
        );
    }
    let mut link = Memif::new(socket?, role?);
    link.id = id.map_or(link.id, |id| id.value as u32);
    link.secret = secret.unwrap_or_default();
    link.queue_pairs = queue_pairs.map_or(engines as u16, |pairs| pairs.value as u16);
    link.buffer_bytes = buffer_bytes.map(|bytes| bytes.value as u32);
    link.mac = mac;
    Some(link)
}

/// The `socket` of a memif: a path, or a name in the abstract namespace, as in other tools.
pub fn memif_socket(section: &mut Section<'_>) -> Option<String> {
    let text = section.string("socket")?;
    if text.value.starts_with('@') && (2..=SOCKET_PATH_BYTES_MAX).contains(&text.value.len()) {
        return Some(text.value);
    }
    check_socket_path(section, text)
}

/// The secret itself is not repeated in the message.
fn secret(section: &mut Section<'_>) -> Option<String> {
    let secret = section.string("secret")?;
    if secret.value.is_empty() {
        section.report(&secret.span, "an empty `secret` is none", "write one, or remove the line");
    }
    if secret.value.len() > SECRET_BYTES_MAX || secret.value.contains('\0') {
        section.report(
            &secret.span,
            format!("the secret is longer than {SECRET_BYTES_MAX} bytes, or has a zero in it"),
            "change it on both sides of the link",
        );
    }
    Some(secret.value)
}

/// The `mac` of a station.
pub fn mac(section: &mut Section<'_>) -> Option<MacAddress> {
    let mac = section.string("mac")?;
    let parsed = parse_mac(&mac.value);
    if parsed.is_none() {
        section.report(
            &mac.span,
            format!("`mac = \"{}\"` is not the Ethernet address of one station", mac.value),
            "write six pairs of hex digits whose first is even, such as \"02:00:00:00:00:01\"",
        );
    }
    parsed
}

fn parse_mac(text: &str) -> Option<MacAddress> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    let unicast = mac[0] & 1 == 0 && mac != [0; 6];
    (parts.next().is_none() && unicast).then_some(mac)
}

fn addresses(section: &mut Section<'_>) -> Vec<Placed<Network>> {
    let mut addresses: Vec<Placed<Network>> = Vec::new();
    for text in section.strings("addresses", false) {
        let Some(network) = parse_network(&text.value).filter(is_of_a_host) else {
            section.report(
                &text.span,
                format!("\"{}\" is not an address of a host with its prefix", text.value),
                "write it as in \"10.0.0.1/24\" or \"fd00::1/64\"",
            );
            continue;
        };
        if addresses.iter().any(|other| other.value.address == network.address) {
            section.report(&text.span, format!("{} stands twice", network.address), "remove one");
        }
        addresses.push(Placed { value: network, span: text.span });
    }
    addresses
}

/// False for the network itself and its broadcast address. Links of two hosts (RFC 3021) and single
/// addresses have neither.
pub(super) fn is_of_a_host(network: &Network) -> bool {
    let IpAddr::V4(address) = network.address else { return true };
    let hosts = u32::MAX.checked_shr(network.prefix_bits.into()).unwrap_or(0);
    let host = address.to_bits() & hosts;
    !address.is_broadcast() && (hosts <= 1 || (host != 0 && host != hosts))
}

pub(super) fn parse_network(text: &str) -> Option<Network> {
    let (address, prefix) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let prefix_bits: u8 = prefix.parse().ok()?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    (names_a_host(address) && (1..=bits).contains(&prefix_bits))
        .then_some(Network { address, prefix_bits })
}

/// False for what no packet comes from: RFC 1122, section 3.2.1.3, and RFC 4291, sections 2.5.2,
/// 2.5.5.2 and 2.7. Other hosts drop it.
pub(super) fn names_a_host(address: IpAddr) -> bool {
    let is_reserved = match address {
        IpAddr::V4(address) => address.octets()[0] == 0,
        IpAddr::V6(address) => address.is_unspecified() || address.to_ipv4_mapped().is_some(),
    };
    !is_reserved && !address.is_multicast()
}

fn refuse_duplicates(before: &[Nic], nic: &Nic, section: &Section<'_>) {
    if before.iter().any(|other| other.name == nic.name) {
        section.report(
            section.span(),
            format!("there are two NICs with the name \"{}\"", nic.name),
            "give each a `name` of its own",
        );
    }
    let interface = interface_of(nic);
    if interface.is_some() && before.iter().any(|other| interface_of(other) == interface) {
        section.report(
            section.span(),
            "there are two NICs on the same interface",
            "describe each interface once; one [[nic]] uses all its queues",
        );
    }
    refuse_overlaps_of_udp(before, nic, section);
    refuse_overlaps_of_memif(before, nic, section);
    parse_dpdk::refuse_duplicates(before, nic, section);
    let shared = nic.addresses.iter().find(|network| {
        before.iter().any(|other| other.addresses.iter().any(|n| n.address == network.address))
    });
    if let Some(network) = shared {
        section.report(
            section.span(),
            format!("the address {} belongs to two NICs", network.address),
            "give each NIC addresses of its own",
        );
    }
}

/// The interface of the kernel that a NIC is, or is at the other end of.
fn interface_of(nic: &Nic) -> Option<&str> {
    match &nic.driver {
        Driver::Interface(interface) => Some(&interface.name),
        Driver::Tap(tap) => Some(&tap.interface),
        Driver::Memif(_) | Driver::Dpdk(_) | Driver::Udp => None,
    }
}

/// A socket of memif has one server, and a link one client.
fn refuse_overlaps_of_memif(before: &[Nic], nic: &Nic, section: &Section<'_>) {
    let Driver::Memif(link) = &nic.driver else { return };
    let overlaps = |other: &Nic| match &other.driver {
        Driver::Memif(other) => {
            let is_same_link = link.role == MemifRole::Server || link.id == other.id;
            link.socket == other.socket && link.role == other.role && is_same_link
        }
        _ => false,
    };
    if let Some(other) = before.iter().find(|other| overlaps(other)) {
        section.report(
            section.span(),
            format!("the NIC \"{}\" has the same memif socket in the same role", other.name),
            "give each a `socket` of its own; two clients of one socket may have other `id`s",
        );
    }
}

/// Sockets at all addresses leave none to another NIC.
fn refuse_overlaps_of_udp(before: &[Nic], nic: &Nic, section: &Section<'_>) {
    let takes_all = |nic: &Nic| nic.driver == Driver::Udp && nic.addresses.len() != 1;
    let has_kernels = |nic: &Nic| matches!(nic.driver, Driver::Udp | Driver::Interface(_));
    let overlap = |one: &Nic, other: &Nic| takes_all(one) && has_kernels(other);
    if before.iter().any(|other| overlap(other, nic) || overlap(nic, other)) {
        section.report(
            section.span(),
            "a NIC with `driver = \"udp\"` has the UDP port at all addresses of the kernel, and \
             there is another NIC at the kernel's addresses",
            "remove one of them, or name the one address that is the first's in its `addresses`",
        );
    }
}
