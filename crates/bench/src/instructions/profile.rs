//! Reads callgrind's profile: whose each instruction is.
//!
//! The format is described in Valgrind's manual, "Callgrind Format Specification". Only what stands
//! in a profile of one part, with whole names and line numbers, is understood here.

use super::Counts;

/// The parts, from the app down to the wire; `libraries` are functions of Rust's and C's libraries
/// and of other crates that were not inlined.
pub(super) const PARTS: [&str; 10] =
    ["app", "channel", "engine", "classify", "transport", "ip", "wire", "nic", "base", "libraries"];
/// The benchmark itself, which is not counted.
const BENCH: &str = "bench";

/// Instructions by part.
pub(super) fn by_part(profile: &str) -> Counts {
    let mut counts = Counts::new();
    let mut lines = profile.lines();
    // The file of the function, and that of the code which was inlined there.
    let (mut function, mut inlined) = ("", "");
    while let Some(line) = lines.next() {
        if let Some(file) = line.strip_prefix("fl=") {
            (function, inlined) = (file, file);
        } else if let Some(file) = line.strip_prefix("fi=").or(line.strip_prefix("fe=")) {
            inlined = file;
        } else if line.starts_with("calls=") {
            // The cost of what was called stands in the next line, and once more where it arose.
            lines.next();
        } else if let Some((_, cost)) = cost_of(line) {
            let part = part_of(inlined).or(part_of(function)).unwrap_or("libraries");
            *counts.entry(part.to_owned()).or_default() += cost;
        }
    }
    counts.remove(BENCH);
    counts
}

/// `LINE COST`.
fn cost_of(line: &str) -> Option<(u64, u64)> {
    let (line, cost) = line.split_once(' ')?;
    Some((line.parse().ok()?, cost.parse().ok()?))
}

/// The part that a source file of ours belongs to.
fn part_of(file: &str) -> Option<&str> {
    let (_, path) = file.rsplit_once("crates/")?;
    let name = path.split_once("/src/")?.0;
    match name {
        "client" | "capi" => Some("app"),
        "congestion" | "tcp" => Some("transport"),
        BENCH => Some(BENCH),
        name => PARTS.into_iter().find(|part| *part == name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_those_of_the_file_they_stand_in() {
        let profile = "version: 1\nevents: Ir\n\nfl=/x/crates/engine/src/engine.rs\nfn=turn\n\
                       10 100\nfi=/x/library/core/src/slice/mod.rs\n3 7\n\
                       fe=/x/crates/client/src/channel.rs\n4 2\n\
                       cfi=/x/crates/wire/src/udp.rs\ncfn=parse\ncalls=1 5\n11 1000\n\
                       fl=/x/crates/wire/src/udp.rs\nfn=parse\n5 1000\n\
                       fl=???\nfn=memcpy\n0 50\nfl=/x/crates/bench/src/instructions.rs\n1 9\n";
        let counts = by_part(profile);
        let expected = [("engine", 107), ("app", 2), ("wire", 1000), ("libraries", 50)];
        assert_eq!(counts, expected.map(|(part, count)| (part.to_owned(), count)).into());
    }
}
