use std::fs::Permissions;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;

use clearway_channel::control::OpenTcpPort;
use clearway_control::policy::{Accounts, Peer, Place};
use clearway_nic::interface::Ways;

use super::*;
use crate::privileges::OwnUser;

/// A machine with one interface, two cores, alice and the group clearway.
struct Bench;

impl Machine for Bench {
    fn interfaces(&self) -> Vec<String> {
        ["eth0", "eth1", "lo"].map(str::to_owned).to_vec()
    }

    fn cores(&self) -> Vec<usize> {
        vec![0, 1]
    }

    fn user_id(&self, name: &str) -> Option<u32> {
        [("alice", 1000), ("clearway", 400)]
            .into_iter()
            .find(|user| user.0 == name)
            .map(|user| user.1)
    }

    fn group_id(&self, name: &str) -> Option<u32> {
        (name == "clearway").then_some(400)
    }
}

fn read(text: &str) -> Result<Config, Problems> {
    parse(text, "test.toml", &Bench)
}

const SHIPPED: &str = include_str!("../../../../clearway.toml");

#[test]
fn shipped_example_is_valid_and_shows_the_defaults() {
    let config = read(SHIPPED).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(config.nics.len(), 1);
    assert_eq!(config.nics[0].name, "eth0");
    assert_eq!(config.policy, Config::default().policy);
    assert_eq!(config.log, Log::default());
    assert_eq!(config.metrics, Metrics::default());
    assert_eq!(config.udp_port, UDP_PORT_DEFAULT);
    assert!(config.confine);
}

#[test]
fn daemon_becomes_only_a_user_that_there_is() {
    let nic = "[[nic]]\ninterface = \"eth0\"\n";
    let problems = read(&format!("user = \"bob\"\n{nic}")).expect_err("nobody of that name");
    assert!(problems.to_string().contains("useradd --system bob"), "{problems}");
    assert_eq!(read(nic).expect("valid").user, None);
}

/// Each `#key = value` of the example is read as well, so that it cannot rot.
#[test]
fn shipped_example_is_valid_with_everything_uncommented() {
    let uncomment = |line: &str| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with('[') || is_assignment(rest) => rest.to_owned(),
        _ => line.to_owned(),
    };
    let mut text: String = SHIPPED.lines().map(|line| uncomment(line) + "\n").collect();
    // Two ways to say the same thing.
    text = text.replace("gateway = \"192.0.2.1\"\n", "");
    let config = read(&text).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(config.nics.len(), 5);
    assert_eq!(config.nics[0].vlan, Some(100));
    assert_eq!(config.nics[0].routes.len(), 4);
    assert!(matches!(&config.nics[1].driver, Driver::Memif(link) if link.secret == "change me"));
    let own_kernel = &config.nics[3];
    let Driver::Tap(tap) = &own_kernel.driver else { panic!("{own_kernel:?}") };
    assert_eq!((&*own_kernel.name, &*tap.interface), ("clearway0", Tap::INTERFACE_DEFAULT));
    assert!(tap.super_frames && tap.mac.is_some());
    assert_eq!(config.policy.users, [1000, 1000]);
    assert_eq!(config.user.as_deref(), Some("clearway"));
    assert_eq!(config.policy.groups, [400]);
    assert_eq!(config.policy.ports[0].allow, [80..=80, 8000..=8999]);
    assert!(config.policy.ports[1].people.anybody);
    let [machines, printers, ports] = &config.policy.vifs[..] else { panic!("three rules") };
    assert!(ports.people.anybody && ports.receive[0].text().contains("src net"));
    assert_eq!((machines.receive.len(), machines.own_addresses.len()), (2, 1));
    assert!(machines.copies && machines.captures && machines.send.is_none());
    assert_eq!((machines.rate_frames_per_s, machines.vifs_max), (Some(100_000), Some(16)));
    assert_eq!((machines.priority_max, printers.send.as_ref().map(Vec::len)), (10, Some(1)));
    assert_eq!(config.policy.share.map(|people| people.users), Some(vec![1000]));
    assert!(config.policy.ask.is_some_and(|people| people.anybody));
    // These two go by the machine's memory if not given.
    let limits = Limits {
        memory_per_user_bytes: 4 << 30,
        memory_total_bytes: 16 << 30,
        ..machine::limits()
    };
    assert_eq!(config.policy.limits, limits);
}

/// `channels_per_user` alone is enough to give a user more; what is given stays as it is.
#[test]
fn limits_that_are_not_given_follow_the_one_that_is() {
    let limits = |keys: &str| {
        let config = read(&format!("{MEMIF}[policy.limits]\n{keys}\n"));
        config.unwrap_or_else(|problems| panic!("{problems}")).policy.limits
    };
    let many = limits("channels_per_user = 5000");
    assert_eq!((many.sessions_per_user, many.channels_total), (10_000, 20_000));
    assert_eq!(many.sessions_total, 40_000);
    let totals = "channels_total = 6000\nsessions_per_user = 5001\nsessions_total = 6001";
    let given = limits(&format!("channels_per_user = 5000\n{totals}"));
    let sessions = (given.sessions_per_user, given.sessions_total);
    assert_eq!((given.channels_total, sessions), (6000, (5001, 6001)));
    let others = limits("vifs_per_user = 20000\nmemories_per_user = 9000\nports_per_vif = 2000");
    let totals = (others.vifs_total, others.memories_total, others.ports_per_user);
    assert_eq!(totals, (20_000, 9000, 2000));
    let sessions = limits("sessions_per_user = 100000");
    assert_eq!(sessions.sessions_total, 100_000);
    let rule = "[[policy.vif]]\nusers = [7]\nreceive = [\"icmp\"]\nvifs_max = 20001";
    assert_eq!(limits(&format!("vifs_per_user = 5\n{rule}")).vifs_total, 20_001);
    let only_a_rule = read(&format!("{MEMIF}{rule}\n")).expect("valid").policy.limits;
    assert_eq!(only_a_rule.vifs_total, 20_001);
    let total = limits("memory_total_bytes = 1048576");
    assert_eq!(total.memory_per_user_bytes, 1 << 20);
    let few = limits("channels_per_user = 1");
    assert_eq!(few, Limits { channels_per_user: 1, ..machine::limits() });
}

fn is_assignment(text: &str) -> bool {
    text.split_once(" = ")
        .is_some_and(|(key, _)| key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
}

const MEMIF: &str = "[[nic]]\ndriver = \"memif\"\nsocket = \"/tmp/m\"\nrole = \"server\"\n\
                     addresses = [\"10.0.0.1/24\"]\n";
const DPDK: &str = "[[nic]]\ndriver = \"dpdk\"\ndevice = \"net_null0,size=60\"\n\
                    addresses = [\"10.0.0.1/24\"]\n";
const SECOND_DPDK: &str = "[[nic]]\nname = \"two\"\ndriver = \"dpdk\"\ndevice = \"net_null0\"\n\
                           eal = [\"--no-huge\"]\naddresses = [\"10.0.0.2/24\"]\n";
const SECOND_40: &str = "[[nic]]\nname = \"two\"\ninterface = \"eth0\"\nengines = 40\n";
const UDP: &str = "[[nic]]\ndriver = \"udp\"\n";
const ETHERNET: &str = "[[nic]]\ninterface = \"eth0\"\n";

#[test]
fn a_dpdk_device_has_its_offloads_unless_they_are_off() {
    for (extra, expected) in
        [("", true), ("offloads = true\n", true), ("offloads = false\n", false)]
    {
        let config = read(&format!("{DPDK}{extra}")).expect("valid");
        let Driver::Dpdk(dpdk) = &config.nics[0].driver else { panic!("{:?}", config.nics) };
        assert_eq!(dpdk.offloads, expected, "{extra}");
    }
}

/// What is wrong, the line on which it stands, and parts of the cause and of the remedy.
#[test]
fn problems_name_the_line_the_cause_and_the_remedy() {
    let nic = |extra: &str| format!("{ETHERNET}{extra}");
    let memif = |extra: &str| format!("{MEMIF}{extra}");
    let dpdk = |extra: &str| format!("{DPDK}{extra}");
    let vif = |extra: &str| nic(&format!("\n[[policy.vif]]\n{extra}"));
    let limits = |keys: &str| nic(&format!("[policy.limits]\n{keys}"));
    let cases: &[(String, usize, &str, &str)] = &[
        (String::new(), 1, "no [[nic]]", "add one"),
        ("[[nic]\n".into(), 1, "not TOML", "toml.io"),
        ("[[nic]]\n".into(), 1, "no `interface`", "eth0"),
        ("nic = 3\n".into(), 1, "`nic` in the top level is integer", "[[nic]]"),
        ("[nic]\ninterface = \"eth0\"\n".into(), 1, "is table", "[[nic]]"),
        (nic("adresses = []\n"), 3, "unknown key `adresses` in [[nic]]", "mean `addresses`"),
        (nic("zzz = 1\n"), 3, "unknown key `zzz`", "use one of: name, engines, cores, driver"),
        (nic("driver = \"dpkd\"\n"), 3, "cannot be \"dpkd\"", "\"af_xdp\""),
        (nic("eal = []\n"), 3, "`eal` has no meaning", "remove"),
        ("[[nic]]\ndriver = \"dpdk\"\n".into(), 1, "no `device`", "PCI address"),
        (dpdk("queue_pairs = 2\n"), 5, "`queue_pairs` has no meaning", "remove"),
        (dpdk("queues = 1\nengines = 2\n"), 5, "2 engines need a queue each", "raise `queues`"),
        (memif("offloads = false\n"), 6, "`offloads` has no meaning", "remove"),
        (dpdk(SECOND_DPDK), 5, "different arguments", "the same `eal`"),
        (dpdk(SECOND_DPDK), 5, "two NICs on the device net_null0", "once"),
        (
            nic("socket = \"/tmp/x\"\n"),
            3,
            "`socket` has no meaning for a NIC whose driver is not \"memif\"",
            "remove the line, or have `driver = \"memif\"`",
        ),
        (nic("eal = []\n"), 3, "whose driver is not \"dpdk\"", "or have `driver = \"dpdk\"`"),
        (nic("mac = \"02:00:00:00:00:01\"\n"), 3, "neither \"memif\" nor \"tap\"", "remove"),
        (
            format!("{UDP}interface = \"eth0\"\n"),
            3,
            "no meaning for a NIC with `driver = \"udp\"`",
            "",
        ),
        (format!("{UDP}gateway = \"10.0.0.1\"\n"), 3, "`gateway` has no meaning", "remove"),
        (format!("{UDP}{UDP}name = \"two\"\n"), 3, "at all addresses", "name the one address"),
        (format!("{UDP}{ETHERNET}"), 3, "at all addresses", "name the one address"),
        (nic(UDP), 3, "at all addresses", "name the one address"),
        (format!("{UDP}super_frames = true\n"), 3, "`super_frames` has no meaning", "remove"),
        (nic("mode = \"fast\"\n"), 3, "`mode` cannot be \"fast\"", "\"zero-copy\""),
        (nic("queues = 0\n"), 3, "`queues = 0` is out of range", "from 1 to 2"),
        (nic("cores = [9]\n"), 3, "core 9", "[0, 1]"),
        (nic("cores = [1, 1]\n"), 3, "core 1 stands twice", "others"),
        (nic("mode = \"copy\"\ndriver = \"af_packet\"\n"), 1, "`mode` is a choice", "remove"),
        ("[[nic]]\ninterface = \"\"\n".into(), 2, "never an interface", "eth0"),
        ("[[nic]]\ninterface = \"longer-than-fifteen\"\n".into(), 2, "never an", "1 to 15"),
        ("[[nic]]\ninterface = \"eth0:1\"\n".into(), 2, "never an interface", "':'"),
        (nic("addresses = [\"10.0.0.255/24\"]\n"), 3, "not an address of a host", "/24"),
        (nic("addresses = [\"10.0.0.0/24\"]\n"), 3, "not an address of a host", "/24"),
        (nic("addresses = [\"255.255.255.255/24\"]\n"), 3, "not an address of a host", "/24"),
        (nic("addresses = [\"0.0.0.1/8\"]\n"), 3, "not an address of a host", "/24"),
        (nic("addresses = [\"::ffff:10.0.0.1/120\"]\n"), 3, "not an address of a host", "/64"),
        (nic("addresses = [\"127.0.0.1/8\"]\n"), 3, "127.0.0.1 is the loopback's", "network"),
        (nic("addresses = [\"::1/128\"]\n"), 3, "::1 is the loopback's", "network"),
        (
            "[[nic]]\ndriver = \"udp\"\naddresses = [\"fe80::1/64\"]\n".into(),
            3,
            "fe80::1 is of one link",
            "`interface`",
        ),
        (nic("mtu_bytes = 1279\naddresses = [\"fd00::1/64\"]\n"), 3, "needs 1280", "raise"),
        (nic("cores = [-1]\n"), 3, "core -1", "[0, 1]"),
        (nic("engines = 65\n"), 3, "`engines = 65` is out of range", "from 1 to 64"),
        (
            nic("engines = 3\ncores = [0, 1]\n"),
            3,
            "3 engines cannot be pinned to 2 cores",
            "one core for each",
        ),
        (nic("engines = 2\nqueues = 1\n"), 4, "2 engines need a queue each", "raise `queues` to 2"),
        (nic(&format!("engines = 40\n{SECOND_40}")), 1, "80 engines in all", "lower `engines`"),
        (nic("mtu_bytes = 99999\n"), 3, "out of range", "65518"),
        (nic("vlan = 4095\n"), 3, "out of range", "4094"),
        (nic("vlan = 5\n"), 3, "the addresses of eth0 are not this NIC's", "add those that it has"),
        (nic("super_frames = true\ndriver = \"af_xdp\"\n"), 1, "are AF_PACKET's", "remove one"),
        (nic("super_frames = true\nmode = \"copy\"\n"), 1, "are AF_PACKET's", "remove one"),
        (memif("secret = \"\"\n"), 6, "an empty `secret` is none", "or remove the line"),
        ("[[nic]]\ndriver = \"dpdk\"\ndevice = \"\"\n".into(), 3, "an empty `device`", "name one"),
        (
            memif("routes = [{ to = \"fd01::/16\", via = \"fe80::1\", mtu_bytes = 1279 }]\n"),
            6,
            "`mtu_bytes = 1279` is too little: IPv6 needs 1280",
            "raise it",
        ),
        (limits("patterns_per_user = 262145\n"), 4, "is never reached", "at most 262144"),
        (nic("idle = 1\n"), 3, "`idle` in [[nic]] is integer", "string"),
        (nic("idle = \"busy\"\n"), 3, "cannot be \"busy\"", "\"spin\""),
        (nic("name = \"a b\"\n"), 3, "cannot be the name", "letters"),
        (nic("addresses = \"10.0.0.1/24\"\n"), 3, "is string", "array"),
        (nic("addresses = [\"10.0.0.1\"]\n"), 3, "\"10.0.0.1\"", "/24"),
        (nic("addresses = [\"10.0.0.1/33\"]\n"), 3, "not an address", "/24"),
        (nic("addresses = [\"fd00::1/0\"]\n"), 3, "not an address", "/64"),
        (nic("addresses = [\n\"10.0.0.1/8\",\n\"10.0.0.1/8\"]\n"), 5, "stands twice", "remove"),
        (nic("gateway = \"10.0.0.0/8\"\n"), 3, "not an IP address", "without a prefix"),
        (memif("gateway = \"10.1.0.1\"\n"), 6, "10.1.0.1 is not on the link", "prefix"),
        (memif("routes = [{ via = \"10.0.0.2\" }]\n"), 6, "no `to`", "10.1.0.0/16"),
        (memif("routes = [{ to = \"::/0\", via = \"10.0.0.2\" }]\n"), 6, "family", "same"),
        (memif("routes = [{ to = \"10.1.0.0\", via = \"10.0.0.2\" }]\n"), 6, "network", "/16"),
        (
            memif("routes = [{ to = \"10.1.2.3/16\", via = \"10.0.0.2\" }]\n"),
            6,
            "\"10.1.2.3/16\" is no network",
            "\"10.1.0.0/16\"",
        ),
        (
            memif("routes = [{ to = \"fd00:1::1/32\", via = \"fe80::2\" }]\n"),
            6,
            "\"fd00:1::1/32\" is no network",
            "\"fd00:1::/32\"",
        ),
        (memif("gateway = \"10.0.0.1\"\n"), 6, "10.0.0.1 is one of this host's own", "router"),
        (memif("gateways = [\"10.0.0.1\"]\n"), 6, "10.0.0.1 is one of this host's own", "router"),
        (memif("gateways = [\"fe80::1\"]\n"), 6, "no use without an address of IPv6", "add one"),
        (memif("gateways = [\"10.0.0.2\", \"10.0.0.2\"]\n"), 6, "10.0.0.2 stands twice", "remove"),
        (memif("gateway = \"10.0.0.255\"\n"), 6, "10.0.0.255 is not the address of", "router"),
        (memif("gateway = \"10.0.0.0\"\n"), 6, "10.0.0.0 is not the address of", "router"),
        (nic("gateway = \"224.0.0.1\"\n"), 3, "224.0.0.1 is not the address of", "router"),
        (nic("gateways = [\"::\"]\n"), 3, ":: is not the address of", "router"),
        (
            memif("gateways = [\"10.0.0.2\"]\ngateway = \"10.0.0.3\"\n"),
            7,
            "`gateway` and `gateways`",
            "name all in `gateways`",
        ),
        (format!("{UDP}gateways = [\"10.0.0.1\"]\n"), 3, "`gateways` has no meaning", "remove"),
        ("[[nic]]\ndriver = \"memif\"\n".into(), 1, "no `socket`", "add `socket"),
        (memif("interface = \"eth0\"\n"), 6, "`interface` has no meaning", "remove"),
        (memif("id = 4294967296\n"), 6, "out of range", "4294967295"),
        (memif("mac = \"03:00:00:00:00:01\"\n"), 6, "`mac", "02:00"),
        (memif("mac = \"02:00:00:00:01\"\n"), 6, "`mac", "02:00"),
        (memif("secret = \"0123456789012345678901234\"\n"), 6, "longer than 23", "both sides"),
        (memif("buffer_bytes = 100\n"), 6, "out of range", "512"),
        (nic(ETHERNET), 3, "same interface", "once"),
        (memif(MEMIF), 6, "\"memif0\" has the same memif socket", "a `socket` of its own"),
        (memif("[control]\nsocket = \"/tmp/m\"\n"), 1, "control socket and the memif", "a path"),
        (
            nic("[control]\nsocket = \"/tmp/m\"\n[metrics]\nsocket = \"/tmp/m\"\n"),
            1,
            "the control socket and the socket of metrics are both at /tmp/m",
            "a path",
        ),
        (nic("[metrics]\nlisten = [\"[::1]:0\"]\n"), 4, "a port that nobody is told", "9464"),
        (nic("[metrics]\nlisten = [\"[::1]:1\",\n\"[::1]:1\"]\n"), 5, "stands twice", "remove"),
        (memif(MEMIF), 6, "two NICs with the name \"memif0\"", "`name`"),
        (nic("[control]\nsocket = \"c.sock\"\n"), 4, "not an absolute path", "/run"),
        (nic(&format!("[control]\nsocket = \"/{}\"\n", "x".repeat(110))), 4, "longer", "short"),
        (nic("[control]\nsockets = 1\n"), 4, "unknown key", "`socket`"),
        (nic("[log]\nlevel = \"a=b=c\"\n"), 4, "not a log level", "info"),
        (nic("[log]\nuser = \"x\"\n"), 4, "unknown key `user` in [log]", "above the first"),
        (nic("[policy]\nuser = \"x\"\n"), 4, "unknown key `user`", "or did you mean `users`?"),
        (nic("[log]\nformat = \"xml\"\n"), 4, "cannot be \"xml\"", "\"json\""),
        (nic("[policy]\nusers = [\"bob\"]\n"), 4, "no user \"bob\"", "create"),
        (nic("[policy]\ngroups = [\"bob\"]\n"), 4, "no group \"bob\"", "create"),
        (nic("[policy]\nusers = [1.5]\n"), 4, "is float", "array"),
        (nic("[[policy.ports]]\nallow = [1]\n"), 3, "whom", "users"),
        (nic("[[policy.ports]]\nusers = [1]\n"), 3, "which ports", "allow"),
        (nic("[[policy.ports]]\nusers = [1]\nallow = [0]\n"), 5, "\"0\"", "65535"),
        (nic("[[policy.ports]]\nusers = [1]\nallow = [\"9-8\"]\n"), 5, "\"9-8\"", "8000-8999"),
        (vif("receive = []\n"), 4, "whom", "users"),
        (vif("users = [1]\n"), 4, "what it allows", "receive"),
        (vif("users = [1]\nreceive = [\"udp prot 5\"]\n"), 6, "not a filter", ""),
        (vif("users = [1]\nreceive = [\"ether multicast\"]\n"), 6, "what answers", "send = []"),
        (vif("users = [1]\nsend = [7]\n"), 6, "`send` in [[policy.vif]] is integer", "array"),
        (vif("users = [1]\nown_addresses = [\"10.0.0.50\"]\n"), 6, "10.0.0.50", "/32"),
        (
            vif("users = [1]\nown_addresses = [\"10.0.0.50/24\"]\n"),
            6,
            "\"10.0.0.50/24\" is no network",
            "write \"10.0.0.50/32\" for this one, or \"10.0.0.0/24\" for all of the network",
        ),
        (vif("users = [1]\nown_addresses = [\"fd00::1/64\"]\n"), 6, "after its prefix", "/128"),
        (vif("users = [1]\ncaptures = 1\n"), 6, "is integer", "true or false"),
        (vif("users = [1]\ncaptures = true\nvifs = 1\n"), 7, "unknown key", "vifs_max"),
        (vif("users = [1]\ncaptures = true\npriority_max = 60001\n"), 7, "range", "60000"),
        (vif("users = [1]\ncaptures = true\nrate_frames_per_s = 0\n"), 7, "range", "from 1"),
        (nic("[policy.limits]\nvifs_total = 0\n"), 4, "out of range", "from 1"),
        (nic("[policy.limits]\nchannels_total = 0\n"), 4, "out of range", "from 1"),
        (nic("[policy.limits]\nmemory_total_bytes = 1\n"), 4, "out of range", "from"),
        (
            nic("[policy]\nusers = [4294967295]\n"),
            4,
            "4294967295 is -1, which is the number of no user",
            "name",
        ),
        (nic("[policy]\ngroups = [4294967295]\n"), 4, "the number of no group", "name"),
        (nic("[policy]\nusers = [4294967296]\n"), 4, "no user \"4294967296\"", "create"),
        (
            limits("channels_total = 10\nchannels_per_user = 11\n"),
            5,
            "`channels_per_user = 11` is above `channels_total = 10`",
            "raise `channels_total` in [policy.limits]",
        ),
        (limits("channels_per_user = 11\nsessions_per_user = 10\n"), 4, "above", "lower"),
        (limits("channels_total = 1100\nsessions_total = 1099\n"), 4, "above", "lower"),
        (limits("sessions_per_user = 11\nsessions_total = 10\n"), 4, "above", "lower"),
        (limits("memories_per_user = 11\nmemories_total = 10\n"), 4, "above", "lower"),
        (limits("vifs_per_user = 11\nvifs_total = 10\n"), 4, "above", "lower"),
        (
            vif("users = [1]\ncaptures = true\nvifs_max = 11\n[policy.limits]\nvifs_total = 10\n"),
            7,
            "`vifs_max = 11` is above `vifs_total = 10`",
            "raise `vifs_total` in [policy.limits]",
        ),
        (limits("ports_per_vif = 11\nports_per_user = 10\n"), 4, "above", "lower"),
        (
            limits("memory_per_user_bytes = 2097152\nmemory_total_bytes = 1048576\n"),
            4,
            "`memory_per_user_bytes = 2097152` is above `memory_total_bytes = 1048576`",
            "raise `memory_total_bytes`",
        ),
        (format!("udp_port = 0\n{ETHERNET}"), 1, "out of range", "65535"),
        (format!("udp_port = \"x\"\n{ETHERNET}"), 1, "is string", "whole number"),
    ];
    for (text, line, cause, remedy) in cases {
        let problems = read(text).expect_err(text);
        let found = problems.list.iter().any(|problem| {
            problem.line == *line
                && problem.cause.contains(cause)
                && problem.remedy.contains(remedy)
        });
        assert!(found, "expected line {line}, {cause}, {remedy} for\n{text}\ngot\n{problems}");
    }
}

#[test]
fn udp_needs_nothing_and_stands_beside_others_at_one_address() {
    let alone = read(UDP).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(alone.nics, [Nic::new("udp", Driver::Udp, Vec::new())]);
    let beside = format!("{MEMIF}{UDP}");
    assert!(read(&beside).is_ok(), "{beside}");
    let beside = format!("{ETHERNET}{UDP}addresses = [\"192.0.2.1/24\"]\nengines = 2\n");
    assert_eq!(read(&beside).unwrap_or_else(|problems| panic!("{problems}")).nics[1].engines, 2);
}

/// What its other keys mean is not known.
#[test]
fn a_misspelt_driver_is_one_problem() {
    for driver in ["\"memfi\"", "1"] {
        let text = format!("{}queues = 1\n", MEMIF.replace("\"memif\"", driver));
        let problems = read(&text).expect_err("no driver");
        assert_eq!(problems.list.len(), 1, "{problems}");
    }
}

#[test]
fn all_problems_are_reported_in_the_order_of_the_file() {
    let text = "udp_port = 0\n[[nic]]\ninterface = \"lo\"\nidle = \"x\"\nfoo = 1\n";
    let problems = read(text).expect_err("invalid");
    let lines: Vec<usize> = problems.list.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [1, 3, 4, 5]);
    let shown = problems.to_string();
    assert!(shown.starts_with("test.toml:1:12: `udp_port = 0` is out of range\n    remedy: give"));
}

#[test]
fn problems_in_filters_name_the_column() {
    let column = |receive: &str| {
        let text = format!("{ETHERNET}[[policy.vif]]\nusers = [1]\nreceive = {receive}\n");
        let problems = read(&text).expect_err("no filter");
        assert_eq!(problems.list.len(), 1, "{problems}");
        problems.list[0].column
    };
    assert_eq!(column("[\"udp dst prot 53\"]"), 13 + 8);
    assert_eq!(column("[\"udp\", 'dst host own and udp dst port 99999']"), 20 + 30);
    assert_eq!(column("[\"\\u0075dp dst prot 53\"]"), 12, "with escapes: where it begins");
    assert_eq!(column("[\"dst host own and\"]"), 13 + 16);
}

/// What a refusal says to write is accepted, gives the right, and takes nothing away.
#[test]
fn a_rule_that_a_refusal_names_gives_the_port() {
    let user = Peer { user: 7, process: 1, groups: Vec::new() };
    let place = |vlan| Place {
        addresses: ["10.0.0.2", "10.0.0.3", "fd00::2"].map(|own| own.parse().expect(own)).into(),
        host: Vec::new(),
        mac: [2, 0, 0, 0, 0, 1],
        vlan,
        udp_port: 20707,
        stations: Vec::new(),
    };
    let port = |port, address: Option<&str>, peers: &[&str]| OpenTcpPort {
        port,
        address: address.map(|text| text.parse().expect(text)),
        peers: peers.iter().map(|text| text.parse().expect(text)).collect(),
        ..OpenTcpPort::default()
    };
    let ask = |rules: &str, place: &Place, open: &OpenTcpPort| {
        let config = read(&format!("{MEMIF}{rules}"));
        let policy = config.unwrap_or_else(|problems| panic!("{rules}: {problems}")).policy;
        Accounts::new(policy, 500).grant_tcp_port(&user, open, place)
    };
    for (vlan, open, named) in [
        (None, port(80, None, &[]), "\"dst host own and tcp and dst port 80\""),
        (Some(9), port(80, None, &[]), "\"vlan 9 and dst host own and tcp and dst port 80\""),
        (None, port(80, Some("10.0.0.3"), &[]), "\"dst host 10.0.0.3 and tcp and dst port 80\""),
        (None, port(80, None, &["10.1.0.0/16", "10.2.0.0/16", "fd01::/16"]), "src net fd01::/16"),
    ] {
        let place = place(vlan);
        let unprivileged = port(8080, None, &[]);
        let message = ask("", &place, &open).expect_err("privileged").message;
        assert!(message.contains(named), "{named} is missing in: {message}");
        let (_, lines) = message.split_once("one with ").expect("a rule is named");
        let lines: Vec<&str> = lines.split('`').skip(1).step_by(2).collect();
        let rule = format!("[[policy.vif]]\n{}\n", lines.join("\n"));
        assert!(ask(&rule, &place, &open).is_ok(), "{rule}");
        assert!(ask(&rule, &place, &unprivileged).is_ok(), "{rule}");

        let rule = |filters: &str| format!("[[policy.vif]]\nusers = [7]\nreceive = [{filters}]\n");
        let message = ask(&rule("\"icmp\""), &place, &open).expect_err("another rule").message;
        let (_, lacking) = message.rsplit_once("; ").expect("what is lacking");
        let lacking = lacking.split('`').filter(|text| text.starts_with('"'));
        let rule = rule(&lacking.collect::<Vec<_>>().join(", "));
        assert!(ask(&rule, &place, &open).is_ok(), "{rule}");
    }
}

#[test]
fn memif_defaults() {
    let config = read(MEMIF).expect("valid");
    let expected = Nic::memif(
        "memif0",
        Memif::new("/tmp/m", MemifRole::Server),
        Network { address: [10, 0, 0, 1].into(), prefix_bits: 24 },
    );
    assert_eq!(config.nics, [expected]);
}

#[test]
fn secret_is_not_shown() {
    let mut link = Memif::new("/tmp/m", MemifRole::Client);
    link.secret = "hunter2".to_owned();
    assert!(!format!("{link:?}").contains("hunter2"));
    let text = format!("{MEMIF}secret = \"hunter2hunter2hunter2hunter2\"\n");
    assert!(!read(&text).expect_err("too long").to_string().contains("hunter2"));
}

#[test]
fn missing_file_says_what_to_do() {
    let problems = Config::load(Path::new("/nonexistent/clearway.toml")).expect_err("missing");
    let shown = problems.to_string();
    assert!(shown.contains("/nonexistent/clearway.toml: cannot read it"), "{shown}");
    assert!(shown.contains("--config"), "{shown}");
}

/// What `--check` says of a NIC at the loopback, which every machine has.
fn checked(nic: Nic, limits: Limits) -> Result<Vec<String>, Problems> {
    let socket = std::env::temp_dir().join("clearway-config-checked.sock");
    let policy = Policy { limits, ..Policy::default() };
    let config =
        Config { control: Control { socket }, nics: vec![nic], policy, ..Config::default() };
    check(&config, Path::new("test.toml"))
}

fn loopback() -> Nic {
    let interface = Interface {
        name: "lo".to_owned(),
        driver: InterfaceDriver::Auto,
        mode: XdpMode::Auto,
        queues: None,
        super_frames: None,
    };
    Nic::new("lo", Driver::Interface(interface), Vec::new())
}

#[test]
fn check_finds_a_gateway_that_is_the_interface_itself() {
    let via = |gateway: &str| {
        let routes = vec![Route::default_via(gateway.parse().expect("an address"))];
        checked(Nic { routes, ..loopback() }, Limits::default())
    };
    let problems = via("127.0.0.1").expect_err("itself").to_string();
    assert!(problems.contains("127.0.0.1 is an address of lo itself"), "{problems}");
    assert!(problems.contains("the router's address"), "{problems}");
    assert_eq!(via("127.0.0.2"), Ok(Vec::new()));
    let problems = via("192.0.2.1").expect_err("elsewhere").to_string();
    assert!(problems.contains("192.0.2.1 is on no network of lo"), "{problems}");
}

/// The daemon starts with it, and somebody learns much later that it cannot be read again.
#[test]
fn check_tells_of_a_file_that_cannot_be_read_again() {
    let path = std::env::temp_dir().join(format!("clearway-again-{}", std::process::id()));
    let nobody = OwnUser::named("nobody").expect("a user database").expect("it is everywhere");
    let notes = |text: &str, mode: u32, user: Option<&OwnUser>| {
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its own");
        check::notes_of_file(&path, &path.metadata().expect("it is there"), user)
    };
    let long = "#".repeat(32_769);
    let cases = [
        (notes("", 0o644, Some(&nobody)), None),
        (notes("", 0o600, None), None),
        (notes("", 0o600, Some(&nobody)), Some("nobody, which the daemon becomes, cannot read")),
        (notes("", 0o664, None), Some("can be written by others than root")),
        (notes(&long, 0o644, None), Some("is longer than 32768 bytes")),
    ];
    std::fs::remove_file(&path).expect("its own");
    for (notes, expected) in cases {
        assert_eq!(notes.len(), usize::from(expected.is_some()), "{notes:?}");
        assert!(expected.is_none_or(|part| notes[0].contains(part)), "{notes:?}");
    }
}

/// The driver gives the interface as many as `queues` says.
#[test]
fn check_counts_the_queues_that_an_interface_can_have() {
    let lack = |queues: Option<usize>, engines: usize| {
        let nic = Nic { engines, ..loopback() };
        let Driver::Interface(interface) = &nic.driver else { panic!("{nic:?}") };
        check::lack_of_queues(&nic, &Interface { queues, ..interface.clone() }, (1, 4))
    };
    assert_eq!((lack(Some(4), 4), lack(Some(2), 1), lack(None, 1)), (None, None, None));
    let (cause, _) = lack(Some(5), 1).expect("more than there can be");
    assert_eq!(cause, "lo can have 4 queues, and `queues = 5` is more");
    let (cause, remedy) = lack(None, 2).expect("more than there are");
    assert!(cause.contains("wants 2 queues, and there are 1"), "{cause}");
    assert!(remedy.contains("ethtool -L lo combined 2"), "{remedy}");
}

#[test]
fn check_finds_addresses_of_which_some_are_the_kernels() {
    let at = |addresses: &[&str]| {
        let network =
            |text: &&str| Network { address: text.parse().expect("an address"), prefix_bits: 24 };
        let addresses = addresses.iter().map(network).collect();
        checked(Nic { addresses, ..loopback() }, Limits::default())
    };
    assert_eq!(at(&["127.0.0.1"]), Ok(Vec::new()));
    assert_eq!(at(&["192.0.2.7"]), Ok(Vec::new()));
    let problems = at(&["127.0.0.1", "192.0.2.7"]).expect_err("both").to_string();
    assert!(problems.contains("some of the `addresses` are the kernel's on lo"), "{problems}");
}

/// Each of them is valid.
#[test]
fn check_tells_of_what_is_hardly_meant() {
    let notes = |nics: &str, policy: &str| {
        let config = read(&format!("{ETHERNET}{nics}{policy}"));
        notes::notes(&config.unwrap_or_else(|problems| panic!("{problems}")), 2)
    };
    let rule = |users: &str| format!("[[policy.vif]]\nusers = [{users}]\nreceive = [\"icmp\"]\n");
    let (all, one) = (rule("\"*\""), rule("4294967294"));
    let second = "[[nic]]\ninterface = \"eth1\"\ncores = [1]\n";
    let told = [
        (notes("", &format!("{all}{one}")), "rule 1 of [[policy.vif]] never applies"),
        (notes("", &one), "[[policy.vif]] has a rule for user 4294967294"),
        (notes(&format!("cores = [1]\n{second}"), ""), "core 1 is that of engines of the NICs"),
        (notes("engines = 2\nidle = \"spin\"\n", ""), "2 engines have `idle = \"spin\"`"),
    ];
    for (notes, part) in told {
        assert!(notes.iter().any(|note| note.contains(part)), "{part} is missing in {notes:?}");
    }
    let let_in = format!("[policy]\nusers = [4294967294]\n{one}{all}");
    for (nics, policy) in [(second, let_in.as_str()), ("idle = \"spin\"\n", "")] {
        assert!(notes(nics, policy).is_empty(), "{policy}");
    }
}

#[test]
fn check_finds_an_address_of_udp_sockets_that_the_kernel_has_not() {
    let at = |text: &str| {
        let network = Network { address: text.parse().expect("an address"), prefix_bits: 24 };
        checked(Nic::new("udp", Driver::Udp, vec![network]), Limits::default())
    };
    assert_eq!(at("127.0.0.1"), Ok(Vec::new()));
    let problems = at("192.0.2.7").expect_err("nobody's").to_string();
    assert!(problems.contains("no address 192.0.2.7"), "{problems}");
}

#[test]
fn check_tells_of_packets_that_no_interface_carries() {
    let ways = Ways { mtu: 1500, ..Ways::default() };
    let told = |mtu_bytes| {
        let nic = Nic { mtu_bytes, ..Nic::new("udp", Driver::Udp, Vec::new()) };
        check::udp_carries_less(&nic, &ways)
    };
    assert_eq!((told(None), told(Some(1500))), (None, None));
    let note = told(Some(9000)).expect("more than 1500");
    assert!(note.contains("`mtu_bytes = 9000` of the NIC \"udp\" is never reached"), "{note}");
}

/// Two clients of a socket are two links if their numbers differ, as in other programs.
#[test]
fn memif_clients_share_a_socket() {
    let client = MEMIF.replace("server", "client");
    let other = client.replace("10.0.0.1", "10.0.0.2") + "name = \"two\"\n";
    let with_id = format!("{client}{other}id = 1\n");
    assert_eq!(read(&with_id).unwrap_or_else(|problems| panic!("{problems}")).nics.len(), 2);
    let problems = read(&format!("{client}{other}")).expect_err("one link").to_string();
    assert!(problems.contains("same memif socket"), "{problems}");
}

/// The total goes by the machine, so the same configuration is right on a larger one.
#[test]
fn check_tells_of_a_limit_that_this_machine_keeps_out_of_reach() {
    let limits = read(&format!("{MEMIF}[policy.limits]\nmemory_per_user_bytes = 70368744177664\n"))
        .expect("valid on some machine")
        .policy
        .limits;
    let notes = checked(loopback(), limits).expect("valid here");
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.contains("`memory_per_user_bytes = 70368744177664` is never reached"), "{note}");
}

/// It would not start.
#[cfg(not(feature = "dpdk"))]
#[test]
fn check_finds_a_driver_that_is_not_built_in() {
    let nics = read(DPDK).expect("valid where there is DPDK").nics;
    let problems = checked(nics[0].clone(), Limits::default()).expect_err("refused").to_string();
    assert!(problems.contains("net_null0: this clearway was built without DPDK"), "{problems}");
    assert!(problems.contains("or choose another driver"), "{problems}");
}

/// An editor may have saved the file in another encoding: the path is right.
#[test]
fn a_file_that_is_not_utf_8_says_where_and_what_to_do() {
    let path = std::env::temp_dir().join(format!("clearway-latin-1-{}", std::process::id()));
    std::fs::write(&path, b"# f\xc3\xbcr\n# f\xfcr\n[[nic]]\n").expect("written");
    let problems = Config::load(&path).expect_err("no text");
    std::fs::remove_file(&path).expect("removed");
    let [problem] = &problems.list[..] else { panic!("{problems}") };
    assert_eq!((problem.line, problem.column), (2, 4), "{problems}");
    assert!(problem.cause.contains("not UTF-8"), "{problems}");
    assert!(problem.remedy.contains("save the file as UTF-8"), "{problems}");
}

#[test]
fn on_link_compares_prefixes() {
    let network = |address: &str, prefix_bits| Network {
        address: address.parse().expect("an address"),
        prefix_bits,
    };
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    assert!(network("10.0.0.1", 24).on_link(ip("10.0.0.255")));
    assert!(!network("10.0.0.1", 24).on_link(ip("10.0.1.1")));
    assert!(network("10.0.0.1", 32).on_link(ip("10.0.0.1")));
    assert!(!network("10.0.0.1", 32).on_link(ip("10.0.0.2")));
    assert!(network("fd00::1", 64).on_link(ip("fd00::2")));
    assert!(!network("fd00::1", 64).on_link(ip("10.0.0.1")));
}

/// Whatever stands in the file, there is an answer and no panic.
#[test]
fn random_edits_never_panic() {
    let mut random = clearway_base::Random::new(20707);
    for _ in 0..500 {
        let mut bytes = SHIPPED.replace("\n#", "\n").into_bytes();
        for _ in 0..1 + random.below(8) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes[at] = random.below(128) as u8,
                1 if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => bytes.truncate(at + 1),
            }
        }
        if let Ok(text) = String::from_utf8(bytes) {
            let _ = read(&text);
        }
    }
}

#[test]
fn confinement_can_be_switched_off() {
    let nic = "[[nic]]\ninterface = \"eth0\"\n";
    let with = |line: &str| read(&format!("{line}\n{nic}"));
    assert!(!with("confine = false").unwrap_or_else(|problems| panic!("{problems}")).confine);
    let problems = with("confine = \"no\"").expect_err("a wrong type").to_string();
    assert!(problems.contains("test.toml:1:") && problems.contains("true or false"), "{problems}");
}

#[test]
fn reload_takes_what_it_can_and_names_the_rest() {
    let nic = "[[nic]]\ninterface = \"eth0\"\n";
    let mut config = read(nic).expect("valid");
    let first = config.clone();
    let slots = first.nics.clone();
    let refuses = |nic: &Nic| {
        let own = slots.iter().find(|own| own.name == nic.name);
        own.and_then(|own| own.keeps(nic)).map(str::to_owned)
    };
    assert_eq!(config.reload(&first, &refuses), Change::default());
    let new = format!(
        "udp_port = 1\nuser = \"alice\"\n{nic}engines = 2\n[[nic]]\ninterface = \"eth1\"\n\
         [policy]\nusers = [\"alice\"]\n[policy.limits]\nvifs_total = 7\n\
         [log]\nlevel = \"debug\"\nformat = \"json\"\n"
    );
    let new = read(&new).expect("valid");
    let change = config.reload(&new, &refuses);
    assert_eq!(change.taken, ["[policy]", "[log] level", "[[nic]] eth1"]);
    let engines = "[[nic]] eth0: `engines` is that of threads which run";
    assert_eq!(change.needs_restart, ["udp_port", "[log] format", "user", engines]);
    assert_eq!(change.nics, [NicChange::New(new.nics[1].clone())]);
    assert_eq!((&config.policy, config.policy.limits.vifs_total), (&new.policy, 7));
    assert_eq!(config.nics, [first.nics[0].clone(), new.nics[1].clone()], "those that are open");
    let back = config.reload(&first, &refuses);
    assert!(back.needs_restart.is_empty(), "and what runs is as it was");
    assert_eq!(back.nics, [NicChange::Gone("eth1".to_owned())]);
    let other = read(&format!("{nic}driver = \"af_packet\"\nmtu_bytes = 1400\n")).expect("valid");
    let change = config.reload(&other, &refuses);
    assert_eq!(
        (&change.taken[..], &change.nics[..]),
        (&["[[nic]] eth0".to_owned()][..], &[NicChange::Other(other.nics[0].clone())][..])
    );
    let udp = read("[[nic]]\ndriver = \"udp\"\nname = \"eth0\"\n").expect("valid");
    let kind = "[[nic]] eth0: it was of another kind when the daemon started";
    assert_eq!(config.reload(&udp, &refuses).needs_restart, [kind]);
}

#[test]
fn reload_does_not_say_of_a_nic_that_failed_that_it_was_taken_over() {
    let mut config = read(ETHERNET).expect("valid");
    let new = read(&format!("{ETHERNET}[[nic]]\ninterface = \"eth1\"\n")).expect("valid");
    let mut change = config.reload(&new, &|_| None);
    assert_eq!(change.taken, ["[[nic]] eth1"]);
    change.note_failed("eth1", "no memory");
    assert_eq!((change.taken.len(), &*change.needs_restart[0]), (0, "[[nic]] eth1: no memory"));
}

/// They stay, and the policy that they went by does not.
#[test]
fn reload_tells_that_modes_of_metrics_stay() {
    let note = |are_for_all, policy: &Policy| {
        let mut change = Change::default();
        change.note_metrics(are_for_all, policy);
        change.needs_restart
    };
    let open = Policy { anybody: true, ..Policy::default() };
    let told = ["who may read metrics, which goes by [policy]"];
    assert_eq!((note(true, &open), note(false, &Policy::default())), (Vec::new(), Vec::new()));
    assert_eq!(note(false, &open), told);
    assert_eq!(note(true, &Policy::default()), told);
}

/// It would log as before, and say that it does not.
#[test]
fn reload_does_not_take_the_level_that_the_environment_says() {
    let nic = "[[nic]]\ninterface = \"eth0\"\n";
    let before = read(nic).expect("valid");
    let new = read(&format!("linger_s_max = 7\n{nic}[log]\nlevel = \"debug\"\n")).expect("valid");
    for _ in 0..2 {
        let mut config = before.clone();
        let mut change = config.reload(&new, &|_| None);
        config.keep_level(&before, &mut change);
        assert_eq!(change.taken, ["linger_s_max"]);
        assert_eq!(change.needs_restart, ["[log] level: RUST_LOG says how much is logged"]);
        assert_eq!(config.log, before.log, "so that the next reload says so again");
    }
    let mut same = before.clone();
    let mut change = same.reload(&before, &|_| None);
    same.keep_level(&before, &mut change);
    assert_eq!(change, Change::default());
}

/// Whoever cannot ask the machine reads the same.
#[test]
fn recorded_machine_says_the_same() {
    let text = "user = \"root\"\n[[nic]]\ndriver = \"memif\"\n\
                socket = \"/x\"\nrole = \"client\"\naddresses = [\"10.0.0.1/24\"]\n\
                [policy]\nusers = [\"root\", 7]\ngroups = [\"root\"]\n";
    let recorder = Recorder::new();
    let here = parse(text, "test.toml", &recorder);
    let record = serde_json::to_vec(&recorder.into_record()).expect("JSON");
    let record: RecordedMachine = serde_json::from_slice(&record).expect("a machine");
    assert_eq!(parse(text, "test.toml", &record), here);
    assert!(here.is_ok(), "{here:?}");
}

/// `verbose` would silence everything.
#[test]
fn log_level_has_to_be_one() {
    let with =
        |level: &str| read(&format!("log.level = \"{level}\"\n[[nic]]\ninterface = \"eth0\"\n"));
    for fine in ["info", "TRACE", "off", "warn,clearway_nic=debug", "clearway_daemon", "a=1"] {
        with(fine).unwrap_or_else(|problems| panic!("{fine}: {problems}"));
    }
    for wrong in ["verbose", "infos", "info,loud", "a=verbose", "", "info,"] {
        let problems = with(wrong).expect_err(wrong).to_string();
        assert!(problems.contains("is not a log level") && problems.contains(":1:"), "{problems}");
    }
}

#[test]
fn loopback_is_no_nic() {
    let problems = read("[[nic]]\ninterface = \"lo\"\n").expect_err("refused").to_string();
    assert!(problems.contains("leads to no other host"), "{problems}");
}

#[test]
fn metrics_are_served_where_it_says_and_nowhere_else() {
    let nic = "[[nic]]\ndriver = \"udp\"\naddresses = [\"127.0.0.1/8\"]\n";
    let wanted = "[metrics]\nlisten = [\"127.0.0.1:9464\", \"[::1]:9464\"]\nsocket = \"/run/m\"\n";
    let mut config =
        read(&format!("{wanted}{nic}")).unwrap_or_else(|problems| panic!("{problems}"));
    let listen: Vec<String> = config.metrics.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["127.0.0.1:9464", "[::1]:9464"]);
    assert!(config.listening_sockets().any(|path| path == Path::new("/run/m")));
    let mut without = read(nic).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(without.metrics, Metrics::default());
    let no_nics = |_: &Nic| None;
    assert_eq!(without.reload(&config, &no_nics).needs_restart, ["[metrics]"]);
    assert!(config.reload(&config.clone(), &no_nics).needs_restart.is_empty());
    let wrong = format!("[metrics]\nlisten = [\"localhost\"]\nsocket = \"m\"\n{nic}");
    let problems = read(&wrong).expect_err("neither is usable").to_string();
    assert!(problems.contains("`localhost` is no address and port"), "{problems}");
    assert!(problems.contains("not an absolute path"), "{problems}");
}

#[test]
fn a_tap_device_is_the_other_end_of_an_interface() {
    let nic = "[[nic]]\ndriver = \"tap\"\naddresses = [\"10.9.0.2/24\"]\n";
    let [nic_by_default] = &read(nic).expect("valid").nics[..] else { panic!("one") };
    let wanted = Tap { interface: "clearway0".into(), mac: None, super_frames: true };
    assert_eq!(
        (&*nic_by_default.name, &nic_by_default.driver),
        ("clearway0", &Driver::Tap(wanted))
    );
    let problems = |text: &str| read(text).expect_err("not valid").to_string();
    for (keys, says) in [
        ("interface = \"lo\"", "cannot be the name of an interface"),
        ("interface = \"tap%d\"", "use 1 to 15 letters"),
        ("interface = \"an-interface-name\"", "use 1 to 15 letters"),
        ("queues = 2", "has a queue for each engine"),
        ("mode = \"copy\"", "driver = \"tap\""),
        ("socket = \"/tmp/x\"", "driver = \"tap\""),
        ("device = \"x\"", "driver = \"tap\""),
    ] {
        let text = problems(&format!("{nic}{keys}\n"));
        assert!(text.contains(says), "{keys}: {text}");
    }
    let text = problems("[[nic]]\ndriver = \"tap\"\n");
    assert!(text.contains("a tap NIC needs `addresses`"), "{text}");
    let text = problems(&format!("{nic}[[nic]]\nname = \"b\"\ninterface = \"clearway0\"\n"));
    assert!(text.contains("two NICs on the same interface"), "{text}");
}
