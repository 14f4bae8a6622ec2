//! Numbers as people read them: in six columns at most, with three digits that count.

/// `1234567` as `1.23M`. What is below 10,000 is exact.
pub(crate) fn count(value: u64) -> String {
    if value < 10_000 { value.to_string() } else { scaled(value as f64, 1000.0, SCALES) }
}

/// `1234567` as `1.23 MB`.
pub(crate) fn bytes(value: u64) -> String {
    if value < 1000 {
        format!("{value} B")
    } else {
        let text = scaled(value as f64, 1000.0, SCALES);
        let (number, prefix) = text.split_at(text.len() - 1);
        format!("{number} {prefix}B")
    }
}

/// `23_400` as `23.4 µs`.
pub(crate) fn nanoseconds(value: u64) -> String {
    let value = value as f64;
    let (value, unit) = match value {
        v if v < 1e3 => return format!("{v} ns"),
        v if v < 1e6 => (v / 1e3, "µs"),
        v if v < 1e9 => (v / 1e6, "ms"),
        v if v < 1e12 => (v / 1e9, "s"),
        v => return format!("{} s", count((v / 1e9) as u64)),
    };
    format!("{} {unit}", three_digits(value))
}

/// Something per second.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        r if r <= 0.0 => "0".to_owned(),
        r if r < 10.0 => format!("{r:.1}"),
        r => count(r.round() as u64),
    }
}

/// Bits per second, from bytes.
pub(crate) fn bit_rate(bytes_per_second: f64) -> String {
    let bits = (bytes_per_second * 8.0).max(0.0).round() as u64;
    if bits < 1000 { bits.to_string() } else { scaled(bits as f64, 1000.0, SCALES) }
}

/// A part of a whole, in percent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    match (part as f64) * 100.0 / (whole.max(1) as f64) {
        p if p > 0.0 && p < 1.0 => "<1%".to_owned(),
        p => format!("{p:.0}%"),
    }
}

const SCALES: &str = "kMGTPE";

fn scaled(mut value: f64, base: f64, scales: &str) -> String {
    let mut scales = scales.chars();
    let mut scale = ' ';
    while value >= 999.5 {
        value /= base;
        scale = scales.next().unwrap_or('?');
    }
    format!("{}{scale}", three_digits(value))
}

fn three_digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_count() {
        let counts = [0, 9999, 10_000, 999_499, 999_500, 1_234_567, u64::MAX].map(count);
        assert_eq!(counts, ["0", "9999", "10.0k", "999k", "1.00M", "1.23M", "18.4E"]);
        let sizes = [0, 999, 1000, 65_536, 8_388_608].map(bytes);
        assert_eq!(sizes, ["0 B", "999 B", "1.00 kB", "65.5 kB", "8.39 MB"]);
        let times = [0, 900, 23_400, 999_000_000, 61_000_000_000].map(nanoseconds);
        assert_eq!(times, ["0 ns", "900 ns", "23.4 µs", "999 ms", "61.0 s"]);
        assert_eq!([0.0, 0.25, 12.4, 123_456.0].map(rate), ["0", "0.2", "12", "123k"]);
        assert_eq!([0.0, 100.0, 1.25e9].map(bit_rate), ["0", "800", "10.0G"]);
        assert_eq!(
            [(0, 0), (1, 1000), (1, 3), (7, 7)].map(|(p, w)| percent(p, w)),
            ["0%", "<1%", "33%", "100%"]
        );
    }
}
