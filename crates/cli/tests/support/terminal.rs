//! A pseudo-terminal of 80 by 24 with a program on it, and what a person would see there.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::termios::{Termios, tcgetattr};

const PATIENCE: Duration = Duration::from_secs(30);

/// See the module.
pub(crate) struct Pty {
    program: Child,
    /// Kept open, so that the terminal stays when the program has ended.
    terminal: OwnedFd,
    keyboard: File,
    before: Termios,
    screen: Arc<Mutex<Seen>>,
    reader: Option<JoinHandle<()>>,
}

struct Seen {
    parser: vt100::Parser,
    was_taken: bool,
}

fn parser() -> vt100::Parser {
    let size = |cells| NonZeroU16::new(cells).expect("some");
    vt100::Parser::new(size(24), size(80), 0)
}

impl Pty {
    /// Starts a program on a terminal of its own.
    pub(crate) fn run(program: &Path, arguments: &[&str]) -> Self {
        Self::run_at(
            Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 },
            program,
            arguments,
        )
    }

    /// The same, on a terminal that does not say how large it is.
    pub(crate) fn run_at_console(program: &Path, arguments: &[&str]) -> Self {
        Self::run_at(
            Winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 },
            program,
            arguments,
        )
    }

    fn run_at(size: Winsize, program: &Path, arguments: &[&str]) -> Self {
        let pty = openpty(&size, None).expect("a pseudo-terminal");
        let before = tcgetattr(&pty.slave).expect("a terminal");
        let end = || pty.slave.try_clone().expect("a descriptor");
        let program = Command::new("setsid")
            .args(["--ctty", "--wait"])
            .arg(program)
            .args(arguments)
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("the program starts");
        let seen = Seen { parser: parser(), was_taken: false };
        let screen = Arc::new(Mutex::new(seen));
        let mut output = File::from(pty.master.try_clone().expect("a descriptor"));
        let shown = Arc::clone(&screen);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                let mut seen = shown.lock().expect("no panic");
                // By the byte, since much may come at once.
                for byte in &bytes[..count] {
                    seen.parser.process(std::slice::from_ref(byte));
                    seen.was_taken |= seen.parser.screen().alternate_screen();
                }
            }
        });
        let keyboard = pty.master.into();
        Self { program, terminal: pty.slave, keyboard, before, screen, reader: Some(reader) }
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.program.id()
    }

    /// What is on the screen.
    pub(crate) fn text(&self) -> String {
        self.screen.lock().expect("no panic").parser.screen().contents()
    }

    /// The program has shown something on a screen of its own.
    pub(crate) fn was_taken(&self) -> bool {
        self.screen.lock().expect("no panic").was_taken
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("typed");
    }

    /// Waits until the screen is as it should be.
    pub(crate) fn wait_for(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(&self.text()) {
            assert!(Instant::now() < deadline, "{what}: not on\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the program has ended, and all that it has written is on the screen.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.program.try_wait().expect("its state") {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        };
        // The reader sees it after everything else.
        let mark = "~the end~";
        File::from(self.terminal.try_clone().expect("a descriptor"))
            .write_all(mark.as_bytes())
            .expect("written");
        while !self.text().contains(mark) {
            assert!(Instant::now() < deadline, "the reader does not come to the end");
            std::thread::sleep(Duration::from_millis(20));
        }
        status.code()
    }

    /// True if the program has left the terminal as it was: its modes, its screen, its cursor.
    pub(crate) fn is_as_before(&self) -> bool {
        let now = tcgetattr(&self.terminal).expect("a terminal");
        let seen = self.screen.lock().expect("no panic");
        let screen = seen.parser.screen();
        let modes = |it: &Termios| (it.local_flags, it.input_flags, it.output_flags);
        modes(&now) == modes(&self.before) && !screen.alternate_screen() && !screen.hide_cursor()
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
        // The reader ends with the terminal.
        drop(self.reader.take());
    }
}
