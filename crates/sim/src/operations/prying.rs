//! What is asked of vaults: by those who may, by those who may not, and by liars.

use clearway_base::{Random, Time};
use clearway_channel::{OperationKind as Kind, OperationStatus as Status, Rights};

use super::estate::Estate;
use super::layout::{ENTRIES, Region, TABLE, TABLE_STRIDE, VAULT_BYTES, WHO, entry_at};
use super::question::{Answer, Question, Words, read, write};
use super::vault::{Vault, Who};

/// Entries of a batch that leads into a vault.
const BATCH: usize = 3;
/// What liars ask.
const KINDS: [Kind; 9] = [
    Kind::Find,
    Kind::Read,
    Kind::Write,
    Kind::WriteNotify,
    Kind::CompareSwap,
    Kind::FetchAdd,
    Kind::IndirectRead,
    Kind::BatchRead,
    Kind::ScanRead,
];

/// What is asked of a vault.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Prying {
    Find,
    /// Secrets: where, and how many bytes.
    Read(u32, u32),
    Write,
    /// An add, of the asker's host.
    Add(u32),
    /// What only those ask who may not: what it would do is known from the others.
    InVain,
    /// The same, of which each read is refused.
    BatchInVain,
}

impl Prying {
    /// It may have an effect.
    pub(super) const fn has_effect(self) -> bool {
        matches!(self, Self::Write | Self::Add(_) | Self::InVain)
    }
}

impl Estate {
    /// Something to ask of the vault. Who may not ask it is to be refused.
    pub(crate) fn pry(&mut self, random: &mut Random, who: Who) -> Option<(Question, Words)> {
        let (vault, ground) = (self.handle(Region::Vault)?, self.handle(Region::Ground)?);
        let rights = self.vault.rights(who);
        let asks = |what, needed, words| {
            let may = rights.have(needed);
            Some((Question::Pry { what, may }, words))
        };
        match random.below(6) {
            0 => {
                let may = rights != Rights::NONE;
                Some((Question::Pry { what: Prying::Find, may }, Question::find(Region::Vault).1))
            }
            1 => {
                let (at, length) = Vault::draw_secrets(random);
                asks(Prying::Read(at, length), Rights::READ, read(vault, at, length))
            }
            2 => {
                let (at, mark) = Vault::write_of(who.host);
                asks(Prying::Write, Rights::WRITE, write(vault, at, mark))
            }
            3 => {
                let is_counted = rights.have(Rights::ATOMIC);
                let at = if is_counted { self.vault.begin_add(who.host) } else { 0 };
                let add = Words { kind: Kind::FetchAdd as u8, operand: 1, ..read(vault, at, 0) };
                asks(Prying::Add(who.host), Rights::ATOMIC, add)
            }
            4 if rights.have(Rights::READ) => None,
            4 => asks(Prying::BatchInVain, Rights::NONE, batch(ground, vault)),
            _ => {
                let (needed, words) = in_vain(random, ground, vault)?;
                if rights.have(needed) { None } else { asks(Prying::InVain, needed, words) }
            }
        }
    }

    /// A request of a liar: whatever the vault may be asked, in any place.
    pub(crate) fn forge(&self, random: &mut Random) -> Option<Words> {
        let (vault, ground) = (self.handle(Region::Vault)?, self.handle(Region::Ground)?);
        if random.chance(1, 2) {
            return in_vain(random, ground, vault).map(|(_, words)| words);
        }
        let kind = KINDS[random.below(KINDS.len() as u64) as usize];
        let one_of_both = |random: &mut Random| if random.chance(3, 4) { vault } else { ground };
        let (region, second) = (one_of_both(random), one_of_both(random));
        let place = random.below(u64::from(VAULT_BYTES));
        let place = if random.chance(1, 4) { place } else { place & !7 };
        // All may change the word by which others know whose estate it is; then nobody does.
        let place = if region == ground { place.max((WHO + 8).into()) } else { place };
        let payload = match kind {
            Kind::Find => Some(Region::Vault.name().into()),
            Kind::Write | Kind::WriteNotify => {
                Some(vec![random.next_u32() as u8; 1 + random.below(64) as usize])
            }
            Kind::BatchRead => batch(ground, vault).payload,
            Kind::Read
            | Kind::CompareSwap
            | Kind::FetchAdd
            | Kind::IndirectRead
            | Kind::ScanRead => None,
        };
        let bytes = 1 + random.below(u64::from(VAULT_BYTES)) as u32;
        let (stride, count) = (16, random.below(64) as u32);
        let operand = if payload.is_some() { bytes.into() } else { random.next_u64() >> 32 };
        let kind = kind as u8;
        Some(Words { kind, region, place, bytes, count, stride, operand, second, payload })
    }

    /// Whether this may be answered to who may ask it.
    pub(super) fn is_pried(&self, what: Prying, answer: &Answer<'_>) -> bool {
        let Answer { value, extra, bytes, .. } = *answer;
        match what {
            Prying::Find => {
                extra == u64::from(VAULT_BYTES)
                    && bytes.is_empty()
                    && self.may_be_found(Region::Vault, value, Time::ZERO)
            }
            Prying::Read(at, length) => bytes == self.vault.secrets(at, length),
            Prying::Write | Prying::Add(_) => bytes.is_empty(),
            Prying::InVain => false,
            Prying::BatchInVain => {
                let refused = [0, 0, 0, Status::NotAllowed as u8, 0, 0, 0, 0];
                value == 0 && bytes == refused.repeat(BATCH)
            }
        }
    }

    /// Whether it may be refused in this way.
    pub(super) fn may_refuse_prying(what: Prying, may: bool, status: Status) -> bool {
        match what {
            Prying::Find => !may && status == Status::NotFound,
            _ => !may && status == Status::NotAllowed,
        }
    }
}

/// Reads of what entries of the table point to, in the vault.
fn batch(ground: u64, vault: u64) -> Words {
    let offsets = [0, 1, 2].map(|index| u64::from(entry_at(index)));
    const { assert!(BATCH == 3) };
    let payload = offsets.into_iter().flat_map(u64::to_be_bytes).collect();
    let kind = Kind::BatchRead as u8;
    Words { kind, operand: 8, second: vault, ..write(ground, 0, payload) }
}

/// A request, and the right that it needs and that the asker is not to have.
fn in_vain(random: &mut Random, ground: u64, vault: u64) -> Option<(Rights, Words)> {
    let of = |kind: Kind, words: Words| Words { kind: kind as u8, ..words };
    let table = Words { second: vault, ..read(ground, entry_at(0), 900) };
    let entry = random.below(ENTRIES as u64) as u32;
    let scan = Words {
        stride: TABLE_STRIDE as u16,
        count: 1,
        operand: Estate::key(entry as usize),
        second: vault,
        ..read(ground, TABLE + TABLE_STRIDE * entry, 900)
    };
    let from_vault = Words { second: ground, stride: 16, count: 8, ..read(vault, 0, 900) };
    let cases = [
        (Rights::WRITE | Rights::NOTIFY, of(Kind::WriteNotify, write(vault, 0, vec![1; 8]))),
        (Rights::WRITE, write(vault, 3, vec![2; 100])),
        (Rights::ATOMIC, of(Kind::CompareSwap, read(vault, VAULT_BYTES - 8, 0))),
        (Rights::READ, of(Kind::IndirectRead, table)),
        (Rights::READ, of(Kind::ScanRead, scan)),
        (Rights::READ, of(Kind::IndirectRead, from_vault.clone())),
        (Rights::READ, of(Kind::ScanRead, from_vault)),
        (Rights::READ, read(vault, 0, VAULT_BYTES)),
        (Rights::READ, read(vault, 0, VAULT_BYTES + 1)),
    ];
    let index = random.below(cases.len() as u64) as usize;
    cases.into_iter().nth(index)
}
