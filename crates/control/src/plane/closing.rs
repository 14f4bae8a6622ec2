//! How interfaces and captures end: by their app, by an administrator, with their channel, or with
//! an engine.

use clearway_channel::Code;
use clearway_channel::control::{CloseVif, Empty, Refusal, Reply};

use super::{Plane, Step};
use crate::refusal::refusal;
use crate::session::Waiting;

impl Plane {
    pub(super) fn close_vif(&mut self, session: u64, close: CloseVif) -> Result<(), Refusal> {
        let Some(asks) = self.sessions.get(&session) else { return Ok(()) };
        let channel = asks.attached_or_refused()?.place.channel;
        let number = close.vif;
        let is_its = self.vifs.owner(number).is_some_and(|owner| owner.channel == channel);
        if !is_its || !self.vifs.close(number, None) {
            let text = format!(
                "this channel has no virtual interface or TCP port {number}; use the number that \
                 it was given when it was opened"
            );
            return Err(refusal(Code::Invalid, text));
        }
        self.await_closing(session, number);
        Ok(())
    }

    /// Takes an interface or a capture away from whoever has it.
    pub(super) fn revoke_vif(&mut self, session: u64, revoke: CloseVif) -> Result<(), Refusal> {
        let Some(asks) = self.sessions.get(&session) else { return Ok(()) };
        self.accounts.may_revoke(&asks.peer)?;
        let number = revoke.vif;
        if !self.grants.contains_key(&number) {
            let text = format!("there is no interface {number}; `clearway vif list` shows them");
            return Err(refusal(Code::Invalid, text));
        }
        if !self.vifs.close(number, Some(Code::Denied)) {
            let text = format!("interface {number} is being opened or closed just now; try again");
            return Err(refusal(Code::Invalid, text));
        }
        self.await_closing(session, number);
        Ok(())
    }

    fn await_closing(&mut self, session: u64, number: u32) {
        if let Some(asks) = self.sessions.get_mut(&session) {
            asks.waiting = Waiting::ClosingVif(number);
        }
        self.gather();
    }

    /// No engine has it any more, and nothing of it is left. Tells those who wait for that: the app
    /// whose it was, or who took it away, or both.
    pub(super) fn forget_vif(&mut self, number: u32) -> Option<Step> {
        let ports = self.give_ports_back(number)?;
        let vif = self.grants.remove(&number)?;
        if !vif.is_part {
            self.accounts.close_vifs(vif.owner.user, 1);
        }
        let waiting = self.sessions.iter();
        let waiting = waiting.filter(|(_, session)| session.waiting == Waiting::ClosingVif(number));
        for session in waiting.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.reply(session, Reply::VifClosed(Empty {}));
        }
        (!ports.is_empty()).then_some(Step::Release { nic: vif.nic, ports })
    }
}
