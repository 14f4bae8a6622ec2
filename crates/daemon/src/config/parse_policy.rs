//! The `[policy]` section, but for its rules on virtual interfaces.

use std::ops::RangeInclusive;

use clearway_classify::registry;
use clearway_engine::REGIONS_MAX;

use super::reader::{Placed, Section};
use super::{Limits, Machine, People, Policy, PortRule, VifRule, machine, parse_vif};

/// The kernel's `INVALID_UID` and `INVALID_GID`: no user and no group has it.
const ID_OF_NOBODY: u32 = u32::MAX;

pub(super) fn policy(mut section: Section<'_>, machine: &dyn Machine) -> Policy {
    let people = people(&mut section, machine);
    let port_rules = section.sections("ports", "[[policy.ports]]");
    let vif_rules = section.sections("vif", "[[policy.vif]]");
    let mut named = |key, name| {
        let named = section.section(key, name);
        named.map(|section| people_of_section(section, machine))
    };
    let exclusive = named("exclusive", "[policy.exclusive]");
    let share = named("share", "[policy.share]");
    let ask = named("ask", "[policy.ask]");
    let ports = port_rules.into_iter().map(|rule| port_rule(rule, machine)).collect();
    let vifs = vif_rules.into_iter().map(|rule| parse_vif::rule(rule, machine));
    let (vifs, vifs_max): (Vec<VifRule>, Vec<_>) = vifs.unzip();
    let vifs_max: Vec<Placed<u64>> = vifs_max.into_iter().flatten().collect();
    let limits = limits(section.section("limits", "[policy.limits]"), &vifs_max);
    section.finish();
    let People { users, groups, anybody } = people;
    let exclusive = exclusive.unwrap_or_default();
    Policy { users, groups, anybody, ports, vifs, exclusive, share, ask, limits }
}

/// A section that says nothing else.
fn people_of_section(mut section: Section<'_>, machine: &dyn Machine) -> People {
    let people = people_of_rule(&mut section, machine);
    section.finish();
    people
}

/// The keys `users` and `groups`; `"*"` among the users means everybody.
fn people(section: &mut Section<'_>, machine: &dyn Machine) -> People {
    let mut people = People::default();
    for user in section.strings("users", true) {
        if user.value == "*" {
            people.anybody = true;
        } else {
            let id = machine.user_id(&user.value);
            people.users.extend(id_of(section, "user", &user, id));
        }
    }
    for group in section.strings("groups", true) {
        let id = machine.group_id(&group.value);
        people.groups.extend(id_of(section, "group", &group, id));
    }
    people
}

fn id_of(section: &Section<'_>, what: &str, name: &Placed<String>, id: Option<u32>) -> Option<u32> {
    let id = name.value.parse().ok().or(id);
    if id == Some(ID_OF_NOBODY) {
        section.report(
            &name.span,
            format!("{ID_OF_NOBODY} is -1, which is the number of no {what}"),
            format!("give the name or the number of a {what}"),
        );
        return None;
    }
    if id.is_none() {
        section.report(
            &name.span,
            format!("there is no {what} \"{}\" on this machine", name.value),
            format!("create it, or give the name or the number of another {what}"),
        );
    }
    id
}

/// The people of a rule, who have to be named.
pub(super) fn people_of_rule(section: &mut Section<'_>, machine: &dyn Machine) -> People {
    let people = people(section, machine);
    if !section.has("users") && !section.has("groups") {
        section.report(
            section.span(),
            "this rule does not say whom it is about",
            "add `users` or `groups`; `users = [\"*\"]` means everybody",
        );
    }
    people
}

fn port_rule(mut section: Section<'_>, machine: &dyn Machine) -> PortRule {
    let people = people_of_rule(&mut section, machine);
    if !section.has("allow") {
        section.report(
            section.span(),
            "this rule does not say which ports it allows",
            "add `allow`, for example `allow = [80, \"8000-8999\"]`; `allow = []` allows none",
        );
    }
    let mut allow = Vec::new();
    for text in section.strings("allow", true) {
        match parse_ports(&text.value) {
            Some(ports) => allow.push(ports),
            None => section.report(
                &text.span,
                format!("\"{}\" is neither a port nor a range of ports", text.value),
                "write ports from 1 to 65535, as in 80 or \"8000-8999\"",
            ),
        }
    }
    section.finish();
    PortRule { people, allow }
}

fn parse_ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first > 0 && first <= last).then_some(first..=last)
}

/// `vifs_max`: what rules have of interfaces, which a total is held against, too.
fn limits(section: Option<Section<'_>>, vifs_max: &[Placed<u64>]) -> Limits {
    const MANY: u64 = 1 << 20;
    let mut limits = machine::limits();
    let by_rules = vifs_max.iter().map(|given| given.value as usize).max();
    limits.vifs_total = limits.vifs_total.max(by_rules.unwrap_or(0));
    let Some(mut section) = section else { return limits };
    let mut count = |key, value: &mut usize| {
        let given = section.integer(key, 1..=MANY);
        if let Some(given) = &given {
            *value = given.value as usize;
        }
        given
    };
    // What is not given follows upwards: a limit that another keeps out of reach would be none.
    let channels = count("channels_per_user", &mut limits.channels_per_user);
    limits.channels_total = limits.channels_total.max(4 * limits.channels_per_user);
    let channels_total = count("channels_total", &mut limits.channels_total);
    limits.sessions_per_user = limits.sessions_per_user.max(2 * limits.channels_per_user);
    let sessions = count("sessions_per_user", &mut limits.sessions_per_user);
    limits.sessions_total = limits.sessions_total.max(2 * limits.channels_total);
    limits.sessions_total = limits.sessions_total.max(limits.sessions_per_user);
    count("sessions_total", &mut limits.sessions_total);
    let memories = count("memories_per_user", &mut limits.memories_per_user);
    limits.memories_total = limits.memories_total.max(limits.memories_per_user);
    count("memories_total", &mut limits.memories_total);
    let vifs = count("vifs_per_user", &mut limits.vifs_per_user);
    limits.vifs_total = limits.vifs_total.max(limits.vifs_per_user);
    count("vifs_total", &mut limits.vifs_total);
    count("listeners_per_channel", &mut limits.listeners_per_channel);
    let patterns = count("patterns_per_user", &mut limits.patterns_per_user);
    let ports = count("ports_per_vif", &mut limits.ports_per_vif);
    limits.ports_per_user = limits.ports_per_user.max(limits.ports_per_vif);
    count("ports_per_user", &mut limits.ports_per_user);
    if let Some(given) = section.integer("connections_per_channel", 1..=MANY) {
        limits.connections_per_channel = given.value as u32;
    }
    if let Some(given) = section.integer("regions_per_channel", 1..=REGIONS_MAX.into()) {
        limits.regions_per_channel = given.value as u32;
    }
    let mut bytes = |key, value: &mut u64| {
        let given = section.integer(key, 1 << 20..=1 << 46);
        if let Some(given) = &given {
            *value = given.value;
        }
        given
    };
    let memory = bytes("memory_per_user_bytes", &mut limits.memory_per_user_bytes);
    let memory_total = bytes("memory_total_bytes", &mut limits.memory_total_bytes);
    if memory.is_none() {
        limits.memory_per_user_bytes = limits.memory_per_user_bytes.min(limits.memory_total_bytes);
    }
    // A total that is not given goes by the machine's memory, and one configuration may be that of
    // many machines: `check` tells of it.
    let memory = memory.filter(|_| memory_total.is_some());
    report_patterns(&section, patterns.as_ref());
    // Each channel has a session of its own.
    let of_one_and_of_all = [
        (
            "channels_per_user",
            channels.clone(),
            "sessions_per_user",
            limits.sessions_per_user as u64,
        ),
        ("channels_total", channels_total, "sessions_total", limits.sessions_total as u64),
        ("channels_per_user", channels, "channels_total", limits.channels_total as u64),
        ("sessions_per_user", sessions, "sessions_total", limits.sessions_total as u64),
        ("memories_per_user", memories, "memories_total", limits.memories_total as u64),
        ("vifs_per_user", vifs, "vifs_total", limits.vifs_total as u64),
        ("ports_per_vif", ports, "ports_per_user", limits.ports_per_user as u64),
        ("memory_per_user_bytes", memory, "memory_total_bytes", limits.memory_total_bytes),
    ];
    for (one, given, all, of_all) in of_one_and_of_all {
        given.into_iter().for_each(|given| check_reached(&section, one, &given, all, of_all));
    }
    for given in vifs_max {
        check_reached(&section, "vifs_max", given, "vifs_total", limits.vifs_total as u64);
    }
    section.finish();
    limits
}

/// What all users may have together, which no key raises.
fn report_patterns(section: &Section<'_>, given: Option<&Placed<u64>>) {
    let most = registry::Limits::default().total.clauses as u64;
    if let Some(given) = given.filter(|given| given.value > most) {
        section.report(
            &given.span,
            format!("`patterns_per_user = {}` is never reached", given.value),
            format!("lower it: all users together have at most {most} on each NIC"),
        );
    }
}

/// A limit that another keeps out of reach is a mistake.
fn check_reached(section: &Section<'_>, one: &str, given: &Placed<u64>, all: &str, of_all: u64) {
    if given.value > of_all {
        section.report(
            &given.span,
            format!("`{one} = {}` is above `{all} = {of_all}`, and is never reached", given.value),
            format!("lower it, or raise `{all}` in [policy.limits]"),
        );
    }
}
