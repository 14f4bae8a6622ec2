//! What an app shares by one-sided operations: its memory, and who may do what with it.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

use clearway_client::{
    Description, Error, Grant, Grantee, Group, GroupName, Member, MemoryId, Prefix, RegionId,
    Rights,
};

use crate::attach::clearway_channel;
use crate::failure::call_int;
use crate::pointer;

/// What may be done with a region: bits that are added up.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum clearway_right {
    /// Read it, at once or by entries.
    CLEARWAY_RIGHT_READ = 1,
    /// Write it.
    CLEARWAY_RIGHT_WRITE = 2,
    /// Tell its owner of what was written.
    CLEARWAY_RIGHT_NOTIFY = 4,
    /// Compare-and-swap, and fetch-and-add.
    CLEARWAY_RIGHT_ATOMIC = 8,
    /// All of these.
    CLEARWAY_RIGHT_ALL = 15,
}

/// Who gets rights.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum clearway_grantee {
    /// Whoever can connect.
    CLEARWAY_TO_ANYBODY = 0,
    /// Apps of the user `user` on the same host.
    CLEARWAY_TO_USER = 1,
    /// Hosts with an address of `prefix`.
    CLEARWAY_TO_PREFIX = 2,
    /// Whoever is in `group`: see clearway_set_group.
    CLEARWAY_TO_GROUP = 3,
}

/// Who may do what with a region. What any grant that fits allows is allowed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct clearway_grant {
    /// One of enum clearway_grantee.
    pub to: u32,
    /// Of enum clearway_right, added up.
    pub rights: u32,
    /// A user's number, for CLEARWAY_TO_USER.
    pub user: u32,
    /// "10.1.0.0/16", "fd00::/8", "10.1.0.7", for CLEARWAY_TO_PREFIX.
    pub prefix: *const c_char,
    /// A group's name of 1 to 16 bytes, for CLEARWAY_TO_GROUP.
    pub group: *const c_char,
}

/// Who is in a group of peers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct clearway_member {
    /// CLEARWAY_TO_USER or CLEARWAY_TO_PREFIX.
    pub is: u32,
    /// A user's number, for CLEARWAY_TO_USER.
    pub user: u32,
    /// As of a grant, for CLEARWAY_TO_PREFIX.
    pub prefix: *const c_char,
}

/// What is to be shared, with whom. All zeros means nothing with nobody; new fields are added at
/// the end, so set `size` to `sizeof(struct clearway_region_options)`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct clearway_region_options {
    /// `sizeof(struct clearway_region_options)`.
    pub size: usize,
    /// Where it begins in its memory: a multiple of 8.
    pub start: u64,
    /// How many bytes: a multiple of 8.
    pub length: u64,
    /// By which others find it, up to 64 bytes; NULL: they do not.
    pub name: *const c_char,
    /// Who may do what.
    pub grants: *const clearway_grant,
    /// How many grants there are, up to 16.
    pub grant_count: usize,
    /// The memory: by clearway_add_memory, or 0 for the part of the channel's own that
    /// clearway_shared_memory tells of.
    pub memory: u64,
}

/// Stores where the memory is that the channel can share (`shared_bytes` of its options), and how
/// many bytes it has; both places may be NULL. It is all zeros at first, and stays until the
/// channel is detached or attached again. Any thread may use it. Others read and write what is
/// shared at any time: use atomic operations (stdatomic.h) of 8 bytes for words that both sides
/// change. Returns 0 or a negative error code.
///
/// # Safety
/// Pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_shared_memory(
    channel: *mut clearway_channel,
    data: *mut *mut c_void,
    length: *mut usize,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let shared = unsafe { pointer::channel(channel) }?.shared();
        let place = if shared.is_empty() { null_mut() } else { shared.as_ptr().cast() };
        // SAFETY: the caller's promise.
        unsafe { pointer::store(data, place) };
        // SAFETY: the caller's promise.
        unsafe { pointer::store(length, shared.length() as usize) };
        Ok(())
    })
}

/// Adds memory of the app's own, all of a memfd, of which pieces can be shared then, and stores its
/// number (which is never 0), where it is, and how many bytes it has; the last two places may be
/// NULL. What it holds stays. It stays mapped there until it is removed, or the channel is detached
/// or attached again; the descriptor may be closed.
///
/// The memfd is one that takes seals (MFD_ALLOW_SEALING) and has a size in whole pages. From now on
/// its size and its pages are fixed: it is written by mappings that there are already, this one
/// among them, and in no other way. So it is for one channel, once; when that is attached again,
/// clearway_memory_again tells of a copy. Returns 0 or a negative error code: CLEARWAY_INVALID if
/// it is no such memfd, CLEARWAY_LIMIT or CLEARWAY_DENIED if the daemon's policy is against it,
/// CLEARWAY_OUT_OF_MEMORY.
///
/// # Safety
/// Pointers are NULL or valid; `memfd` is an open descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_add_memory(
    channel: *mut clearway_channel,
    memfd: c_int,
    memory: *mut u64,
    data: *mut *mut c_void,
    length: *mut usize,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        if memory.is_null() || memfd < 0 {
            return Err(pointer::invalid("memory is NULL, or memfd is no descriptor"));
        }
        // SAFETY: not negative; that it is open is the caller's promise.
        let added = channel.add_memory(unsafe { BorrowedFd::borrow_raw(memfd) })?;
        let shared = channel.memory(added);
        let place = shared.as_ref().map_or(null_mut(), |shared| shared.as_ptr().cast());
        // SAFETY: not null; valid by the caller's promise.
        unsafe { pointer::store(memory, added.as_u64()) };
        // SAFETY: the caller's promise.
        unsafe { pointer::store(data, place) };
        // SAFETY: the caller's promise.
        unsafe { pointer::store(length, shared.map_or(0, |it| it.length() as usize)) };
        Ok(())
    })
}

/// Tells of memory that the channel had before it was attached again by clearway_reattach, under
/// the number `was`: stores what it is called now, where it is, and how many bytes it has; all
/// three places may be NULL. It is a copy of what was there, in a memfd that the library has made,
/// and nothing of it is shared yet. Returns 0 or a negative error code: CLEARWAY_INVALID if there
/// was no such memory, or why there is no copy.
///
/// # Safety
/// Pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_memory_again(
    channel: *mut clearway_channel,
    was: u64,
    memory: *mut u64,
    data: *mut *mut c_void,
    length: *mut usize,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let clearway_channel { channel, memories, .. } = unsafe { pointer::attached(channel) }?;
        let again = memories.iter().find(|(before, _)| before.as_u64() == was);
        let again = again.ok_or_else(|| pointer::invalid("there was no memory of that number"))?;
        let now = again.1.as_ref().map_err(|error| {
            let (code, message) = (error.code(), error.to_string());
            Error::Declined { code, message }
        })?;
        let shared = channel.memory(*now);
        let place = shared.as_ref().map_or(null_mut(), |shared| shared.as_ptr().cast());
        // SAFETY: the caller's promise.
        unsafe { pointer::store(memory, now.as_u64()) };
        // SAFETY: the caller's promise.
        unsafe { pointer::store(data, place) };
        // SAFETY: the caller's promise.
        unsafe { pointer::store(length, shared.map_or(0, |it| it.length() as usize)) };
        Ok(())
    })
}

/// Takes memory of the app's own back, and unmaps it where clearway_add_memory has told. Its
/// regions are unshared before. Returns 0 or a negative error code: CLEARWAY_INVALID if a region is
/// still shared in it, or a buffer posted (clearway_unpost), or there is no such memory.
///
/// # Safety
/// `channel` is NULL or valid; nobody uses the memory where it was mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_remove_memory(
    channel: *mut clearway_channel,
    memory: u64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.remove_memory(MemoryId::from_u64(memory))
    })
}

/// Shares a piece of the channel's memory with those whom `options` names, by the connections of
/// this channel, and stores the region, which is never 0 and may be sent to others as a number.
/// Waits up to `timeout_ns` for the daemon; if that is 0, nothing is shared (CLEARWAY_WOULD_BLOCK).
/// What the daemon shares after CLEARWAY_TIMED_OUT, a later call of the channel takes back. Returns
/// 0 or a negative error code: CLEARWAY_ADDRESS_IN_USE if the channel shares a region of that name
/// already, or CLEARWAY_LIMIT if it shares as many as it may.
///
/// # Safety
/// Pointers are NULL or valid, strings as the fields' comments say; `options->grants` points to
/// `options->grant_count` grants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_share(
    channel: *mut clearway_channel,
    options: *const clearway_region_options,
    timeout_ns: i64,
    region: *mut u64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        // SAFETY: the caller's promise.
        let options = unsafe { options.as_ref() };
        let options = options.ok_or_else(|| pointer::invalid("options is NULL"))?;
        if options.size != size_of::<clearway_region_options>() {
            let text = "options->size is not sizeof(struct clearway_region_options)";
            return Err(pointer::invalid(text));
        }
        let end = options.start.checked_add(options.length);
        let piece = options.start..end.ok_or_else(|| pointer::invalid("the region is too long"))?;
        // SAFETY: the caller's promise about the fields.
        let description = unsafe { describe(options) }?;
        let memory = MemoryId::from_u64(options.memory);
        let timeout = pointer::timeout(timeout_ns);
        let shared = channel.share_in(memory, piece, &description, timeout)?;
        // SAFETY: the caller's promise.
        unsafe { pointer::store(region, shared.as_u64()) };
        Ok(())
    })
}

/// Says who is in a group of peers, to which regions of this channel may be granted: these up to
/// 256, and nobody else. Waits up to `timeout_ns` for the daemon; if that is 0, nothing is said
/// (CLEARWAY_WOULD_BLOCK). When this has returned 0, whoever was in the group and is no longer can
/// do nothing more by it. A group of which nothing was said has no members; up to 64 may have some.
/// Returns 0 or a negative error code: CLEARWAY_LIMIT if these are too many groups,
/// CLEARWAY_TOO_LARGE if the members are too many.
///
/// # Safety
/// `channel` is NULL or valid, strings are NULL or valid; `members` points to `count` members.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_set_group(
    channel: *mut clearway_channel,
    name: *const c_char,
    members: *const clearway_member,
    count: usize,
    timeout_ns: i64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        // SAFETY: the caller's promise.
        let name = unsafe { group_name(name, "name") }?;
        let members = match (members.is_null(), count) {
            (_, 0) => &[],
            (true, _) => return Err(pointer::invalid("members is NULL, and count is not 0")),
            // SAFETY: not null; the rest is the caller's promise.
            (false, count) => unsafe { std::slice::from_raw_parts(members, count) },
        };
        // SAFETY: the caller's promise about each.
        let members = members.iter().map(|member| unsafe { member_of(member) });
        let group = Group { name, members: members.collect::<Result<_, _>>()? };
        channel.set_group(&group, pointer::timeout(timeout_ns))
    })
}

/// Shares a region no longer, and waits up to `timeout_ns` for the daemon; if that is 0, it stays
/// shared (CLEARWAY_WOULD_BLOCK). When this has returned 0, nobody reads or changes it any more.
/// Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_unshare(
    channel: *mut clearway_channel,
    region: u64,
    timeout_ns: i64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.unshare(RegionId::from_u64(region), pointer::timeout(timeout_ns))
    })
}

/// # Safety
/// The fields are as their comments say.
unsafe fn describe(options: &clearway_region_options) -> Result<Description, Error> {
    // SAFETY: the caller's promise.
    let name = unsafe { pointer::text(options.name, "options->name") }?.unwrap_or_default();
    let grants = match (options.grants.is_null(), options.grant_count) {
        (_, 0) => &[],
        (true, _) => return Err(pointer::invalid("options->grants is NULL")),
        // SAFETY: not null; the rest is the caller's promise.
        (false, count) => unsafe { std::slice::from_raw_parts(options.grants, count) },
    };
    // SAFETY: the caller's promise about each.
    let grants = grants.iter().map(|grant| unsafe { grant_of(grant) });
    Ok(Description { name: name.into(), grants: grants.collect::<Result<_, _>>()? })
}

/// # Safety
/// The fields are as their comments say.
unsafe fn grant_of(grant: &clearway_grant) -> Result<Grant, Error> {
    let rights = u8::try_from(grant.rights).ok().filter(|bits| Rights::of(*bits).bits() == *bits);
    let rights = rights.ok_or_else(|| pointer::invalid("a grant's rights are none that exist"))?;
    let to = match grant.to {
        to if to == clearway_grantee::CLEARWAY_TO_ANYBODY as u32 => Grantee::Anybody,
        to if to == clearway_grantee::CLEARWAY_TO_USER as u32 => Grantee::User(grant.user),
        to if to == clearway_grantee::CLEARWAY_TO_PREFIX as u32 => {
            // SAFETY: the caller's promise.
            Grantee::Prefix(unsafe { prefix_of(grant.prefix, "a grant's prefix") }?)
        }
        to if to == clearway_grantee::CLEARWAY_TO_GROUP as u32 => {
            // SAFETY: the caller's promise.
            Grantee::Group(unsafe { group_name(grant.group, "a grant's group") }?)
        }
        _ => return Err(pointer::invalid("a grant is to nobody of enum clearway_grantee")),
    };
    Ok(Grant { to, rights: Rights::of(rights) })
}

/// # Safety
/// The fields are as their comments say.
unsafe fn member_of(member: &clearway_member) -> Result<Member, Error> {
    match member.is {
        is if is == clearway_grantee::CLEARWAY_TO_USER as u32 => Ok(Member::User(member.user)),
        is if is == clearway_grantee::CLEARWAY_TO_PREFIX as u32 => {
            // SAFETY: the caller's promise.
            Ok(Member::Prefix(unsafe { prefix_of(member.prefix, "a member's prefix") }?))
        }
        _ => Err(pointer::invalid("a member is neither CLEARWAY_TO_USER nor CLEARWAY_TO_PREFIX")),
    }
}

/// # Safety
/// As for `pointer::text`.
unsafe fn prefix_of(text: *const c_char, what: &str) -> Result<Prefix, Error> {
    // SAFETY: the caller's promise.
    let text = unsafe { pointer::text(text, what) }?;
    let text = text.ok_or_else(|| pointer::invalid(&format!("{what} is NULL")))?;
    text.parse().map_err(|bad| pointer::invalid(&format!("{what}: {bad}")))
}

/// # Safety
/// As for `pointer::text`.
unsafe fn group_name(text: *const c_char, what: &str) -> Result<GroupName, Error> {
    // SAFETY: the caller's promise.
    let text = unsafe { pointer::text(text, what) }?;
    let text = text.ok_or_else(|| pointer::invalid(&format!("{what} is NULL")))?;
    GroupName::new(text.as_bytes()).map_err(|bad| pointer::invalid(&format!("{what}: {bad}")))
}
