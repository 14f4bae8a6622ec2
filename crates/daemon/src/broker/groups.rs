//! Asking the broker for the groups of a user.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::packet::{self, PACKET_BYTES_MAX};

/// Look-ups that the broker works on at the same time. The user database may be far away, and some
/// users of it slower to find than others.
pub(crate) const LOOKUPS_AT_ONCE: usize = 4;
/// Groups of one user that are told; more are cut, as if the user were in none of those.
const GROUPS_MAX: usize = PACKET_BYTES_MAX / 4 - 2;

/// The daemon's end of the socket for look-ups.
#[derive(Debug)]
pub(crate) struct Groups {
    socket: OwnedFd,
}

/// A user and a group that it has for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupsOf {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

impl Groups {
    /// `socket` is non-blocking.
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Asks. No more than [`LOOKUPS_AT_ONCE`] answers may be outstanding.
    pub(crate) fn ask(&self, of: GroupsOf) -> io::Result<()> {
        packet::send(&self.socket, &of.to_bytes(), &[])
    }

    /// The next answer, in whatever order they come; `None` if there is none yet.
    pub(crate) fn answer(&self) -> io::Result<Option<(GroupsOf, Vec<u32>)>> {
        match packet::receive(&self.socket) {
            Ok(packet) => Ok(parse_answer(&packet.bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Groups {
    /// Readable when there is an answer.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl GroupsOf {
    fn to_bytes(self) -> [u8; 8] {
        (u64::from(self.user) << 32 | u64::from(self.group)).to_ne_bytes()
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let both = u64::from_ne_bytes(*bytes.first_chunk()?);
        Some(Self { user: (both >> 32) as u32, group: both as u32 })
    }

    /// What the broker answers.
    pub(super) fn answer(self, groups: &[u32]) -> Vec<u8> {
        let groups = groups.iter().take(GROUPS_MAX).flat_map(|group| group.to_ne_bytes());
        self.to_bytes().into_iter().chain(groups).collect()
    }
}

fn parse_answer(bytes: &[u8]) -> Option<(GroupsOf, Vec<u32>)> {
    let of = GroupsOf::parse(bytes)?;
    let (groups, _) = bytes.get(8..)?.as_chunks();
    Some((of, groups.iter().map(|group| u32::from_ne_bytes(*group)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_they_were_written_and_bounded() {
        let of = GroupsOf { user: u32::MAX - 1, group: 7 };
        assert_eq!(parse_answer(&of.answer(&[7, 8])), Some((of, vec![7, 8])));
        let many: Vec<u32> = (0..100_000).collect();
        let bytes = of.answer(&many);
        assert!(bytes.len() <= PACKET_BYTES_MAX);
        assert_eq!(parse_answer(&bytes).map(|(_, groups)| groups.len()), Some(GROUPS_MAX));
        assert_eq!(parse_answer(&[1, 2, 3]), None);
    }
}
