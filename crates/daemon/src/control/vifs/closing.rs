//! How interfaces and captures end: by their app, by an administrator, with their channel, or with
//! an engine.

use clearway_channel::Code;
use clearway_channel::control::{CloseVif, Empty, Refusal, Reply};

use super::super::requests::{not_attached, refusal};
use super::super::session::Waiting;
use super::super::{ControlPlane, NicSlot};

impl ControlPlane {
    pub(in crate::control) fn close_vif(
        &mut self,
        token: u64,
        close: &CloseVif,
    ) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get(&token) else { return Ok(()) };
        let attached = session.attached.as_ref().ok_or_else(not_attached)?;
        let number = close.vif;
        let is_its = self.vifs.owner(number).is_some_and(|own| own.channel == attached.channel);
        if !is_its || !self.vifs.close(number, None) {
            let text = format!("there is no interface {number}; use the number from `vif_opened`");
            return Err(refusal(Code::Invalid, text));
        }
        self.await_closing(token, number);
        Ok(())
    }

    /// Takes an interface or a capture away from whoever has it.
    pub(in crate::control) fn revoke_vif(
        &mut self,
        token: u64,
        revoke: &CloseVif,
    ) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get(&token) else { return Ok(()) };
        self.accounts.may_revoke(&session.peer)?;
        let number = revoke.vif;
        let Some(vif) = self.grants.get(&number) else {
            let text = format!("there is no interface {number}; `clearway vif list` shows them");
            return Err(refusal(Code::Invalid, text));
        };
        if !self.vifs.close(number, Some(Code::Denied)) {
            let text = format!("interface {number} is being opened or closed just now; try again");
            return Err(refusal(Code::Invalid, text));
        }
        tracing::info!(app = vif.app, number, user = session.peer.user, "interface taken away");
        self.await_closing(token, number);
        Ok(())
    }

    fn await_closing(&mut self, token: u64, number: u32) {
        if let Some(session) = self.sessions.get_mut(&token) {
            session.waiting = Waiting::ClosingVif(number);
        }
        self.advance_vifs();
    }

    /// An engine has forgotten an interface.
    pub(in crate::control) fn vif_closed(&mut self, engine: usize, number: u32) {
        self.vifs.handle_closed(engine, number);
        self.advance_vifs();
    }

    /// A channel is going, and all that it has.
    pub(in crate::control) fn forget_vifs(&mut self, engine: usize, channel: u32) {
        self.vifs.forget(engine, channel);
        self.advance_vifs();
    }

    /// An engine is no more: what it has not answered it never will.
    pub(in crate::control) fn forget_engine(&mut self, engine: usize) {
        self.vifs.handle_ended(engine);
        self.advance_vifs();
    }

    /// No engine has it any more, and nothing of it is left. Tells those who wait for that: the app
    /// whose it was, or who took it away, or both.
    pub(super) fn forget_vif(&mut self, number: u32) {
        self.at_nic(number, NicSlot::release);
        if let Some(vif) = self.grants.remove(&number) {
            self.accounts.close_vifs(vif.owner.user, 1);
        }
        let waiting = self.sessions.iter();
        let waiting = waiting.filter(|(_, session)| session.waiting.is_closing(number));
        for token in waiting.map(|(token, _)| *token).collect::<Vec<_>>() {
            self.reply(token, &Reply::VifClosed(Empty {}));
        }
    }
}
