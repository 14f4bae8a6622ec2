//! Facts about kernel interfaces, routes and neighbours, over a veth pair. Needs root; says so and
//! passes otherwise, except for what anybody may ask.

mod veth;

use std::net::IpAddr;

use clearway_nic::Error;
use clearway_nic::interface::{
    Address, Device, Facts, HostWatch, Namespace, Neighbour, Neighbours, Route, TableRoute, Watch,
    Ways,
};
use veth::{INTERFACE, IPV4, IPV6, Veth, ip, until};

#[test]
fn the_loopback_interface_is_known_to_anybody() {
    let facts = Facts::of("lo").expect("there is one in every namespace");
    assert_eq!((facts.name.as_str(), facts.index), ("lo", 1));
    assert!(Facts::names().expect("they can be listed").contains(&"lo".to_owned()));
    let mac = Device::open("lo").expect("it is there").mac().expect_err("it is not Ethernet");
    assert!(matches!(mac, Error::Invalid(_)), "{mac}");
}

#[test]
fn a_missing_interface_is_not_found() {
    for name in ["", "cw-none", "a-name-far-too-long-for-an-interface", "lo\0"] {
        assert!(matches!(Facts::of(name), Err(Error::NotFound(_))), "{name:?}");
    }
}

#[test]
fn facts_are_those_of_iproute2() {
    let Some(veth) = Veth::with_queues(2) else { return };
    ip(&veth.near, &format!("route add default via {} dev {INTERFACE}", IPV4[1]));
    ip(&veth.near, &format!("-6 route add default via {} dev {INTERFACE}", IPV6[1]));
    ip(&veth.near, &format!("link set {INTERFACE} mtu 3000"));
    let facts = || veth.near.within(|| Facts::of(INTERFACE)).unwrap().expect("it is there");
    until("the link is up", || facts().running);
    let facts = facts();
    assert_eq!(facts.driver.as_deref(), Some("veth"));
    assert_eq!((facts.mtu, facts.receive_queues, facts.queue_pairs_max), (3000, 2, 2));
    assert_eq!((facts.operstate.as_str(), facts.xdp_program), ("up", None));
    let gateways: Vec<IpAddr> = facts
        .routes
        .iter()
        .filter(|route| route.prefix_bits == 0)
        .filter_map(|route| route.via)
        .collect();
    assert_eq!(gateways, [IpAddr::from(IPV4[1]), IPV6[1].into()]);
    let expected = [
        Address { address: IPV4[0].into(), prefix_bits: 24 },
        Address { address: IPV6[0].into(), prefix_bits: 64 },
    ];
    for address in expected {
        assert!(facts.addresses.contains(&address), "{:?}", facts.addresses);
    }
    let shown = ip(&veth.near, &format!("link show {INTERFACE}"));
    let mac = facts.mac.expect("it is Ethernet").map(|byte| format!("{byte:02x}")).join(":");
    assert!(shown.contains(&mac), "{shown}");
}

#[test]
fn routes_are_the_kernels() {
    let Some(veth) = Veth::new() else { return };
    let far_away: IpAddr = [192, 0, 2, 1].into();
    let route = |peer| veth.near.within(|| Route::to(peer)).expect("entered");
    assert!(matches!(route(far_away), Err(Error::NotFound(_))));
    ip(&veth.near, &format!("route add default via {} dev {INTERFACE}", IPV4[1]));
    let index = veth.near.within(|| Facts::of(INTERFACE)).unwrap().expect("it is there").index;
    let by = |next_hop: IpAddr, source: IpAddr| Route {
        interface_index: index,
        next_hop,
        source: Some(source),
    };
    assert_eq!(route(far_away).unwrap(), by(IPV4[1].into(), IPV4[0].into()));
    assert_eq!(route(IPV4[1].into()).unwrap(), by(IPV4[1].into(), IPV4[0].into()));
    assert_eq!(route(IPV6[1].into()).unwrap(), by(IPV6[1].into(), IPV6[0].into()));
}

#[test]
fn neighbours_are_resolved_by_the_kernel() {
    let Some(veth) = Veth::new() else { return };
    let facts = |space: &Namespace| space.within(|| Facts::of(INTERFACE)).unwrap().expect("there");
    until("the link is up", || facts(&veth.near).running && facts(&veth.far).running);
    let mut neighbours = veth.near.within(|| Neighbours::open(INTERFACE)).unwrap().expect("opened");
    let mac = facts(&veth.far).mac;
    for address in [IpAddr::from(IPV4[1]), IpAddr::from(IPV6[1])] {
        let found = Neighbour { address, mac, failed: false };
        let mut seen = Vec::from_iter(neighbours.resolve(address).expect("root may ask"));
        until("it is found", || {
            let change = neighbours.next_change().expect("open");
            // The kernel asks from its link-local address, which it may still be checking for
            // duplicates, and gives up after three seconds.
            if change.is_some_and(|change| change.failed) {
                seen.extend(neighbours.resolve(address).expect("root may ask"));
            }
            seen.extend(change);
            seen.contains(&found)
        });
        assert!(neighbours.entries().expect("open").contains(&found));
        assert_eq!(neighbours.resolve(address).expect("root may ask"), Some(found));
    }
    ip(&veth.near, &format!("neigh del {} dev {INTERFACE}", IPV4[1]));
    until("the loss is heard of", || {
        let change = neighbours.next_change().expect("open");
        change.is_some_and(|change| change.address == IPV4[1] && change.mac.is_none())
    });
}

#[test]
fn a_neighbour_that_is_not_there_fails() {
    let Some(veth) = Veth::new() else { return };
    let retransmission = format!("ntable change name arp_cache dev {INTERFACE} retrans 10");
    ip(&veth.near, &retransmission);
    let mut neighbours = veth.near.within(|| Neighbours::open(INTERFACE)).unwrap().expect("opened");
    let nobody: IpAddr = [10, 77, 0, 99].into();
    neighbours.resolve(nobody).expect("root may ask");
    until("the failure is heard of", || {
        let change = neighbours.next_change().expect("open");
        change == Some(Neighbour { address: nobody, mac: None, failed: true })
    });
}

#[test]
fn changes_are_heard_of_and_others_are_not() {
    let Some(veth) = Veth::new() else { return };
    let watch = veth.near.within(|| Watch::open(INTERFACE)).expect("entered");
    let mut watch = watch.expect("the interface is there");
    let mut until_changed = |what: &str| {
        until(what, || watch.has_changed().expect("it can be read"));
        watch.facts().expect("it is there")
    };
    let near = &veth.near;
    let route = |facts: &Facts, to: &str| {
        facts.routes.iter().find(|route| route.to.to_string() == to).copied()
    };
    ip(near, &format!("addr add 10.99.0.7/24 dev {INTERFACE}"));
    let mut facts = until_changed("an address was added");
    let added = Address { address: [10, 99, 0, 7].into(), prefix_bits: 24 };
    while !facts.addresses.contains(&added) {
        facts = until_changed("the address is there");
    }
    let hops = format!("nexthop via {} nexthop via {}", IPV4[1], "10.99.0.9");
    ip(near, &format!("route add 192.0.2.0/24 metric 7 mtu 1300 src {} {hops}", IPV4[0]));
    while route(&facts, "192.0.2.0").is_none() {
        facts = until_changed("a route was added");
    }
    let found: Vec<_> =
        facts.routes.iter().filter(|route| route.to.to_string() == "192.0.2.0").collect();
    let expected = TableRoute {
        to: [192, 0, 2, 0].into(),
        prefix_bits: 24,
        via: Some(IPV4[1].into()),
        metric: 7,
        mtu: Some(1300),
        source: Some(IPV4[0].into()),
    };
    assert_eq!(*found[0], expected);
    assert_eq!((found.len(), found[1].via), (2, Some([10, 99, 0, 9].into())));
    ip(near, &format!("link set {INTERFACE} mtu 1400"));
    while facts.mtu != 1400 {
        facts = until_changed("the MTU is another");
    }
    ip(near, &format!("link set {INTERFACE} down"));
    while facts.running {
        facts = until_changed("the link is down");
    }
    assert_eq!(route(&facts, "192.0.2.0"), None);
    // What happens to another interface is none of ours.
    while watch.has_changed().expect("it can be read") {}
    ip(near, "link set lo down");
    ip(near, "link set lo up");
    assert!(!watch.has_changed().expect("it can be read"));
}

/// All that leads out of a host, whichever interface it is by.
#[test]
fn ways_of_a_host_are_those_of_all_its_interfaces() {
    let Some(veth) = Veth::new() else { return };
    let near = &veth.near;
    let mut watch = near.within(HostWatch::open).expect("entered").expect("opened");
    let routes = |ways: &Ways, to: &str| -> Vec<TableRoute> {
        let to: IpAddr = to.parse().expect("an address");
        ways.routes.iter().filter(|route| route.to == to).copied().collect()
    };
    let ways = watch.ways().expect("they can be read");
    let own = |address: IpAddr, prefix_bits| Address { address, prefix_bits };
    assert_eq!(ways.addresses, [own(IPV4[0].into(), 24), own(IPV6[0].into(), 64)]);
    assert_eq!(ways.mtu, 1500);
    let to_link = routes(&ways, "10.77.0.0");
    assert_eq!((to_link[0].source, to_link[0].mtu), (Some(IPV4[0].into()), Some(1500)));

    let mut until_changed = |what: &str| {
        until(what, || watch.has_changed().expect("it can be read"));
        watch.ways().expect("they can be read")
    };
    // A second interface, an address that is no interface's in particular, and a way that says
    // where it begins.
    ip(near, "link add cw1 mtu 9000 type veth peer name cw2");
    ip(near, "addr add 10.99.0.7/24 dev cw1");
    ip(near, "link set cw1 up");
    ip(near, "link set cw2 up");
    ip(near, "addr add 192.0.2.1/32 dev lo");
    ip(near, "route add default via 10.99.0.1 mtu 4000 src 192.0.2.1");
    let mut ways = until_changed("an interface was added");
    while routes(&ways, "0.0.0.0").is_empty() {
        ways = until_changed("there is a way to everywhere");
    }
    for added in [own([10, 99, 0, 7].into(), 24), own([192, 0, 2, 1].into(), 32)] {
        assert!(ways.addresses.contains(&added), "{:?}", ways.addresses);
    }
    assert_eq!((ways.addresses.len(), ways.mtu), (4, 9000));
    let everywhere = routes(&ways, "0.0.0.0")[0];
    assert_eq!((everywhere.source, everywhere.mtu), (Some([192, 0, 2, 1].into()), Some(4000)));

    ip(near, "link set cw1 down");
    while !routes(&ways, "0.0.0.0").is_empty() {
        ways = until_changed("the way is gone");
    }
    assert_eq!(ways.mtu, 1500);
}
