//! Who may attach, who may listen where, and how much anybody gets.
//!
//! Decides from what the kernel says about an app (`SO_PEERCRED`), never from what the app says
//! about itself. Keeps no state of its own but the sums per user.

mod rules;
mod vif;

use std::collections::HashMap;

use clearway_channel::Code;
use clearway_channel::control::{DYNAMIC_PORTS, Refusal};
use clearway_engine::Allowance;

pub use rules::{Limits, Network, People, Policy, PortRule, VifRule};
pub use vif::{Grant, HostPort, Place, Station};

/// Without a rule, ports from here up are for everybody (RFC 6335, section 6: system ports end at
/// 1023).
const USER_PORT_MIN: u16 = 1024;

/// Sessions beyond `sessions_total` that administrators have when users have taken all others.
const ADMINISTRATOR_SESSIONS: usize = 16;

/// The process at the other end of a control socket, according to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub user: u32,
    /// Its process, in the daemon's namespace.
    pub process: i32,
    /// Its group, and those that the user database adds, if they matter.
    pub groups: Vec<u32>,
}

/// What users hold at the moment, against what they may hold.
#[derive(Debug)]
pub struct Accounts {
    policy: Policy,
    /// The user whose daemon this is.
    own_user: u32,
    users: HashMap<u32, Account>,
    total: Account,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    sessions: usize,
    channels: usize,
    memories: usize,
    memory_bytes: u64,
    vifs: usize,
}

impl Accounts {
    /// Nobody holds anything yet. `own_user` is the one whose daemon this is.
    #[must_use]
    pub fn new(policy: Policy, own_user: u32) -> Self {
        Self { policy, own_user, users: HashMap::new(), total: Account::default() }
    }

    /// What a channel of this peer may have and do.
    #[must_use]
    pub fn allowance(&self, peer: &Peer) -> Allowance {
        let limits = &self.policy.limits;
        Allowance {
            connections_max: limits.connections_per_channel,
            regions_max: limits.regions_per_channel,
            may_ask: self.is_one_of(peer, self.policy.ask.as_ref()),
        }
    }

    /// Whether this peer may have memory that it can share.
    ///
    /// # Errors
    /// If it may not.
    pub fn may_share(&self, peer: &Peer) -> Result<(), Refusal> {
        if self.is_one_of(peer, self.policy.share.as_ref()) {
            return Ok(());
        }
        let message = format!(
            "user {} may not share memory; attach without shared_bytes, or add the user or one of \
             its groups to [policy.share] in the daemon's configuration",
            peer.user
        );
        Err(Refusal { code: Code::Denied, message })
    }

    /// Administrators are of all; nobody given is everybody.
    fn is_one_of(&self, peer: &Peer, people: Option<&People>) -> bool {
        self.is_administrator(peer) || people.is_none_or(|people| people.include(peer))
    }

    /// Ports of the host's addresses that one user's interfaces may be about, on each NIC.
    #[must_use]
    pub fn ports_per_user(&self) -> usize {
        self.policy.limits.ports_per_user
    }

    /// Listeners of one channel, at most.
    #[must_use]
    pub fn listeners_per_channel(&self) -> usize {
        self.policy.limits.listeners_per_channel
    }

    /// Counts a new control connection, if this peer may have one.
    ///
    /// # Errors
    /// If it may not attach, or has as many as it may have.
    pub fn open_session(&mut self, peer: &Peer) -> Result<(), Refusal> {
        let user = peer.user;
        if !self.may_attach(peer) {
            let message = format!(
                "user {user} may not attach to this daemon; add the user or one of its groups to \
                 [policy] in the daemon's configuration"
            );
            return Err(Refusal { code: Code::Denied, message });
        }
        let limits = &self.policy.limits;
        let account = self.account(user);
        let reserved = if self.is_administrator(peer) { ADMINISTRATOR_SESSIONS } else { 0 };
        let full = if self.total.sessions >= limits.sessions_total + reserved {
            Some(("sessions_total", limits.sessions_total))
        } else if account.sessions >= limits.sessions_per_user {
            Some(("sessions_per_user", limits.sessions_per_user))
        } else {
            None
        };
        if let Some((key, limit)) = full {
            return Err(limit_reached("control connections", key, limit as u64));
        }
        self.users.entry(user).or_default().sessions += 1;
        self.total.sessions += 1;
        Ok(())
    }

    /// Counts a control connection of `user` out.
    pub fn close_session(&mut self, user: u32) {
        self.total.sessions -= 1;
        self.change(user, |account| account.sessions -= 1);
    }

    /// Another policy holds from now on. Nobody loses what they have.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// The daemon is another user's from now on.
    pub fn set_own_user(&mut self, user: u32) {
        self.own_user = user;
    }

    /// How many users hold anything.
    #[must_use]
    pub fn count(&self) -> usize {
        self.users.len()
    }

    /// Root and the daemon's own user, who may do everything and see everything.
    #[must_use]
    pub fn is_administrator(&self, peer: &Peer) -> bool {
        peer.user == 0 || peer.user == self.own_user
    }

    fn may_attach(&self, peer: &Peer) -> bool {
        let policy = &self.policy;
        self.is_administrator(peer)
            || policy.anybody
            || policy.users.contains(&peer.user)
            || peer.groups.iter().any(|group| policy.groups.contains(group))
    }

    /// Whether this peer may have an engine that serves nobody else.
    ///
    /// # Errors
    /// If it may not.
    pub fn may_have_engine(&self, peer: &Peer) -> Result<(), Refusal> {
        if self.is_administrator(peer) || self.policy.exclusive.include(peer) {
            return Ok(());
        }
        let message = format!(
            "user {} may not have an engine exclusively; attach without, or add the user or one \
             of its groups to [policy.exclusive] in the daemon's configuration",
            peer.user
        );
        Err(Refusal { code: Code::Denied, message })
    }

    /// Counts a channel of `memory_bytes`, if there is room for it.
    ///
    /// # Errors
    /// Which limit is reached.
    pub fn open_channel(&mut self, user: u32, memory_bytes: u64) -> Result<(), Refusal> {
        let limits = &self.policy.limits;
        let account = self.account(user);
        if self.total.channels >= limits.channels_total {
            let limit = limits.channels_total as u64;
            return Err(limit_reached("channels", "channels_total", limit));
        }
        if account.channels >= limits.channels_per_user {
            let limit = limits.channels_per_user as u64;
            return Err(limit_reached("channels", "channels_per_user", limit));
        }
        self.check_memory(user, memory_bytes)?;
        for account in [self.users.entry(user).or_default(), &mut self.total] {
            account.channels += 1;
            account.memory_bytes += memory_bytes;
        }
        Ok(())
    }

    /// Whether there is room for so much memory.
    fn check_memory(&self, user: u32, bytes: u64) -> Result<(), Refusal> {
        let limits = &self.policy.limits;
        if self.account(user).memory_bytes.saturating_add(bytes) > limits.memory_per_user_bytes {
            let limit = limits.memory_per_user_bytes;
            return Err(limit_reached("bytes of memory", "memory_per_user_bytes", limit));
        }
        if self.total.memory_bytes.saturating_add(bytes) > limits.memory_total_bytes {
            let limit = limits.memory_total_bytes;
            return Err(limit_reached("bytes of memory", "memory_total_bytes", limit));
        }
        Ok(())
    }

    /// Counts memory of an app's own, if there is room for it.
    ///
    /// # Errors
    /// Which limit is reached.
    pub fn open_memory(&mut self, user: u32, bytes: u64) -> Result<(), Refusal> {
        let limits = &self.policy.limits;
        if self.total.memories >= limits.memories_total {
            let limit = limits.memories_total as u64;
            return Err(limit_reached("memories of apps' own", "memories_total", limit));
        }
        if self.account(user).memories >= limits.memories_per_user {
            let limit = limits.memories_per_user as u64;
            return Err(limit_reached("memories of apps' own", "memories_per_user", limit));
        }
        self.check_memory(user, bytes)?;
        for account in [self.users.entry(user).or_default(), &mut self.total] {
            account.memories += 1;
            account.memory_bytes += bytes;
        }
        Ok(())
    }

    /// Counts it out.
    pub fn close_memory(&mut self, user: u32, bytes: u64) {
        self.total.memories -= 1;
        self.total.memory_bytes -= bytes;
        self.change(user, |account| {
            account.memories -= 1;
            account.memory_bytes -= bytes;
        });
    }

    /// Counts a channel of `memory_bytes` out.
    pub fn close_channel(&mut self, user: u32, memory_bytes: u64) {
        self.total.channels -= 1;
        self.total.memory_bytes -= memory_bytes;
        self.change(user, |account| {
            account.channels -= 1;
            account.memory_bytes -= memory_bytes;
        });
    }

    /// Whether this peer may listen on a port; 0 stands for any that the engine chooses.
    ///
    /// # Errors
    /// If it may not.
    pub fn may_listen(&self, peer: &Peer, port: u16) -> Result<(), Refusal> {
        if peer.user == 0 {
            return Ok(());
        }
        let (low, high) = if port == 0 { DYNAMIC_PORTS.into_inner() } else { (port, port) };
        let rule = self.policy.ports.iter().find(|rule| rule.people.include(peer));
        let allowed = match rule {
            Some(rule) => {
                rule.allow.iter().any(|ports| ports.contains(&low) && ports.contains(&high))
            }
            None => low >= USER_PORT_MIN,
        };
        if allowed {
            return Ok(());
        }
        let what = if port == 0 { "a dynamic port".to_owned() } else { format!("port {port}") };
        let message = format!(
            "user {} may not listen on {what}; choose another port, or allow it in \
             [[policy.ports]] of the daemon's configuration",
            peer.user
        );
        Err(Refusal { code: Code::Denied, message })
    }

    fn account(&self, user: u32) -> Account {
        self.users.get(&user).copied().unwrap_or_default()
    }

    /// An account that has become empty is forgotten, so that the table is as large as its use.
    fn change(&mut self, user: u32, change: impl FnOnce(&mut Account)) {
        if let Some(account) = self.users.get_mut(&user) {
            change(account);
            if *account == Account::default() {
                self.users.remove(&user);
            }
        }
    }
}

/// What is told to who has reached a limit: `key` is its name in the configuration.
#[must_use]
pub fn limit_reached(what: &str, key: &str, limit: u64) -> Refusal {
    let message = format!(
        "the limit of {limit} {what} is reached; close something first, or raise `{key}` in \
         [policy.limits] of the daemon's configuration"
    );
    Refusal { code: Code::Limit, message }
}

#[cfg(test)]
mod tests;
