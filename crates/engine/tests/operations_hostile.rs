//! Peers that do with one-sided operations what no Clearway host would: what they can make the
//! engine keep has bounds, the flow ends where the protocol is broken, and nobody else notices.

mod world;

use clearway_channel::{
    Code, Command, Completion, Description, Grant, Grantee, OperationKind, OperationStatus,
    Pointer, Rights, Sizes,
};
use clearway_engine::ExchangeState;
use clearway_wire::clearway::MESSAGE_BYTES_MAX;
use clearway_wire::clearway::operation::{ANSWER_LENGTH, Answer, Kind, Request, Status};
use world::hostile::HostilePeer;
use world::pair::{OWNERS, PORT, SHARED_BYTES, pattern};
use world::{App, Operated, Place, SIZES, World};

const OWNER: Place = Place { host: 0, engine: 0 };
const GOOD: Place = Place { host: 1, engine: 0 };
const BOTH: &[u8] = &[2, 1];
/// Reasons of ends, as the wire has them.
const RESET: u16 = 1;
const PROTOCOL: u16 = 5;
/// What an engine keeps of answers that have not arrived, and the most that one request adds.
const ANSWERS_MAX: usize = 1024;
const ANSWERS_LIMIT: usize = 2048;
const DATA_KEPT_MAX: usize = 16 << 20;

/// An app that shares all of its memory but the last page, a peer that asks of it as it should, and
/// one that does not.
struct Scene {
    world: World,
    owner: App,
    good: App,
    near: u64,
    region: u64,
    hostile: HostilePeer,
    /// What the owner calls the connection of the hostile one.
    far: u64,
    tokens: u64,
}

impl Scene {
    fn new() -> Self {
        Self::of_versions(BOTH)
    }

    fn of_versions(versions: &[u8]) -> Self {
        Self::of(versions, SHARED_BYTES)
    }

    fn of(versions: &[u8], shared_bytes: u32) -> Self {
        let mut world = World::at_switch(1, &[1, 1]);
        let mut owner = world.attach(OWNER, Sizes { shared_bytes, ..OWNERS });
        let mut good = world.attach(GOOD, SIZES);
        world.listen(&owner, PORT).expect("free");
        let (near, _) = world.connect(&mut good, &mut owner, PORT);
        let hostile = HostilePeer::connect(&mut world, PORT, versions);
        owner.poll();
        let far = owner.accepted.pop_front().expect("connected");
        let mut scene = Self { world, owner, good, near, region: 0, hostile, far, tokens: 0 };
        scene.region = scene.share(0, SHARED_BYTES - 4096);
        scene.fence();
        scene
    }

    fn share(&mut self, start: u32, bytes: u32) -> u64 {
        let grants = vec![Grant { to: Grantee::Anybody, rights: Rights::ALL }];
        let description = Description { name: Vec::new(), grants }.to_bytes().expect("sound");
        let extent = self.owner.end.allocate(description.len() as u32).expect("room");
        self.owner.end.transmit_bytes(&extent).copy_from_slice(&description);
        let (offset, length) = (extent.offset(), extent.length());
        self.owner.submit(&Command::Share { token: 5, offset, length, start, bytes });
        let told = self.owner_is_told();
        self.owner.end.free(extent);
        match told {
            Completion::Shared { status: 0, token: 5, region } => region,
            other => panic!("{other:?}"),
        }
    }

    fn unshare(&mut self, region: u64) {
        self.owner.submit(&Command::Unshare { token: 6, region });
        assert_eq!(self.owner_is_told(), Completion::Unshared { status: 0, token: 6 });
    }

    fn owner_is_told(&mut self) -> Completion {
        self.world.turn_until(|_| {
            self.owner.poll();
            !self.owner.told.is_empty()
        });
        self.owner.told.pop_front().expect("just seen")
    }

    /// What nobody shares has this in it.
    fn fence(&self) {
        assert!(self.owner.end.shared().write((SHARED_BYTES - 4096).into(), &[0xfe; 4096]));
    }

    fn turns(&mut self, count: u32) {
        for _ in 0..count {
            self.world.turn();
            self.hostile.poll(&mut self.world);
        }
    }

    fn ask(&mut self, request: Request, payload: &[u8]) {
        self.hostile.ask(&mut self.world, request, payload);
    }

    fn answered(&mut self, request: Request, payload: &[u8]) -> (Status, Vec<u8>) {
        self.ask(request, payload);
        let (answer, data) = self.hostile.answer(&mut self.world);
        assert_eq!((answer.kind, answer.number + 1), (request.kind, self.hostile.request));
        (answer.status, data)
    }

    /// A request of this kind, for the region.
    fn request(&self, kind: Kind) -> Request {
        Request {
            kind: kind as u8,
            stride: 0,
            number: 0,
            region: self.region,
            offset: 0,
            length: 0,
            count: 0,
            operand: 0,
            second: self.region,
        }
    }

    fn read(&self, offset: u64, length: u32) -> Request {
        Request { offset, length, ..self.request(Kind::Read) }
    }

    /// The owner asks the hostile peer for bytes; the token.
    fn owner_asks(&mut self, bytes: u32) -> u64 {
        self.tokens += 1;
        let (kind, connection, token) = (OperationKind::Read as u8, self.far, self.tokens);
        let (stride, region, place, count, operand, second) = (0, 1, 0, 0, 0, 0);
        self.owner.submit(&Command::Ask {
            kind,
            stride,
            connection,
            token,
            region,
            place,
            bytes,
            count,
            operand,
            second,
        });
        self.turns(20);
        token
    }

    /// The hostile peer answers as the head says.
    fn answers(&mut self, number: u32, kind: Kind, data: &[u8]) {
        self.hostile.send_operation(&mut self.world, &answer_of(number, kind, data));
    }

    /// What the owner was told of what it has asked.
    fn owner_operated(&mut self) -> Vec<Operated> {
        self.owner.poll();
        self.owner.operated.drain(..).collect()
    }

    /// What the owner's engine has of the hostile peer's operations.
    fn exchange(&self) -> Option<ExchangeState> {
        let state = self.world.hosts[0].members[0].engine.save();
        let channel = state.channels.iter().find(|it| it.channel == self.owner.channel)?;
        let slot = channel.slots.get(self.far as u32 as usize)?;
        slot.value.as_ref()?.exchange.clone()
    }

    /// The engine has ended the flow for that reason, and has told its app.
    #[track_caller]
    fn assert_ended(&mut self, reason: u16, code: Code) {
        for _ in 0..2000 {
            if self.hostile.ended.is_some() {
                break;
            }
            self.turns(1);
        }
        assert_eq!(self.hostile.ended, Some(reason));
        self.owner.poll();
        assert_eq!(self.owner.closed, [(self.far, code)]);
        self.assert_others_go_on();
    }

    /// The good peer asks, writes and speaks, at once; and nothing was written where nobody shares.
    #[track_caller]
    fn assert_others_go_on(&mut self) {
        self.tokens += 1;
        let (kind, connection, token) = (OperationKind::Read as u8, self.near, self.tokens);
        let (stride, region, place, count, operand, second) = (0, self.region, 8192, 0, 0, 0);
        assert!(self.owner.end.shared().write(8192, &pattern(4096)));
        self.good.submit(&Command::Ask {
            kind,
            stride,
            connection,
            token,
            region,
            place,
            bytes: 4096,
            count,
            operand,
            second,
        });
        assert!(self.good.send(self.near, b"undisturbed"));
        let began = self.world.now;
        self.world.turn_until(|world| {
            self.hostile.poll(world);
            self.good.poll();
            self.owner.poll();
            !self.good.operated.is_empty() && !self.owner.received.is_empty()
        });
        assert!(self.world.now.since(began) < clearway_base::SECOND, "others wait");
        let operated = self.good.operated.pop_front().expect("just seen");
        assert_eq!((operated.token, operated.status), (token, OperationStatus::Done));
        assert!(operated.read == pattern(4096));
        let message = self.owner.received.pop_front().expect("just seen");
        assert_eq!(self.owner.bytes(&message), b"undisturbed");
        self.owner.release(message);
        let mut fence = [0; 4096];
        assert!(self.owner.end.shared().read((SHARED_BYTES - 4096).into(), &mut fence));
        assert!(fence == [0xfe; 4096]);
        self.world.hosts[0].members[0].engine.audit().expect("all books agree");
    }
}

fn answer_of(number: u32, kind: Kind, data: &[u8]) -> Vec<u8> {
    let (kind, status) = (kind as u8, Status::Done);
    let head = Answer { kind, status, number, value: 0, extra: 0 }.emit();
    [&head, data].concat()
}

/// Of such an answer the frames would make no sense to anybody, nor would the state that is saved.
#[test]
fn nothing_is_read_that_no_message_has_room_for() {
    const BYTES: u32 = 32 << 20;
    let mut scene = Scene::of(BOTH, BYTES);
    let all = scene.share(0, BYTES);
    let most = MESSAGE_BYTES_MAX - ANSWER_LENGTH as u32;
    for length in [most + 1, 1 << 24, BYTES] {
        let request = Request { region: all, ..scene.read(0, length) };
        assert_eq!(scene.answered(request, &[]).0, Status::TooLarge, "{length}");
        let entry = u64::from(length.min((1 << 24) - 1)) << 40;
        assert!(scene.owner.end.shared().write(0, &entry.to_ne_bytes()));
        let request = Request { kind: Kind::IndirectRead as u8, second: all, ..request };
        assert_eq!(scene.answered(request, &[]).0, Status::TooLarge, "{length}");
    }
    scene.ask(Request { region: all, ..scene.read(0, most) }, &[]);
    scene.turns(10);
    assert_eq!(scene.hostile.ended, None);
}

/// They send and send, and take nothing that comes back.
#[test]
fn a_flood_whose_answers_are_never_taken_is_kept_within_bounds() {
    let batch: Vec<u8> = [0; 64].into_iter().flat_map(u64::to_be_bytes).collect();
    for (kind, length) in [(Kind::FetchAdd, 0), (Kind::Read, 4096), (Kind::BatchRead, 1000)] {
        let mut scene = Scene::new();
        scene.hostile.acknowledges = false;
        let entry = Pointer { offset: 4096, length: 1000 }.to_word().expect("fits");
        assert!(scene.owner.end.shared().store(0, entry));
        let payload = if kind == Kind::BatchRead { &batch[..] } else { &[] };
        // Within its credit.
        for round in 0..1200 {
            let request = Request { length, ..scene.request(kind) };
            scene.ask(request, payload);
            if round % 16 == 0 {
                scene.turns(1);
            }
        }
        scene.turns(100);
        let exchange = scene.exchange().expect("it goes on");
        assert!(exchange.sent.len() <= ANSWERS_MAX, "{}", exchange.sent.len());
        let kept: usize = exchange.sent.iter().map(|sent| sent.kept.len()).sum();
        let data = kept - ANSWER_LENGTH * exchange.sent.len();
        assert!(data < DATA_KEPT_MAX / 4, "others want some as well");
        let is_much = exchange.sent.len() == ANSWERS_MAX || data > DATA_KEPT_MAX / 8;
        assert!(is_much, "{} answers of {data} bytes", exchange.sent.len());
        scene.assert_others_go_on();
    }
}

/// Requests that come before their turn are acknowledged, and carried out when it is.
#[test]
fn a_flood_out_of_turn_ends_the_flow_or_is_kept_within_bounds() {
    let mut scene = Scene::new();
    scene.hostile.acknowledges = false;
    let add = Request { operand: 1, ..scene.request(Kind::FetchAdd) };
    let head = |number: u32| Request { number, ..add }.emit();
    for number in 0..1000 {
        scene.hostile.send_operation_as(&mut scene.world, number, &head(number));
        scene.turns(1);
    }
    for number in (1001..2200).rev() {
        scene.hostile.send_operation_as(&mut scene.world, number, &head(number));
        scene.turns(1);
    }
    let before = scene.exchange().expect("it goes on").sent.len();
    assert_eq!(before, 1000);
    scene.hostile.send_operation_as(&mut scene.world, 1000, &head(1000));
    scene.turns(20);
    let answers = scene.exchange().map_or(0, |exchange| exchange.sent.len());
    assert!(answers <= ANSWERS_LIMIT, "{answers}");
    scene.assert_ended(PROTOCOL, Code::ProtocolError);
    assert_eq!(scene.owner.end.shared().load(0), Some(ANSWERS_LIMIT as u64));
}

#[test]
fn an_answer_that_nobody_asked_for_ends_the_flow() {
    let mut scene = Scene::new();
    scene.answers(0, Kind::Read, &[1; 8]);
    scene.assert_ended(PROTOCOL, Code::ProtocolError);
    assert_eq!(scene.owner_operated(), []);
}

/// With another number, of another kind, or longer than what was asked for.
#[test]
fn an_answer_to_something_else_ends_the_flow() {
    for (number, kind, bytes) in
        [(1, Kind::Read, 8), (u32::MAX, Kind::Read, 8), (0, Kind::Find, 8), (0, Kind::Read, 9)]
    {
        let mut scene = Scene::new();
        let token = scene.owner_asks(8);
        scene.answers(number, kind, &vec![1; bytes]);
        scene.assert_ended(PROTOCOL, Code::ProtocolError);
        let [operated] = &scene.owner_operated()[..] else { panic!("one is over") };
        assert_eq!((operated.token, operated.status), (token, OperationStatus::Failed));
    }
}

/// The message of its number is delivered; an answer of its own is none to any request.
#[test]
fn an_answer_counts_once_however_often_it_comes() {
    let mut scene = Scene::new();
    let tokens = [scene.owner_asks(8), scene.owner_asks(8)];
    let answer = answer_of(0, Kind::Read, &[1; 8]);
    for _ in 0..3 {
        scene.hostile.send_operation_as(&mut scene.world, 0, &answer);
        scene.turns(5);
    }
    let [operated] = &scene.owner_operated()[..] else { panic!("one is over") };
    assert_eq!((operated.token, &operated.read[..]), (tokens[0], &[1; 8][..]));
    scene.assert_others_go_on();
    scene.hostile.send_operation_as(&mut scene.world, 1, &answer);
    scene.assert_ended(PROTOCOL, Code::ProtocolError);
    let [operated] = &scene.owner_operated()[..] else { panic!("the other is over") };
    assert_eq!((operated.token, operated.status), (tokens[1], OperationStatus::Failed));
}

/// It is one answer of the length that its parts say, whatever is in them.
#[test]
fn parts_of_an_answer_that_overlap_make_one_answer() {
    let mut scene = Scene::new();
    let token = scene.owner_asks(3000);
    let answer = answer_of(0, Kind::Read, &[1; 3000]);
    let other = answer_of(0, Kind::Read, &[2; 3000]);
    for (from, to, bytes) in
        [(1000, 2000, &answer), (500, 1500, &other), (0, 1200, &answer), (1900, 3024, &other)]
    {
        let (at, part) = (from as u32, &bytes[from..to]);
        scene.hostile.send_part(&mut scene.world, true, 0, 3024, at, part);
        scene.turns(5);
    }
    let [operated] = &scene.owner_operated()[..] else { panic!("one is over") };
    assert_eq!((operated.token, operated.status), (token, OperationStatus::Done));
    assert_eq!(operated.read.len(), 3000);
    assert!(operated.read.iter().all(|byte| [1, 2].contains(byte)));
    scene.assert_others_go_on();
}

/// Parts of one message that are of different lengths, or of an operation and of a message.
#[test]
fn parts_of_an_operation_that_do_not_agree_end_the_flow() {
    for (is_operation, total) in [(true, 3000), (false, 2000)] {
        let mut scene = Scene::new();
        let write = [&scene.request(Kind::Write).emit()[..], &[7; 2000 - 48]].concat();
        scene.hostile.send_part(&mut scene.world, true, 0, 2000, 0, &write[..1000]);
        scene.hostile.send_part(&mut scene.world, is_operation, 0, total, 1000, &write[1000..]);
        scene.assert_ended(PROTOCOL, Code::ProtocolError);
        assert_eq!(scene.owner.end.shared().load(0), Some(0));
    }
}

#[test]
fn a_request_without_its_head_or_with_another_number_ends_the_flow() {
    for (number, length) in [(0, 47), (0, 0), (1, 48), (u32::MAX, 48)] {
        let mut scene = Scene::new();
        let head = Request { number, ..scene.request(Kind::FetchAdd) }.emit();
        scene.hostile.send_operation(&mut scene.world, &head[..length]);
        scene.assert_ended(PROTOCOL, Code::ProtocolError);
        assert_eq!(scene.owner.end.shared().load(0), Some(0));
    }
}

/// Its peer's daemon is of a release without operations, or says so.
#[test]
fn operations_in_a_flow_of_version_1_end_it() {
    for is_whole in [true, false] {
        let mut scene = Scene::of_versions(&[1]);
        let token = scene.owner_asks(8);
        let [operated] = &scene.owner_operated()[..] else { panic!("one is over") };
        let unsupported = (token, OperationStatus::Unsupported);
        assert_eq!((operated.token, operated.status), unsupported);
        let head = scene.request(Kind::FetchAdd).emit();
        match is_whole {
            true => scene.hostile.send_operation(&mut scene.world, &head),
            false => scene.hostile.send_part(&mut scene.world, true, 0, 48, 0, &head[..20]),
        }
        scene.assert_ended(PROTOCOL, Code::ProtocolError);
        assert_eq!(scene.owner.end.shared().load(0), Some(0));
    }
}

#[test]
fn an_operation_that_there_is_not_is_answered_so() {
    let mut scene = Scene::new();
    for kind in [0, 10, 0x7f] {
        let request = Request { kind, ..scene.request(Kind::Read) };
        assert_eq!(scene.answered(request, &[]), (Status::Invalid, vec![]), "{kind}");
    }
    scene.assert_others_go_on();
}

/// Every word of a request may be the largest that there is.
#[test]
fn offsets_and_lengths_that_overflow_are_out_of_bounds() {
    let mut scene = Scene::new();
    let end = u64::from(SHARED_BYTES) - 4096;
    let offsets = [u64::MAX, u64::MAX - 7, 1 << 63, 1 << 40, 1 << 32, (1 << 32) - 8, end];
    for offset in offsets {
        let bytes = |kind, length| Request { offset, length, ..scene.request(kind) };
        let reads = [bytes(Kind::Read, 8), bytes(Kind::Read, u32::MAX)];
        let words =
            [Kind::FetchAdd, Kind::CompareSwap, Kind::IndirectRead].map(|kind| bytes(kind, 8));
        let scan = bytes(Kind::ScanRead, 8);
        let scans = [(16, 1), (65_528, 1), (16, 4096)];
        let scans = scans.map(|(stride, count)| Request { stride, count, ..scan });
        for request in reads.into_iter().chain(words).chain(scans) {
            let (status, data) = scene.answered(request, &[]);
            let is_refused = [Status::OutOfBounds, Status::Misaligned].contains(&status);
            assert!(is_refused && data.is_empty(), "{request:?} {status:?}");
        }
        let write = Request { offset, ..scene.request(Kind::WriteNotify) };
        assert_eq!(scene.answered(write, &[7; 8]).0, Status::OutOfBounds);
        let batch = Request { length: 8, ..scene.request(Kind::BatchRead) };
        let (status, heads) = scene.answered(batch, &offset.to_be_bytes());
        assert_eq!((status, heads.len()), (Status::Done, 8));
        assert_ne!(heads[..4], [0; 4], "of none is anything read");
    }
    let scan = Request { stride: u16::MAX - 7, count: u32::MAX, ..scene.request(Kind::ScanRead) };
    assert_eq!(scene.answered(scan, &[]).0, Status::TooLarge);
    assert_eq!(scene.answered(scene.read(0, end as u32 + 1), &[]).0, Status::OutOfBounds);
    scene.assert_others_go_on();
}

/// It may write, and so makes a table of its own, which points where it may not read.
#[test]
fn a_table_that_a_peer_has_written_leads_nowhere_else() {
    let mut scene = Scene::new();
    let own = scene.share(0, 4096);
    let end = u64::from(SHARED_BYTES);
    for (offset, length) in
        [(4096, 8), (4090, 8), (end - 4096, 4096), ((1 << 40) - 1, (1 << 24) - 1), (1 << 32, 8)]
    {
        let entry = Pointer { offset, length }.to_word().expect("fits");
        let of = |kind| Request { region: own, second: own, ..scene.request(kind) };
        let (write, all) = (of(Kind::Write), 1 << 24);
        let indirect = Request { length: all, offset: 8, ..of(Kind::IndirectRead) };
        let scan = Request { length: all, stride: 16, count: 1, ..of(Kind::ScanRead) };
        let batch = Request { length: all, ..of(Kind::BatchRead) };
        let table = [&0_u64.to_ne_bytes()[..], &entry.to_ne_bytes()].concat();
        assert_eq!(scene.answered(write, &table).0, Status::Done);
        for request in [indirect, scan] {
            assert_eq!(scene.answered(request, &[]), (Status::OutOfBounds, vec![]), "{offset}");
        }
        let (_, heads) = scene.answered(batch, &8_u64.to_be_bytes());
        assert_eq!(heads, [0, 0, 0, Status::OutOfBounds as u8, 0, 0, 0, 0]);
    }
    scene.assert_others_go_on();
}

#[test]
fn a_region_that_is_revoked_is_gone_for_who_goes_on_asking() {
    let mut scene = Scene::new();
    let region = scene.share(0, 65_536);
    let of = |kind: Kind, scene: &Scene| Request { region, length: 8, ..scene.request(kind) };
    assert_eq!(scene.answered(of(Kind::Read, &scene), &[]).0, Status::Done);
    // It has asked, and does not take what comes: what it has is what was there.
    scene.hostile.acknowledges = false;
    (0..100).for_each(|_| scene.ask(of(Kind::Read, &scene), &[]));
    scene.turns(10);
    scene.unshare(region);
    // What takes its place has another handle.
    assert_ne!(scene.share(0, 65_536), region);
    scene.hostile.acknowledges = true;
    scene.turns(3000);
    scene.hostile.heard.clear();
    for kind in [Kind::Read, Kind::Write, Kind::FetchAdd, Kind::CompareSwap, Kind::IndirectRead] {
        assert_eq!(scene.answered(of(kind, &scene), &[]).0, Status::NoRegion);
    }
    let second = Request { region: scene.region, second: region, ..of(Kind::IndirectRead, &scene) };
    assert_eq!(scene.answered(second, &[]).0, Status::NoRegion);
    scene.assert_others_go_on();
}

/// The bytes of a long answer would be read when they are sent again, however late.
#[test]
fn who_takes_no_long_answer_loses_the_connection_when_its_region_is_revoked() {
    let mut scene = Scene::new();
    let region = scene.share(0, 65_536);
    scene.hostile.acknowledges = false;
    let read = Request { region, length: 65_536, ..scene.request(Kind::Read) };
    (0..100).for_each(|_| scene.ask(read, &[]));
    scene.turns(100);
    assert_eq!(scene.exchange().map(|exchange| exchange.sent.len()), Some(100));
    scene.unshare(region);
    scene.assert_ended(RESET, Code::Reset);
}

/// Credit that it does not have.
#[test]
fn requests_beyond_the_limit_end_the_flow() {
    let mut scene = Scene::new();
    for sequence in 0..64 {
        let part = &[7; 1400];
        for at in 0..64 {
            let total = 64 * 1400 + 1;
            scene.hostile.send_part(&mut scene.world, true, sequence, total, at * 1400, part);
            scene.turns(1);
            if scene.hostile.ended.is_some() {
                return scene.assert_ended(PROTOCOL, Code::ProtocolError);
            }
        }
    }
    panic!("nothing ends it");
}
