//! In threads of their own, so that the other tests keep what they have.

use std::fs::{self, File};
use std::io::{ErrorKind, IoSlice};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::process::Command;

use clearway_nic::tap;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, send, sendmsg, sendto, socket_with,
};

use super::*;
use crate::config::{Driver, Interface, InterfaceDriver, Nic, Tap, XdpMode};
use crate::privileges;

/// Runs `work` confined by this configuration. Only where the kernel itself says that it cannot do
/// all of it, nothing is run.
fn confined<T: Send + 'static>(
    config: Config,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let confined = move || {
        privileges::drop_unneeded(&config, None).expect("dropping needs no privilege");
        let state = confine(&config);
        if kernel_lacks(&state.files) {
            println!("skipped: {state:?}");
            return None;
        }
        assert_eq!((state.system_calls.as_str(), state.files.as_str()), (ON, ON));
        Some(work())
    };
    std::thread::spawn(confined).join().expect("no panic")
}

/// An older kernel, or one that says itself that Landlock is switched off.
fn kernel_lacks(files: &str) -> bool {
    let off = ["not enabled", "has no Landlock"].iter().any(|lack| files.contains(lack));
    off || privileges::kernel_version() < Some((6, 12))
}

fn refused<T>(outcome: std::io::Result<T>) {
    let error = outcome.err().expect("it was allowed");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

#[test]
fn confined_daemon_starts_no_program_and_opens_no_file() {
    confined(Config::default(), || {
        refused(Command::new("true").status());
        refused(File::open("/etc/hostname"));
        refused(File::create(std::env::temp_dir().join("clearway-confined")));
        refused(fs::read_dir("/"));
        refused(UnixListener::bind(std::env::temp_dir().join("clearway-confined.sock")));
        refused(TcpListener::bind(("127.0.0.1", 0)));
    });
}

/// A configuration with a kernel interface, for which some sockets are allowed.
fn on_interface() -> Config {
    let kernel = Interface {
        name: "eth0".into(),
        driver: InterfaceDriver::Auto,
        mode: XdpMode::Auto,
        queues: None,
        super_frames: None,
    };
    let nics = vec![Nic::new("e", Driver::Interface(kernel), Vec::new())];
    Config { nics, ..Config::default() }
}

fn socket_is_refused(family: AddressFamily, kind: SocketType, protocol: Option<Protocol>) {
    let outcome = socket_with(family, kind, SocketFlags::CLOEXEC, protocol);
    let errno = outcome.expect_err("it was allowed");
    assert_eq!(errno, Errno::PERM, "{family:?} {kind:?} {protocol:?}");
}

/// Neither a service manager nor anybody else can be asked for anything.
#[test]
fn confined_daemon_connects_to_nobody() {
    for config in [Config::default(), on_interface()] {
        let udp = UdpSocket::bind(("127.0.0.1", 0)).expect("not confined yet");
        let to = udp.local_addr().expect("its address");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("not confined yet");
        let tcp = listener.local_addr().expect("its address");
        let flags = SocketFlags::CLOEXEC;
        let new = |family, kind| socket_with(family, kind, flags, None).expect("not confined yet");
        let datagrams = new(AddressFamily::UNIX, SocketType::DGRAM);
        let stream = new(AddressFamily::INET, SocketType::STREAM);
        confined(config, move || {
            refused(UdpSocket::connect(&udp, to));
            refused(udp.send_to(b"x", to));
            let name = SocketAddrUnix::new("/run/systemd/notify").expect("an address");
            assert_eq!(connect(&datagrams, &name), Err(Errno::PERM));
            assert_eq!(sendto(&datagrams, b"x", SendFlags::empty(), &name), Err(Errno::PERM));
            // TCP Fast Open connects by sending; without an address, too.
            let fast_open = SendFlags::from_bits_retain(0x2000_0000);
            assert_eq!(send(&stream, b"x", fast_open), Err(Errno::PERM));
            let mut nothing = SendAncillaryBuffer::default();
            let sent = sendmsg(&stream, &[IoSlice::new(b"x")], &mut nothing, fast_open);
            assert_eq!(sent, Err(Errno::PERM));
            refused(std::net::TcpStream::connect(tcp));
            socket_is_refused(AddressFamily::UNIX, SocketType::STREAM, None);
            socket_is_refused(AddressFamily::UNIX, SocketType::DGRAM, None);
            // What opens what was sent to one's own socket is one, too.
            let pair = rustix::net::socketpair(
                AddressFamily::UNIX,
                SocketType::DGRAM,
                SocketFlags::CLOEXEC,
                None,
            );
            assert_eq!(pair.map(drop), Err(Errno::PERM));
        });
    }
}

/// Sockets that are no use to its NICs.
#[test]
fn confined_daemon_makes_no_sockets_but_those_of_its_nics() {
    confined(Config::default(), || {
        for family in [AddressFamily::INET, AddressFamily::NETLINK, AddressFamily::PACKET] {
            socket_is_refused(family, SocketType::DGRAM, None);
        }
    });
    confined(on_interface(), || {
        UdpSocket::bind(("127.0.0.1", 0)).expect("ports may be claimed");
        let route =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None);
        route.expect("the kernel may be asked for its network");
        let firewall = Protocol::from_raw(12.try_into().expect("not zero"));
        socket_is_refused(AddressFamily::NETLINK, SocketType::RAW, Some(firewall));
        socket_is_refused(AddressFamily::INET, SocketType::RAW, None);
        refused(TcpListener::bind(("127.0.0.1", 0)));
    });
}

/// A tap device takes no more than a socket to ask the kernel about it.
#[test]
fn confined_daemon_on_a_tap_device_asks_the_kernel_and_nobody_else() {
    let device = Tap { interface: "clearway0".into(), mac: None, super_frames: true };
    let nics = vec![Nic::new("t", Driver::Tap(device), Vec::new())];
    confined(Config { nics, ..Config::default() }, || {
        let route =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None);
        route.expect("the kernel may be asked for its network");
        clearway_nic::interface::Device::open("lo").expect("and about an interface");
        let firewall = Protocol::from_raw(12.try_into().expect("not zero"));
        socket_is_refused(AddressFamily::NETLINK, SocketType::RAW, Some(firewall));
        for family in [AddressFamily::INET, AddressFamily::INET6, AddressFamily::PACKET] {
            socket_is_refused(family, SocketType::DGRAM, None);
        }
        socket_is_refused(AddressFamily::INET, SocketType::STREAM, None);
        refused(File::options().read(true).write(true).open(tap::PATH));
    });
}

#[test]
fn confined_daemon_cannot_get_at_other_processes_or_the_kernel() {
    confined(Config::default(), || {
        let parent = rustix::process::getppid().expect("a parent");
        let signal = rustix::process::Signal::WINCH;
        assert!(rustix::process::kill_process(parent, signal).is_err());
        refused(File::options().write(true).open("/proc/self/mem"));
        let flags = rustix::process::PidfdFlags::empty();
        let process = rustix::process::pidfd_open(parent, flags);
        assert_eq!(process.map(drop), Err(rustix::io::Errno::PERM));
    });
}

/// What a daemon does all the time.
#[test]
fn confined_daemon_does_its_work() {
    let directory = std::env::temp_dir().join(format!("clearway-confine-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let socket = directory.join("control.sock");
    fs::write(&socket, "").expect("a file in the place of a socket");
    let mut config = Config::default();
    config.control.socket = socket.clone();
    confined(config, move || {
        let threads = (0..3).map(|n| {
            std::thread::Builder::new().name(format!("t{n}")).spawn(|| vec![7u8; 8 << 20].len())
        });
        for thread in threads {
            assert_eq!(thread.expect("threads may be started").join().expect("no panic"), 8 << 20);
        }
        fs::remove_file(&socket).expect("its own sockets are removed");
        File::open("/proc/thread-self/ns/net").expect("its network namespace can be told");
    });
    fs::remove_dir_all(&directory).expect("removed");
}

/// Or nobody could say where a daemon has crashed.
#[test]
fn backtrace_of_a_confined_daemon_has_names() {
    confined(Config::default(), || {
        let backtrace = std::backtrace::Backtrace::force_capture().to_string();
        assert!(backtrace.contains("backtrace_of_a_confined_daemon_has_names"), "{backtrace}");
    });
}

/// The opener brings programs to interfaces, and reads the configuration that says to which.
#[test]
fn opener_opens_and_does_nothing_else() {
    let confined = move |has_taps: bool| {
        let is_possible = tap::is_possible().is_ok();
        privileges::drop_all_but_opening(None, true, has_taps)
            .expect("dropping needs no privilege");
        let files = files::confine_opener(Path::new("/usr/share/doc/clearway.toml"), has_taps);
        let files = files.unwrap_or_else(|why| why);
        if kernel_lacks(&files) {
            println!("skipped: {files}");
            return;
        }
        assert_eq!((files, calls::confine(Who::Opener)), (ON.to_owned(), Ok(ON.to_owned())));
        fs::read_dir("/usr/share/doc").expect("the configuration's directory");
        refused(File::open("/etc/passwd"));
        refused(File::open("/proc/self/environ"));
        refused(File::create(std::env::temp_dir().join("clearway-opener")));
        refused(Command::new("true").status());
        socket_is_refused(AddressFamily::INET, SocketType::STREAM, None);
        socket_is_refused(AddressFamily::PACKET, SocketType::RAW, None);
        let audit = Protocol::from_raw(9.try_into().expect("not zero"));
        socket_is_refused(AddressFamily::NETLINK, SocketType::RAW, Some(audit));
        let unix = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        socket_with(unix.0, unix.1, unix.2, None).expect("for memifs");
        assert_eq!(tap::is_possible().is_ok(), is_possible && has_taps);
    };
    for has_taps in [false, true] {
        std::thread::spawn(move || confined(has_taps)).join().expect("no panic");
    }
}

/// The broker reads the user database and the configuration, and nothing else.
#[test]
fn broker_reads_what_it_is_asked_about() {
    let task = Task { config: Some("/usr/share/doc/clearway.toml".into()), ..Task::default() };
    let confined = move || {
        privileges::drop_all(None).expect("dropping needs no privilege");
        let files = files::confine_broker(&task).unwrap_or_else(|why| why);
        if kernel_lacks(&files) {
            println!("skipped: {files}");
            return;
        }
        assert_eq!((files, calls::confine(Who::Broker)), (ON.to_owned(), Ok(ON.to_owned())));
        File::open("/etc/passwd").expect("the user database");
        fs::read_dir("/usr/share/doc").expect("the configuration's directory");
        refused(File::open("/proc/self/environ"));
        refused(File::create("/etc/clearway-test"));
        refused(Command::new("true").status());
        socket_is_refused(AddressFamily::INET, SocketType::STREAM, None);
        let unix = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        socket_with(unix.0, unix.1, unix.2, None).expect("that is what it is for");
    };
    std::thread::spawn(confined).join().expect("no panic");
}

/// Wherever the link leads.
#[test]
fn a_configuration_that_is_a_link_is_read() {
    let place = std::env::temp_dir().join(format!("clearway-link-{}", std::process::id()));
    let [here, there] = ["here", "there"].map(|name| place.join(name));
    for directory in [&here, &there] {
        fs::create_dir_all(directory).expect("a directory");
    }
    let (config, target) = (here.join("clearway.toml"), there.join("clearway.toml"));
    fs::write(&target, "").expect("written");
    std::os::unix::fs::symlink(&target, &config).expect("a link");
    let task = Task { config: Some(config.clone()), ..Task::default() };
    for is_broker in [true, false] {
        let (config, task) = (config.clone(), task.clone());
        let confined = move || {
            let files = match is_broker {
                true => files::confine_broker(&task),
                false => files::confine_opener(&config, false),
            };
            (files, File::open(&config).map(drop))
        };
        let (files, read) = std::thread::spawn(confined).join().expect("no panic");
        read.unwrap_or_else(|error| panic!("{files:?}: {error}"));
    }
    fs::remove_dir_all(&place).expect("removed");
}
