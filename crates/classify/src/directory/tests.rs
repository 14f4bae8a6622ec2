use super::{Directory, EntryId, Rights, SendFault};
use crate::table::{Linear, Production, Table};
use crate::{Clause, Filter};
use clearway_base::Random;
use clearway_wire::digest::{Digest, fields};

fn clauses(text: &str) -> Vec<Clause> {
    if text.is_empty() {
        return Vec::new();
    }
    let filter: Filter = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    filter.clauses().to_vec()
}

fn rights(priority: u16, receive: &str) -> Rights {
    Rights { receive: clauses(receive), priority, ..Rights::default() }
}

fn directory() -> Directory {
    Directory::new(Production::new())
}

/// An untagged UDP packet over IPv4.
fn udp(source: u32, source_port: u64, destination: u32, port: u64) -> Digest {
    let words = fields::SOURCE_PORT.place(source_port) | fields::DESTINATION_PORT.place(port);
    let addresses = u64::from(source) << 32 | u64::from(destination);
    Digest::from_words([words | 0x1161_0800, 0, 2 << 56, addresses, 0, 0, 0, 0])
}

fn receiver(directory: &mut Directory, digest: Digest) -> Option<EntryId> {
    let mut found = [None];
    directory.receivers(&[digest], &mut found);
    found[0]
}

/// What each packet's owner is, asked one by one, and then all at once.
fn receivers(directory: &mut Directory, digests: &[Digest]) -> Vec<Option<EntryId>> {
    let each: Vec<_> = digests.iter().map(|digest| receiver(directory, *digest)).collect();
    let mut found = vec![None; digests.len()];
    directory.receivers(digests, &mut found);
    assert_eq!(found, each);
    // Twice: asked, and remembered.
    for _ in 0..2 {
        let alike = directory.common_receiver(digests);
        assert!(alike.is_none_or(|owner| each.iter().all(|each| *each == owner)), "{alike:?}");
    }
    found
}

/// Entries come and go, and what was said of packets is not said of what has come since.
#[test]
fn packets_that_look_alike_to_all_rules_have_one_owner_and_others_their_own() {
    let mut directory = directory();
    let server = directory.insert(rights(0, "udp dst port 53"));
    let clients: Vec<_> =
        (0..32).map(|client| udp(client, 1000 + u64::from(client), 7, 53)).collect();
    assert_eq!(receivers(&mut directory, &clients), [Some(server); 32]);
    assert_eq!(directory.common_receiver(&clients), Some(Some(server)));
    let mut with_another = clients.clone();
    with_another[31] = udp(31, 1031, 7, 54);
    assert_eq!(receivers(&mut directory, &with_another)[30..], [Some(server), None]);
    assert_eq!(directory.common_receiver(&with_another), None);
    for filter in ["udp src port 1009", "udp src portrange 1009-1011", "src host 0.0.0.9"] {
        let narrow = directory.insert(rights(1, filter));
        let found = receivers(&mut directory, &clients);
        assert_eq!((found[8], found[9]), (Some(server), Some(narrow)), "{filter}");
        directory.remove(narrow);
        assert_eq!(receivers(&mut directory, &clients), [Some(server); 32], "{filter}");
    }
    directory.remove(server);
    assert_eq!(directory.common_receiver(&clients), Some(None), "nothing is remembered of it");
    assert_eq!(receivers(&mut directory, &clients), [None; 32]);
}

#[test]
fn the_higher_priority_goes_first_and_of_equals_the_one_that_came_first() {
    let mut directory = directory();
    let wide = directory.insert(rights(0, "udp dst port 53 or udp dst port 54"));
    let wider = directory.insert(rights(0, "udp"));
    assert_eq!(receiver(&mut directory, udp(1, 1, 1, 54)), Some(wide));
    assert_eq!(receiver(&mut directory, udp(1, 1, 1, 55)), Some(wider));
    let narrow = directory.insert(rights(1, "dst host 10.0.0.2 and udp dst port 53"));
    assert_eq!(receiver(&mut directory, udp(1, 1, 0x0a00_0002, 53)), Some(narrow));
    assert_eq!(receiver(&mut directory, udp(1, 1, 0x0a00_0003, 53)), Some(wide));
    assert!(directory.remove(narrow) && !directory.remove(narrow));
    assert_eq!(receiver(&mut directory, udp(1, 1, 0x0a00_0002, 53)), Some(wide));
}

#[test]
fn copies_are_given_to_each_who_wants_one_once() {
    let mut directory = directory();
    let copies = |text| Rights { copies: clauses(text), ..Rights::default() };
    let first = directory.insert(copies("udp or dst port 53"));
    let second = directory.insert(copies("any"));
    let wanted =
        |directory: &Directory, port| directory.copies(&udp(1, 1, 1, port)).collect::<Vec<_>>();
    assert_eq!(wanted(&directory, 53), [first, second]);
    assert_eq!(receiver(&mut directory, udp(1, 1, 1, 53)), None, "a copy takes nothing");
    assert!(directory.remove(first) && directory.has_copies());
    assert_eq!(wanted(&directory, 54), [second]);
    assert!(directory.remove(second) && !directory.has_copies());
}

#[test]
fn what_may_be_sent_and_why_not() {
    let mut directory = directory();
    let send = "ether src 02:00:00:00:00:00 and src host 10.0.0.1 and udp src portrange 50-60";
    let id = directory.insert(Rights { send: clauses(send), ..Rights::default() });
    let good = udp(0x0a00_0001, 53, 7, 7);
    assert!(directory.may_send(id, &good));
    assert_eq!(directory.send_fault(id, &good), None);
    let with = |word: usize, bits: u64| {
        let mut words = *good.words();
        words[word] ^= bits;
        Digest::from_words(words)
    };
    for (digest, fault) in [
        (with(2, 1 << 16), SendFault::MacSource),
        (with(0, 0x0080_0000), SendFault::Vlan),
        (with(0, 0x0010_0000), SendFault::Network),
        (with(0, 0x0100_0000), SendFault::Protocol),
        (with(0, 0x0002_0000), SendFault::Unclear),
        (with(3, 1 << 32), SendFault::Source),
        (with(0, 1 << 56), SendFault::SourcePort),
    ] {
        assert!(!directory.may_send(id, &digest));
        assert_eq!(directory.send_fault(id, &digest), Some(fault));
    }
    let silent = directory.insert(rights(0, "udp"));
    assert_eq!(directory.send_fault(silent, &good), Some(SendFault::Nothing));
}

/// Even if others look at the same bits.
#[test]
fn nothing_is_remembered_of_one_that_is_gone() {
    let mut directory = directory();
    let gone = directory.insert(rights(0, "udp dst port 53"));
    directory.insert(rights(0, "udp dst port 54"));
    let packets = [udp(1, 1, 7, 53); 2];
    for _ in 0..2 {
        assert_eq!(directory.common_receiver(&packets), Some(Some(gone)));
    }
    assert!(directory.remove(gone));
    assert_eq!(directory.common_receiver(&packets), Some(None));
}

/// Everything that is made is counted: what is left is what was not removed.
#[test]
fn what_is_removed_leaves_nothing_behind() {
    let mut random = Random::new(7);
    let mut directory = directory();
    let before = directory.table().memory_bytes();
    for round in 0..3 {
        let mut entries = Vec::new();
        for port in 1..2000 {
            let text = match random.below(4) {
                0 => format!("udp dst port {port}"),
                1 => format!("udp dst portrange {port}-{}", port + random.below(9)),
                2 => format!("src net 10.0.0.0/{} and udp dst port {port}", 7 + random.below(26)),
                _ => format!("udp dst port {port} or tcp dst portrange 1-{port}"),
            };
            let rights =
                Rights { copies: clauses("arp"), send: clauses("udp"), ..rights(0, &text) };
            entries.push(directory.insert(rights));
            check_books(&directory);
        }
        // Trees are made of them meanwhile.
        (0..2000).for_each(|port| _ = receiver(&mut directory, udp(1, 1, 1, port)));
        while let Some(last) = entries.len().checked_sub(1) {
            let at = random.below(last as u64 + 1) as usize;
            assert!(directory.remove(entries.swap_remove(at)));
            check_books(&directory);
        }
        assert_eq!(directory.decisive, [0; 7], "nothing is looked at");
        assert_eq!(receiver(&mut directory, udp(1, 1, 1, 5)), None);
        assert_eq!((directory.rules.len(), directory.table().rules()), (0, 0), "round {round}");
        (0..2000).for_each(|port| _ = receiver(&mut directory, udp(1, 1, 1, port)));
        let left = directory.table().memory_bytes();
        assert!(left < before + (64 << 10), "{left} bytes for nothing, {before} at first");
    }
}

/// Its mask is another's, too.
#[test]
fn ports_of_a_range_that_is_gone_are_not_looked_at() {
    let mut directory = directory();
    directory.insert(rights(0, "udp dst portrange 0-65535"));
    let range = directory.insert(rights(1, "udp dst portrange 5-9"));
    check_books(&directory);
    assert!(directory.remove(range));
    check_books(&directory);
}

fn check_books(directory: &Directory) {
    let of_entries: usize = directory.entries.iter().map(|(_, entry)| entry.rules.len()).sum();
    let of_masks: usize = directory.masks.values().sum();
    let rules = directory.rules.len();
    assert_eq!([of_entries, of_masks, directory.table().rules()], [rules; 3]);
    let ranges = directory.rules.iter().filter(|(_, place)| place.has_range).count();
    assert_eq!(directory.ranges, ranges);
    let decisive = directory.masks.keys().fold(directory.mask_of_ranges(), super::either);
    assert_eq!(directory.decisive, decisive);
    let copying = directory.entries.iter().filter(|(_, entry)| entry.has_copies).count();
    assert_eq!(directory.copies.len(), copying);
}

/// The short cut for bursts of packets that look alike never says anything else than a search of
/// all rules, whatever came and went between two bursts.
#[test]
fn bursts_that_look_alike_find_what_a_search_of_all_rules_finds() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let (mut directory, mut oracle) = (directory(), Directory::new(Linear::new()));
        let mut entries: Vec<(EntryId, EntryId)> = Vec::new();
        for _ in 0..200 {
            if random.chance(1, 4) && !entries.is_empty() {
                let at = random.below(entries.len() as u64) as usize;
                let (one, other) = entries.swap_remove(at);
                assert!(directory.remove(one) && oracle.remove(other));
            } else if random.chance(1, 2) {
                let (low, high) = (random.below(6), 5 + random.below(3));
                let text = match random.below(4) {
                    0 => format!("udp dst port {low}"),
                    1 => format!("udp dst portrange {low}-{high}"),
                    2 => format!("src host 0.0.0.{low} and udp"),
                    _ => format!("udp src portrange {low}-{high} and dst port {high}"),
                };
                let rights = rights(random.below(3) as u16, &text);
                entries.push((directory.insert(rights.clone()), oracle.insert(rights)));
            }
            let mut few = || random.below(9);
            let packet = udp(few() as u32, few(), 1, few());
            let mut burst = vec![packet; 1 + random.below(32) as usize];
            if random.chance(1, 2) {
                let at = random.below(burst.len() as u64) as usize;
                burst[at] = udp(random.below(9) as u32, random.below(9), 1, random.below(9));
            }
            let expected: Vec<Option<EntryId>> = burst
                .iter()
                .map(|digest| {
                    let mut found = [None];
                    oracle.receivers(&[*digest], &mut found);
                    found[0].map(|found| entries.iter().find(|(_, of)| *of == found).unwrap().0)
                })
                .collect();
            assert_eq!(receivers(&mut directory, &burst), expected, "seed {seed}");
        }
    }
}
