//! The Toeplitz hash: for each set bit of the input, the 32 bits of the key that start at the same
//! place, xored together ("Introduction to Receive Side Scaling", Microsoft).

/// Bytes of the longest input: two IPv6 addresses and two ports.
const INPUT_BYTES_MAX: usize = 36;
/// Bytes of a key.
pub(super) const KEY_BYTES: usize = INPUT_BYTES_MAX + 4;

/// A key, worked out for all values of each half octet of the input, so that a frame costs two
/// looks per octet instead of eight steps.
#[derive(Debug)]
pub(super) struct Toeplitz(Box<[[u32; 16]; 2 * INPUT_BYTES_MAX]>);

impl Toeplitz {
    pub(super) fn new(key: &[u8; KEY_BYTES]) -> Self {
        let of = |at: usize, nibble: u32| {
            let bits = (0..4).filter(|bit| nibble & (8 >> bit) != 0);
            bits.fold(0, |hash, bit| hash ^ window(key, 4 * at + bit))
        };
        let mut table = Box::new([[0; 16]; 2 * INPUT_BYTES_MAX]);
        for (at, hashes) in table.iter_mut().enumerate() {
            for (nibble, hash) in hashes.iter_mut().enumerate() {
                *hash = of(at, nibble as u32);
            }
        }
        Self(table)
    }

    /// The hash of at most [`INPUT_BYTES_MAX`] bytes; more are ignored.
    pub(super) fn hash(&self, input: impl Iterator<Item = u8>) -> u32 {
        let nibbles = input.flat_map(|byte| [byte >> 4, byte & 15]);
        let hashes = self.0.iter().zip(nibbles);
        hashes.fold(0, |hash, (hashes, nibble)| hash ^ hashes[usize::from(nibble)])
    }
}

/// The 32 bits of the key from a bit on.
fn window(key: &[u8; KEY_BYTES], bit: usize) -> u32 {
    let byte = |at: usize| u64::from(key.get(at).copied().unwrap_or(0));
    let bits = (0..5).fold(0, |bits, at| bits << 8 | byte(bit / 8 + at));
    (bits >> (8 - bit % 8)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verification suite of Microsoft's RSS documentation.
    #[test]
    fn published_vectors() {
        let toeplitz = Toeplitz::new(&[
            0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
            0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
            0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
        ]);
        let addresses = [66, 9, 149, 187, 161, 142, 100, 80];
        assert_eq!(toeplitz.hash(addresses.into_iter()), 0x323e_8fc2);
        let ports = [2794u16.to_be_bytes(), 1766u16.to_be_bytes()].concat();
        assert_eq!(toeplitz.hash(addresses.into_iter().chain(ports)), 0x51cc_c178);
    }
}
