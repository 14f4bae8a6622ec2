//! Virtual interfaces and captures: from what an app was granted to what all engines of its NIC
//! know, and back.
//!
//! ```text
//!  open ─▶ registry, in slices ─▶ Claim ─▶ engines ─▶ Steer ─▶ Opened
//!            │                      │         │         │
//!            └─ no                  └─ no     └─ no     └─ no ─▶ Refused; closed again
//!
//!  close, forget ─▶ Unsteer ─▶ engines ─▶ Gone
//! ```
//!
//! The registry of a NIC decides whether patterns collide; engines take in what it has registered.
//! Every engine of a NIC knows all its interfaces, since frames may come in anywhere. A capture
//! takes nothing from anybody: it is not registered, and the NIC is asked for nothing.
//!
//! An interface is of one NIC. A TCP port is had on several: on each besides its app's it has a
//! part with a number of its own, which goes the way of an interface. It is open when all parts
//! are, and refused when one is.
//!
//! The order matters: a port is the kernel's until nobody but the interface can have it, and again
//! only when no engine sends from it any more. Frames are steered to the engines only when somebody
//! takes them there, and go back to the kernel before nobody does. What is closed is free for
//! others at once, since each engine hears of the closing before it hears of them.

mod registered;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use clearway_channel::Code;
use clearway_channel::control::Refusal;
use clearway_classify::registry::{self, CheckId, Limits, OwnerId, VifId};
use clearway_engine::{CaptureSpec, Request, TcpPortSpec, VifRefused, VifSpec};

use registered::Registered;

/// Captures on a NIC: every packet is compared with the filters of each.
const CAPTURES_MAX: usize = 16;

/// The virtual interfaces and captures of a host, each by a number that no other has.
///
/// Calls, in any order: [`open`](Self::open), [`open_capture`](Self::open_capture) and
/// [`close`](Self::close) for what apps ask, [`forget`](Self::forget) for those that are gone,
/// `handle_*` for what engines and the NIC answer, [`advance`](Self::advance) while it
/// [`is_checking`](Self::is_checking); after each, [`poll_step`](Self::poll_step) until there is
/// nothing to do. Steps are carried out in their order, and each of a NIC before what engines are
/// asked after it.
#[derive(Debug)]
pub struct Vifs {
    nics: Vec<Nic>,
    /// On each of them.
    limits: Limits,
    table: BTreeMap<u32, Vif>,
    number_next: u32,
    steps: VecDeque<VifStep>,
}

/// Whose an interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VifOwner {
    /// The engine of its app.
    pub engine: usize,
    /// Its app's channel there; no two of a host have the same.
    pub channel: u32,
    /// On whose account it goes.
    pub user: u32,
}

/// What is to be done next. Each number that was given out is [`VifStep::Opened`] or
/// [`VifStep::Refused`] at most once, and [`VifStep::Gone`] once in the end.
#[derive(Debug)]
pub enum VifStep {
    /// Ask an engine.
    Ask {
        /// Its index among the host's.
        engine: usize,
        /// What it is asked.
        request: Request,
    },
    /// Take the ports that it is about from the kernel's programs, all or none. Answered by
    /// [`Vifs::handle_claimed`].
    Claim(u32),
    /// Have the NIC give its frames to the engines, all or none. Answered by
    /// [`Vifs::handle_steered`].
    Steer(u32),
    /// Give its frames back to the kernel, those that were steered.
    Unsteer(u32),
    /// It is open: tell its app.
    Opened(u32),
    /// It will not be open, and no engine has it: tell its app why. Its [`VifStep::Gone`] is next.
    Refused(u32, VifError),
    /// No engine has it any more: give back the ports that were claimed, and tell whoever waits for
    /// that.
    Gone(u32),
}

/// Why an interface or a capture is not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VifError {
    /// Others have what it wants, or there would be too much.
    Registry(registry::Refusal),
    /// So many captures run on the NIC already as there may be.
    Captures(usize),
    /// The app has this TCP port already.
    TcpPort(u16),
    /// The kernel or the NIC does not let it have its ports or its frames.
    Nic(Refusal),
    /// An engine does not take it.
    Engine(VifRefused),
}

/// The engines of a NIC, and who may have which patterns there.
#[derive(Debug)]
struct Nic {
    engines: BTreeSet<usize>,
    registered: Registered,
}

/// An interface or a capture, in the engines or on its way there or back.
#[derive(Debug)]
struct Vif {
    nic: usize,
    owner: VifOwner,
    spec: Spec,
    stage: Stage,
    /// As whose it is registered, with others who share its TCP port.
    group: Option<OwnerId>,
    /// In the registry.
    registered: Option<VifId>,
    /// Of a TCP port, what is of other NICs and not gone yet.
    parts: Vec<u32>,
    /// It is such a part of this one.
    part_of: Option<u32>,
    /// Why it is not opened; its app is told when it is gone.
    refused: Option<VifError>,
}

/// What a TCP port has on a NIC that is not its app's.
#[derive(Clone, Debug)]
pub struct PortPart {
    /// The index of the NIC.
    pub nic: usize,
    /// What is received there, and what may be sent from there.
    pub rights: VifSpec,
}

/// Owners from here on are groups of those who share a TCP port; those below are channels.
const GROUPS: u32 = 1 << 31;

#[derive(Clone, Debug)]
enum Spec {
    Vif(Box<VifSpec>),
    TcpPort(Box<TcpPortSpec>),
    Capture(Box<CaptureSpec>),
}

/// How far an interface has come.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// It is compared with all others.
    Checking(CheckId),
    /// Its ports are being taken from the kernel's programs.
    Claiming,
    /// These engines have to say yet that they have it.
    Opening(BTreeSet<usize>),
    /// The NIC is being asked for its frames.
    Steering,
    Open,
    /// These engines have to say yet that they do not have it any more.
    Closing(BTreeSet<usize>),
}

impl Nic {
    fn new(engines: Range<usize>, limits: Limits) -> Self {
        Self { engines: engines.collect(), registered: Registered::new(limits) }
    }
}

impl Vifs {
    /// None on NICs that these engines serve, with these limits on each.
    #[must_use]
    pub fn new(nics: impl IntoIterator<Item = Range<usize>>, limits: Limits) -> Self {
        Self {
            nics: nics.into_iter().map(|engines| Nic::new(engines, limits)).collect(),
            limits,
            table: BTreeMap::new(),
            number_next: 1,
            steps: VecDeque::new(),
        }
    }

    /// Other limits hold on each NIC from now on. Who has more keeps it.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.nics.iter_mut().for_each(|nic| nic.registered.set_limits(limits));
    }

    /// A NIC has come to the host, which these engines serve.
    pub fn add_nic(&mut self, engines: Range<usize>) {
        self.nics.push(Nic::new(engines, self.limits));
    }

    /// Has an interface opened that the policy allows, on the NIC of its app's engine. Returns its
    /// number; what comes of it is told later.
    ///
    /// # Errors
    /// If the host itself has what it wants, or there would be too much.
    pub fn open(&mut self, owner: VifOwner, spec: VifSpec) -> Result<u32, VifError> {
        let nic = self.nic_of(owner.engine)?;
        let number = self.unused_number();
        let check = self.nics[nic].registered.begin(number, OwnerId(owner.channel), owner, &spec);
        let stage = Stage::Checking(check.map_err(VifError::Registry)?);
        self.insert(number, Vif::new(nic, owner, Spec::Vif(Box::new(spec)), stage));
        Ok(number)
    }

    /// The same for a TCP port: whose it is, who may send from it and where its frames go is as
    /// with an interface of the same filters; but it is the engine's TCP that has it. If it
    /// `is_shared`, other apps of the same user, which say so, too, can have it besides, at any
    /// engine of the host. It has `parts` on other NICs, each of which some engine serves. Returns
    /// its number, and those of its parts.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_tcp_port(
        &mut self,
        owner: VifOwner,
        spec: TcpPortSpec,
        parts: Vec<PortPart>,
        is_shared: bool,
    ) -> Result<(u32, Vec<u32>), VifError> {
        let nic = self.nic_of(owner.engine)?;
        // To others it is refused by the registry, where an owner's own filters may overlap.
        if self.ports_at(&spec).any(|vif| vif.owner == owner) {
            return Err(VifError::TcpPort(spec.port));
        }
        let of_parts: Vec<_> = parts
            .into_iter()
            .map(|PortPart { nic, rights }| (nic, TcpPortSpec { rights, ..spec.clone() }))
            .collect();
        let number = self.begin_port(nic, owner, spec, is_shared)?;
        for (nic, spec) in of_parts {
            match self.begin_port(nic, owner, spec, is_shared) {
                Ok(part) => self.join(number, part),
                Err(why) => {
                    self.drop_all(number);
                    return Err(why);
                }
            }
        }
        let parts = self.table.get(&number).map_or(Vec::new(), |vif| vif.parts.clone());
        Ok((number, parts))
    }

    /// Begins to compare a TCP port, or a part of one, with what others have on a NIC.
    fn begin_port(
        &mut self,
        nic: usize,
        owner: VifOwner,
        spec: TcpPortSpec,
        is_shared: bool,
    ) -> Result<u32, VifError> {
        let group = is_shared.then(|| self.group(nic, owner, &spec));
        let number = self.unused_number();
        let registered_as = group.unwrap_or(OwnerId(owner.channel));
        let check = self.nics[nic].registered.begin(number, registered_as, owner, &spec.rights);
        let stage = Stage::Checking(check.map_err(VifError::Registry)?);
        let spec = Spec::TcpPort(Box::new(spec));
        self.insert(number, Vif { group, ..Vif::new(nic, owner, spec, stage) });
        Ok(number)
    }

    fn join(&mut self, whole: u32, part: u32) {
        self.table.get_mut(&part).into_iter().for_each(|vif| vif.part_of = Some(whole));
        self.table.get_mut(&whole).into_iter().for_each(|vif| vif.parts.push(part));
    }

    /// It has not been told to anybody that there is such a port.
    fn drop_all(&mut self, whole: u32) {
        for number in self.all_of(whole) {
            self.unregister(number);
            self.table.remove(&number);
        }
    }

    /// What is opened and closed together with one, that one included; the whole port is first.
    fn all_of(&self, number: u32) -> Vec<u32> {
        let whole = self.whole(number);
        let parts = self.table.get(&whole).into_iter().flat_map(|vif| vif.parts.iter().copied());
        std::iter::once(whole).chain(parts).collect()
    }

    /// The port that one is a part of, or itself.
    fn whole(&self, number: u32) -> u32 {
        self.table.get(&number).and_then(|vif| vif.part_of).unwrap_or(number)
    }

    /// The TCP ports at the place of `port`.
    fn ports_at(&self, port: &TcpPortSpec) -> impl Iterator<Item = &Vif> {
        let place = (port.port, port.address);
        self.table.values().filter(move |vif| match &vif.spec {
            Spec::TcpPort(had) => (had.port, had.address) == place,
            _ => false,
        })
    }

    /// Those of a user who share a TCP port of a NIC, a new group if nobody does.
    fn group(&self, nic: usize, owner: VifOwner, port: &TcpPortSpec) -> OwnerId {
        let is_there =
            |vif: &&Vif| vif.nic == nic && vif.owner.user == owner.user && !vif.is_closing();
        let found = self.ports_at(port).filter(is_there).find_map(|vif| vif.group);
        found.unwrap_or_else(|| {
            let used: BTreeSet<u32> =
                self.table.values().filter_map(|vif| Some(vif.group?.0)).collect();
            let unused = (GROUPS..=u32::MAX).find(|group| !used.contains(group));
            OwnerId(unused.expect("there are not so many interfaces"))
        })
    }

    /// The same for a capture.
    ///
    /// # Errors
    /// If there are as many as there may be.
    pub fn open_capture(&mut self, owner: VifOwner, spec: CaptureSpec) -> Result<u32, VifError> {
        let nic = self.nic_of(owner.engine)?;
        let of_nic = |vif: &&Vif| vif.nic == nic && vif.is_capture();
        if self.table.values().filter(of_nic).count() >= CAPTURES_MAX {
            return Err(VifError::Captures(CAPTURES_MAX));
        }
        let number = self.unused_number();
        let stage = Stage::Opening(BTreeSet::new());
        let spec = Spec::Capture(Box::new(spec));
        self.insert(number, Vif::new(nic, owner, spec, stage));
        self.ask_to_open(number);
        Ok(number)
    }

    fn nic_of(&self, engine: usize) -> Result<usize, VifError> {
        let serves = |nic: &Nic| nic.engines.contains(&engine);
        self.nics.iter().position(serves).ok_or(VifError::Engine(VifRefused::NoChannel))
    }

    fn unused_number(&self) -> u32 {
        let mut number = self.number_next;
        // In C, 0 stands for none.
        while number == 0 || self.table.contains_key(&number) {
            number = number.wrapping_add(1);
        }
        number
    }

    fn insert(&mut self, number: u32, vif: Vif) {
        self.number_next = number.wrapping_add(1);
        self.table.insert(number, vif);
    }

    /// The ports of an interface are its, or why not.
    pub fn handle_claimed(&mut self, number: u32, result: Result<(), Refusal>) {
        if self.stage(number) != Some(&Stage::Claiming) {
            return; // its app has gone meanwhile
        }
        match result {
            Ok(()) => self.ask_to_open(number),
            Err(refusal) => self.refuse(number, VifError::Nic(refusal)),
        }
    }

    /// Asks all engines of the NIC to take it in.
    fn ask_to_open(&mut self, number: u32) {
        let Some(vif) = self.table.get_mut(&number) else { return };
        let engines = self.nics[vif.nic].engines.clone();
        for &engine in &engines {
            let request = vif.request(number, engine);
            self.steps.push_back(VifStep::Ask { engine, request });
        }
        let is_answered = engines.is_empty();
        vif.stage = Stage::Opening(engines);
        if is_answered {
            // The engines of another NIC than the app's have ended meanwhile.
            self.all_have(number);
        }
    }

    /// An engine has taken one in, or not.
    pub fn handle_opened(&mut self, engine: usize, number: u32, result: Result<(), VifRefused>) {
        let Some(Stage::Opening(answers)) = self.stage_mut(number) else { return };
        answers.remove(&engine);
        let is_last = answers.is_empty();
        match result {
            Err(refused) => self.refuse(number, VifError::Engine(refused)),
            Ok(()) if is_last => self.all_have(number),
            Ok(()) => {}
        }
    }

    /// All engines have it: now the NIC.
    fn all_have(&mut self, number: u32) {
        let Some(vif) = self.table.get_mut(&number) else { return };
        match vif.spec {
            Spec::Vif(_) | Spec::TcpPort(_) => {
                vif.stage = Stage::Steering;
                self.steps.push_back(VifStep::Steer(number));
            }
            Spec::Capture(_) => self.has_opened(number),
        }
    }

    /// It is open, and so is all of it if this was the last part.
    fn has_opened(&mut self, number: u32) {
        self.table.get_mut(&number).into_iter().for_each(|vif| vif.stage = Stage::Open);
        let whole = self.whole(number);
        if self.is_open(whole) {
            self.steps.push_back(VifStep::Opened(whole));
        }
    }

    /// The frames of an interface come to the engines, or why not.
    pub fn handle_steered(&mut self, number: u32, result: Result<(), Refusal>) {
        if self.stage(number) != Some(&Stage::Steering) {
            return;
        }
        match result {
            Ok(()) => self.has_opened(number),
            Err(refusal) => self.refuse(number, VifError::Nic(refusal)),
        }
    }

    /// Somebody does not let it be, nor all else of the same port: those who have it are to forget
    /// it, and its app is told when nothing of it is left.
    fn refuse(&mut self, number: u32, why: VifError) {
        let whole = self.whole(number);
        if let Some(vif) = self.table.get_mut(&whole) {
            vif.refused.get_or_insert(why);
        }
        for each in self.all_of(whole) {
            self.withdraw(each);
        }
    }

    /// One that is open is to be no more, and all of the port whose part it is; `told` is what its
    /// app is told, if that did not ask for it. False if there is no such one, or it is not open.
    pub fn close(&mut self, number: u32, told: Option<Code>) -> bool {
        let whole = self.whole(number);
        if !self.is_open(whole) {
            return false;
        }
        for each in self.all_of(whole) {
            self.begin_closing(each, told.filter(|_| each == whole));
        }
        true
    }

    /// One is not any more what its app was granted: it is closed if it is open, and its app told
    /// `told`; refused for this reason if it is being opened.
    pub fn take_back(&mut self, number: u32, told: Code, why: Refusal) {
        let is_closing = self.table.get(&number).is_some_and(Vif::is_closing);
        if !is_closing && !self.close(number, Some(told)) {
            self.refuse(number, VifError::Nic(why));
        }
    }

    /// Has all engines of the NIC forget it. Others may have its patterns: each engine hears of
    /// this before it hears of them.
    fn begin_closing(&mut self, number: u32, told: Option<Code>) {
        self.unregister(number);
        let Some(vif) = self.table.get_mut(&number) else { return };
        if !vif.is_capture() {
            self.steps.push_back(VifStep::Unsteer(number));
        }
        let (engines, channel) = (self.nics[vif.nic].engines.clone(), vif.owner.channel);
        for &engine in &engines {
            let request = Request::CloseVif { channel, vif: number, told };
            self.steps.push_back(VifStep::Ask { engine, request });
        }
        vif.stage = Stage::Closing(engines);
        self.finish_closing(number);
    }

    /// An engine has forgotten one.
    pub fn handle_closed(&mut self, engine: usize, number: u32) {
        let Some(Stage::Closing(answers)) = self.stage_mut(number) else { return };
        answers.remove(&engine);
        self.finish_closing(number);
    }

    /// A port that is closed is gone when its parts are.
    fn finish_closing(&mut self, number: u32) {
        let Some(vif) = self.table.get(&number) else { return };
        let is_closed = matches!(&vif.stage, Stage::Closing(answers) if answers.is_empty());
        if is_closed && vif.parts.is_empty() {
            self.remove(number);
        }
    }

    /// No engine has it.
    fn remove(&mut self, number: u32) {
        self.unregister(number);
        let Some(Vif { refused, part_of, .. }) = self.table.remove(&number) else { return };
        self.steps.extend(refused.map(|why| VifStep::Refused(number, why)));
        self.steps.push_back(VifStep::Gone(number));
        if let Some(whole) = part_of {
            let parts = self.table.get_mut(&whole).map(|vif| &mut vif.parts);
            parts.into_iter().for_each(|parts| parts.retain(|part| *part != number));
            self.finish_closing(whole);
        }
    }

    /// It is to be no more, however far it has come.
    fn withdraw(&mut self, number: u32) {
        match self.stage(number) {
            Some(Stage::Checking(_) | Stage::Claiming) => {
                self.unregister(number);
                if let Some(stage) = self.stage_mut(number) {
                    *stage = Stage::Closing(BTreeSet::new());
                }
                self.finish_closing(number);
            }
            Some(Stage::Opening(_) | Stage::Steering | Stage::Open) => {
                self.begin_closing(number, None);
            }
            Some(Stage::Closing(_)) | None => {}
        }
    }

    /// A channel is going, and all its interfaces with it. Before its engine is asked to remove it.
    pub fn forget(&mut self, engine: usize, channel: u32) {
        let is_its = |vif: &Vif| (vif.owner.engine, vif.owner.channel) == (engine, channel);
        self.forget_all(|_, vif| is_its(vif));
    }

    /// The same for a channel whose app has ended in good order: its TCP ports stay until they are
    /// forgotten, too, so that its connections can end as they should.
    pub fn let_linger(&mut self, engine: usize, channel: u32) {
        let is_its = |vif: &Vif| (vif.owner.engine, vif.owner.channel) == (engine, channel);
        let is_port = |vif: &Vif| matches!(vif.spec, Spec::TcpPort(_));
        let open = self.table.iter().filter(|(_, vif)| is_its(vif) && is_port(vif));
        let stay: BTreeSet<u32> = open
            .map(|(number, _)| *number)
            .filter(|number| self.is_open(self.whole(*number)))
            .collect();
        self.forget_all(|number, vif| is_its(vif) && !stay.contains(&number));
    }

    fn forget_all(&mut self, is_meant: impl Fn(u32, &Vif) -> bool) {
        let meant = self.table.iter().filter(|(number, vif)| is_meant(**number, vif));
        for number in meant.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.withdraw(number);
        }
    }

    /// An engine is no more, and with it what its apps had: it is asked for nothing any more, and
    /// the answers that it owes do not come.
    pub fn handle_ended(&mut self, engine: usize) {
        for nic in &mut self.nics {
            nic.engines.remove(&engine);
        }
        let asks_it =
            |step: &VifStep| matches!(step, VifStep::Ask { engine: asked, .. } if *asked == engine);
        self.steps.retain(|step| !asks_it(step));
        self.forget_all(|_, vif| vif.owner.engine == engine);
        for number in self.table.keys().copied().collect::<Vec<_>>() {
            self.handle_opened(engine, number, Ok(()));
            self.handle_closed(engine, number);
        }
    }

    /// What is to be done next.
    pub fn poll_step(&mut self) -> Option<VifStep> {
        self.steps.pop_front()
    }

    /// Whose an interface or a capture is, from the moment that it has its number until nobody has
    /// it any more.
    #[must_use]
    pub fn owner(&self, number: u32) -> Option<VifOwner> {
        self.table.get(&number).map(|vif| vif.owner)
    }

    /// The index of the NIC that it is on; of a TCP port or a part of one as well.
    #[must_use]
    pub fn nic(&self, number: u32) -> Option<usize> {
        self.table.get(&number).map(|vif| vif.nic)
    }

    /// An interface, or a TCP port, that is registered as this owner's.
    #[must_use]
    pub fn number_of(&self, registered_as: OwnerId) -> Option<u32> {
        let is_its = |vif: &Vif| vif.registered_as() == registered_as;
        self.table.iter().find(|(_, vif)| is_its(vif)).map(|(number, _)| *number)
    }

    /// As whose an interface, or a TCP port, is registered.
    #[must_use]
    pub fn registered_as(&self, number: u32) -> Option<OwnerId> {
        self.table.get(&number).map(Vif::registered_as)
    }

    /// True if it is open, on all its NICs.
    #[must_use]
    pub fn is_open(&self, number: u32) -> bool {
        let is_open = |number: &u32| self.stage(*number) == Some(&Stage::Open);
        let Some(vif) = self.table.get(&number) else { return false };
        vif.stage == Stage::Open && vif.parts.iter().all(is_open)
    }

    /// All numbers that are somebody's, and whose.
    pub fn owners(&self) -> impl Iterator<Item = (u32, VifOwner)> + '_ {
        self.table.iter().map(|(number, vif)| (*number, vif.owner))
    }

    /// True if each is open, and there is nothing to do.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.steps.is_empty() && self.table.values().all(|vif| vif.stage == Stage::Open)
    }

    fn stage(&self, number: u32) -> Option<&Stage> {
        self.table.get(&number).map(|vif| &vif.stage)
    }

    fn stage_mut(&mut self, number: u32) -> Option<&mut Stage> {
        self.table.get_mut(&number).map(|vif| &mut vif.stage)
    }
}

impl Vif {
    /// One of a single NIC.
    fn new(nic: usize, owner: VifOwner, spec: Spec, stage: Stage) -> Self {
        Self {
            nic,
            owner,
            spec,
            stage,
            group: None,
            registered: None,
            parts: Vec::new(),
            part_of: None,
            refused: None,
        }
    }

    const fn is_closing(&self) -> bool {
        matches!(self.stage, Stage::Closing(_))
    }

    fn registered_as(&self) -> OwnerId {
        self.group.unwrap_or(OwnerId(self.owner.channel))
    }

    fn is_capture(&self) -> bool {
        matches!(self.spec, Spec::Capture(_))
    }

    /// What an engine is asked for: the one that serves the app, or another of the NIC's.
    fn request(&self, vif: u32, asked: usize) -> Request {
        let VifOwner { engine, channel, .. } = self.owner;
        match self.spec.clone() {
            Spec::Vif(spec) if asked == engine => Request::OpenVif { channel, vif, spec },
            Spec::Vif(spec) => Request::NoteVif { engine, channel, vif, spec },
            Spec::TcpPort(spec) if asked == engine => {
                Request::OpenTcpPort { channel, number: vif, spec }
            }
            // What comes to another NIC, its engines give to the port's.
            Spec::TcpPort(spec) if self.group.is_some() || self.part_of.is_some() => {
                Request::NoteTcpPort { engine, channel, number: vif, spec }
            }
            // The others have to know where its frames go, and no more.
            Spec::TcpPort(spec) => {
                let spec = Box::new(spec.rights);
                Request::NoteVif { engine, channel, vif, spec }
            }
            Spec::Capture(spec) if asked == engine => Request::OpenCapture { channel, vif, spec },
            Spec::Capture(spec) => Request::NoteCapture { engine, channel, vif, spec },
        }
    }
}
