//! The terminal: taken over and given back as it was, however the program ends.

use std::io::{self, IsTerminal, Stdout};
use std::panic;
use std::sync::mpsc::Sender;
use std::thread;

use nix::sys::signal::{SigSet, Signal};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::{cursor, event, execute, terminal};
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};

use super::Event;
use crate::output::Failure;

/// The signals that end a program which shows something.
const ENDS: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// The terminal while it is ours.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    _given_back: GivesBack,
}

/// Gives the terminal back.
struct GivesBack;

impl Drop for GivesBack {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    // There is nobody to tell of a failure: the terminal is gone.
    let _ = execute!(io::stdout(), terminal::LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
}

impl Screen {
    pub(super) fn open() -> Result<Self, Failure> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            let text = "top needs a terminal; `clearway status` prints what there is once";
            return Err(Failure::Usage(text.to_owned()));
        }
        give_back_when_panicking();
        terminal::enable_raw_mode().map_err(failed)?;
        let given_back = GivesBack;
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide).map_err(failed)?;
        let options = TerminalOptions { viewport: viewport(terminal::size().map_err(failed)?) };
        let terminal =
            Terminal::with_options(CrosstermBackend::new(io::stdout()), options).map_err(failed)?;
        Ok(Self { terminal, _given_back: given_back })
    }

    pub(super) fn draw(&mut self, show: impl FnOnce(&mut Frame<'_>)) -> Result<(), Failure> {
        self.terminal.draw(show).map(|_| ()).map_err(failed)
    }
}

/// The whole screen. Serial consoles do not say how large it is: it then is taken for the usual
/// one.
fn viewport((columns, rows): (u16, u16)) -> Viewport {
    match (columns, rows) {
        (0, _) | (_, 0) => Viewport::Fixed(Rect::new(0, 0, 80, 24)),
        _ => Viewport::Fullscreen,
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::Failed(format!("cannot use the terminal: {error}"))
}

/// A message on a screen that is taken away is lost, and one in raw mode hard to read.
fn give_back_when_panicking() {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        give_back();
        tell(info);
        // Whichever thread it was: nothing is shown any more.
        std::process::exit(101);
    }));
}

/// Sends an end when a signal wants one. To be called before other threads are started.
pub(super) fn send_signals(events: Sender<Event>) -> Result<(), Failure> {
    let signals = SigSet::from_iter(ENDS);
    signals
        .thread_block()
        .map_err(|error| Failure::Failed(format!("cannot wait for signals: {error}")))?;
    thread::spawn(move || {
        let _ = signals.wait();
        let _ = events.send(Event::End);
    });
    Ok(())
}

/// Sends what is typed, until the terminal is gone.
pub(super) fn send_input(events: Sender<Event>) {
    thread::spawn(move || {
        while let Ok(input) = event::read() {
            if events.send(Event::Input(input)).is_err() {
                return;
            }
        }
        let _ = events.send(Event::End);
    });
}

#[cfg(test)]
mod tests;
