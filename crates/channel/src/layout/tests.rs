use super::*;

#[test]
fn areas_do_not_overlap_and_start_on_pages() {
    for entries in [16, 64, 1024] {
        let sizes = Sizes {
            submission_entries: entries,
            completion_entries: 16,
            transmit_pool_bytes: 1 << 16,
            receive_pool_bytes: 1 << 20,
            shared_bytes: 0,
        };
        sizes.check().unwrap();
        let areas = Areas::new(&sizes);
        let starts =
            [areas.submission_ring, areas.completion_ring, areas.transmit_pool, areas.receive_pool];
        assert!(starts.is_sorted() && starts.iter().all(|start| start % PAGE_BYTES == 0));
        assert!(areas.completion_ring - areas.submission_ring >= entries as usize * ENTRY_BYTES);
        assert_eq!(areas.total_bytes, areas.receive_pool + (1 << 20));
    }
}

#[test]
fn bad_sizes_name_the_field_and_its_range() {
    let sizes = Sizes { completion_entries: 1000, ..Sizes::default() };
    assert_eq!(
        sizes.check().unwrap_err().to_string(),
        "completion_entries is 1000; it must be a power of two from 16 to 65536"
    );
    for (entries, bytes) in [(1 << 4, 1 << 16), (1 << 16, 1 << 30)] {
        let sizes = Sizes {
            submission_entries: entries,
            completion_entries: entries,
            transmit_pool_bytes: bytes,
            receive_pool_bytes: bytes,
            shared_bytes: 0,
        };
        assert_eq!(sizes.check(), Ok(()), "what the text allows");
        assert_eq!(sizes.total_bytes(), Areas::new(&sizes).total_bytes);
        assert!(sizes.total_bytes() > 2 * (bytes as usize + entries as usize * ENTRY_BYTES));
    }
    assert!(Sizes { receive_pool_bytes: 1 << 31, ..Sizes::default() }.check().is_err());
    assert!(Sizes { transmit_pool_bytes: 0, ..Sizes::default() }.check().is_err());
}

/// Whoever changes the layout makes a new version of it, so that apps and daemons of different
/// releases do not take one for the other.
#[test]
fn the_layout_of_a_version_never_changes() {
    const RECORDED: [(u32, u64); 9] = [
        (1, 0x9644_cc96_68d6_5243),
        (2, 0xf0e4_ff18_e5c6_fc86),
        (3, 0x022d_7df8_f472_7615),
        (4, 0x9acc_60d4_0c0c_19b6),
        (5, 0x9fba_2dbb_5fb2_8056),
        (6, 0x7f94_1a4a_496c_6003),
        (7, 0x26c6_344e_c01e_d6da),
        (8, 0xeedb_1d6d_7fc8_ff22),
        (9, 0x6a95_1be8_e25a_c516),
    ];
    for (version, hash) in RECORDED {
        assert_eq!(
            layout_of(version),
            hash,
            "version {version} is now {:016x}: docs/channel.md, \"Versions\", says what to do",
            layout_of(version)
        );
        assert_eq!(version_of(hash), Some(version));
    }
    assert_eq!(RECORDED.last().map(|(version, _)| *version), Some(Versions::DAEMON.max));
    assert_eq!(version_of(LAYOUT), Some(Versions::APP.max));
    assert_eq!(version_of(0), None);
}

#[test]
fn the_highest_version_of_both_is_taken() {
    let range = |min, max| Versions { min, max };
    let cases = [
        (range(1, 1), range(1, 2), Some(1)),
        (range(2, 2), range(1, 2), Some(2)),
        (range(1, 9), range(1, 2), Some(2)),
        (range(2, 9), range(3, 4), Some(4)),
        (range(3, 4), range(1, 2), None),
        (range(0, 0), range(1, 2), None),
        (range(2, 1), range(1, 2), None),
        (range(2, 0), range(1, 2), None),
    ];
    for (app, daemon, common) in cases {
        assert_eq!(Understood::Versions(app).common(daemon).ok(), common, "{app} and {daemon}");
    }
    let first = Understood::Hash("9644cc9668d65243".into());
    assert_eq!(first.common(range(1, 2)), Ok(1));
    assert!(first.common(range(2, 3)).is_err(), "no daemon is for ever");
    for hash in ["", "xyzzy", "644cc9668d65243", "+644cc9668d65243", "9644CC9668D65243"] {
        assert!(Understood::Hash(hash.into()).common(range(1, 2)).is_err(), "{hash}");
    }
}

#[test]
fn a_mismatch_names_both_ranges_and_what_to_update() {
    let daemon = Versions { min: 2, max: 3 };
    let told = |app: Understood| app.common(daemon).unwrap_err().to_string();
    assert_eq!(
        told(Understood::Versions(Versions { min: 4, max: 5 })),
        "the app's library understands versions 4 to 5 of the channel, and this daemon versions 2 \
         to 3; update the daemon to the release of the app's library"
    );
    assert_eq!(
        told(Understood::Hash("9644cc9668d65243".into())),
        "the app's library understands version 1 of the channel, and this daemon versions 2 to 3; \
         build the app with the library of the daemon's release"
    );
    let older = told(Understood::Hash("0123".into()));
    assert!(older.contains("a layout without a version (0123) of the channel"), "{older}");
}

fn two_pools(areas: &Areas, sizes: &Sizes) -> [Region; 2] {
    let regions: Vec<_> = areas.regions(sizes).collect();
    regions.try_into().expect("no shared memory was asked for")
}

#[test]
fn shared_memory_is_there_if_it_was_asked_for() {
    let sizes = Sizes { shared_bytes: 1 << 16, ..Sizes::default() };
    let areas = Areas::new(&sizes);
    let regions: Vec<_> = areas.regions(&sizes).collect();
    let found = |regions: &[Region]| Areas::find(&sizes, regions, areas.total_bytes);
    assert_eq!(found(&regions), Some(areas));
    assert_eq!(areas.total_bytes - areas.shared_memory, 1 << 16);
    assert!(found(&regions[..2]).is_none(), "not there");
    let over = Region { offset: regions[1].offset, ..regions[2] };
    assert!(found(&[regions[0], regions[1], over]).is_none(), "over a pool");
    for (shared_bytes, is_right) in [(0, true), (4096, true), (1 << 30, true), (2048, false)] {
        assert_eq!(Sizes { shared_bytes, ..sizes }.check().is_ok(), is_right, "{shared_bytes}");
    }
    assert!(Sizes { shared_bytes: 12288, ..sizes }.check().is_err(), "no power of two");
}

#[test]
fn the_app_finds_its_pools_wherever_they_are() {
    let sizes = Sizes::default();
    let areas = Areas::new(&sizes);
    let found = |regions: &[Region], bytes| Areas::find(&sizes, regions, bytes);
    let [transmit, receive] = two_pools(&areas, &sizes);
    assert_eq!(found(&[transmit, receive], areas.total_bytes), Some(areas));
    // What it does not know is left alone, wherever it says it is.
    let unknown = Region { kind: 77, offset: 5, length: u64::MAX };
    let total_bytes = areas.total_bytes + PAGE_BYTES;
    let all = [unknown, receive, unknown, transmit];
    assert_eq!(
        found(&all, total_bytes),
        Some(Areas { total_bytes, shared_memory: total_bytes, ..areas })
    );
    let moved = Region { offset: receive.offset + PAGE_BYTES as u64, ..receive };
    let receive_pool = areas.receive_pool + PAGE_BYTES;
    let shared_memory = total_bytes;
    let expected = Areas { receive_pool, shared_memory, total_bytes, ..areas };
    assert_eq!(found(&[transmit, moved], total_bytes), Some(expected));
}

#[test]
fn a_pool_that_cannot_be_where_it_is_said_to_be_is_refused() {
    let sizes = Sizes::default();
    let areas = Areas::new(&sizes);
    let [transmit, receive] = two_pools(&areas, &sizes);
    let is_refused = |regions: &[Region]| Areas::find(&sizes, regions, areas.total_bytes).is_none();
    let at = |offset| Region { offset, ..receive };
    assert!(is_refused(&[]) && is_refused(&[transmit]) && is_refused(&[receive]));
    assert!(is_refused(&[transmit, receive, receive]), "twice");
    assert!(is_refused(&[transmit, Region { length: 1 << 16, ..receive }]), "smaller than told");
    assert!(is_refused(&[transmit, at(receive.offset + 64)]), "on no page, and outside");
    assert!(is_refused(&[transmit, at(receive.offset - 4096)]), "over the other");
    assert!(is_refused(&[transmit, at(0)]), "over the rings");
    assert!(is_refused(&[transmit, at(u64::MAX - 4095)]), "outside");
}

/// After a change of the layout:
/// `CLEARWAY_WRITE_DOCUMENT=1 cargo test -p clearway-channel document`.
#[cfg(not(miri))]
#[test]
fn the_document_lists_what_is_declared() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/channel.md");
    let committed = std::fs::read_to_string(path).unwrap();
    let mut text = committed.clone();
    let tables = [
        ("regions", region_table()),
        ("commands", entry_table(Command::KINDS)),
        ("completions", entry_table(Completion::KINDS)),
        ("numbers", number_table()),
    ];
    for (name, table) in tables {
        let begin = format!("<!-- generated: {name} -->\n");
        let (before, rest) = text.split_once(&begin).expect(name);
        let (_, after) = rest.split_once("<!-- end -->").expect(name);
        text = format!("{before}{begin}{table}<!-- end -->{after}");
    }
    if std::env::var_os("CLEARWAY_WRITE_DOCUMENT").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert!(committed == text, "docs/channel.md is out of date; write it again, and commit it");
}

#[cfg(not(miri))]
fn region_table() -> String {
    let rows =
        KINDS.iter().map(|kind| format!("| {} | {} | {} |\n", kind.number, kind.name, kind.doc));
    format!("| kind | region | what it is |\n|---|---|---|\n{}", rows.collect::<String>())
}

#[cfg(not(miri))]
fn entry_table(kinds: &[Kind]) -> String {
    let rows = kinds.iter().map(|kind| {
        let places: Vec<String> = kind.places.iter().map(place).collect();
        let (opcode, name, doc) = (kind.opcode, kind.name, kind.doc.trim());
        format!("| {opcode} | {name} | {} | {doc} |\n", places.join("; "))
    });
    let head = "| opcode | entry | where: what | what it says |\n|---|---|---|---|\n";
    format!("{head}{}", rows.collect::<String>())
}

#[cfg(not(miri))]
fn place(place: &Place) -> String {
    let fields = place.fields.iter().map(|field| format!("{} {}", field.name, field.kind));
    format!("{}: {}", place.name, fields.collect::<Vec<_>>().join(", "))
}

#[cfg(not(miri))]
fn number_table() -> String {
    let rows = NUMBERS
        .iter()
        .map(|Number { name, value, doc }| format!("| {name} | {value} | {} |\n", doc.trim()));
    format!("| name | value | what it is |\n|---|---|---|\n{}", rows.collect::<String>())
}
