//! The machine and this process: kernel, cores, memory, limits, privileges, a running daemon.

use std::collections::BTreeSet;
use std::path::Path;

use clearway_channel::Meminfo;
use clearway_daemon::config::{Config, Machine, ThisMachine};
use clearway_daemon::text::escaped;
use clearway_daemon::{Confinement, try_confinement};
use rustix::process::{Resource, getrlimit};
use rustix::system::uname;
use rustix::thread::{CapabilitySet, capabilities};
use serde_json::Value;

use super::Finding;
use crate::client::{Client, PATIENCE};
use crate::output::Failure;

/// The helpers by which the eBPF program reads a frame wherever its headers are came with Linux
/// 5.18.
const KERNEL_FOR_AF_XDP: (u32, u32) = (5, 18);
/// Links by which an eBPF program is attached behind packet sockets.
const KERNEL_FOR_HIDING: (u32, u32) = (6, 6);
/// Descriptors of an app in the daemon: control socket, memory, two doorbells. Those of 250 apps.
const OPEN_FILES_WANTED: u64 = 1000;
/// AF_XDP frame memory of four queues.
const LOCKED_BYTES_WANTED: u64 = 64 << 20;

pub(super) fn findings(socket: Option<&Path>) -> Vec<Finding> {
    let mut findings = vec![
        kernel(),
        cores(),
        memory(),
        privileges(),
        confinement(),
        own_user(),
        open_files(),
        locked_memory(),
        hugepages(),
    ];
    findings.extend(daemon(socket));
    findings
}

fn kernel() -> Finding {
    let uname = uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let text = format!("Linux {release}, {}", uname.machine().to_string_lossy());
    if version >= KERNEL_FOR_HIDING {
        return Finding::good("kernel", text);
    }
    if version >= KERNEL_FOR_AF_XDP {
        let advice = "with Linux 6.6 or newer AF_XDP loses no super-frames over a veth, and with \
                      AF_PACKET the kernel does not see what is Clearway's";
        return Finding::limited("kernel", text, advice);
    }
    let (major, minor) = KERNEL_FOR_AF_XDP;
    Finding::limited("kernel", text, format!("AF_XDP needs Linux {major}.{minor} or newer"))
}

fn cores() -> Finding {
    let cores = ThisMachine.cores();
    let text = format!("{} for this process: {}", cores.len(), ranges(&cores));
    match cores.len() {
        0 | 1 => Finding::limited(
            "cores",
            text,
            "an app and its engine share one core; keep `idle = \"adaptive\"` or \"yield\", never \
             \"spin\"",
        ),
        _ => Finding::good("cores", text),
    }
}

fn ranges(cores: &[usize]) -> String {
    let mut text = String::new();
    let mut index = 0;
    while index < cores.len() {
        let first = cores[index];
        while index + 1 < cores.len() && cores[index + 1] == cores[index] + 1 {
            index += 1;
        }
        let comma = if text.is_empty() { "" } else { "," };
        let last = cores[index];
        text += &if first == last {
            format!("{comma}{first}")
        } else {
            format!("{comma}{first}-{last}")
        };
        index += 1;
    }
    text
}

fn memory() -> Finding {
    let available_kib = meminfo("MemAvailable");
    let text = format!("{} MiB available", available_kib >> 10);
    if available_kib > 256 << 10 {
        return Finding::good("memory", text);
    }
    Finding::limited(
        "memory",
        text,
        "a channel takes 32 MiB by default; let apps ask for smaller ones",
    )
}

fn meminfo(key: &str) -> u64 {
    Meminfo::read().and_then(|told| told.number(key)).unwrap_or(0)
}

fn privileges() -> Finding {
    let wanted = [
        ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN),
        ("CAP_NET_RAW", CapabilitySet::NET_RAW),
        ("CAP_BPF", CapabilitySet::BPF),
    ];
    let held = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    // Before there was CAP_BPF, CAP_SYS_ADMIN was asked for in its place, and still does.
    let has = |set: CapabilitySet| {
        held.contains(set) || set == CapabilitySet::BPF && held.contains(CapabilitySet::SYS_ADMIN)
    };
    let names = |with: bool| {
        let names = wanted.iter().filter(|(_, set)| has(*set) == with).map(|(name, _)| *name);
        names.collect::<Vec<_>>().join(", ")
    };
    let (present, absent) = (names(true), names(false));
    if absent.is_empty() {
        return Finding::good("privileges", format!("{present}: AF_XDP and AF_PACKET may be used"));
    }
    Finding::limited(
        "privileges",
        format!("no {absent}: {}", what_works_without(&absent)),
        format!(
            "have root start the daemon (it drops what it does not need), or give it what it \
             needs (and cap_net_bind_service for ports below 1024): setcap \
             cap_net_admin,cap_net_raw,cap_bpf+ep {}",
            crate::daemon::program().unwrap_or_else(|_| "clearwayd".into()).display()
        ),
    )
}

/// A packet socket needs no program of eBPF, but hides nothing from the kernel without one.
fn what_works_without(absent: &str) -> &'static str {
    match absent {
        "CAP_BPF" => {
            "UDP sockets, memif and AF_PACKET work, AF_XDP does not; the kernel has a copy of all"
        }
        _ => "UDP sockets and memif work, kernel interfaces do not",
    }
}

fn confinement() -> Finding {
    let Confinement { system_calls, files, user: _ } = try_confinement();
    let text = format!("of system calls: {system_calls}; of files: {files}");
    if system_calls == "on" && files == "on" {
        return Finding::good("confinement", text);
    }
    Finding::limited(
        "confinement",
        text,
        "the daemon works without, but one that has been taken over could then do more harm",
    )
}

/// Whom a daemon that is started here would run as, unless the configuration says otherwise.
fn own_user() -> Finding {
    const SUBJECT: &str = "daemon's user";
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || ThisMachine.user_id(Config::USER_DEFAULT).is_some() {
        let name = if is_root { Config::USER_DEFAULT } else { "whoever starts it" };
        return Finding::good(SUBJECT, name);
    }
    Finding::limited(
        SUBJECT,
        format!(
            "there is no user \"{}\": a daemon that root starts stays root",
            Config::USER_DEFAULT
        ),
        "useradd --system --user-group --no-create-home --shell /usr/sbin/nologin clearway, or \
         name another as `user` in the configuration",
    )
}

fn open_files() -> Finding {
    let limit = getrlimit(Resource::Nofile).current;
    let text = limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    if limit.is_none_or(|limit| limit >= OPEN_FILES_WANTED) {
        return Finding::good("open files", text);
    }
    Finding::limited("open files", text, "an app takes four; raise it (ulimit -n, LimitNOFILE=)")
}

fn locked_memory() -> Finding {
    let limit = getrlimit(Resource::Memlock).current;
    let exempt =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    let text = limit.map_or("unlimited".to_owned(), |limit| format!("{} KiB", limit >> 10));
    if exempt {
        return Finding::good("locked memory", format!("{text}, which CAP_IPC_LOCK overrides"));
    }
    if limit.is_none_or(|limit| limit >= LOCKED_BYTES_WANTED) {
        return Finding::good("locked memory", text);
    }
    Finding::limited(
        "locked memory",
        text,
        "AF_XDP charges its frame memory to this limit; raise it (ulimit -l, LimitMEMLOCK=)",
    )
}

/// Clearway does not need them, and people ask.
fn hugepages() -> Finding {
    let pages = meminfo("HugePages_Total");
    Finding::good("hugepages", format!("{pages} reserved; none are needed"))
}

/// A daemon that runs, and what its NICs are.
fn daemon(socket: Option<&Path>) -> Vec<Finding> {
    let path = socket.map_or_else(clearway_channel::control::client_path, Path::to_owned);
    let status = match Client::connect(Some(&path)).and_then(|client| client.status(PATIENCE)) {
        Ok(status) => status,
        Err(failure) => return vec![in_the_way(&failure)],
    };
    let mut findings = vec![Finding::good("daemon", format!("one runs at {}", path.display()))];
    let engines = status["engines"].as_array().into_iter().flatten();
    findings.extend(engines.clone().filter_map(trouble_of));
    findings.extend(engines.clone().flat_map(queues_of));
    findings.extend(engines.flat_map(sharers_of));
    findings
}

/// What keeps this user from a daemon: there is none, or it does not answer, or not this user. A
/// failure says the cause, and then the remedy.
fn in_the_way(failure: &Failure) -> Finding {
    let text = failure.to_string();
    let (cause, remedy) = text.split_once("; ").unwrap_or((text.as_str(), "see the daemon's log"));
    Finding::limited("daemon", cause, remedy)
}

/// A NIC that is not open, or not all that it could be, as one of its engines says.
fn trouble_of(engine: &Value) -> Option<Finding> {
    let text = |key: &str| escaped(engine[key].as_str().unwrap_or_default()).to_string();
    let (subject, trouble) = (format!("nic {}", text("nic")), text("nic_trouble"));
    if engine["interface_gone"] == true {
        let advice = "see `ip link` and the daemon's log; it is opened as soon as that can be, \
                      without a restart";
        return Some(Finding::limited(subject, format!("not open: {trouble}"), advice));
    }
    let (what, advice) = trouble.split_once("; ")?;
    Some(Finding::limited(subject, what, advice))
}

/// Apps that share their engine's core: the two cannot run at the same time.
fn sharers_of(engine: &Value) -> Vec<Finding> {
    let text = |value: &Value| escaped(value.as_str().unwrap_or_default()).to_string();
    let core = engine["core"].as_u64();
    let channels = engine["channels"].as_array().into_iter().flatten();
    let sharers = channels.filter(|channel| core.is_some() && channel["core"].as_u64() == core);
    let names: BTreeSet<String> = sharers.map(|channel| text(&channel["app"])).collect();
    let finding = |name: String| {
        let sentence = format!(
            "shares core {} with engine {} now",
            core.unwrap_or(0),
            text(&engine["engine"])
        );
        let advice = "where there are cores to spare, give the engine one of its own (`cores` of \
                      its NIC in the configuration), and keep the app off it (taskset, cpuset)";
        Finding::limited(format!("app {name}"), sentence, advice)
    };
    names.into_iter().map(finding).collect()
}

/// Which way each queue of an engine takes, and whether packets go together on it.
fn queues_of(engine: &Value) -> Vec<Finding> {
    let subject = format!("engine {}", engine["engine"].as_str().unwrap_or_default());
    let finding = |queue: &Value| {
        let text = |key: &str| escaped(queue[key].as_str().unwrap_or_default()).to_string();
        let count = |key: &str| queue[key].as_u64().unwrap_or(0);
        let sentence = format!(
            "{}: {}; super-frames: {} received, {} sent",
            text("driver"),
            text("mode"),
            count("rx_super_frames"),
            count("tx_super_frames")
        );
        Finding::good(subject.clone(), sentence)
    };
    engine["queues"].as_array().into_iter().flatten().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with,
    };

    #[test]
    fn apps_on_the_core_of_their_engine_are_named_once() {
        let channel =
            |app: &str, core: Option<u32>| serde_json::json!({ "app": app, "core": core });
        let channels = [
            channel("a", Some(1)),
            channel("b", Some(0)),
            channel("a", Some(1)),
            channel("c", None),
        ];
        let engine = |core: Option<u32>| {
            serde_json::json!({
                "engine": "eth0", "core": core, "channels": channels
            })
        };
        let told: Vec<String> =
            sharers_of(&engine(Some(1))).into_iter().map(|finding| finding.finding).collect();
        assert_eq!(told, ["shares core 1 with engine eth0 now"]);
        assert!(sharers_of(&engine(None)).is_empty(), "nobody knows");
    }

    /// Who listens and does not answer is not fine, and who may not ask is not told to start one.
    #[test]
    fn a_daemon_that_says_nothing_is_not_said_to_be_fine() {
        let path = std::env::temp_dir().join(format!("clearway-doctor-{}", std::process::id()));
        let found = daemon(Some(&path));
        assert!(found[0].finding.starts_with("no daemon is running at "), "{found:?}");
        assert!(found[0].advice.as_ref().is_some_and(|it| it.starts_with("start one")));
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
        bind(&socket, &SocketAddrUnix::new(&path).expect("an address")).expect("bound");
        listen(&socket, 1).expect("listening");
        let hangs_up = std::thread::spawn(move || drop(accept(&socket)));
        let found = daemon(Some(&path));
        hangs_up.join().expect("no panic");
        std::fs::remove_file(&path).expect("its own");
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!((only.subject.as_str(), only.verdict), ("daemon", Verdict::Limited));
        assert!(only.advice.is_some(), "{only:?}");
        let denied = in_the_way(&Failure::Failed("user 7 may not; add it to [policy]".to_owned()));
        assert_eq!(denied.finding, "user 7 may not");
        assert_eq!(denied.advice.as_deref(), Some("add it to [policy]"));
    }

    #[test]
    fn without_cap_bpf_there_are_packet_sockets() {
        assert!(what_works_without("CAP_BPF").contains("AF_PACKET work"));
        assert!(what_works_without("CAP_NET_RAW, CAP_BPF").contains("kernel interfaces do not"));
    }

    #[test]
    fn cores_are_shown_as_ranges() {
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }
}
