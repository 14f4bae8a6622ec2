use super::*;
use crate::cpu::Cores;
use crate::load::Sample;

fn outcome(p50_ns: u64, rate_per_s: f64) -> Outcome {
    let sample = Sample {
        p50_ns,
        p99_ns: 2 * p50_ns,
        p999_ns: 3 * p50_ns,
        rate_per_s,
        gbit_per_s: rate_per_s * 64.0 * 8.0 / 1e9,
        lost: 1,
    };
    Outcome { sample, cpu_s: 0.5, cpu_s_per_gbit: 2.5 }
}

fn report() -> Report {
    let command = crate::Command {
        workload: Some(crate::Workload::Rtt),
        remote: crate::Remote::default(),
        wire: crate::Wire::Memif,
        size: vec![64],
        window: None,
        layout: crate::Layout::Paired,
        idle: None,
        app: None,
        c_app: None,
        tcp: false,
        in_place: false,
        kernel_end: None,
        kernel_plain: false,
        compare: vec![crate::Compare::Tcp],
        seconds: 1.0,
        runs: Some(3),
        mtu: None,
        kernel_only: false,
        json: true,
    };
    let plan = command.plan().expect("the options agree");
    let ours = vec![outcome(2000, 400_000.0), outcome(1000, 500_000.0), outcome(3000, 450_000.0)];
    let theirs = vec![outcome(10_000, 90_000.0), outcome(8000, 110_000.0)];
    let one_core = Cores { client: 0, server: 0 };
    let mut samples = Samples::new(one_core, [Contender::Clearway, Contender::TcpSpin]);
    for (contender, outcomes) in [(Contender::Clearway, ours), (Contender::TcpSpin, theirs)] {
        for outcome in outcomes {
            samples.take(contender, || Ok::<_, ()>(outcome)).expect("it was measured");
        }
    }
    Report::new(&plan, &samples, "veth", 1500, vec!["a note".into()])
}

#[test]
fn medians_spread_and_ratios() {
    let found = report().summary.found;
    let ours = found.figures(Contender::Clearway).expect("took part");
    assert_eq!((ours.p50_ns, ours.spread.p50_ns, ours.lost), (2000, [1000, 3000], 3));
    let theirs = found.figures(Contender::TcpSpin).expect("took part");
    assert_eq!((theirs.p50_ns, theirs.rate_per_s), (9000, 100_000.0));
    assert!(found.figures(Contender::TcpBlock).is_none());
    let [(Contender::TcpSpin, ratio)] = found.ratio[..] else { panic!("{:?}", found.ratio) };
    assert_eq!((ratio.p50, ratio.rate), (Some(0.222), Some(4.5)));
}

/// Who has no answer to a message is neither infinitely fast nor as slow.
#[test]
fn there_is_no_ratio_to_nothing() {
    let (some, nothing) = (outcome(1000, 1e6), outcome(0, 0.0));
    let [some, nothing] = [some, nothing].map(|outcome| Figures::of(&[&outcome]));
    let ratio = Ratio::of(&nothing, &some);
    assert_eq!((ratio.p50, ratio.rate, ratio.cpu_per_message), (None, Some(0.0), None));
    let ratio = Ratio::of(&some, &nothing);
    assert_eq!((ratio.p50, ratio.rate, ratio.cpu_per_message), (None, None, None));
}

#[test]
fn figures_keep_their_digits_however_small() {
    for (ratio, shown) in
        [(0.0, 0.0), (0.000_123_456, 0.000_123), (1.0856, 1.09), (25_432.0, 25_400.0)]
    {
        let difference = (significant(ratio, 3) - shown).abs();
        assert!(difference <= shown * 1e-9, "{ratio} became {}", significant(ratio, 3));
    }
}

#[test]
fn json_has_the_promised_shape() {
    let json = serde_json::to_value(report()).expect("plain data");
    for name in
        ["p50_ns", "p99_ns", "p999_ns", "rate_per_s", "gbit_per_s", "cpu_s", "cpu_s_per_gbit"]
    {
        assert!(json["contenders"]["clearway"][name].is_number(), "{name}");
    }
    for name in ["p50", "rate", "gbit"] {
        assert!(json["ratio"]["tcp_spin"][name].is_number(), "{name}");
    }
    assert_eq!(json["tcp_wire"], "veth");
    assert_eq!(json["states"][0]["contenders"], json["contenders"]);
}

#[test]
fn the_table_names_everyone_and_what_was_lost() {
    let text = crate::report_text(&report());
    for word in ["clearway", "tcp_spin", "9.00", "0.22", "a note", "tcp_spin lost 2 messages"] {
        assert!(text.contains(word), "{word} is missing from\n{text}");
    }
}
