//! Who an app is: what the kernel says about its socket, and the user database about its user.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;

use clearway_control::policy::Peer;
use nix::unistd::{Gid, Uid, User, getgrouplist};
use rustix::net::sockopt::socket_peercred;

/// A user that there is nowhere.
const NO_USER: u32 = u32::MAX - 7;

/// Who is at the other end of a socket, with the one group that they have for certain.
pub(crate) fn peer_of(socket: impl AsFd) -> io::Result<Peer> {
    let credentials = socket_peercred(socket)?;
    let user = credentials.uid.as_raw();
    let group = credentials.gid.as_raw();
    Ok(Peer { user, process: credentials.pid.as_raw_pid(), groups: vec![group] })
}

/// The groups of a user. One that is not in the user database has only the one it came with.
pub(crate) fn groups_of(user: u32, group: u32) -> Vec<u32> {
    let listed = || {
        let name = User::from_uid(Uid::from_raw(user)).ok().flatten()?.name;
        let name = CString::new(name).ok()?;
        getgrouplist(&name, Gid::from_raw(group)).ok()
    };
    let listed: Vec<Gid> = listed().unwrap_or_default();
    let mut groups: Vec<u32> = listed.into_iter().map(Gid::as_raw).collect();
    if !groups.contains(&group) {
        groups.push(group);
    }
    groups
}

/// Asks the user database for somebody who is not in it, so that all parts of it that the C
/// library loads when they are first needed are there before that is forbidden.
pub(crate) fn prepare() {
    let nobody = Uid::from_raw(NO_USER);
    let _ = User::from_uid(nobody);
    let _ = getgrouplist(c"no user has this name", Gid::from_raw(NO_USER));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The user database's own files say the same.
    #[test]
    fn groups_are_those_of_the_user_database_and_the_one_it_came_with() {
        assert_eq!(groups_of(NO_USER, 12345), [12345]);
        let lines = |path: &str| {
            let text = std::fs::read_to_string(path).expect("every Linux has it");
            let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
            text.lines().map(fields).filter(|fields| fields.len() >= 4).collect::<Vec<_>>()
        };
        let groups = lines("/etc/group");
        for user in lines("/etc/passwd") {
            let [id, own] = [&user[2], &user[3]].map(|text| text.parse::<u32>().expect("a number"));
            if lines("/etc/passwd").iter().find(|other| other[2] == user[2]) != Some(&user) {
                continue; // a second name for the same user
            }
            let found = groups_of(id, own);
            let listed =
                groups.iter().filter(|group| group[3].split(',').any(|name| name == user[0]));
            for group in listed.map(|group| group[2].parse::<u32>().expect("a number")) {
                assert!(found.contains(&group), "{} is in {group}, not only in {found:?}", user[0]);
            }
            assert_eq!(found.iter().filter(|group| **group == own).count(), 1, "{}", user[0]);
            let other = groups_of(id, 54321);
            assert!(other.contains(&54321));
        }
    }

    #[test]
    fn peer_credentials_are_those_of_the_process_that_connected() {
        let (one, _two) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
        let peer = peer_of(&one).expect("credentials");
        assert_eq!(peer.user, rustix::process::getuid().as_raw());
        assert_eq!(peer.process, rustix::process::getpid().as_raw_pid());
        assert!(peer.groups.contains(&rustix::process::getgid().as_raw()));
    }
}
