//! What C holds of the library: messages and frames that were received in place, and buffers to be
//! filled. C carries numbers about, and the values stay here. So a structure may be copied, or its
//! words be nonsense: what is released by one copy is gone for all, and a number that names nothing
//! does nothing.
//!
//! ```text
//!  clearway_message.reserved: number of the channel, key ──▶ Held of that channel (no lock)
//!      released with another channel, or none ──▶ noted; that channel's next call gives it back,
//!          or the one that waits, which is woken
//!      released after that channel was detached ──▶ PLACES, where it has left what was held
//! ```

use std::cell::UnsafeCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clearway_client::{
    Answer, Channel, Frames, Message, Notified, Operated, PostEnd, Request, SendBuffer, Sleeper,
    TcpBytes,
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
    store: Arc<Store>,
    pub(crate) told: Told,
}

/// The values, and what was released elsewhere: `Held` has it, the channel's collector
/// ([`Channel::collect_by`]), and of the second part others.
struct Store {
    values: Owned,
    released: Released,
}

/// Values for the thread alone that is in a call of the channel, without a lock.
struct Owned(UnsafeCell<Values>);

// SAFETY: any thread may use the values, since they are `Send`, as `PLACES` asks; and one at a time
// does: see `Owned::with`.
unsafe impl Sync for Owned {}

/// What events have told C of, and C takes by another call.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) operated: VecDeque<Operated>,
    pub(crate) notified: VecDeque<Notified>,
    pub(crate) posted: VecDeque<PostEnd>,
}

/// What was released elsewhere.
struct Released {
    noted: Mutex<Noted>,
    /// Whether there is any: a hint that spares the lock.
    any: AtomicBool,
}

struct Noted {
    keys: Vec<DefaultKey>,
    /// Who may wait in a call of the channel.
    owner: Arc<Sleeper>,
}

/// Where the values of a channel are.
enum Place {
    /// With the channel.
    Channel(Arc<Store>),
    /// The channel was detached.
    Left(Values),
}

static PLACES: Mutex<BTreeMap<u64, Place>> = Mutex::new(BTreeMap::new());

impl Held {
    /// Of a channel beside which it is kept, so that whoever has one of the two has both.
    pub(crate) fn new(channel: &mut Channel) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let noted = Mutex::new(Noted { keys: Vec::new(), owner: channel.owner() });
        let released = Released { noted, any: AtomicBool::new(false) };
        let store = Arc::new(Store { values: Owned(UnsafeCell::new(Values::new())), released });
        places().insert(number, Place::Channel(Arc::clone(&store)));
        let of_channel = Arc::clone(&store);
        channel.collect_by(move |channel, sleeps| {
            if sleeps || of_channel.released.has_any() {
                of_channel.collect(channel);
            }
        });
        Self { number, store, told: Told::default() }
    }

    /// The channel was attached again: others wake who waits there now, and of what events have
    /// told, the ends of posted buffers are left.
    pub(crate) fn follow(&mut self, channel: &Channel) {
        self.store.released.lock().owner = channel.owner();
        self.told.operated.clear();
        self.told.notified.clear();
    }

    /// Keeps a value for C, which names it by these words.
    pub(crate) fn keep(&mut self, value: Value) -> Words {
        let key = self.store.values.with(|values| values.insert(value));
        [self.number, key.data().as_ffi(), 0, 0, 0]
    }

    /// The value of these words, if it is of this channel and there.
    pub(crate) fn take(&mut self, words: &Words) -> Option<Value> {
        if words[0] != self.number {
            return None;
        }
        self.store.values.with(|values| values.remove(key(words)))
    }

    /// What `look` says of it, and it stays.
    pub(crate) fn look_at<T>(&self, words: &Words, look: impl FnOnce(&Value) -> T) -> Option<T> {
        if words[0] != self.number {
            return None;
        }
        self.store.values.with(|values| values.get(key(words)).map(look))
    }

    /// Gives back what was released elsewhere since the last call.
    #[inline]
    pub(crate) fn collect(&mut self, channel: &mut Channel) {
        if self.store.released.has_any() {
            self.store.collect(channel);
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
        let mut left = self.store.values.with(std::mem::take);
        self.store.released.take().into_iter().for_each(|key| _ = left.remove(key));
        if !left.is_empty() {
            places.insert(self.number, Place::Left(left));
        }
    }
}

impl Store {
    /// Gives back what was released elsewhere. The lock is taken whatever the hint says: that is
    /// for who looks again.
    #[cold]
    fn collect(&self, channel: &mut Channel) {
        for key in self.released.take() {
            if let Some(value) = self.values.with(|values| values.remove(key)) {
                value.give_back(channel);
            }
        }
    }
}

impl Owned {
    /// `act` does not call the channel.
    fn with<T>(&self, act: impl FnOnce(&mut Values) -> T) -> T {
        // SAFETY: nobody else uses them meanwhile. They are used by `Held`'s methods, and by the
        // collector, which only a call of the channel calls. Both are parts of one
        // `clearway_channel`, which one thread uses at a time, as C promises; and in that thread no
        // `act` calls the channel, so that it does not end up here again.
        act(unsafe { &mut *self.0.get() })
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
        Some(Place::Channel(store)) => {
            store.released.put(key(words));
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
    /// Whether there is any, for who looks again.
    #[inline]
    fn has_any(&self) -> bool {
        // The lock orders the list; the flag needs no order: what it hides now, it shows later.
        self.any.load(Ordering::Relaxed)
    }

    fn put(&self, key: DefaultKey) {
        let mut noted = self.lock();
        noted.keys.push(key);
        self.any.store(true, Ordering::Relaxed);
        noted.owner.wake();
    }

    fn take(&self) -> Vec<DefaultKey> {
        let mut noted = self.lock();
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut noted.keys)
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn places() -> MutexGuard<'static, BTreeMap<u64, Place>> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(words: &Words) -> DefaultKey {
    KeyData::from_ffi(words[1]).into()
}
