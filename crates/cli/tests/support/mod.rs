//! Two hosts, each a real `clearwayd` process, joined by memif; apps in this process and in
//! processes of their own; and traffic that goes on while something else is tested.
#![allow(dead_code, reason = "each test file that includes this uses a part of it")]

pub(crate) mod app;
pub(crate) mod bad_wire;
#[cfg(target_arch = "x86_64")]
pub(crate) mod captive;
pub(crate) mod fabric;
pub(crate) mod kernel_peer;
pub(crate) mod server;
pub(crate) mod terminal;
pub(crate) mod traffic;
pub(crate) mod veth;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use clearway_client::{Channel, Options, Sizes};
use clearway_nic::interface::Namespace;
use serde_json::Value;

use fabric::Fabric;

/// Nothing in these tests takes longer, unless something is wrong.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Channels of the tests: room for a few of the largest messages is not needed everywhere.
pub(crate) const SMALL: Sizes = Sizes {
    submission_entries: 256,
    completion_entries: 256,
    transmit_pool_bytes: 1 << 20,
    receive_pool_bytes: 1 << 20,
    shared_bytes: 0,
};

/// Who starts a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Starter {
    Root,
    /// A user without any privilege.
    Nobody,
}

/// Two hosts and the wire between them.
pub(crate) struct Network {
    pub(crate) client: Daemon,
    pub(crate) server: Daemon,
    directory: PathBuf,
}

impl Network {
    pub(crate) fn start() -> Self {
        Self::with_server_policy("")
    }

    /// `policy`, or whatever else, is added to the configuration of the server's host.
    pub(crate) fn with_server_policy(policy: &str) -> Self {
        let directory = new_directory();
        let client = Daemon::on_memif(&directory, "client", "10.8.0.1", "");
        let server = Daemon::on_memif(&directory, "server", "10.8.0.2", policy);
        Self { client, server, directory }
    }

    /// `keys`, or whatever else, is added to the configuration of both hosts.
    pub(crate) fn with_policies(keys: &str) -> Self {
        let directory = new_directory();
        let server = Daemon::on_memif(&directory, "server", "10.8.0.2", keys);
        let client = Daemon::on_memif(&directory, "client", "10.8.0.1", keys);
        Self { client, server, directory }
    }

    /// The same; the server's host has a limit as `prlimit` takes it: `nofile=SOFT:HARD`.
    pub(crate) fn with_limit(limit: &str, policy: &str) -> Self {
        let mut network = Self::with_server_policy(policy);
        let server = &mut network.server;
        server.kill();
        let mut prlimit = Command::new("prlimit");
        prlimit.arg(format!("--{limit}")).arg(env!("CARGO_BIN_EXE_clearwayd"));
        server.process = start(prlimit.stdin(Stdio::null()), &server.config);
        server.wait_until_ready();
        network
    }

    /// Two hosts whose logs say who comes and goes.
    pub(crate) fn talkative() -> Self {
        let network = Self::start();
        for daemon in [&network.client, &network.server] {
            daemon.rewrite_config(|text| text.replace("\"warn\"", "\"info\""));
            assert!(clearway(&["reload"], daemon).status.success());
        }
        network
    }

    /// Two hosts with a NIC each, as `nics` describes them, which are started in two namespaces.
    pub(crate) fn in_namespaces(spaces: [&Namespace; 2], nics: [&str; 2], at: [IpAddr; 2]) -> Self {
        let network = Self::in_namespaces_not_ready(spaces, nics, at);
        network.wait_until_ready();
        network
    }

    /// The same, without waiting until they answer.
    pub(crate) fn in_namespaces_not_ready(
        spaces: [&Namespace; 2],
        nics: [&str; 2],
        at: [IpAddr; 2],
    ) -> Self {
        Self::in_namespaces_by([Starter::Root; 2], spaces, nics, at)
    }

    /// The same, whose daemons these users start.
    pub(crate) fn in_namespaces_by(
        starters: [Starter; 2],
        spaces: [&Namespace; 2],
        nics: [&str; 2],
        at: [IpAddr; 2],
    ) -> Self {
        let directory = new_directory();
        if starters.contains(&Starter::Nobody) {
            // They make sockets there.
            std::os::unix::fs::chown(&directory, Some(NOBODY), Some(NOBODY)).expect("root may");
        }
        let start = |index: usize, role: &str| {
            let Files { socket, config } = Files::new(&directory, role, nics[index]);
            let spawned = spaces[index].within(|| match starters[index] {
                Starter::Root => spawn(&config),
                Starter::Nobody => spawn_as_nobody(&config),
            });
            let process = spawned.expect("the namespace can be entered");
            Daemon { process, address: at[index], socket, config }
        };
        let (client, server) = (start(0, "client"), start(1, "server"));
        Self { client, server, directory }
    }

    pub(crate) fn wait_until_ready(&self) {
        self.client.wait_until_ready();
        self.server.wait_until_ready();
    }

    /// Two hosts joined by memif, with these keys in their `[[nic]]` sections.
    pub(crate) fn on_memif(nics: [&str; 2], at: [IpAddr; 2]) -> Self {
        let directory = new_directory();
        let start = |index: usize, role: &str| {
            let socket = directory.join("memif.sock");
            let nic =
                format!("[[nic]]\ndriver = \"memif\"\nsocket = {socket:?}\nrole = \"{role}\"");
            let files = Files::new(&directory, role, &format!("{nic}\n{}", nics[index]));
            Daemon::new(spawn(&files.config), files, at[index])
        };
        let (client, server) = (start(0, "client"), start(1, "server"));
        Self { client, server, directory }
    }

    /// Two hosts joined by two memifs, called "a" and "b"; they have the addresses 10.8.0.1 and
    /// 10.9.0.1, and 10.8.0.2 and 10.9.0.2.
    pub(crate) fn on_two_memifs() -> Self {
        let directory = new_directory();
        let start = |host: u32, role: &str| {
            let nic = |name: &str, network: u32| {
                let socket = directory.join(format!("{name}.sock"));
                format!(
                    "[[nic]]\nname = \"{name}\"\ndriver = \"memif\"\nsocket = {socket:?}\n\
                     role = \"{role}\"\naddresses = [\"10.{network}.0.{host}/24\"]\n"
                )
            };
            let files = Files::new(&directory, role, &(nic("a", 8) + &nic("b", 9)));
            let address = std::net::Ipv4Addr::new(10, 8, 0, host as u8).into();
            Daemon::new(spawn(&files.config), files, address)
        };
        let (client, server) = (start(1, "client"), start(2, "server"));
        Self { client, server, directory }
    }

    /// Two hosts at the two ports of a `clearway fabric`, whose links have `queues` queue pairs.
    /// `keys` are those of the client's and of the server's port.
    pub(crate) fn at_fabric(queues: u16, keys: [&str; 2]) -> (Self, Fabric) {
        Self::at_fabric_with(queues, keys, "")
    }

    /// The same, with `nic` added to the description of each host's NIC.
    pub(crate) fn at_fabric_with(queues: u16, keys: [&str; 2], nic: &str) -> (Self, Fabric) {
        let directory = new_directory();
        let socket = |role: &str| directory.join(format!("{role}.memif"));
        let ports = [("client", keys[0]), ("server", keys[1])]
            .map(|(role, keys)| format!("{role}={},queues={queues}{keys}", socket(role).display()));
        let fabric = Fabric::start(&ports);
        let start = |role: &str, address: &str| {
            let sections = format!(
                "[[nic]]\ndriver = \"memif\"\nsocket = {:?}\nrole = \"client\"\n\
                 queue_pairs = {queues}\naddresses = [\"{address}/24\"]\n{nic}",
                socket(role)
            );
            let files = Files::new(&directory, role, &sections);
            Daemon::new(spawn(&files.config), files, address.parse().expect("an address"))
        };
        let (client, server) = (start("client", "10.8.0.1"), start("server", "10.8.0.2"));
        (Self { client, server, directory }, fabric)
    }

    /// Everything that is in the directory of the two hosts.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).expect("the directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into()).collect();
        names.sort();
        names
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.client.stop();
        self.server.stop();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

pub(crate) fn new_directory() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("clearway-hosts-{}-{number}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    fs::create_dir_all(&directory).expect("a directory");
    directory
}

/// The files of a daemon.
struct Files {
    socket: PathBuf,
    config: PathBuf,
}

impl Files {
    fn new(directory: &Path, role: &str, sections: &str) -> Self {
        let path = |extension: &str| directory.join(format!("{role}.{extension}"));
        let (socket, config) = (path("sock"), path("toml"));
        // So that `sections` may begin with keys of the top level.
        let text = format!("control.socket = {socket:?}\nlog.level = \"warn\"\n{sections}\n");
        fs::write(&config, text).expect("the configuration");
        Self { socket, config }
    }
}

/// A `clearwayd`.
pub(crate) struct Daemon {
    process: Child,
    pub(crate) address: IpAddr,
    pub(crate) socket: PathBuf,
    config: PathBuf,
}

impl Daemon {
    fn on_memif(directory: &Path, role: &str, address: &str, policy: &str) -> Self {
        let sections = format!(
            "{policy}\n[[nic]]\ndriver = \"memif\"\nsocket = {:?}\nrole = \"{role}\"\n\
             addresses = [\"{address}/24\"]",
            directory.join("memif.sock"),
        );
        let files = Files::new(directory, role, &sections);
        Self::new(spawn(&files.config), files, address.parse().expect("an address"))
    }

    fn new(process: Child, files: Files, address: IpAddr) -> Self {
        let Files { socket, config } = files;
        let daemon = Self { process, address, socket, config };
        daemon.wait_until_ready();
        daemon
    }

    fn wait_until_ready(&self) {
        eventually("the daemon answers", || clearway(&["status"], self).status.success());
    }

    /// Starts it again after [`Daemon::kill`].
    pub(crate) fn restart(&mut self) {
        self.process = spawn(&self.config);
        self.wait_until_ready();
    }

    /// Waits until it has ended by itself.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        let mut status = None;
        eventually("the daemon ends", || {
            status = self.process.try_wait().expect("its state");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }

    /// As `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("gone");
    }

    /// As an operator does; true if it ended in good order.
    pub(crate) fn terminate(&mut self) -> bool {
        signal(&self.process, "TERM");
        self.process.wait().expect("gone").success()
    }

    fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            println!("the log of {}:\n{}", self.config.display(), self.log());
        }
    }

    /// All that it has logged.
    pub(crate) fn log(&self) -> String {
        let bytes = fs::read(log_of(&self.config)).expect("the log");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(&self.process, name);
    }

    /// Changes its configuration, which it has read already.
    pub(crate) fn rewrite_config(&self, change: impl FnOnce(String) -> String) {
        let text = fs::read_to_string(&self.config).expect("the configuration");
        fs::write(&self.config, change(text)).expect("the configuration");
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// The processes that it has started.
    pub(crate) fn children(&self) -> Vec<u32> {
        let id = self.process_id();
        let text = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("children");
        text.split_whitespace().map(|id| id.parse().expect("a number")).collect()
    }

    /// What the daemon answers to a request, as it is.
    pub(crate) fn ask(&self, request: &clearway_channel::control::Request) -> String {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = socket.expect("a socket");
        let address = SocketAddrUnix::new(&self.socket).expect("an address");
        rustix::net::connect(&socket, &address).expect("connected");
        clearway_channel::control::send(&socket, request, &[]).expect("sent");
        let packet = clearway_channel::control::receive(&socket).expect("received");
        String::from_utf8(packet.expect("an answer").bytes).expect("JSON")
    }

    /// What `clearway status --json` says.
    pub(crate) fn status(&self) -> Value {
        let output = clearway(&["status", "--json"], self);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Apps that are attached, as control plane and engine agree.
    pub(crate) fn apps(&self) -> usize {
        let status = self.status();
        let apps = status["apps"].as_array().map_or(0, Vec::len);
        let engines = status["engines"].as_array().map_or(&[][..], Vec::as_slice);
        let channels = engines.iter().filter_map(|engine| engine["channels"].as_array());
        let channels: usize = channels.map(Vec::len).sum();
        if apps == channels { apps } else { usize::MAX }
    }

    pub(crate) fn flows(&self) -> usize {
        let status = self.status();
        let omitted = status["flows_omitted"].as_u64().expect("a count") as usize;
        status["engines"][0]["flows"].as_array().map_or(0, Vec::len) + omitted
    }

    /// Attaches this process.
    pub(crate) fn attach(&self, app: &str) -> Channel {
        self.try_attach(app, SMALL).unwrap_or_else(|error| panic!("{app}: {error}"))
    }

    /// The same, at this engine or an engine of this NIC.
    pub(crate) fn attach_at(&self, engine: &str, app: &str) -> Channel {
        let engine = Some(engine.to_owned());
        let (socket, sizes) = (self.socket.clone(), SMALL);
        let options = Options { socket, engine, sizes, ..Options::new(app) };
        Channel::attach(&options).unwrap_or_else(|error| panic!("{app}: {error}"))
    }

    pub(crate) fn try_attach(
        &self,
        app: &str,
        sizes: Sizes,
    ) -> Result<Channel, clearway_client::Error> {
        let options = Options { socket: self.socket.clone(), sizes, ..Options::new(app) };
        Channel::attach(&options)
    }

    pub(crate) fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, port)
    }
}

/// Messages of all sizes there and back, from an app of one host to one of the other.
pub(crate) fn exchange_all_sizes(client: &Daemon, server: &Daemon) {
    let sizes =
        Sizes { transmit_pool_bytes: 32 << 20, receive_pool_bytes: 32 << 20, ..Sizes::default() };
    let mut echo = server.try_attach("server", sizes).expect("attached");
    let port = 4000;
    echo.listen(port).expect("listening");
    let mut channel = client.try_attach("client", sizes).expect("attached");
    let connection = channel.connect(server.at(port), Some(PATIENCE)).expect("connected");
    for length in [0, 1, 63, 64, 1400, 1500, 9000, 65_536, 1_000_000, 8 << 20] {
        let message: Vec<u8> = (0..length).map(|at: u32| (at % 251) as u8).collect();
        channel.send(connection, &message).expect("sent");
        let question = echo.recv_zero_copy(Some(PATIENCE)).expect("arrived");
        let from = question.connection();
        let copy = question.to_vec();
        drop(question);
        echo.send(from, &copy).expect("sent back");
        let answer = channel.recv_zero_copy(Some(PATIENCE)).expect("answered");
        assert!(*answer == *message, "the echo of {length} bytes is damaged");
    }
}

fn spawn(config: &Path) -> Child {
    start(Command::new(env!("CARGO_BIN_EXE_clearwayd")).stdin(Stdio::null()), config)
}

fn spawn_as_nobody(config: &Path) -> Child {
    start(&mut program_of_nobody(env!("CARGO_BIN_EXE_clearwayd")), config)
}

fn start(program: &mut Command, config: &Path) -> Child {
    let log = fs::File::options().create(true).append(true).open(log_of(config)).expect("a log");
    let program = program.arg("--config").arg(config).stdout(Stdio::null()).stderr(log);
    program.spawn().expect("the daemon starts")
}

fn log_of(config: &Path) -> PathBuf {
    config.with_extension("log")
}

/// Runs the `clearway` command against a daemon.
pub(crate) fn clearway(arguments: &[&str], daemon: &Daemon) -> Output {
    command(arguments, daemon).output().expect("the command starts")
}

pub(crate) fn command(arguments: &[&str], daemon: &Daemon) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
    command.args(arguments).arg("--socket").arg(&daemon.socket);
    command
}

/// The user that owns nothing.
pub(crate) const NOBODY: u32 = 65534;

/// A capture of what an engine's NICs receive and send, which is open and is written to `path`.
pub(crate) struct Capture(Child);

impl Capture {
    pub(crate) fn begin(daemon: &Daemon, path: &Path) -> Self {
        let capture = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .args(["vif", "capture", "-w"])
            .arg(path)
            .arg("--socket")
            .arg(&daemon.socket)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        eventually("the capture is open", || {
            let status = daemon.status();
            status["engines"][0]["captures"].as_array().is_some_and(|list| !list.is_empty())
        });
        Self(capture)
    }

    /// All of it is in the file.
    pub(crate) fn end(self) {
        signal(&self.0, "INT");
        let output = self.0.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Runs the `clearway` command against a daemon as nobody.
pub(crate) fn as_nobody(daemon: &Daemon, arguments: &[&str]) -> Output {
    command_of_nobody(daemon, arguments).output().expect("the command starts")
}

pub(crate) fn command_of_nobody(daemon: &Daemon, arguments: &[&str]) -> Command {
    let mut command = program_of_nobody(env!("CARGO_BIN_EXE_clearway"));
    command.args(arguments).arg("--socket").arg(&daemon.socket);
    command
}

/// Runs a command that goes on until Ctrl-C, which comes as soon as it has said that it has begun.
pub(crate) fn until_it_has_begun(command: &mut Command) -> Output {
    let mut process =
        command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the command starts");
    let mut told = BufReader::new(process.stderr.take().expect("a pipe"));
    let mut stderr = Vec::new();
    told.read_until(b'\n', &mut stderr).expect("read");
    signal(&process, "INT");
    told.read_to_end(&mut stderr).expect("read");
    Output { stderr, ..process.wait_with_output().expect("it ends") }
}

/// A program that nobody starts. It lies where nobody may not look, so it is opened before.
fn program_of_nobody(path: &str) -> Command {
    use std::os::unix::process::CommandExt;
    let name = Path::new(path).file_name().expect("a program has a name");
    let mut program = Command::new("/proc/self/fd/0");
    program.arg0(name).stdin(fs::File::open(path).expect("the program")).uid(NOBODY).gid(NOBODY);
    program
}

/// Sends a signal to a process that this test has started.
pub(crate) fn signal(process: &Child, name: &str) {
    let signal: nix::sys::signal::Signal = format!("SIG{name}").parse().expect("a signal");
    let process = nix::unistd::Pid::from_raw(process.id() as i32);
    nix::sys::signal::kill(process, signal).expect("the signal is sent");
}

/// Waits for a condition, looking again and again, but not so often that what it waits for has no
/// processor left to happen on.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "it did not happen in time that {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
