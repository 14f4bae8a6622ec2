use clearway_engine::REGIONS_MAX;

use super::*;

const MIB: u64 = 1 << 20;

fn peer(user: u32, groups: &[u32]) -> Peer {
    Peer { user, process: 1, groups: groups.to_vec() }
}

fn accounts(policy: Policy) -> Accounts {
    Accounts::new(policy, 500)
}

#[test]
fn own_user_and_root_may_attach_by_default_and_nobody_else() {
    let accounts = accounts(Policy::default());
    assert!(accounts.may_attach(&peer(0, &[0])));
    assert!(accounts.may_attach(&peer(500, &[500])));
    assert!(!accounts.may_attach(&peer(501, &[500, 0])));
}

#[test]
fn users_and_groups_may_be_added() {
    let policy = Policy { users: vec![7], groups: vec![9], ..Policy::default() };
    let accounts = accounts(policy);
    assert!(accounts.may_attach(&peer(7, &[])));
    assert!(accounts.may_attach(&peer(8, &[1, 9])));
    assert!(!accounts.may_attach(&peer(8, &[1])));
}

#[test]
fn a_stranger_is_told_why() {
    let refusal = accounts(Policy::default()).open_session(&peer(7, &[])).expect_err("denied");
    assert_eq!(refusal.code, Code::Denied);
    assert!(refusal.message.contains("user 7") && refusal.message.contains("[policy]"));
}

#[test]
fn limits_hold_and_come_back() {
    let limits = Limits {
        channels_total: 3,
        channels_per_user: 2,
        memory_per_user_bytes: 10 * MIB,
        memory_total_bytes: 15 * MIB,
        ..Limits::default()
    };
    let mut accounts = accounts(Policy { limits, ..Policy::default() });
    let mut open =
        |user, mib| accounts.open_channel(user, mib * MIB).map_err(|refusal| refusal.message);
    open(1, 4).expect("the first");
    assert!(open(1, 7).expect_err("too much memory").contains("memory_per_user_bytes"));
    open(1, 6).expect("exactly full");
    assert!(open(1, 1).expect_err("too many").contains("channels_per_user"));
    assert!(open(2, 6).expect_err("all of it").contains("memory_total_bytes"));
    open(2, 1).expect("room for a small one");
    assert!(open(3, 1).expect_err("too many").contains("channels_total"));
    accounts.close_channel(1, 4 * MIB);
    accounts.close_channel(1, 6 * MIB);
    accounts.close_channel(2, MIB);
    assert!(accounts.users.is_empty());
    assert_eq!(accounts.total, Account::default());
}

/// What remains is what the others have, whoever goes first.
#[test]
fn what_is_closed_is_taken_off_and_nothing_else() {
    let limits = Limits { memory_total_bytes: 30 * MIB, ..Limits::default() };
    let mut accounts = accounts(Policy { limits, ..Policy::default() });
    for (user, mib) in [(1, 4), (1, 6), (2, 20)] {
        accounts.open_channel(user, mib * MIB).expect("exactly full at the end");
    }
    accounts.close_channel(1, 4 * MIB);
    assert_eq!(accounts.account(1), Account { channels: 1, memory_bytes: 6 * MIB, ..account() });
    assert_eq!(accounts.total, Account { channels: 2, memory_bytes: 26 * MIB, ..account() });
    for _ in 0..5 {
        accounts.open_vif(&peer(1, &[])).expect("few");
    }
    accounts.open_vif(&peer(2, &[])).expect("few");
    accounts.close_vifs(1, 3);
    assert_eq!((accounts.account(1).vifs, accounts.total.vifs), (2, 3));
    accounts.open_channel(2, 4 * MIB).expect("as much as was given back");
    assert!(accounts.open_channel(2, 1).is_err());
}

fn account() -> Account {
    Account::default()
}

#[test]
fn sessions_are_limited_in_all_and_per_user() {
    let limits = Limits { sessions_total: 3, sessions_per_user: 2, ..Limits::default() };
    let mut accounts = accounts(Policy { anybody: true, limits, ..Policy::default() });
    let message = |result: Result<(), Refusal>| result.expect_err("full").message;
    accounts.open_session(&peer(1, &[])).expect("first");
    accounts.open_session(&peer(1, &[])).expect("second");
    assert!(message(accounts.open_session(&peer(1, &[]))).contains("sessions_per_user"));
    accounts.open_session(&peer(2, &[])).expect("third");
    assert!(message(accounts.open_session(&peer(2, &[]))).contains("sessions_total"));
    accounts.close_session(1);
    accounts.open_session(&peer(2, &[])).expect("there is room again");
}

/// Or nobody could see who has taken all, and do something about it.
#[test]
fn administrators_find_a_session_when_users_have_taken_all() {
    let limits = Limits { sessions_total: 3, ..Limits::default() };
    let mut accounts = accounts(Policy { anybody: true, limits, ..Policy::default() });
    let attempts = (0..10).map(|_| accounts.open_session(&peer(7, &[])));
    assert_eq!(attempts.filter(Result::is_ok).count(), 3);
    for administrator in [0, 500] {
        accounts.open_session(&peer(administrator, &[])).expect("a reserved one");
    }
    let more = (0..100).map(|_| accounts.open_session(&peer(0, &[])));
    assert_eq!(more.filter(Result::is_ok).count(), ADMINISTRATOR_SESSIONS - 2, "bounded as well");
}

#[test]
fn low_ports_are_for_root_unless_a_rule_says_otherwise() {
    let accounts = accounts(Policy::default());
    assert!(accounts.may_listen(&peer(0, &[]), 80).is_ok());
    assert!(accounts.may_listen(&peer(500, &[]), 1023).is_err());
    assert!(accounts.may_listen(&peer(500, &[]), 1024).is_ok());
    assert!(accounts.may_listen(&peer(500, &[]), 0).is_ok());
}

#[test]
fn first_rule_that_names_the_user_decides() {
    let rule = |users: &[u32], groups: &[u32], anybody, allow: &[(u16, u16)]| PortRule {
        people: People { users: users.to_vec(), groups: groups.to_vec(), anybody },
        allow: allow.iter().map(|(low, high)| *low..=*high).collect(),
    };
    let ports = vec![
        rule(&[7], &[], false, &[(80, 80), (8000, 8999)]),
        rule(&[], &[9], false, &[(1, 65535)]),
        rule(&[], &[], true, &[]),
    ];
    let accounts = accounts(Policy { ports, ..Policy::default() });
    let allowed =
        |user, groups: &[u32], port| accounts.may_listen(&peer(user, groups), port).is_ok();
    assert!(allowed(7, &[9], 80) && allowed(7, &[], 8500));
    assert!(!allowed(7, &[9], 81) && !allowed(7, &[], 0));
    assert!(allowed(8, &[9], 81) && allowed(8, &[9], 0));
    assert!(!allowed(8, &[], 2000) && !allowed(500, &[], 2000));
    assert!(allowed(0, &[], 2000));
}

/// A dynamic port may be any of them, so all have to be allowed.
#[test]
fn dynamic_ports_are_for_those_who_may_have_all_of_them() {
    let (low, high) = DYNAMIC_PORTS.into_inner();
    let may = |allow: &[(u16, u16)]| {
        let people = People { anybody: true, ..People::default() };
        let allow = allow.iter().map(|(low, high)| *low..=*high).collect();
        let ports = vec![PortRule { people, allow }];
        accounts(Policy { ports, ..Policy::default() }).may_listen(&peer(7, &[]), 0)
    };
    assert!(may(&[(low, high)]).is_ok() && may(&[(1, 1), (1, 65535)]).is_ok());
    for parts in [&[(low, high - 1)][..], &[(low + 1, high)], &[(1, low), (high, 65535)], &[]] {
        let refusal = may(parts).expect_err("not all");
        assert!(refusal.message.contains("a dynamic port"), "{}", refusal.message);
    }
    let refusal = accounts(Policy::default()).may_listen(&peer(7, &[]), 80).expect_err("low");
    assert!(refusal.message.contains("port 80;"), "{}", refusal.message);
}

#[test]
fn another_policy_holds_from_the_next_request_on() {
    let mut accounts = accounts(Policy::default());
    assert!(!accounts.may_attach(&peer(7, &[])));
    let limits = Limits {
        connections_per_channel: 77,
        ports_per_user: 78,
        listeners_per_channel: 79,
        ..Limits::default()
    };
    accounts.set_policy(Policy { users: vec![7], limits, ..Policy::default() });
    assert!(accounts.may_attach(&peer(7, &[])));
    assert_eq!(accounts.allowance(&peer(7, &[])).connections_max, 77);
    assert_eq!((accounts.ports_per_user(), accounts.listeners_per_channel()), (78, 79));
}

#[test]
fn operations_are_for_everybody_or_for_those_who_are_named() {
    let everybody = accounts(Policy::default());
    let all = Allowance { connections_max: 4096, regions_max: REGIONS_MAX, may_ask: true };
    assert_eq!(everybody.allowance(&peer(7, &[])), all);
    assert!(everybody.may_share(&peer(7, &[])).is_ok());
    let share = Some(People { users: vec![7], ..People::default() });
    let ask = Some(People { groups: vec![400], ..People::default() });
    let limits = Limits { regions_per_channel: 3, ..Limits::default() };
    let policy = Policy { share, ask, limits, ..Policy::default() };
    assert!(policy.names_groups());
    let accounts = Accounts::new(policy, 1000);
    for (user, groups, may_share, may_ask) in [
        (0, &[][..], true, true),
        (1000, &[], true, true),
        (7, &[], true, false),
        (8, &[400], false, true),
        (9, &[], false, false),
    ] {
        let peer = peer(user, groups);
        let allowance = accounts.allowance(&peer);
        assert_eq!((allowance.may_ask, allowance.regions_max), (may_ask, 3), "{user}");
        match accounts.may_share(&peer) {
            Ok(()) => assert!(may_share, "{user}"),
            Err(refusal) => {
                assert!(!may_share && refusal.code == Code::Denied, "{user}");
                assert!(refusal.message.contains("[policy.share]"), "{}", refusal.message);
            }
        }
    }
}

#[test]
fn exclusive_engines_are_for_those_who_are_named() {
    let exclusive = People { users: vec![1001], ..People::default() };
    let accounts = Accounts::new(Policy { exclusive, ..Policy::default() }, 1000);
    for (user, allowed) in [(0, true), (1000, true), (1001, true), (1002, false)] {
        let peer = Peer { user, process: 1, groups: Vec::new() };
        assert_eq!(accounts.may_have_engine(&peer).is_ok(), allowed, "user {user}");
    }
}
