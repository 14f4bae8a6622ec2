//! How interfaces and captures end: by their app, by an administrator, or with their channel.

use clearway_channel::Code;
use clearway_channel::control::{CloseVif, Empty, Refusal, Reply};
use clearway_engine::Request as EngineRequest;

use super::super::ControlPlane;
use super::super::requests::{not_attached, refusal};
use super::super::session::{Session, Waiting};
use super::Stage;

impl ControlPlane {
    pub(in crate::control) fn close_vif(
        &mut self,
        token: u64,
        close: &CloseVif,
    ) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get(&token) else { return Ok(()) };
        let attached = session.attached.as_ref().ok_or_else(not_attached)?;
        let (engine, channel, vif) = (attached.engine, attached.channel, close.vif);
        if !self.nic_of(engine).vifs.is_of(vif, channel) {
            let text = format!("there is no interface {vif}; use the number from `vif_opened`");
            return Err(refusal(Code::Invalid, text));
        }
        self.begin_closing(token, engine, vif, None);
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
        let found = self.nics.iter().find_map(|nic| nic.vifs.table.get(&number));
        let Some(vif) = found else {
            let text = format!("there is no interface {number}; `clearway vif list` shows them");
            return Err(refusal(Code::Invalid, text));
        };
        if vif.stage != Stage::Open {
            let text = format!("interface {number} is being opened or closed just now; try again");
            return Err(refusal(Code::Invalid, text));
        }
        tracing::info!(app = vif.app, number, user = session.peer.user, "interface taken away");
        let engine = vif.engine;
        self.begin_closing(token, engine, number, Some(Code::Denied));
        Ok(())
    }

    /// `told` is what its app is told, if that did not ask for it.
    fn begin_closing(&mut self, token: u64, engine: usize, number: u32, told: Option<Code>) {
        if let Some(session) = self.sessions.get_mut(&token) {
            session.waiting = Waiting::ClosingVif(number);
        }
        self.close_at_engines(engine, number, told);
    }

    /// Gives its frames back, and has all engines of the NIC forget it. Others may have its
    /// patterns: each engine hears of this before it hears of them.
    pub(super) fn close_at_engines(&mut self, engine: usize, number: u32, told: Option<Code>) {
        let nic = &mut self.nics[self.engines[engine].nic];
        nic.unsteer(number);
        nic.vifs.unregister(number);
        let Some(vif) = nic.vifs.table.get_mut(&number) else { return };
        vif.stage = Stage::Closing(nic.engines.len());
        let channel = vif.channel;
        for engine in &mut self.engines[nic.engines.clone()] {
            engine.post(EngineRequest::CloseVif { channel, vif: number, told });
        }
    }

    /// An engine has forgotten an interface.
    pub(in crate::control) fn vif_closed(&mut self, engine: usize, number: u32) {
        let nic = self.nic_of_mut(engine);
        let Some(vif) = nic.vifs.table.get_mut(&number) else { return };
        let Stage::Closing(answers_left) = &mut vif.stage else { return };
        *answers_left -= 1;
        if *answers_left == 0 {
            nic.release(number);
            self.forget_vif(engine, number);
            self.tell_closed(number);
        }
    }

    /// Nobody has it any more, and nothing of it is left.
    pub(super) fn forget_vif(&mut self, engine: usize, number: u32) {
        if let Some(vif) = self.nic_of_mut(engine).vifs.table.remove(&number) {
            self.accounts.close_vifs(vif.user, 1);
        }
    }

    /// Tells those who wait for it that an interface is no more: the app whose it was, or who took
    /// it away, or both.
    fn tell_closed(&mut self, number: u32) {
        let waits = |session: &Session| matches!(session.waiting, Waiting::ClosingVif(awaited) if awaited == number);
        let waiting = self.sessions.iter().filter(|(_, session)| waits(session));
        for token in waiting.map(|(token, _)| *token).collect::<Vec<_>>() {
            self.reply(token, &Reply::VifClosed(Empty {}));
        }
    }

    /// A channel is going, and all that it has.
    pub(in crate::control) fn forget_vifs(&mut self, engine: usize, channel: u32) {
        let of_channel = self.nic_of(engine).vifs.table.iter();
        let of_channel = of_channel.filter(|(_, vif)| vif.channel == channel);
        let stages: Vec<_> = of_channel.map(|(number, vif)| (*number, vif.stage)).collect();
        for (number, stage) in stages {
            match stage {
                Stage::Checking(check) => {
                    self.nic_of_mut(engine).vifs.cancel(check);
                    self.forget_vif(engine, number);
                }
                Stage::Opening(_) | Stage::Open => self.close_at_engines(engine, number, None),
                Stage::Closing(_) => {}
            }
        }
    }
}
