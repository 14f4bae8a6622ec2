//! An AF_XDP socket with its umem and rings, set up and bound to one queue of an interface.
//!
//! What frames mean, and when the kernel is kicked, is the business of `queue.rs`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpMmapOffsets,
    XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use super::mapping::Mapping;
use super::ring::{Consumer, Producer};
use crate::Error;
use crate::ebpf::{Memory, XdpSocket};
use crate::interface::set_option;

/// Bytes that the kernel keeps free before each received frame (`XDP_PACKET_HEADROOM`).
pub(super) const RECEIVE_HEADROOM_BYTES: usize = 256;

/// The most that the kernel charges for one frame: a page and its bookkeeping.
const FRAME_CHARGE_BYTES: u32 = 8192;

/// How the umem is divided. Chunks are of one size; the first ones are for receiving. Those for
/// sending are in slots of as many as the largest frame takes, so that it lies in one piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// The frames that fit into a ring, however large they are.
    pub(super) descriptors: u32,
    /// Bytes per chunk: half a page or a page, which is all that the kernel takes.
    pub(super) chunk_bytes: usize,
    /// Chunks that a frame may be spread over when it is sent.
    pub(super) chunks_per_frame: u32,
    /// The largest frame that can be received.
    pub(super) frame_bytes_max: usize,
}

impl Layout {
    /// The smallest chunks that hold frames of `frame_bytes`, or the largest there are.
    pub(super) fn new(descriptors: u32, frame_bytes: usize) -> Layout {
        let small = frame_bytes + RECEIVE_HEADROOM_BYTES <= 2048;
        let chunk_bytes = if small { 2048 } else { 4096 };
        let frame_bytes_max = chunk_bytes - RECEIVE_HEADROOM_BYTES;
        Layout { descriptors, chunk_bytes, chunks_per_frame: 1, frame_bytes_max }
    }

    /// The same for frames of `frame_bytes` that may take several chunks.
    pub(super) fn spread(self, frame_bytes: usize) -> Layout {
        let chunks_per_frame = frame_bytes.div_ceil(self.chunk_bytes) as u32;
        Layout { chunks_per_frame, frame_bytes_max: frame_bytes, ..self }
    }

    /// True if frames may take several chunks.
    pub(super) fn is_spread(&self) -> bool {
        self.chunks_per_frame > 1
    }

    /// Entries of the receive, transmit and completion rings: one for each chunk of each frame.
    pub(super) fn entries(&self) -> u32 {
        (self.descriptors * self.chunks_per_frame).next_power_of_two()
    }

    /// Enough to keep the fill ring of a driver stocked while a full receive ring waits for us.
    fn receive_chunks(&self) -> u32 {
        2 * self.entries()
    }

    fn chunks(&self) -> u32 {
        self.receive_chunks() + self.descriptors * self.chunks_per_frame
    }

    pub(super) fn umem_bytes(&self) -> usize {
        self.chunks() as usize * self.chunk_bytes
    }

    /// Umem offsets of the chunks to receive into.
    pub(super) fn receive_offsets(&self) -> impl Iterator<Item = u64> + use<> {
        let chunk_bytes = self.chunk_bytes as u64;
        (0..u64::from(self.receive_chunks())).map(move |chunk| chunk * chunk_bytes)
    }

    /// Umem offsets of the slots to send from.
    pub(super) fn transmit_offsets(&self) -> impl Iterator<Item = u64> + use<> {
        let (first, slot_bytes) = (self.transmit_start(), self.slot_bytes());
        (0..u64::from(self.descriptors)).map(move |slot| first + slot * slot_bytes)
    }

    /// The number and the umem offset of the slot that a chunk to send from, at `offset`, is of.
    pub(super) fn slot_of(&self, offset: u64) -> (usize, u64) {
        let slot = (offset - self.transmit_start()) / self.slot_bytes();
        (slot as usize, self.transmit_start() + slot * self.slot_bytes())
    }

    fn transmit_start(&self) -> u64 {
        u64::from(self.receive_chunks()) * self.chunk_bytes as u64
    }

    fn slot_bytes(&self) -> u64 {
        u64::from(self.chunks_per_frame) * self.chunk_bytes as u64
    }
}

/// The socket. Its rings are public to the queue that drives them.
#[derive(Debug)]
pub(super) struct Socket {
    // Fields are dropped in this order: the socket closes before its memory goes.
    file: OwnedFd,
    pub(super) fill: Producer<u64>,
    pub(super) received: Consumer<XdpDesc>,
    pub(super) transmit: Producer<XdpDesc>,
    pub(super) completed: Consumer<u64>,
    umem: Mapping,
    pub(super) layout: Layout,
}

impl Socket {
    /// Gives the socket its memory, with all receive chunks given to the kernel.
    pub(super) fn new(socket: XdpSocket, layout: Layout) -> Result<Socket, Error> {
        let XdpSocket { file, memory } = socket;
        let bytes = layout.umem_bytes();
        let allocated = |mapped: Result<Mapping, Errno>| {
            mapped.map_err(|errno| system("allocate packet memory", errno))
        };
        let umem = match memory {
            Some(memory) => allocated(Mapping::shared(memory.as_fd(), 0, bytes))?,
            None => {
                let umem = allocated(Mapping::anonymous(bytes))?;
                register(file.as_fd(), &umem, layout.chunk_bytes)?;
                umem
            }
        };
        // In copy mode frames that a NIC has yet to send count against the send buffer: let a full
        // ring fit. Without CAP_NET_ADMIN the default must do.
        let send_buffer_bytes = layout.entries() * FRAME_CHARGE_BYTES;
        let _ = set_option(&file, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &send_buffer_bytes);
        let mut socket = Socket::map_rings(file, umem, layout)
            .map_err(|errno| system("set up the AF_XDP rings", errno))?;
        socket.stock();
        Ok(socket)
    }

    /// One whose rings a test serves in the kernel's place: `rings` in the order of the fields, and
    /// their parts in each where `at` says.
    #[cfg(test)]
    pub(super) fn over(
        file: OwnedFd,
        umem: Mapping,
        layout: Layout,
        rings: [Mapping; 4],
        at: &XdpRingOffset,
    ) -> Socket {
        let (fill_count, count) = (layout.receive_chunks(), layout.entries());
        let [fill, received, transmit, completed] = rings;
        let mut socket = Socket {
            fill: Producer::new(fill, at, fill_count),
            received: Consumer::new(received, at, count),
            transmit: Producer::new(transmit, at, count),
            completed: Consumer::new(completed, at, count),
            file,
            umem,
            layout,
        };
        socket.stock();
        socket
    }

    /// Gives all receive chunks to the kernel.
    fn stock(&mut self) {
        for offset in self.layout.receive_offsets() {
            self.fill.write(offset);
        }
        self.fill.publish();
    }

    fn map_rings(file: OwnedFd, umem: Mapping, layout: Layout) -> Result<Socket, Errno> {
        let (fill_count, count) = (layout.receive_chunks(), layout.entries());
        sockopt::set_xdp_umem_fill_ring_size(&file, fill_count)?;
        sockopt::set_xdp_umem_completion_ring_size(&file, count)?;
        sockopt::set_xdp_rx_ring_size(&file, count)?;
        sockopt::set_xdp_tx_ring_size(&file, count)?;
        let XdpMmapOffsets { rx, tx, fr, cr } = sockopt::xdp_mmap_offsets(&file)?;
        let (addresses, descriptors) = (size_of::<u64>(), size_of::<XdpDesc>());
        let map = |page_offset, offsets: &XdpRingOffset, entry_bytes, count: u32| {
            let length = offsets.desc as usize + count as usize * entry_bytes;
            Mapping::shared(file.as_fd(), page_offset, length)
        };
        let fill_ring = map(XDP_UMEM_PGOFF_FILL_RING, &fr, addresses, fill_count)?;
        let completion_ring = map(XDP_UMEM_PGOFF_COMPLETION_RING, &cr, addresses, count)?;
        let receive_ring = map(XDP_PGOFF_RX_RING, &rx, descriptors, count)?;
        let transmit_ring = map(XDP_PGOFF_TX_RING, &tx, descriptors, count)?;
        Ok(Socket {
            fill: Producer::new(fill_ring, &fr, fill_count),
            received: Consumer::new(receive_ring, &rx, count),
            transmit: Producer::new(transmit_ring, &tx, count),
            completed: Consumer::new(completion_ring, &cr, count),
            file,
            umem,
            layout,
        })
    }

    /// Binds to `queue` of the interface; from here on frames can arrive.
    pub(super) fn bind(&self, interface_index: u32, queue: u32, zero_copy: bool) -> io::Result<()> {
        let way =
            if zero_copy { SocketAddrXdpFlags::XDP_ZEROCOPY } else { SocketAddrXdpFlags::XDP_COPY };
        let mut flags = way | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        flags.set(SocketAddrXdpFlags::XDP_USE_SG, self.layout.is_spread());
        Ok(bind(&self.file, &SocketAddrXdp::new(flags, interface_index, queue))?)
    }

    /// The `length` bytes of the umem at `offset`.
    pub(super) fn bytes(&self, offset: u64, length: usize) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.umem.at(offset as usize, length), length)
    }

    /// The start of the chunk that holds the byte at `offset`.
    pub(super) fn chunk_of(&self, offset: u64) -> u64 {
        offset & !(self.layout.chunk_bytes as u64 - 1)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A socket without anything.
pub(crate) fn bare_socket() -> Result<XdpSocket, Error> {
    let file = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .map_err(|errno| system("create an AF_XDP socket", errno))?;
    Ok(XdpSocket { file, memory: None })
}

/// The most memory that a socket is given: with the most descriptors, for jumbo frames.
const MEMORY_BYTES_MAX: usize = 1 << 27;

/// A socket with memory that is registered already, which another process maps: the memory counts
/// against the limits of this one.
pub(crate) fn socket_with_memory(memory: Memory) -> Result<XdpSocket, Error> {
    let Memory { bytes, chunk_bytes } = memory;
    let is_sound = [2048, 4096].contains(&chunk_bytes) && bytes.is_multiple_of(chunk_bytes);
    if !is_sound || !(1..=MEMORY_BYTES_MAX).contains(&bytes) {
        return Err(Error::Invalid(format!("{bytes} bytes in chunks of {chunk_bytes}")));
    }
    let XdpSocket { file, .. } = bare_socket()?;
    let made = || -> Result<(OwnedFd, Mapping), Errno> {
        let memory = memfd_create("clearway-xdp", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, bytes as u64)?;
        let umem = Mapping::shared(memory.as_fd(), 0, bytes)?;
        Ok((memory, umem))
    };
    let (memory, umem) = made().map_err(|errno| system("allocate packet memory", errno))?;
    register(file.as_fd(), &umem, chunk_bytes)?;
    Ok(XdpSocket { file, memory: Some(memory) })
}

fn register(socket: BorrowedFd<'_>, umem: &Mapping, chunk_bytes: usize) -> Result<(), Error> {
    let region = XdpUmemReg {
        addr: umem.at(0, umem.len()).as_ptr() as u64,
        len: umem.len() as u64,
        chunk_size: chunk_bytes as u32,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    sockopt::set_xdp_umem_reg(socket, region).map_err(|errno| register_failed(umem, errno))
}

/// The kernel charges pinned memory to the user and says ENOBUFS when the limit is reached.
fn register_failed(umem: &Mapping, errno: Errno) -> Error {
    if errno != Errno::NOBUFS {
        return system("register packet memory", errno);
    }
    Error::Permission(format!(
        "cannot pin {} KB of packet memory per queue: the limit on locked memory is too low. Raise \
         it (ulimit -l, or LimitMEMLOCK= in a systemd unit), give the daemon CAP_IPC_LOCK, or ask \
         for fewer descriptors",
        umem.len() / 1024
    ))
}

fn system(action: &str, errno: Errno) -> Error {
    match errno {
        Errno::PERM | Errno::ACCESS => Error::Permission(format!(
            "cannot {action}: AF_XDP needs CAP_NET_RAW (and CAP_NET_ADMIN and CAP_BPF for its eBPF \
             program). Run as root, or give the program these capabilities (setcap, or \
             AmbientCapabilities= in a systemd unit)"
        )),
        Errno::AFNOSUPPORT => Error::System {
            action: format!("cannot {action}"),
            remedy: "This kernel was built without CONFIG_XDP_SOCKETS; use af_packet or memif"
                .into(),
            source: errno.into(),
        },
        _ => Error::System {
            action: format!("cannot {action}"),
            remedy: "AF_XDP needs Linux 5.18 or newer and free memory".into(),
            source: errno.into(),
        },
    }
}
