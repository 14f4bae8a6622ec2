//! The configuration of a host that takes part in a benchmark: of a daemon, written as an operator
//! would; and of engines that a benchmark runs itself.

use crate::arguments::{Idle, Plan, Wire};
use crate::directory::Directory;
use crate::veth::{CLIENT, INTERFACE, PREFIX_BITS, SERVER};
use clearway_engine::{Congestion, EngineConfig, ip};
use clearway_nic::MacAddress;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// The service port on which the server's app listens.
pub(crate) const SERVICE_PORT: u16 = 4711;

/// What a configuration begins with. A daemon that root starts becomes the user `clearway` where
/// there is one. That user may not enter the directory of a run, in which memifs meet, and is not
/// there in a user namespace; and who becomes another user no longer ends with its parent
/// (PR_SET_PDEATHSIG of prctl(2)).
pub(crate) const STAYS_ROOT: &str = "user = \"root\"\n";

/// The one NIC of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nic {
    pub(crate) wire: Wire,
    pub(crate) idle: Idle,
    pub(crate) mtu_bytes: u16,
}

impl Nic {
    pub(crate) const fn of(plan: &Plan) -> Self {
        Self { wire: plan.wire, idle: plan.idle, mtu_bytes: plan.mtu }
    }
}

/// A host's files, and where it can be reached.
#[derive(Clone, Debug)]
pub(crate) struct HostFiles {
    /// `client` or `server`.
    pub(crate) name: &'static str,
    /// Its configuration.
    pub(crate) config: PathBuf,
    /// Its control socket.
    pub(crate) socket: PathBuf,
    /// Its address, with the service port of the benchmark.
    pub(crate) address: SocketAddr,
}

impl HostFiles {
    /// Writes the configuration of the host `name`, whose engine is pinned to `core`, if there is
    /// one.
    pub(crate) fn write(
        directory: &Directory,
        name: &'static str,
        nic: &Nic,
        core: Option<usize>,
    ) -> io::Result<Self> {
        let address = if name == "client" { CLIENT } else { SERVER };
        let address: IpAddr = address.parse().map_err(io::Error::other)?;
        let config = directory.path().join(format!("{name}.toml"));
        let socket = directory.path().join(format!("{name}.sock"));
        let text = configuration(directory.path(), &socket, name, nic, core, address);
        fs::write(&config, text)?;
        Ok(Self { name, config, socket, address: SocketAddr::new(address, SERVICE_PORT) })
    }
}

fn configuration(
    directory: &Path,
    socket: &Path,
    name: &str,
    nic: &Nic,
    core: Option<usize>,
    address: IpAddr,
) -> String {
    let mut text = format!(
        "{STAYS_ROOT}[control]\nsocket = {socket:?}\n\n[log]\nlevel = \"error\"\n\n\
         [[nic]]\nname = \"bench\"\n"
    );
    let _ = match nic.wire {
        Wire::Veth => writeln!(text, "driver = \"auto\"\ninterface = \"{INTERFACE}\""),
        Wire::AfXdp => {
            writeln!(text, "driver = \"af_xdp\"\ninterface = \"{INTERFACE}\"\nqueues = 1")
        }
        Wire::AfPacket => {
            writeln!(text, "driver = \"af_packet\"\ninterface = \"{INTERFACE}\"")
        }
        Wire::Udp => writeln!(text, "driver = \"udp\""),
        // The server's host serves the wire too. With --wire local nobody comes, which is no harm.
        Wire::Memif | Wire::Local => writeln!(
            text,
            "driver = \"memif\"\nsocket = {:?}\nrole = \"{name}\"",
            directory.join("memif.sock")
        ),
    };
    let idle = match nic.idle {
        Idle::Spin => "spin",
        Idle::Yield => "yield",
        Idle::Block => "block",
        Idle::Adaptive => "adaptive",
    };
    let _ = writeln!(
        text,
        "addresses = [\"{address}/{PREFIX_BITS}\"]\nmtu_bytes = {}\nidle = \"{idle}\"",
        nic.mtu_bytes
    );
    if let Some(core) = core {
        let _ = writeln!(text, "cores = [{core}]");
    }
    text
}

/// A host at this address, whose engines the benchmark itself turns.
pub(crate) fn engine_config(mac: MacAddress, address: IpAddr) -> EngineConfig {
    EngineConfig {
        name: "bench".into(),
        interface: ip::Config {
            mac,
            addresses: vec![(address, 24)],
            routes: Vec::new(),
            vlan: None,
            mtu: 1500,
            mtu_max: None,
            kernel_shares: false,
            router: None,
            receive_checksum: false,
        },
        udp_port: 20707,
        idle: clearway_engine::Idle::Spin,
        congestion: Congestion::Swift,
        silence_ms: clearway_engine::SILENCE_MS_DEFAULT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is a key of no section, so that it has to stand before all of them.
    #[test]
    fn a_daemon_stays_who_may_enter_the_directory_of_its_run() {
        let nic = Nic { wire: Wire::Memif, idle: Idle::Spin, mtu_bytes: 1500 };
        let (directory, socket) = (Path::new("/run"), Path::new("/run/a.sock"));
        let address = "10.0.0.1".parse().expect("an address");
        let text = configuration(directory, socket, "client", &nic, Some(1), address);
        let (first, rest) = text.split_once('\n').expect("lines");
        assert_eq!(first, "user = \"root\"");
        assert!(rest.starts_with("[control]") && rest.ends_with("cores = [1]\n"), "{rest}");
    }
}
