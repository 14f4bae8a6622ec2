//! Any text as a filter: nothing panics; what is read prints as text that reads back as the same.
#![no_main]

use clearway_classify::Filter;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match text.parse::<Filter>() {
        Ok(filter) => {
            let printed = filter.to_string();
            assert_eq!(printed.parse::<Filter>().as_ref(), Ok(&filter), "{printed}");
            assert!(!filter.explain().is_empty());
            assert!(filter.patterns().take(2000).count() > 0);
        }
        Err(error) => assert!(error.column <= text.chars().count() + 1),
    }
});
