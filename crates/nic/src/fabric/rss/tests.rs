use super::*;
use crate::test_frames::{ethernet, ipv4};

/// A UDP packet between two hosts and these ports.
fn frame(from: u8, to: u8, source: u16, destination: u16) -> Vec<u8> {
    let ports = [source.to_be_bytes(), destination.to_be_bytes(), [0, 8], [0; 2]].concat();
    let mut packet = ipv4([10, 0, 0, to], 17, &[], 0, &ports);
    packet[12..16].copy_from_slice(&[10, 0, 0, from]);
    ethernet(&[], 0x0800, &packet)
}

fn rss(hash: Hash, seed: u64) -> Rss {
    let options = RssOptions { hash, table_entries: 512, shuffled: true };
    Rss::new(options, 8, &mut Random::new(seed))
}

/// How many queues are hit by 256 frames.
fn queues_hit(rss: &Rss, frame: impl Fn(u16) -> Vec<u8>) -> usize {
    let mut queues: Vec<_> = (0..256).map(|number| rss.queue(&frame(number))).collect();
    queues.sort_unstable();
    queues.dedup();
    queues.len()
}

#[test]
fn each_hash_looks_at_what_it_should() {
    for (name, hash) in Hash::ALL {
        let rss = rss(hash, 1);
        let by_source = queues_hit(&rss, |port| frame(1, 2, 0xc000 + port, 20707));
        let by_destination = queues_hit(&rss, |port| frame(1, 2, 20707, 0xc000 + port));
        let by_host = queues_hit(&rss, |host| frame(1, host as u8, 7, 20707));
        let expected = match hash {
            Hash::Ports => (8, 8, 1),
            Hash::NoSourcePort => (1, 8, 8),
            Hash::Destination => (1, 1, 8),
            _ => (8, 8, 8),
        };
        assert_eq!((by_source, by_destination, by_host), expected, "{name}");
    }
}

#[test]
fn symmetric_hashes_and_no_others_bring_both_directions_together() {
    for (name, hash) in Hash::ALL {
        let rss = rss(hash, 2);
        let same =
            |port| rss.queue(&frame(1, 2, port, 20707)) == rss.queue(&frame(2, 1, 20707, port));
        let all = (0xc000..0xc100).all(same);
        assert_eq!(all, matches!(hash, Hash::Symmetric | Hash::Folded | Hash::Ports), "{name}");
    }
}

#[test]
fn another_key_is_another_mapping() {
    for (name, hash) in Hash::ALL {
        let (one, other) = (rss(hash, 3), rss(hash, 4));
        let frames = (0..=255).map(|host| frame(1, host, 0xc000 + u16::from(host), 20707));
        let moved = frames.filter(|frame| one.queue(frame) != other.queue(frame)).count();
        assert!(moved > 100, "{name}: {moved}");
    }
}

#[test]
fn the_table_says_how_even_it_is() {
    let even = RssOptions { table_entries: 128, shuffled: false, ..RssOptions::default() };
    let rss = Rss::new(even, 4, &mut Random::new(5));
    assert!((0..4).all(|queue| rss.table.iter().filter(|entry| **entry == queue).count() == 32));
    let shuffled = RssOptions { shuffled: true, ..even };
    let rss = Rss::new(shuffled, 4, &mut Random::new(5));
    let counts = (0..4).map(|queue| rss.table.iter().filter(|entry| **entry == queue).count());
    assert!(counts.clone().all(|count| (10..64).contains(&count)));
    assert!(counts.max() > Some(32));
}

#[test]
fn what_is_not_ip_goes_to_the_first_queue() {
    let rss = rss(Hash::Toeplitz, 6);
    let whole = frame(1, 2, 3, 4);
    (0..34).for_each(|length| assert_eq!(rss.queue(&whole[..length]), 0));
    assert_eq!(rss.queue(&ethernet(&[], 0x0806, &[7; 46])), 0);
}

#[test]
fn crc32c_matches_published_vectors() {
    // RFC 3720, appendix B.4.
    assert_eq!(crc32c(0, [0; 32].iter()), 0x8a91_36aa);
    assert_eq!(crc32c(0, [0xff; 32].iter()), 0x62a8_ab43);
}
