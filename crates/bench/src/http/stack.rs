//! Connections of the crate smoltcp: a TCP/IP stack in the app's own thread, which is what programs
//! have that do without the kernel and without Clearway. On a packet socket, with an address and a
//! MAC of its own beside the kernel's. Only in builds with the feature `smoltcp`.

use super::run::PORT;
use super::server::{Happened, Id, Transport};
use crate::veth::{INTERFACE, PREFIX_BITS};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, Checksum, Device, DeviceCapabilities, Medium, RawSocket};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpCidr, Ipv4Address};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;

/// Where it serves.
pub(super) const ADDRESS: Ipv4Address = Ipv4Address::new(10, 77, 0, 3);
const MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 0x33]);
/// Of each connection, each way.
const BUFFER_BYTES: usize = 64 << 10;
/// A socket of smoltcp that listens becomes the connection: as many as there may be at a time.
const SOCKETS: usize = 256;

/// A packet socket. What comes over a veth pair has no checksums, and nobody else can send there.
struct Unverified(RawSocket);

impl Device for Unverified {
    type RxToken<'a> = <RawSocket as Device>::RxToken<'a>;
    type TxToken<'a> = <RawSocket as Device>::TxToken<'a>;

    fn receive(&mut self, now: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        self.0.receive(now)
    }

    fn transmit(&mut self, now: Instant) -> Option<Self::TxToken<'_>> {
        self.0.transmit(now)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = self.0.capabilities();
        capabilities.checksum.tcp = Checksum::Tx;
        capabilities
    }
}

/// What was told of a socket.
#[derive(Clone, Copy, Default)]
struct Told {
    is_accepted: bool,
    has_no_room: bool,
}

/// The stack, and all connections to it.
pub(super) struct Stack {
    device: Unverified,
    interface: Interface,
    sockets: SocketSet<'static>,
    handles: Vec<SocketHandle>,
    told: Vec<Told>,
    to_tell: VecDeque<Happened>,
}

impl Stack {
    pub(super) fn new() -> io::Result<Self> {
        let mut device = Unverified(RawSocket::new(INTERFACE, Medium::Ethernet)?);
        let mut interface = Interface::new(Config::new(MAC.into()), &mut device, Instant::now());
        interface.update_ip_addrs(|addresses| {
            let address = IpCidr::new(ADDRESS.into(), PREFIX_BITS);
            addresses.push(address).expect("there is room for one");
        });
        let mut sockets = SocketSet::new(Vec::new());
        let handles: Vec<_> = (0..SOCKETS).map(|_| sockets.add(socket())).collect();
        let told = vec![Told::default(); handles.len()];
        Ok(Self { device, interface, sockets, handles, told, to_tell: VecDeque::new() })
    }

    fn socket(&mut self, id: Id) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handles[id as usize])
    }

    /// Looks what has become of each socket, as programs on smoltcp do.
    fn look(&mut self) {
        for (at, (handle, told)) in self.handles.iter().zip(&mut self.told).enumerate() {
            let (id, socket) = (at as Id, self.sockets.get_mut::<tcp::Socket<'_>>(*handle));
            if !told.is_accepted {
                if !socket.is_open() {
                    socket.listen(PORT).expect("it is closed, and the port is one");
                }
                if !socket.may_send() {
                    continue;
                }
                told.is_accepted = true;
                self.to_tell.push_back(Happened::Accepted(id));
            }
            if told.has_no_room && socket.can_send() {
                told.has_no_room = false;
                self.to_tell.push_back(Happened::Writable(id));
            } else if !told.has_no_room && (socket.can_recv() || !socket.may_recv()) {
                self.to_tell.push_back(Happened::Readable(id));
            }
        }
    }
}

/// A socket that says at once what it has to say.
fn socket() -> tcp::Socket<'static> {
    let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER_BYTES]);
    let mut socket = tcp::Socket::new(buffer(), buffer());
    socket.set_nagle_enabled(false);
    socket
}

impl Transport for Stack {
    fn next(&mut self) -> io::Result<Happened> {
        loop {
            if let Some(happened) = self.to_tell.pop_front() {
                return Ok(happened);
            }
            let now = Instant::now();
            self.interface.poll(now, &mut self.device, &mut self.sockets);
            self.look();
            if self.to_tell.is_empty() {
                let delay = self.interface.poll_delay(now, &self.sockets);
                phy::wait(self.device.0.as_raw_fd(), delay)?;
            }
        }
    }

    fn receive(&mut self, id: Id, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let socket = self.socket(id);
        if socket.can_recv() {
            return socket.recv_slice(buffer).map(Some).map_err(io::Error::other);
        }
        Ok((!socket.may_recv()).then_some(0))
    }

    fn send(&mut self, id: Id, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.socket(id).send_slice(bytes).map_err(io::Error::other)?;
        self.told[id as usize].has_no_room = sent == 0;
        Ok(sent)
    }

    fn close(&mut self, id: Id) {
        self.socket(id).close();
        self.told[id as usize] = Told::default();
    }
}
