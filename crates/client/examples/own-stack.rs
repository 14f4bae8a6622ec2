//! A machine of its own on the LAN, in a program without privileges: the TCP/IP stack smoltcp on a
//! virtual interface with its own Ethernet and IP address. It answers ping, echoes what comes to
//! TCP port 7, and serves a small page on TCP port 80.
//!
//! `own-stack MAC ADDRESS/PREFIX [--gateway ADDRESS] [--believe-checksums]`, where MAC may be `own`
//! to let the daemon choose; its policy must allow both. The daemon is found by `CLEARWAY_SOCKET`.
//!
//! ```text
//!            Channel::recv_frames          Interface::poll            Service::serve
//!   daemon ──── burst of frames ───▶ VifDevice ─▶ smoltcp ──▶ sockets ─────▶ echo, page
//!          ◀─── frame_buffer, flush_frames ────
//! ```

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use clearway_client::{
    Channel, Error, Frames, InterfaceAddress, MacChoice, Options, ReceivedBurst, Vif, VifId,
    VifOptions,
};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, Checksum, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};

const ECHO_PORT: u16 = 7;
const PAGE_PORT: u16 = 80;
/// Connections of each port at a time, those that have just ended included: smoltcp has one socket
/// per connection, and keeps it for ten seconds after this side has closed it.
const CONNECTIONS: usize = 32;
const SOCKET_BUFFER_BYTES: usize = 16 << 10;
/// A peer that is silent so long is asked whether it is still there,
const KEEP_ALIVE: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(10);
/// and one that does not answer so long is given up.
const PATIENCE: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(30);
const REQUEST_BYTES_MAX: usize = 4096;
const USAGE: &str =
    "usage: own-stack MAC|own ADDRESS/PREFIX [--gateway ADDRESS] [--believe-checksums]";

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[allow(dead_code)] // Tests include this file and call `run`.
fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let options = Options::new("own-stack");
    if let Err(error) = Arguments::parse(&words).and_then(|arguments| run(&options, &arguments)) {
        eprintln!("own-stack: {error}");
        std::process::exit(1);
    }
}

/// The command line.
pub(crate) struct Arguments {
    mac: MacChoice,
    address: InterfaceAddress,
    gateway: Option<Ipv4Addr>,
    /// Take TCP checksums as they are. Frames from a kernel on the same machine (veth) carry none:
    /// it leaves them to the NIC.
    believe_checksums: bool,
}

impl Arguments {
    pub(crate) fn parse(words: &[String]) -> Result<Self> {
        let [mac, address, options @ ..] = words else { return Err(USAGE.into()) };
        let (mac, address) = (mac.parse()?, address.parse()?);
        let mut arguments = Self { mac, address, gateway: None, believe_checksums: false };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match (option.as_str(), options.as_slice().first()) {
                ("--gateway", Some(gateway)) => {
                    arguments.gateway = Some(gateway.parse()?);
                    options.next();
                }
                ("--believe-checksums", _) => arguments.believe_checksums = true,
                _ => return Err(USAGE.into()),
            }
        }
        Ok(arguments)
    }
}

/// Serves until the daemon ends or takes the interface away.
pub(crate) fn run(options: &Options, arguments: &Arguments) -> Result<()> {
    let IpAddr::V4(address) = arguments.address.address else {
        return Err("this example speaks IPv4 only".into());
    };
    let mut channel = Channel::attach(options)?;
    let vif = channel.open_vif(&VifOptions::machine(arguments.mac, arguments.address))?;
    println!("own-stack: {} is {} here", arguments.address, vif.mac);
    let mut stack = Stack::new(&mut channel, &vif, arguments, address)?;
    loop {
        let frames = match channel.recv_frames(stack.patience()) {
            Ok(frames) => Some(frames),
            Err(Error::WouldBlock | Error::TimedOut { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        stack.handle(&mut channel, frames.as_ref())?;
        if let Some(frames) = frames {
            channel.release_frames(frames);
        }
        channel.flush_frames(vif.id, None)?;
    }
}

/// smoltcp and what it serves.
struct Stack {
    begun: std::time::Instant,
    vif: VifId,
    capabilities: DeviceCapabilities,
    interface: Interface,
    sockets: SocketSet<'static>,
    services: Vec<Service>,
}

impl Stack {
    fn new(
        channel: &mut Channel,
        vif: &Vif,
        arguments: &Arguments,
        address: Ipv4Addr,
    ) -> Result<Self> {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = vif.mtu as usize + 14;
        if arguments.believe_checksums {
            capabilities.checksum.tcp = Checksum::Tx;
        }
        let mac = HardwareAddress::Ethernet(EthernetAddress(vif.mac.0));
        let mut config = Config::new(mac);
        config.random_seed = RandomState::new().hash_one(vif.mac.0);
        let mut port = VifDevice::new(channel, vif.id, &capabilities, None);
        let mut interface = Interface::new(config, &mut port, Instant::ZERO);
        let cidr = IpCidr::new(address.into(), arguments.address.prefix_length);
        interface.update_ip_addrs(|addresses| addresses.push(cidr).expect("room for one"));
        if let Some(gateway) = arguments.gateway {
            interface.routes_mut().add_default_ipv4_route(gateway)?;
        }
        let mut sockets = SocketSet::new(Vec::new());
        let services = [(ECHO_PORT, Kind::Echo), (PAGE_PORT, Kind::Page)]
            .into_iter()
            .flat_map(|service| [service; CONNECTIONS])
            .map(|(port, kind)| Service { handle: sockets.add(socket()), port, kind })
            .collect();
        let begun = std::time::Instant::now();
        Ok(Self { begun, vif: vif.id, capabilities, interface, sockets, services })
    }

    /// How long nothing has to be done if no frame comes.
    fn patience(&mut self) -> Option<Duration> {
        let now = self.now();
        self.interface.poll_delay(now, &self.sockets).map(Into::into)
    }

    /// By a clock that nobody sets.
    fn now(&self) -> Instant {
        Instant::from_micros(self.begun.elapsed().as_micros() as i64)
    }

    fn handle(&mut self, channel: &mut Channel, frames: Option<&Frames>) -> Result<()> {
        let now = self.now();
        let mut port = VifDevice::new(channel, self.vif, &self.capabilities, frames);
        self.interface.poll(now, &mut port, &mut self.sockets);
        for service in &self.services {
            service.serve(self.sockets.get_mut(service.handle))?;
        }
        self.interface.poll(now, &mut port, &mut self.sockets);
        port.failure.map_or(Ok(()), |error| Err(error.into()))
    }
}

fn socket() -> tcp::Socket<'static> {
    let buffer = || tcp::SocketBuffer::new(vec![0; SOCKET_BUFFER_BYTES]);
    let mut socket = tcp::Socket::new(buffer(), buffer());
    socket.set_keep_alive(Some(KEEP_ALIVE));
    socket.set_timeout(Some(PATIENCE));
    socket
}

/// A socket and what it is for.
struct Service {
    handle: SocketHandle,
    port: u16,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Echo,
    Page,
}

impl Service {
    fn serve(&self, socket: &mut tcp::Socket<'_>) -> Result<()> {
        if !socket.is_open() {
            socket.listen(self.port)?;
        }
        match self.kind {
            Kind::Echo => echo(socket),
            Kind::Page => page(socket),
        }
    }
}

/// Sends back what has come, as far as there is room.
fn echo(socket: &mut tcp::Socket<'_>) -> Result<()> {
    let mut bytes = [0; 2048];
    while socket.can_recv() && socket.can_send() {
        let room = (socket.send_capacity() - socket.send_queue()).min(bytes.len());
        let length = socket.recv_slice(&mut bytes[..room])?;
        socket.send_slice(&bytes[..length])?;
    }
    let has_ended = socket.state() == tcp::State::CloseWait && !socket.can_recv();
    if has_ended {
        socket.close();
    }
    Ok(())
}

/// Answers one request, whatever it asks for, and closes.
fn page(socket: &mut tcp::Socket<'_>) -> Result<()> {
    if !socket.may_send() || !socket.can_recv() {
        if socket.state() == tcp::State::CloseWait {
            socket.close();
        }
        return Ok(());
    }
    let length = socket.recv_queue();
    let mut request = [0; REQUEST_BYTES_MAX];
    let seen = socket.peek_slice(&mut request)?;
    let is_whole = request[..seen].windows(4).any(|end| end == b"\r\n\r\n");
    if is_whole || length >= REQUEST_BYTES_MAX {
        socket.recv(|bytes| (bytes.len(), ()))?;
        let is_get = request.starts_with(b"GET ");
        socket.send_slice(answer(is_get).as_bytes())?;
        socket.close();
    }
    Ok(())
}

fn answer(is_get: bool) -> String {
    let (status, text) = match is_get {
        true => {
            ("200 OK", "<!doctype html><title>Clearway</title><p>Hello from my own stack.</p>\n")
        }
        false => ("405 Method Not Allowed", "Only GET is understood here.\n"),
    };
    let length = text.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{text}"
    )
}

/// The virtual interface as smoltcp sees it, for one burst of frames.
struct VifDevice<'a> {
    channel: &'a mut Channel,
    vif: VifId,
    capabilities: DeviceCapabilities,
    frames: ReceivedBurst<'a>,
    /// Why a frame could not be sent.
    failure: Option<Error>,
}

impl<'a> VifDevice<'a> {
    fn new(
        channel: &'a mut Channel,
        vif: VifId,
        capabilities: &DeviceCapabilities,
        frames: Option<&'a Frames>,
    ) -> Self {
        let frames = frames.map_or_else(|| ReceivedBurst::new(&[], 0), Frames::iter);
        Self { channel, vif, capabilities: capabilities.clone(), frames, failure: None }
    }
}

impl phy::Device for VifDevice<'_> {
    type RxToken<'t>
        = Received<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Sending<'t>
    where
        Self: 't;

    fn receive(&mut self, now: Instant) -> Option<(Received<'_>, Sending<'_>)> {
        let received = Received(self.frames.next()?.bytes);
        Some((received, self.transmit(now)?))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        let Self { channel, vif, failure, .. } = self;
        Some(Sending { channel, vif: *vif, failure })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities.clone()
    }
}

struct Received<'a>(&'a [u8]);

impl phy::RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

struct Sending<'a> {
    channel: &'a mut Channel,
    vif: VifId,
    failure: &'a mut Option<Error>,
}

impl phy::TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        match self.channel.frame_buffer(self.vif, length, None) {
            Ok(frame) => write(frame),
            Err(error) => {
                *self.failure = Some(error);
                write(&mut vec![0; length])
            }
        }
    }
}
