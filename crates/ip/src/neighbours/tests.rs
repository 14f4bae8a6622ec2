use super::*;
use core::net::Ipv4Addr;

const MAC_A: MacAddress = [2, 0, 0, 0, 0, 0xa];
const MAC_B: MacAddress = [2, 0, 0, 0, 0, 0xb];
const WHO: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));

fn host(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(0x0b00_0000 + number).into()
}

fn at(seconds: u64) -> Time {
    Time::from_ns(seconds * SECOND)
}

/// A cache in which `WHO` is known to be at `MAC_A` since second 0.
fn reachable() -> Neighbours {
    let mut cache = Neighbours::new(None);
    assert_eq!(cache.resolve(at(0), WHO), Resolution::Pending);
    assert_eq!(cache.poll_question(), Some(Question { target: WHO, mac: None }));
    assert!(cache.handle_answer(at(0), WHO, Some(MAC_A), true));
    assert_eq!(cache.resolve(at(0), WHO), Resolution::Known(MAC_A));
    assert_eq!(cache.poll_question(), None);
    cache
}

#[test]
fn gives_up_after_three_questions() {
    let mut cache = Neighbours::new(None);
    for second in 0..3 {
        assert_eq!(cache.resolve(at(second), WHO), Resolution::Pending);
        assert_eq!(cache.poll_question(), Some(Question { target: WHO, mac: None }));
        assert_eq!(cache.resolve(at(second), WHO), Resolution::Pending, "asks once");
        assert_eq!(cache.poll_question(), None);
        assert_eq!(cache.poll_timeout(), Some(at(second + 1)));
        cache.handle_timeout(at(second + 1) - 1);
        assert_eq!(cache.poll_question(), None, "not before its time");
        cache.handle_timeout(at(second + 1));
    }
    assert_eq!(cache.resolve(at(3), WHO), Resolution::Unreachable);
    assert_eq!(cache.poll_question(), None);
    assert!(cache.is_silent(WHO));
    assert_eq!(cache.resolve(at(6) - 1, WHO), Resolution::Unreachable);
    assert_eq!(cache.resolve(at(6), WHO), Resolution::Pending);
    assert_eq!(cache.poll_question(), Some(Question { target: WHO, mac: None }));
}

#[test]
fn the_silent_are_asked_less_and_less_and_then_forgotten() {
    let mut cache = Neighbours::new(None);
    let mut now = at(0);
    for wait_s in [3, 6, 12, 24, 24] {
        assert_eq!(cache.resolve(now, WHO), Resolution::Pending);
        for _ in 0..TRIES_MAX {
            assert!(cache.poll_question().is_some());
            now = now + RETRY_NS;
            cache.handle_timeout(now);
        }
        now = now + wait_s * SECOND;
        assert_eq!(cache.resolve(now - 1, WHO), Resolution::Unreachable);
        cache.handle_timeout(now - 1);
        assert!(!cache.has_questions());
    }
    cache.handle_timeout(now + FORGET_NS);
    assert_eq!((cache.entries.len(), cache.poll_timeout()), (0, None));
}

#[test]
fn who_was_silent_is_asked_when_he_announces_himself_or_the_link_was_down() {
    for link_was_down in [false, true] {
        let mut cache = Neighbours::new(None);
        cache.resolve(at(0), WHO);
        (1..=3).for_each(|second| cache.handle_timeout(at(second)));
        while cache.poll_question().is_some() {}
        if link_was_down {
            cache.handle_link_up(at(4));
            assert_eq!(cache.resolve(at(4), WHO), Resolution::Pending);
        } else {
            cache.handle_announcement(at(4), WHO, MAC_A);
        }
        assert_eq!(cache.poll_question(), Some(Question { target: WHO, mac: None }));
        assert!(cache.handle_answer(at(4), WHO, Some(MAC_A), true));
        assert_eq!(cache.entries[&WHO].failures, 0);
    }
}

#[test]
fn doubt_asks_everybody_at_once_and_not_too_often() {
    let mut cache = reachable();
    for second in [1, 2] {
        cache.doubt(at(second), WHO);
        assert_eq!(cache.poll_question(), Some(Question { target: WHO, mac: None }));
        assert_eq!(cache.resolve(at(second), WHO), Resolution::Known(MAC_A), "serves meanwhile");
        assert!(cache.handle_answer(at(second), WHO, Some(MAC_A), true));
        cache.doubt(at(second) + SECOND / 2, WHO);
        assert!(!cache.has_questions());
    }
    cache.doubt(at(3), host(1));
    assert!(!cache.has_questions(), "nobody's entry");
}

#[test]
fn only_what_was_asked_for_counts() {
    let mut cache = Neighbours::new(None);
    assert!(!cache.handle_answer(at(0), WHO, Some(MAC_A), true));
    assert_eq!(cache.resolve(at(0), WHO), Resolution::Pending);
    assert!(!cache.handle_answer(at(0), host(1), Some(MAC_A), true));
    assert!(!cache.handle_answer(at(0), WHO, None, true));
    assert!(cache.handle_answer(at(0), WHO, Some(MAC_A), true));
    // A second answer is one too many, whatever it says.
    assert!(!cache.handle_answer(at(0), WHO, Some(MAC_B), true));
    assert_eq!(cache.resolve(at(0), WHO), Resolution::Known(MAC_A));
}

#[test]
fn verifies_when_used_after_a_while() {
    let mut cache = reachable();
    cache.handle_timeout(at(29));
    assert_eq!(cache.resolve(at(29), WHO), Resolution::Known(MAC_A));
    assert!(!cache.has_questions());
    assert_eq!(cache.resolve(at(30), WHO), Resolution::Known(MAC_A));
    assert_eq!(cache.poll_question(), Some(Question { target: WHO, mac: Some(MAC_A) }));
    assert_eq!(cache.resolve(at(30), WHO), Resolution::Known(MAC_A));
    assert_eq!(cache.poll_question(), None);
    assert!(cache.handle_answer(at(30), WHO, None, true));
    assert_eq!(cache.resolve(at(59), WHO), Resolution::Known(MAC_A));
    assert!(!cache.has_questions());
    assert_eq!(cache.generation(), 0);
}

#[test]
fn progress_is_as_good_as_an_answer() {
    let mut cache = reachable();
    for second in 1..100 {
        cache.confirm(at(second), WHO);
        assert_eq!(cache.resolve(at(second), WHO), Resolution::Known(MAC_A));
    }
    assert!(!cache.has_questions());
    cache.confirm(at(100), host(1));
    assert_eq!(cache.entries.len(), 1);
}

#[test]
fn asks_everybody_when_a_neighbour_falls_silent() {
    let mut cache = reachable();
    cache.resolve(at(30), WHO);
    for second in 30..33 {
        assert_eq!(cache.poll_question(), Some(Question { target: WHO, mac: Some(MAC_A) }));
        cache.handle_timeout(at(second + 1));
    }
    assert_eq!(cache.generation(), 1);
    assert_eq!(cache.resolve(at(33), WHO), Resolution::Pending);
    assert_eq!(cache.poll_question(), Some(Question { target: WHO, mac: None }));
    assert!(cache.handle_answer(at(33), WHO, Some(MAC_B), true));
    assert_eq!(cache.resolve(at(33), WHO), Resolution::Known(MAC_B));
}

#[test]
fn a_moved_neighbour_is_found_by_its_request() {
    let mut cache = reachable();
    cache.handle_request(at(1), WHO, MAC_A);
    assert_eq!(cache.resolve(at(1), WHO), Resolution::Known(MAC_A));
    assert_eq!((cache.generation(), cache.has_questions()), (0, false));
    cache.handle_request(at(1), WHO, MAC_B);
    assert_eq!(cache.generation(), 1);
    assert_eq!(cache.resolve(at(1), WHO), Resolution::Known(MAC_B));
    assert_eq!(cache.poll_question(), Some(Question { target: WHO, mac: Some(MAC_B) }));
}

#[test]
fn an_announcement_is_verified_and_not_believed() {
    let mut cache = reachable();
    cache.handle_announcement(at(1), WHO, MAC_A);
    cache.handle_announcement(at(1), host(1), MAC_B);
    assert!(!cache.has_questions());
    cache.handle_announcement(at(1), WHO, MAC_B);
    assert_eq!(cache.resolve(at(1), WHO), Resolution::Known(MAC_A));
    assert_eq!(cache.poll_question(), Some(Question { target: WHO, mac: None }));
    // NDP: an answer that does not override leaves a known address alone.
    assert!(!cache.handle_answer(at(1), WHO, Some(MAC_B), false));
    assert!(cache.handle_answer(at(1), WHO, Some(MAC_B), true));
    assert_eq!(cache.resolve(at(1), WHO), Resolution::Known(MAC_B));
    assert_eq!(cache.generation(), 1);
}

#[test]
fn the_kernel_is_believed_about_what_was_asked() {
    let mut cache = Neighbours::new(None);
    cache.learn_from_kernel(at(0), WHO, MAC_A);
    assert_eq!(cache.resolve(at(0), WHO), Resolution::Pending);
    cache.learn_from_kernel(at(0), WHO, MAC_A);
    cache.learn_from_kernel(at(1), WHO, MAC_B);
    assert_eq!(cache.resolve(at(1), WHO), Resolution::Known(MAC_B));
    assert_eq!(cache.generation(), 1);
}

#[test]
fn entries_in_use_survive_a_flood() {
    let mut cache = reachable();
    for number in 0..20_000 {
        let now = Time::from_ns(u64::from(number) * SECOND / 100);
        cache.handle_timeout(now);
        cache.handle_request(now, host(2 * number), MAC_B);
        cache.resolve(now, host(2 * number + 1));
        while cache.poll_question().is_some() {}
        cache.confirm(now, WHO);
        assert_eq!(cache.resolve(now, WHO), Resolution::Known(MAC_A));
        assert!(cache.entries.len() <= ENTRIES_MAX);
        assert!(cache.unanswered.len() <= UNANSWERED_MAX);
        assert!(cache.deadlines.len() <= cache.entries.len());
    }
    assert!(cache.entries.len() <= ENTRIES_BY_REQUEST_MAX + UNANSWERED_MAX + 1);
}

#[test]
fn a_full_cache_makes_room_where_nothing_is_used() {
    let mut cache = Neighbours::new(None);
    for number in 0..ENTRIES_MAX as u32 {
        cache.resolve(at(0), host(number));
        assert!(cache.handle_answer(at(0), host(number), Some(MAC_A), true));
    }
    // All are in use: no room.
    assert_eq!(cache.resolve(at(1), WHO), Resolution::Pending);
    assert!(!cache.entries.contains_key(&WHO));
    // One stays in use, the others do not.
    cache.resolve(at(50), host(7));
    for number in 0..1000 {
        let newcomer = host(1_000_000 + number);
        cache.resolve(at(61), newcomer);
        cache.handle_answer(at(61), newcomer, Some(MAC_B), true);
        assert_eq!(cache.resolve(at(61), newcomer), Resolution::Known(MAC_B));
    }
    assert_eq!(cache.entries.len(), ENTRIES_MAX);
    assert_eq!(cache.resolve(at(61), host(7)), Resolution::Known(MAC_A));
}

#[test]
fn questions_that_do_not_fit_are_asked_later() {
    let mut cache = Neighbours::new(None);
    let hosts = QUESTIONS_MAX as u32 + 10;
    for number in 0..hosts {
        cache.resolve(at(0), host(number));
    }
    assert_eq!(core::iter::from_fn(|| cache.poll_question()).count(), QUESTIONS_MAX);
    cache.handle_timeout(at(1));
    assert_eq!(core::iter::from_fn(|| cache.poll_question()).count(), UNANSWERED_MAX);
}

/// Each of as many as may be waited for at a time has its questions, however many are due at once.
#[test]
fn all_that_are_waited_for_are_asked() {
    let mut cache = Neighbours::new(None);
    for number in 0..UNANSWERED_MAX as u32 {
        cache.resolve(at(0), host(number));
    }
    for second in 1..=3 {
        let asked: BTreeSet<IpAddr> =
            core::iter::from_fn(|| cache.poll_question()).map(|question| question.target).collect();
        assert_eq!(asked.len(), UNANSWERED_MAX);
        cache.handle_timeout(at(second));
    }
    assert!(!cache.has_questions());
}

/// Neighbours that answer take no place from those that do not yet.
#[test]
fn who_has_not_answered_yet_gives_way_only_to_others_that_have_not() {
    let mut cache = Neighbours::new(None);
    assert_eq!(cache.resolve(at(0), WHO), Resolution::Pending);
    for number in 0..2 * UNANSWERED_MAX as u32 {
        cache.resolve(at(0), host(number));
        assert!(cache.handle_answer(at(0), host(number), Some(MAC_B), true));
    }
    assert!(cache.handle_answer(at(0), WHO, Some(MAC_A), true), "was pushed out");
}

/// Whoever comes from wherever he likes has few asked for, and takes no place from those whom apps
/// wait for.
#[test]
fn strangers_have_few_asked_for() {
    let mut cache = reachable();
    assert_eq!(cache.resolve_for_stranger(at(0), WHO), Some(MAC_A));
    assert!(!cache.has_questions());
    let waited_for = host(0);
    assert_eq!(cache.resolve(at(0), waited_for), Resolution::Pending);
    for number in 1..10_000 {
        assert_eq!(cache.resolve_for_stranger(at(0), host(number)), None);
    }
    let asked = core::iter::from_fn(|| cache.poll_question()).count();
    assert_eq!(asked, UNANSWERED_BY_STRANGERS_MAX);
    assert!(cache.handle_answer(at(0), waited_for, Some(MAC_B), true), "was pushed out");
    assert!(cache.handle_answer(at(0), host(1), Some(MAC_B), true), "it was asked for");
    assert_eq!(cache.resolve_for_stranger(at(0), host(1)), Some(MAC_B));
}

/// When the next deadline is, is known exactly: nothing is looked at before.
#[test]
fn a_deadline_goes_with_its_entry() {
    let mut cache = Neighbours::new(None);
    cache.resolve(at(0), host(1));
    cache.resolve(at(0) + 5, host(2));
    assert_eq!(cache.poll_timeout(), Some(at(1)));
    assert!(cache.handle_answer(at(0) + 6, host(1), Some(MAC_A), true));
    assert_eq!(cache.poll_timeout(), Some(at(1) + 5));
    assert!(cache.handle_answer(at(0) + 6, host(2), Some(MAC_A), true));
    assert_eq!((cache.poll_timeout(), cache.unanswered.len()), (None, 0));
}

/// A cache that is saved and made again after each step behaves as one that is not.
#[test]
fn a_cache_that_is_made_again_all_the_time_is_the_same() {
    for seed in 0..20 {
        let mut random = clearway_base::Random::new(seed);
        let (mut cache, mut other) = (Neighbours::new(None), Neighbours::new(None));
        let mut now = at(100);
        for _ in 0..2000 {
            let (step, who) = (random.below(10), host(random.below(60) as u32));
            let mac = if random.chance(1, 2) { MAC_A } else { MAC_B };
            now = now + random.below(2 * SECOND);
            for cache in [&mut cache, &mut other] {
                match step {
                    0..=3 => _ = cache.resolve(now, who),
                    4 => _ = cache.handle_answer(now, who, Some(mac), mac == MAC_A),
                    5 => cache.handle_request(now, who, mac),
                    6 => cache.handle_announcement(now, who, mac),
                    7 => cache.doubt(now, who),
                    8 => cache.confirm(now, who),
                    _ => cache.handle_link_up(now),
                }
                cache.handle_timeout(now);
            }
            let saved = cache.save();
            cache = Neighbours::new(None).restore(saved.clone(), now).expect("just saved");
            assert_eq!(cache.save(), saved);
            cache.audit().expect("in order");
            assert_eq!(saved, other.save());
            assert_eq!(cache.poll_timeout(), other.poll_timeout());
            if random.chance(1, 4) {
                assert_eq!(cache.poll_question(), other.poll_question());
                assert_eq!(cache.poll_settled(), other.poll_settled());
            }
        }
    }
}

#[test]
fn what_cannot_have_been_saved_is_refused_or_cut_to_what_can_be() {
    let mut cache = reachable();
    cache.resolve(at(0), host(1));
    let saved = cache.save();
    let restore = |change: fn(&mut NeighboursState)| {
        let mut changed = saved.clone();
        change(&mut changed);
        Neighbours::new(None).restore(changed, at(1)).map(|cache| cache.audit().expect("in order"))
    };
    assert!(restore(|_| ()).is_ok());
    assert!(restore(|state| state.entries.push(state.entries[0])).is_err(), "there twice");
    assert!(restore(|state| state.entries[0].1.unanswered = Some(at(0))).is_err(), "known");
    assert!(restore(|state| state.entries[1].1.unanswered = None).is_err(), "not known");
    assert!(restore(|state| state.questions = vec![state.questions[0]; 5000]).is_err());
    assert!(restore(|state| state.settled = vec![(WHO, true); 5000]).is_err());
    let mut late = saved.clone();
    for (_, entry) in &mut late.entries {
        if let State::Incomplete { deadline, .. } = &mut entry.state {
            *deadline = Time::MAX;
        }
        entry.used = Some(Time::MAX);
    }
    let cache = Neighbours::new(None).restore(late, at(1)).expect("times are cut");
    assert_eq!(cache.poll_timeout(), Some(at(2)));
}
