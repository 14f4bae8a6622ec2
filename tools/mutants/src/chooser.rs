// Goes into the crate that bugs are planted in. CLEARWAY_MUTANT is the bug of this run, if any;
// CLEARWAY_REACHED is a file that gets the numbers of the bugs that were reached.
pub mod mutant {
    static mut CHOSEN: usize = usize::MAX;
    static mut REACHED: [bool; 10_000] = [false; 10_000];

    #[used]
    #[unsafe(link_section = ".init_array")]
    static BEGIN: extern "C" fn() = begin;
    #[used]
    #[unsafe(link_section = ".fini_array")]
    static END: extern "C" fn() = end;

    extern "C" fn begin() {
        if let Ok(chosen) = std::env::var("CLEARWAY_MUTANT") {
            unsafe { CHOSEN = chosen.parse().expect("a number") };
            // The first test that fails is enough.
            std::panic::set_hook(Box::new(|_| std::process::exit(101)));
        }
    }

    extern "C" fn end() {
        if let Ok(path) = std::env::var("CLEARWAY_REACHED") {
            let reached = (0..10_000).filter(|id| unsafe { REACHED[*id] });
            let text: String = reached.map(|id| format!("{id}\n")).collect();
            std::fs::write(path, text).expect("a file of what was reached");
        }
    }

    /// True if none of the bugs at a place, which are `ids`, is that of this run.
    pub const fn none(ids: &[usize]) -> bool {
        let mut i = 0;
        while i < ids.len() {
            unsafe { REACHED[ids[i]] = true };
            if is(ids[i]) {
                return false;
            }
            i += 1;
        }
        true
    }

    pub const fn is(id: usize) -> bool {
        unsafe { CHOSEN == id }
    }
}
