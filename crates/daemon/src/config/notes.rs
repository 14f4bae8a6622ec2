//! What in a configuration is no mistake, and yet hardly meant. `--check` tells of it.
//!
//! Nothing but the configuration is looked at here; `check` holds it against the machine.

use super::{Config, Idle, People, Policy};

/// All of it, on a machine whose processes may use so many cores.
pub(super) fn notes(config: &Config, cores: usize) -> Vec<String> {
    let policy = &config.policy;
    let ports: Vec<&People> = policy.ports.iter().map(|rule| &rule.people).collect();
    let vifs: Vec<&People> = policy.vifs.iter().map(|rule| &rule.people).collect();
    let mut notes = Vec::new();
    for (title, rules) in [("[[policy.ports]]", &ports), ("[[policy.vif]]", &vifs)] {
        notes.extend(behind_everybody(title, rules));
        notes.extend(of_strangers(title, rules, policy));
    }
    notes.extend(shared_cores(config));
    notes.extend(too_many_spin(config, cores));
    notes
}

/// The first rule that names a user decides.
fn behind_everybody(title: &str, rules: &[&People]) -> Option<String> {
    let first = 1 + rules.iter().position(|people| people.anybody)?;
    (first < rules.len()).then(|| {
        format!(
            "what follows rule {first} of {title} never applies, as that rule is for everybody: \
             put it last"
        )
    })
}

/// Rules for users who are let in by nothing. Whoever is in a group is not known here.
fn of_strangers(title: &str, rules: &[&People], policy: &Policy) -> Vec<String> {
    if policy.anybody || !policy.groups.is_empty() {
        return Vec::new();
    }
    let own = [0, rustix::process::geteuid().as_raw()];
    let may_attach = |user: &u32| own.contains(user) || policy.users.contains(user);
    let strangers = rules.iter().flat_map(|people| &people.users).filter(|&user| !may_attach(user));
    let note = |user: &u32| {
        format!(
            "{title} has a rule for user {user}, who may attach only if it is the daemon's own: \
             add it to `users` in [policy]"
        )
    };
    strangers.map(note).collect()
}

/// Within a NIC that is a mistake.
fn shared_cores(config: &Config) -> Option<String> {
    config.nics.iter().enumerate().find_map(|(index, nic)| {
        let others = &config.nics[..index];
        let shared = |core: &usize| others.iter().find(|other| other.cores.contains(core));
        let (core, other) = nic.cores.iter().find_map(|core| Some((core, shared(core)?)))?;
        Some(format!(
            "core {core} is that of engines of the NICs \"{}\" and \"{}\", which wait for each \
             other there: name others in `cores` if there are",
            other.name, nic.name
        ))
    })
}

/// Each keeps a core busy.
fn too_many_spin(config: &Config, cores: usize) -> Option<String> {
    let spinning = config.nics.iter().filter(|nic| nic.idle == Idle::Spin);
    let engines: usize = spinning.map(|nic| nic.engines).sum();
    (engines >= cores && engines > 0).then(|| {
        format!(
            "{engines} engines have `idle = \"spin\"`, and there are {cores} cores, of which none \
             is left to apps: have fewer engines, or another `idle`"
        )
    })
}
