//! Opening a channel over queues of the app's own.

use std::net::{IpAddr, SocketAddr};

use clearway_channel::Code;
use clearway_client::{Channel, Error, Options};
use clearway_engine::{Clock, Congestion, Engine, EngineConfig, Group, Idle, UDP_PORT_DEFAULT, ip};
use clearway_nic::{self as nic, HEADER_BYTES_MAX, Queue, udp};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::engine::{EmbeddedEngine, Facts};

/// A host whose only app is this one.
pub struct Host {
    /// The queues of its NIC; the engine sends on the first, and receives on all.
    pub queues: Vec<Box<dyn Queue>>,
    /// Its addresses and routes.
    pub interface: ip::Config,
    /// The UDP port of this host and of all its peers.
    pub udp_port: u16,
    /// Why its NIC carries no frames of the app's own, if that is so: what is said to whoever asks
    /// for a virtual interface.
    pub only_messages: Option<&'static str>,
}

const ONLY_MESSAGES: &str = "this host goes by UDP sockets of the kernel, which carry messages and \
                             no frames; open one on another NIC, a memif say";

impl Host {
    /// A host on `queues`, with these addresses and the lengths of their networks' prefixes.
    /// Ethernet address and MTU are the NIC's; there are no routes to other networks.
    ///
    /// # Panics
    /// If there is no queue.
    #[must_use]
    pub fn new<Q: Queue + 'static>(queues: Vec<Q>, addresses: &[(IpAddr, u8)]) -> Self {
        let queues = queues.into_iter().map(|queue| Box::new(queue) as Box<dyn Queue>).collect();
        Self::on(queues, addresses)
    }

    /// A host on the kernel's UDP sockets at one of this machine's addresses, and the UDP port of
    /// this host and of all its peers (daemons have 20707 unless told otherwise). The kernel routes
    /// to the network of `prefix_bits`. Packets have up to `mtu_bytes`. It needs no privilege, and
    /// carries messages only.
    ///
    /// # Errors
    /// If another program has the port at that address, a daemon say; or there are not enough
    /// descriptors.
    pub fn over_udp(at: SocketAddr, prefix_bits: u8, mtu_bytes: u16) -> Result<Self, nic::Error> {
        let (address, udp_port) = (at.ip(), at.port());
        let config =
            udp::Config { address: Some(address), mtu_bytes, ..udp::Config::new(udp_port) };
        let host = Self::on(udp::open(&config)?, &[(address, prefix_bits)]);
        let mut host = Self { udp_port, only_messages: Some(ONLY_MESSAGES), ..host };
        host.interface.mtu = mtu_bytes;
        host.interface.router = Some(udp::ROUTER_MAC);
        Ok(host)
    }

    fn on(queues: Vec<Box<dyn Queue>>, addresses: &[(IpAddr, u8)]) -> Self {
        let first = queues.first().expect("a NIC has a queue");
        let capabilities = first.capabilities();
        let mtu = capabilities.frame_bytes_max.saturating_sub(HEADER_BYTES_MAX);
        let interface = ip::Config {
            mac: first.info().mac,
            addresses: addresses.to_vec(),
            routes: Vec::new(),
            vlan: None,
            mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
            mtu_max: None,
            kernel_shares: false,
            router: None,
            receive_checksum: capabilities.receive_checksum,
        };
        Self { queues, interface, udp_port: UDP_PORT_DEFAULT, only_messages: None }
    }

    /// Opens the app's channel. Its socket and its engine are chosen: of the options only the name,
    /// the sizes, and how to wait and to linger are looked at.
    ///
    /// # Errors
    /// If there is not enough memory, or the kernel's part in the NIC needs a daemon.
    pub fn open(self, options: &Options) -> Result<Channel, Error> {
        if self.interface.kernel_shares {
            let message =
                "the kernel has these addresses too, and only a daemon can share them with \
                           it; use others of the same network"
                    .to_owned();
            return Err(Error::Declined { code: Code::Invalid, message });
        }
        let (mut seed, mut secret) = ([0; 8], [0; 16]);
        // Requests of up to 256 bytes are never cut short (getrandom(2)).
        getrandom(&mut seed, GetRandomFlags::empty())?;
        getrandom(&mut secret, GetRandomFlags::empty())?;
        let clock = Clock::new();
        let seed = u64::from_ne_bytes(seed);
        let Self { interface, udp_port, only_messages, .. } = &self;
        let facts = Facts {
            interface: interface.clone(),
            udp_port: *udp_port,
            only_messages: *only_messages,
            seed,
        };
        let config = EngineConfig {
            name: options.app.clone(),
            interface: self.interface,
            udp_port: self.udp_port,
            idle: Idle::Spin,
            congestion: Congestion::default(),
            silence_ms: clearway_engine::SILENCE_MS_DEFAULT,
        };
        let (engine, control) = Engine::new(config, self.queues, seed, secret, clock.now())?;
        let group = Group::new(vec![engine], Idle::Spin, clock);
        let (engine, app_end) = EmbeddedEngine::attach(group, control, facts, options)?;
        Channel::embed(app_end, options.app.clone(), Box::new(engine), options)
    }
}
