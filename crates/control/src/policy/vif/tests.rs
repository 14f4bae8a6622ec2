use clearway_channel::control::{InterfaceAddress, Mac, MacChoice, OpenTcpPort};
use clearway_classify::filter::ALTERNATIVES_MAX;

use super::rights::NAMED_MAX;
use super::*;
use crate::filter::Template;
use crate::policy::{Limits, Network, People, Policy, VifRule};

const NIC: MacAddress = [2, 0, 0, 0, 0, 1];
const GENERATED: MacAddress = [2, 9, 9, 9, 9, 9];
const OTHER: MacAddress = [2, 7, 7, 7, 7, 7];

fn place() -> Place {
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    let other = Station { mac: OTHER, address: Some(ip("10.0.0.77")), owner: "app other".into() };
    Place {
        addresses: vec![ip("10.0.0.2"), ip("fd00::2")],
        host: vec![ip("10.0.0.2"), ip("fd00::2"), ip("10.1.0.2")],
        mac: NIC,
        vlan: None,
        udp_port: 20707,
        stations: vec![other],
    }
}

fn peer(user: u32) -> Peer {
    Peer { user, process: 1, groups: vec![user] }
}

/// User 500 is the daemon's own.
fn accounts(vifs: Vec<VifRule>) -> Accounts {
    Accounts::new(Policy { vifs, ..Policy::default() }, 500)
}

fn rule(user: u32, receive: &[&str]) -> VifRule {
    VifRule {
        people: People { users: vec![user], ..People::default() },
        receive: templates(receive),
        ..VifRule::default()
    }
}

fn templates(texts: &[&str]) -> Vec<Template> {
    texts.iter().map(|text| Template::parse(text).expect(text)).collect()
}

fn receiving(filters: &[&str]) -> OpenVif {
    let receive = filters.iter().map(|filter| (*filter).to_owned()).collect();
    OpenVif { receive, ..OpenVif::default() }
}

fn machine(mac: MacChoice, address: &str) -> OpenVif {
    let address: InterfaceAddress = address.parse().expect("an address");
    OpenVif { mac: Some(mac), address: Some(address), ..OpenVif::default() }
}

fn texts(filters: &[Filter]) -> Vec<String> {
    filters.iter().map(ToString::to_string).collect()
}

fn canonical(text: &str) -> String {
    text.parse::<Filter>().expect(text).to_string()
}

fn grant(accounts: &Accounts, user: u32, open: &OpenVif) -> Result<Grant, String> {
    let granted = accounts.grant_vif(&peer(user), open, &place(), GENERATED);
    granted.map_err(|refusal| refusal.message)
}

#[track_caller]
fn assert_refused(accounts: &Accounts, user: u32, open: &OpenVif, parts: &[&str]) {
    let message = grant(accounts, user, open).expect_err("refused");
    for part in parts {
        assert!(message.contains(part), "{part} is missing in: {message}");
    }
}

#[test]
fn without_a_rule_there_are_unprivileged_ports_of_the_host() {
    let accounts = accounts(vec![]);
    let granted = grant(&accounts, 7, &receiving(&["dst host own and udp dst port 5353"]));
    let granted = granted.expect("unprivileged");
    assert_eq!(
        texts(&granted.receive),
        [
            canonical("dst host 10.0.0.2 and udp dst port 5353"),
            canonical("dst host fd00::2 and udp dst port 5353")
        ]
    );
    let source = "ether src 02:00:00:00:00:01 and src host";
    assert_eq!(
        texts(&granted.transmit),
        [
            canonical(&format!("{source} 10.0.0.2 and udp src port 5353")),
            canonical(&format!("{source} fd00::2 and udp src port 5353"))
        ]
    );
    assert_eq!((granted.mac, granted.has_own_mac, granted.address), (NIC, false, None));
    let connection =
        "src host 10.9.9.9 and tcp src port 80 and dst host 10.0.0.2 and tcp dst port 4000";
    assert!(grant(&accounts, 7, &receiving(&[connection])).is_ok());
}

#[test]
fn without_a_rule_there_is_nothing_else() {
    let accounts = accounts(vec![]);
    for filter in [
        "udp dst port 5353",
        "dst host 10.0.0.2 and udp dst port 1023",
        "dst host 10.0.0.2 and udp dst portrange 1000-2000",
        "dst host 10.0.0.3 and udp dst port 5353",
        "dst host 10.0.0.2 and sctp dst port 5353",
        "dst host 10.0.0.2 and icmp",
        "dst host 10.0.0.2 and dst port 5353",
        "vlan 7 and dst host 10.0.0.2 and udp dst port 5353",
        "ether proto 0x88b5",
        "dst host 10.0.0.2 and udp dst port 5353 or arp",
        "any",
    ] {
        assert_refused(
            &accounts,
            7,
            &receiving(&[filter]),
            &["user 7", "[[policy.vif]]", "users = [7]"],
        );
    }
    // What lacks the host's addresses is offered with them, and only if that is allowed.
    let lacking = receiving(&["udp dst port 5353"]);
    assert_refused(
        &accounts,
        7,
        &lacking,
        &["`dst host own and udp and dst port 5353` is allowed"],
    );
    let message = grant(&accounts, 7, &receiving(&["udp dst port 53"])).expect_err("privileged");
    assert!(!message.contains("is allowed"), "{message}");
    let own = receiving(&["dst host 10.0.0.2 and udp dst port 5353"]);
    let copies = OpenVif { copies: own.receive.clone(), ..own.clone() };
    assert_refused(&accounts, 7, &copies, &["copies = true"]);
    let first = OpenVif { priority: 1, ..own.clone() };
    assert_refused(&accounts, 7, &first, &["priority 1", "priority_max = 1"]);
    let spoofing = OpenVif { transmit: Some(vec!["src host 10.0.0.3 and udp".into()]), ..own };
    assert_refused(&accounts, 7, &spoofing, &["may not send", "src host 10.0.0.3"]);
    let right = "own_addresses = [\"10.0.0.50/32\"]";
    assert_refused(&accounts, 7, &machine(MacChoice::Own, "10.0.0.50/24"), &[right]);
    assert!(accounts.may_capture(&peer(7)).is_err());
    assert!(accounts.may_revoke(&peer(7)).unwrap_err().message.contains("only root"));
}

#[test]
fn on_a_vlan_the_ports_are_those_behind_its_tag() {
    let accounts = accounts(vec![]);
    let place = Place { vlan: Some(7), ..place() };
    let ask = |filter: &str| {
        accounts.grant_vif(&peer(7), &receiving(&[filter]), &place, GENERATED).is_ok()
    };
    assert!(ask("vlan 7 and dst host 10.0.0.2 and udp dst port 5353"));
    assert!(!ask("dst host 10.0.0.2 and udp dst port 5353"));
}

#[test]
fn root_and_the_own_user_may_have_anything_but_what_the_host_sends() {
    let accounts = accounts(vec![]);
    for user in [0, 500] {
        let open = OpenVif {
            copies: vec!["any".into()],
            priority: 60_000,
            ..receiving(&["udp dst port 53", "ether proto 0x88b5"])
        };
        assert!(grant(&accounts, user, &open).is_ok());
        assert!(accounts.may_capture(&peer(user)).is_ok());
        assert!(accounts.may_revoke(&peer(user)).is_ok());
        let parts = ["message service", "20707"];
        assert_refused(&accounts, user, &receiving(&["udp"]), &parts);
        assert_refused(&accounts, user, &receiving(&["any"]), &["only the host's own"]);
        assert_refused(&accounts, user, &receiving(&["arp"]), &["ARP"]);
        let silent = OpenVif { transmit: Some(vec![]), ..receiving(&["any"]) };
        assert!(grant(&accounts, user, &silent).expect("silent").transmit.is_empty());
    }
}

#[test]
fn first_rule_that_names_the_user_decides() {
    let mut first = rule(7, &["dst host own and tcp dst portrange 80-90"]);
    (first.priority_max, first.rate_frames_per_s) = (5, Some(1000));
    let accounts = accounts(vec![first, rule(7, &["any"])]);
    let open = OpenVif { priority: 5, ..receiving(&["dst host own and tcp dst port 80"]) };
    let granted = grant(&accounts, 7, &open).expect("the rule allows it");
    assert_eq!((granted.priority, granted.rate_frames_per_s), (5, Some(1000)));
    let refused = receiving(&["dst host own and tcp dst port 5353"]);
    assert_refused(
        &accounts,
        7,
        &refused,
        &["rule of the daemon's configuration that names the user"],
    );
    assert!(grant(&accounts, 8, &refused).is_ok(), "no rule is about this user");
}

#[test]
fn what_may_be_sent_can_be_said_apart() {
    let mut printer = rule(7, &["udp dst port 9100"]);
    printer.send = Some(templates(&["src host own and udp src port 9100"]));
    let accounts = accounts(vec![printer]);
    assert_refused(&accounts, 7, &receiving(&["udp dst port 9100"]), &["may not send"]);
    let transmit = Some(vec!["src host own and udp src port 9100".to_owned()]);
    assert!(
        grant(&accounts, 7, &OpenVif { transmit, ..receiving(&["udp dst port 9100"]) }).is_ok()
    );
}

#[test]
fn copies_are_of_what_may_be_received_and_of_groups() {
    let mut watcher = rule(7, &["udp dst port 5353"]);
    watcher.copies = true;
    let accounts = accounts(vec![watcher]);
    let copies = |filter: &str| OpenVif { copies: vec![filter.into()], ..OpenVif::default() };
    assert!(grant(&accounts, 7, &copies("dst host 10.0.0.9 and udp dst port 5353")).is_ok());
    assert!(grant(&accounts, 7, &copies("ether broadcast")).is_ok());
    assert!(grant(&accounts, 7, &copies("ether multicast and udp")).is_ok());
    assert_refused(&accounts, 7, &copies("udp"), &["may not receive `udp`"]);
}

#[test]
fn machine_sends_and_receives_with_its_own_addresses() {
    let mut rules = rule(7, &[]);
    rules.own_addresses = vec![Network { address: [10, 0, 0, 48].into(), prefix_bits: 28 }];
    let accounts = accounts(vec![rules]);
    let granted = grant(&accounts, 7, &machine(MacChoice::Own, "10.0.0.50/24")).expect("allowed");
    assert_eq!((granted.mac, granted.has_own_mac), (GENERATED, true));
    assert!(granted.is_kernels_neighbour, "nobody else has it");
    assert_eq!(granted.address, Some([10, 0, 0, 50].into()));
    assert_eq!(texts(&granted.receive), ["ether dst 02:09:09:09:09:09"]);
    assert_eq!(texts(&granted.copies), ["ether multicast"]);
    let may_send = |frame: &[u8]| {
        let digest = clearway_wire::digest::Digest::of(frame);
        granted.transmit.iter().any(|filter| filter.matches(&digest))
    };
    let arp = |source: MacAddress, sender: MacAddress, address: u8| {
        let head = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        let kind = [8, 6, 0, 1, 8, 0, 6, 4, 0, 2];
        let address = [10, 0, 0, address];
        [&head[..], &source, &kind, &sender, &address, &[0; 10]].concat()
    };
    assert!(may_send(&arp(GENERATED, GENERATED, 50)));
    assert!(!may_send(&arp(GENERATED, GENERATED, 51)), "another's address");
    assert!(!may_send(&arp(NIC, GENERATED, 50)), "the NIC's Ethernet address");
    assert!(!may_send(&arp(GENERATED, NIC, 50)), "the NIC's Ethernet address within");

    assert_refused(&accounts, 7, &machine(MacChoice::Own, "10.0.0.64/24"), &["10.0.0.64/32"]);
    let spoofing = OpenVif {
        transmit: Some(vec!["src host 10.0.0.51".into()]),
        ..machine(MacChoice::Own, "10.0.0.50/24")
    };
    assert_refused(&accounts, 7, &spoofing, &["may not send", "src host 10.0.0.51"]);
    let own = MacChoice::Fixed(Mac([2, 1, 1, 1, 1, 1]));
    assert_eq!(grant(&accounts, 7, &machine(own, "10.0.0.50/24")).expect("given").mac[1], 1);
}

#[test]
fn a_user_who_names_an_address_gets_nothing_of_the_kernels() {
    let mut rules = rule(7, &[]);
    rules.own_addresses = vec![Network { address: [10, 0, 0, 48].into(), prefix_bits: 28 }];
    let accounts = accounts(vec![rules]);
    let named = MacChoice::Fixed(Mac([2, 1, 1, 1, 1, 1]));
    for (user, choice, expected) in
        [(7, MacChoice::Own, true), (7, named, false), (0, MacChoice::Own, true), (0, named, true)]
    {
        let granted = grant(&accounts, user, &machine(choice, "10.0.0.50/24")).expect("given");
        assert_eq!(granted.is_kernels_neighbour, expected, "{user}: {choice:?}");
    }
    let plain = grant(&accounts, 0, &receiving(&["udp dst port 9100"])).expect("given");
    assert!(!plain.is_kernels_neighbour, "the NIC's address");
}

/// RFC 4861, section 4.4: who answers for an address says so in the message, whatever address it
/// comes from.
#[test]
fn machine_advertises_its_own_ipv6_address_only() {
    let mut rules = rule(7, &[]);
    rules.own_addresses =
        vec![Network { address: "fd00::".parse().expect("an address"), prefix_bits: 64 }];
    let accounts = accounts(vec![rules]);
    let own = "fd00::50";
    let mut open = machine(MacChoice::Own, &format!("{own}/64"));
    let granted = grant(&accounts, 7, &open).expect("allowed");
    let advertisement = |target: &str| {
        let address = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("one").octets();
        let all_nodes = address("ff02::1");
        let head = [0x60, 0, 0, 0, 0, 24, 58, 255];
        let message = [136, 0, 0, 0, 0, 0, 0, 0];
        let link = [&[0x33, 0x33, 0, 0, 0, 1], &granted.mac[..], &[0x86, 0xdd]].concat();
        let parts = [&link[..], &head, &address(own), &all_nodes, &message, &address(target)];
        clearway_wire::digest::Digest::of(&parts.concat())
    };
    let may_send =
        |target: &str| granted.transmit.iter().any(|filter| filter.matches(&advertisement(target)));
    assert!(may_send(own));
    assert!(!may_send("fd00::51"));
    // The same when the app says itself what it sends.
    open.transmit = Some(vec![format!("src host {own}")]);
    let narrower = grant(&accounts, 7, &open).expect("allowed");
    assert_eq!(texts(&narrower.transmit), texts(&granted.transmit));
}

#[test]
fn nobody_takes_the_addresses_of_another() {
    let accounts = accounts(vec![VifRule {
        own_addresses: vec![Network { address: [10, 0, 0, 0].into(), prefix_bits: 8 }],
        ..rule(7, &[])
    }]);
    for user in [0, 7] {
        let fixed = |mac| machine(MacChoice::Fixed(Mac(mac)), "10.0.0.50/24");
        assert_refused(&accounts, user, &fixed(NIC), &["the NIC itself"]);
        assert_refused(&accounts, user, &fixed(OTHER), &["app other"]);
        assert_refused(&accounts, user, &machine(MacChoice::Own, "10.0.0.77/24"), &["app other"]);
        // That of another of its NICs, too, which may be on the same link.
        for of_host in ["10.0.0.2/24", "10.1.0.2/24"] {
            let open = machine(MacChoice::Own, of_host);
            assert_refused(&accounts, user, &open, &["the host itself"]);
        }
    }
    let vendor = machine(MacChoice::Fixed(Mac([0, 1, 2, 3, 4, 5])), "10.0.0.50/24");
    assert_refused(&accounts, 7, &vendor, &["begins with 02"]);
    assert!(grant(&accounts, 0, &vendor).is_ok());
}

#[test]
fn nobody_is_a_group_or_nobody() {
    let any =
        |address: &str| Network { address: address.parse().expect("an address"), prefix_bits: 0 };
    let all = VifRule { own_addresses: vec![any("0.0.0.0"), any("::")], ..rule(7, &[]) };
    let accounts = accounts(vec![all]);
    for address in ["0.0.0.0", "224.0.0.1", "239.1.2.3", "255.255.255.255", "::", "ff02::1"] {
        let open = machine(MacChoice::Own, &format!("{address}/8"));
        for user in [0, 7] {
            assert_refused(&accounts, user, &open, &["is not the address of a machine"]);
        }
    }
    assert!(grant(&accounts, 7, &machine(MacChoice::Own, "223.0.0.1/8")).is_ok());
}

#[test]
fn captures_are_for_those_whose_rule_says_so() {
    let watcher = VifRule { captures: true, ..rule(7, &[]) };
    let accounts = accounts(vec![watcher, rule(8, &["any"])]);
    for (user, allowed) in [(0, true), (500, true), (7, true), (8, false), (9, false)] {
        assert_eq!(accounts.may_capture(&peer(user)).is_ok(), allowed, "user {user}");
        let may_revoke = accounts.may_revoke(&peer(user)).is_ok();
        assert_eq!(may_revoke, user == 0 || user == 500, "user {user}");
    }
}

/// What comes to an Ethernet address of its own never gets to the kernel; what comes from one may
/// pass for a port of the kernel's.
#[test]
fn ports_are_taken_from_the_kernel_where_it_could_have_them() {
    let accounts = accounts(vec![]);
    let filter = |text: &str| vec![text.parse::<Filter>().expect(text)];
    let receive = filter("dst host 10.0.0.2 and udp dst port 5000");
    let transmit = filter("src host 10.0.0.2 and udp src port 6000");
    let ports = |has_own_mac| {
        let found = accounts.ports_of_vif(&receive, &transmit, &place(), has_own_mac);
        let mut ports: Vec<u16> =
            found.expect("few").into_iter().map(|(_, _, port)| port).collect();
        ports.sort_unstable();
        ports
    };
    assert_eq!((ports(false), ports(true)), (vec![5000, 6000], vec![6000]));
}

/// A refusal names what is allowed, up to a number, without what nobody has to say.
#[test]
fn refusals_name_what_is_allowed() {
    let port = |at: usize| canonical(&format!("udp dst port {}", 4000 + at));
    for allowed in [0, 1, 3, 4, 5, 9] {
        let texts: Vec<String> = (0..allowed).map(port).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let accounts = accounts(vec![rule(7, &texts)]);
        let message = grant(&accounts, 7, &receiving(&["tcp"])).expect_err("refused");
        let named = (0..allowed).filter(|at| message.contains(&format!("`{}`", port(*at)))).count();
        assert_eq!(named, allowed.min(NAMED_MAX), "{message}");
        let more = format!(", {} more;", allowed.saturating_sub(NAMED_MAX));
        assert_eq!(message.contains(&more), allowed > NAMED_MAX, "{message}");
        assert_eq!(message.contains("may receive: nothing"), allowed == 0, "{message}");
    }
    let only_tcp = VifRule { send: Some(templates(&["tcp"])), ..rule(7, &["any"]) };
    let accounts = accounts(vec![only_tcp]);
    for text in ["arp", "arp sender 10.0.0.9", "udp src port 9", "udp src portrange 9-11"] {
        let open = OpenVif { transmit: Some(vec![text.into()]), ..receiving(&["arp"]) };
        let expected = format!("may not send `{}`,", canonical(text));
        assert_refused(&accounts, 7, &open, &[&expected]);
    }
}

#[test]
fn lists_end_at_their_limit() {
    let accounts = accounts(vec![]);
    let ports = |count: usize| {
        let ports: Vec<String> = (0..count).map(|at| format!("udp dst port {}", 2 * at)).collect();
        let [first, second] =
            [&ports[..count / 2], &ports[count / 2..]].map(|part| part.join(" or "));
        OpenVif { transmit: Some(vec![]), ..receiving(&[&first, &second]) }
    };
    let granted = grant(&accounts, 0, &ports(ALTERNATIVES_MAX)).expect("as many as there may be");
    let found: usize = granted.receive.iter().map(|filter| filter.clauses().len()).sum();
    assert_eq!(found, ALTERNATIVES_MAX);
    assert_refused(&accounts, 0, &ports(ALTERNATIVES_MAX + 1), &["more than", "alternatives"]);
}

#[test]
fn nonsense_is_refused_with_its_place() {
    let accounts = accounts(vec![]);
    assert_refused(
        &accounts,
        0,
        &receiving(&["udp dst prot 5"]),
        &["`udp dst prot 5`", "column 9"],
    );
    assert_refused(&accounts, 0, &receiving(&["ether multicast"]), &["transmit"]);
    let other = OpenVif {
        transmit: Some(vec!["ether src 02:00:00:00:00:05".into()]),
        ..receiving(&["udp dst port 1"])
    };
    assert_refused(&accounts, 0, &other, &["another Ethernet address", "02:00:00:00:00:01"]);
    let place = Place { addresses: vec![], ..place() };
    let nowhere = accounts.grant_vif(&peer(0), &receiving(&["dst host own"]), &place, GENERATED);
    assert!(nowhere.expect_err("no address").message.contains("does not have"));
}

#[test]
fn interfaces_are_limited_in_all_and_per_user() {
    let limits = Limits { vifs_total: 4, vifs_per_user: 2, ..Limits::default() };
    let more = VifRule { vifs_max: Some(3), ..rule(7, &[]) };
    let mut accounts = Accounts::new(Policy { limits, vifs: vec![more], ..Policy::default() }, 500);
    let message = |result: Result<(), Refusal>| result.expect_err("full").message;
    accounts.open_vif(&peer(8)).expect("first");
    accounts.open_vif(&peer(8)).expect("second");
    assert!(message(accounts.open_vif(&peer(8))).contains("vifs_per_user"));
    accounts.open_vif(&peer(7)).expect("third");
    accounts.open_vif(&peer(7)).expect("fourth");
    let of_all = message(accounts.open_vif(&peer(7)));
    assert!(
        of_all.contains("4 interfaces, captures and TCP ports") && of_all.contains("vifs_total")
    );
    accounts.close_vifs(8, 2);
    accounts.open_vif(&peer(7)).expect("there is room again");
    assert!(message(accounts.open_vif(&peer(7))).contains("vifs_max"));
}

/// What a rule allows ends where it says, at both ends and in both directions, for every way of
/// asking.
#[test]
fn rules_about_ports_end_where_they_say() {
    for rule_of in ["udp dst portrange 5000-5999", "udp dst portrange 4096-8191", "udp dst port 7"]
    {
        let accounts = accounts(vec![rule(7, &[&format!("dst host own and {rule_of}")])]);
        let (first, last) = match rule_of.rsplit_once(' ').expect("ports").1.split_once('-') {
            Some((first, last)) => (first.parse().expect("one"), last.parse().expect("one")),
            None => (7_u16, 7),
        };
        let ask = |low: u16, high: u16| {
            let host = "10.0.0.2";
            let range = format!("dst host {host} and udp dst portrange {low}-{high}");
            let given = grant(&accounts, 7, &receiving(&[&range])).is_ok();
            let sending = OpenVif {
                transmit: Some(vec![format!("src host {host} and udp src portrange {low}-{high}")]),
                ..OpenVif::default()
            };
            assert_eq!(grant(&accounts, 7, &sending).is_ok(), given, "{low}-{high}");
            given
        };
        for port in [first, last] {
            assert!(ask(port, port), "{rule_of}: {port}");
        }
        assert!(
            ask(first, first.saturating_add(9).min(last))
                && ask(last - 9_u16.min(last - first), last)
        );
        for (low, high) in
            [(first - 1, first - 1), (first - 1, first), (last, last + 1), (last + 1, last + 1)]
        {
            assert!(!ask(low, high), "{rule_of}: {low}-{high}");
        }
        assert!(!ask(0, 65535) && !ask(first - 1, last + 1));
    }
}

/// Nor do other addresses, protocols or tags come along, for one direction or the other.
#[test]
fn rules_about_ports_are_about_their_addresses_protocol_and_tag() {
    let accounts = accounts(vec![rule(7, &["dst host own and udp dst portrange 5000-5999"])]);
    for (here, there) in [("dst", "src"), ("src", "dst")] {
        let ask = |text: &str| {
            let text = text.replace("THERE", there).replace("HERE", here);
            let open = match here {
                "dst" => receiving(&[&text]),
                _ => OpenVif { transmit: Some(vec![text]), ..OpenVif::default() },
            };
            grant(&accounts, 7, &open).is_ok()
        };
        assert!(ask("HERE host fd00::2 and udp HERE port 5000"));
        assert!(ask("HERE host 10.0.0.2 and udp HERE port 5000 and THERE port 1"));
        for wrong in [
            "THERE host fd00::2 and udp HERE port 5000",
            "HERE host fd00::3 and udp HERE port 5000",
            "HERE host fd00:0:0:1::2 and udp HERE port 5000",
            "HERE host fd00::1:2 and udp HERE port 5000",
            "HERE net fd00::2/127 and udp HERE port 5000",
            "HERE host 10.0.0.2 and udp THERE port 5000",
            "HERE host 10.0.0.2 and tcp HERE port 5000",
            "HERE host 10.0.0.2 and HERE port 5000",
            "vlan 7 and HERE host 10.0.0.2 and udp HERE port 5000",
            "vlan optional and HERE host 10.0.0.2 and udp HERE port 5000",
            "HERE host 10.0.0.2 and udp",
            "udp HERE port 5000",
        ] {
            assert!(!ask(wrong), "{here}: {wrong}");
        }
    }
}

fn tcp_port(accounts: &Accounts, user: u32, port: u16, peers: &[&str]) -> Result<Grant, String> {
    let peers = peers.iter().map(|text| text.parse().expect("a prefix")).collect();
    let open = OpenTcpPort { port, peers, ..OpenTcpPort::default() };
    let granted = accounts.grant_tcp_port(&peer(user), &open, &place());
    granted.map_err(|refusal| refusal.message)
}

/// It is granted whole, for whichever peers; and nobody is told of fewer peers where these are not
/// what is missing.
#[test]
fn a_tcp_port_for_some_peers_is_the_whole_port() {
    let accounts = accounts(vec![]);
    let whole = tcp_port(&accounts, 7, 8080, &[]).expect("unprivileged");
    assert_eq!(
        texts(&whole.receive),
        ["10.0.0.2", "fd00::2"]
            .map(|own| canonical(&format!("dst host {own} and tcp dst port 8080")))
    );
    assert_eq!((whole.ports.len(), whole.mac, whole.has_own_mac), (2, NIC, false));
    for peers in [&["10.0.0.0/8"][..], &["10.1.0.0/16", "fd00::/8"], &["0.0.0.0/0"]] {
        assert_eq!(tcp_port(&accounts, 7, 8080, peers), Ok(whole.clone()), "{peers:?}");
    }
    let message = tcp_port(&accounts, 7, 80, &[]).expect_err("privileged");
    assert!(message.contains("user 7 may not receive") && !message.contains("peers"), "{message}");
}

/// The networks of a rule are those that the peers have to be in, at both ends of a connection.
#[test]
fn a_rule_says_where_the_peers_of_a_tcp_port_are() {
    let own = "dst host own and tcp dst portrange 8000-8999";
    let rules = [format!("{own} and src net 10.0.0.0/8"), format!("{own} and src net fd00::/16")];
    let mut rule = rule(7, &rules.each_ref().map(String::as_str));
    let by_rule = accounts(vec![rule.clone()]);
    let granted = |port, peers: &[&str]| tcp_port(&by_rule, 7, port, peers).is_ok();
    assert!(granted(8080, &["10.0.0.0/8"]) && granted(8080, &["10.1.0.0/16", "fd00::9"]));
    assert!(!granted(8080, &["11.0.0.0/8"]) && !granted(8080, &["10.0.0.0/7"]));
    assert!(!granted(8080, &["10.1.0.0/16", "fd01::/16"]), "not all of them");
    assert!(!granted(80, &["10.0.0.0/8"]));
    let message = tcp_port(&by_rule, 7, 8080, &[]).expect_err("from anywhere");
    assert!(message.contains("src net 10.0.0.0/8"), "{message}");
    assert!(message.ends_with("; or name fewer peers (`peers`) of the port"), "{message}");
    assert!(tcp_port(&by_rule, 500, 80, &[]).is_ok(), "the daemon's own user");
    // What may be sent counts as well.
    rule.send = Some(templates(&["src host own and tcp src port 8080 and dst net 10.1.0.0/16"]));
    let by_rule = accounts(vec![rule]);
    assert!(tcp_port(&by_rule, 7, 8080, &["10.1.0.0/16"]).is_ok());
    let message = tcp_port(&by_rule, 7, 8080, &["10.0.0.0/8"]).expect_err("to fewer");
    assert!(message.contains("may not send"), "{message}");
}
