//! An app that shares and one that asks, for tests of one-sided operations.

use clearway_channel::{
    Command, Completion, Description, Extent, Grant, Grantee, Group, GroupName, Member,
    OperationKind as Kind, OperationStatus as Status, Pointer, Rights, Sizes,
};
use clearway_engine::{Allowance, State};
use clearway_nic::fabric::Faults;

use super::{App, Operated, Place, SIZES, World};

pub const SHARED_BYTES: u32 = 1 << 20;
pub const OWNERS: Sizes = Sizes { shared_bytes: SHARED_BYTES, ..SIZES };
pub const PORT: u16 = 7000;

/// An app that shares, on host 1 or on 0, and one that asks, on host 0.
pub struct Pair {
    pub world: World,
    pub owner: App,
    pub asker: App,
    pub near: u64,
    pub far: u64,
    pub token: u64,
}

/// What an operation takes, besides its region.
#[derive(Clone, Copy, Default)]
pub struct Words {
    pub place: u64,
    pub bytes: u32,
    pub count: u32,
    pub stride: u16,
    pub operand: u64,
    pub second: u64,
}

impl Pair {
    pub fn new(owner_host: usize) -> Self {
        Self::with(owner_host, 1, Faults::default())
    }

    pub fn with(owner_host: usize, seed: u64, faults: Faults) -> Self {
        Self::allowed(owner_host, World::new(seed, faults), Allowance::of_connections(64))
    }

    /// Both apps may do so much.
    pub fn allowed(owner_host: usize, world: World, allowance: Allowance) -> Self {
        Self::of(owner_host, world, allowance, SIZES)
    }

    /// The one that asks has memory of these sizes.
    pub fn of_sizes(owner_host: usize, sizes: Sizes) -> Self {
        let world = World::new(1, Faults::default());
        Self::of(owner_host, world, Allowance::of_connections(64), sizes)
    }

    /// The one that shares has memory of these sizes.
    pub fn of_owner(owner_host: usize, sizes: Sizes, faults: Faults) -> Self {
        let allowance = Allowance::of_connections(64);
        let places = [owner_host.into(), 0.into()];
        Self::sized(World::new(1, faults), places, allowance, [sizes, SIZES])
    }

    fn of(owner_host: usize, world: World, allowance: Allowance, sizes: Sizes) -> Self {
        Self::between(world, [owner_host.into(), 0.into()], allowance, sizes)
    }

    /// The owner and the one that asks are at these engines.
    pub fn between(world: World, places: [Place; 2], allowance: Allowance, sizes: Sizes) -> Self {
        Self::sized(world, places, allowance, [OWNERS, sizes])
    }

    fn sized(
        mut world: World,
        [owner, asker]: [Place; 2],
        allowance: Allowance,
        [owners, askers]: [Sizes; 2],
    ) -> Self {
        let mut owner = world.attach_allowed(owner, 7, owners, allowance);
        let mut asker = world.attach_allowed(asker, 8, askers, allowance);
        world.listen(&owner, PORT).expect("free");
        let (near, far) = world.connect(&mut asker, &mut owner, PORT);
        Self { world, owner, asker, near, far, token: 100 }
    }

    pub fn share(
        &mut self,
        name: &str,
        (start, bytes): (u32, u32),
        grants: &[Grant],
    ) -> (Status, u64) {
        self.share_by(name, grants, |offset, length| Command::Share {
            token: 5,
            offset,
            length,
            start,
            bytes,
        })
    }

    /// Shares a piece of memory of this number, with anybody.
    pub fn share_in(&mut self, memory: u64, (start, bytes): (u64, u64)) -> (Status, u64) {
        self.share_by("", &[to_all(Rights::ALL)], |offset, length| Command::ShareMemory {
            token: 5,
            offset,
            length,
            memory,
            start,
            bytes,
        })
    }

    /// Shares by a command that says where the description is.
    fn share_by(
        &mut self,
        name: &str,
        grants: &[Grant],
        command: impl FnOnce(u32, u32) -> Command,
    ) -> (Status, u64) {
        let description = Description { name: name.into(), grants: grants.to_vec() };
        let extent = self.describe(&description.to_bytes().expect("sound"), command);
        let told = self.owner_is_told();
        self.owner.end.free(extent);
        match told {
            Completion::Shared { status, token: 5, region } => (Status::of(status), region),
            other => panic!("{other:?}"),
        }
    }

    /// Submits a command that says where a description is.
    pub fn describe(&mut self, bytes: &[u8], command: impl FnOnce(u32, u32) -> Command) -> Extent {
        let extent = self.owner.end.allocate(bytes.len() as u32).expect("room");
        self.owner.end.transmit_bytes(&extent).copy_from_slice(bytes);
        let (offset, length) = (extent.offset(), extent.length());
        self.owner.submit(&command(offset, length));
        extent
    }

    /// Says who is in a group, and does not wait for the answer.
    pub fn begin_to_set_group(&mut self, name: &str, members: &[Member], token: u64) {
        let name = GroupName::new(name.as_bytes()).expect("short");
        let group = Group { name, members: members.to_vec() }.to_bytes().expect("sound");
        // A test is over before its pool is.
        let _ = self.describe(&group, |offset, length| Command::SetGroup { token, offset, length });
    }

    pub fn set_group(&mut self, name: &str, members: &[Member]) -> Status {
        self.begin_to_set_group(name, members, 8);
        match self.owner_is_told() {
            Completion::GroupSet { status, token: 8 } => Status::of(status),
            other => panic!("{other:?}"),
        }
    }

    pub fn share_all(&mut self) -> u64 {
        let (status, region) = self.share("all", (0, SHARED_BYTES), &[to_all(Rights::ALL)]);
        assert_eq!(status, Status::Done);
        region
    }

    pub fn unshare(&mut self, region: u64) -> Status {
        self.owner.submit(&Command::Unshare { token: 6, region });
        match self.owner_is_told() {
            Completion::Unshared { status, token: 6 } => Status::of(status),
            other => panic!("{other:?}"),
        }
    }

    pub fn owner_is_told(&mut self) -> Completion {
        self.world.turn_until(|_| {
            self.owner.poll();
            !self.owner.told.is_empty()
        });
        self.owner.told.pop_front().expect("just seen")
    }

    pub fn start(&mut self, kind: Kind, region: u64, words: Words) -> u64 {
        self.token += 1;
        let Words { place, bytes, count, stride, operand, second } = words;
        let (kind, connection, token) = (kind as u8, self.near, self.token);
        self.asker.submit(&Command::Ask {
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
        self.token
    }

    pub fn start_with(&mut self, kind: Kind, region: u64, words: Words, payload: &[u8]) -> u64 {
        self.token += 1;
        let extent = self.asker.end.allocate(payload.len() as u32).expect("room");
        self.asker.end.transmit_bytes(&extent).copy_from_slice(payload);
        let (offset, length) = (extent.offset(), extent.length());
        let Words { place, operand, second, .. } = words;
        let (kind, connection, token) = (kind as u8, self.near, self.token);
        self.asker.submit(&Command::AskWith {
            kind,
            connection,
            token,
            region,
            place,
            offset,
            length,
            operand,
            second,
        });
        // A test is over before its pool is.
        let _ = extent;
        self.token
    }

    pub fn end(&mut self, token: u64) -> Operated {
        self.world.turn_until(|_| {
            self.asker.poll();
            !self.asker.operated.is_empty()
        });
        let operated = self.asker.operated.pop_front().expect("just seen");
        assert_eq!(operated.token, token);
        operated
    }

    pub fn ask(&mut self, kind: Kind, region: u64, words: Words) -> Operated {
        let token = self.start(kind, region, words);
        self.end(token)
    }

    pub fn ask_with(&mut self, kind: Kind, region: u64, words: Words, payload: &[u8]) -> Operated {
        let token = self.start_with(kind, region, words, payload);
        self.end(token)
    }

    pub fn owned(&self, offset: u32, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        assert!(self.owner.end.shared().read(offset.into(), &mut bytes));
        bytes
    }

    pub fn own(&self, offset: u32, bytes: &[u8]) {
        assert!(self.owner.end.shared().write(offset.into(), bytes));
    }
}

pub fn to_group(name: &str, rights: Rights) -> Grant {
    let name = GroupName::new(name.as_bytes()).expect("short");
    Grant { to: Grantee::Group(name), rights }
}

pub fn to_all(rights: Rights) -> Grant {
    Grant { to: Grantee::Anybody, rights }
}

pub fn at(place: u64) -> Words {
    Words { place, ..Words::default() }
}

pub fn some(place: u64, bytes: u32) -> Words {
    Words { place, bytes, ..Words::default() }
}

pub fn pointer(offset: u64, length: u32) -> u64 {
    Pointer { offset, length }.to_word().expect("fits")
}

pub fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at * 7 + at / 256) as u8).collect()
}

/// Saves an engine, as bytes, and makes another that goes on with it.
pub fn restore(world: &mut World, at: impl Into<Place>) {
    let written = |state: State| State::from_bytes(&state.to_bytes()).expect("just written");
    world.restore(at, written).expect("just saved");
}
