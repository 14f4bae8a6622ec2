//! The books of all one-sided operations: what apps share, what others ask of it, and what they are
//! answered. They are the oracle of `docs/operations.md`: words and records have one order that is
//! that of time, an effect comes once at most, and not at all if it has failed; operations of a
//! connection are done and answered in order, and before messages that follow them; nothing is read
//! or written outside of a region, or once it is revoked.
//!
//! | part | what is in it |
//! |---|---|
//! | this file | whose estate is whose, and the order within connections |
//! | `layout` | what an app shares, and where |
//! | `estate` | what one app shares, as it should be |
//! | `question` | what is asked of it, and what may be answered |
//! | `vault`, `prying` | what only some may do something with, and what is asked of that |
//! | `club`, `visiting` | the same of what is shared with groups, whose members change |
//! | `words`, `records` | checkers of histories |

mod club;
mod estate;
mod layout;
mod prying;
mod question;
mod records;
mod vault;
mod visiting;
mod words;

use std::collections::{BTreeMap, VecDeque};

use clearway_base::{Random, Time};
use clearway_channel::{OperationStatus, Shared};

use crate::options::Options;
pub(crate) use estate::Estate;
pub(crate) use layout::{Layout, Region};
pub(crate) use question::{Answer, Question, Words};
pub(crate) use vault::{Neighbourhood, Who};

/// One of so many seeds has operations.
const SEEDS_PERIOD: u64 = 3;
/// One of so many of these has vaults.
const VAULTS_PERIOD: u64 = 2;
/// One of so many of these has clubs.
const CLUBS_PERIOD: u64 = 2;

clearway_base::tally! {
    /// What the apps have seen of operations.
    pub(crate) struct Counts {
        /// Operations that apps asked for.
        operations_asked,
        /// Of these, done.
        operations_done,
        /// Of these, refused by the owner's daemon.
        operations_refused,
        /// Of these, failed, or nobody knows, since the connection ended.
        operations_ended,
        /// Of these, asked while more were outstanding on the connection than are sent at a time.
        operations_rushed,
        /// Long reads and writes that were done.
        operations_long,
        /// Owners told of writes.
        operations_notified,
        /// Leases revoked.
        leases_revoked,
        /// Vaults that were asked by who may.
        vaults_opened,
        /// Vaults that were asked by who may not, and was refused.
        vaults_refused,
        /// Groups whose owner has said who is in them, and was told that it is so.
        groups_set,
        /// Clubs that were asked, by who may.
        clubs_opened,
        /// Clubs that were asked by who was in no group then, and was refused.
        clubs_refused,
        /// Requests for what is in vaults, made up by liars.
        requests_forged,
        /// Adds that were there when a message came that had been sent after them.
        operations_before_messages,
    }
}

/// What one side of a connection has said to the other.
#[derive(Debug, Default)]
struct Said {
    /// Whose estate it asks.
    owner: Option<u32>,
    /// Adds that the owner has not seen: word and slot.
    adds: VecDeque<(usize, usize)>,
    /// How many it has seen.
    seen: u64,
    /// For each message that has not come, how many adds were asked for before it.
    messages: VecDeque<u64>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct OperationBooks {
    /// Apps share and ask.
    pub(crate) is_on: bool,
    /// They have vaults.
    pub(crate) has_vaults: bool,
    /// They have clubs.
    pub(crate) has_clubs: bool,
    /// What is known of each host.
    hosts: Vec<Neighbourhood>,
    estates: BTreeMap<u32, Estate>,
    /// By connection and side.
    said: BTreeMap<(u64, usize), Said>,
    pub(crate) counts: Counts,
}

impl OperationBooks {
    pub(crate) fn new(options: &Options) -> Self {
        let drawn = Random::new(options.seed.rotate_left(16)).chance(1, SEEDS_PERIOD);
        Self {
            is_on: options.operations.unwrap_or(drawn) && !options.tcp,
            has_vaults: Random::new(options.seed.rotate_left(25)).chance(1, VAULTS_PERIOD),
            has_clubs: Random::new(options.seed.rotate_left(29)).chance(1, CLUBS_PERIOD),
            hosts: Vec::new(),
            estates: BTreeMap::new(),
            said: BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    /// There is another host, of the next number.
    pub(crate) fn know(&mut self, host: Neighbourhood) {
        self.hosts.push(host);
    }

    /// An app begins to share.
    pub(crate) fn settle(&mut self, place: (u32, u32), is_large: bool, shared: &Shared, now: Time) {
        let hosts = if self.has_vaults { &self.hosts[..] } else { &[] };
        let of_club = self.has_clubs.then_some(&self.hosts[..]);
        let mut estate = Estate::new(place, is_large, hosts, of_club);
        estate.furnish(shared, now);
        self.estates.insert(place.0, estate);
    }

    pub(crate) fn estate(&mut self, app: u32) -> Option<&mut Estate> {
        self.estates.get_mut(&app)
    }

    /// What the app shares is nothing to go by any more: it lies, or this liar may change it.
    pub(crate) fn taint(&mut self, app: u32, liar: Option<Who>) {
        self.estates.get_mut(&app).into_iter().for_each(|estate| estate.taint(liar));
    }

    /// Is there, in the memory of an app, a secret that it may not read?
    pub(crate) fn search(&self, app: u32, who: Who, memory: &[u8]) -> Result<(), String> {
        let owners = vault::owners_of_secrets(memory).filter(|owner| *owner != app);
        let is_hidden = |owner: &u32| {
            let vault = self.estates.get(owner).map(|estate| &estate.vault);
            vault.is_some_and(|vault| !vault.tells(who))
        };
        match owners.into_iter().find(is_hidden) {
            None => Ok(()),
            Some(owner) => Err(format!("app {app} has read the vault of app {owner}")),
        }
    }

    /// An operation is over.
    pub(crate) fn count(&mut self, question: &Question, status: OperationStatus) {
        let counts = &mut self.counts;
        if let Question::Pry { may, .. } = question {
            counts.vaults_opened += u64::from(*may && status == OperationStatus::Done);
            counts.vaults_refused += u64::from(!*may && status == OperationStatus::NotAllowed);
        }
        if let Question::Visit(_) = question {
            counts.clubs_opened += u64::from(status == OperationStatus::Done);
            counts.clubs_refused += u64::from(status == OperationStatus::NotAllowed);
        }
        match status {
            OperationStatus::Done => {
                counts.operations_done += 1;
                counts.operations_long += u64::from(question.is_long());
            }
            OperationStatus::Unknown | OperationStatus::Failed | OperationStatus::NoConnection => {
                counts.operations_ended += 1;
            }
            _ => counts.operations_refused += 1,
        }
    }

    /// `side` of a connection asks for what is the estate of this app, if it knows whose it is.
    pub(crate) fn asked(
        &mut self,
        number: u64,
        side: usize,
        owner: Option<u32>,
        question: &Question,
    ) {
        self.counts.operations_asked += 1;
        if let Question::Add { word, slot } = *question {
            let said = self.said.entry((number, side)).or_default();
            said.owner = owner;
            said.adds.push_back((word, slot));
        }
    }

    /// `side` of a connection has sent a message.
    pub(crate) fn sent(&mut self, number: u64, side: usize) {
        if self.is_on {
            let said = self.said.entry((number, side)).or_default();
            said.messages.push_back(said.seen + said.adds.len() as u64);
        }
    }

    /// The app has received the next message that `side` of a connection has sent: what was asked
    /// for before is done, in order.
    pub(crate) fn received(
        &mut self,
        number: u64,
        side: usize,
        app: u32,
        shared: &Shared,
    ) -> Result<(), String> {
        let Some(said) = self.said.get_mut(&(number, side)) else { return Ok(()) };
        let Some(before) = said.messages.pop_front() else { return Ok(()) };
        let is_sound = self.estates.get(&app).is_some_and(|estate| !estate.is_tainted());
        if !is_sound || said.owner != Some(app) {
            return Ok(());
        }
        let is_there = |(word, slot): &(usize, usize)| Estate::has_added(shared, *word, *slot);
        while said.adds.front().is_some_and(is_there) {
            self.counts.operations_before_messages += u64::from(said.seen < before);
            said.adds.pop_front();
            said.seen += 1;
        }
        if said.seen < before {
            let late = before - said.seen;
            return Err(format!("connection {number}: a message came before {late} operations"));
        }
        match said.adds.iter().find(|add| is_there(add)) {
            None => Ok(()),
            Some(add) => Err(format!("connection {number}: {add:?} was done before others")),
        }
    }

    /// Nobody asks any more: does all that was answered fit together?
    pub(crate) fn check(&self) -> Result<(), String> {
        self.estates.values().try_for_each(Estate::check)
    }
}
