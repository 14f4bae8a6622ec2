//! One-sided operations as an exchange of the workload: what a client asks for are operations on
//! the memory of an app that does nothing ([`Owner`]). An answer is the number of the exchange.

use super::clearway::PATIENCE;
use super::table::{self, RECORD_BYTES, index_of, pointer_at, record_at};
use super::{Calls, Endpoint, there_is};
use clearway_client::{
    Channel, ConnectionId, Description, Grant, Grantee, Operated, Operation, OperationId, Pointer,
    RegionId, Rights,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// The region's name.
const NAME: &[u8] = b"bench";
/// Entries that a batch reads.
pub(crate) const BATCH: usize = 8;

/// Regions, where there are many.
pub(crate) const REGIONS: u64 = 100_000;
/// Those that follow each other in time are so far apart: a prime, so that each has its turn.
const REGIONS_STEP: u64 = 7_919;
/// Handles that are read together.
const HANDLES: u32 = 1000;

/// What an exchange is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Deed {
    /// A read of as many bytes as the load says.
    Read,
    /// A read of a record by a region of its own, one of [`REGIONS`].
    ReadOfMany,
    /// A read of a record by its pointer, in one operation.
    Indirect,
    /// The same in two: the pointer, then the record.
    Dependent,
    /// Indirect reads of several records in one operation.
    Batch,
    /// A look for a key, and a read of the record that it has.
    Scan,
    /// An attempt to count a word up that others count up too.
    Swap,
    /// The same until it was.
    SwapUntilDone,
}

impl Deed {
    /// How many clients there are.
    pub(crate) const fn clients(self) -> usize {
        match self {
            Self::Swap | Self::SwapUntilDone => 8,
            _ => 1,
        }
    }
}

/// The app whose memory it is.
pub(crate) struct Owner {
    channel: Channel,
    calls: Calls,
}

impl Owner {
    /// Shares all memory of a channel; and records, if there are to be many regions.
    pub(crate) fn new(mut channel: Channel, calls: Calls, deed: Deed) -> io::Result<Self> {
        let shared = channel.shared();
        table::fill(&shared)?;
        let grants = vec![Grant { to: Grantee::Anybody, rights: Rights::ALL }];
        let unnamed = Description { name: Vec::new(), grants };
        let description = Description { name: NAME.to_vec(), ..unnamed.clone() };
        let region = channel.share(0..shared.length(), &description, None);
        region.map_err(io::Error::other)?;
        for number in 0..if deed == Deed::ReadOfMany { REGIONS } else { 0 } {
            let at = record_at(index_of(number));
            let region = channel.share(at..at + u64::from(RECORD_BYTES), &unnamed, None);
            let handle = region.map_err(io::Error::other)?.as_u64();
            table::store(&shared, table::handle_at(number), handle)?;
        }
        Ok(Self { channel, calls })
    }
}

impl Endpoint for Owner {
    fn waits(&self) -> bool {
        self.calls == Calls::Waiting
    }

    fn send(&mut self, _message: &[u8]) -> io::Result<bool> {
        unreachable!("an owner does nothing")
    }

    /// Sleeps, or lets the engine in its own thread work, as the channel's options say.
    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        if self.waits() {
            there_is(self.channel.next_event(Some(PATIENCE)))?;
        }
        Ok(None)
    }

    fn reply(&mut self, _length: usize) -> io::Result<bool> {
        unreachable!("an owner gets nothing")
    }
}

/// An app that does operations.
pub(crate) struct Asker {
    channel: Channel,
    connection: ConnectionId,
    region: RegionId,
    /// Those of records, if there are many.
    regions: Vec<RegionId>,
    deed: Deed,
    /// Bytes of a read.
    length: u32,
    calls: Calls,
    burst: usize,
    /// Something has come in this turn.
    has_received: bool,
    asked: VecDeque<Asked>,
    /// The word, as it was seen last.
    word: u64,
    /// The answer last given.
    answer: [u8; 8],
}

/// An operation that is not over.
struct Asked {
    id: OperationId,
    sequence: u64,
    /// It reads the pointer to what is to be read.
    is_first_of_two: bool,
}

impl Asker {
    /// Finds the region at the other end of a connection.
    pub(crate) fn new(
        mut channel: Channel,
        connection: ConnectionId,
        calls: Calls,
        deed: Deed,
        (length, window): (usize, usize),
    ) -> io::Result<Self> {
        let found = channel.operate(connection, &Operation::Find { name: NAME }, None);
        let region = RegionId::from_u64(found.map_err(io::Error::other)?.value);
        let length = u32::try_from(length).map_err(io::Error::other)?;
        let mut asker = Self {
            channel,
            connection,
            region,
            regions: Vec::new(),
            deed,
            length,
            calls,
            burst: window,
            has_received: false,
            asked: VecDeque::with_capacity(window),
            word: 0,
            answer: [0; 8],
        };
        if deed == Deed::ReadOfMany {
            asker.read_handles()?;
        }
        Ok(asker)
    }

    fn read_handles(&mut self) -> io::Result<()> {
        while (self.regions.len() as u64) < REGIONS {
            let offset = table::handle_at(self.regions.len() as u64);
            let (region, length) = (self.region, 8 * HANDLES);
            let read = Operation::Read { region, offset, length };
            let read = self.channel.operate(self.connection, &read, None);
            let read = read.map_err(io::Error::other)?.done().map_err(io::Error::other)?;
            let (handles, _) = read.bytes().as_chunks();
            self.regions
                .extend(handles.iter().map(|it| RegionId::from_u64(u64::from_ne_bytes(*it))));
        }
        Ok(())
    }

    /// Begins an exchange; false if there is no room within `timeout`.
    fn ask(&mut self, sequence: u64, timeout: Duration) -> io::Result<bool> {
        let (table, target, index) = (self.region, self.region, index_of(sequence));
        let region = self.region;
        let mut offsets = [0; BATCH];
        let operation = match self.deed {
            Deed::Read => Operation::Read { region, offset: record_at(index), length: self.length },
            Deed::ReadOfMany => {
                let region = self.regions[number_of(sequence) as usize];
                Operation::Read { region, offset: 0, length: RECORD_BYTES }
            }
            Deed::Dependent => Operation::Read { region, offset: pointer_at(index), length: 8 },
            Deed::Indirect => {
                let offset = pointer_at(index);
                Operation::IndirectRead { table, offset, target, length: RECORD_BYTES }
            }
            Deed::Batch => {
                for (offset, sequence) in offsets.iter_mut().zip(sequence..) {
                    *offset = pointer_at(index_of(sequence));
                }
                Operation::BatchRead { table, offsets: &offsets, target, length: RECORD_BYTES }
            }
            Deed::Scan => Operation::ScanRead {
                table,
                offset: table::ENTRIES_AT,
                stride: table::ENTRY_BYTES,
                count: table::RECORDS as u32,
                key: table::key_of(index),
                target,
                length: RECORD_BYTES,
            },
            Deed::Swap | Deed::SwapUntilDone => {
                let (expected, replacement) = (self.word, self.word.wrapping_add(1));
                Operation::CompareSwap { region, offset: table::WORD_AT, expected, replacement }
            }
        };
        self.start(&operation, sequence, self.deed == Deed::Dependent, timeout)
    }

    fn start(
        &mut self,
        operation: &Operation<'_>,
        sequence: u64,
        is_first_of_two: bool,
        timeout: Duration,
    ) -> io::Result<bool> {
        let started = match timeout {
            Duration::ZERO => self.channel.start_later(self.connection, operation),
            timeout => self.channel.start_timeout(self.connection, operation, Some(timeout)),
        };
        let Some(id) = there_is(started)? else { return Ok(false) };
        self.asked.push_back(Asked { id, sequence, is_first_of_two });
        Ok(true)
    }

    /// The next operation that is over: the oldest.
    fn next(&mut self) -> io::Result<Option<(Asked, Operated)>> {
        let timeout = if self.waits() && !self.has_received { PATIENCE } else { Duration::ZERO };
        let Some(operated) = there_is(self.channel.next_operated(Some(timeout)))? else {
            return Ok(None);
        };
        let operated = operated.done().map_err(io::Error::other)?;
        match self.asked.pop_front() {
            Some(asked) if asked.id == operated.id => Ok(Some((asked, operated))),
            _ => Err(io::Error::other("operations came to their ends in another order")),
        }
    }

    /// Looks at what an operation has brought. False if its exchange goes on.
    fn take(&mut self, asked: &Asked, operated: &Operated) -> io::Result<bool> {
        let index = index_of(asked.sequence);
        match self.deed {
            Deed::Dependent if asked.is_first_of_two => {
                self.follow(asked.sequence, operated.bytes())?;
                return Ok(false);
            }
            Deed::Swap | Deed::SwapUntilDone => return self.take_word(asked, operated.value),
            Deed::Read => table::check(operated.bytes(), self.length as usize, index)?,
            Deed::ReadOfMany => {
                let index = index_of(number_of(asked.sequence));
                table::check(operated.bytes(), RECORD_BYTES as usize, index)?;
            }
            Deed::Indirect | Deed::Dependent | Deed::Scan => {
                table::check(operated.bytes(), RECORD_BYTES as usize, index)?;
            }
            Deed::Batch => {
                for ((_, bytes), sequence) in operated.batch(BATCH).zip(asked.sequence..) {
                    table::check(bytes, RECORD_BYTES as usize, index_of(sequence))?;
                }
            }
        }
        Ok(true)
    }

    /// Reads what a pointer that was read points to.
    fn follow(&mut self, sequence: u64, pointer: &[u8]) -> io::Result<()> {
        let word = pointer.try_into().map(u64::from_ne_bytes).map_err(io::Error::other)?;
        let Pointer { offset, length } = Pointer::of(word);
        let read = Operation::Read { region: self.region, offset, length };
        self.start(&read, sequence, false, PATIENCE).and_then(or_no_room)
    }

    fn take_word(&mut self, asked: &Asked, was: u64) -> io::Result<bool> {
        let is_done = was == self.word;
        self.word = was.wrapping_add(u64::from(is_done));
        if is_done || self.deed == Deed::Swap {
            return Ok(true);
        }
        self.ask(asked.sequence, PATIENCE).and_then(or_no_room).map(|()| false)
    }
}

/// Which of many regions the exchange with this number is about.
const fn number_of(sequence: u64) -> u64 {
    sequence.wrapping_mul(REGIONS_STEP) % REGIONS
}

/// One that ends makes room for one that begins.
fn or_no_room(is_started: bool) -> io::Result<()> {
    is_started.then_some(()).ok_or_else(|| io::Error::other("no room for an operation"))
}

impl Endpoint for Asker {
    fn waits(&self) -> bool {
        self.calls == Calls::Waiting
    }

    fn burst(&self) -> usize {
        self.burst
    }

    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        let sequence = message.first_chunk().copied().map(u64::from_le_bytes);
        self.ask(sequence.ok_or(io::ErrorKind::InvalidInput)?, Duration::ZERO)
    }

    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        while let Some((asked, operated)) = self.next()? {
            if self.take(&asked, &operated)? {
                self.has_received = true;
                self.answer = asked.sequence.to_le_bytes();
                return Ok(Some(&self.answer));
            }
        }
        Ok(None)
    }

    fn reply(&mut self, _length: usize) -> io::Result<bool> {
        unreachable!("who asks gets no messages")
    }

    fn flush(&mut self) -> io::Result<()> {
        self.has_received = false;
        self.channel.flush();
        Ok(())
    }
}
