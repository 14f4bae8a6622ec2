use super::*;

use clearway_nic::interface::Protocol;

/// Patterns that look at these bits of a digest's first word.
fn wanted(bits: u64) -> Steered {
    let pattern = SteerPattern::new([bits, 0, 0, 0, 0, 0, 0, 0], [0; 8]).expect("a pattern");
    Steered { patterns: vec![pattern], ..Steered::default() }
}

/// Whatever users have asked for, the eBPF program has room for an address that the host gets
/// later.
#[test]
fn users_leave_kinds_of_patterns_to_each_other_and_to_the_host() {
    let mut holdings = Holdings::default();
    let held = |holdings: &Holdings, user| {
        holdings.users.get(&user).map_or(0, |held: &Held| held.masks.0.len())
    };
    for (user, expected) in [16, 16, 16, 4, 0].into_iter().enumerate() {
        let user = user as u32;
        for number in 0..20 {
            let wanted = wanted(u64::from(user * 100 + number + 1));
            if let Err(refused) = holdings.take_masks(user, &wanted) {
                assert_eq!(refused.code, Code::Limit);
            }
        }
        assert_eq!(held(&holdings, user), expected, "user {user}");
    }
    assert_eq!(holdings.take_masks(0, &wanted(1)), Ok(()), "it is there already");
    assert_eq!(holdings.take_masks(4, &wanted(1)), Ok(()), "another's is none more");
    holdings.give_masks_back(3, &wanted(301));
    assert_eq!(holdings.take_masks(4, &wanted(500)), Ok(()));
    // What is held twice is given back twice.
    holdings.give_masks_back(0, &wanted(1));
    assert_eq!(held(&holdings, 0), 16);
    holdings.give_masks_back(0, &wanted(1));
    assert_eq!(held(&holdings, 0), 15);
}

#[test]
fn ports_of_a_user_are_counted_once_and_given_back_by_the_last() {
    let ports = |numbers: std::ops::Range<u16>| -> HashSet<HostPort> {
        numbers.map(|port| (Protocol::Udp, IpAddr::from([10, 0, 0, 1]), port)).collect()
    };
    let mut holdings = Holdings::default();
    assert_eq!(holdings.take_ports(1, &ports(0..6), 8), Ok(()));
    assert_eq!(holdings.take_ports(1, &ports(4..8), 8), Ok(()), "two of them are there already");
    let refused = holdings.take_ports(1, &ports(8..9), 8).expect_err("the ninth");
    assert_eq!(refused.code, Code::Limit);
    assert_eq!(holdings.take_ports(2, &ports(8..9), 8), Ok(()), "another user's");
    holdings.give_ports_back(1, &ports(0..6));
    assert_eq!(holdings.take_ports(1, &ports(8..12), 8), Ok(()));
    holdings.give_ports_back(1, &ports(4..8));
    holdings.give_ports_back(1, &ports(8..12));
    holdings.give_ports_back(2, &ports(8..9));
    assert!(holdings.is_empty());
}
