//! What connections cost that have nothing to do: counted as the process sees it, with all that a
//! stack keeps of them. A file of its own, so that nothing else is in the process.

use std::net::SocketAddr;
use std::ops::Range;

use clearway_base::{SlotId, Time};
use clearway_tcp::{Arrival, Config, Extent, Memory, Settings, Stack};
use clearway_wire::Ecn;
use clearway_wire::tcp::{Flags, Options, Repr, Timestamps};

const CONNECTIONS: u32 = 50_000;

/// Memory of somebody else, which costs nothing here.
struct Elsewhere;

impl Memory for Elsewhere {
    fn keep(&mut self, _: SlotId, _: u64, part: Range<u32>) -> Option<Extent> {
        Some(Extent { region: 1, offset: 0, length: part.end - part.start })
    }

    fn discard(&mut self, _: SlotId, _: Extent) {}
}

/// A host with many peers.
struct Server {
    stack: Stack,
    now: Time,
    own: SocketAddr,
}

impl Server {
    fn receive(&mut self, peer: u32, flags: Flags, numbers: (u32, u32), length: u32) {
        let from = SocketAddr::from(((0x0b00_0000 + peer).to_be_bytes(), 999));
        let is_syn = flags.contains(Flags::SYN);
        let repr = Repr {
            source_port: 999,
            destination_port: 80,
            sequence: numbers.0,
            acknowledgement: numbers.1,
            flags,
            window: 60_000,
            urgent: 0,
            options: Options {
                maximum_segment_size: is_syn.then_some(1460),
                window_scale: is_syn.then_some(7),
                sack_permitted: is_syn,
                timestamps: Some(Timestamps { value: 1, echo: 0 }),
                ..Options::default()
            },
        };
        let (to, ecn) = (self.own, Ecn::NotCapable);
        let arrival = Arrival { from, to, repr, payload_length: length, ecn };
        self.stack.handle_segment(self.now, &arrival, &mut Elsewhere);
    }

    fn transmit(&mut self) -> Option<Repr> {
        let mut last = None;
        while let Some(transmit) = self.stack.poll_transmit(self.now, 1) {
            last = Some(transmit.repr);
        }
        last
    }
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = pages.split_whitespace().nth(1).expect("the second is resident");
    pages.parse::<u64>().expect("a number") * 4096
}

/// Under 2 KB each, after a request and a response have gone over each.
#[test]
fn an_idle_connection_takes_less_than_two_kilobytes() {
    let now = Time::from_ns(1_000_000_000);
    let own = "10.0.0.1:80".parse().expect("address");
    let mut server = Server { stack: Stack::new(Config::default(), now, 1, [1; 16]), now, own };
    let settings = Settings { quick_acks: 0, ..Settings::default() };
    let listener = server.stack.listen(None, 80, 64, 1500, settings).expect("free");
    let before = resident_bytes();
    for peer in 0..CONNECTIONS {
        server.receive(peer, Flags::SYN, (7, 0), 0);
        let isn = server.transmit().expect("a SYN-ACK").sequence;
        server.receive(peer, Flags::ACK, (8, isn.wrapping_add(1)), 200);
        let key = server.stack.accept(listener).expect("open");
        let request = server.stack.recv(key).expect("it came");
        server.stack.release(key, request.length.into());
        let response = Extent { region: 2, offset: 0, length: 1000 };
        server.stack.send(key, response).expect("room");
        server.transmit().expect("the response");
        server.receive(peer, Flags::ACK, (208, isn.wrapping_add(1001)), 0);
        assert_eq!(server.stack.pop_sent(key), Some(response));
        while server.stack.poll_event().is_some() {}
        assert_eq!(server.transmit(), None);
    }
    assert_eq!(server.stack.connections().count(), CONNECTIONS as usize);
    let each = (resident_bytes() - before) / u64::from(CONNECTIONS);
    println!("{each} bytes for each of {CONNECTIONS} idle connections");
    assert!(each < 2048, "{each} bytes");
}
