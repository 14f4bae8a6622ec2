//! The smallest component: an echo service (RFC 862) of its own UDP port, beside messages and
//! virtual interfaces. It is an example for whoever adds a protocol: what is its it says in the
//! words of filters, what it owns is its own, and what all components share it is lent.

mod world;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clearway_base::{MICROSECOND, SECOND, Time};
use clearway_engine::ip::{self, Interface, Resolution, UdpPath};
use clearway_engine::{
    Allowance, Common, Component, Control, Engine, Event, Outlet, Request, Sending, Via, VifSpec,
};
use clearway_nic::{MacAddress, Queue, Transmit, fabric};
use world::{App, SIZES, address, config_of};

const ECHO_PORT: u16 = 7;
const ASKER_PORT: u16 = 40_000;
/// Answers that wait for room in the queue.
const WAITING_MAX: usize = 64;

/// The component.
#[derive(Debug, Default)]
struct Echo {
    /// What was asked, and the way back that it came.
    waiting: VecDeque<(UdpPath, Vec<u8>)>,
}

impl Component for Echo {
    type Owner = ();

    fn receives(&self) -> &[&'static str] {
        &["udp dst port 7"]
    }

    fn receive(&mut self, common: &mut Common, now: Time, (): (), frames: &[&[u8]], _: Via) {
        for frame in frames {
            match common.interface().datagram(frame, false) {
                Ok(datagram) if self.waiting.len() < WAITING_MAX => {
                    let path = common.interface().udp_path_back(&datagram);
                    self.waiting.push_back((path, datagram.payload.to_vec()));
                }
                Ok(_) => {} // as lost on the wire
                Err(reason) => common.refuse(now, frame, reason),
            }
        }
    }

    fn has_output(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn transmit(&mut self, common: &mut Common, now: Time, outlet: Outlet<'_>) -> Sending {
        let mut sending = Sending::default();
        while sending.taken < outlet.budget
            && let Some((path, payload)) = self.waiting.front()
        {
            let transmit = common.send(now, outlet.queue, |_, frame| emit(path, payload, frame));
            match transmit {
                Transmit::Full => break, // the next turn goes on
                Transmit::Queued => sending.queued += 1,
                Transmit::Nothing => {} // it was for this host
            }
            sending.taken += 1;
            self.waiting.pop_front();
        }
        sending
    }
}

fn emit(path: &UdpPath, payload: &[u8], frame: &mut [u8]) -> usize {
    frame[path.payload_offset()..][..payload.len()].copy_from_slice(payload);
    let length = path.emit_headers(frame, payload.len(), false);
    path.finish(&mut frame[..length]);
    length
}

/// A host with the service, and the other end of its wire.
struct Wired {
    engine: Engine<Echo>,
    control: Control,
    mac: MacAddress,
    wire: fabric::Queue,
    fabric: fabric::Handle,
    now: Time,
}

impl Wired {
    fn new() -> Self {
        let (own, wire, fabric) =
            fabric::pair(fabric::Options::new(1), [fabric::Faults::default(); 2]);
        let (mac, now) = (own.info().mac, Time::from_ns(SECOND));
        let (config, queues) = (config_of(0, mac), vec![Box::new(own) as Box<dyn Queue>]);
        let made = Engine::with_extra(config, queues, Echo::default(), 1, [1; 16], now);
        let (engine, control) = made.expect("descriptors");
        Self { engine, control, mac, wire, fabric, now }
    }

    fn turn(&mut self) {
        self.now = self.now + MICROSECOND;
        self.fabric.set_time(self.now);
        self.engine.turn(self.now);
    }

    fn post(&mut self, request: Request) {
        self.control.post(request).expect("the mailbox is free after a turn");
        self.turn();
        while let Some(event) = self.control.next_event() {
            if let Event::VifOpened { result, .. } = event {
                result.expect("nobody else has its address");
            }
        }
    }

    /// Sends a frame over the wire, and returns what comes back.
    fn exchange(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let sent = self.wire.transmit(&mut |buffer| {
            buffer[..frame.len()].copy_from_slice(frame);
            frame.len()
        });
        assert_eq!(sent, Transmit::Queued);
        self.wire.flush();
        (0..10).for_each(|_| self.turn());
        let mut frames = Vec::new();
        self.wire.receive(100, &mut |burst, _| frames.extend(burst.iter().map(|f| f.to_vec())));
        frames
    }
}

/// The IP layer of another host on the link.
fn stranger(mac: MacAddress) -> (Interface, IpAddr) {
    let own = IpAddr::V4(Ipv4Addr::new(10, 7, 0, 9));
    let config = ip::Config {
        mac,
        addresses: vec![(own, 24)],
        routes: Vec::new(),
        vlan: None,
        mtu: 1500,
        mtu_max: None,
        kernel_shares: false,
        router: None,
        receive_checksum: false,
    };
    (Interface::new(&config), own)
}

fn datagram(path: &UdpPath, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 1518];
    let length = emit(path, payload, &mut frame);
    frame.truncate(length);
    frame
}

#[test]
fn a_component_of_its_own_answers_over_the_wire() {
    let mut world = Wired::new();
    let (mut asker, own) = stranger(world.wire.info().mac);
    let (from, to) = (SocketAddr::new(own, ASKER_PORT), SocketAddr::new(address(0), ECHO_PORT));
    // It finds the host by ARP, which is another component's business.
    assert_eq!(asker.udp_path(world.now, from, to).map(drop), Resolution::Pending);
    let mut question = vec![0; 64];
    let length = asker.poll_transmit(&mut question);
    for answer in world.exchange(&question[..length]) {
        let _ = asker.handle_arp(world.now, &answer); // announcements of the host come, too
    }
    let Resolution::Known(path) = asker.udp_path(world.now, from, to) else {
        panic!("the host has not answered")
    };
    for payload in [&b"hello"[..], b"", &[7; 1400]] {
        let answers = world.exchange(&datagram(&path, payload));
        let [answer] = &answers[..] else { panic!("{} answers", answers.len()) };
        let answer = asker.datagram(answer, false).expect("a datagram");
        assert_eq!((answer.source, answer.destination), (to, from));
        assert_eq!(answer.payload, payload);
    }
    // Nobody has the port beside it: that is refused, and not echoed.
    let other = SocketAddr::new(address(0), ECHO_PORT + 1);
    let Resolution::Known(path) = asker.udp_path(world.now, from, other) else { panic!("known") };
    let answers = world.exchange(&datagram(&path, b"anybody?"));
    let errors = answers.iter().filter_map(|frame| asker.handle_icmp(world.now, frame).ok()?);
    assert_eq!(errors.count(), 1);
}

/// What it sends to a virtual interface of the same host never is on the wire, and no component
/// knows of the other.
#[test]
fn a_component_and_a_virtual_interface_of_one_host_speak_with_each_other() {
    const VIF_MAC: MacAddress = [2, 9, 9, 9, 9, 9];
    let mut world = Wired::new();
    let (mut app, request) = App::attaching(0, 0, 0, SIZES, Allowance::of_connections(1));
    world.post(request);
    let mac = VIF_MAC.map(|octet| format!("{octet:02x}")).join(":");
    let filter = |text: String| vec![text.parse().expect("a filter")];
    let spec = VifSpec {
        receive: filter(format!("ether dst {mac}")),
        transmit: filter(format!("ether src {mac} and src host 10.7.0.9")),
        mac: VIF_MAC,
        ..VifSpec::default()
    };
    world.post(Request::OpenVif { channel: 0, vif: 1, spec: Box::new(spec) });
    // The app has a stack of its own. It knows the host's address from elsewhere.
    let (mut asker, own) = stranger(VIF_MAC);
    let (from, to) = (SocketAddr::new(own, ASKER_PORT), SocketAddr::new(address(0), ECHO_PORT));
    assert_eq!(asker.udp_path(world.now, from, to).map(drop), Resolution::Pending);
    asker.learn(world.now, address(0), world.mac);
    let Resolution::Known(path) = asker.udp_path(world.now, from, to) else { panic!("learnt") };
    (0..10).for_each(|_| world.turn()); // until the host's announcements have passed
    let sent = world.fabric_frames();
    app.send_frames(1, &[&datagram(&path, b"hello")]);
    for _ in 0..10 {
        world.turn();
        app.poll();
    }
    let answers: Vec<Vec<u8>> = app.frames.drain(..).map(|(_, _, frame)| frame).collect();
    let [answer] = &answers[..] else { panic!("{} answers", answers.len()) };
    let answer = asker.datagram(answer, false).expect("a datagram");
    assert_eq!((answer.source, answer.payload), (to, &b"hello"[..]));
    assert_eq!(world.fabric_frames(), sent, "nothing was on the wire");
    assert_eq!(app.reports[&1].sent, 1);
    world.post(Request::RemoveChannel { channel: 0 });
    world.engine.audit().expect("all books agree");
}

impl Wired {
    /// Frames that came to the other end of the wire so far.
    fn fabric_frames(&mut self) -> u64 {
        self.wire.receive(100, &mut |_, _| {});
        self.wire.counters().rx_frames
    }
}
