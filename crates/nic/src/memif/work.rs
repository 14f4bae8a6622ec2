//! What takes long when a link is made, or as long as the peer likes: making its memory, mapping
//! and securing it, closing what is not needed after all. Spare threads do it ([`Workshop`]); the
//! engine hears of it when it is done.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use super::Config;
use super::limit::Limit;
use super::link::{Announced, Ends, Offer, Offered, adopt};
use super::message::Hello;
use super::shared::Shared;
use crate::strangers::Account;

/// Work that may be in hand for peers of one user, most of whom have gone meanwhile or were given
/// up: a peer can make it last for as long as it likes, and it has its descriptors.
const JOBS_PER_USER_MAX: usize = 4;

/// Something to be done for a handshake.
#[derive(Debug)]
pub(super) enum Work {
    /// Memory to offer to a server that has said this.
    Offer(Hello),
    /// Memory that was offered, and that the server has mapped, is to be secured.
    Secure(Offered),
    /// What a client has announced is to be mapped and secured, for frames of this size to it.
    Adopt(Announced, Limit),
}

/// What has become of it.
#[derive(Debug)]
pub(super) enum Done {
    /// To be announced.
    Offered(Offer),
    /// Ready for frames.
    Secured(Vec<Ends>),
}

impl Work {
    /// Does it. An error says what is wrong with the peer's memory, or with ours.
    pub(super) fn run(
        self,
        config: &Config,
        account: &Account,
        wanted: &Wanted,
    ) -> Result<Done, String> {
        match self {
            Self::Offer(hello) => Offer::new(config, &hello, account)
                .map(Done::Offered)
                .map_err(|error| format!("no memory for the link: {error}")),
            Self::Secure(offered) => offered.secure(wanted).map(Done::Secured),
            Self::Adopt(announced, limit) => {
                adopt(config, announced, limit, account, wanted).map(Done::Secured)
            }
        }
    }
}

/// Held by whoever waits for work to be done.
#[derive(Debug, Default)]
pub(super) struct Patience(Arc<()>);

impl Patience {
    pub(super) fn wanted(&self) -> Wanted {
        Wanted(Arc::downgrade(&self.0))
    }
}

/// Whether somebody still waits.
#[derive(Debug)]
pub(super) struct Wanted(Weak<()>);

impl Wanted {
    /// An error if nobody does.
    pub(super) fn check(&self) -> Result<(), String> {
        let waiting = self.0.strong_count() > 0;
        if waiting { Ok(()) } else { Err("nobody waits for the link any more".into()) }
    }
}

/// Where work is done.
#[derive(Debug)]
pub(super) struct Workshop {
    config: Arc<Config>,
    shared: Arc<Shared>,
    /// For each user a reference, and one more for each job in hand.
    jobs: HashMap<u32, Arc<()>>,
    tells: Sender<Outcome>,
    outcomes: Receiver<Outcome>,
}

/// The number of a peer, and what has become of the work for it.
type Outcome = (u32, Result<Done, String>);

impl Workshop {
    pub(super) fn new(config: Arc<Config>, shared: Arc<Shared>) -> Self {
        let (tells, outcomes) = channel();
        Self { config, shared, jobs: HashMap::new(), tells, outcomes }
    }

    /// Has `work` done for peer `number`. News for the first queue say that there is an outcome.
    /// `None` if too much is in hand for its user already.
    pub(super) fn begin(&mut self, number: u32, account: &Account, work: Work) -> Option<Patience> {
        self.jobs.retain(|_, jobs| Arc::strong_count(jobs) > 1);
        let jobs = self.jobs.entry(account.user()).or_default();
        if Arc::strong_count(jobs) > JOBS_PER_USER_MAX {
            return None;
        }
        let job = Arc::clone(jobs);
        let patience = Patience::default();
        let (wanted, own) = (patience.wanted(), account.clone());
        let (config, shared) = (Arc::clone(&self.config), Arc::clone(&self.shared));
        let tells = self.tells.clone();
        account.run(move || {
            let outcome = work.run(&config, &own, &wanted);
            drop(job);
            // Nobody takes it once the interface is closed.
            if tells.send((number, outcome)).is_ok() {
                shared.ring(0);
            }
        });
        Some(patience)
    }

    /// What is done by now.
    pub(super) fn next_outcome(&self) -> Option<Outcome> {
        self.outcomes.try_recv().ok()
    }
}
