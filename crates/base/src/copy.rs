//! Copies of many bytes.

/// What one call of `memcpy` copies at most where messages and packets are copied: more goes in
/// pieces of this, as [`copy`] does.
///
/// For more than 2 KiB or so the C library has one instruction (`rep movsb`). Where the target is
/// up to 31 bytes further within its page than the source, that takes sixteen times as long on
/// some processors (`docs/performance.md`, "What was learnt"), and a large buffer of `malloc`
/// begins 16 bytes behind the start of a page. In pieces it is fast everywhere.
pub const COPY_BYTES: usize = 1984;

/// Copies `from` to `into`.
///
/// # Panics
/// If they are not of one length.
#[inline]
pub fn copy(into: &mut [u8], from: &[u8]) {
    if from.len() <= COPY_BYTES { into.copy_from_slice(from) } else { copy_in_pieces(into, from) }
}

#[inline(never)]
fn copy_in_pieces(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "a copy has another length");
    for (into, from) in into.chunks_mut(COPY_BYTES).zip(from.chunks(COPY_BYTES)) {
        into.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_copied_whatever_the_length() {
        for length in [0, 1, COPY_BYTES - 1, COPY_BYTES, COPY_BYTES + 1, 3 * COPY_BYTES + 7] {
            let from: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let mut into = vec![255; length];
            copy(&mut into, &from);
            assert_eq!(into, from);
        }
    }

    #[test]
    #[should_panic(expected = "another length")]
    fn what_is_longer_is_no_copy() {
        copy(&mut [0; COPY_BYTES + 2], &[1; COPY_BYTES + 1]);
    }
}
