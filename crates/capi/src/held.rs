//! What C holds of the library: messages and frames that were received in place, and buffers to be
//! filled. C carries numbers about, and the values stay here. So a structure may be copied, or its
//! words be nonsense: what is released by one copy is gone for all, and a number that names nothing
//! does nothing.
//!
//! ```text
//!  clearway_message.reserved: number of the channel, key ──▶ Held of that channel (no lock)
//!      released with another channel, or none ──▶ noted, and dropped in that channel's next call
//!      released after that channel was detached ──▶ PLACES, where it has left what was held
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clearway_client::{
    Answer, Channel, Frames, Message, Notified, Operated, PostEnd, Request, SendBuffer, TcpBytes,
};
use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use crate::attach::clearway_channel;
use crate::failure::call_int;

/// What C carries about: the number of the channel, the key, and what else its owner puts there.
pub(crate) type Words = [u64; 5];

/// A value that C holds.
pub(crate) enum Value {
    Message(Message),
    Bytes(TcpBytes),
    Frames(Frames),
    Buffer(SendBuffer),
    Operated(Operated),
    Request(Request),
    Answer(Answer),
}

impl Value {
    /// Gives its memory back to the channel that it is of.
    fn give_back(self, channel: &mut Channel) {
        match self {
            Self::Message(message) => channel.release(message),
            Self::Bytes(bytes) => channel.tcp_release(bytes),
            Self::Frames(frames) => channel.release_frames(frames),
            Self::Buffer(buffer) => drop(buffer),
            Self::Operated(operated) => drop(operated),
            Self::Request(request) => request.release(channel),
            Self::Answer(answer) => answer.release(channel),
        }
    }
}

type Values = SlotMap<DefaultKey, Value>;

/// What C holds of a channel.
pub(crate) struct Held {
    /// Of this channel: never 0, never that of another.
    number: u64,
    values: Values,
    released: Arc<Released>,
    pub(crate) told: Told,
}

/// What events have told C of, and C takes by another call.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) operated: VecDeque<Operated>,
    pub(crate) notified: VecDeque<Notified>,
    pub(crate) posted: VecDeque<PostEnd>,
}

/// What was released elsewhere.
#[derive(Default)]
struct Released {
    keys: Mutex<Vec<DefaultKey>>,
    /// Whether there is any: a hint that spares the lock.
    any: AtomicBool,
}

/// Where the values of a channel are.
enum Place {
    /// With the channel.
    Channel(Arc<Released>),
    /// The channel was detached.
    Left(Values),
}

static PLACES: Mutex<BTreeMap<u64, Place>> = Mutex::new(BTreeMap::new());

impl Held {
    pub(crate) fn new() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let released = Arc::new(Released::default());
        places().insert(number, Place::Channel(Arc::clone(&released)));
        Self { number, values: Values::new(), released, told: Told::default() }
    }

    /// Keeps a value for C, which names it by these words.
    pub(crate) fn keep(&mut self, value: Value) -> Words {
        [self.number, self.values.insert(value).data().as_ffi(), 0, 0, 0]
    }

    /// The value of these words, if it is of this channel and there.
    pub(crate) fn take(&mut self, words: &Words) -> Option<Value> {
        if words[0] != self.number {
            return None;
        }
        self.values.remove(key(words))
    }

    /// The same, and it stays.
    pub(crate) fn find(&self, words: &Words) -> Option<&Value> {
        if words[0] != self.number {
            return None;
        }
        self.values.get(key(words))
    }

    /// Gives back what was released elsewhere since the last call.
    #[inline]
    pub(crate) fn collect(&mut self, channel: &mut Channel) {
        // The lock orders the list; the flag needs no order: what it hides now, it shows later.
        if self.released.any.load(Ordering::Relaxed) {
            self.collect_released(channel);
        }
    }

    #[cold]
    fn collect_released(&mut self, channel: &mut Channel) {
        for key in self.released.take() {
            if let Some(value) = self.values.remove(key) {
                value.give_back(channel);
            }
        }
    }

    /// Gives back the value of these words, if it is there.
    pub(crate) fn release(&mut self, channel: &mut Channel, words: &Words) {
        match self.take(words) {
            Some(value) => value.give_back(channel),
            None => release_elsewhere(words),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut places = places();
        // Whoever releases from now on finds no channel.
        places.remove(&self.number);
        self.released.take().into_iter().for_each(|key| _ = self.values.remove(key));
        if !self.values.is_empty() {
            places.insert(self.number, Place::Left(std::mem::take(&mut self.values)));
        }
    }
}

/// Gives back what the structure at `place` holds, if it does: to its channel, which is `channel`
/// or not.
///
/// # Safety
/// `place` and `channel` are each null, or valid and nobody else's during the call.
pub(crate) unsafe fn release<S>(
    channel: *mut clearway_channel,
    place: *mut S,
    take: impl FnOnce(&mut S) -> Words,
) {
    let _ = call_int(|| {
        // SAFETY: the caller's promise.
        let Some(words) = unsafe { place.as_mut() }.map(take) else { return Ok(()) };
        // SAFETY: the caller's promise.
        match unsafe { channel.as_mut() } {
            Some(clearway_channel { channel, held, .. }) => held.release(channel, &words),
            None => release_elsewhere(&words),
        }
        Ok(())
    });
}

/// Gives back the value of these words, wherever it is, if it is there.
pub(crate) fn release_elsewhere(words: &Words) {
    let mut places = places();
    let dropped = match places.get_mut(&words[0]) {
        Some(Place::Channel(released)) => {
            released.put(key(words));
            None
        }
        Some(Place::Left(values)) => {
            let value = values.remove(key(words));
            if values.is_empty() {
                places.remove(&words[0]);
            }
            value
        }
        None => None,
    };
    drop(places);
    drop(dropped);
}

impl Released {
    fn put(&self, key: DefaultKey) {
        self.lock().push(key);
        self.any.store(true, Ordering::Relaxed);
    }

    fn take(&self) -> Vec<DefaultKey> {
        let mut keys = self.lock();
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut keys)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<DefaultKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn places() -> MutexGuard<'static, BTreeMap<u64, Place>> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(words: &Words) -> DefaultKey {
    KeyData::from_ffi(words[1]).into()
}
