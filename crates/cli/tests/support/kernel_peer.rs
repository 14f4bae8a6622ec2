//! An app that speaks TCP at a real daemon on one end of a veth pair, and the Linux kernel at the
//! other.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use clearway_client::{self as client, Options, Sizes, Tcp};
use clearway_nic::interface::Namespace;

use super::veth::{IPV4, Veth};
use super::{Daemon, Network, PATIENCE};

pub(crate) const SIZES: Sizes = Sizes {
    submission_entries: 1024,
    completion_entries: 1024,
    transmit_pool_bytes: 4 << 20,
    receive_pool_bytes: 16 << 20,
    shared_bytes: 0,
};

/// A daemon with an app on one end of a veth pair; the other end is the kernel's.
pub(crate) struct World {
    pub(crate) network: Network,
    pub(crate) veth: Veth,
}

impl World {
    /// `None` where there are no namespaces to be made.
    pub(crate) fn start(driver: &str) -> Option<Self> {
        Some(Self::at(Veth::new()?, driver))
    }

    /// `nic` is what the `[[nic]]` sections have beside the interface, and whatever follows them.
    pub(crate) fn at(veth: Veth, nic: &str) -> Self {
        let network = veth.hosts([nic, nic], IPV4.map(IpAddr::V4));
        Self { network, veth }
    }

    pub(crate) fn daemon(&self) -> &Daemon {
        &self.network.server
    }

    pub(crate) fn tcp(&self) -> Tcp {
        let socket = self.daemon().socket.clone();
        Tcp::attach(&Options { socket, sizes: SIZES, ..Options::new("tcp") }).expect("attached")
    }

    /// The kernel's namespace.
    pub(crate) fn kernel(&self) -> &Namespace {
        &self.veth.spaces[0]
    }

    pub(crate) fn connect(&self, to: SocketAddr) -> std::io::Result<TcpStream> {
        let connected = self.kernel().within(|| TcpStream::connect_timeout(&to, PATIENCE));
        let stream = connected.expect("the namespace can be entered")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    pub(crate) fn listen(&self) -> (TcpListener, SocketAddr) {
        let listener = self.kernel().within(|| TcpListener::bind((IPV4[0], 0)));
        let listener = listener.expect("the namespace can be entered").expect("a listener");
        let address = listener.local_addr().expect("its address");
        (listener, address)
    }
}

pub(crate) fn bytes(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|at| ((at * 31 + seed) ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// The kernel's end writes all of it and then closes its half.
pub(crate) fn write_all(stream: &TcpStream, bytes: Vec<u8>) -> JoinHandle<()> {
    let mut stream = stream.try_clone().expect("another handle");
    std::thread::spawn(move || {
        stream.write_all(&bytes).expect("written");
        stream.shutdown(Shutdown::Write).expect("its half is closed");
    })
}

/// The kernel's end reads until the other end closes its half.
pub(crate) fn read_all(stream: &TcpStream) -> JoinHandle<Vec<u8>> {
    let mut stream = stream.try_clone().expect("another handle");
    std::thread::spawn(move || {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("read");
        all
    })
}

/// The app reads so many bytes to the end, and then writes as many.
pub(crate) fn exchange(kernel: &TcpStream, mut app: client::TcpStream, count: usize, seed: usize) {
    app.set_timeout(Some(PATIENCE));
    let (there, back) = (bytes(count, seed), bytes(count, seed + 1));
    let writing = write_all(kernel, there.clone());
    let mut received = Vec::with_capacity(there.len());
    app.read_to_end(&mut received).expect("all comes");
    assert!(received == there, "what the kernel has sent");
    writing.join().expect("no panic");
    let reading = read_all(kernel);
    app.write_all(&back).expect("all goes");
    app.shutdown(Shutdown::Write).expect("its half is closed");
    assert!(reading.join().expect("no panic") == back, "what the kernel has received");
}
