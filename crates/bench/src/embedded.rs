//! Hosts without a daemon: each app has an engine in its own thread, and one end of a memif, or the
//! kernel's UDP sockets.

use crate::arguments::{Plan, Wire};
use crate::directory::Directory;
use crate::host::SERVICE_PORT;
use crate::veth::{CLIENT, PREFIX_BITS, SERVER};
use clearway_client::{Channel, Options};
use clearway_embed::Host;
use clearway_engine::UDP_PORT_DEFAULT;
use clearway_nic::HEADER_BYTES_MAX;
use clearway_nic::memif::{self, Role, Socket};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Such a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EmbeddedHost {
    /// Where the two ends of the memif meet; `None` if the wire is UDP sockets, in the network
    /// namespace of the app.
    memif: Option<PathBuf>,
    /// It is the server's, which listens there.
    is_server: bool,
    mtu: u16,
}

impl EmbeddedHost {
    pub(crate) fn new(directory: &Directory, is_server: bool, plan: &Plan) -> Self {
        let memif = (plan.wire == Wire::Memif).then(|| directory.path().join("memif.sock"));
        Self { memif, is_server, mtu: plan.mtu }
    }

    /// Its address, with the service port of the benchmark.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        let text = if self.is_server { SERVER } else { CLIENT };
        let address: IpAddr = text.parse().map_err(io::Error::other)?;
        Ok(SocketAddr::new(address, SERVICE_PORT))
    }

    pub(crate) fn open(&self, options: &Options) -> io::Result<Channel> {
        let host = match &self.memif {
            Some(socket) => self.on_memif(socket),
            None => self.on_udp_sockets(),
        }?;
        host.open(options).map_err(io::Error::other)
    }

    fn on_memif(&self, socket: &Path) -> io::Result<Host> {
        let role = if self.is_server { Role::Server } else { Role::Client };
        let mac = [2, 0, 0, 0, 0, u8::from(self.is_server) + 1];
        let config = memif::Config::new(Socket::Path(socket.to_owned()), role, mac)
            .with_frames(usize::from(self.mtu) + HEADER_BYTES_MAX);
        let queues = memif::open(config).map_err(io::Error::other)?;
        Ok(Host::new(queues, &[(self.address()?.ip(), PREFIX_BITS)]))
    }

    fn on_udp_sockets(&self) -> io::Result<Host> {
        let at = SocketAddr::new(self.address()?.ip(), UDP_PORT_DEFAULT);
        Host::over_udp(at, PREFIX_BITS, self.mtu).map_err(io::Error::other)
    }
}
