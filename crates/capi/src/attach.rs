//! Opening and closing a channel.

use std::ffi::{c_char, c_int};

use clearway_client::{Calls, Channel, Error, Event, MemoryId, Options, Waiting};

use crate::failure::{call, call_int};
use crate::held::Held;
use crate::pointer;

/// A channel to the daemon. For one thread at a time: it may be used by different threads one
/// after another, but never by two at once. Threads that all want to talk attach one each.
pub struct clearway_channel {
    pub(crate) channel: Channel,
    pub(crate) held: Held,
    pub(crate) calls: Calls,
    /// Events on their way to C. Empty between calls: it is kept for its memory.
    pub(crate) happened: Vec<Event>,
    /// What has become of its memories when it was attached again.
    pub(crate) memories: Vec<(MemoryId, Result<MemoryId, Error>)>,
}

/// How calls wait.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum clearway_waiting {
    /// Stays awake while that has paid lately, for 0.1 to 2 milliseconds at most (the longer it
    /// takes on this machine to wake up, the longer), then sleeps. If others want its core again
    /// and again while the engine runs on another one, the calling thread moves there by
    /// `sched_setaffinity`, and at once allows itself again what it was allowed before.
    CLEARWAY_WAIT_ADAPTIVE = 0,
    /// Looks again and again: the fastest, and takes a core.
    CLEARWAY_WAIT_SPIN = 1,
    /// Looks, and lets others run in between.
    CLEARWAY_WAIT_YIELD = 2,
    /// Sleeps at once.
    CLEARWAY_WAIT_BLOCK = 3,
}

/// What may be chosen when attaching. All zeros means the defaults; new fields are added at the
/// end, so set `size` to `sizeof(struct clearway_options)`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct clearway_options {
    /// `sizeof(struct clearway_options)`.
    pub size: usize,
    /// Path of the daemon's control socket; NULL: CLEARWAY_SOCKET, else the usual places.
    pub socket: *const c_char,
    /// The engine to use: its name or number in `clearway status`, or a NIC's name for any of its
    /// engines; NULL: the daemon chooses.
    pub engine: *const c_char,
    /// Not 0: share the engine with no other app, or fail.
    pub exclusive: u32,
    /// One of `enum clearway_waiting`.
    pub waiting: u32,
    /// Entries of the rings, powers of two from 16 to 65536; 0: 1024.
    pub submission_entries: u32,
    /// As above, from daemon to app.
    pub completion_entries: u32,
    /// Bytes for messages to be sent, a power of two from 64 KiB to 1 GiB; 0: 16 MiB.
    pub transmit_pool_bytes: u32,
    /// As above, for received messages.
    pub receive_pool_bytes: u32,
    /// For how long the daemon goes on to deliver what was sent after the channel is detached or
    /// the program has ended (not: was killed), in nanoseconds; 0: ten seconds. The daemon has a
    /// limit, too (linger_s_max).
    pub linger_ns: u64,
    /// Not 0: the daemon has to be of the user `daemon_user`. 0: of root, of the app's own user, or
    /// of the user to whom the socket's directory belongs, if nobody else can replace that.
    pub daemon_user_given: u32,
    /// See above.
    pub daemon_user: u32,
    /// Bytes that can be shared by clearway_share, a power of two from 4 KiB to 1 GiB; 0: none.
    /// If not 0, attaching is refused (CLEARWAY_DENIED) where the daemon's policy is against
    /// sharing.
    pub shared_bytes: u32,
    /// Of no meaning.
    pub reserved: u32,
}

/// Of the first release: without what was added since.
const OPTIONS_BYTES_MIN: usize = std::mem::offset_of!(clearway_options, shared_bytes);

/// Opens a channel to the daemon. `app` is the name under which it appears in `clearway status`, 1
/// to 64 bytes of UTF-8 without control characters (NULL: "unnamed"); `options` may be NULL.
/// Returns 0 and stores the channel, or a negative error code.
///
/// # Safety
/// `app`, `options->socket` and `options->engine` are strings or NULL, `options` is NULL or valid,
/// `channel` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_attach(
    app: *const c_char,
    options: *const clearway_options,
    channel: *mut *mut clearway_channel,
) -> c_int {
    call_int(|| {
        if channel.is_null() {
            return Err(pointer::invalid("channel is NULL"));
        }
        // SAFETY: the caller's promise.
        let app = unsafe { pointer::text(app, "app") }?.unwrap_or("unnamed");
        let mut chosen = Options::new(app);
        // SAFETY: the caller's promise.
        if let Some(options) = unsafe { options_of(options) }? {
            // SAFETY: the caller's promise about `socket` and `engine`.
            unsafe { choose(&mut chosen, &options) }?;
        }
        let mut attached = Channel::attach(&chosen)?;
        let opened = Box::new(clearway_channel {
            held: Held::new(&mut attached),
            channel: attached,
            calls: Calls::new(),
            happened: Vec::new(),
            memories: Vec::new(),
        });
        // SAFETY: not null (checked above), valid by the caller's promise.
        unsafe { pointer::store(channel, Box::into_raw(opened)) };
        Ok(())
    })
}

/// The options, of a program that may know fewer of them.
///
/// # Safety
/// `options` is null, or points to as many bytes as its first field says.
unsafe fn options_of(
    options: *const clearway_options,
) -> Result<Option<clearway_options>, clearway_client::Error> {
    if options.is_null() {
        return Ok(None);
    }
    // SAFETY: not null; the size is the first field, which is there by the caller's promise.
    let bytes = unsafe { options.cast::<usize>().read() };
    if bytes != OPTIONS_BYTES_MIN && bytes != size_of::<clearway_options>() {
        return Err(pointer::invalid("options->size is not sizeof(struct clearway_options)"));
    }
    let mut known = std::mem::MaybeUninit::<clearway_options>::zeroed();
    // SAFETY: so many bytes are there, and there is room for as many. All zeros is sound, and so
    // is any part of it with the caller's bytes in front: integers and raw pointers.
    unsafe {
        known.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(options.cast(), bytes);
        Ok(Some(known.assume_init()))
    }
}

/// # Safety
/// `options.socket` and `options.engine` are strings or NULL.
unsafe fn choose(
    chosen: &mut Options,
    options: &clearway_options,
) -> Result<(), clearway_client::Error> {
    // SAFETY: the caller's promise.
    if let Some(socket) = unsafe { pointer::text(options.socket, "options->socket") }? {
        chosen.socket = socket.into();
    }
    // SAFETY: the caller's promise about `engine`.
    chosen.engine = unsafe { pointer::text(options.engine, "options->engine") }?.map(Into::into);
    chosen.exclusive = options.exclusive != 0;
    chosen.waiting = match options.waiting {
        0 => Waiting::Adaptive,
        1 => Waiting::Spin,
        2 => Waiting::Yield,
        3 => Waiting::Block,
        _ => return Err(pointer::invalid("options->waiting is not of enum clearway_waiting")),
    };
    let sizes = &mut chosen.sizes;
    for (size, wanted) in [
        (&mut sizes.submission_entries, options.submission_entries),
        (&mut sizes.completion_entries, options.completion_entries),
        (&mut sizes.transmit_pool_bytes, options.transmit_pool_bytes),
        (&mut sizes.receive_pool_bytes, options.receive_pool_bytes),
        (&mut sizes.shared_bytes, options.shared_bytes),
    ] {
        if wanted != 0 {
            *size = wanted;
        }
    }
    if options.linger_ns != 0 {
        chosen.linger = std::time::Duration::from_nanos(options.linger_ns);
    }
    if options.daemon_user_given != 0 {
        chosen.daemon_user = Some(options.daemon_user);
    }
    Ok(())
}

/// What has become of a connection when its channel was attached again.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct clearway_reconnected {
    /// Its number of before, which means nothing any more.
    pub was: u64,
    /// Its number of now; 0 if there is none.
    pub now: u64,
    /// Why there is none; 0 if there is one. CLEARWAY_DAEMON_GONE: the peer had opened it, and may
    /// do so again. CLEARWAY_CLOSED and the like: it had ended before the daemon has.
    pub code: c_int,
    /// Messages that were sent and not acknowledged: each of them may have arrived or not.
    pub messages_unacknowledged: u32,
}

/// Attaches a channel again whose daemon has gone (CLEARWAY_ENDED_CHANNEL): waits up to
/// `timeout_ns` for a daemon (one that is there has a tenth of a second to take the app in any
/// case), listens again on all ports, and connects again to all peers to whom the app had
/// connected. Stores in `list`, which has room for `capacity`, what has become of the connections,
/// oldest first. Descriptor and options stay the same; virtual interfaces, all of TCP, and messages
/// that were not received are lost. Attempts to connect whose outcome was not told have failed, of
/// which events tell (CLEARWAY_DAEMON_GONE). Buffers of clearway_send_buffer cannot be sent any
/// more (CLEARWAY_INVALID), only discarded. Returns how many connections there were, or a negative
/// error code; then the channel is as before.
///
/// # Safety
/// `channel` is NULL or valid; `list` points to `capacity` places, or is NULL and that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_reattach(
    channel: *mut clearway_channel,
    timeout_ns: i64,
    list: *mut clearway_reconnected,
    capacity: usize,
) -> c_int {
    call(|| {
        if list.is_null() && capacity > 0 {
            return Err(pointer::invalid("list is NULL and capacity is not 0"));
        }
        // SAFETY: the caller's promise.
        let clearway_channel { channel, held, calls, memories, .. } =
            unsafe { pointer::attached(channel) }?;
        let told = calls.reattach(channel, pointer::timeout(timeout_ns))?;
        held.follow(channel);
        *memories = told.memories;
        for (index, connection) in told.connections.iter().take(capacity).enumerate() {
            let (now, code) = match &connection.now {
                Ok(now) => (now.as_u64(), 0),
                Err(error) => (0, error.code().as_i32()),
            };
            let was = connection.was.as_u64();
            let messages_unacknowledged = connection.messages_unacknowledged as u32;
            let place = clearway_reconnected { was, now, code, messages_unacknowledged };
            // SAFETY: below `capacity`.
            unsafe { list.add(index).write(place) };
        }
        Ok(told.connections.len() as i64)
    }) as c_int
}

/// Closes a channel and all its connections, and waits up to `timeout_ns` until what was sent has
/// been delivered. The channel is gone also if this returns an error, which says that not all is
/// known to be delivered: the daemon goes on with that for `linger_ns` of the options, also after
/// the program has ended. NULL is allowed and does nothing. Messages that were received in
/// place stay readable until they are released.
///
/// # Safety
/// `channel` came from clearway_attach and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_detach(channel: *mut clearway_channel, timeout_ns: i64) -> c_int {
    call_int(|| {
        if channel.is_null() {
            return Ok(());
        }
        // SAFETY: made by `Box::into_raw` in `clearway_attach`, and by the caller's promise not
        // used again.
        let channel = unsafe { Box::from_raw(channel) }.channel;
        channel.detach(pointer::timeout(timeout_ns))
    })
}
