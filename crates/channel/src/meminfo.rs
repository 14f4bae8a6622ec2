//! What the kernel says of the machine's memory, in `/proc/meminfo` (proc_meminfo(5)).

/// What it said at one time.
#[derive(Clone, Debug)]
pub struct Meminfo {
    text: String,
}

impl Meminfo {
    /// What it says now. `None` where it cannot be read.
    #[must_use]
    pub fn read() -> Option<Self> {
        std::fs::read_to_string("/proc/meminfo").ok().map(|text| Self { text })
    }

    /// The number of a line, such as `MemAvailable` (in KiB) or `HugePages_Total` (in pages).
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        let mut lines = self.text.lines();
        let line = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// Bytes that can be had without taking them from anybody.
    pub(crate) fn room(&self) -> Option<u64> {
        let swap = self.number("SwapFree").unwrap_or(0);
        Some((self.number("MemAvailable")? + swap) * 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Meminfo {
        Meminfo { text: text.to_owned() }
    }

    #[test]
    fn a_line_is_found_by_its_whole_name() {
        let told = told("MemTotal:  4 kB\nSwapCached:  7 kB\nSwap:  8 kB\nHugePages_Total:  3\n");
        assert_eq!(told.number("MemTotal"), Some(4));
        assert_eq!(told.number("Swap"), Some(8));
        assert_eq!(told.number("HugePages_Total"), Some(3));
        assert_eq!(told.number("Mem"), None);
    }

    #[test]
    fn room_is_what_the_machine_has_left_with_swap() {
        let swapping = "MemTotal:  24683512 kB\nMemAvailable:  100 kB\nSwapFree:  28 kB\n";
        assert_eq!(told(swapping).room(), Some(128 * 1024));
        assert_eq!(told("MemAvailable: 4 kB\n").room(), Some(4096));
        assert_eq!(told("MemTotal: 4 kB\n").room(), None);
    }
}
