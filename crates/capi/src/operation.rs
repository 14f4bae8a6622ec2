//! One-sided operations: reading and changing what others share, without their programs.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null;
use std::sync::OnceLock;

use clearway_client::{
    ConnectionId, Error, Notified, Operated, Operation, OperationStatus, RegionId,
};

use crate::attach::clearway_channel;
use crate::failure::call_int;
use crate::held::{Held, Value, Words, release};
use crate::pointer;

/// What an operation does. Beside each: the fields of struct clearway_operation that it uses, and
/// what its struct clearway_operated has.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum clearway_operation_kind {
    /// Looks a region up by its name (`data`, 1 to 64 bytes): `value` is the region, and
    /// `region_length` its length.
    CLEARWAY_OPERATION_FIND = 1,
    /// Reads `length` bytes at `offset` of `region`, up to 8 MiB less 24 bytes: `data`.
    CLEARWAY_OPERATION_READ = 2,
    /// Writes `data` at `offset` of `region`, up to 8 MiB less 48 bytes.
    CLEARWAY_OPERATION_WRITE = 3,
    /// The same, and tells the region's owner (clearway_next_notified) of it, with `value`.
    CLEARWAY_OPERATION_WRITE_NOTIFY = 4,
    /// Puts `value` into the word at `offset` of `region` if it is `expected`: `value` is what it
    /// was.
    CLEARWAY_OPERATION_COMPARE_SWAP = 5,
    /// Adds `value` to the word at `offset` of `region`, wrapping: `value` is what it was.
    CLEARWAY_OPERATION_FETCH_ADD = 6,
    /// Reads what the entry at `offset` of `region` points to in `target`, at most `length` bytes:
    /// `value` is the entry, and `data`.
    CLEARWAY_OPERATION_INDIRECT_READ = 7,
    /// The same for 1 to 64 entries; `data` are their offsets, each a uint64_t. `value` is how many
    /// were read, and clearway_batch_list gives each. 64 KiB in all.
    CLEARWAY_OPERATION_BATCH_READ = 8,
    /// Looks for the key `value` among `count` entries, `stride` bytes apart, from `offset` of
    /// `region` on, and reads what the first that has it points to in `target`, at most `length`
    /// bytes: `value` is its index, and `data`. Up to 4096 entries and 64 KiB of them.
    CLEARWAY_OPERATION_SCAN_READ = 9,
}

/// What is to be done with memory that the app at the other end of a connection shares. Fields
/// that its kind does not use are 0.
///
/// A word has 8 bytes, lies at a multiple of 8, and is in the byte order of the owner's machine.
/// An entry is a word that CLEARWAY_ENTRY makes; in a scan a key, which is a word, stands before
/// it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct clearway_operation {
    /// One of enum clearway_operation_kind.
    pub kind: u32,
    /// Bytes to be read, at most.
    pub length: u32,
    /// The region: by CLEARWAY_OPERATION_FIND, or told by its owner.
    pub region: u64,
    /// Where in it.
    pub offset: u64,
    /// Bytes that go along. They are copied: they may be changed when the call returns.
    pub data: *const c_void,
    /// How many bytes these are.
    pub data_length: usize,
    /// The region that entries point to. May be `region`.
    pub target: u64,
    /// See enum clearway_operation_kind.
    pub value: u64,
    /// See enum clearway_operation_kind.
    pub expected: u64,
    /// Entries of a scan.
    pub count: u32,
    /// Bytes from one entry of a scan to the next: a multiple of 8, at least 16.
    pub stride: u16,
}

/// An operation of a vector.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct clearway_vector_entry {
    /// The connection that it is asked for on.
    pub connection: u64,
    /// What is to be done.
    pub operation: clearway_operation,
    /// Where its token is stored, when it was begun.
    pub token: u64,
}

/// An operation that is over. Valid until it, or a copy of it, is given to
/// clearway_operated_release, which is needed only if it has read anything.
#[repr(C)]
pub struct clearway_operated {
    /// The operation: from clearway_start_operation.
    pub token: u64,
    /// What came of it: one of enum clearway_status.
    pub status: u32,
    /// See enum clearway_operation_kind.
    pub value: u64,
    /// Of a region that was found: its length in bytes.
    pub region_length: u64,
    /// What was read; read only.
    pub data: *const c_void,
    /// How many bytes these are.
    pub length: usize,
    /// The library's own.
    pub reserved: [u64; 5],
}

/// One of the reads of a batch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct clearway_batch_read {
    /// What was read; read only.
    pub data: *const c_void,
    /// How many bytes these are.
    pub length: usize,
    /// What came of it: one of enum clearway_status.
    pub status: u32,
}

/// What a peer has written into a region of this app.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct clearway_notified {
    /// The connection that it came by.
    pub connection: u64,
    /// The region.
    pub region: u64,
    /// Where in it.
    pub offset: u64,
    /// How many bytes were written.
    pub length: u64,
    /// What the peer says: `value` of its operation.
    pub value: u64,
}

/// Begins an operation on memory that the app at the other end of `connection` shares, and stores
/// its token, which may be NULL. Up to 16384 of a channel go on at once. Waits up to `timeout_ns`
/// while there is no room; after CLEARWAY_WOULD_BLOCK and CLEARWAY_TIMED_OUT, nothing was begun,
/// and CLEARWAY_EVENT_WRITABLE tells when there is room. Operations of a connection are carried
/// out, and are over, in the order in which they were begun. clearway_next_operated or an event
/// tells when one is over. Returns 0 or a negative error code.
///
/// # Safety
/// Pointers are NULL or valid; `operation->data` points to `operation->data_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_start_operation(
    channel: *mut clearway_channel,
    connection: u64,
    operation: *const clearway_operation,
    timeout_ns: i64,
    token: *mut u64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        // SAFETY: the caller's promise.
        let operation = unsafe { operation_of(operation) }?;
        let connection = ConnectionId::from_u64(connection);
        let id = channel.start_timeout(connection, &operation, pointer::timeout(timeout_ns))?;
        // SAFETY: the caller's promise.
        unsafe { pointer::store(token, id.as_u64()) };
        Ok(())
    })
}

/// Begins `count` operations, of any kinds and on any connections, in one go: all of them or none.
/// They are submitted in their order, and the daemon is woken once. Each has an end of its own, as
/// if clearway_start_operation had begun it, and `token` of its entry names it; one that is refused
/// stops none of the others. Waits up to `timeout_ns` while there is no room for all. There may be
/// as many as the submission ring has entries, 16384 at most, and the transmit pool has to hold
/// what they take along. Returns 0 or a negative error code. Then nothing was begun, and `wrong`,
/// which may be NULL, is the index of the first operation that is wrong (one too many, if
/// CLEARWAY_TOO_LARGE says so), or `count` if none is (CLEARWAY_WOULD_BLOCK, say).
///
/// # Safety
/// Pointers are NULL or valid; `entries` points to `count` entries, and the data of each operation
/// is as its fields say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_start_vector(
    channel: *mut clearway_channel,
    entries: *mut clearway_vector_entry,
    count: usize,
    timeout_ns: i64,
    wrong: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    call_int(|| match unsafe { start_vector(channel, entries, count, timeout_ns) } {
        Ok(()) => Ok(()),
        Err(error) => {
            let index = if let Error::Vector { index, .. } = error { index } else { count };
            // SAFETY: the caller's promise.
            unsafe { pointer::store(wrong, index) };
            Err(error)
        }
    })
}

/// Does an operation, and stores what came of it: waits up to `timeout_ns` until there is room for
/// it, and as long for its end. Returns 0 if it was done, or a negative error code; then
/// `operated->status` says more if it is not 0, and it is over. After CLEARWAY_TIMED_OUT or
/// CLEARWAY_WOULD_BLOCK it goes on if `operated->token` is not 0 and `operated->status` is 0;
/// clearway_next_operated will tell of its end.
///
/// # Safety
/// As for clearway_start_operation; `operated` is NULL or valid for writing, and holds nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_operate(
    channel: *mut clearway_channel,
    connection: u64,
    operation: *const clearway_operation,
    timeout_ns: i64,
    operated: *mut clearway_operated,
) -> c_int {
    call_int(|| {
        if operated.is_null() {
            return Err(pointer::invalid("operated is NULL"));
        }
        // SAFETY: not null; valid by the caller's promise.
        unsafe { pointer::store(operated, clearway_operated::empty(0)) };
        // SAFETY: the caller's promise.
        let clearway_channel { channel, held, .. } = unsafe { pointer::attached(channel) }?;
        // SAFETY: the caller's promise.
        let operation = unsafe { operation_of(operation) }?;
        let (connection, timeout) =
            (ConnectionId::from_u64(connection), pointer::timeout(timeout_ns));
        let id = channel.start_timeout(connection, &operation, timeout)?;
        // SAFETY: as above.
        unsafe { pointer::store(operated, clearway_operated::empty(id.as_u64())) };
        let over = channel.wait_operated(id, timeout)?;
        let status = over.status;
        // SAFETY: as above.
        unsafe { pointer::store(operated, clearway_operated::holding(over, held)) };
        match status {
            OperationStatus::Done => Ok(()),
            status => Err(Error::Operation { status }),
        }
    })
}

/// Waits up to `timeout_ns` for the next operation that is over, of those that were begun by
/// clearway_start_operation, and stores it. Release it soon if it has read anything: while the
/// channel's memory is full, nothing more is read. Returns 0, whatever came of the operation, or a
/// negative error code.
///
/// # Safety
/// `channel` is NULL or valid; `operated` is NULL or valid for writing, and holds nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_next_operated(
    channel: *mut clearway_channel,
    timeout_ns: i64,
    operated: *mut clearway_operated,
) -> c_int {
    call_int(|| {
        if operated.is_null() {
            return Err(pointer::invalid("operated is NULL"));
        }
        // SAFETY: the caller's promise.
        let clearway_channel { channel, held, .. } = unsafe { pointer::attached(channel) }?;
        let over = match held.told.operated.pop_front() {
            Some(over) => over,
            None => channel.next_operated(pointer::timeout(timeout_ns))?,
        };
        // SAFETY: not null; valid by the caller's promise.
        unsafe { pointer::store(operated, clearway_operated::holding(over, held)) };
        Ok(())
    })
}

/// Fills `list` with the `count` reads of a batch of as many entries. They are valid until
/// `operated` is released. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid, and `operated` is NULL or was filled by a call of it; `list` is NULL
/// or points to `count` places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_batch_list(
    channel: *mut clearway_channel,
    operated: *const clearway_operated,
    list: *mut clearway_batch_read,
    count: usize,
) -> c_int {
    call_int(|| {
        if list.is_null() {
            return Err(pointer::invalid("list is NULL"));
        }
        // SAFETY: the caller's promise.
        let clearway_channel { held, .. } = unsafe { pointer::attached(channel) }?;
        // SAFETY: the caller's promise.
        let words = unsafe { operated.as_ref() }.map(|operated| operated.reserved);
        let look = |value: &Value| reads_of(value, count);
        let Some(reads) = words.and_then(|words| held.look_at(&words, look).flatten()) else {
            return Err(pointer::invalid("operated has read nothing, or is of another channel"));
        };
        if reads.len() != count {
            return Err(pointer::invalid("the batch has fewer entries than count"));
        }
        for (index, read) in reads.into_iter().enumerate() {
            // SAFETY: below `count`.
            unsafe { list.add(index).write(read) };
        }
        Ok(())
    })
}

/// The reads of a batch, if this is the end of one.
fn reads_of(value: &Value, count: usize) -> Option<Vec<clearway_batch_read>> {
    let Value::Operated(over) = value else { return None };
    let read = |(status, bytes): (OperationStatus, &[u8])| {
        let (data, length) = (bytes.as_ptr().cast(), bytes.len());
        clearway_batch_read { data, length, status: status as u32 }
    };
    Some(over.batch(count).map(read).collect())
}

/// Gives back the memory of what an operation has read. It may have come from another channel, or
/// from one that was detached meanwhile; `channel` may be NULL, but with the right one it is
/// faster. Releasing twice, by a copy or not, or what has read nothing, does nothing.
///
/// # Safety
/// `channel` is NULL or valid; `operated` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_operated_release(
    channel: *mut clearway_channel,
    operated: *mut clearway_operated,
) {
    // SAFETY: the caller's promise.
    unsafe { release(channel, operated, clearway_operated::take) };
}

/// Waits up to `timeout_ns` for the next CLEARWAY_OPERATION_WRITE_NOTIFY of a peer, and stores what
/// it has written and says. The bytes are there. An owner that does not take these is told of no
/// more (CLEARWAY_STATUS_BUSY at the peer). Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid; `notified` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_next_notified(
    channel: *mut clearway_channel,
    timeout_ns: i64,
    notified: *mut clearway_notified,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let clearway_channel { channel, held, .. } = unsafe { pointer::attached(channel) }?;
        let told = match held.told.notified.pop_front() {
            Some(told) => told,
            None => channel.next_notified(pointer::timeout(timeout_ns))?,
        };
        // SAFETY: the caller's promise.
        unsafe { pointer::store(notified, told.into()) };
        Ok(())
    })
}

/// Cause and remedy of an operation's status, in words. Never NULL; valid for ever. For numbers
/// that are no status it says so.
#[unsafe(no_mangle)]
pub extern "C" fn clearway_status_text(status: u32) -> *const c_char {
    static TEXTS: OnceLock<Vec<CString>> = OnceLock::new();
    let texts = TEXTS.get_or_init(|| {
        let texts = OperationStatus::ALL.iter().map(|status| status.text());
        texts.map(|text| CString::new(text).unwrap_or_default()).collect()
    });
    let index = OperationStatus::ALL.iter().position(|known| *known as u32 == status);
    match index.and_then(|index| texts.get(index)) {
        Some(text) => text.as_ptr(),
        None => c"not a status of Clearway; use the header that belongs to the library".as_ptr(),
    }
}

/// # Safety
/// As for `clearway_start_vector`.
unsafe fn start_vector(
    channel: *mut clearway_channel,
    entries: *mut clearway_vector_entry,
    count: usize,
    timeout_ns: i64,
) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    let channel = unsafe { pointer::channel(channel) }?;
    let entries = match (entries.is_null(), count) {
        (_, 0) => &mut [],
        (true, _) => return Err(pointer::invalid("entries is NULL, and count is not 0")),
        // SAFETY: not null; the rest is the caller's promise.
        (false, _) => unsafe { std::slice::from_raw_parts_mut(entries, count) },
    };
    let vector = entries.iter().enumerate().map(|(index, entry)| {
        // SAFETY: valid as a part of `entries`; its fields are the caller's promise.
        let operation = unsafe { operation_of(&raw const entry.operation) };
        let operation = operation.map_err(|cause| Error::Vector { index, cause: Box::new(cause) });
        Ok((ConnectionId::from_u64(entry.connection), operation?))
    });
    let vector = vector.collect::<Result<Vec<_>, Error>>()?;
    let started = channel.start_vector(&vector, pointer::timeout(timeout_ns))?;
    for (entry, id) in entries.iter_mut().zip(started) {
        entry.token = id.as_u64();
    }
    Ok(())
}

/// # Safety
/// `operation` is null, or its fields are as their comments say for as long as `'a`.
unsafe fn operation_of<'a>(operation: *const clearway_operation) -> Result<Operation<'a>, Error> {
    use clearway_operation_kind as Kind;
    // SAFETY: the caller's promise.
    let asked = unsafe { operation.as_ref() };
    let asked = asked.ok_or_else(|| pointer::invalid("operation is NULL"))?;
    let clearway_operation { length, offset, value, expected, count, stride, .. } = *asked;
    let (region, target) = (RegionId::from_u64(asked.region), RegionId::from_u64(asked.target));
    // SAFETY: the caller's promise.
    let bytes = unsafe { pointer::bytes(asked.data.cast(), asked.data_length) }?;
    let kind = Kind::of(asked.kind);
    let kind = kind.ok_or_else(|| {
        pointer::invalid("operation->kind is not of enum clearway_operation_kind")
    })?;
    Ok(match kind {
        Kind::CLEARWAY_OPERATION_FIND => Operation::Find { name: bytes },
        Kind::CLEARWAY_OPERATION_READ => Operation::Read { region, offset, length },
        Kind::CLEARWAY_OPERATION_WRITE => Operation::Write { region, offset, bytes },
        Kind::CLEARWAY_OPERATION_WRITE_NOTIFY => {
            Operation::WriteNotify { region, offset, bytes, value }
        }
        Kind::CLEARWAY_OPERATION_COMPARE_SWAP => {
            Operation::CompareSwap { region, offset, expected, replacement: value }
        }
        Kind::CLEARWAY_OPERATION_FETCH_ADD => Operation::FetchAdd { region, offset, addend: value },
        Kind::CLEARWAY_OPERATION_INDIRECT_READ => {
            Operation::IndirectRead { table: region, offset, target, length }
        }
        Kind::CLEARWAY_OPERATION_BATCH_READ => {
            Operation::BatchRead { table: region, offsets: words_of(bytes)?, target, length }
        }
        Kind::CLEARWAY_OPERATION_SCAN_READ => {
            Operation::ScanRead { table: region, offset, stride, count, key: value, target, length }
        }
    })
}

impl clearway_operation_kind {
    const ALL: [Self; 9] = [
        Self::CLEARWAY_OPERATION_FIND,
        Self::CLEARWAY_OPERATION_READ,
        Self::CLEARWAY_OPERATION_WRITE,
        Self::CLEARWAY_OPERATION_WRITE_NOTIFY,
        Self::CLEARWAY_OPERATION_COMPARE_SWAP,
        Self::CLEARWAY_OPERATION_FETCH_ADD,
        Self::CLEARWAY_OPERATION_INDIRECT_READ,
        Self::CLEARWAY_OPERATION_BATCH_READ,
        Self::CLEARWAY_OPERATION_SCAN_READ,
    ];

    fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// An array of uint64_t.
fn words_of(bytes: &[u8]) -> Result<&[u64], Error> {
    // SAFETY: a `u64` has any bits.
    match unsafe { bytes.align_to::<u64>() } {
        ([], words, []) => Ok(words),
        _ => Err(pointer::invalid("operation->data is not an array of uint64_t")),
    }
}

impl clearway_operated {
    fn holding(over: Operated, held: &mut Held) -> Self {
        let Operated { id, status, value, extra: region_length, .. } = over;
        let told = Self { status: status as u32, value, region_length, ..Self::empty(id.as_u64()) };
        if over.bytes().is_empty() {
            return told;
        }
        let (data, length) = (over.bytes().as_ptr().cast(), over.bytes().len());
        Self { data, length, reserved: held.keep(Value::Operated(over)), ..told }
    }

    /// Nothing but its name.
    fn empty(token: u64) -> Self {
        let (data, reserved) = (null(), [0; 5]);
        let (status, value, region_length, length) = (0, 0, 0, 0);
        Self { token, status, value, region_length, data, length, reserved }
    }

    fn take(&mut self) -> Words {
        (self.data, self.length) = (null(), 0);
        std::mem::take(&mut self.reserved)
    }
}

impl From<Notified> for clearway_notified {
    fn from(told: Notified) -> Self {
        let (connection, region) = (told.connection.as_u64(), told.region.as_u64());
        let Notified { offset, length, value, .. } = told;
        Self { connection, region, offset, length: length.into(), value }
    }
}
