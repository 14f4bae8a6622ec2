//! The broker's side: become nobody in particular, confine oneself, serve until the daemon has
//! gone.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, sendto, socket_with,
};
use rustix::stdio::stdin;

use super::connector::{CONNECT, answer_of};
use super::{Answer, GroupsOf, LOOKUPS_AT_ONCE, NOTIFY, Order, Reread, Task, packet};
use crate::config::{self, Recorder};
use crate::privileges::{self, OwnUser};
use crate::users;
use crate::{Error, confinement, hold_signals};

/// The longest configuration that can be read again: with what escapes take, it fits in a packet.
pub(crate) const CONFIG_BYTES_MAX: usize = packet::PACKET_BYTES_MAX / 2;
/// Of what is wrong with it so much is told: with what escapes take, which is six times as much at
/// most, it fits in a packet, and in the daemon's answer to whoever has asked.
const PROBLEM_BYTES_MAX: usize = packet::PACKET_BYTES_MAX / 8;

/// Is the broker of the daemon at the other end of standard input, until that has gone.
pub(crate) fn serve() -> Result<(), Error> {
    serve_task().map_err(|error| Error::resources("serve the daemon as its broker", error))
}

fn serve_task() -> io::Result<()> {
    // What ends or reloads the daemon may be sent to its whole group of processes.
    hold_signals()?;
    let packet = packet::receive(stdin())?;
    let task: Task = serde_json::from_slice(&packet.bytes)?;
    let ready = prepare(&task).and_then(|()| start(&task, packet.descriptors));
    say_ready(&ready)?;
    ready?;
    obey_until_the_end(&task);
    // Threads may be in the middle of a look-up that takes its time.
    std::process::exit(0);
}

/// Tells the daemon that this process is ready, or why it is not.
pub(crate) fn say_ready<T>(ready: &io::Result<T>) -> io::Result<()> {
    let answer = Answer { problem: ready.as_ref().err().map(ToString::to_string) };
    packet::send(stdin(), &serde_json::to_vec(&answer)?, &[])
}

/// Gives everything up that the task does not need.
fn prepare(task: &Task) -> io::Result<()> {
    let user = task.user.as_deref().map(OwnUser::named).transpose()?.flatten();
    privileges::drop_all(user.as_ref())?;
    confinement::confine_broker(task);
    Ok(())
}

fn start(task: &Task, descriptors: Vec<OwnedFd>) -> io::Result<()> {
    let mut descriptors = descriptors.into_iter();
    for address in &task.connections {
        let socket = descriptors.next().ok_or(io::ErrorKind::InvalidData)?;
        connect_by(socket, address)?;
    }
    let socket = descriptors.next().ok_or(io::ErrorKind::InvalidData)?;
    for _ in 0..LOOKUPS_AT_ONCE {
        let socket = socket.try_clone()?;
        spawn("looking up", move || look_up_for(&socket))?;
    }
    Ok(())
}

/// From now on, requests on `socket` are answered with connections to `address`.
pub(crate) fn connect_by(socket: OwnedFd, address: &str) -> io::Result<()> {
    let address = parse_address(address)?;
    spawn("connecting", move || connect_for(&socket, &address))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

fn parse_address(text: &str) -> io::Result<SocketAddrUnix> {
    Ok(match text.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        None => SocketAddrUnix::new(Path::new(text))?,
    })
}

/// Answers each request on `socket` with a connection to `address`, or with the reason why not.
fn connect_for(socket: &OwnedFd, address: &SocketAddrUnix) {
    while let Ok(packet) = packet::receive(socket) {
        if packet.bytes != CONNECT {
            continue;
        }
        let outcome = connect_to(address);
        let (errno, connection) = answer_of(&outcome);
        if packet::send(socket, &errno, connection.as_slice()).is_err() {
            return;
        }
    }
}

fn connect_to(address: &SocketAddrUnix) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, address)?;
    Ok(socket)
}

/// Answers requests on `socket`, which other threads read as well.
fn look_up_for(socket: &OwnedFd) {
    while let Ok(packet) = packet::receive(socket) {
        let Some(of) = GroupsOf::parse(&packet.bytes) else { continue };
        let groups = users::groups_of(of.user, of.group);
        if packet::send(socket, &of.answer(&groups), &[]).is_err() {
            return;
        }
    }
}

/// Does what the daemon orders, until there is no daemon.
fn obey_until_the_end(task: &Task) {
    let manager = if task.notifies { Manager::from_environment() } else { None };
    while let Ok(packet) = packet::receive(stdin()) {
        let Some(order) = Order::parse(&packet.bytes) else { continue };
        if let (Some(manager), Some(notice)) = (&manager, order.notice()) {
            manager.tell(notice.as_bytes());
        }
        let done = match order {
            Order::Reread => answer_with(&reread(task.config.as_deref())),
            Order::OpenSocket => set_mode(&task.control, 0o666),
            Order::CloseSocket => set_mode(&task.control, 0o600),
            Order::Ready | Order::Alive | Order::Stopping | Order::Waiting => Ok(()),
        };
        if let Err(error) = done {
            tracing::warn!(%error, ?order, "the broker could not do it");
        }
    }
}

/// The configuration as it is now. Users and groups are looked up here, where the user database may
/// be read; everything else is checked by the daemon.
fn reread(path: Option<&Path>) -> Reread {
    let Some(path) = path else {
        return Reread::Problem(
            "the daemon was started without one\n    remedy: start it with --config FILE".into(),
        );
    };
    let name = path.display().to_string();
    let text = match text_of(path) {
        Ok(text) if text.len() <= CONFIG_BYTES_MAX => text,
        Ok(_) => {
            return Reread::Problem(format!(
                "{name}: it is longer than {CONFIG_BYTES_MAX} bytes\n    remedy: shorten it; \
                 comments count, too"
            ));
        }
        Err(error) => {
            let remedy = remedy(error.kind(), &name);
            return Reread::Problem(format!(
                "{name}: cannot read it: {error}\n    remedy: {remedy}"
            ));
        }
    };
    let recorder = Recorder::new();
    match config::parse(&text, &name, &recorder) {
        Ok(_) => Reread::Text { text, machine: recorder.into_record() },
        Err(problems) => Reread::Problem(shortened(problems.to_string(), &name)),
    }
}

/// As much of the problems of a configuration as is told, and where there are more, who tells them.
pub(crate) fn shortened(problems: String, name: &str) -> String {
    if problems.len() <= PROBLEM_BYTES_MAX {
        return problems;
    }
    let mut end = PROBLEM_BYTES_MAX;
    while !problems.is_char_boundary(end) {
        end -= 1;
    }
    format!(
        "{}\n... and more\n    remedy: see all of it: `clearway daemon --config {name} --check`",
        &problems[..end]
    )
}

/// The text of a file, or so much of it that it is seen to be too long.
fn text_of(path: &Path) -> io::Result<String> {
    let (file, _) = open_file(path)?;
    let mut text = String::new();
    file.take(CONFIG_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// A file, and what is known of it. What is no file may have no end, or no beginning yet: with its
/// broker or its opener, the daemon would wait for it.
pub(crate) fn open_file(path: &Path) -> io::Result<(File, Metadata)> {
    let without_waiting = OFlags::NONBLOCK.bits() as i32; // one bit of them
    let file = File::options().read(true).custom_flags(without_waiting).open(path)?;
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    Ok((file, facts))
}

/// What to do about a configuration that cannot be read.
pub(crate) fn remedy(kind: io::ErrorKind, name: &str) -> String {
    match kind {
        io::ErrorKind::PermissionDenied => {
            format!("the daemon's user has to be able to: chgrp clearway {name}; chmod 640 {name}")
        }
        io::ErrorKind::InvalidData => "write it in UTF-8".to_owned(),
        _ => "put a file there".to_owned(),
    }
}

fn answer_with(reread: &Reread) -> io::Result<()> {
    packet::send(stdin(), &packed(reread)?, &[])
}

/// As it is sent. A daemon that is sent more than a packet has to believe that its broker is none.
fn packed(reread: &Reread) -> serde_json::Result<Vec<u8>> {
    let whole = serde_json::to_vec(reread)?;
    if whole.len() <= packet::PACKET_BYTES_MAX {
        return Ok(whole);
    }
    serde_json::to_vec(&Reread::Problem(format!(
        "the configuration and what this machine says of it, the names of its interfaces and the \
         numbers of users and groups, come to more than {} bytes\n    remedy: name groups in place \
         of many users, or restart the daemon, which reads all of it",
        packet::PACKET_BYTES_MAX
    )))
}

fn set_mode(socket: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(mode))
}

/// The service manager's socket.
struct Manager {
    socket: OwnedFd,
    address: SocketAddrUnix,
}

impl Manager {
    fn from_environment() -> Option<Self> {
        let address = parse_address(std::env::var(NOTIFY).ok()?.as_str()).ok()?;
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).ok()?;
        Some(Self { socket, address })
    }

    /// A manager that has gone is no reason to end.
    fn tell(&self, state: &[u8]) {
        let _ = sendto(&self.socket, state, rustix::net::SendFlags::NOSIGNAL, &self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    /// A pipe that nobody writes into, one without an end, and a directory.
    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let pipe = std::env::temp_dir().join(format!("clearway-broker-{}", std::process::id()));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a pipe");
        for path in [pipe.as_path(), Path::new("/dev/zero"), Path::new("/")] {
            let Reread::Problem(problem) = reread(Some(path)) else { panic!("it was read") };
            assert!(problem.contains("it is no file\n    remedy: put a file there"), "{problem}");
        }
        std::fs::remove_file(&pipe).expect("its own");
    }

    #[test]
    fn what_is_too_long_says_what_to_do() {
        let path = std::env::temp_dir().join(format!("clearway-long-{}", std::process::id()));
        std::fs::write(&path, "#".repeat(CONFIG_BYTES_MAX + 1)).expect("written");
        let Reread::Problem(problem) = reread(Some(&path)) else { panic!("it was read") };
        std::fs::remove_file(&path).expect("its own");
        assert!(problem.contains("remedy: shorten it"), "{problem}");
    }

    /// As when the user database is away, and none of the users is known.
    #[test]
    fn many_problems_fit_in_a_packet() {
        let path = std::env::temp_dir().join(format!("clearway-problems-{}", std::process::id()));
        let users: String = (0..600).map(|user| format!("\"no-user-{user}\", ")).collect();
        std::fs::write(&path, format!("[policy]\nusers = [{users}]\n")).expect("written");
        let reread = reread(Some(&path));
        std::fs::remove_file(&path).expect("its own");
        let Reread::Problem(problem) = &reread else { panic!("it was read") };
        assert!(problem.contains("no-user-0") && problem.ends_with("--check`"), "{problem}");
        let bytes = packed(&reread).expect("JSON");
        assert!(bytes.len() <= packet::PACKET_BYTES_MAX, "{}", bytes.len());
    }

    /// Each of its characters may take six.
    #[test]
    fn what_is_told_of_problems_is_bounded_whatever_is_in_them() {
        let escaped = shortened("\u{1}".repeat(100_000), "a");
        let bytes = packed(&Reread::Problem(escaped)).expect("JSON");
        assert!(String::from_utf8_lossy(&bytes).contains("--check"), "it was sent");
        let wide = shortened("\u{20ac}".repeat(100_000), "a");
        assert!(wide.len() <= PROBLEM_BYTES_MAX + 100, "{}", wide.len());
        assert_eq!(shortened("few".to_owned(), "a"), "few");
    }

    /// Not even a configuration without a problem is more than the daemon takes.
    #[test]
    fn what_does_not_fit_in_a_packet_is_a_problem() {
        let text = "#".repeat(CONFIG_BYTES_MAX);
        let fits = Reread::Text { text, machine: Recorder::new().into_record() };
        let Reread::Text { .. } = unpacked(&fits) else { panic!("it has room") };
        let text = "\n".repeat(packet::PACKET_BYTES_MAX / 2);
        let more = Reread::Text { text, machine: Recorder::new().into_record() };
        let Reread::Problem(problem) = unpacked(&more) else { panic!("it has no room") };
        assert!(problem.contains("remedy: "), "{problem}");
    }

    /// What the daemon gets of it.
    fn unpacked(reread: &Reread) -> Reread {
        let bytes = packed(reread).expect("JSON");
        assert!(bytes.len() <= packet::PACKET_BYTES_MAX, "{}", bytes.len());
        serde_json::from_slice(&bytes).expect("JSON")
    }

    #[test]
    fn who_may_not_read_it_is_not_told_to_put_it_there() {
        let remedy = remedy(io::ErrorKind::PermissionDenied, "/etc/clearway.toml");
        assert!(remedy.contains("chmod 640 /etc/clearway.toml"), "{remedy}");
    }
}
