//! What is being measured, on standard error: a bar for a terminal, lines for a log.
//!
//! Nothing is drawn while a measurement runs, because drawing takes a core from it.

use indicatif::{ProgressBar, ProgressStyle};

/// Shows which contender is measured and how much is left.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(crate) fn new(steps: usize) -> Self {
        let bar = ProgressBar::new(steps as u64);
        let style = ProgressStyle::with_template("[{bar:30}] {pos}/{len} {msg}");
        bar.set_style(style.expect("the template is valid").progress_chars("=> "));
        Self { bar }
    }

    /// Says what comes next.
    pub(crate) fn next(&self, what: &str) {
        if self.bar.is_hidden() {
            eprintln!("{}/{} {what}", self.bar.position() + 1, self.bar.length().unwrap_or(0));
        }
        self.bar.set_message(what.to_owned());
        self.bar.tick();
    }

    /// What was announced is done.
    pub(crate) fn done(&self) {
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
