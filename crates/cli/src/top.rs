//! `clearway top`: NICs, engines, apps and flows with their rates, on a terminal.
//!
//! ```text
//!  file of counters ──────▶ Counted ─┐
//!  daemon ──▶ thread "asker" ──▶ Asked ─┴─▶ Top (tables, order) ──▶ view ──▶ Screen
//!  keys, signals ─── threads ───────────────▲
//! ```
//!
//! NICs and engines come from the file of counters, which costs the daemon nothing. Only while apps
//! or flows are looked at is the daemon asked, and never twice at a time.

mod asked;
mod counted;
mod rates;
mod screen;
mod table;
mod view;

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::Value;

use crate::output::Failure;
use asked::{Asked, Asker};
use counted::Counted;
use screen::Screen;
use table::{Order, Table};

/// Between two looks, in seconds.
const INTERVAL_S: std::ops::RangeInclusive<u64> = 1..=3600;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(INTERVAL_S))]
    interval: u64,
    /// Control socket of the daemon, beside which its counters are
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// What happens.
#[derive(Debug)]
pub(super) enum Event {
    /// On the terminal.
    Input(Input),
    /// The terminal is gone, or a signal has come.
    End,
    /// The daemon's answer.
    Told(Result<Box<Value>, String>),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let socket = arguments.socket.clone().unwrap_or_else(clearway_channel::control::client_path);
    let (sender, events) = channel();
    // Before any thread is started, so that no other takes the signals.
    screen::send_signals(sender.clone())?;
    let mut screen = Screen::open()?;
    screen::send_input(sender.clone());
    let mut top = Top::new(socket, sender);
    let interval = Duration::from_secs(arguments.interval);
    let result = top.run(&mut screen, &events, interval);
    drop(screen);
    result
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Nics,
    Engines,
    Apps,
    Flows,
}

impl View {
    const ALL: [Self; 4] = [Self::Nics, Self::Engines, Self::Apps, Self::Flows];

    const fn name(self) -> &'static str {
        match self {
            Self::Nics => "NICs",
            Self::Engines => "engines",
            Self::Apps => "apps",
            Self::Flows => "flows",
        }
    }

    /// Only the daemon knows.
    const fn asks(self) -> bool {
        matches!(self, Self::Apps | Self::Flows)
    }
}

/// Everything that is shown, and in which order.
pub(super) struct Top {
    view: View,
    /// By view.
    orders: [Order; 4],
    /// The first row that is shown.
    scroll: usize,
    counted: Counted,
    asked: Asked,
    asker: Asker,
}

impl Top {
    fn new(socket: PathBuf, told: Sender<Event>) -> Self {
        Self {
            view: View::Nics,
            orders: [Order::default(); 4],
            scroll: 0,
            counted: Counted::new(&socket),
            asked: Asked::default(),
            asker: Asker::start(socket, told),
        }
    }

    fn run(
        &mut self,
        screen: &mut Screen,
        events: &Receiver<Event>,
        interval: Duration,
    ) -> Result<(), Failure> {
        let mut next = Instant::now();
        loop {
            let now = Instant::now();
            if now >= next {
                self.look();
                next = now + interval;
            }
            screen.draw(|frame| view::draw(frame, self))?;
            let event = match events.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            match event {
                Event::End => return Ok(()),
                Event::Told(told) => {
                    self.asker.has_answered();
                    self.asked.take(told);
                }
                Event::Input(Input::Key(key)) if key.kind != KeyEventKind::Release => {
                    if self.press(key) {
                        return Ok(());
                    }
                }
                // The size is asked for when drawing.
                Event::Input(_) => {}
            }
        }
    }

    fn look(&mut self) {
        self.counted.look();
        if self.view.asks() {
            self.asker.ask();
        }
    }

    /// True if it is the key to the end.
    fn press(&mut self, key: KeyEvent) -> bool {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return true,
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('n' | '1') => self.show(View::Nics),
            KeyCode::Char('e' | '2') => self.show(View::Engines),
            KeyCode::Char('a' | '3') => self.show(View::Apps),
            KeyCode::Char('f' | '4') => self.show(View::Flows),
            KeyCode::Tab => self.show(View::ALL[(self.view as usize + 1) % View::ALL.len()]),
            KeyCode::Left | KeyCode::Char('<') => self.order_by(-1),
            KeyCode::Right | KeyCode::Char('>') => self.order_by(1),
            KeyCode::Char('r') => self.order_mut().reverse(),
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll += 1,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::PageDown => self.scroll += 10,
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        self.scroll = self.scroll.min(self.table().rows.len().saturating_sub(1));
        false
    }

    fn show(&mut self, view: View) {
        (self.view, self.scroll) = (view, 0);
        if view.asks() {
            self.asker.ask();
        }
    }

    fn order_by(&mut self, step: isize) {
        let columns = self.table().columns.len();
        self.order_mut().step(step, columns);
    }

    fn order_mut(&mut self) -> &mut Order {
        &mut self.orders[self.view as usize]
    }

    fn order(&self) -> Order {
        self.orders[self.view as usize]
    }

    /// What is shown, in its order.
    fn table(&self) -> Table {
        let mut table = match self.view {
            View::Nics => self.counted.nics(),
            View::Engines => self.counted.engines(),
            View::Apps => self.asked.apps(),
            View::Flows => self.asked.flows(),
        };
        table.sort(self.order());
        table
    }
}

#[cfg(test)]
mod tests;
