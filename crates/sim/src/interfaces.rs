//! The virtual interfaces of a host: what its engines agree about, and a NIC that says no now and
//! then.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use clearway_channel::Code;
use clearway_channel::control::Refusal;
use clearway_classify::registry::Limits;
use clearway_control::Vifs;
use clearway_engine::{State, ip};

/// Comparisons at a time: few, so that a check takes several.
const COMPARISONS: usize = 8;

/// Interfaces and captures, and what the NIC was asked for.
pub(crate) struct Interfaces {
    pub(crate) vifs: Vifs,
    /// Those whose ports were taken from the kernel, and those whose frames come to the engines.
    claimed: BTreeSet<u32>,
    steered: BTreeSet<u32>,
}

/// Whose interfaces are, by their numbers: the engine and the channel there.
pub(crate) type Owners = BTreeMap<u32, (usize, u32)>;

impl Interfaces {
    /// None, on a NIC of so many engines.
    pub(crate) fn new(engines: usize, interface: &ip::Config, udp_port: u16) -> Self {
        let mut vifs = Vifs::new(iter::once(0..engines), Limits::default());
        vifs.reserve(0, interface, udp_port);
        Self { vifs, claimed: BTreeSet::new(), steered: BTreeSet::new() }
    }

    /// Compares what is wanted with what others have.
    pub(crate) fn compare(&mut self) {
        while self.vifs.is_checking() {
            self.vifs.advance(COMPARISONS);
        }
    }

    /// Takes the ports of an interface from the kernel, or not.
    pub(crate) fn claim(&mut self, number: u32, refuses: bool) {
        assert!(refuses || self.claimed.insert(number), "interface {number}: claimed twice");
        self.vifs.handle_claimed(number, answer(refuses));
    }

    /// Has the frames of an interface come to the engines, or not.
    pub(crate) fn steer(&mut self, number: u32, refuses: bool) {
        assert!(self.claimed.contains(&number), "interface {number}: steered, and not claimed");
        assert!(refuses || self.steered.insert(number), "interface {number}: steered twice");
        self.vifs.handle_steered(number, answer(refuses));
    }

    pub(crate) fn unsteer(&mut self, number: u32) {
        self.steered.remove(&number);
    }

    /// No engine has it any more.
    pub(crate) fn release(&mut self, number: u32) {
        assert!(!self.steered.contains(&number), "interface {number}: gone, and steered");
        self.claimed.remove(&number);
    }

    /// What each engine has to know; nothing if they are just being told.
    pub(crate) fn agreed(&self) -> Option<Owners> {
        let owners = self.vifs.owners();
        let owners = owners.map(|(number, owner)| (number, (owner.engine, owner.channel)));
        self.vifs.is_settled().then(|| owners.collect())
    }

    /// Finds what is left once all apps have gone.
    pub(crate) fn audit_rest(&self) -> Result<(), String> {
        let owners = self.vifs.owners().count();
        let left = (owners, self.claimed.len(), self.steered.len());
        if left == (0, 0, 0) {
            return Ok(());
        }
        Err(format!("interfaces, claimed ones and steered ones are left: {left:?}"))
    }
}

fn answer(refuses: bool) -> Result<(), Refusal> {
    let refusal = || Refusal { code: Code::Refused, message: "the NIC has no room".into() };
    if refuses { Err(refusal()) } else { Ok(()) }
}

/// Finds where an engine and its control plane, which has `agreed` with it, do not agree.
pub(crate) fn compare_known(engine: &State, agreed: &Owners) -> Result<(), String> {
    let index = engine.engine;
    let own = engine.frames.vifs.iter().map(|vif| (vif.vif, index, vif.channel));
    let others = engine.sibling_vifs.iter().map(|vif| (vif.vif, vif.engine, vif.channel));
    let captures = engine.captures.iter();
    let captures =
        captures.map(|capture| (capture.vif, capture.engine.unwrap_or(index), capture.channel));
    let known = own.chain(others).chain(captures);
    let known: Owners =
        known.map(|(number, engine, channel)| (number, (engine as usize, channel))).collect();
    if known == *agreed {
        return Ok(());
    }
    Err(format!("engine {index} knows the interfaces {known:?} of {agreed:?}"))
}
