//! Opening an interface: which mode is tried in which order, and what is said about it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use clearway_wire::{ethernet, vlan};

use super::program::{Attachment, Changed, Program};
use super::queue::XdpQueue;
use super::socket::{Layout, Socket};
use crate::af_packet::NO_WAY;
use crate::ebpf::{self, Installed, Memory, NotInstalled, Opener, ThisProcess};
use crate::interface::{Device, KernelSteering};
use crate::to_kernel::ToKernel;
use crate::{Error, Info, KERNEL_DESCRIPTORS, LCD_DESCRIPTORS, MacAddress, Queue};

/// Two VLAN tags, which the MTU does not count.
const VLAN_TAGS_BYTES: usize = 2 * vlan::TAG_LENGTH;

/// What every driver with XDP fits in one buffer: a page without what the kernel keeps in it.
const FRAME_IN_ONE_BUFFER_BYTES: usize = 3072;

/// The most descriptors per queue: more only hide that an engine cannot keep up.
const DESCRIPTORS_MAX: u32 = 2048;

/// The slots of the `sockets` map in steer.c.
const QUEUES_MAX: u32 = 256;

/// How often a queue or an interface that the kernel still calls busy is tried again, and after
/// what pause. The kernel frees a closed AF_XDP socket's queue in the background, and a program
/// stays attached while a process that is just being started has its descriptor, too; so that a
/// daemon that restarts would otherwise meet its own shadow.
const BUSY_ATTEMPTS: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// What to open and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the interface, in the calling thread's network namespace.
    pub interface: String,
    /// Set the interface to so many queues, and back when it is closed (a process that is killed
    /// leaves them as they are). `None`: use those it has.
    pub queues: Option<u16>,
    /// Descriptors per queue and direction: a power of two, 256 to 2048.
    pub descriptors: u32,
    /// Which mode to take.
    pub mode: Mode,
    /// Who does what takes privileges.
    pub opener: Arc<dyn Opener>,
}

impl Config {
    /// The queues the interface has, and the fastest mode that works.
    pub fn new(interface: &str) -> Config {
        Config {
            interface: interface.to_owned(),
            queues: None,
            descriptors: KERNEL_DESCRIPTORS as u32,
            mode: Mode::Auto,
            opener: Arc::new(ThisProcess),
        }
    }
}

/// How frames go between the NIC and our memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The fastest that works.
    #[default]
    Auto,
    /// In the driver, the faster mode of it that works; an error if there is none.
    Native,
    /// The driver's own queue, no copy; an error if the driver cannot.
    ZeroCopy,
    /// In the driver, with a copy by the kernel; an error if the driver cannot.
    Copy,
    /// In the kernel's stack: works on every interface.
    Generic,
}

/// Opens all receive queues of an interface and steers nothing to them yet: see
/// [`Steering`](crate::interface::Steering). The queues are in the order of the NIC's. In generic
/// mode, super-frames are lost: [`open_xdp`](crate::open_xdp) has a packet socket for them beside.
pub fn open(config: &Config) -> Result<(Vec<Box<dyn Queue>>, KernelSteering), Error> {
    Prepared::new(config)?.finish()
}

/// Sockets that are bound, before anybody has them.
pub(crate) struct Prepared {
    device: Device,
    mac: MacAddress,
    frame_bytes: usize,
    changed: Option<Changed>,
    opened: Opened,
    to_kernel: Option<Arc<ToKernel>>,
}

impl Prepared {
    pub(crate) fn new(config: &Config) -> Result<Prepared, Error> {
        check_descriptors(config.descriptors)?;
        let device = Device::open(&config.interface)?;
        let frame_bytes = device.mtu()? + ethernet::HEADER_LENGTH;
        let mac = device.mac()?;
        let changed = set_queues(config)?;
        let queues = count_queues(&device)?;
        let opened = open_layout(config, &device, frame_bytes, queues)?;
        Ok(Prepared { device, mac, frame_bytes, changed, opened, to_kernel: None })
    }

    /// There is a packet socket for what is left to the kernel, and a way to the kernel: in generic
    /// mode, in which the kernel makes packets of frames before the program sees them, what may be
    /// a super-frame is left.
    pub(crate) fn be_beside(&mut self, to_kernel: &Arc<ToKernel>) {
        self.to_kernel = Some(Arc::clone(to_kernel));
        if self.opened.mode == BindMode::Generic {
            self.opened.program.pass_unfinished(self.frame_bytes + VLAN_TAGS_BYTES);
        }
    }

    /// There is neither.
    pub(crate) fn be_alone(&mut self, why: &Error) {
        if self.opened.mode == BindMode::Generic {
            self.opened.sentence += "; super-frames that others send are lost";
        }
        self.opened.sentence += &format!("; {NO_WAY}: {why}");
    }

    pub(crate) fn finish(self) -> Result<(Vec<Box<dyn Queue>>, KernelSteering), Error> {
        let Prepared { device, mac, frame_bytes, changed, opened, to_kernel } = self;
        let info = Info { driver: "af_xdp", mode: opened.sentence, mac };
        let attachment = Arc::new(Attachment::new(opened.link, changed));
        let mut boxed: Vec<Box<dyn Queue>> = Vec::new();
        for socket in opened.sockets {
            let device = Device::open(device.name())?;
            let attachment = attachment.clone();
            let queue = XdpQueue::new(socket, device, info.clone(), frame_bytes, attachment);
            boxed.push(Box::new(queue.with_way(to_kernel.clone())));
        }
        let steering = KernelSteering::new(opened.program.into_table(attachment), device)?;
        Ok((boxed, steering))
    }
}

/// Opens with frames in one chunk, or in several where they do not fit.
fn open_layout(
    config: &Config,
    device: &Device,
    frame_bytes: usize,
    queues: u32,
) -> Result<Opened, Error> {
    let one_chunk = Layout::new(config.descriptors, frame_bytes + VLAN_TAGS_BYTES);
    let fragments = frame_bytes > FRAME_IN_ONE_BUFFER_BYTES;
    let open = |layout| {
        let opening = Opening { opener: &*config.opener, device, fragments, layout, queues };
        opening.first(config.mode)
    };
    let limit = one_chunk.frame_bytes_max;
    if frame_bytes <= limit {
        return open(one_chunk);
    }
    open(one_chunk.spread(frame_bytes + VLAN_TAGS_BYTES)).or_else(|why| {
        let mut opened = open(one_chunk)?;
        opened.sentence += &format!(
            "; frames over {limit} bytes are neither sent nor received: they need several buffers \
             each (Linux 6.6 and a driver that can), and {why}. Keep the MTU at {} or below on \
             this link",
            limit - ethernet::HEADER_LENGTH
        );
        Ok(opened)
    })
}

fn check_descriptors(descriptors: u32) -> Result<(), Error> {
    let range = LCD_DESCRIPTORS as u32..=DESCRIPTORS_MAX;
    if descriptors.is_power_of_two() && range.contains(&descriptors) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{descriptors} descriptors per queue cannot be had; choose 256, 512, 1024 or 2048"
    )))
}

/// Sets the number of queues if one is asked for that is not there already.
fn set_queues(config: &Config) -> Result<Option<Changed>, Error> {
    let Some(wanted) = config.queues.map(u32::from) else { return Ok(None) };
    let device = Device::open(&config.interface)?;
    if device.channels().receive_queues() == wanted {
        return Ok(None);
    }
    let before = device.set_pairs(wanted)?;
    Ok(Some(Changed { device, before }))
}

/// The receive queues. Each needs a socket: frames that arrive on a queue without one go to the
/// kernel, and which queue a frame arrives on is the NIC's secret.
fn count_queues(device: &Device) -> Result<u32, Error> {
    let channels = device.channels();
    let count = channels.receive_queues();
    if channels.pairs() < count {
        return Err(Error::Invalid(format!(
            "{} has {count} receive queues and fewer transmit queues; an engine needs one of each. \
             Make them equal with `ethtool -L {0}` or the `queues` setting",
            device.name()
        )));
    }
    if count > QUEUES_MAX {
        return Err(Error::Invalid(format!(
            "{} has {count} receive queues, at most {QUEUES_MAX} are supported; lower it with \
             `ethtool -L {0}` or the `queues` setting",
            device.name()
        )));
    }
    Ok(count)
}

/// A mode that was tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BindMode {
    ZeroCopy,
    Copy,
    Generic,
}

impl BindMode {
    fn name(self) -> &'static str {
        match self {
            BindMode::ZeroCopy => "zero-copy mode",
            BindMode::Copy => "copy mode in the driver",
            BindMode::Generic => "generic mode (copy, after the kernel made an skb)",
        }
    }
}

/// The order in which modes are tried, and why if it is not fastest first by nature.
fn modes(mode: Mode, driver: &str) -> (&'static [BindMode], &'static str) {
    match mode {
        Mode::Native => (&[BindMode::ZeroCopy, BindMode::Copy], ""),
        Mode::ZeroCopy => (&[BindMode::ZeroCopy], " as configured"),
        Mode::Copy => (&[BindMode::Copy], " as configured"),
        Mode::Generic => (&[BindMode::Generic], " as configured"),
        // An skb is what a veth pair carries. Native mode has to turn each into an XDP buffer, with
        // another copy and a NAPI poll, and takes the pair's segmentation offload away: an echo
        // takes 3.9 µs instead of 3.7, and the kernel's own TCP falls from 7 to 2.5 Gbit/s, where
        // generic mode leaves it as it was.
        Mode::Auto if driver == "veth" => (
            &[BindMode::Generic, BindMode::Copy],
            ", chosen for veth, which has no zero-copy and is slower in native copy mode",
        ),
        Mode::Auto => (&[BindMode::ZeroCopy, BindMode::Copy, BindMode::Generic], ""),
    }
}

struct Opened {
    mode: BindMode,
    link: OwnedFd,
    program: Program,
    sockets: Vec<Socket>,
    sentence: String,
}

enum Refusal {
    /// This mode does not work here; another may.
    Mode(String),
    /// No mode will work.
    Final(Error),
}

/// What stays the same in all modes that are tried.
struct Opening<'a> {
    opener: &'a dyn Opener,
    device: &'a Device,
    fragments: bool,
    layout: Layout,
    queues: u32,
}

impl Opening<'_> {
    /// Takes the first mode that works.
    fn first(&self, mode: Mode) -> Result<Opened, Error> {
        let driver = self.device.driver().unwrap_or_else(|| "an unknown driver".to_owned());
        let (modes, reason) = modes(mode, &driver);
        let mut refusals = Vec::new();
        for &mode in modes {
            match self.try_mode(mode) {
                Ok((link, program, sockets)) => {
                    let mut sentence = format!("{} on {driver}{reason}", mode.name());
                    if !refusals.is_empty() {
                        sentence += &format!("; {}", refusals.join("; "));
                    }
                    return Ok(Opened { mode, link, program, sockets, sentence });
                }
                Err(Refusal::Final(error)) => return Err(error),
                Err(Refusal::Mode(why)) => refusals.push(format!("no {}: {why}", mode.name())),
            }
        }
        Err(Error::Invalid(format!(
            "{} ({driver}) cannot be opened with AF_XDP: {}. Use af_packet, or `mode = \"auto\"`",
            self.device.name(),
            refusals.join("; ")
        )))
    }

    fn try_mode(&self, mode: BindMode) -> Result<(OwnedFd, Program, Vec<Socket>), Refusal> {
        let Self { device, layout, .. } = *self;
        let how =
            ebpf::AttachMode { fragments: self.fragments, generic: mode == BindMode::Generic };
        let Installed { link, tables } =
            self.opener.steer(device, how).map_err(|error| match error {
                NotInstalled::Never(error) => Refusal::Final(error),
                NotInstalled::NotSo(error) => attach_refused(device, error),
            })?;
        let mut program = Program::new(tables).map_err(Refusal::Final)?;
        let mut sockets = Vec::new();
        for queue in 0..self.queues {
            let memory = Memory { bytes: layout.umem_bytes(), chunk_bytes: layout.chunk_bytes };
            let socket = self.opener.xdp_socket(memory);
            let socket =
                socket.and_then(|socket| Socket::new(socket, layout)).map_err(Refusal::Final)?;
            bind(&socket, device, queue, mode)
                .map_err(|error| bind_refused(device, queue, error))?;
            program
                .set_socket(queue, socket.as_fd())
                .map_err(|error| Refusal::Mode(format!("socket map: {error}")))?;
            sockets.push(socket);
        }
        Ok((link, program, sockets))
    }
}

fn bind(socket: &Socket, device: &Device, queue: u32, mode: BindMode) -> io::Result<()> {
    patiently(|| socket.bind(device.index(), queue, mode == BindMode::ZeroCopy))
}

fn is_busy(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::AlreadyExists)
}

/// Tries again what the kernel still calls busy.
pub(super) fn patiently<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut outcome = attempt();
    for _ in 1..BUSY_ATTEMPTS {
        match &outcome {
            Err(error) if is_busy(error) => {
                std::thread::sleep(BUSY_PAUSE);
                outcome = attempt();
            }
            _ => break,
        }
    }
    outcome
}

fn attach_refused(device: &Device, error: io::Error) -> Refusal {
    let name = device.name();
    match error.kind() {
        io::ErrorKind::PermissionDenied => Refusal::Final(Error::Permission(format!(
            "cannot attach an XDP program to {name}: that needs CAP_NET_ADMIN. Run as root or add \
             that capability"
        ))),
        _ if is_busy(&error) => Refusal::Final(Error::Invalid(format!(
            "another XDP program is attached to {name} (another daemon, or a tool's): `ip link \
                 show {name}` and `bpftool net` say which. Stop its owner, or remove it with `ip \
                 link set {name} xdp off`"
        ))),
        io::ErrorKind::Unsupported => Refusal::Mode("its driver runs no XDP programs".into()),
        _ => Refusal::Mode(format!("attach: {error}")),
    }
}

fn bind_refused(device: &Device, queue: u32, error: io::Error) -> Refusal {
    let name = device.name();
    match error.kind() {
        io::ErrorKind::ResourceBusy => Refusal::Final(Error::Invalid(format!(
            "queue {queue} of {name} is in use by another AF_XDP socket; stop the program that \
             holds it (`ss --xdp` or `bpftool net`)"
        ))),
        io::ErrorKind::Unsupported => {
            Refusal::Mode("its driver does not support it (bind: EOPNOTSUPP)".into())
        }
        _ => Refusal::Mode(format!("bind to queue {queue}: {error}")),
    }
}
