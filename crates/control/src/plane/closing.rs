//! How interfaces and captures end: by their app, by an administrator, with their channel, or with
//! an engine.

use clearway_channel::Code;
use clearway_channel::control::{CloseVif, Empty, Refusal, Reply};

use super::interfaces::Granted;
use super::{Plane, Step};
use crate::refusal::refusal;
use crate::session::Waiting;
use crate::steered::Lost;

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

    /// A NIC has another Ethernet address: interfaces that may send from the one before are no
    /// more, and their apps open others. Those that only receive, or have an address of their own,
    /// go on.
    pub(super) fn take_back_senders(&mut self, nic: usize) {
        let is_one = |vif: &Granted| vif.nic == nic && vif.sends_as_nic();
        let senders = self.grants.iter().filter(|(_, vif)| is_one(vif));
        for number in senders.map(|(number, _)| *number).collect::<Vec<_>>() {
            let text = "the NIC has got another Ethernet address meanwhile; open it again";
            let why = refusal(Code::AddressUnavailable, text);
            self.vifs.take_back(number, Code::AddressUnavailable, why);
        }
        self.gather();
    }

    /// A NIC that was opened again does not give what it gave before: interfaces that had it are no
    /// more, and their apps are told.
    pub fn handle_lost(&mut self, nic: usize, lost: Lost, code: Code, why: &str) {
        let had = self.grants.iter().filter(|(_, vif)| vif.nic == nic && vif.has(lost));
        for number in had.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.vifs.take_back(number, code, refusal(code, why));
        }
        self.gather();
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
