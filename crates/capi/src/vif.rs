//! Virtual interfaces: raw frames by the burst.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use clearway_client::{
    BURST_FRAMES_MAX, Error, FrameRefusal, Frames, ReceivedBurst, VifId, VifOptions,
};

use crate::attach::clearway_channel;
use crate::failure::{call, call_int};
use crate::held::{Held, Value, Words, release};
use crate::pointer;

/// What a virtual interface shall receive and send. All zeros means none of it; new fields are
/// added at the end, so set `size` to `sizeof(struct clearway_vif_options)`. Lists are arrays of
/// strings that end with NULL, each string a filter as for tcpdump ("dst host 10.0.0.2 and udp dst
/// port 5353").
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct clearway_vif_options {
    /// `sizeof(struct clearway_vif_options)`.
    pub size: usize,
    /// What it receives: what any of these filters matches.
    pub receive: *const *const c_char,
    /// What it may send; NULL: the mirror image of `receive`, with source and destination
    /// exchanged. An empty list: nothing.
    pub transmit: *const *const c_char,
    /// What it gets a copy of, while its owner gets it too.
    pub copies: *const *const c_char,
    /// An Ethernet address of its own, "own" to let the daemon choose one; NULL: the NIC's.
    pub mac: *const c_char,
    /// An IP address of its own with its prefix, "10.0.0.9/24"; needs an Ethernet address of its
    /// own.
    pub address: *const c_char,
    /// Above 0, it comes before interfaces of lower priority. What the host's own services receive
    /// (messages, ARP, ...) is theirs before all.
    pub priority: u16,
}

/// An open virtual interface.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct clearway_vif {
    /// Names it in calls and events.
    pub id: u32,
    /// The most bytes of a packet in a frame, without the Ethernet header.
    pub mtu: u32,
    /// Its Ethernet address: its own, or the NIC's.
    pub mac: [u8; 6],
}

/// A received frame in place.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct clearway_frame {
    /// The bytes, from the Ethernet header on; read only.
    pub data: *const c_void,
    /// How many.
    pub length: usize,
    /// When it was seen, by the host's monotonic clock.
    pub time_ns: u64,
}

/// Received frames that are given back together. Valid until it, or a copy of it, is given to
/// clearway_vif_release.
#[repr(C)]
pub struct clearway_frames {
    /// How many.
    pub count: u32,
    /// The interface they came to.
    pub vif: u32,
    /// The library's own.
    pub reserved: [u64; 5],
}

/// What has become of the frames that an interface sent.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct clearway_frames_sent {
    /// Frames that left, by the NIC or to another app.
    pub sent: u64,
    /// Frames that were refused.
    pub rejected: u64,
    /// Why the last of these was refused, an enum clearway_refused; 0 if none was.
    pub reason: u32,
}

/// Opens a virtual interface, and stores what it became. From now on the app gets the frames that
/// its filters match. Returns 0 or a negative error code; clearway_last_error says which filter,
/// which owner or which rule of the policy was in the way.
///
/// # Safety
/// Pointers are NULL or valid, strings and lists of strings as the fields' comments say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_vif_open(
    channel: *mut clearway_channel,
    options: *const clearway_vif_options,
    vif: *mut clearway_vif,
) -> c_int {
    call_int(|| {
        if vif.is_null() {
            return Err(pointer::invalid("vif is NULL"));
        }
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        // SAFETY: the caller's promise.
        let options = unsafe { options.as_ref() };
        let options = options.ok_or_else(|| pointer::invalid("options is NULL"))?;
        // SAFETY: the caller's promise about the fields.
        let opened = channel.open_vif(&unsafe { choose(options) }?)?;
        let found = clearway_vif { id: opened.id.as_u32(), mtu: opened.mtu, mac: opened.mac.0 };
        // SAFETY: not null; valid by the caller's promise.
        unsafe { pointer::store(vif, found) };
        Ok(())
    })
}

/// # Safety
/// The fields are as their comments say.
unsafe fn choose(options: &clearway_vif_options) -> Result<VifOptions, Error> {
    if options.size != size_of::<clearway_vif_options>() {
        return Err(pointer::invalid("options->size is not sizeof(struct clearway_vif_options)"));
    }
    // SAFETY: the caller's promise.
    let list = |list, what| unsafe { pointer::texts(list, what) };
    // SAFETY: the caller's promise.
    let mac = unsafe { pointer::text(options.mac, "options->mac") }?;
    // SAFETY: the caller's promise.
    let address = unsafe { pointer::text(options.address, "options->address") }?;
    Ok(VifOptions {
        receive: list(options.receive, "options->receive")?.unwrap_or_default(),
        transmit: list(options.transmit, "options->transmit")?,
        copies: list(options.copies, "options->copies")?.unwrap_or_default(),
        priority: options.priority,
        mac: mac.map(pointer::parse).transpose()?,
        address: address.map(pointer::parse).transpose()?,
    })
}

/// Closes a virtual interface, after what was sent has left. Frames that have come and were not
/// taken are lost. Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_vif_close(channel: *mut clearway_channel, vif: u32) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        unsafe { pointer::channel(channel) }?.close_vif(VifId::from_u32(vif))
    })
}

/// Sends a frame of `length` bytes (14 to 65535), from its Ethernet header on, without frame check
/// sequence. Waits up to `timeout_ns` while there is no room. Frames leave together: when
/// CLEARWAY_FRAMES_MAX have been gathered or 8 KiB are full, at clearway_vif_flush, or when a call
/// waits. Frames that the interface may not send are dropped and counted: see clearway_vif_sent.
/// Returns 0 or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid; `data` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_vif_send(
    channel: *mut clearway_channel,
    vif: u32,
    data: *const c_void,
    length: usize,
    timeout_ns: i64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        // SAFETY: the caller's promise.
        let frame = unsafe { pointer::bytes(data.cast(), length) }?;
        channel.send_frame_timeout(VifId::from_u32(vif), frame, pointer::timeout(timeout_ns))
    })
}

/// Stores where a frame of `length` bytes is to be written, without a copy: at once, before the
/// next call of the channel. It is sent as it is then, as by clearway_vif_send. Returns 0 or a
/// negative error code.
///
/// # Safety
/// `channel` is NULL or valid; `data` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_vif_buffer(
    channel: *mut clearway_channel,
    vif: u32,
    length: usize,
    timeout_ns: i64,
    data: *mut *mut c_void,
) -> c_int {
    call_int(|| {
        if data.is_null() {
            return Err(pointer::invalid("data is NULL"));
        }
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        let (vif, timeout) = (VifId::from_u32(vif), pointer::timeout(timeout_ns));
        let place = channel.frame_buffer(vif, length, timeout)?.as_mut_ptr();
        // SAFETY: not null; valid by the caller's promise.
        unsafe { pointer::store(data, place.cast()) };
        Ok(())
    })
}

/// Sends the frames that were gathered. Waits up to `timeout_ns` while there is no room. Returns 0
/// or a negative error code.
///
/// # Safety
/// `channel` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_vif_flush(
    channel: *mut clearway_channel,
    vif: u32,
    timeout_ns: i64,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        channel.flush_frames(VifId::from_u32(vif), pointer::timeout(timeout_ns))
    })
}

/// Stores what has become of the frames that the interface sent. Returns 0 or a negative error
/// code.
///
/// # Safety
/// `channel` is NULL or valid; `sent` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_vif_sent(
    channel: *mut clearway_channel,
    vif: u32,
    sent: *mut clearway_frames_sent,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { pointer::channel(channel) }?;
        let told = channel.frames_sent(VifId::from_u32(vif))?;
        let (reason, rejected) = (told.reason.map_or(0, |it| it.as_u8().into()), told.rejected);
        // SAFETY: the caller's promise.
        unsafe { pointer::store(sent, clearway_frames_sent { sent: told.sent, rejected, reason }) };
        Ok(())
    })
}

/// What is wrong with a frame that was refused for `reason`, in words. Never NULL; valid for ever.
/// For 0 and for numbers that are no reason it says so.
#[unsafe(no_mangle)]
pub extern "C" fn clearway_refused_text(reason: u32) -> *const c_char {
    static TEXTS: OnceLock<Vec<CString>> = OnceLock::new();
    let texts = TEXTS.get_or_init(|| {
        let texts = FrameRefusal::ALL.iter().map(|reason| reason.text());
        texts.map(|text| CString::new(text).unwrap_or_default()).collect()
    });
    // Reasons are dense from 1 up.
    let index = (reason as usize).wrapping_sub(1);
    match texts.get(index) {
        Some(text) => text.as_ptr(),
        None if reason == 0 => c"no frame was refused".as_ptr(),
        None => c"not a reason of Clearway; use the header that belongs to the library".as_ptr(),
    }
}

/// Receives the next frames of any virtual interface in place, without a copy: fills `list`, which
/// must have room for CLEARWAY_FRAMES_MAX, and stores in `frames` what clearway_vif_release gives
/// back. Release them soon: while many are held, further frames are lost. Returns how many frames
/// there are, or a negative error code. If the daemon has taken an interface away, that is an
/// error, once, and `frames->vif` tells which.
///
/// # Safety
/// `channel` is NULL or valid; `frames` is NULL or valid for writing, and holds no frames; `list`
/// is NULL or points to `capacity` places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_vif_recv(
    channel: *mut clearway_channel,
    timeout_ns: i64,
    frames: *mut clearway_frames,
    list: *mut clearway_frame,
    capacity: usize,
) -> c_int {
    call(|| {
        if frames.is_null() {
            return Err(pointer::invalid("frames is NULL"));
        }
        // Before anything is received that could not be told of.
        check_list(list, capacity)?;
        // SAFETY: the caller's promise.
        let clearway_channel { channel, held, .. } = unsafe { pointer::attached(channel) }?;
        let (filled, result) = match channel.recv_frames(pointer::timeout(timeout_ns)) {
            Ok(found) => {
                // SAFETY: the list has room for any burst (checked above).
                let count = unsafe { tell(found.iter(), list) };
                (clearway_frames::holding(found, held), Ok(count))
            }
            Err(error) => (clearway_frames::empty(vif_of(&error)), Err(error)),
        };
        // SAFETY: not null; valid by the caller's promise.
        unsafe { pointer::store(frames, filled) };
        result
    }) as c_int
}

/// Fills `list` with the frames of an event, as clearway_vif_recv does. Returns how many there are,
/// 0 if they were released, or a negative error code.
///
/// # Safety
/// `frames` is NULL, or was filled by this library, or is all zeros, and no copy of it was
/// released; `list` is NULL or points to `capacity` places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_vif_list(
    frames: *const clearway_frames,
    list: *mut clearway_frame,
    capacity: usize,
) -> c_int {
    call(|| {
        check_list(list, capacity)?;
        // SAFETY: the caller's promise.
        let frames =
            unsafe { frames.as_ref() }.ok_or_else(|| pointer::invalid("frames is NULL"))?;
        // SAFETY: the caller's promise.
        let Some(burst) = (unsafe { frames.burst() }) else { return Ok(0) };
        // SAFETY: the list has room for any burst (checked above).
        Ok(unsafe { tell(burst, list) })
    }) as c_int
}

/// Gives frames back. They may have come from another channel, or from one that was detached
/// meanwhile; `channel` may be NULL, but with the right one it is faster. Releasing twice, by a
/// copy or not, does nothing.
///
/// # Safety
/// `channel` is NULL or valid; `frames` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_vif_release(
    channel: *mut clearway_channel,
    frames: *mut clearway_frames,
) {
    // SAFETY: the caller's promise.
    unsafe { release(channel, frames, clearway_frames::take) };
}

fn check_list(list: *mut clearway_frame, capacity: usize) -> Result<(), Error> {
    if list.is_null() || capacity < BURST_FRAMES_MAX.into() {
        return Err(pointer::invalid("list has no room for CLEARWAY_FRAMES_MAX frames"));
    }
    Ok(())
}

/// Fills a list with frames; how many there are.
///
/// # Safety
/// `list` points to places for as many as a burst can have.
unsafe fn tell(burst: ReceivedBurst<'_>, list: *mut clearway_frame) -> i64 {
    let mut count = 0;
    for (index, frame) in burst.enumerate() {
        let (data, length) = (frame.bytes.as_ptr().cast(), frame.bytes.len());
        let told = clearway_frame { data, length, time_ns: frame.info.time_ns };
        // SAFETY: a burst has no more frames than the list has places.
        unsafe { list.add(index).write(told) };
        count += 1;
    }
    count
}

/// The interface that an error is about.
fn vif_of(error: &Error) -> u32 {
    match error {
        Error::Vif { vif, .. } => vif.as_u32(),
        _ => 0,
    }
}

impl clearway_frames {
    pub(crate) fn holding(frames: Frames, held: &mut Held) -> Self {
        let (count, vif) = (frames.len() as u32, frames.vif().as_u32());
        let bytes = frames.as_bytes();
        let (address, length) = (bytes.as_ptr().expose_provenance(), bytes.len());
        let mut reserved = held.keep(Value::Frames(frames));
        (reserved[3], reserved[4]) = (address as u64, length as u64);
        Self { count, vif, reserved }
    }

    /// Nothing but the name of an interface.
    pub(crate) fn empty(vif: u32) -> Self {
        Self { count: 0, vif, reserved: [0; 5] }
    }

    /// The frames, if there are any.
    ///
    /// # Safety
    /// It was filled by this library, or is all zeros, and was not released.
    unsafe fn burst(&self) -> Option<ReceivedBurst<'_>> {
        let count = u16::try_from(self.count).ok().filter(|count| *count > 0)?;
        let start = std::ptr::with_exposed_provenance(self.reserved[3] as usize);
        // SAFETY: these are the bytes of frames that `holding` has kept, and that are kept still,
        // by the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(start, self.reserved[4] as usize) };
        Some(ReceivedBurst::new(bytes, count))
    }

    fn take(&mut self) -> Words {
        self.count = 0;
        std::mem::take(&mut self.reserved)
    }
}
