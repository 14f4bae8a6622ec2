//! Conversations without sockets.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, ftruncate, memfd_create};

use super::*;
use crate::memif::message::Direction;
use crate::memif::work::Patience;
use crate::memif::{Role, Socket};
use crate::strangers::{Account, SpareThreads};

fn config() -> Config {
    Config::new(Socket::Abstract("none".into()), Role::Server, [2, 0, 0, 0, 0, 1])
}

fn init() -> Init {
    Init {
        version: VERSION,
        id: 0,
        mode: MODE_ETHERNET,
        secret: Text::new(""),
        name: Text::new("test"),
    }
}

fn ring(direction: Direction) -> AddRing {
    let offset = if direction == Direction::S2m { 0 } else { 8192 };
    AddRing { direction, index: 0, region: 0, offset, size_log2: 8, private_header_bytes: 0 }
}

const REGION_BYTES: u64 = 1 << 20;

/// A sealed region with the cookies of both rings.
fn memory() -> OwnedFd {
    let fd = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, REGION_BYTES).unwrap();
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
    for offset in [0, 8192] {
        rustix::io::pwrite(&fd, &0x3E3_1F20u32.to_ne_bytes(), offset).unwrap();
    }
    fd
}

fn bell() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK).unwrap()
}

/// What a well-behaved client says.
fn conversation() -> Vec<Parcel> {
    vec![
        (Message::Init(init()), None),
        (Message::AddRegion { index: 0, bytes: REGION_BYTES }, Some(memory())),
        (Message::AddRing(ring(Direction::S2m)), Some(bell())),
        (Message::AddRing(ring(Direction::M2s)), Some(bell())),
        (Message::Connect { interface: Text::new("test0") }, None),
    ]
}

fn account() -> Account {
    Account::new(7, SpareThreads::new("test"))
}

/// The next step that is no work, which is done at once.
fn after_work(handshake: &mut Handshake, config: &Config, step: Step) -> Result<Step, Refusal> {
    let Step::Work(work) = step else { return Ok(step) };
    let patience = Patience::default();
    let done = work.run(config, &account(), &patience.wanted()).map_err(Refusal)?;
    Ok(handshake.done(config, done))
}

/// Says this to a handshake, and has the work done that it asks for.
fn say(handshake: &mut Handshake, config: &Config, parcel: Parcel) -> Result<Step, Refusal> {
    let (message, descriptor) = parcel;
    let file = descriptor.map(|descriptor| File::new(descriptor, account()));
    let step = handshake.handle(config, message, file, false)?;
    after_work(handshake, config, step)
}

/// Says all of it to a server; the last step or the first refusal.
fn talk(parcels: Vec<Parcel>) -> Result<Step, Refusal> {
    let mut server = Handshake::Server(ServerHandshake::default());
    let mut last = Err("nothing said".into());
    for parcel in parcels {
        last = Ok(say(&mut server, &config(), parcel)?);
    }
    last
}

fn refusal(change: impl FnOnce(&mut Vec<Parcel>)) -> String {
    let mut parcels = conversation();
    change(&mut parcels);
    talk(parcels).expect_err("should be refused").0
}

#[test]
fn a_proper_conversation_ends_in_a_link() {
    let Ok(Step::Established(Some(Message::Connected { .. }), established)) = talk(conversation())
    else {
        panic!("not established");
    };
    assert!(established.ends[0].sender.is_some() && established.ends[0].receiver.is_some());
    assert_eq!(established.peer.name, "test0 of test");
}

#[test]
fn our_own_roles_understand_each_other() {
    let config = Config { queue_pairs: 3, ..config() };
    let mut server = Handshake::Server(ServerHandshake::default());
    let mut client = Handshake::Client(ClientHandshake::default());
    let mut to_client = ServerHandshake::hello(&config);
    loop {
        match say(&mut client, &config, (to_client, None)).unwrap() {
            Step::Reply(parcel) => match say(&mut server, &config, parcel).unwrap() {
                Step::Reply((answer, None)) => to_client = answer,
                Step::Established(Some(answer), there) => {
                    assert_eq!(there.ends.len(), 3);
                    to_client = answer;
                }
                other => panic!("{other:?}"),
            },
            Step::Established(None, here) => {
                assert!(here.ends.iter().all(|ends| ends.sender.is_some()));
                let program = concat!("clearway ", env!("CARGO_PKG_VERSION"));
                assert_eq!(here.peer.name, format!("clearway0 of {program}"));
                assert_eq!(here.peer.limit.frame_bytes, config.frame_bytes_max);
                return;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The client's memory is made when the server has taken its `init`, and not for whoever says
/// hello.
#[test]
fn work_is_asked_for_when_it_is_due() {
    let mut client = Handshake::Client(ClientHandshake::default());
    let hello = ServerHandshake::hello(&config());
    let step = client.handle(&config(), hello, None, false);
    assert!(matches!(step, Ok(Step::Reply((Message::Init(_), None)))));
    let step = client.handle(&config(), Message::Ack, None, false);
    assert!(matches!(step, Ok(Step::Work(Work::Offer(_)))));
    let early = client.handle(&config(), Message::Ack, None, false);
    assert_eq!(early.unwrap_err().0, "unexpected message");
}

#[test]
fn every_wrong_order_is_refused() {
    for skipped in 0..4 {
        let result = talk(conversation().into_iter().skip(skipped + 1).collect());
        assert_eq!(result.expect_err("out of order").0, "unexpected message");
    }
    assert_eq!(
        refusal(|parcels| parcels.insert(1, (Message::Init(init()), None))),
        "unexpected message"
    );
    assert_eq!(refusal(|parcels| parcels.push((Message::Ack, None))), "unexpected message");
    assert!(
        refusal(|parcels| {
            let again = Message::Connect { interface: Text::new("again") };
            parcels.push((again, None));
        })
        .contains("unexpected")
    );
    for message in [Message::Ack, ServerHandshake::hello(&config())] {
        assert_eq!(talk(vec![(message, None)]).unwrap_err().0, "unexpected message");
    }
}

#[test]
fn wrong_inits_are_refused() {
    let with = |init: Init| refusal(|parcels| parcels[0].0 = Message::Init(init));
    assert!(with(Init { version: 0x0100, ..init() }).contains("version"));
    assert!(with(Init { id: 1, ..init() }).contains("id 1"));
    assert!(with(Init { mode: 1, ..init() }).contains("Ethernet"));
}

#[test]
fn wrong_regions_are_refused() {
    let with = |index, bytes, descriptor| {
        refusal(|parcels| parcels[1] = (Message::AddRegion { index, bytes }, descriptor))
    };
    assert!(with(1, REGION_BYTES, Some(memory())).contains("region index"));
    assert!(with(0, REGION_BYTES, None).contains("descriptor"));
    assert!(with(0, REGION_BYTES + 1, Some(memory())).contains("in memory of"));
    assert!(with(0, u64::MAX, Some(memory())).contains("choose smaller rings"));
    assert!(with(0, 0, Some(memory())).contains("region of 0 bytes"));
    assert!(with(0, 4096, Some(memory())).contains("ring outside its region"));
    let unsealed = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&unsealed, REGION_BYTES).unwrap();
    assert!(with(0, REGION_BYTES, Some(unsealed)).contains("not sealed"));
    assert!(with(0, REGION_BYTES, Some(bell())).contains("no seals"));
}

#[test]
fn wrong_rings_are_refused() {
    let with = |change: fn(&mut AddRing)| {
        let mut wrong = ring(Direction::S2m);
        change(&mut wrong);
        refusal(|parcels| parcels[2].0 = Message::AddRing(wrong))
    };
    assert!(with(|ring| ring.index = 1).contains("index out of range"));
    assert!(with(|ring| ring.region = 1).contains("outside its region"));
    assert!(with(|ring| ring.offset = 4).contains("not aligned"));
    assert!(with(|ring| ring.offset = u32::MAX - 15).contains("outside its region"));
    assert!(with(|ring| ring.size_log2 = 15).contains("outside its region"));
    assert!(with(|ring| ring.size_log2 = 255).contains("outside its region"));
    assert!(with(|ring| ring.offset = 256).contains("cookie"));
    assert!(with(|ring| ring.private_header_bytes = 1).contains("private headers"));
    assert!(with(|ring| ring.direction = Direction::M2s).contains("same ring twice"));
    assert!(refusal(|parcels| parcels[2].1 = None).contains("without a descriptor"));
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(refusal(|parcels| parcels[2].1 = Some(file.into())).contains("not an eventfd"));
    let many = |parcels: &mut Vec<Parcel>| {
        parcels.insert(4, (Message::AddRing(ring(Direction::S2m)), Some(bell())));
    };
    assert!(refusal(many).contains("too many rings"));
    assert!(refusal(|parcels| drop(parcels.drain(2..4))).contains("no rings"));
}

#[test]
fn regions_are_limited_in_number() {
    let fd = memory();
    let mut parcels = conversation();
    for index in 1..=REGION_INDEX_MAX + 1 {
        let descriptor = fd.as_fd().try_clone_to_owned().unwrap();
        let at = parcels.len() - 1;
        parcels.insert(at, (Message::AddRegion { index, bytes: 4096 }, Some(descriptor)));
    }
    assert!(talk(parcels).unwrap_err().0.contains("region index"));
}

#[test]
fn a_client_refuses_other_versions_and_wrong_order() {
    let hello = |version| {
        let Message::Hello(hello) = ServerHandshake::hello(&config()) else { unreachable!() };
        Message::Hello(Hello { version_min: version, version_max: version, ..hello })
    };
    let hear = |messages: &[Message]| {
        let mut client = Handshake::Client(ClientHandshake::default());
        messages
            .iter()
            .try_for_each(|message| say(&mut client, &config(), (*message, None)).map(drop))
            .map_err(|refusal| refusal.0)
    };
    assert!(hear(&[hello(VERSION)]).is_ok());
    assert!(hear(&[hello(VERSION + 1)]).unwrap_err().contains("version"));
    let connected = Message::Connected { interface: Text::new("x") };
    assert!(hear(&[connected]).unwrap_err().contains("unexpected"));
    assert!(hear(&[hello(VERSION), connected]).unwrap_err().contains("unexpected"));
    assert!(hear(&[hello(VERSION), hello(VERSION)]).unwrap_err().contains("unexpected"));
}

#[test]
fn a_server_with_room_for_anything_gets_what_the_config_says() {
    let Message::Hello(hello) = ServerHandshake::hello(&config()) else { unreachable!() };
    let unlimited = Hello { m2s_ring_max: u16::MAX, s2m_ring_max: u16::MAX, ..hello };
    assert_eq!(Offer::new(&config(), &unlimited, &account()).unwrap().announcements.len(), 3);
    let tiny = Hello { ring_size_log2_max: 0, ..hello };
    assert_eq!(Offer::new(&config(), &tiny, &account()).unwrap().announcements.len(), 3);
}
