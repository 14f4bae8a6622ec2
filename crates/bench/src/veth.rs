//! Two network namespaces joined by a veth pair.
//!
//! The namespaces have no names: each lives as long as a process of ours in it, and the pair as
//! long as they do. So nothing is left behind however the benchmark ends, `kill -9` included, and
//! nothing can collide with what others have.

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::process::{RoleProcess, helper};
use crate::role::{Part, Role};
use std::time::Duration;

/// The interface's name, the same on both sides.
pub(crate) const INTERFACE: &str = "clearway0";
/// The client's address.
pub(crate) const CLIENT: &str = "10.77.0.1";
/// The server's address.
pub(crate) const SERVER: &str = "10.77.0.2";
/// Bits of the network's prefix.
pub(crate) const PREFIX_BITS: u8 = 24;

/// The namespaces and the pair. Dropping it removes both.
pub(crate) struct VethPair {
    client: RoleProcess,
    server: RoleProcess,
}

const PATIENCE: Duration = Duration::from_secs(10);

impl VethPair {
    /// Makes namespaces and pair, with addresses, up.
    pub(crate) fn create(mtu: u16, interrupt: &Interrupt) -> Result<Self, Error> {
        let client = namespace("the client's namespace", interrupt)?;
        let server = namespace("the server's namespace", interrupt)?;
        let (client_id, server_id) = (client.id().to_string(), server.id().to_string());
        let pair = Self { client, server };
        let mtu = mtu.to_string();
        helper(
            "ip",
            &[
                "link", "add", INTERFACE, "mtu", &mtu, "netns", &client_id, "type", "veth", "peer",
                "name", INTERFACE, "mtu", &mtu, "netns", &server_id,
            ],
        )?;
        bring_up(&client_id, CLIENT)?;
        bring_up(&server_id, SERVER)?;
        Ok(pair)
    }

    /// Packets leave as they will arrive, and with their checksums.
    pub(crate) fn switch_offloads_off(&self) -> Result<(), Error> {
        for holder in [self.client_namespace(), self.server_namespace()] {
            let namespace = format!("--net=/proc/{holder}/ns/net");
            let words = [&namespace, "--", "ethtool", "-K", INTERFACE];
            let features = ["tso", "gso", "gro", "tx", "rx", "sg"].map(|name| [name, "off"]);
            let words: Vec<&str> =
                words.into_iter().chain(features.into_iter().flatten()).collect();
            helper("nsenter", &words)?;
        }
        Ok(())
    }

    /// A process in the client's namespace.
    pub(crate) fn client_namespace(&self) -> u32 {
        self.client.id()
    }

    /// A process in the server's namespace.
    pub(crate) fn server_namespace(&self) -> u32 {
        self.server.id()
    }
}

fn namespace(who: &str, interrupt: &Interrupt) -> Result<RoleProcess, Error> {
    let mut holder = RoleProcess::start_under(
        who,
        &["unshare", "--net", "--"],
        &Role::new(Part::HoldNamespace),
    )?;
    holder.ready(PATIENCE, interrupt)?;
    Ok(holder)
}

fn bring_up(namespace_of: &str, address: &str) -> Result<(), Error> {
    let namespace = format!("--net=/proc/{namespace_of}/ns/net");
    let inside = |arguments: &[&str]| {
        let words: Vec<&str> =
            [namespace.as_str(), "--", "ip"].iter().chain(arguments).copied().collect();
        helper("nsenter", &words)
    };
    let address = format!("{address}/{PREFIX_BITS}");
    inside(&["address", "add", &address, "dev", INTERFACE])?;
    inside(&["link", "set", "lo", "up"])?;
    inside(&["link", "set", INTERFACE, "up"])
}
