//! One-sided operations between apps of two daemons, real processes joined by memif, and of one.

mod support;

use clearway_client::{
    Channel, Code, ConnectionId, Description, Ended, Error, Event, Grant, Grantee, Group,
    GroupName, Member, Operation, OperationStatus, Pointer, RegionId, Rights, Sizes,
};
use rustix::fs::MemfdFlags;
use support::{Network, PATIENCE, SMALL, clearway};

/// Not a test: the process of an app, see `support::app`.
#[test]
fn app_process() {
    support::app::play();
}

const SHARED_BYTES: u32 = 16 << 20;
const OWNERS: Sizes = Sizes { shared_bytes: SHARED_BYTES, ..SMALL };
/// Room for what is read: of answers that come in parts half a pool.
const ASKERS: Sizes = Sizes { receive_pool_bytes: 32 << 20, ..SMALL };

/// An app that shares all of its memory, and one that asks. The owner does nothing from now on.
fn share_and_connect(
    network: &Network,
    is_local: bool,
    rights: Rights,
) -> (Channel, Channel, ConnectionId, RegionId) {
    let (near, far) = (&network.client, &network.server);
    let owners = if is_local { near } else { far };
    let mut owner = owners.try_attach("owner", OWNERS).expect("attached");
    let description =
        Description { name: b"all".to_vec(), grants: vec![Grant { to: Grantee::Anybody, rights }] };
    let region = owner.share(0..SHARED_BYTES.into(), &description, Some(PATIENCE)).expect("shared");
    owner.listen(4000).expect("listening");
    let mut asker = near.try_attach("asker", ASKERS).expect("attached");
    let connection = asker.connect(owners.at(4000), Some(PATIENCE)).expect("connected");
    (owner, asker, connection, region)
}

/// A memfd of the owner's, which held something before, is read and changed from both hosts.
#[test]
fn memory_of_the_owners_own_is_shared_and_taken_back() {
    const BYTES: u64 = 4 << 20;
    let network = Network::start();
    for is_local in [false, true] {
        let (mut owner, mut asker, connection, _) =
            share_and_connect(&network, is_local, Rights::ALL);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = rustix::fs::memfd_create("of-the-app", flags).expect("a memfd");
        rustix::fs::ftruncate(&memfd, BYTES).expect("its size");
        rustix::io::pwrite(&memfd, b"before", 64).expect("written");
        let memory = owner.add_memory(&memfd).expect("added");
        assert!(owner.add_memory(&memfd).is_err(), "it is shared already");
        drop(memfd);
        let grants = vec![Grant { to: Grantee::Anybody, rights: Rights::ALL }];
        let description = Description { name: b"own".to_vec(), grants };
        let piece = 64..BYTES;
        let region = owner.share_in(memory, piece, &description, Some(PATIENCE)).expect("shared");
        let mut operate = |operation: Operation<'_>| {
            asker.operate(connection, &operation, Some(PATIENCE)).expect("done")
        };
        let found = operate(Operation::Find { name: b"own" });
        assert_eq!((found.value, found.extra), (region.as_u64(), BYTES - 64));
        assert_eq!(operate(Operation::Read { region, offset: 0, length: 6 }).bytes(), b"before");
        let bytes: Vec<u8> = (0..900_000).map(|at: u32| (at % 251) as u8).collect();
        operate(Operation::Write { region, offset: 8, bytes: &bytes });
        let shared = owner.memory(memory).expect("added");
        let mut written = vec![0; bytes.len()];
        assert!(shared.read(72, &mut written) && written == bytes);
        let add = operate(Operation::FetchAdd { region, offset: BYTES - 72, addend: 5 });
        assert_eq!((add.value, shared.load(BYTES - 8)), (0, Some(5)));
        let host = if is_local { &network.client } else { &network.server };
        let listed = clearway(&["regions"], host);
        let listed = String::from_utf8(listed.stdout).expect("text");
        let number = format!(" {} ", memory.as_u64());
        let is_it = |line: &str| line.contains(" own ") && line.contains(&number);
        assert!(listed.lines().any(is_it), "{listed}");

        let refused = owner.remove_memory(memory).expect_err("a region is in it");
        assert!(refused.to_string().contains("unshare"), "{refused}");
        owner.unshare(region, Some(PATIENCE)).expect("revoked");
        owner.remove_memory(memory).expect("nobody can reach it any more");
        assert!(owner.memory(memory).is_none() && owner.remove_memory(memory).is_err());
        assert_eq!(shared.load(BYTES - 8), Some(5), "the app keeps it");
        let again = owner.share_in(memory, 0..8, &description, Some(PATIENCE));
        let no_memory = OperationStatus::NoMemory;
        assert!(matches!(again, Err(Error::Operation { status }) if status == no_memory));
    }
}

#[test]
fn memory_is_read_and_changed_while_its_owner_does_nothing() {
    let network = Network::start();
    for is_local in [false, true] {
        let (mut owner, mut asker, connection, region) =
            share_and_connect(&network, is_local, Rights::ALL);
        let mut operate = |operation: Operation<'_>| {
            asker.operate(connection, &operation, Some(PATIENCE)).expect("done")
        };
        let found = operate(Operation::Find { name: b"all" });
        assert_eq!((found.value, found.extra), (region.as_u64(), SHARED_BYTES.into()));

        let shared = owner.shared();
        for length in [8, 64, 4096, 1_000_000, 7 << 20] {
            let bytes: Vec<u8> = (0..length).map(|at: u32| (at % 251) as u8).collect();
            assert!(shared.write(4096, &bytes));
            let read = operate(Operation::Read { region, offset: 4096, length });
            assert!(read.bytes() == bytes, "{length} bytes");
        }
        operate(Operation::Write { region, offset: 64, bytes: b"from afar" });
        let mut written = [0; 9];
        assert!(shared.read(64, &mut written) && &written == b"from afar");

        for before in 0..100 {
            let added = operate(Operation::FetchAdd { region, offset: 8, addend: 1 });
            assert_eq!(added.value, before);
        }
        assert_eq!(shared.load(8), Some(100));
        let swap = Operation::CompareSwap { region, offset: 8, expected: 100, replacement: 7 };
        assert_eq!((operate(swap).value, shared.load(8)), (100, Some(7)));

        for index in 0..3_u64 {
            let pointer = Pointer { offset: 4096 + 8 * index, length: 8 };
            let word = pointer.to_word().expect("fits");
            assert!(shared.store(1024 + 16 * index, 10 + index));
            assert!(shared.store(1032 + 16 * index, word));
        }
        let (table, target) = (region, region);
        let follow = Operation::IndirectRead { table, offset: 1048, target, length: 8 };
        assert_eq!(operate(follow).bytes(), [8, 9, 10, 11, 12, 13, 14, 15]);
        let batch = Operation::BatchRead { table, offsets: &[1032, 1064, 1025], target, length: 8 };
        let batch = operate(batch);
        let read: Vec<_> = batch.batch(3).map(|(status, bytes)| (status, bytes.first())).collect();
        let done = OperationStatus::Done;
        let expected = [(done, Some(&0)), (done, Some(&16)), (OperationStatus::Misaligned, None)];
        assert_eq!(read, expected);
        let (offset, stride, count, key, length) = (1024, 16, 64, 12, 8);
        let scan = Operation::ScanRead { table, offset, stride, count, key, target, length };
        let found = operate(scan);
        assert_eq!((found.value, found.bytes().first()), (2, Some(&16)));

        let (offset, bytes, value) = (0, &[1; 3], 77);
        operate(Operation::WriteNotify { region, offset, bytes, value });
        let notified = owner.next_notified(Some(PATIENCE)).expect("told");
        assert_eq!((notified.region, notified.length, notified.value), (region, 3, 77));
    }
}

#[test]
fn many_are_outstanding_and_told_as_events() {
    let network = Network::start();
    let (owner, mut asker, connection, region) = share_and_connect(&network, false, Rights::ALL);
    let add = Operation::FetchAdd { region, offset: 0, addend: 1 };
    let mut started = std::collections::VecDeque::new();
    let (mut ended, all) = (0, 20_000);
    while ended < all {
        while started.len() < 1000 && ended + (started.len() as u64) < all {
            started.push_back(asker.start(connection, &add).expect("started"));
        }
        let Event::Operated(operated) = asker.next_event(Some(PATIENCE)).expect("an event") else {
            continue;
        };
        assert_eq!((Some(operated.id), operated.value), (started.pop_front(), ended));
        ended += 1;
    }
    assert_eq!((owner.shared().load(0), asker.operations_outstanding()), (Some(all), 0));
}

/// Operations of several kinds, one of which is refused, submitted in one go: again and again, and
/// each with the end that is its own.
#[test]
fn a_vector_is_carried_out_in_its_order() {
    const VECTORS: u64 = 500;
    let network = Network::start();
    for is_local in [false, true] {
        let (owner, mut asker, connection, region) =
            share_and_connect(&network, is_local, Rights::ALL);
        for round in 0..VECTORS {
            let bytes = round.to_ne_bytes();
            let read = |offset| Operation::Read { region, offset, length: 8 };
            let vector = [
                Operation::FetchAdd { region, offset: 0, addend: 1 },
                Operation::Write { region, offset: 64, bytes: &bytes },
                read(64),
                read(u64::from(SHARED_BYTES)),
                Operation::FetchAdd { region, offset: 0, addend: 1 },
                read(0),
            ];
            let vector = vector.map(|operation| (connection, operation));
            let started = asker.start_vector(&vector, Some(PATIENCE)).expect("room");
            let over: Vec<_> = started
                .into_iter()
                .map(|id| {
                    let over = asker.next_operated(Some(PATIENCE)).expect("its end");
                    assert_eq!(over.id, id);
                    over
                })
                .collect();
            let statuses: Vec<_> = over.iter().map(|over| over.status).collect();
            let (done, beyond) = (OperationStatus::Done, OperationStatus::OutOfBounds);
            assert_eq!(statuses, [done, done, done, beyond, done, done]);
            assert_eq!((over[0].value, over[4].value), (2 * round, 2 * round + 1));
            assert_eq!(
                (over[2].bytes(), over[5].bytes()),
                (&bytes[..], &(2 * round + 2).to_ne_bytes()[..])
            );
        }
        assert_eq!(owner.shared().load(0), Some(2 * VECTORS));
    }
}

#[test]
fn what_is_not_granted_or_revoked_is_refused_and_says_why() {
    let network = Network::start();
    for is_local in [false, true] {
        let (mut owner, mut asker, connection, region) =
            share_and_connect(&network, is_local, Rights::READ);
        let mut refused = |operation: Operation<'_>| match asker.operate(
            connection,
            &operation,
            Some(PATIENCE),
        ) {
            Err(Error::Operation { status }) => status,
            other => panic!("{other:?}"),
        };
        let add = Operation::FetchAdd { region, offset: 0, addend: 1 };
        assert_eq!(refused(add), OperationStatus::NotAllowed);
        let offset = u64::from(SHARED_BYTES) - 4;
        let beyond = Operation::Read { region, offset, length: 8 };
        assert_eq!(refused(beyond), OperationStatus::OutOfBounds);
        owner.unshare(region, Some(PATIENCE)).expect("revoked");
        let gone = Operation::Read { region, offset: 0, length: 8 };
        assert_eq!(refused(gone), OperationStatus::NoRegion);
        assert_eq!(refused(Operation::Find { name: b"all" }), OperationStatus::NotFound);
        assert!(owner.unshare(region, Some(PATIENCE)).is_err());
    }
}

/// Who is in a group may read until it is taken from it, also in the middle of that.
#[test]
fn who_is_in_a_group_is_said_while_the_region_is_shared() {
    let network = Network::start();
    let group = |members: &[Member]| {
        let name = GroupName::new(b"readers").expect("short");
        Group { name, members: members.to_vec() }
    };
    let everybody = ["0.0.0.0/0", "::/0"].map(|text| Member::Prefix(text.parse().expect("one")));
    for is_local in [false, true] {
        let (mut owner, mut asker, connection, _) =
            share_and_connect(&network, is_local, Rights::NONE);
        let to = Grantee::Group(group(&[]).name);
        let grants = vec![Grant { to, rights: Rights::READ }];
        let description = Description { name: b"readers' own".to_vec(), grants };
        let all = 0..SHARED_BYTES.into();
        let region = owner.share(all, &description, Some(PATIENCE)).expect("shared");
        let read = Operation::Read { region, offset: 0, length: 8 };
        let long = Operation::Read { region, offset: 0, length: 7 << 20 };
        for _ in 0..2 {
            let refused = asker.operate(connection, &read, Some(PATIENCE)).expect_err("nobody is");
            assert_eq!(refused.code(), Code::Denied);
            owner.set_group(&group(&everybody), Some(PATIENCE)).expect("said");
            asker.operate(connection, &read, Some(PATIENCE)).expect("in it");
            owner.set_group(&group(&[]), Some(PATIENCE)).expect("said");
        }
        // What is given while it is in the group is what was there then.
        owner.set_group(&group(&everybody), Some(PATIENCE)).expect("said");
        let started = asker.start(connection, &long).expect("room");
        owner.set_group(&group(&[]), Some(PATIENCE)).expect("said");
        assert!(owner.shared().write(0, &vec![0xee; SHARED_BYTES as usize]));
        match asker.wait_operated(started, Some(PATIENCE)) {
            Ok(over) => assert!(over.bytes().iter().all(|byte| *byte == 0), "{:?}", over.status),
            Err(error) => panic!("{error}"),
        }
        let many = group(&vec![Member::User(1); 257]);
        let error = owner.set_group(&many, Some(PATIENCE)).expect_err("too many");
        assert_eq!((error.code(), error.ended()), (Code::TooLarge, Ended::Nothing));
    }
}

/// What is shared, with whom, and how often it was used.
#[test]
fn regions_are_listed() {
    let network = Network::start();
    let list = |arguments: &[&str]| {
        let output = clearway(&[&["regions"], arguments].concat(), &network.server);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(list(&[]), "no memory is shared\n");
    let (mut owner, mut asker, connection, region) =
        share_and_connect(&network, false, Rights::READ | Rights::ATOMIC);
    let add = Operation::FetchAdd { region, offset: 0, addend: 1 };
    for _ in 0..3 {
        asker.operate(connection, &add, Some(PATIENCE)).expect("done");
    }
    asker.operate(connection, &Operation::Find { name: b"all" }, Some(PATIENCE)).expect("done");
    let refused = Operation::Write { region, offset: 0, bytes: b"x" };
    asker.operate(connection, &refused, Some(PATIENCE)).expect_err("not granted");
    let text = list(&[]);
    for part in ["owner", "all", "16.8 MB", "anybody: read, atomic"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&list(&["--json"])).expect("JSON");
    assert_eq!(json[0]["region"].as_u64(), Some(region.as_u64()));
    assert_eq!(json[0]["operations_served"], 4);
    let counters = &network.server.status()["engines"][0]["counters"];
    assert_eq!(counters["operations_fetch_add"], 3);
    assert_eq!(counters["operations_refused_not_allowed"], 1);
    let name = GroupName::new(b"peers").expect("short");
    let grants = vec![Grant { to: Grantee::Group(name), rights: Rights::READ }];
    let description = Description { name: b"peers' own".to_vec(), grants };
    let second = owner.share(0..8, &description, Some(PATIENCE)).expect("shared");
    let members = vec![Member::Prefix("10.0.0.0/8".parse().expect("a prefix")), Member::User(7)];
    for told in ["group peers (nobody): read", "group peers (10.0.0.0/8, user 7): read"] {
        let text = list(&[]);
        assert!(text.contains(told), "{told} is missing in\n{text}");
        let group = Group { name, members: members.clone() };
        owner.set_group(&group, Some(PATIENCE)).expect("said");
    }
    owner.unshare(second, Some(PATIENCE)).expect("revoked");
    owner.unshare(region, Some(PATIENCE)).expect("revoked");
    assert_eq!(list(&[]), "no memory is shared\n");
}
