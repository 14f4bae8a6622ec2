//! Values of Rust in the `reserved` words of structures that C carries around.

use std::mem::{MaybeUninit, size_of};

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
