//! The configuration of `clearway fabric`: ports, and what happens to frames on either side of
//! them. The same keys stand in a file and behind `--port`.

use std::path::Path;

use clearway_daemon::config::reader::Section;
use clearway_daemon::config::{Idle, MemifRole, Problems, mac, memif_socket, read, read_file};
use clearway_nic::MacAddress;
use clearway_nic::fabric::{Bursts, Faults, Hash, Rate, RssOptions, SlowPath};

/// As many as a switch needs; each makes work for the one thread that serves all.
const PORTS_MAX: usize = 64;
const PPM_MAX: u64 = 1_000_000;
/// Longer than anything in a network takes.
const DELAY_NS_MAX: u64 = 60_000_000_000;
/// How many frames overtake one that is held back, unless something else is said.
const REORDERING_FRAMES_DEFAULT: u64 = 8;
/// What a port of a switch holds, unless something else is said.
const RATE_QUEUE_BYTES_DEFAULT: u64 = 256 * 1024;
const SLOW_PATH_QUEUE_FRAMES_DEFAULT: u64 = 1024;
const SLOW_PATH_CONNECTIONS_DEFAULT: u64 = 100_000;

/// What to do if two have the same name or socket.
const EACH_ITS_OWN: &str = "give each port its own";

/// What a fabric is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fabric {
    /// Decides keys and faults; drawn by chance if not given.
    pub(super) seed: Option<u64>,
    /// What the process does when no frame comes.
    pub(super) idle: Idle,
    /// At least one.
    pub(super) ports: Vec<FabricPort>,
}

/// A memif, and the NIC and the wire that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FabricPort {
    /// How people call it.
    pub(super) name: String,
    /// Where the memif's control socket is; `@name` for an abstract one.
    pub(super) socket: String,
    /// Which side of the memif the fabric is.
    pub(super) role: MemifRole,
    /// Queue pairs at most; the link has as many as the peer has too.
    pub(super) queues: u16,
    /// Largest IP packet.
    pub(super) mtu_bytes: u16,
    /// The station behind it; learned from the frames that come from it if not given.
    pub(super) mac: Option<MacAddress>,
    /// How frames that go to it are spread over its queues.
    pub(super) rss: RssOptions,
    /// What happens to frames that come from it.
    pub(super) sends: Faults,
    /// What happens to frames that go to it.
    pub(super) receives: Faults,
}

impl Fabric {
    /// Reads and checks a file.
    pub(super) fn load(path: &Path) -> Result<Self, Problems> {
        let text = read_file(path, "give the path of a file that you may read")?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Adds a port that the command line names: what stands behind `--port`.
    pub(super) fn add(&mut self, argument: &str) -> Result<(), Problems> {
        let port = FabricPort::from_argument(argument)?;
        let refused = |cause: String, remedy: &str| {
            Err(Problems::file(&format!("--port {argument}"), cause, remedy))
        };
        if port.is_among(&self.ports) {
            return refused(stands_twice(&port), EACH_ITS_OWN);
        }
        if self.ports.len() >= PORTS_MAX {
            let cause = format!("there are {PORTS_MAX} ports already, and no more can be");
            return refused(cause, "leave some away");
        }
        self.ports.push(port);
        Ok(())
    }

    /// Checks what stands in a file; its name is only used in messages.
    pub(super) fn parse(text: &str, file: &str) -> Result<Self, Problems> {
        read(text, file, fabric)
    }
}

impl FabricPort {
    /// True if one of these has its name or its socket.
    fn is_among(&self, ports: &[Self]) -> bool {
        ports.iter().any(|other| other.name == self.name || other.socket == self.socket)
    }

    /// What stands behind `--port`: `NAME=SOCKET[,KEY=VALUE]...`, with the keys of a file, dotted
    /// for those of `[port.sends]` and `[port.receives]`.
    fn from_argument(argument: &str) -> Result<Self, Problems> {
        let mut parts = argument.split(',');
        let (name, socket) =
            parts.next().and_then(|first| first.split_once('=')).ok_or_else(|| {
                let cause = format!("--port {argument} does not begin with NAME=SOCKET");
                Problems::file(
                    "command line",
                    cause,
                    "write it as in --port a=/tmp/a.sock,queues=4",
                )
            })?;
        let mut text = format!("[[port]]\nname = {name:?}\nsocket = {socket:?}\n");
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, "true"));
            let is_bare = value.parse::<u64>().is_ok() || value.parse::<bool>().is_ok();
            let value = if is_bare { value.to_owned() } else { format!("{value:?}") };
            text += &format!("{key} = {value}\n");
        }
        let mut fabric = Fabric::parse(&text, &format!("--port {argument}"))?;
        Ok(fabric.ports.remove(0))
    }
}

fn fabric(mut root: Section<'_>) -> Fabric {
    let seed = root.integer("seed", 0..=u64::MAX).map(|seed| seed.value);
    let idle = idle(&mut root);
    let sections = root.sections("port", "[[port]]");
    if sections.is_empty() || sections.len() > PORTS_MAX {
        root.report(
            &(0..0),
            format!("there are {} [[port]] sections", sections.len()),
            format!("give 1 to {PORTS_MAX}, each with a `name` and a `socket`"),
        );
    }
    let mut ports: Vec<FabricPort> = Vec::new();
    for mut section in sections {
        if let Some(port) = port(&mut section) {
            if port.is_among(&ports) {
                section.report(section.span(), stands_twice(&port), EACH_ITS_OWN);
            }
            ports.push(port);
        }
        section.finish();
    }
    root.finish();
    Fabric { seed, idle, ports }
}

fn stands_twice(port: &FabricPort) -> String {
    format!("the name or the socket of port \"{}\" stands twice", port.name)
}

fn idle(root: &mut Section<'_>) -> Idle {
    let choices = [
        ("adaptive", Idle::Adaptive),
        ("spin", Idle::Spin),
        ("yield", Idle::Yield),
        ("block", Idle::Block),
    ];
    root.choice("idle", &choices).unwrap_or_default()
}

fn port(section: &mut Section<'_>) -> Option<FabricPort> {
    let (name, socket) = (section.string("name"), memif_socket(section));
    let roles = [("server", MemifRole::Server), ("client", MemifRole::Client)];
    let role = section.choice("role", &roles).unwrap_or(MemifRole::Server);
    let queues = section.integer("queues", 1..=64).map_or(1, |queues| queues.value as u16);
    let mtu_bytes = section.integer("mtu_bytes", 576..=9000).map_or(9000, |mtu| mtu.value as u16);
    let mac = mac(section);
    let rss = rss(section);
    let way = |section: Option<Section<'_>>| section.map(faults).unwrap_or_default();
    let sends = way(section.section("sends", "[port.sends]"));
    let receives = way(section.section("receives", "[port.receives]"));
    let (Some(name), Some(socket)) = (name, socket) else {
        let remedy = "add `name = \"...\"` and `socket = \"...\"`";
        section.report(section.span(), "a [[port]] needs a name and a socket", remedy);
        return None;
    };
    let name = name.value;
    Some(FabricPort { name, socket, role, queues, mtu_bytes, mac, rss, sends, receives })
}

fn rss(section: &mut Section<'_>) -> RssOptions {
    let mut rss = RssOptions::default();
    if let Some(hash) = section.choice("rss", &Hash::ALL) {
        rss.hash = hash;
    }
    if let Some(entries) = section.integer("rss_table_entries", 1..=4096) {
        rss.table_entries = entries.value as usize;
    }
    rss.shuffled = section.boolean("rss_shuffled").unwrap_or(rss.shuffled);
    rss
}

fn faults(mut section: Section<'_>) -> Faults {
    let faults = Faults {
        loss_ppm: ppm(&mut section, "loss_ppm"),
        bursts: Bursts {
            start_ppm: ppm(&mut section, "burst_start_ppm"),
            end_ppm: ppm(&mut section, "burst_end_ppm"),
            loss_ppm: ppm(&mut section, "burst_loss_ppm"),
        },
        duplication_ppm: ppm(&mut section, "duplication_ppm"),
        corruption_ppm: ppm(&mut section, "corruption_ppm"),
        reordering_ppm: ppm(&mut section, "reordering_ppm"),
        reordering_frames_max: number(
            &mut section,
            "reordering_frames_max",
            1_000,
            REORDERING_FRAMES_DEFAULT,
        ) as u16,
        latency_ns: number(&mut section, "latency_ns", DELAY_NS_MAX, 0),
        jitter_ns: number(&mut section, "jitter_ns", DELAY_NS_MAX, 0),
        delay_ppm: ppm(&mut section, "delay_ppm"),
        delay_ns_max: number(&mut section, "delay_ns_max", DELAY_NS_MAX, 0),
        rate: rate(&mut section),
        slow_path: slow_path(&mut section),
    };
    section.finish();
    faults
}

fn rate(section: &mut Section<'_>) -> Rate {
    let giga = 1_000_000_000;
    Rate {
        bits_per_s: number(section, "rate_bits_per_s", 1_000 * giga, 0),
        queue_bytes: number(section, "rate_queue_bytes", giga, RATE_QUEUE_BYTES_DEFAULT),
        mark_bytes: number(section, "rate_mark_bytes", giga, 0),
    }
}

fn slow_path(section: &mut Section<'_>) -> SlowPath {
    let million = 1_000_000;
    SlowPath {
        frames_per_s: number(section, "slow_path_frames_per_s", 100 * million, 0),
        latency_ns: number(section, "slow_path_latency_ns", DELAY_NS_MAX, 0),
        queue_frames: number(
            section,
            "slow_path_queue_frames",
            million,
            SLOW_PATH_QUEUE_FRAMES_DEFAULT,
        ),
        connections_max: number(
            section,
            "slow_path_connections_max",
            million,
            SLOW_PATH_CONNECTIONS_DEFAULT,
        ) as usize,
    }
}

fn ppm(section: &mut Section<'_>, key: &'static str) -> u32 {
    number(section, key, PPM_MAX, 0) as u32
}

fn number(section: &mut Section<'_>, key: &'static str, max: u64, default: u64) -> u64 {
    section.integer(key, 0..=max).map_or(default, |number| number.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_everything() {
        let text = r#"
            seed = 7
            idle = "block"
            [[port]]
            name = "a"
            socket = "@a"
            queues = 4
            rss = "folded"
            rss_table_entries = 512
            sends.loss_ppm = 1000
            [[port]]
            name = "b"
            socket = "/tmp/b.sock"
            role = "client"
            mac = "02:00:00:00:00:02"
            [port.receives]
            rate_bits_per_s = 1000000
        "#;
        let fabric = Fabric::parse(text, "test").unwrap();
        assert_eq!((fabric.seed, fabric.idle), (Some(7), Idle::Block));
        let [a, b] = &fabric.ports[..] else { panic!("two ports") };
        assert_eq!((a.name.as_str(), a.queues, a.role), ("a", 4, MemifRole::Server));
        let rss = RssOptions { hash: Hash::Folded, table_entries: 512, shuffled: false };
        assert_eq!((a.rss, a.sends.loss_ppm), (rss, 1000));
        assert_eq!((b.mac, b.role), (Some([2, 0, 0, 0, 0, 2]), MemifRole::Client));
        assert_eq!(b.receives.rate.bits_per_s, 1_000_000);
    }

    #[test]
    fn arguments_say_the_same() {
        let argument = "a=/tmp/a.sock,queues=2,rss=crc32c,rss_shuffled,receives.latency_ns=5000";
        let port = FabricPort::from_argument(argument).unwrap();
        assert_eq!((port.name.as_str(), port.socket.as_str()), ("a", "/tmp/a.sock"));
        assert_eq!((port.queues, port.rss.hash), (2, Hash::Crc32c));
        assert!(port.rss.shuffled && port.receives.latency_ns == 5000);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (argument, cause) in [
            ("a", "NAME=SOCKET"),
            ("a=relative", "absolute"),
            ("a=@a,queue=2", "did you mean `queues`"),
            ("a=@a,rss=best", "choose one of \"toeplitz\""),
            ("a=@a,sends.loss_ppm=1000001", "out of range"),
        ] {
            let problems = FabricPort::from_argument(argument).unwrap_err().to_string();
            assert!(problems.contains(cause), "{argument}: {problems}");
        }
        let twice = "[[port]]\nname='a'\nsocket='@a'\n[[port]]\nname='b'\nsocket='@a'";
        assert!(Fabric::parse(twice, "test").unwrap_err().to_string().contains("twice"));
        let mut fabric = Fabric { seed: None, idle: Idle::default(), ports: Vec::new() };
        fabric.add("a=@a").unwrap();
        for twice in ["a=@b", "b=@a"] {
            let problems = fabric.add(twice).unwrap_err().to_string();
            assert!(
                problems.contains("stands twice") && problems.contains("its own"),
                "{problems}"
            );
        }
        (1..PORTS_MAX).for_each(|number| fabric.add(&format!("p{number}=@p{number}")).unwrap());
        assert!(fabric.add("more=@more").unwrap_err().to_string().contains("64 ports already"));
        assert_eq!(fabric.ports.len(), PORTS_MAX);
        assert!(Fabric::parse("", "test").unwrap_err().to_string().contains("0 [[port]]"));
    }
}
