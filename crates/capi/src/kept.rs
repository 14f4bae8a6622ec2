//! Values of Rust in the `reserved` words of structures that C carries around.

use std::mem::{MaybeUninit, size_of};

use clearway_client::Channel;

use crate::attach::clearway_channel;
use crate::failure::call_int;

/// What C carries around.
pub(crate) type Words = [u64; 5];

/// What is in the words, if anything.
type Kept<T> = MaybeUninit<Option<T>>;

/// Puts a value into words.
pub(crate) fn keep<T>(value: T) -> Words {
    const {
        assert!(size_of::<Kept<T>>() <= size_of::<Words>());
        assert!(align_of::<Kept<T>>() <= align_of::<Words>());
    }
    let mut words = [0; 5];
    // SAFETY: size and alignment were asserted above.
    unsafe { words.as_mut_ptr().cast::<Kept<T>>().write(MaybeUninit::new(Some(value))) };
    words
}

/// Looks at it.
///
/// # Safety
/// `words` came from `keep` with the same type, and were not taken yet.
pub(crate) unsafe fn look<T>(words: &Words) -> Option<&T> {
    // SAFETY: the caller's promise.
    unsafe { (*words.as_ptr().cast::<Kept<T>>()).assume_init_ref() }.as_ref()
}

/// Takes it out again.
///
/// # Safety
/// `words` came from `keep` with the same type, and were not taken yet.
pub(crate) unsafe fn take<T>(words: &Words) -> Option<T> {
    // SAFETY: the caller's promise.
    unsafe { words.as_ptr().cast::<Kept<T>>().read().assume_init() }
}

/// Takes what a structure holds, and gives it back to the channel, or drops it if there is none;
/// nothing if it holds nothing.
///
/// # Safety
/// `place` and `channel` are each null, or valid and nobody else's during the call.
pub(crate) unsafe fn give_back<S, T>(
    channel: *mut clearway_channel,
    place: *mut S,
    take: impl FnOnce(&mut S) -> Option<T>,
    to_channel: impl FnOnce(&mut Channel, T),
) {
    let _ = call_int(|| {
        // SAFETY: the caller's promise.
        let Some(held) = unsafe { place.as_mut() }.and_then(take) else { return Ok(()) };
        // SAFETY: the caller's promise.
        match unsafe { channel.as_mut() } {
            Some(channel) => to_channel(&mut channel.channel, held),
            None => drop(held),
        }
        Ok(())
    });
}
