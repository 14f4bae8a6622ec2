use super::measure::Effort;
use super::outcome::TABLES;
use super::rules::Line;
use super::trace::Header;
use super::{acl, exact, generate, measure, none_is_wrong, rules, trace};
use std::path::Path;

/// The rule files that are in the repository.
fn set(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/classify/sets").join(name)
}

#[test]
fn rule_files_are_read_and_nonsense_has_its_line() {
    let line = Line::parse(
        "@176.19.181.33/31\t90.145.23.162/32\t0 : 65535\t1550 : 1551\t0x06/0xFF\t0x0000/0x0200\t",
    );
    let line = line.unwrap();
    assert_eq!(line.source, (0xb013_b520, 31));
    assert_eq!(line.destination_ports, (1550, 1551));
    assert_eq!(line.protocol, (6, 0xff));
    for nonsense in [
        "",
        "1.2.3.4/5 1.2.3.4/5 0 : 1 0 : 1 0x06/0xFF",
        "@1.2.3.4/33 1.2.3.4/5 0 : 1 0 : 1 0x06/0xFF",
        "@1.2.3/8 1.2.3.4/5 0 : 1 0 : 1 0x06/0xFF",
        "@1.2.3.4/5 1.2.3.4/5 2 : 1 0 : 1 0x06/0xFF",
        "@1.2.3.4/5 1.2.3.4/5 0 : 70000 0 : 1 0x06/0xFF",
        "@1.2.3.4/5 1.2.3.4/5 0 : 1 0 : 1 6/255",
        "@1.2.3.4/5 1.2.3.4/5 0 : 1 0 : 1 0x06/0xFF 0/0 what",
        "@1.2.3.4/5 1.2.3.4/5 0 1 0 1 0x06/0xFF",
    ] {
        assert!(Line::parse(nonsense).is_err(), "{nonsense}");
    }
    let file = std::env::temp_dir().join(format!("clearway-rules-{}", std::process::id()));
    std::fs::write(&file, "@1.2.3.4/5 1.2.3.4/5 0 : 1 0 : 1 0x06/0xFF\n\n@nonsense\n").unwrap();
    let error = rules::read(&file).unwrap_err().to_string();
    std::fs::remove_file(&file).unwrap();
    assert!(error.contains(":3: "), "{error}");
    assert!(rules::read(&file).unwrap_err().to_string().contains("cannot read"));
}

#[test]
fn traces_are_those_of_aclbench() {
    // The first lines of what `aclbench gen acl1_1k FILE 10 1` writes.
    let expected = "2954081542\t883848192\t51467\t1521\t6\t83\n\
        1483495679\t4136892993\t26518\t1650\t6\t33\n1483496074\t1483539776\t19003\t1705\t6\t620";
    let lines = rules::read(&set("acl1_1k")).unwrap();
    let made = trace::generate(&lines, 1, trace::SEED);
    for (line, header) in expected.lines().zip(made) {
        assert_eq!(trace::parse(line), Some(header));
    }
    for nonsense in
        ["", "1 2 3 4 5", "1 2 3 4 5 -2", "1 2 3 4 5 6 7", "1 2 70000 4 5 6", "a b c d e f"]
    {
        assert_eq!(trace::parse(nonsense), None, "{nonsense}");
    }
}

/// Small, so that it runs with the tests: that every table answers rightly, and what is counted.
#[test]
fn all_tables_are_right_about_a_real_rule_set() {
    let lines = rules::read(&set("acl1_1k")).unwrap();
    let all: Vec<_> = lines.iter().enumerate().map(|(at, line)| line.rule(at)).collect();
    let headers = trace::generate(&lines[..200], 10, trace::SEED);
    let outcome = measure::all(&all[..200], &headers, Effort::LITTLE);
    assert_eq!(outcome.tables.len(), TABLES.len());
    assert!(outcome.tables.values().all(|figures| figures.wrong == 0), "{}", outcome.text());
    assert!(outcome.masks > 0 && outcome.masks <= outcome.masks_hashed);
    let headers = trace::generate(&lines, 3, trace::SEED);
    let (with, without) = measure::production(&all, &headers, Effort::LITTLE);
    assert_eq!((with.wrong, without.wrong), (0, 0));
    // At 10,000 rules, librte_acl takes 1,500 to 14,000 bytes for each (docs/classify.md).
    let bytes_per_rule = with.memory_bytes / all.len();
    assert!(bytes_per_rule < 1500, "{bytes_per_rule} bytes per rule");
}

#[test]
fn a_wrong_answer_is_a_failure() {
    let lines = generate::rules("fw1", 20, 5).unwrap();
    let all: Vec<_> = lines.iter().enumerate().map(|(at, line)| line.rule(at)).collect();
    let mut headers = trace::generate(&lines, 3, trace::SEED);
    let effort = Effort::LITTLE.only(Some("linear"));
    let failure = |headers: &[Header]| {
        let wrong = measure::all(&all, headers, effort).wrong();
        none_is_wrong(wrong).err().map(|error| error.to_string())
    };
    assert_eq!(failure(&headers), None);
    headers[0].first_match = Some(all.len() as u32);
    let failure = failure(&headers).expect("it is another rule");
    assert!(failure.contains("answers are wrong"), "{failure}");
}

/// Shapes that nobody made a table for: all tables are right about a few rules of each, and the
/// production table, with what is in its trees and what is not, about more.
#[test]
fn all_tables_are_right_about_generated_rules_of_every_shape() {
    let refusal = generate::rules("no such", 1, 1).unwrap_err().to_string();
    let shapes: Vec<_> = refusal.rsplit("there are ").next().unwrap().split(", ").collect();
    assert_eq!(shapes.len(), 18, "{refusal}");
    for shape in shapes {
        for (count, only) in [(40, None), (400, Some("production"))] {
            let lines = generate::rules(shape, count, 5).unwrap();
            assert!(lines.len() > count / 2, "{shape}: {} rules", lines.len());
            let text = generate::text(&lines);
            let parsed: Result<Vec<_>, _> = text.lines().map(Line::parse).collect();
            assert_eq!(parsed.unwrap(), lines, "{shape}");
            assert_eq!(generate::rules(shape, count, 5).unwrap(), lines, "{shape}");
            let headers = trace::generate(&lines, 10, trace::SEED);
            let all: Vec<_> = lines.iter().enumerate().map(|(at, line)| line.rule(at)).collect();
            let outcome = measure::all(&all, &headers, Effort::LITTLE.only(only));
            let is_right = outcome.tables.values().all(|figures| figures.wrong == 0);
            assert!(is_right, "{shape}: {}", outcome.text());
        }
    }
}

#[test]
fn the_contenders_words_are_understood() {
    let output = "acl1_1k rules=942 headers=9420 wrong=0 build_ms=20.5 add_ms=0.50 mem_KiB=657 \
        rules_KiB=100 b32_ns=17.5 b32_min=17.0 b32_max=18.0 b1_ns=79.0 answers=0";
    let figures = acl::parse(output).unwrap();
    assert_eq!((figures.ns_per_packet, figures.build_ms), (17.5, 21.0));
    assert_eq!(figures.memory_bytes, 657 * 1024);
    assert_eq!(acl::parse(&output.replace("wrong=0", "wrong=3")), None);
}

#[test]
fn connections_are_measured() {
    assert!(exact::run(300, 20, true, Effort::LITTLE).starts_with("[{\"connections\":100"));
}

#[test]
fn the_command_line_keeps_messages_and_classify_apart() {
    use clap::Parser;
    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        bench: super::BenchCommand,
    }
    for good in [
        "rtt",
        "rtt --size 64",
        "classify --exact 5 --patterns 7",
        "classify --rules a --trace b --json",
        "classify --generate fw1 --count 5 --seed 7",
    ] {
        let words = std::iter::once("bench").chain(good.split(' '));
        let bench = Arguments::try_parse_from(words).expect(good).bench;
        assert_eq!(bench.messages.workload.is_some(), good.starts_with("rtt"), "{good}");
        assert_eq!(bench.special.is_some(), good.starts_with("classify"), "{good}");
    }
    for bad in [
        "rtt --rules a",
        "classify --size 64",
        "classify --trace b",
        "classify --sets a --rules b",
        "classify --sets a --trace b",
        "classify --sets a --count 5",
        "classify --rules a --plots b",
        "classify --rules a --aclbench b",
        "classify --rules a --seed 5",
        "classify --rules a --patterns 5",
        "classify --exact 5 --trace b",
        "classify --exact 5 --table linear",
        "classify --exact 5 --patterns 65537",
        "classify --generate fw1 --table linear",
        "classify --generate fw1 --patterns 5",
    ] {
        let words = std::iter::once("bench").chain(bad.split(' '));
        assert!(Arguments::try_parse_from(words).is_err(), "{bad}");
    }
}
