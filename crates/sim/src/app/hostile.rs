//! What an app can do wrong on purpose, or by a stray pointer: say what makes no sense, or write
//! garbage anywhere in the memory that it shares with its daemon. Only its own session may suffer.
//! Or it asks others for what they have not granted to it.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;

use clearway_base::Time;
use clearway_channel::{Command, OperationKind, ReleaseList};

use super::App;
use super::operations::Operations;
use crate::Finding;
use crate::ledger::Ledger;
use crate::operations::OperationBooks;

impl App {
    /// Lies, in one of many ways. Whatever it has open does not count any more.
    pub(crate) fn attack(&mut self, ledger: &mut Ledger, books: &mut OperationBooks) {
        self.is_hostile = true;
        self.operations.iter().for_each(|operations| operations.taint(books));
        let talks = self.talks.values().chain(self.attempts.values());
        talks.filter_map(|talk| talk.number).for_each(|number| ledger.taint(number));
        if books.has_vaults && self.forge(books) {
            return;
        }
        if self.random.chance(1, 2) {
            self.say_nonsense();
        } else {
            self.write_garbage();
        }
    }

    /// Asks for what is in a vault, in requests that make sense. False if it knows of none.
    fn forge(&mut self, books: &mut OperationBooks) -> bool {
        let Some(operations) = &self.operations else { return false };
        let mut has_asked = false;
        for _ in 0..1 + self.random.below(40) {
            let forged = operations.forge(&mut self.end, books, &mut self.random);
            has_asked |= forged.is_some_and(|command| self.end.submit(&command).is_ok());
        }
        self.end.flush();
        has_asked
    }

    /// True if it knows of a vault, and may lie.
    pub(crate) fn can_forge(&self, now: Time) -> bool {
        let knows = self.operations.as_ref().is_some_and(Operations::knows_owner);
        knows && !self.is_dead && !self.is_hostile && self.stopped_until <= now
    }

    /// Before a liar goes: has it found out what it may not know?
    pub(crate) fn search(&self, books: &OperationBooks) -> Result<(), Finding> {
        if !self.is_hostile || !books.has_vaults {
            return Ok(());
        }
        let bytes = self.memory.metadata().map_or(0, |metadata| metadata.len());
        let mut memory = vec![0; bytes as usize];
        self.memory.read_exact_at(&mut memory, 0).expect("its own memory");
        let found = books.search(self.id, self.character.who(), &memory);
        found.map_err(|what| Finding { what, hosts: vec![self.character.host] })
    }

    fn say_nonsense(&mut self) {
        for _ in 0..1 + self.random.below(20) {
            let asks = self.operations.is_some() && self.random.chance(1, 2);
            let command = if asks { self.nonsense_asked() } else { self.nonsense() };
            // What it has been given it has no right to any more; if there is no room, so be it.
            self.held.clear();
            let _ = self.end.submit_untrue(&command);
        }
        self.end.flush();
    }

    fn nonsense(&mut self) -> Command {
        let random = &mut self.random;
        let any_connection = self.talks.keys().next().copied().unwrap_or(random.next_u64());
        let (offset, length) = (random.next_u32() >> 12, random.next_u32() >> 14);
        match random.below(9) {
            7 => {
                let (memory, tag) = (random.below(2), random.next_u64());
                let bytes = u64::from(length) >> random.below(8);
                let start = random.next_u64() >> random.below(64);
                Command::Post { connection: any_connection, tag, memory, start, bytes }
            }
            8 => Command::Unpost { connection: any_connection, tag: random.below(100) },
            0 if offset % 2 == 0 => {
                let within_us = length % 64;
                Command::SendWithin { connection: any_connection, offset, length, within_us }
            }
            0 => Command::Send { connection: any_connection, stream: 0, offset, length },
            1 => Command::Send { connection: random.next_u64(), stream: 0, offset: 0, length: 8 },
            2 => Command::Send { connection: any_connection, stream: 7, offset: 0, length: 8 },
            3 => {
                let mut buffers = ReleaseList::default();
                buffers.push(random.next_u32() >> 20);
                Command::Release { buffers }
            }
            4 => Command::Close { connection: random.next_u64(), abort: random.chance(1, 2) },
            5 => {
                let vif = self.vif.unwrap_or(1);
                Command::SendFrames { vif, offset: offset & !7, length, count: 3 }
            }
            _ => {
                let address = Ipv4Addr::from_bits(random.next_u32());
                let peer = SocketAddr::new(address.into(), random.next_u32() as u16);
                let token = random.next_u64();
                match token % 2 {
                    0 => Command::ConnectShared { token, peer },
                    _ => Command::Connect { token, peer },
                }
            }
        }
    }

    /// Operations, known or not, on regions that nobody has; shares of what is not the app's, and
    /// groups of no sense.
    fn nonsense_asked(&mut self) -> Command {
        let random = &mut self.random;
        let any_connection = self.talks.keys().next().copied().unwrap_or(random.next_u64());
        let (token, region, second) = (random.next_u64(), random.next_u64(), random.next_u64());
        let (offset, length) = (random.next_u32() >> 12, random.next_u32() >> 14);
        let (connection, place, operand) = (any_connection, random.next_u64(), random.next_u64());
        match random.below(5) {
            0 => Command::Share { token, offset, length: length >> 8, start: 8, bytes: offset },
            1 if token % 2 == 0 => Command::Unshare { token, region },
            1 => Command::SetGroup { token, offset, length: length >> 6 },
            2 => {
                let kind = random.next_u32() as u8;
                let (kind, place) = (kind % 12, place >> random.below(64));
                Command::AskWith {
                    kind,
                    connection,
                    token,
                    region,
                    place,
                    offset,
                    length,
                    operand,
                    second,
                }
            }
            lie => {
                let kind = if lie == 3 { OperationKind::ScanRead as u8 } else { place as u8 };
                let (stride, bytes, count) = (token as u16, offset, random.next_u32());
                Command::Ask {
                    kind,
                    stride,
                    connection,
                    token,
                    region,
                    place,
                    bytes,
                    count,
                    operand,
                    second,
                }
            }
        }
    }

    fn write_garbage(&mut self) {
        let Ok(metadata) = self.memory.metadata() else { return };
        for _ in 0..1 + self.random.below(64) {
            // The first pages, with the heads of the rings and their entries, are the best place.
            let end = if self.random.chance(3, 4) { 16 << 10 } else { metadata.len() - 64 };
            let at = self.random.below(end) & !3;
            let mut bytes = [0; 64];
            bytes.iter_mut().for_each(|byte| *byte = self.random.next_u32() as u8);
            let length = 1 + self.random.below(64) as usize;
            let _ = self.memory.write_at(&bytes[..length], at);
        }
    }
}
