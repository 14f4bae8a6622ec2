//! Big-endian fields at fixed offsets. Used on slices whose length is already checked; on arrays
//! the compiler removes the bounds checks.

/// The `N` bytes at `at`.
#[inline]
pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array_at(bytes, at))
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, at))
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array_at(bytes, at))
}

/// Writes `field` at `at`.
#[inline]
pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

/// The first `N` bytes of a buffer to write into.
///
/// # Panics
/// If the buffer is shorter, which is the caller's mistake.
#[inline]
#[track_caller]
pub(crate) fn head_mut<const N: usize>(bytes: &mut [u8]) -> &mut [u8; N] {
    bytes.first_chunk_mut().expect("the buffer is shorter than what is emitted into it")
}
