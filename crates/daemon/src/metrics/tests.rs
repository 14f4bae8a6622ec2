use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A directory until the end of a test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("clearway-metrics-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).expect("a directory");
        Self(directory)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn counter(group: &str, name: &str, is_level: bool) -> CounterDescription {
    CounterDescription {
        group: group.to_owned(),
        name: name.to_owned(),
        is_level,
        unit: "frames".to_owned(),
        help: "With \"quotes\" and a \\.".to_owned(),
    }
}

/// Two engines, the second with two queues.
fn description() -> Description {
    let engine = |name: &str, queues| EngineDescription {
        name: name.to_owned(),
        nic: "eth\"0".to_owned(),
        queues,
    };
    Description {
        version: "1.2.3".to_owned(),
        engine: vec![counter("engine", "turns", false), counter("dropped", "checksum", false)],
        queue: vec![counter("queue", "link_up", true), counter("queue", "rx_frames", false)],
        engines: vec![engine("eth0/0", 1), engine("eth0/1", 2)],
    }
}

fn reading(at_ns: u64, values: &[u64]) -> Option<Reading> {
    Some(Reading { at_ns, values: values.to_vec() })
}

fn published(path: &std::path::Path) -> Published {
    Published::create(path, &Config::default(), &description(), None).expect("a new file")
}

#[test]
fn what_cannot_be_put_in_its_place_is_not_left_behind() {
    let directory = Directory::new();
    let path = directory.at("host.counters");
    fs::create_dir(&path).expect("something else in its place");
    Published::create(&path, &Config::default(), &description(), None).expect_err("no file");
    assert!(!directory.at("host.counters.new").exists());
}

#[test]
fn what_is_written_is_read_and_a_dead_writer_is_known() {
    let directory = Directory::new();
    let path = directory.at("c.counters");
    fs::write(&path, "of a dead daemon").expect("written");
    let mut writer = published(&path);
    let reader = CountersFile::open(&path).expect("it is there");
    assert_eq!(reader.description(), &description());
    assert_eq!(reader.process(), u64::from(std::process::id()));
    assert_eq!(reader.read().expect("values").engines, [None, None], "nothing is known yet");
    let engines = [reading(5, &[1, 2, 1, 4]), reading(6, &[5, 6, 0, 8, 1, u64::MAX])];
    writer.write(&engines);
    assert_eq!(reader.read().expect("values").engines, engines);
    assert!(reader.is_alive());
    assert!(reader.is_alive(), "asking changes nothing");

    drop(writer); // as the kernel does when the daemon is killed
    assert!(!reader.is_alive());
    assert_eq!(reader.read().expect("values").engines, engines);
    assert_eq!(CountersFile::open(&path).expect("still there").read().expect("v").engines, engines);

    let writer = published(&path);
    assert!(!reader.is_alive(), "the new daemon has a file of its own");
    assert!(CountersFile::open(&path).expect("the new one").is_alive());
    writer.remove();
    assert!(!path.exists());
}

/// Who reads has the old numbers until then, and the new ones when it opens the file again.
#[test]
fn engines_that_come_later_are_in_the_same_file() {
    let directory = Directory::new();
    let path = directory.at("c.counters");
    let mut writer = published(&path);
    let old = CountersFile::open(&path).expect("it is there");
    let before = [reading(5, &[1, 2, 1, 4]), reading(6, &[5, 6, 0, 8, 1, u64::MAX])];
    for times in 0..3 {
        assert!(old.is_current());
        (0..times).for_each(|_| writer.write(&before));
    }
    let mut more = description();
    more.engines.push(EngineDescription { name: "eth1/0".to_owned(), ..more.engines[0].clone() });
    let all = [before[0].clone(), before[1].clone(), None];
    writer.extend(&more, &all);
    assert!(!old.is_current());
    assert!(old.read().is_err(), "and not what is somewhere else by now");
    let new = CountersFile::open(&path).expect("it is there");
    assert_eq!(new.description(), &more);
    assert_eq!(new.read().expect("values").engines, all);
    let all = [before[1].clone(), None, reading(7, &[1, 2, 3, 4])];
    writer.write(&all[..2]);
    writer.write(&all);
    assert_eq!(new.read().expect("values").engines.last(), all.last());
    assert!(new.is_current() && new.is_alive());
}

#[test]
fn a_daemon_removes_no_file_but_its_own() {
    let directory = Directory::new();
    let path = directory.at("c.counters");
    let old = published(&path);
    let _new = published(&path);
    old.remove();
    assert!(path.exists());
}

#[test]
fn only_who_may_ask_may_read() {
    let directory = Directory::new();
    let mode = |config: &Config| {
        let path = directory.at("c.counters");
        let _file = Published::create(&path, config, &description(), None).expect("a file");
        fs::metadata(&path).expect("there").permissions().mode() & 0o777
    };
    let mut config = Config::default();
    assert_eq!(mode(&config), 0o600);
    config.policy.users.push(1000);
    assert_eq!(mode(&config), 0o644);
}

/// A daemon that is stopped or killed while it writes leaves the values before behind.
#[test]
fn values_that_are_half_written_are_not_seen() {
    use std::os::unix::fs::FileExt;
    let directory = Directory::new();
    let path = directory.at("c.counters");
    let mut writer = published(&path);
    for number in [1, 2] {
        let engines = [reading(5, &[number; 4]), reading(6, &[number; 6])];
        writer.write(&engines);
        let reader = CountersFile::open(&path).expect("it is there");
        assert_eq!(reader.read().expect("values").engines, engines);
        // The copy that is written next.
        let length = fs::metadata(&path).expect("there").len();
        let copy = 8 * (1 + 5 + 7);
        let at = length - copy * if number == 1 { 2 } else { 1 };
        let file = fs::File::options().write(true).open(&path).expect("open");
        file.write_all_at(&vec![0xff; copy as usize / 2], at).expect("written");
        assert_eq!(reader.read().expect("values").engines, engines);
    }
}

#[test]
fn files_that_are_something_else_are_refused() {
    let directory = Directory::new();
    let path = directory.at("c.counters");
    assert!(matches!(CountersFile::open(&path), Err(FileError::File { .. })));
    let of = |kind: ErrorKind| FileError::File { path: path.clone(), source: kind.into() };
    assert!(of(ErrorKind::NotFound).to_string().contains("see whether the daemon runs"));
    let refused = of(ErrorKind::PermissionDenied).to_string();
    assert!(refused.contains("if [policy] of the configuration let anybody in"), "{refused}");
    drop(published(&path));
    let whole = fs::read(&path).expect("bytes");
    for length in 0..whole.len() - 8 * 13 {
        fs::write(&path, &whole[..length]).expect("written");
        // Whether the values are there is not known before they are read; those of the second copy
        // are not asked for.
        assert!(CountersFile::open(&path).and_then(|file| file.read()).is_err(), "{length}");
    }
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        fs::write(&path, damaged).expect("written");
        // Whatever it says, it is read or refused, and takes no memory that is not there.
        let _ = CountersFile::open(&path).and_then(|file| file.read());
    }
}

#[test]
fn the_text_has_a_family_for_each_counter_and_labels_for_what_has_it() {
    let engines = vec![reading(5, &[1, 2, 1, 4]), reading(6, &[5, 6, 0, 8, 1, 9])];
    let mut described = description();
    described.engine[0].help += "\n# EOF";
    let text = text(&Arc::new(described), &Numbers::now(engines));
    for line in [
        "# HELP clearway_engine_turns With \\\"quotes\\\" and a \\\\.\\n# EOF",
        "# TYPE clearway info",
        "clearway_info{version=\"1.2.3\"} 1",
        "# TYPE clearway_engine_turns counter",
        "clearway_engine_turns_total{nic=\"eth\\\"0\",engine=\"eth0/1\"} 5",
        "clearway_dropped_frames_total{nic=\"eth\\\"0\",engine=\"eth0/0\",reason=\"checksum\"} 2",
        "# TYPE clearway_queue_link_up gauge",
        "clearway_queue_link_up{nic=\"eth\\\"0\",engine=\"eth0/1\",queue=\"1\"} 1",
        "clearway_queue_rx_frames_total{nic=\"eth\\\"0\",engine=\"eth0/1\",queue=\"1\"} 9",
        "# EOF",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is missing in\n{text}");
    }
    let starts = text.lines().all(|line| line.starts_with('#') || line.starts_with("clearway_"));
    assert!(starts, "a line break in a help text:\n{text}");
}

/// A server of metrics on a thread of its own.
struct Served {
    address: SocketAddr,
    path: PathBuf,
    running: Option<Running>,
    _directory: Directory,
}

impl Served {
    fn start() -> Self {
        let directory = Directory::new();
        let path = directory.at("m.sock");
        let mut config = Config::default();
        config.metrics.listen.push("127.0.0.1:0".parse().expect("an address"));
        config.metrics.socket = Some(path.clone());
        let listening = Listening::open(&config).expect("free");
        let address = rustix::net::getsockname(&listening.sockets[0]).expect("bound");
        let address = address.try_into().expect("of IP");
        let (_, newcomers) = std::sync::mpsc::channel();
        let metrics = Metrics { engines: Vec::new(), newcomers, file: None, listening };
        let running = Some(metrics.start().expect("a thread"));
        Self { address, path, running, _directory: directory }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).expect("connected")
    }

    fn ask(&self, request: &str) -> String {
        answer_of(self.connect(), request)
    }
}

fn answer_of(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn http_is_answered_on_every_socket_and_the_file_goes_at_the_end() {
    let mut served = Served::start();
    for answer in
        [served.ask(GET), answer_of(UnixStream::connect(&served.path).expect("connected"), GET)]
    {
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
        assert!(head.contains(&format!("Content-Type: {CONTENT_TYPE}\r\n")), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        assert!(body.contains("clearway_info") && body.ends_with("# EOF\n"), "{body}");
    }
    for (request, status) in [
        ("GET /secret HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("\0\x01nonsense\r\n\r\n", "400"),
        (&format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(9000)), "431"),
    ] {
        let mut stream = served.connect();
        let _ = stream.write_all(request.as_bytes());
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("answered");
        assert_eq!(String::from_utf8_lossy(&answer[9..]), status);
    }
    served.running.take().expect("running").end();
    assert!(!served.path.exists());
}

/// Neither those that say nothing, nor those that say a little, nor those that do not read.
#[test]
fn slow_and_hostile_scrapers_keep_nobody_from_an_answer_and_are_closed() {
    let served = Served::start();
    let mut slow: Vec<TcpStream> = (0..40).map(|_| served.connect()).collect();
    for stream in &mut slow {
        let _ = stream.write_all(b"GET /met");
    }
    for _ in 0..20 {
        assert!(served.ask(GET).starts_with("HTTP/1.1 200"));
    }
    // The first were pushed out by the others; the last have their time, and no longer.
    for stream in &mut slow {
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
        let closed = stream.read(&mut [0; 16]);
        assert!(
            matches!(closed, Ok(0))
                || closed
                    .is_err_and(|error| { error.kind() == std::io::ErrorKind::ConnectionReset })
        );
    }
    assert!(served.ask(GET).starts_with("HTTP/1.1 200"));
}

/// As without descriptors: what is readable, and nobody can be accepted from, is tried again a
/// moment later.
#[test]
fn a_thread_that_can_accept_nobody_rests() {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(b"x").expect("room");
    let mut listening = Listening::open(&Config::default()).expect("it listens nowhere");
    listening.sockets = vec![reader.into()];
    let (mut server, stop) = (Server::new(listening), Bell::new().expect("an eventfd"));
    let begun = Instant::now();
    for _ in 0..4 {
        assert!(server.turn(&stop, begun + Duration::from_secs(10), String::new).is_continue());
    }
    assert!(begun.elapsed() >= Duration::from_millis(150), "two pauses of 100 ms");
}
