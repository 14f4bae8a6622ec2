//! Two network namespaces with a veth pair between them.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};

use clearway_nic::interface::{Facts, Namespace};

use super::{Network, PATIENCE};

/// The interface, in both namespaces.
pub(crate) const INTERFACE: &str = "cw0";
/// The kernel's addresses.
pub(crate) const IPV4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 2)];
/// The kernel's addresses.
pub(crate) const IPV6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 2)];

/// Two namespaces and the veth pair between them. They have no names, and vanish with this process.
pub(crate) struct Veth {
    pub(crate) spaces: [Namespace; 2],
}

impl Veth {
    pub(crate) fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root to make network namespaces");
            return None;
        }
        let spaces = [(); 2].map(|()| Namespace::create().expect("root may make namespaces"));
        let veth = Self { spaces };
        let there = veth.spaces[1].path();
        let peer = format!("peer name {INTERFACE} netns {}", there.display());
        veth.ip(0, &format!("link add {INTERFACE} type veth {peer}"));
        veth.set_up(0);
        veth.set_up(1);
        Some(veth)
    }

    /// Gives the interface in one of the namespaces its addresses.
    pub(super) fn set_up(&self, index: usize) {
        self.ip(index, "link set lo up");
        self.ip(index, &format!("addr add {}/24 dev {INTERFACE}", IPV4[index]));
        self.ip(index, &format!("addr add {}/64 dev {INTERFACE} nodad", IPV6[index]));
        self.ip(index, &format!("link set {INTERFACE} up"));
    }

    /// Another pair, of this name at both ends, up and with the addresses 10.NETWORK.0.1 and 2.
    pub(crate) fn connect(&self, interface: &str, network: u8) {
        let there = self.spaces[1].path();
        let peer = format!("peer name {interface} netns {}", there.display());
        self.ip(0, &format!("link add {interface} type veth {peer}"));
        for index in [0, 1] {
            let address = format!("10.{network}.0.{}/24", index + 1);
            self.ip(index, &format!("addr add {address} dev {interface}"));
            self.ip(index, &format!("link set {interface} up"));
        }
    }

    pub(crate) fn ip(&self, index: usize, words: &str) {
        self.spaces[index].ip(words).expect("iproute2 is installed and the command is right");
    }

    pub(crate) fn facts(&self, index: usize) -> Facts {
        let facts = self.spaces[index].within(|| Facts::of(INTERFACE));
        facts.expect("the namespace can be entered").expect("the interface is there")
    }

    /// Hosts whose `[[nic]]` sections have this beside the interface.
    pub(crate) fn hosts(&self, nics: [&str; 2], at: [IpAddr; 2]) -> Network {
        self.hosts_with("", nics, at)
    }

    /// The same, whose daemons become this user.
    pub(crate) fn hosts_as(&self, user: &str, nics: [&str; 2], at: [IpAddr; 2]) -> Network {
        self.hosts_with(&format!("user = \"{user}\"\n"), nics, at)
    }

    /// The same, which have not answered yet when this returns.
    pub(crate) fn hosts_not_ready(&self, nics: [&str; 2], at: [IpAddr; 2]) -> Network {
        let section = |nic| format!("[[nic]]\ninterface = \"{INTERFACE}\"\n{nic}\n");
        let nics = nics.map(section);
        let [first, second] = &self.spaces;
        Network::in_namespaces_not_ready([first, second], [&nics[0], &nics[1]], at)
    }

    fn hosts_with(&self, keys: &str, nics: [&str; 2], at: [IpAddr; 2]) -> Network {
        let section = |nic| format!("{keys}[[nic]]\ninterface = \"{INTERFACE}\"\n{nic}\n");
        let nics = nics.map(section);
        let [first, second] = &self.spaces;
        Network::in_namespaces([first, second], [&nics[0], &nics[1]], at)
    }

    /// The kernels still talk to each other, by a TCP connection and a kilobyte.
    pub(crate) fn kernel_goes_on(&self) {
        let entered = "the namespace can be entered";
        let listener = self.spaces[1].within(|| TcpListener::bind((IPV4[1], 0))).expect(entered);
        let listener = listener.expect("a listener");
        let to = listener.local_addr().expect("its address");
        let client = self.spaces[0].within(|| TcpStream::connect_timeout(&to, PATIENCE));
        let mut client = client.expect(entered).expect("the kernel's TCP works");
        let (mut server, _) = listener.accept().expect("accepted");
        client.write_all(&[7; 1000]).expect("sent");
        server.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        server.read_exact(&mut [0; 1000]).expect("received");
    }
}
