use super::*;

/// Patterns that look at these bits of a digest's first word.
fn wanted(bits: u64) -> Steered {
    let pattern = SteerPattern::new([bits, 0, 0, 0, 0, 0, 0, 0], [0; 8]).expect("a pattern");
    Steered { patterns: vec![pattern], ..Steered::default() }
}

/// Whatever users have asked for, the eBPF program has room for an address that the host gets
/// later.
#[test]
fn users_leave_kinds_of_patterns_to_each_other_and_to_the_host() {
    let mut held: HashMap<u32, Held> = HashMap::new();
    for (user, expected) in [16, 16, 16, 8, 0].into_iter().enumerate() {
        let user = user as u32;
        for number in 0..20 {
            let wanted = wanted(u64::from(user * 100 + number + 1));
            match admit_masks(&held, user, &wanted) {
                Ok(()) => {
                    count_in(&mut held.entry(user).or_default().masks, wanted.masks());
                }
                Err(refused) => assert_eq!(refused.code, Code::Limit),
            }
        }
        assert_eq!(held.get(&user).map_or(0, |held| held.masks.len()), expected, "user {user}");
    }
    assert_eq!(admit_masks(&held, 0, &wanted(1)), Ok(()), "it is there already");
    assert_eq!(admit_masks(&held, 4, &wanted(1)), Ok(()), "another's is none more");
    count_out(&mut held.get_mut(&3).expect("it has some").masks, wanted(301).masks());
    assert_eq!(admit_masks(&held, 4, &wanted(500)), Ok(()));
}
