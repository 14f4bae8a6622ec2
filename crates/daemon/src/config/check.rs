//! What can be found wrong with a configuration without starting the daemon, beside what is wrong
//! in the text itself: it is held against the files, interfaces and daemons that there are now.
//!
//! It looks and changes nothing. What is wrong now may be right when the daemon starts, so only
//! `--check` asks.

use std::fs::{self, Metadata};
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use clearway_nic::interface::{Device, Facts, HostWatch, Ways};
use clearway_nic::tap;
use rustix::fs::{Access, access};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::notes::notes;
use super::{
    Config, Driver, Interface, InterfaceDriver, Machine, MemifRole, Network, Nic, Problem,
    Problems, Tap, ThisMachine, XdpMode,
};
use crate::broker::CONFIG_BYTES_MAX;
use crate::nic::{are_of_kernel, dpdk_is_built_in, mtu_of_udp, refuse_addresses_of_kernel};
use crate::privileges::OwnUser;

/// Drivers of the kernel that have no buffers to receive into, and so no zero-copy.
const WITHOUT_ZERO_COPY: [&str; 8] =
    ["veth", "bridge", "dummy", "bonding", "tun", "macvlan", "ipvlan", "loopback"];

/// What is in the way of a daemon with this configuration, which was read from `path`. If nothing
/// is: what is worth knowing.
pub fn check(config: &Config, path: &Path) -> Result<Vec<String>, Problems> {
    let mut found = Found::default();
    let control = config.control.socket.as_path();
    found.directory(control, Kind::Control);
    found.file(control, Kind::Control);
    found.metrics(config);
    found.secrets(config, path);
    found.file_itself(config, path);
    found.limits(config);
    found.notes.extend(notes(config, ThisMachine.cores().len()));
    for nic in &config.nics {
        match &nic.driver {
            Driver::Memif(link) if !link.socket.starts_with('@') => {
                let socket = Path::new(&link.socket);
                let kind = match link.role {
                    MemifRole::Server => Kind::Server,
                    MemifRole::Client => Kind::Client,
                };
                if socket.parent() != control.parent() {
                    found.directory(socket, kind);
                }
                found.file(socket, kind);
            }
            Driver::Interface(interface) => found.interface(nic, interface),
            Driver::Tap(device) => found.tap(nic, device),
            Driver::Dpdk(device) => found.mend(dpdk_is_built_in(device)),
            Driver::Udp => found.udp(nic),
            Driver::Memif(_) => {}
        }
    }
    found.finish(path)
}

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The daemon makes it, and the directory if need be.
    Control,
    /// The daemon makes it.
    Server,
    /// Somebody else makes it, perhaps later.
    Client,
    /// The daemon makes it, for whoever reads metrics.
    Metrics,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Control => "the control socket",
            Self::Server | Self::Client => "the memif socket",
            Self::Metrics => "the socket of metrics",
        }
    }
}

#[derive(Default)]
struct Found {
    problems: Vec<Problem>,
    notes: Vec<String>,
}

impl Found {
    fn add(&mut self, cause: impl Into<String>, remedy: impl Into<String>) {
        let (cause, remedy) = (cause.into(), remedy.into());
        self.problems.push(Problem { line: 0, column: 0, cause, remedy });
    }

    fn finish(self, path: &Path) -> Result<Vec<String>, Problems> {
        let file = path.display().to_string();
        if self.problems.is_empty() {
            Ok(self.notes)
        } else {
            Err(Problems { file, list: self.problems })
        }
    }

    /// What is in the place of a socket already.
    fn file(&mut self, socket: &Path, kind: Kind) {
        let (what, name) = (kind.name(), socket.display());
        let Ok(metadata) = fs::symlink_metadata(socket) else { return };
        if !metadata.file_type().is_socket() {
            let cause = format!("{what} {name} is there already, and is no socket");
            self.add(cause, "remove the file, or choose another path");
        } else if kind == Kind::Control && somebody_listens(socket) {
            // Perhaps the one that is to be started again with this configuration.
            self.notes.push(format!("at {what} {name} a daemon is running"));
        }
    }

    /// The directory of a socket, or the one above if it will be made there.
    fn directory(&mut self, socket: &Path, kind: Kind) {
        let Some(directory) = socket.parent() else { return };
        let (what, name, shown) = (kind.name(), socket.display(), directory.display());
        let there = match directory.metadata() {
            Ok(metadata) if metadata.is_dir() => Some(directory),
            Ok(_) => {
                let cause = format!("{shown}, where {what} {name} is to be, is no directory");
                return self.add(cause, "choose another path");
            }
            Err(_) if kind == Kind::Control => directory.parent().filter(|above| above.is_dir()),
            Err(_) => None,
        };
        let may_make = |there| access(there, Access::WRITE_OK | Access::EXEC_OK).is_ok();
        match there {
            None => {
                let cause = format!("there is no directory {shown} for {what} {name}");
                self.add(cause, format!("make it: mkdir -p {shown}"));
            }
            Some(there) if kind != Kind::Client && !may_make(there) => {
                let cause = format!("this user may make no socket in {shown} ({what} {name})");
                self.add(cause, "choose a directory of the daemon's user, such as /run/clearway");
            }
            Some(_) => {}
        }
    }

    /// Where metrics are to be served.
    fn metrics(&mut self, config: &Config) {
        for address in &config.metrics.listen {
            match TcpListener::bind(address) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => self.notes.push(format!(
                    "somebody listens at {address}, where metrics are to be served: if that is \
                     not the daemon that runs now, name another address in `listen` of [metrics]"
                )),
                Err(error) => {
                    let cause = format!("metrics cannot be served at {address}: {error}");
                    self.add(cause, "name another address of this host in `listen` of [metrics]");
                }
            }
        }
        if let Some(socket) = &config.metrics.socket {
            if socket.parent() != config.control.socket.parent() {
                self.directory(socket, Kind::Metrics);
            }
            self.file(socket, Kind::Metrics);
        }
    }

    /// Whoever can read a memif's secret needs none.
    fn secrets(&mut self, config: &Config, path: &Path) {
        let is_secret = |nic: &Nic| matches!(&nic.driver, Driver::Memif(m) if !m.secret.is_empty());
        let Some(nic) = config.nics.iter().find(|nic| is_secret(nic)) else { return };
        if path.metadata().is_ok_and(|metadata| metadata.mode() & 0o004 != 0) {
            let cause = format!("everybody can read the `secret` of the NIC \"{}\"", nic.name);
            self.add(cause, format!("chmod o-r {}", path.display()));
        }
    }

    /// It is read again as the daemon's user, and whenever a NIC is opened again.
    fn file_itself(&mut self, config: &Config, path: &Path) {
        let Ok(file) = path.metadata() else { return };
        let user = OwnUser::wanted(config).ok().flatten();
        self.notes.extend(notes_of_file(path, &file, user.as_ref()));
    }

    /// What a user may have is checked with the text where all that there is stands in it.
    fn limits(&mut self, config: &Config) {
        let limits = &config.policy.limits;
        let (one, all) = (limits.memory_per_user_bytes, limits.memory_total_bytes);
        if one > all {
            self.notes.push(format!(
                "`memory_per_user_bytes = {one}` is never reached: all users together have half of \
                 this machine's memory, {all} bytes, unless `memory_total_bytes` says otherwise"
            ));
        }
    }

    /// An interface of the kernel that is not there yet will be waited for.
    fn interface(&mut self, nic: &Nic, interface: &Interface) {
        let Ok(facts) = Facts::of(&interface.name) else {
            return self.notes.push(format!(
                "there is no interface \"{}\" in this network namespace, and the daemon would \
                 wait for it; those there are: {} (see `ip link`)",
                interface.name,
                ThisMachine.interfaces().join(", ")
            ));
        };
        self.queues(nic, interface);
        self.mtu(nic, &facts);
        self.mode(nic, interface, &facts);
        self.gateways(nic, &facts);
        self.addresses(nic, &facts);
        self.mend(are_of_kernel(nic, &facts).map(drop));
    }

    /// Sockets can only be at an address that the kernel has.
    fn udp(&mut self, nic: &Nic) {
        let Ok(interfaces) = nix::ifaddrs::getifaddrs() else { return };
        let there: Vec<IpAddr> = interfaces.filter_map(|own| ip_of(&own.address?)).collect();
        for network in nic.addresses.iter().filter(|own| !there.contains(&own.address)) {
            let cause = format!("this host has no address {} (`ip address`)", network.address);
            self.add(cause, format!("correct `addresses` of the NIC \"{}\"", nic.name));
        }
        if let Ok(ways) = HostWatch::open().and_then(|mut watch| watch.ways()) {
            self.notes.extend(udp_carries_less(nic, &ways));
        }
    }

    /// A tap device that is not there yet will be made.
    fn tap(&mut self, nic: &Nic, device: &Tap) {
        let name = &device.interface;
        self.mend(tap::is_possible());
        let Ok(there) = Device::open(name) else {
            return self.notes.push(format!(
                "there is no tap device {name}: the daemon makes it, and the kernel's addresses \
                 are yours to give (ip address add ADDRESS/PREFIX dev {name})"
            ));
        };
        self.mend(tap::check(&there));
        if let Ok(facts) = Facts::of(name) {
            self.mtu(nic, &facts);
            self.mend(refuse_addresses_of_kernel(nic, &facts));
            self.addresses(nic, &facts);
        }
    }

    /// Errors of drivers name cause and remedy.
    fn mend(&mut self, outcome: Result<(), clearway_nic::Error>) {
        if let Err(error) = outcome {
            self.add(error.to_string(), "");
        }
    }

    /// AF_PACKET has as many as one likes, and `auto` takes it where others have too few.
    fn queues(&mut self, nic: &Nic, interface: &Interface) {
        let is_given = interface.queues.is_some() || interface.mode != XdpMode::Auto;
        match interface.driver {
            InterfaceDriver::AfPacket => return,
            InterfaceDriver::Auto if !is_given => return,
            InterfaceDriver::Auto | InterfaceDriver::AfXdp => {}
        }
        let Ok(device) = Device::open(&interface.name) else { return };
        let channels = device.channels();
        let there = (channels.pairs() as usize, channels.pairs_max() as usize);
        if let Some((cause, remedy)) = lack_of_queues(nic, interface, there) {
            self.add(cause, remedy);
        }
    }

    fn mtu(&mut self, nic: &Nic, facts: &Facts) {
        if let Some(wanted) = nic.mtu_bytes.filter(|wanted| usize::from(*wanted) > facts.mtu) {
            let (name, mtu) = (&facts.name, facts.mtu);
            let cause = format!("mtu_bytes = {wanted} is more than the MTU {mtu} of {name}");
            self.add(
                cause,
                format!("lower it, or raise the other: ip link set {name} mtu {wanted}"),
            );
        }
    }

    fn mode(&mut self, nic: &Nic, interface: &Interface, facts: &Facts) {
        let (name, driver) = (&facts.name, facts.driver.as_deref().unwrap_or("unknown"));
        if interface.mode == XdpMode::ZeroCopy && WITHOUT_ZERO_COPY.contains(&driver) {
            let cause = format!("{driver}, the driver of {name}, has no zero-copy");
            self.add(cause, format!("leave `mode` of the NIC \"{}\" away, or \"copy\"", nic.name));
        }
    }

    /// Those that are reached by the kernel's addresses; the others were checked with the text.
    fn gateways(&mut self, nic: &Nic, facts: &Facts) {
        if !nic.addresses.is_empty() || facts.addresses.is_empty() {
            return;
        }
        let own = facts.addresses.iter();
        let own = own.map(|own| Network { address: own.address, prefix_bits: own.prefix_bits });
        let own: Vec<Network> = own.collect();
        for gateway in nic.routes.iter().filter_map(|route| route.via) {
            if own.iter().any(|own| own.address == gateway) {
                let cause = format!("the gateway {gateway} is an address of {} itself", facts.name);
                self.add(cause, "name the router's address on its network");
            } else if !own.iter().any(|own| own.on_link(gateway)) {
                let cause = format!("the gateway {gateway} is on no network of {}", facts.name);
                self.add(cause, "name one that is, or give the interface an address there");
            }
        }
    }

    /// An address that the kernel has elsewhere would be two hosts' at once.
    fn addresses(&mut self, nic: &Nic, facts: &Facts) {
        let own = |address: IpAddr| facts.addresses.iter().any(|own| own.address == address);
        let Ok(interfaces) = nix::ifaddrs::getifaddrs() else { return };
        let elsewhere: Vec<(String, IpAddr)> = interfaces
            .filter(|other| other.interface_name != facts.name)
            .filter_map(|other| Some((other.interface_name, ip_of(&other.address?)?)))
            .collect();
        for network in nic.addresses.iter().filter(|network| !own(network.address)) {
            let taken = elsewhere.iter().find(|(_, address)| *address == network.address);
            if let Some((interface, address)) = taken {
                let cause = format!("the kernel has the address {address} on {interface} already");
                self.add(cause, format!("give the NIC \"{}\" another", nic.name));
            }
        }
    }
}

/// Why a configuration that a daemon starts with may not be read again. `user` is whom the daemon
/// becomes.
pub(super) fn notes_of_file(path: &Path, file: &Metadata, user: Option<&OwnUser>) -> Vec<String> {
    let mut notes = Vec::new();
    let path = path.display();
    if file.len() > CONFIG_BYTES_MAX as u64 {
        notes.push(format!(
            "{path} is longer than {CONFIG_BYTES_MAX} bytes, and cannot be read again (clearway \
             reload): shorten it; comments count, too"
        ));
    }
    let writer = rustix::process::geteuid().as_raw();
    if ![0, writer].contains(&file.uid()) || file.mode() & 0o022 != 0 {
        notes.push(format!(
            "{path} can be written by others than root, so no NIC that goes and comes back is \
             opened again: chown root {path}; chmod go-w {path}"
        ));
    }
    if let Some(user) = user.filter(|user| !user.may_read(file)) {
        let name = &user.name;
        notes.push(format!(
            "{name}, which the daemon becomes, cannot read {path}, so a reload will fail, and no \
             NIC is opened again: chgrp {name} {path}; chmod 640 {path}"
        ));
    }
    notes
}

/// With sockets, packets are as large as the host's interfaces have them.
pub(super) fn udp_carries_less(nic: &Nic, ways: &Ways) -> Option<String> {
    let (wanted, most) = (nic.mtu_bytes?, mtu_of_udp(ways));
    (wanted > most).then(|| {
        format!(
            "`mtu_bytes = {wanted}` of the NIC \"{}\" is never reached: UDP sockets have packets \
             of {most} bytes at most here, as the largest interface with a route",
            nic.name
        )
    })
}

/// What is wrong with a NIC on an interface that has so many pairs of queues now, and so many at
/// most: the interface is set to as many as `queues` says, and left as it is without.
pub(super) fn lack_of_queues(
    nic: &Nic,
    interface: &Interface,
    (now, at_most): (usize, usize),
) -> Option<(String, String)> {
    let name = &interface.name;
    if let Some(wanted) = interface.queues {
        let cause = format!("{name} can have {at_most} queues, and `queues = {wanted}` is more");
        let remedy = format!("lower `queues` of the NIC \"{}\", and `engines` with it", nic.name);
        return (wanted > at_most).then_some((cause, remedy));
    }
    let wanted = nic.engines;
    let cause = format!("the NIC \"{}\" wants {wanted} queues, and there are {now}", nic.name);
    let remedy = format!(
        "lower `engines`, or give the interface more, of at most {at_most}: \
         ethtool -L {name} combined {wanted}"
    );
    (wanted > now).then_some((cause, remedy))
}

fn ip_of(address: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

fn somebody_listens(socket: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let attempt = || -> rustix::io::Result<()> {
        let one = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(one, &SocketAddrUnix::new(socket)?)
    };
    !matches!(attempt(), Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOENT))
}
