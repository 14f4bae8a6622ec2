//! Hosts without a daemon: each app has an engine in its own thread, and one end of a memif.

use crate::arguments::Plan;
use crate::directory::Directory;
use crate::host::SERVICE_PORT;
use crate::veth::{CLIENT, PREFIX_BITS, SERVER};
use clearway_client::{Channel, Options};
use clearway_embed::Host;
use clearway_nic::HEADER_BYTES_MAX;
use clearway_nic::memif::{self, Config, Role, Socket};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Such a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EmbeddedHost {
    /// Where the two ends of the memif meet.
    memif: PathBuf,
    /// It is the server's, which listens there.
    is_server: bool,
    mtu: u16,
}

impl EmbeddedHost {
    pub(crate) fn new(directory: &Directory, is_server: bool, plan: &Plan) -> Self {
        Self { memif: directory.path().join("memif.sock"), is_server, mtu: plan.mtu }
    }

    /// Its address, with the service port of the benchmark.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        let text = if self.is_server { SERVER } else { CLIENT };
        let address: IpAddr = text.parse().map_err(io::Error::other)?;
        Ok(SocketAddr::new(address, SERVICE_PORT))
    }

    pub(crate) fn open(&self, options: &Options) -> io::Result<Channel> {
        let role = if self.is_server { Role::Server } else { Role::Client };
        let mac = [2, 0, 0, 0, 0, u8::from(self.is_server) + 1];
        let config = Config::new(Socket::Path(self.memif.clone()), role, mac)
            .with_frames(usize::from(self.mtu) + HEADER_BYTES_MAX);
        let queues = memif::open(config).map_err(io::Error::other)?;
        let host = Host::new(queues, &[(self.address()?.ip(), PREFIX_BITS)]);
        host.open(options).map_err(io::Error::other)
    }
}
