//! Pieces of memory that askers write as a whole, each time with other content: which content may
//! somebody find who reads, and in which order?

use clearway_base::Time;

use crate::content::{are_words, write_words};

/// From one word of a content to the next.
const STEP: u64 = 0xd6e8_feb8_6659_fd93;

fn start(seed: u64) -> u64 {
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// What stands in a piece of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    /// What follows from a number, and nothing else.
    Of(u64),
    /// What the write of this number wrote into the piece with this seed; 0 is how it begins. Its
    /// first word is the number.
    Written(u64, u64),
}

impl Content {
    /// The words from the one at `index` on.
    fn words(self, index: u64) -> impl Iterator<Item = u64> {
        let (first, start, step) = match self {
            Self::Of(seed) => (None, start(seed), STEP),
            Self::Written(_, 0) => (None, 0, 0),
            Self::Written(seed, number) => (Some(number), start(seed ^ number << 20), STEP),
        };
        (index..).map(move |index| match first {
            Some(first) if index == 0 => first,
            _ => start.wrapping_add(index.wrapping_mul(step)),
        })
    }

    /// Writes what stands at `at` and behind it, a multiple of 8.
    pub(crate) fn fill(self, at: u64, bytes: &mut [u8]) {
        write_words(bytes, self.words(at / 8));
    }

    /// True if all of these bytes stand at `at` and behind it, wherever that is.
    pub(crate) fn is(self, at: u64, bytes: &[u8]) -> bool {
        let skipped = (at % 8) as usize;
        let (head, rest) = bytes.split_at(bytes.len().min((8 - skipped) % 8));
        let mut words = self.words(at / 8);
        if !head.is_empty() {
            let word = words.next().unwrap_or_default().to_le_bytes();
            if *head != word[skipped..skipped + head.len()] {
                return false;
            }
        }
        are_words(rest, words)
    }
}

#[derive(Clone, Copy, Debug)]
struct Write {
    asked: Time,
    /// [`Time::MAX`] as long as it may have been done or not.
    told: Time,
    is_undone: bool,
    /// The first that was told of this content, and the last that has asked and been told of it.
    first_told: Time,
    last_asked: Time,
}

/// A piece of memory. Its writes have numbers from 1 on.
#[derive(Debug)]
pub(crate) struct Record {
    seed: u64,
    writes: Vec<Write>,
}

impl Record {
    /// All zeros.
    pub(crate) fn new(seed: u64) -> Self {
        let (asked, told) = (Time::ZERO, Time::ZERO);
        let (first_told, last_asked) = (told, asked);
        let zeros = Write { asked, told, is_undone: false, first_told, last_asked };
        Self { seed, writes: vec![zeros] }
    }

    /// Somebody writes: the number.
    pub(crate) fn begin(&mut self, now: Time) -> u64 {
        self.writes.push(Write {
            asked: now,
            told: Time::MAX,
            is_undone: false,
            first_told: Time::MAX,
            last_asked: now,
        });
        self.writes.len() as u64 - 1
    }

    pub(crate) const fn content(&self, number: u64) -> Content {
        Content::Written(self.seed, number)
    }

    /// It is written.
    pub(crate) fn done(&mut self, number: u64, now: Time) {
        let write = &mut self.writes[number as usize];
        write.told = now;
        write.first_told = write.first_told.min(now);
    }

    /// It is said not to have been written.
    pub(crate) fn undone(&mut self, number: u64) -> Result<(), String> {
        let write = &mut self.writes[number as usize];
        write.is_undone = true;
        match write.first_told {
            Time::MAX => Ok(()),
            at => Err(format!("write {number} was read at {at:?}, and has failed")),
        }
    }

    /// Somebody has asked at `asked`, and read all of it.
    pub(crate) fn read(&mut self, asked: Time, now: Time, bytes: &[u8]) -> Result<(), String> {
        let number = self.number_of(bytes)?;
        let write = &mut self.writes[number as usize];
        if write.is_undone {
            return Err(format!("write {number} has failed, and is there"));
        }
        write.first_told = write.first_told.min(now);
        write.last_asked = write.last_asked.max(asked);
        Ok(())
    }

    fn number_of(&self, bytes: &[u8]) -> Result<u64, String> {
        let first = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let is_sound = first < self.writes.len() as u64 && self.content(first).is(0, bytes);
        is_sound.then_some(first).ok_or_else(|| format!("no whole content of {}", bytes.len()))
    }

    /// Somebody has asked at `asked`, and read a part. Each byte of it may be of another write.
    pub(crate) fn read_part(&self, asked: Time, at: u64, bytes: &[u8]) -> Result<(), String> {
        let numbers = self.current(asked);
        let is_all = |number: &u64| self.content(*number).is(at, bytes);
        if numbers.iter().any(is_all) {
            return Ok(());
        }
        let mut place = 0;
        while place < bytes.len() {
            let end = bytes.len().min(place + 8 - (at as usize + place) % 8);
            let from = at + place as u64;
            let is_word = |number: &u64| self.content(*number).is(from, &bytes[place..end]);
            let is_byte = |(index, byte): (usize, &u8)| {
                let is = |number: &u64| self.content(*number).is(from + index as u64, &[*byte]);
                numbers.iter().any(is)
            };
            let is_sound =
                numbers.iter().any(is_word) || bytes[place..end].iter().enumerate().all(is_byte);
            if !is_sound {
                break;
            }
            place = end;
        }
        if place == bytes.len() {
            return Ok(());
        }
        Err(format!("{} bytes at {at} are of none of the writes {numbers:?}", bytes.len()))
    }

    /// Writes that may be there for somebody who asks at `asked`, up to now.
    fn current(&self, asked: Time) -> Vec<u64> {
        let earlier = self.writes.iter().filter(|write| write.told < asked);
        let covered = earlier.map(|write| write.asked).max().unwrap_or(Time::ZERO);
        let may_be = |write: &Write| !write.is_undone && write.told >= covered;
        let current = (0..).zip(&self.writes).filter(|(_, write)| may_be(write));
        current.map(|(number, _)| number).collect()
    }

    /// Is there one order of all whole reads and writes? From the first that was told of a content
    /// to the last that asked and found it, if that is later, it was there all the time; if not, it
    /// was there at some time between (Gibbons and Korach, "Testing shared memories", SIAM J.
    /// Comput. 26, 1997, section 4.1).
    pub(crate) fn check(&self) -> Result<(), String> {
        let known = self.writes.iter().filter(|write| write.first_told < Time::MAX);
        let spans = known.map(|write| (write.first_told, write.last_asked));
        let (mut lasting, short): (Vec<_>, Vec<_>) = spans.partition(|(first, last)| first < last);
        lasting.sort_unstable();
        if let Some(pair) = lasting.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            return Err(format!("two contents were there at the same time: {pair:?}"));
        }
        for (end, begin) in short {
            let index = lasting.partition_point(|(first, _)| *first < begin);
            if index > 0 && end < lasting[index - 1].1 {
                return Err(format!(
                    "a content was there from {begin:?} to {end:?}, and so was another"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    fn bytes(record: &Record, number: u64) -> Vec<u8> {
        let mut bytes = vec![0; 61];
        record.content(number).fill(0, &mut bytes);
        bytes
    }

    /// Writes, each asked and told then, and whole reads.
    fn check(writes: &[(u64, u64)], reads: &[(u64, u64, u64)]) -> Result<(), String> {
        let mut record = Record::new(5);
        for (asked, told) in writes {
            let number = record.begin(at(*asked));
            if *told > 0 {
                record.done(number, at(*told));
            }
        }
        for (number, asked, told) in reads {
            let bytes = bytes(&record, *number);
            record.read(at(*asked), at(*told), &bytes)?;
        }
        record.check()
    }

    #[test]
    fn whole_reads_and_writes_have_one_order() {
        check(&[(1, 2), (3, 4)], &[(0, 0, 1), (1, 2, 3), (2, 5, 6), (2, 7, 8)]).unwrap();
        check(&[(1, 9), (1, 9)], &[(1, 2, 3), (2, 4, 5)]).unwrap();
        check(&[(1, 0)], &[(0, 2, 3), (1, 4, 5)]).unwrap();
        assert!(check(&[(1, 2), (3, 4)], &[(1, 5, 6)]).is_err(), "old");
        assert!(check(&[(1, 2)], &[(0, 5, 6)]).is_err(), "older still");
        assert!(check(&[(1, 9), (1, 9)], &[(1, 2, 3), (2, 4, 5), (1, 6, 7)]).is_err(), "again");
        assert!(check(&[(1, 0)], &[(1, 2, 3), (0, 4, 5)]).is_err(), "undone");
    }

    #[test]
    fn parts_are_of_writes_that_may_be_there() {
        let mut record = Record::new(5);
        let (first, second) = (record.begin(at(1)), record.begin(at(5)));
        let mixed = [&bytes(&record, first)[..27], &bytes(&record, second)[27..]].concat();
        assert!(record.read_part(at(6), 3, &mixed[3..]).is_ok());
        assert!(record.read(at(6), at(7), &mixed).is_err(), "not whole");
        record.done(first, at(2));
        assert!(record.read_part(at(6), 0, &mixed).is_ok());
        assert!(record.read_part(at(6), 0, &[0; 8]).is_err(), "before the first");
        record.done(second, at(8));
        assert!(record.read_part(at(9), 0, &mixed).is_err(), "before the second");
        assert!(record.read_part(at(9), 5, &bytes(&record, second)[5..]).is_ok());
        assert!(record.undone(second).is_err(), "it is written");
        let third = record.begin(at(9));
        assert!(record.read_part(at(9), 5, &bytes(&record, third)[5..]).is_ok());
        assert!(record.undone(third).is_ok(), "nobody has read it whole");
        assert!(record.read_part(at(9), 5, &bytes(&record, third)[5..]).is_err());
    }
}
