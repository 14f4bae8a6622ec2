//! From the text of a configuration to its values: the top level and the small sections.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use toml::de::DeTable;

use super::problem::{Problems, Sink};
use super::reader::{Placed, Section, TOP_LEVEL};
use super::{
    Config, Congestion, Control, Driver, ENGINES_MAX, Log, LogFormat, Machine, Metrics, Nic,
    UDP_PORT_DEFAULT, machine, parse_nic, parse_policy,
};

/// Longest path that fits in a Unix socket address (unix(7)).
pub(super) const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Reads a configuration and checks it against the machine. `file` is only used in messages.
pub fn parse(text: &str, file: &str, machine: &dyn Machine) -> Result<Config, Problems> {
    read(text, file, |root| top_level(root, machine))
}

/// The text of a file; `remedy` is what to do if it cannot be read.
pub fn read_file(path: &Path, remedy: &str) -> Result<String, Problems> {
    let file = path.display().to_string();
    let bytes = fs::read(path)
        .map_err(|error| Problems::file(&file, format!("cannot read it: {error}"), remedy))?;
    String::from_utf8(bytes).map_err(|error| Problems::no_text(&file, &error))
}

/// Reads TOML, of which `top_level` takes the values. `file` is only used in messages.
pub fn read<T>(
    text: &str,
    file: &str,
    top_level: impl FnOnce(Section<'_>) -> T,
) -> Result<T, Problems> {
    let sink = Sink::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        for error in errors {
            let span = error.span().unwrap_or(0..0);
            sink.report(&span, format!("this is not TOML: {}", error.message()), "see toml.io");
        }
        sink.finish(file)?;
    }
    let root = Section::new(TOP_LEVEL, document.get_ref(), document.span(), &sink);
    let values = top_level(root);
    sink.finish(file)?;
    Ok(values)
}

fn top_level(mut root: Section<'_>, machine: &dyn Machine) -> Config {
    let confine = root.boolean("confine");
    let user = user(&mut root, machine);
    let udp_port = root.integer("udp_port", 1..=u64::from(u16::MAX));
    let controls = Congestion::ALL.map(|control| (control.name(), control));
    let congestion = root.choice("congestion", &controls);
    let silence = root.integer("silence_s", 1..=172_800);
    let linger_max = root.integer("linger_s_max", 0..=3600);
    let control = root.section("control", "[control]").map(control).unwrap_or_default();
    let nics = root.sections("nic", "[[nic]]");
    let policy = root.section("policy", "[policy]");
    let log = root.section("log", "[log]").map(log).unwrap_or_default();
    let metrics = root.section("metrics", "[metrics]").map(metrics).unwrap_or_default();
    let is_empty = nics.is_empty();
    let parsed = parse_nic::nics(nics, machine);
    if is_empty {
        root.report(
            &(0..0),
            "there is no [[nic]] section, so the daemon has nothing to send through",
            "add one with `driver` and `interface` (or, for memif, `socket` and `addresses`)",
        );
    }
    check_engines(&root, &parsed);
    let defaults = Config::default();
    let config = Config {
        control,
        udp_port: udp_port.map_or(UDP_PORT_DEFAULT, |port| port.value as u16),
        congestion: congestion.unwrap_or_default(),
        silence: seconds(silence, defaults.silence),
        linger_max: seconds(linger_max, defaults.linger_max),
        nics: parsed,
        policy: policy
            .map_or_else(machine::policy, |section| parse_policy::policy(section, machine)),
        log,
        metrics,
        confine: confine.unwrap_or(true),
        user,
    };
    check_sockets(&root, &config);
    root.finish();
    config
}

/// Each path is one socket's.
fn check_sockets(root: &Section<'_>, config: &Config) {
    let mut sockets = vec![("the control socket", config.control.socket.as_path())];
    sockets.extend(config.metrics.socket.as_deref().map(|path| ("the socket of metrics", path)));
    sockets.extend(config.nics.iter().filter_map(|nic| match &nic.driver {
        Driver::Memif(link) => Some(("the memif socket", Path::new(&link.socket))),
        _ => None,
    }));
    // Those of memif were compared with each other.
    for (index, (what, path)) in sockets.iter().enumerate().skip(1) {
        let is_same = |(other, there): &&(&str, &Path)| there == path && other != what;
        if let Some((other, _)) = sockets[..index].iter().find(is_same) {
            root.report(
                &(0..0),
                format!("{other} and {what} are both at {}", path.display()),
                "give each a path of its own",
            );
        }
    }
}

fn seconds(given: Option<Placed<u64>>, default: Duration) -> Duration {
    given.map_or(default, |given| Duration::from_secs(given.value))
}

/// The user that the daemon runs as, by name.
fn user(root: &mut Section<'_>, machine: &dyn Machine) -> Option<String> {
    let user = root.string("user")?;
    if machine.user_id(&user.value).is_none() {
        root.report(
            &user.span,
            format!("there is no user \"{}\"", user.value),
            format!("name one that there is, or make it: useradd --system {}", user.value),
        );
    }
    Some(user.value)
}

/// A flow's id has room for so many engines of a host.
fn check_engines(root: &Section<'_>, nics: &[Nic]) {
    let engines: usize = nics.iter().map(|nic| nic.engines).sum();
    if engines > ENGINES_MAX {
        root.report(
            &(0..0),
            format!("the NICs have {engines} engines in all, and a host has at most {ENGINES_MAX}"),
            "lower `engines` in some of the [[nic]] sections",
        );
    }
}

fn control(mut section: Section<'_>) -> Control {
    let mut control = Control::default();
    let path = section.string("socket");
    if let Some(path) = path.and_then(|path| check_socket_path(&section, path)) {
        control.socket = path.into();
    }
    section.finish();
    control
}

/// The key `socket`, if it is a usable path.
pub(super) fn check_socket_path(section: &Section<'_>, path: Placed<String>) -> Option<String> {
    let problem = if path.value.is_empty() {
        "is empty".to_owned()
    } else if !path.value.starts_with('/') {
        "is not an absolute path".to_owned()
    } else if path.value.len() > SOCKET_PATH_BYTES_MAX {
        format!("is longer than {SOCKET_PATH_BYTES_MAX} bytes")
    } else {
        return Some(path.value);
    };
    section.report(
        &path.span,
        format!("`socket = \"{}\"` {problem}", path.value),
        "give a short absolute path, such as \"/run/clearway/clearway.sock\"",
    );
    None
}

fn metrics(mut section: Section<'_>) -> Metrics {
    let mut metrics = Metrics::default();
    for text in section.strings("listen", false) {
        match text.value.parse::<SocketAddr>() {
            Ok(address) if address.port() == 0 => section.report(
                &text.span,
                format!("at {address} metrics are served at a port that nobody is told"),
                "name one, such as 9464",
            ),
            Ok(address) if metrics.listen.contains(&address) => {
                section.report(&text.span, format!("{address} stands twice"), "remove one");
            }
            Ok(address) => metrics.listen.push(address),
            Err(_) => section.report(
                &text.span,
                format!("`{}` is no address and port to listen on", text.value),
                "write one of this host, as in \"127.0.0.1:9464\" or \"[::1]:9464\"",
            ),
        }
    }
    let path = section.string("socket");
    let path = path.and_then(|path| check_socket_path(&section, path));
    metrics.socket = path.map(Into::into);
    section.finish();
    metrics
}

fn log(mut section: Section<'_>) -> Log {
    let mut log = Log::default();
    if let Some(level) = section.string("level") {
        match check_level(&level.value) {
            Ok(()) => log.level = level.value,
            Err(why) => section.report(
                &level.span,
                format!("`level = \"{}\"` is not a log level: {why}", level.value),
                "write error, warn, info, debug or trace, or a filter such as \
                 \"info,clearway_nic=debug\"",
            ),
        }
    }
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    if let Some(format) = section.choice("format", &formats) {
        log.format = format;
    }
    section.finish();
    log
}

/// A filter takes a word that is no level for the name of a part of the program: that part logs
/// everything, and all others nothing. Which is never what is meant.
fn check_level(level: &str) -> Result<(), String> {
    let filter = level.parse::<tracing_subscriber::filter::EnvFilter>();
    filter.map_err(|error| error.to_string())?;
    let is_level = |word: &str| {
        // To the filter, nothing is "error".
        !word.is_empty() && word.parse::<tracing_subscriber::filter::LevelFilter>().is_ok()
    };
    let is_meant =
        |word: &&str| word.contains(['=', '[']) || is_level(word) || word.starts_with("clearway");
    match level.split(',').map(str::trim).find(|word| !is_meant(word)) {
        None => Ok(()),
        Some(word) => Err(format!("there is no level \"{word}\"")),
    }
}
