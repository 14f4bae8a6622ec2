//! Where the groups of who connects come from.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use clearway_channel::Code;

use super::admission::Admission;
use super::requests::refusal;
use super::session::Session;
use super::{ControlPlane, GROUPS};
use crate::Error;
use crate::broker::Groups;
use crate::policy::Peer;

/// Where they come from.
#[derive(Debug)]
pub(super) enum GroupSource {
    /// The policy is about users only.
    NotNeeded,
    /// The process is another program's, which may read the user database itself.
    ThisProcess,
    /// The broker, which is asked and answers later.
    Broker(Groups),
}

impl ControlPlane {
    /// Groups are looked up by the broker from now on. Before [`ControlPlane::run`].
    pub(super) fn look_up_by(&mut self, groups: Groups) -> Result<(), Error> {
        self.watch(groups.as_fd(), GROUPS)
            .map_err(|error| Error::resources("wait for the broker", error))?;
        self.group_source = GroupSource::Broker(groups);
        Ok(())
    }

    /// Opens a session for a connection, now or when the groups of its user are known.
    pub(super) fn admit(&mut self, socket: OwnedFd, mut peer: Peer) {
        if self.accounts.is_administrator(&peer) {
            return self.open_session(socket, peer);
        }
        match &self.group_source {
            GroupSource::NotNeeded => self.open_session(socket, peer),
            GroupSource::ThisProcess => {
                peer.groups = Peer::groups_of(peer.user, peer.groups[0]);
                self.open_session(socket, peer);
            }
            GroupSource::Broker(_) => match self.admissions.admit(socket, peer, Instant::now()) {
                Admission::Now(socket, peer) => self.open_session(socket, peer),
                Admission::Waits => self.ask_for_groups(),
                Admission::Full(socket, peer) => {
                    let text = "too many connections of this user wait to be let in; try again";
                    Session::new(socket, peer).refuse(&refusal(Code::Limit, text));
                }
            },
        }
    }

    fn ask_for_groups(&mut self) {
        let GroupSource::Broker(groups) = &self.group_source else { return };
        while let Some(question) = self.admissions.next_question() {
            if let Err(error) = groups.ask(question) {
                tracing::error!(
                    %error,
                    "the broker, which looks up groups, has gone: only users that the policy names \
                     may attach; restart the daemon"
                );
                self.group_source = GroupSource::NotNeeded;
                return;
            }
        }
    }

    /// The broker has answered.
    pub(super) fn take_groups(&mut self) {
        while let GroupSource::Broker(groups) = &self.group_source {
            match groups.answer() {
                Ok(Some((of, groups))) => {
                    for (socket, peer) in self.admissions.answer(of, groups, Instant::now()) {
                        self.open_session(socket, peer);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(
                        %error,
                        "the broker, which looks up groups, has gone: only users that the policy \
                         names may attach; restart the daemon"
                    );
                    self.group_source = GroupSource::NotNeeded;
                }
            }
        }
        self.ask_for_groups();
    }
}
