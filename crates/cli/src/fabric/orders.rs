//! What people tell a fabric while it runs: signals, and lines on standard input.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A line is a few words; what is longer is none.
const LINE_BYTES_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    End,
    Report,
    Change(Change),
}

/// Ports are named as in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A new RSS key; for all ports if none is named.
    Rekey { port: Option<String> },
    /// The cable of a port is plugged in or out.
    Link { port: String, up: bool },
    /// Frames from one port to another are lost, or no longer.
    Cut { from: String, to: String, cut: bool },
}

/// Where orders come from.
#[derive(Debug)]
pub(super) struct Orders {
    signals: SignalFd,
    input_is_open: bool,
    /// The beginning of a line.
    line: Vec<u8>,
}

impl Orders {
    /// From now on signals are orders. To be called before threads are started.
    pub(super) fn take() -> io::Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGUSR1, Signal::SIGUSR2] {
            set.add(signal);
        }
        set.thread_block()?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { signals, input_is_open: true, line: Vec::new() })
    }

    /// What becomes readable when there are orders.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let input = self.input_is_open.then(rustix::stdio::stdin);
        input.into_iter().chain([self.signals.as_fd()])
    }

    /// The orders that have come. Never waits.
    pub(super) fn read(&mut self) -> Vec<Order> {
        let mut orders = Vec::new();
        while let Ok(Some(signal)) = self.signals.read_signal() {
            orders.push(match Signal::try_from(signal.ssi_signo as i32) {
                Ok(Signal::SIGUSR1) => Order::Report,
                Ok(Signal::SIGUSR2) => Order::Change(Change::Rekey { port: None }),
                _ => Order::End,
            });
        }
        if self.input_is_open {
            self.read_input(&mut orders);
        }
        orders
    }

    /// Standard input may be a terminal that others use too, so it stays as it is, and is read only
    /// when there is something.
    fn read_input(&mut self, orders: &mut Vec<Order>) {
        let input = rustix::stdio::stdin();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
        {
            return;
        }
        let mut bytes = [0; LINE_BYTES_MAX];
        match rustix::io::read(input, &mut bytes) {
            Ok(0) | Err(_) => self.input_is_open = false,
            Ok(length) => self.take_lines(&bytes[..length], orders),
        }
    }

    fn take_lines(&mut self, bytes: &[u8], orders: &mut Vec<Order>) {
        self.line.extend_from_slice(bytes);
        while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.line.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            match parse(line.trim()) {
                Ok(order) => orders.extend(order),
                Err(problem) => tracing::warn!("{problem}"),
            }
        }
        if self.line.len() > LINE_BYTES_MAX {
            self.line.clear();
        }
    }
}

/// An order in words; nothing in an empty line.
fn parse(line: &str) -> Result<Option<Order>, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let change = match words[..] {
        [] => return Ok(None),
        ["counters"] => return Ok(Some(Order::Report)),
        ["end"] => return Ok(Some(Order::End)),
        ["rekey"] => Change::Rekey { port: None },
        ["rekey", port] => Change::Rekey { port: Some(port.to_owned()) },
        ["link", port, state @ ("up" | "down")] => {
            Change::Link { port: port.to_owned(), up: state == "up" }
        }
        [verb @ ("cut" | "mend"), from, to] => {
            Change::Cut { from: from.to_owned(), to: to.to_owned(), cut: verb == "cut" }
        }
        _ => {
            return Err(format!(
                "\"{line}\" is not an order; those there are: counters, rekey [PORT], link PORT \
                 up|down, cut FROM TO, mend FROM TO, end"
            ));
        }
    };
    Ok(Some(Order::Change(change)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_orders() {
        let link = |up| Order::Change(Change::Link { port: "a".into(), up });
        let cut = |cut| Order::Change(Change::Cut { from: "a".into(), to: "b".into(), cut });
        let rekey =
            |port: Option<&str>| Order::Change(Change::Rekey { port: port.map(str::to_owned) });
        for (line, order) in [
            ("rekey", rekey(None)),
            ("  rekey   b ", rekey(Some("b"))),
            ("link a up", link(true)),
            ("link a down", link(false)),
            ("cut a b", cut(true)),
            ("mend a b", cut(false)),
            ("counters", Order::Report),
            ("end", Order::End),
        ] {
            assert_eq!(parse(line), Ok(Some(order)), "{line}");
        }
        assert_eq!(parse(""), Ok(None));
        assert!(parse("link a sideways").unwrap_err().contains("link PORT up|down"));
    }
}
