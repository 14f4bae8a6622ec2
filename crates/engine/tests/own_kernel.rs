//! The kernel that shares the NIC, as a queue that reaches it shows it: what it is given of what
//! virtual interfaces send, and what not.

mod world;

use std::sync::{Arc, Mutex};

use clearway_channel::FrameRefusal;
use clearway_engine::VifSpec;
use clearway_nic::fabric::Faults;
use clearway_nic::{Capabilities, Info, MacAddress, Queue, Sink, Transmit};
use world::{App, SIZES, World, as_inner};

const OWN_MAC: MacAddress = [2, 9, 9, 9, 9, 9];
const OTHER_MAC: MacAddress = [2, 8, 8, 8, 8, 8];
const GROUP: MacAddress = [1, 0, 0x5e, 1, 2, 3];
const OTHER_GROUP: MacAddress = [1, 0, 0x5e, 1, 2, 4];

type Frames = Arc<Mutex<Vec<Vec<u8>>>>;

/// A queue beside a kernel that keeps what it is given.
struct Beside {
    queue: Box<dyn Queue>,
    kernel: Frames,
    reaches_kernel: bool,
}

impl Queue for Beside {
    fn capabilities(&self) -> Capabilities {
        let reaches_kernel = self.reaches_kernel;
        Capabilities { reaches_kernel, ..self.queue.capabilities() }
    }

    fn info(&self) -> Info {
        self.queue.info()
    }

    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.queue.receive(budget, sink)
    }

    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        self.queue.transmit(fill)
    }

    fn send_to_kernel(&mut self, frame: &[u8]) {
        self.kernel.lock().expect("no panic").push(frame.to_vec());
    }

    as_inner!();
}

/// A VIF at `mac` that receives what is to it or to `group`, and may send from there.
fn spec(mac: MacAddress, group: MacAddress) -> VifSpec {
    let text = |mac: MacAddress| mac.map(|octet| format!("{octet:02x}")).join(":");
    let filter = |text: String| text.parse().expect("a filter");
    VifSpec {
        receive: vec![
            filter(format!("ether dst {} and ether proto 0x88b5", text(mac))),
            filter(format!("ether dst {}", text(group))),
        ],
        transmit: vec![filter(format!("ether src {} and ether proto 0x88b5", text(mac)))],
        mac,
        ..VifSpec::default()
    }
}

/// Of the ether type for experiments.
fn frame(to: MacAddress, from: MacAddress) -> Vec<u8> {
    [&to[..], &from, &[0x88, 0xb5], &[7; 46]].concat()
}

/// A host with VIFs at [`OWN_MAC`] and at [`OTHER_MAC`], and what its kernel was given.
fn host(reaches_kernel: bool) -> (World, App, Frames) {
    let kernel = Frames::default();
    let mut world = World::with_queues(1, Faults::default(), |queue| {
        Box::new(Beside { queue, kernel: Arc::clone(&kernel), reaches_kernel })
    });
    let app = world.attach(0, SIZES);
    world.open_vif(&app, 1, spec(OWN_MAC, GROUP)).expect("it is free");
    world.open_vif(&app, 2, spec(OTHER_MAC, OTHER_GROUP)).expect("it is free");
    (world, app, kernel)
}

/// The same with another first VIF.
fn opened_again(host: (World, App, Frames), spec: VifSpec) -> (World, App, Frames) {
    let (mut world, app, kernel) = host;
    world.close_vif(&app, 1);
    world.open_vif(&app, 1, spec).expect("it is free");
    (world, app, kernel)
}

/// Has the first VIF send, and says what the kernel and the other host have of it, and how many
/// frames were refused and why the last.
fn send(host: (World, App, Frames), frames: &[Vec<u8>]) -> ([Vec<Vec<u8>>; 2], (u64, u8)) {
    let (mut world, mut app, kernel) = host;
    let mut peer = world.attach(1, SIZES);
    let all = vec!["ether proto 0x88b5".parse().expect("a filter")];
    world.open_vif(&peer, 1, VifSpec { copies: all, ..VifSpec::default() }).expect("it may watch");
    app.send_frames(1, &frames.iter().map(Vec::as_slice).collect::<Vec<_>>());
    world.turn_until(|_| {
        app.poll();
        app.reports.get(&1).is_some_and(|report| report.bursts == 1)
    });
    for _ in 0..100 {
        world.turn();
    }
    peer.poll();
    let at_peer = peer.frames.drain(..).map(|(_, _, frame)| frame).collect();
    let at_kernel = kernel.lock().expect("no panic").clone();
    let report = app.reports[&1];
    ([at_kernel, at_peer], (report.rejected, report.reason))
}

#[test]
fn what_is_nobody_elses_goes_to_the_kernel_and_groups_to_the_wire_as_well() {
    let host = host(true);
    let nic = host.0.hosts[0].mac;
    let elsewhere = [2, 7, 7, 7, 7, 7];
    let all: Vec<Vec<u8>> = [nic, [0xff; 6], OTHER_GROUP, OTHER_MAC, elsewhere, nic]
        .map(|to| frame(to, OWN_MAC))
        .into();
    let ([kernel, peer], refused) = send(host, &all);
    assert_eq!(kernel, [all[0].clone(), all[1].clone(), all[5].clone()]);
    assert_eq!(peer, [all[1].clone(), all[2].clone(), all[4].clone()]);
    assert_eq!(refused, (0, 0));
}

#[test]
fn what_may_not_be_sent_does_not_go_to_the_kernel() {
    let host = host(true);
    let nic = host.0.hosts[0].mac;
    let mut other_type = frame(nic, OWN_MAC);
    other_type[13] = 0xb6;
    let all = [frame(nic, OTHER_MAC), frame([0xff; 6], nic), other_type];
    let (seen, refused) = send(host, &all);
    assert_eq!(seen, [const { Vec::<Vec<u8>>::new() }; 2]);
    assert_eq!(refused.0, 3);
}

#[test]
fn who_has_the_nics_address_does_not_reach_the_kernel() {
    let host = host(true);
    let nic = host.0.hosts[0].mac;
    let mut to_groups = spec(nic, GROUP);
    to_groups.receive.remove(0);
    let all = [frame(nic, nic), frame([0xff; 6], nic)];
    let ([kernel, peer], refused) = send(opened_again(host, to_groups), &all);
    assert!(kernel.is_empty(), "{kernel:x?}");
    assert_eq!(peer, all[1..]);
    assert_eq!(refused, (1, FrameRefusal::ToKernel.as_u8()));
}

#[test]
fn without_a_way_to_the_kernel_the_app_is_told() {
    let host = host(false);
    let nic = host.0.hosts[0].mac;
    let all = [frame(nic, OWN_MAC), frame([0xff; 6], OWN_MAC)];
    let ([kernel, peer], refused) = send(host, &all);
    assert!(kernel.is_empty(), "{kernel:x?}");
    assert_eq!(peer, all[1..]);
    assert_eq!(refused, (1, FrameRefusal::ToKernel.as_u8()));
}

/// Its address is on this host, and it wants none of it: that is not the kernel's either.
#[test]
fn what_a_virtual_interface_does_not_want_is_refused() {
    let mut unwanted = frame(OTHER_MAC, OWN_MAC);
    unwanted[13] = 0xb6;
    let transmit = vec!["ether src 02:09:09:09:09:09".parse().expect("a filter")];
    let host = opened_again(host(true), VifSpec { transmit, ..spec(OWN_MAC, GROUP) });
    let (seen, refused) = send(host, &[unwanted]);
    assert_eq!(seen, [const { Vec::<Vec<u8>>::new() }; 2]);
    assert_eq!(refused, (1, FrameRefusal::ToKernel.as_u8()));
}
