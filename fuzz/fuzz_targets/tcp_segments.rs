//! Segments of a hostile peer against a connection in every state. The input is cut into segments;
//! what it says of their numbers is relative to where both sides are, so that what is behind the
//! first checks is reached.
#![no_main]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;

use clearway_base::{MILLISECOND, SlotId, Time};
use clearway_tcp::{Arrival, Config, Event, Extent, IcmpError, Memory, Settings, Stack};
use clearway_wire::tcp::{Cookie, FastOpen, Flags, Options, Repr, SackBlocks, Timestamps};
use clearway_wire::{Ecn, tcp};
use libfuzzer_sys::fuzz_target;

/// Memory whose every piece has to come back once.
#[derive(Default)]
struct Store {
    pieces: BTreeMap<u32, u32>,
    next: u32,
}

impl Store {
    fn fill(&mut self, length: u32) -> Extent {
        self.next += 1;
        self.pieces.insert(self.next, length);
        Extent { region: self.next, offset: 0, length }
    }

    fn take(&mut self, extent: Extent) {
        assert_eq!(self.pieces.remove(&extent.region), Some(extent.length));
    }
}

impl Memory for Store {
    fn keep(&mut self, _: SlotId, _: u64, part: Range<u32>) -> Option<Extent> {
        assert!(!part.is_empty());
        (self.pieces.len() < 4096).then(|| self.fill(part.end - part.start))
    }

    fn discard(&mut self, _: SlotId, extent: Extent) {
        self.take(extent);
    }
}

struct World {
    stack: Stack,
    store: Store,
    now: Time,
    own: SocketAddr,
    peer: SocketAddr,
    key: Option<SlotId>,
    /// What the last segment said: the numbers that the peer may use.
    next: u32,
    acknowledged: u32,
    clock: u32,
    /// What this side has given out.
    cookie: Option<Cookie>,
}

impl World {
    fn transmit(&mut self) {
        for _ in 0..10_000 {
            let Some(transmit) = self.stack.poll_transmit(self.now, 4000) else {
                return;
            };
            let repr = transmit.repr;
            assert!(repr.length() <= tcp::HEADER_LENGTH_MAX);
            let length = transmit.payload.end - transmit.payload.start;
            if let Some(key) = transmit.connection {
                let extents = self.stack.extents(key, transmit.payload.clone());
                assert_eq!(extents.map(|extent| u64::from(extent.length)).sum::<u64>(), length);
            }
            let is_one = repr.flags.intersects(Flags::SYN | Flags::FIN);
            self.next = repr.sequence.wrapping_add(length as u32 + u32::from(is_one));
            if repr.flags.contains(Flags::ACK) {
                self.acknowledged = repr.acknowledgement;
            }
            let option = repr.options.fast_open();
            self.cookie = option.and_then(|option| option.cookie).or(self.cookie);
            self.clock = repr.options.timestamps.map_or(self.clock, |option| option.value);
        }
        panic!("it never stops sending");
    }

    fn segment(&mut self, repr: Repr, payload_length: u32, ecn: Ecn) {
        let arrival = Arrival { from: self.peer, to: self.own, repr, payload_length, ecn };
        self.stack.handle_segment(self.now, &arrival, &mut self.store);
        self.transmit();
    }

    /// A number near where this side, or the peer, is.
    fn near(&self, base: u32, byte: u8) -> u32 {
        let offset = match byte >> 5 {
            0 => i32::from(byte & 31) - 16,
            1 => i32::from(byte & 31) * 100,
            2 => i32::from(byte & 31) * -100,
            3 => i32::from(byte & 31) * 1000,
            4 => i32::from(byte & 31) * -70_000,
            5 => i32::from(byte & 31) << 26,
            _ => 0,
        };
        base.wrapping_add(offset as u32)
    }

    fn hostile(&mut self, bytes: [u8; 8]) {
        let [flags, sequence, ack, window, length, option, left, right] = bytes;
        let mut options = Options::default();
        if option & 1 != 0 {
            let value = u32::from(right).wrapping_mul(u32::from(left));
            options.timestamps =
                Some(Timestamps { value, echo: self.clock.wrapping_sub(value & 3) });
        }
        if option & 2 != 0 {
            let mut sack = SackBlocks::default();
            for turn in 0..=(option >> 6) {
                let left = self.near(self.next, left.wrapping_add(turn));
                sack.push(left, self.near(left, right));
            }
            options.extra = sack.into();
        }
        if option & 64 != 0 {
            // One that is right, or one that the input has.
            let cookie = match left & 3 {
                0 => None,
                1 => Cookie::new(&[left, right, left, right, 0, 0, 0, 0]),
                _ => self.cookie,
            };
            options.extra = FastOpen { cookie, is_experimental: left & 4 != 0 }.into();
        }
        if option & 4 != 0 {
            options.maximum_segment_size = Some(u16::from(left) * u16::from(right));
            options.window_scale = Some(right % 15);
            options.sack_permitted = option & 8 != 0;
        }
        let repr = Repr {
            source_port: self.peer.port(),
            destination_port: self.own.port(),
            sequence: self.near(self.acknowledged, sequence),
            acknowledgement: self.near(self.next, ack),
            flags: Flags::from_bits(u16::from(flags)),
            window: u16::from(window) << (window & 7),
            urgent: u16::from(left),
            options,
        };
        let ecn = if option & 16 != 0 { Ecn::Marked } else { Ecn::Capable };
        self.segment(repr, u32::from(length) * (1 + u32::from(option >> 5 & 1) * 200), ecn);
    }

    fn app(&mut self, call: u8, argument: u8) {
        let Some(key) = self.key else {
            return;
        };
        match call % 8 {
            0 => {
                let extent = self.store.fill(1 + u32::from(argument) * 64);
                if self.stack.send(key, extent).is_err() {
                    self.store.take(extent);
                }
            }
            1 => {
                while let Some(extent) = self.stack.recv(key) {
                    self.store.take(extent);
                    self.stack.release(key, extent.length.into());
                }
            }
            2 => self.stack.shutdown(key),
            3 if argument < 32 => self.stack.close(self.now, key),
            4 if argument < 8 => self.stack.abort(self.now, key),
            5 => {
                let sequence = self.near(self.next, argument);
                let error = match argument % 3 {
                    0 => IcmpError::TooBig(u32::from(argument) * 8),
                    1 => IcmpError::Refused,
                    _ => IcmpError::Unreachable,
                };
                self.stack.handle_icmp(self.now, error, self.own, self.peer, sequence);
            }
            _ => {
                self.now = self.now + (u64::from(argument) << (argument & 15)) * MILLISECOND;
                self.stack.handle_timeouts(self.now);
            }
        }
        self.transmit();
    }
}

/// A listener, and a connection that is opening, or open, as the first byte says.
fn begin(first: u8) -> World {
    let now = Time::from_ns(1_000_000_000_000);
    let config =
        Config { half_open_max: 4, time_wait_max: 4, connections_max: 8, ..Config::default() };
    let (own, peer) =
        ("10.0.0.1:80".parse().expect("address"), "10.0.0.2:5000".parse().expect("address"));
    let mut world = World {
        stack: Stack::new(config, now, 1, [3; 16]),
        store: Store::default(),
        now,
        own,
        peer,
        key: None,
        next: 0,
        acknowledged: 0xffff_fff0,
        clock: 0,
        cookie: None,
    };
    let bit = |bit: u8| first & 1 << bit != 0;
    let settings = Settings {
        sack: bit(0),
        timestamps: bit(1),
        window_scaling: bit(2),
        ecn: bit(3),
        pacing: bit(4),
        receive_buffer_bytes: if bit(5) { 3000 } else { 1 << 20 },
        fast_open: clearway_tcp::FastOpen {
            connects: bit(0),
            pending_max: u16::from(first >> 4 & 3),
            without_cookies: bit(3) && bit(5),
        },
        receive_buffer_bytes_max: if bit(4) { 0 } else { 4 << 20 },
        ..Settings::default()
    };
    if bit(6) {
        world.key = world.stack.connect(now, own, peer, 1500, settings).ok();
        world.transmit();
    } else {
        world.stack.listen(None, 80, 4, 1500, settings).expect("free");
    }
    if bit(7) {
        let answer = if bit(6) { Flags::SYN | Flags::ACK } else { Flags::SYN };
        let options = Options {
            maximum_segment_size: Some(1000),
            window_scale: bit(2).then_some(3),
            sack_permitted: true,
            timestamps: bit(1).then_some(Timestamps { value: 1, echo: world.clock }),
            ..Options::default()
        };
        let repr = Repr {
            source_port: 5000,
            destination_port: 80,
            sequence: 0xffff_fff0,
            acknowledgement: world.next,
            flags: answer,
            window: 60_000,
            urgent: 0,
            options,
        };
        world.segment(repr, 0, Ecn::NotCapable);
    }
    world
}

fuzz_target!(|input: &[u8]| {
    let Some((first, mut rest)) = input.split_first() else {
        return;
    };
    let mut world = begin(*first);
    while let Some((kind, tail)) = rest.split_first() {
        rest = tail;
        match kind & 3 {
            0 | 1 => {
                let Some((bytes, tail)) = rest.split_first_chunk() else {
                    break;
                };
                rest = tail;
                world.hostile(*bytes);
            }
            2 => world.app(kind >> 2, kind.rotate_left(3)),
            _ => {
                let Some((argument, tail)) = rest.split_first() else {
                    break;
                };
                rest = tail;
                world.app(kind >> 2, *argument);
            }
        }
        while let Some(event) = world.stack.poll_event() {
            if let Event::Acceptable(listener) = event {
                world.key = world.stack.accept(listener).or(world.key);
            }
        }
        if let Some(key) = world.key {
            while let Some(extent) = world.stack.pop_sent(key) {
                world.store.take(extent);
            }
            let info = world.stack.info(key).expect("never forgotten");
            assert!(info.in_flight_bytes <= info.queued_bytes + 1);
        }
    }
    // Whatever has happened, all memory comes back.
    let keys: Vec<SlotId> = world.stack.connections().collect();
    for key in keys {
        world.stack.abort(world.now, key);
        while let Some(extent) = world.stack.pop_sent(key) {
            world.store.take(extent);
        }
        world.stack.forget(world.now, key, &mut world.store);
    }
    assert!(world.store.pieces.is_empty(), "{:?}", world.store.pieces);
});
