//! What an operation does to shared memory. What a region holds may change at any time and means
//! nothing: each word of it is loaded once, and every offset bounded before it is used.

use clearway_channel::{DaemonEnd, Pointer, Rights, Shared};
use clearway_wire::clearway::MESSAGE_BYTES_MAX;
use clearway_wire::clearway::operation::{
    ANSWER_LENGTH, BATCH_MAX, Kind, NAME_BYTES_MAX, Request, Status,
};

use super::groups::Who;
use super::regions::{Region, Regions, Spot};

/// The most that a batch reads in all.
pub(super) const GATHERED_BYTES_MAX: usize = 64 << 10;
/// The most that an answer reads.
pub(super) const READ_BYTES_MAX: u32 = MESSAGE_BYTES_MAX - ANSWER_LENGTH as u32;
/// The most entries that a scan looks at, and the most bytes.
const SCAN_ENTRIES_MAX: u32 = 4096;
const SCAN_BYTES_MAX: u64 = 64 << 10;
/// The least that an entry of a scan has: key and pointer.
const SCAN_STRIDE_MIN: u16 = 16;
/// The payload of those operations that look at it: a name, or the offsets of a batch.
const PAYLOAD_BYTES_MAX: usize = 8 * BATCH_MAX;

const _: () = assert!(NAME_BYTES_MAX <= PAYLOAD_BYTES_MAX);
// What app libraries refuse, and what the wire format does.
const _: () = assert!(NAME_BYTES_MAX == clearway_channel::REGION_NAME_BYTES_MAX);
const _: () = assert!(BATCH_MAX == clearway_channel::BATCH_MAX);

/// Whose memory, and who asks.
pub(super) struct Place<'a> {
    pub(super) regions: &'a Regions,
    pub(super) end: &'a DaemonEnd,
    /// Who asks.
    pub(super) asker: Who,
    /// The owner has read what it was told.
    pub(super) may_notify: bool,
}

/// What comes along with a request.
pub(super) struct Payload<'a> {
    /// How long it is.
    pub(super) length: u32,
    /// Its bytes, if they are not more than [`PAYLOAD_BYTES_MAX`].
    pub(super) short: &'a [u8],
}

impl<'a> Payload<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        let short = if bytes.len() <= PAYLOAD_BYTES_MAX { bytes } else { &[] };
        Self { length: bytes.len() as u32, short } // of a packet
    }
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) status: Status,
    pub(super) value: u64,
    pub(super) extra: u64,
    pub(super) data: Data,
    /// The owner is to be told.
    pub(super) notifies: bool,
}

/// What is still to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    Nothing,
    /// The answer carries bytes of shared memory: the region's handle, where, and how many.
    Extent(u64, Spot, u32),
    /// The answer carries what was gathered.
    Gathered,
    /// The payload goes to this place of the shared memory, which is one of this region.
    Place(u64, Spot),
}

impl Outcome {
    const fn of(status: Status) -> Self {
        Self { status, value: 0, extra: 0, data: Data::Nothing, notifies: false }
    }

    pub(super) const fn done(value: u64) -> Self {
        Self { value, ..Self::of(Status::Done) }
    }

    /// A write that was carried out in parts is over.
    pub(super) fn written(request: &Request, value: u64) -> Self {
        Self { notifies: request.kind == Kind::WriteNotify as u8, ..Self::done(value) }
    }
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Self {
        Self::of(status)
    }
}

impl Place<'_> {
    /// Carries a request out, but for the copy that it may come to. What a batch reads goes into
    /// `gathered`.
    pub(super) fn execute(
        &self,
        request: &Request,
        payload: &Payload<'_>,
        gathered: &mut Vec<u8>,
    ) -> Outcome {
        let outcome = match Kind::of(request.kind) {
            Some(Kind::Find) => self.find(payload),
            Some(Kind::Read) => self.read(request),
            Some(Kind::Write) => self.write(request, payload),
            Some(Kind::WriteNotify) => self.write_notify(request, payload),
            Some(Kind::CompareSwap) => self.compare_swap(request),
            Some(Kind::FetchAdd) => self.fetch_add(request),
            Some(Kind::IndirectRead) => self.indirect(request, request.offset),
            Some(Kind::BatchRead) => self.batch(request, payload, gathered),
            Some(Kind::ScanRead) => self.scan(request),
            None => Err(Status::Invalid),
        };
        outcome.unwrap_or_else(Outcome::from)
    }

    /// The same with a payload of so many bytes, of which `read` copies those that are looked at.
    /// Not inlined, so that requests that lie in their packet do without its buffer.
    #[inline(never)]
    pub(super) fn execute_reading(
        &self,
        request: &Request,
        length: u32,
        read: impl FnOnce(&mut [u8]),
        gathered: &mut Vec<u8>,
    ) -> Outcome {
        if length == 0 {
            return self.execute(request, &Payload::of(&[]), gathered);
        }
        let mut short = [0; PAYLOAD_BYTES_MAX];
        let short = short.get_mut(..length as usize).unwrap_or(&mut []);
        read(short);
        self.execute(request, &Payload { length, short }, gathered)
    }

    fn region(&self, handle: u64, needed: Rights) -> Result<&Region, Status> {
        self.regions.find(handle, needed, self.asker)
    }

    fn memory(&self, spot: Spot) -> Result<&Shared, Status> {
        self.end.memory(spot.memory).ok_or(Status::OutOfBounds)
    }

    fn load(&self, spot: Spot) -> Result<u64, Status> {
        self.memory(spot)?.load(spot.offset).ok_or(Status::OutOfBounds)
    }

    fn find(&self, payload: &Payload<'_>) -> Result<Outcome, Status> {
        let (handle, region) = self.regions.named(payload.short, self.asker)?;
        Ok(Outcome { extra: region.length, ..Outcome::done(handle) })
    }

    fn read(&self, request: &Request) -> Result<Outcome, Status> {
        let region = self.region(request.region, Rights::READ)?;
        let at = region.place(request.offset, request.length.into())?;
        Ok(Outcome { data: extent(request.region, at, request.length)?, ..Outcome::done(0) })
    }

    /// Where a request writes so many bytes to.
    pub(super) fn destination(&self, request: &Request, length: u32) -> Result<Spot, Status> {
        let region = self.region(request.region, rights_to_write(request))?;
        region.place(request.offset, length.into())
    }

    fn write(&self, request: &Request, payload: &Payload<'_>) -> Result<Outcome, Status> {
        let at = self.destination(request, payload.length)?;
        Ok(Outcome { data: Data::Place(request.region, at), ..Outcome::done(0) })
    }

    fn write_notify(&self, request: &Request, payload: &Payload<'_>) -> Result<Outcome, Status> {
        self.region(request.region, rights_to_write(request))?;
        if !self.may_notify {
            return Err(Status::Busy);
        }
        Ok(Outcome { notifies: true, ..self.write(request, payload)? })
    }

    /// Where a word is that is read and written.
    fn atomic(&self, request: &Request) -> Result<Spot, Status> {
        let region = self.region(request.region, Rights::ATOMIC)?;
        word_of(region, request.offset)
    }

    fn compare_swap(&self, request: &Request) -> Result<Outcome, Status> {
        let at = self.atomic(request)?;
        let shared = self.memory(at)?;
        let found = shared.compare_swap(at.offset, request.operand, request.second);
        found.map(Outcome::done).ok_or(Status::OutOfBounds)
    }

    fn fetch_add(&self, request: &Request) -> Result<Outcome, Status> {
        let at = self.atomic(request)?;
        let found = self.memory(at)?.fetch_add(at.offset, request.operand);
        found.map(Outcome::done).ok_or(Status::OutOfBounds)
    }

    /// Reads what the entry at `offset` of the request's region points to in the second.
    fn indirect(&self, request: &Request, offset: u64) -> Result<Outcome, Status> {
        let table = self.region(request.region, Rights::READ)?;
        let target = self.region(request.second, Rights::READ)?;
        let at = word_of(table, offset)?;
        let entry = self.load(at)?;
        Ok(Outcome { data: follow(entry, target, request)?, ..Outcome::done(entry) })
    }

    /// The same for each offset of the payload: heads with status and length of each, then the
    /// bytes. Both are in network byte order, and the offsets as well.
    fn batch(
        &self,
        request: &Request,
        payload: &Payload<'_>,
        gathered: &mut Vec<u8>,
    ) -> Result<Outcome, Status> {
        let (offsets, rest) = payload.short.as_chunks::<8>();
        if offsets.is_empty() || !rest.is_empty() || payload.length as usize != 8 * offsets.len() {
            return Err(Status::Invalid);
        }
        gathered.clear();
        gathered.resize(8 * offsets.len(), 0);
        let (mut done, mut bytes) = (0, 0);
        for (index, offset) in offsets.iter().enumerate() {
            let outcome = self.indirect(request, u64::from_be_bytes(*offset));
            let outcome = outcome.unwrap_or_else(Outcome::from);
            let (mut status, mut length) = (outcome.status, 0);
            if let Data::Extent(_, at, wanted) = outcome.data {
                if bytes + wanted as usize > GATHERED_BYTES_MAX {
                    status = Status::TooLarge;
                } else {
                    length = wanted;
                    bytes += wanted as usize;
                    let end = gathered.len();
                    gathered.resize(end + wanted as usize, 0);
                    // It was bounded above.
                    let _ =
                        self.memory(at).is_ok_and(|it| it.read(at.offset, &mut gathered[end..]));
                }
            }
            done += u64::from(status == Status::Done);
            let head = &mut gathered[8 * index..][..8];
            head[..4].copy_from_slice(&u32::from(status as u8).to_be_bytes());
            head[4..].copy_from_slice(&length.to_be_bytes());
        }
        Ok(Outcome { data: Data::Gathered, ..Outcome::done(done) })
    }

    fn scan(&self, request: &Request) -> Result<Outcome, Status> {
        let Request { stride, count, .. } = *request;
        if stride < SCAN_STRIDE_MIN || !stride.is_multiple_of(8) {
            return Err(Status::Misaligned);
        }
        let bytes = u64::from(stride) * u64::from(count);
        if count > SCAN_ENTRIES_MAX || bytes > SCAN_BYTES_MAX {
            return Err(Status::TooLarge);
        }
        let table = self.region(request.region, Rights::READ)?;
        let target = self.region(request.second, Rights::READ)?;
        let first = table.place(request.offset, bytes)?;
        if !first.offset.is_multiple_of(8) {
            return Err(Status::Misaligned);
        }
        let stride = u32::from(stride);
        let found = self.memory(first)?.find_entry(first.offset, stride, count, request.operand);
        let index = found.ok_or(Status::NotFound)?;
        let entry = self.load(first.plus(index * stride + 8))?;
        Ok(Outcome { data: follow(entry, target, request)?, ..Outcome::done(index.into()) })
    }
}

/// What the asker of a write may do.
pub(super) fn rights_to_write(request: &Request) -> Rights {
    if request.kind == Kind::WriteNotify as u8 {
        Rights::WRITE | Rights::NOTIFY
    } else {
        Rights::WRITE
    }
}

/// Where in the shared memory the word at `offset` of a region is.
fn word_of(region: &Region, offset: u64) -> Result<Spot, Status> {
    if !offset.is_multiple_of(8) {
        return Err(Status::Misaligned);
    }
    region.place(offset, 8)
}

/// What an entry points to in `target`.
fn follow(entry: u64, target: &Region, request: &Request) -> Result<Data, Status> {
    let Pointer { offset, length } = Pointer::of(entry);
    if length > request.length {
        return Err(Status::TooLarge);
    }
    let at = target.place(offset, length.into())?;
    extent(request.second, at, length)
}

/// What an answer is to carry, if a message has room for it.
fn extent(region: u64, at: Spot, length: u32) -> Result<Data, Status> {
    if length > READ_BYTES_MAX {
        return Err(Status::TooLarge);
    }
    Ok(Data::Extent(region, at, length))
}
