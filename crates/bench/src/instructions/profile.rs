//! Reads callgrind's profile: whose each instruction is, and where the code lies.
//!
//! The format is described in Valgrind's manual, "Callgrind Format Specification". Only what stands
//! in a profile of one part, with whole names, addresses and line numbers, is understood here.

use std::collections::BTreeMap;

use super::Counts;

/// The parts, from the app down to the wire; `libraries` are functions of Rust's and C's libraries
/// and of other crates that were not inlined.
pub(super) const PARTS: [&str; 10] =
    ["app", "channel", "engine", "classify", "transport", "ip", "wire", "nic", "base", "libraries"];
/// The benchmark itself, which is not counted.
const BENCH: &str = "bench";
/// A line of a cache of instructions.
const LINE_BYTES: u64 = 64;

/// What a profile says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Profile {
    /// Instructions by part.
    pub(super) parts: Counts,
    /// By the number of each line of code, how often the instruction in it ran that ran most often.
    lines: BTreeMap<u64, u64>,
}

impl Profile {
    /// Lines of code of which something ran so many times.
    pub(super) fn lines_run(&self, times: u64) -> u64 {
        self.lines.values().filter(|count| **count >= times).count() as u64
    }
}

/// Reads a profile.
pub(super) fn read(profile: &str) -> Profile {
    let mut read = Profile::default();
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
        } else if let Some((address, cost)) = cost_of(line) {
            let part = part_of(inlined).or(part_of(function)).unwrap_or("libraries");
            *read.parts.entry(part.to_owned()).or_default() += cost;
            if part != BENCH {
                let most = read.lines.entry(address / LINE_BYTES).or_default();
                *most = cost.max(*most);
            }
        }
    }
    read.parts.remove(BENCH);
    read
}

/// `ADDRESS LINE COST`: the address of the code, the line of its source.
fn cost_of(line: &str) -> Option<(u64, u64)> {
    let (address, rest) = line.strip_prefix("0x")?.split_once(' ')?;
    let (_, cost) = rest.split_once(' ')?;
    Some((u64::from_str_radix(address, 16).ok()?, cost.parse().ok()?))
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
        let text = "version: 1\npositions: instr line\nevents: Ir\n\n\
                    fl=/x/crates/engine/src/engine.rs\nfn=turn\n0x1000 10 100\n\
                    fi=/x/library/core/src/slice/mod.rs\n0x1004 3 7\n\
                    fe=/x/crates/client/src/channel.rs\n0x103f 4 2\n\
                    cfi=/x/crates/wire/src/udp.rs\ncfn=parse\ncalls=1 0x2000 5\n0x1040 11 1000\n\
                    fl=/x/crates/wire/src/udp.rs\nfn=parse\n0x2000 5 1000\n\
                    fl=???\nfn=memcpy\n0x9000 0 50\n\
                    fl=/x/crates/bench/src/instructions.rs\n0xa000 1 9\n";
        let profile = read(text);
        let expected = [("engine", 107), ("app", 2), ("wire", 1000), ("libraries", 50)];
        assert_eq!(profile.parts, expected.map(|(part, count)| (part.to_owned(), count)).into());
        let lines = [0, 50, 51, 100, 101, 1001].map(|times| profile.lines_run(times));
        assert_eq!(lines, [3, 3, 2, 2, 1, 0]);
    }
}
