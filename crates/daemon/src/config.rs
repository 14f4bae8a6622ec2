//! The configuration of a daemon: what `clearway.toml` says, as plain values.
//!
//! A [`Config`] can also be put together in code, which is how benchmarks and tests start hosts in
//! their own process. This module holds the values and their defaults; `parse` reads the file,
//! `reader` walks it with line numbers, and `problem` is what is told to the user. What the values
//! mean to others (who may attach, who may listen) is decided in `clearway_control::policy`.

mod change;
mod check;
mod machine;
mod notes;
mod parse;
mod parse_dpdk;
mod parse_nic;
mod parse_policy;
mod parse_routes;
mod parse_vif;
mod problem;
pub mod reader;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use change::{Change, NicChange};
pub use check::check;
pub use machine::{Machine, RecordedMachine, Recorder, ThisMachine};
pub use parse::{parse, read, read_file};
pub use parse_nic::{mac, memif_socket};
pub use problem::{Problem, Problems};

pub use clearway_control::filter::Template;
pub use clearway_control::policy::{Limits, Network, People, Policy, PortRule, VifRule};
use clearway_engine::ip::Route;
pub use clearway_engine::{Congestion, Idle, SILENCE_MS_DEFAULT, UDP_PORT_DEFAULT};
use clearway_nic::MacAddress;

/// Engines of one NIC, at most.
pub const ENGINES_MAX: usize = 64;

/// Everything that a daemon can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where apps reach the daemon.
    pub control: Control,
    /// The UDP port of this daemon and of all its peers.
    pub udp_port: u16,
    /// How flows find out how much they may send.
    pub congestion: Congestion,
    /// How long a peer's host may be silent before its connections are given up, unless an app
    /// says otherwise of one.
    pub silence: Duration,
    /// For how long at most what an app has sent is delivered after it has ended.
    pub linger_max: Duration,
    /// The NICs, each with its engines.
    pub nics: Vec<Nic>,
    /// Who may do what, and how much of it.
    pub policy: Policy,
    /// What is written to standard error.
    pub log: Log,
    /// Where metrics are served.
    pub metrics: Metrics,
    /// A daemon gives up every system call and file that it has no use for, once it runs.
    pub confine: bool,
    /// The user that a daemon becomes which root has started, by name; [`Config::USER_DEFAULT`] if
    /// there is such a user and none is given.
    pub user: Option<String>,
}

/// The control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// The path of the Unix socket.
    pub socket: PathBuf,
}

/// Where what has been counted is served over HTTP: nowhere if not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Addresses and TCP ports of this host.
    pub listen: Vec<SocketAddr>,
    /// The path of a Unix socket.
    pub socket: Option<PathBuf>,
}

/// One NIC and the engines that serve it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// Its name in status, logs and `attach`. Its engines are called after it, with their numbers:
    /// `eth0/0`, `eth0/1`.
    pub name: String,
    /// What moves the frames.
    pub driver: Driver,
    /// The host's addresses on this link. May be empty for a kernel interface, and then they are
    /// the interface's own, and for the kernel's UDP sockets: then they are all of the host's.
    pub addresses: Vec<Network>,
    /// Where packets go that are for nobody on the link, those that are preferred first. Those of a
    /// kernel interface come after them.
    pub routes: Vec<Route>,
    /// Largest IP packet; the interface's own, or 1500, if not given.
    pub mtu_bytes: Option<u16>,
    /// The 802.1Q VLAN that frames carry.
    pub vlan: Option<u16>,
    /// How many engines serve it, each with queues and a thread of its own: 1 to [`ENGINES_MAX`],
    /// which all NICs together have at most.
    pub engines: usize,
    /// What its engines do when there is nothing to do.
    pub idle: Idle,
    /// The cores to which the threads of its engines are pinned, one for each; none if empty.
    pub cores: Vec<usize>,
}

/// What moves the frames of a NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// A network interface of the kernel.
    Interface(Interface),
    /// Shared-memory Ethernet to another process.
    Memif(Memif),
    /// A device of DPDK.
    Dpdk(Dpdk),
    /// The kernel's UDP sockets, at all addresses of the host or at those of the NIC.
    Udp,
    /// The other end of a tap device.
    Tap(Tap),
}

impl Driver {
    /// The name of the kernel's interface on whose link a NIC is, if there is one.
    pub(crate) fn interface(&self) -> Option<&str> {
        match self {
            Self::Interface(interface) => Some(&interface.name),
            Self::Tap(tap) => Some(&tap.interface),
            Self::Memif(_) | Self::Dpdk(_) | Self::Udp => None,
        }
    }
}

/// A tap device: an interface of the kernel's whose other end the NIC is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tap {
    /// The name of the interface, which is made if it is not there.
    pub interface: String,
    /// The Ethernet address of the NIC, which is not the interface's; made of the first of the
    /// addresses if not given.
    pub mac: Option<MacAddress>,
    /// Whether packets of one flow leave as one frame.
    pub super_frames: bool,
}

impl Tap {
    /// The interface if none is named.
    pub const INTERFACE_DEFAULT: &str = "clearway0";
}

/// A device of DPDK, which a `clearway` opens that was built with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dpdk {
    /// The arguments of DPDK's environment.
    pub eal: Vec<String>,
    /// The device: a PCI address, the name of a `--vdev` in `eal`, or a virtual device with its
    /// arguments.
    pub device: String,
    /// Queues to use.
    pub queues: u16,
    /// Whether checksums and segments of TCP are left to the device.
    pub offloads: bool,
}

impl Dpdk {
    /// The device without its arguments.
    #[must_use]
    pub fn name(&self) -> &str {
        self.device.split(',').next().unwrap_or(&self.device)
    }
}

/// A network interface of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// Which driver.
    pub driver: InterfaceDriver,
    /// Which AF_XDP mode.
    pub mode: XdpMode,
    /// With AF_XDP, what the interface is set to while the daemon has it; all that it has if not
    /// given. Of AF_PACKET the sockets; one for each engine if not given.
    pub queues: Option<usize>,
    /// Whether AF_PACKET sends packets of one flow as one frame; if not given, wherever whoever is
    /// at the other end can take them.
    pub super_frames: Option<bool>,
}

/// The ways to a kernel interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceDriver {
    /// AF_XDP or AF_PACKET, whichever is better there; status says which and why.
    Auto,
    /// AF_XDP or nothing.
    AfXdp,
    /// AF_PACKET.
    AfPacket,
}

/// How AF_XDP moves frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// The best that works.
    Auto,
    /// The NIC writes into the daemon's memory.
    ZeroCopy,
    /// The NIC's driver copies.
    Copy,
    /// The kernel copies, with any driver.
    Generic,
}

/// A memif link.
#[derive(Clone, PartialEq, Eq)]
pub struct Memif {
    /// The Unix socket over which the two sides meet: a path, or a name after `@`.
    pub socket: String,
    /// Which side this is.
    pub role: MemifRole,
    /// The link's number on that socket.
    pub id: u32,
    /// What both sides have to know, at most 23 bytes; empty for none.
    pub secret: String,
    /// Queue pairs to offer.
    pub queue_pairs: u16,
    /// Bytes per buffer; those of a frame if not given.
    pub buffer_bytes: Option<u32>,
    /// The Ethernet address; made of the first of the addresses if not given.
    pub mac: Option<MacAddress>,
}

/// The sides of a memif link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemifRole {
    /// Listens on the socket ("master" in the protocol).
    Server,
    /// Connects and brings the memory ("slave" in the protocol).
    Client,
}

/// What is logged and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The level, or a `tracing` filter such as `info,clearway_nic=debug`. `RUST_LOG` overrides it.
    pub level: String,
    /// How a line looks.
    pub format: LogFormat,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

impl Config {
    /// The user that packages make for the daemon.
    pub const USER_DEFAULT: &str = "clearway";

    /// True if any NIC is DPDK's.
    pub(crate) fn uses_dpdk(&self) -> bool {
        self.nics.iter().any(|nic| matches!(nic.driver, Driver::Dpdk(_)))
    }

    /// True if a kernel interface is, or may be, behind a NIC: DPDK's drivers may use one, too
    /// (net_af_xdp, net_tap, mlx5).
    pub(crate) fn uses_kernel_interfaces(&self) -> bool {
        self.nics.iter().any(|nic| matches!(nic.driver, Driver::Interface(_) | Driver::Dpdk(_)))
    }

    /// True if a NIC sends by sockets that are open.
    pub(crate) fn uses_udp_sockets(&self) -> bool {
        self.nics.iter().any(|nic| nic.driver == Driver::Udp)
    }

    /// True if a NIC is the other end of a tap device.
    pub(crate) fn uses_taps(&self) -> bool {
        self.nics.iter().any(|nic| matches!(nic.driver, Driver::Tap(_)))
    }

    /// The paths of all sockets that a daemon listens on.
    pub(crate) fn listening_sockets(&self) -> impl Iterator<Item = &Path> {
        let memif = self.nics.iter().filter_map(|nic| match &nic.driver {
            Driver::Memif(link) if link.role == MemifRole::Server => Some(link.socket.as_str()),
            _ => None,
        });
        let memif = memif.filter(|socket| !socket.starts_with('@')).map(Path::new);
        let metrics = self.metrics.socket.as_deref();
        std::iter::once(self.control.socket.as_path()).chain(memif).chain(metrics)
    }

    /// What a daemon does that nobody has told anything: it goes by the kernel's UDP sockets, which
    /// need no privilege, at all addresses of the host.
    #[must_use]
    pub fn without_file() -> Self {
        Self { nics: vec![Nic::new("udp", Driver::Udp, Vec::new())], ..Self::default() }
    }

    /// Reads and checks a file. All problems are reported at once.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let text = read_file(
            path,
            "give the path of a configuration with --config; clearway.toml in the source tree, or \
             in share/clearway of a package, is a commented example",
        )?;
        parse(&text, &path.display().to_string(), &ThisMachine)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            control: Control::default(),
            udp_port: UDP_PORT_DEFAULT,
            congestion: Congestion::default(),
            silence: Duration::from_millis(SILENCE_MS_DEFAULT.into()),
            linger_max: Duration::from_secs(60),
            nics: Vec::new(),
            policy: machine::policy(),
            log: Log::default(),
            metrics: Metrics::default(),
            confine: true,
            user: None,
        }
    }
}

impl Default for Control {
    fn default() -> Self {
        Self { socket: clearway_channel::control::daemon_path() }
    }
}

impl Memif {
    /// A link with the defaults of everything but what has none.
    #[must_use]
    pub fn new(socket: impl Into<String>, role: MemifRole) -> Self {
        Self {
            socket: socket.into(),
            role,
            id: 0,
            secret: String::new(),
            queue_pairs: 1,
            buffer_bytes: None,
            mac: None,
        }
    }
}

impl Nic {
    /// A memif NIC with one address.
    #[must_use]
    pub fn memif(name: &str, link: Memif, address: Network) -> Self {
        Self::new(name, Driver::Memif(link), vec![address])
    }

    /// A NIC with the defaults of everything but what has none.
    #[must_use]
    pub fn new(name: &str, driver: Driver, addresses: Vec<Network>) -> Self {
        Self {
            name: name.to_owned(),
            driver,
            addresses,
            routes: Vec::new(),
            mtu_bytes: None,
            vlan: None,
            engines: 1,
            idle: Idle::Adaptive,
            cores: Vec::new(),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

/// The secret stays out of logs and error messages.
impl std::fmt::Debug for Memif {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memif")
            .field("socket", &self.socket)
            .field("role", &self.role)
            .field("id", &self.id)
            .field("secret", &if self.secret.is_empty() { "none" } else { "given" })
            .field("queue_pairs", &self.queue_pairs)
            .field("buffer_bytes", &self.buffer_bytes)
            .field("mac", &self.mac)
            .finish()
    }
}

#[cfg(test)]
mod tests;
