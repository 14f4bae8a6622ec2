//! Where the groups of who connects come from.

use std::time::Instant;

use clearway_channel::Code;
use clearway_control::policy::Peer;
use clearway_nic::strangers;

use super::ControlPlane;
use super::admission::Admission;
use super::requests::refusal;
use super::session::Session;
use crate::users;

/// Where they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupSource {
    /// The process is another program's, which may read the user database itself.
    ThisProcess,
    /// The broker, which is asked and answers later.
    Broker,
    /// Nowhere: there was a broker.
    Nowhere,
}

impl ControlPlane {
    /// Opens a session for a connection, now or when the groups of its user are known.
    pub(super) fn admit(&mut self, socket: strangers::Socket, mut peer: Peer) {
        if self.plane.is_administrator(&peer) || !self.config.policy.names_groups() {
            return self.open_session(socket, peer);
        }
        match self.group_source {
            GroupSource::ThisProcess => {
                peer.groups = users::groups_of(peer.user, peer.groups[0]);
                return self.open_session(socket, peer);
            }
            GroupSource::Nowhere => return turn_away(socket, peer),
            GroupSource::Broker => {}
        }
        match self.admissions.admit(socket, peer, Instant::now()) {
            Admission::Now(socket, peer) => self.open_session(socket, peer),
            Admission::Waits => self.ask_for_groups(),
            Admission::Full(socket, peer) => {
                let text = "too many connections of this user wait to be let in; try again";
                Session::new(socket, peer).refuse(&refusal(Code::Limit, text));
            }
        }
    }

    fn ask_for_groups(&mut self) {
        while let Some(manager) = &self.manager
            && let Some(question) = self.admissions.next_question()
        {
            if let Err(error) = manager.broker.groups.ask(question) {
                return self.lose_broker(&error);
            }
        }
    }

    /// Nobody's groups will be known any more, so that nobody has to wait for them.
    pub(super) fn lose_groups(&mut self) {
        self.group_source = GroupSource::Nowhere;
        for (socket, peer) in self.admissions.give_up() {
            turn_away(socket, peer);
        }
    }

    /// The broker has answered.
    pub(super) fn take_groups(&mut self) {
        while let Some(manager) = &self.manager {
            match manager.broker.groups.answer() {
                Ok(Some((of, groups))) => {
                    for (socket, peer) in self.admissions.answer(of, groups, Instant::now()) {
                        self.open_session(socket, peer);
                    }
                }
                Ok(None) => break,
                Err(error) => self.lose_broker(&error),
            }
        }
        self.ask_for_groups();
    }
}

/// Rules may let in or keep out the members of groups, and it is not known who they are.
fn turn_away(socket: strangers::Socket, peer: Peer) {
    let text = "the daemon cannot find out any more which groups this user is in, and its policy \
                names groups; restart the daemon";
    Session::new(socket, peer).refuse(&refusal(Code::DaemonGone, text));
}
