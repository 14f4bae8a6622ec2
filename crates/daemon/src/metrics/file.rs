//! The file of counters: written by a daemon, read by any tool without its help, also when it has
//! died.
//!
//! ```text
//!    0  magic                 8 bytes
//!    8  version               u32       of this layout
//!   12  description length    u32       in bytes
//!   16  process               u64       of the daemon
//!   24  sequence              u64       how often values were written
//!   32  started               u64       ns since 1970
//!   40  values                u64       where the first copy begins, from the file's beginning
//!   48  values length         u64       of a copy, in bytes; the second follows the first
//!   56  description           u64       where it is, from the file's beginning
//!   64  description           JSON      what the values are; see `Description`
//!       values, twice         u64 each  when they were written, in ns since 1970; then by
//!                                       engine: the time of its clock in ns, and its values
//! ```
//!
//! Numbers are in the machine's own order. The last values are in the second copy if the sequence
//! is odd, in the first if it is even; the next go to the other one. So a reader has values of one
//! moment if the sequence is the same before and after, and a daemon that is stopped or killed
//! while it writes leaves the last ones behind as they were. When engines come while the daemon
//! runs, another description is added at the end, with room for its values, and then the header is
//! that of these: who has read another header reads it again. It holds a lock (flock(2)) on the
//! file as long as it lives, however it ends: a reader who can get a shared one knows that it is
//! dead. One that ends in good order removes the file.
//!
//! The file is written by `pwrite`, from boards in the daemon's own memory, by a thread on which
//! nobody depends: an engine that wrote into a file's page might wait for its disk, and would die
//! with a file that somebody makes shorter.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clearway_base::{Counter, Kind};
use clearway_engine::{Board, Label, Reading};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::privileges::OwnUser;

const MAGIC: [u8; 8] = *b"CLEARWAY";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const SEQUENCE_AT: u64 = 24;
/// No description is longer: there are some hundred counters, and 64 engines.
const DESCRIPTION_BYTES_MAX: usize = 1 << 20;
/// The same of values: 64 engines, each with 64 queues.
const VALUES_MAX: usize = 1 << 16;
/// Reads that met a write, until the reader gives up: the next write is 250 ms away.
const TRIES_MAX: usize = 10;

/// What the values are. By engine: those of `engine`, then those of `queue` for each of its queues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The daemon's version.
    pub version: String,
    /// What each engine counts.
    pub engine: Vec<CounterDescription>,
    /// What each queue counts.
    pub queue: Vec<CounterDescription>,
    /// The engines, in their order.
    pub engines: Vec<EngineDescription>,
}

/// One counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterDescription {
    /// The name of its group; see `docs/counters.md`.
    pub group: String,
    /// Its name.
    pub name: String,
    /// It says how much there is now, and does not only rise.
    pub is_level: bool,
    /// What it is a number of.
    pub unit: String,
    /// What it counts.
    pub help: String,
}

/// One engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineDescription {
    /// Its name.
    pub name: String,
    /// The NIC that it serves.
    pub nic: String,
    /// How many queues it has.
    pub queues: usize,
}

/// The values, as they were published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// When.
    pub published: SystemTime,
    /// By engine; `None` if it has published nothing yet.
    pub engines: Vec<Option<Reading>>,
}

/// Why there are no counters to read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is no such file, or it cannot be read.
    #[error("cannot read the counters at {path}: {source}; {}", remedy(.source))]
    File {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is something else, or of another version.
    #[error(
        "{path} has no counters of a daemon of this version: {why}; use the tool of the daemon's \
         release, or start the daemon again"
    )]
    Format {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
}

/// The file's mode is what the policy was when the daemon started.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "it is for root and the daemon's user, and for all others if [policy] of the \
             configuration let anybody in when the daemon started"
        }
        _ => "see whether the daemon runs (`clearway status`), and what its log says of them",
    }
}

impl Description {
    /// Of engines: their NIC, their name and their board.
    pub(super) fn of<'b>(engines: impl Iterator<Item = (&'b str, &'b str, &'b Board)>) -> Self {
        let mut description = Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            engine: Vec::new(),
            queue: Vec::new(),
            engines: Vec::new(),
        };
        for (nic, name, board) in engines {
            let of = |queue: Option<usize>| {
                let labels = board.labels().iter().filter(move |label| label.queue == queue);
                labels.map(CounterDescription::of).collect()
            };
            (description.engine, description.queue) = (of(None), of(Some(0)));
            let last = board.labels().last().and_then(|label| label.queue);
            let queues = last.map_or(0, |last| last + 1);
            let (name, nic) = (name.to_owned(), nic.to_owned());
            description.engines.push(EngineDescription { name, nic, queues });
        }
        description
    }

    /// How many values an engine has.
    fn values_of(&self, engine: &EngineDescription) -> usize {
        self.engine.len() + engine.queues * self.queue.len()
    }

    /// How many numbers a copy has, with one time for each engine and one for all.
    fn numbers(&self) -> usize {
        1 + self.engines.iter().map(|engine| 1 + self.values_of(engine)).sum::<usize>()
    }
}

impl CounterDescription {
    fn of(label: &Label) -> Self {
        let Counter { name, kind, unit, .. } = label.counter;
        Self {
            group: label.group.to_owned(),
            name: name.to_owned(),
            is_level: kind == Kind::Level,
            unit: unit.name().to_owned(),
            help: label.counter.help().to_owned(),
        }
    }
}

impl CounterDescription {
    /// True if its words are words, and its sentence one line.
    fn is_sound(&self) -> bool {
        let is_word = |text: &String| {
            let is_of_words = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            !text.is_empty() && text.chars().all(is_of_words)
        };
        [&self.group, &self.name, &self.unit].into_iter().all(is_word)
            && !self.help.contains(char::is_control)
    }
}

impl Numbers {
    pub(super) fn now(engines: Vec<Option<Reading>>) -> Self {
        Self { published: SystemTime::now(), engines }
    }
}

/// The daemon's end.
#[derive(Debug)]
pub(super) struct Published {
    file: File,
    path: PathBuf,
    started_ns: u64,
    sequence: u64,
    values_at: u64,
    /// By engine: how many values.
    values: Vec<usize>,
    has_failed: bool,
}

impl Published {
    /// Makes the file, in the place of one that a dead daemon left behind. Who may attach, or ask
    /// to, may read it.
    pub(super) fn create(
        path: &Path,
        config: &Config,
        description: &Description,
        user: Option<&OwnUser>,
    ) -> io::Result<Self> {
        let new = path.with_extension("counters.new");
        let made = || -> io::Result<Self> {
            match fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create_new(true).mode(0o600).open(&new)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            let started_ns = unix_ns(SystemTime::now());
            let mut published = Self {
                file,
                path: path.to_owned(),
                started_ns,
                sequence: 0,
                values_at: 0,
                values: Vec::new(),
                has_failed: false,
            };
            published.describe(description, HEADER_BYTES as u64, &[])?;
            let file = &published.file;
            let mode = if config.policy.lets_others_in() { 0o644 } else { 0o600 };
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            user.map_or(Ok(()), |user| user.give(file))?;
            fs::rename(&new, path)?;
            Ok(published)
        };
        made().inspect_err(|_| {
            let _ = fs::remove_file(&new); // if it was made at all
        })
    }

    /// Engines have come: from now on there are these, of which this has been read.
    pub(super) fn extend(&mut self, description: &Description, engines: &[Option<Reading>]) {
        let end = self.file.metadata().map(|file| file.len().next_multiple_of(8));
        if let Err(error) = end.and_then(|end| self.describe(description, end, engines)) {
            tracing::warn!(path = %self.path.display(), %error, "cannot describe new counters");
        }
    }

    /// Writes a description and its values, and then the header that says so. If that fails, what
    /// the header says of before is still so.
    fn describe(
        &mut self,
        description: &Description,
        at: u64,
        engines: &[Option<Reading>],
    ) -> io::Result<()> {
        let text = serde_json::to_vec(description)?;
        let values_at = (at + text.len() as u64).next_multiple_of(8);
        let values: Vec<_> = description.engines.iter().map(|e| description.values_of(e)).collect();
        let copy = copy_of(engines, &values);
        let length = copy.len() as u64;
        self.file.set_len(values_at + 2 * length)?;
        self.file.write_all_at(&text, at)?;
        self.file.write_all_at(&copy, values_at + self.sequence % 2 * length)?;
        let mut head = MAGIC.to_vec();
        head.extend(VERSION.to_ne_bytes());
        head.extend((text.len() as u32).to_ne_bytes());
        let process = u64::from(std::process::id());
        for field in [process, self.sequence, self.started_ns, values_at, length, at] {
            head.extend(u64::to_ne_bytes(field));
        }
        self.file.write_all_at(&head, 0)?;
        (self.values_at, self.values) = (values_at, values);
        Ok(())
    }

    /// Writes what has been read. That it fails is said once.
    pub(super) fn write(&mut self, engines: &[Option<Reading>]) {
        if let Err(error) = self.try_write(engines)
            && !std::mem::replace(&mut self.has_failed, true)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot write the counters");
        }
    }

    fn try_write(&mut self, engines: &[Option<Reading>]) -> io::Result<()> {
        let next = self.sequence + 1;
        let copy = copy_of(engines, &self.values);
        self.file.write_all_at(&copy, self.values_at + next % 2 * copy.len() as u64)?;
        self.file.write_all_at(&next.to_ne_bytes(), SEQUENCE_AT)?;
        self.sequence = next;
        Ok(())
    }

    /// The daemon ends in good order.
    pub(super) fn remove(self) {
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let own = self.file.metadata().map(identity);
        let is_own = fs::symlink_metadata(&self.path).map(identity).ok() == own.ok();
        if is_own && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "counters left behind");
        }
    }
}

/// The bytes of a copy, for engines with so many values each.
fn copy_of(engines: &[Option<Reading>], values: &[usize]) -> Vec<u8> {
    let mut bytes = unix_ns(SystemTime::now()).to_ne_bytes().to_vec();
    let engines = engines.iter().map(Option::as_ref).chain(std::iter::repeat(None));
    for (reading, count) in engines.zip(values) {
        let at_ns = reading.map_or(0, |reading| reading.at_ns);
        bytes.extend(at_ns.to_ne_bytes());
        let values = reading.iter().flat_map(|reading| reading.values.iter().copied());
        let values = values.chain(std::iter::repeat(0)).take(*count);
        bytes.extend(values.flat_map(u64::to_ne_bytes));
    }
    bytes
}

fn unix_ns(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// A tool's end.
#[derive(Debug)]
pub struct CountersFile {
    file: File,
    path: PathBuf,
    description: Description,
    header: Header,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    description_bytes: usize,
    process: u64,
    sequence: u64,
    started_ns: u64,
    values_at: u64,
    description_at: u64,
}

impl CountersFile {
    /// Opens the counters of a daemon, whether it lives or not.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let failed = |source| FileError::File { path: path.to_owned(), source };
        let format = |why| FileError::Format { path: path.to_owned(), why };
        let file = File::open(path).map_err(failed)?;
        let header = Header::read(&file).map_err(failed)?.ok_or(format("no such header"))?;
        if header.description_bytes > DESCRIPTION_BYTES_MAX {
            return Err(format("the description is too long"));
        }
        let mut text = vec![0; header.description_bytes];
        file.read_exact_at(&mut text, header.description_at).map_err(failed)?;
        let description: Description =
            serde_json::from_slice(&text).map_err(|_| format("the description is damaged"))?;
        let all = || description.engine.iter().chain(&description.queue);
        if !all().all(CounterDescription::is_sound) {
            return Err(format("the description is damaged"));
        }
        let is_small = |engine: &EngineDescription| engine.queues <= VALUES_MAX;
        if !description.engines.iter().all(is_small) || description.numbers() > VALUES_MAX {
            return Err(format("there are too many values"));
        }
        Ok(Self { file, path: path.to_owned(), description, header })
    }

    /// What the values are.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The process of the daemon that writes it, or wrote it.
    #[must_use]
    pub fn process(&self) -> u64 {
        self.header.process
    }

    /// When the daemon started.
    #[must_use]
    pub fn started(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.header.started_ns)
    }

    /// True if the daemon that writes it lives.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        match flock(&self.file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                let _ = flock(&self.file, FlockOperation::Unlock);
                false
            }
            Err(_) => true,
        }
    }

    /// False if engines have come since it was opened: then it has to be opened again.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let now = Header::read(&self.file).ok().flatten();
        now.is_some_and(|now| now.values_at == self.header.values_at)
    }

    /// The values, all of one moment.
    pub fn read(&self) -> Result<Numbers, FileError> {
        let failed = |source| FileError::File { path: self.path.clone(), source };
        for _ in 0..TRIES_MAX {
            if let Some(numbers) = self.try_read().map_err(failed)? {
                return Ok(numbers);
            }
        }
        Err(FileError::Format { path: self.path.clone(), why: "it is always being written" })
    }

    /// `None` if they were written meanwhile.
    fn try_read(&self) -> io::Result<Option<Numbers>> {
        let header = || -> io::Result<Header> {
            let header = Header::read(&self.file)?;
            header.ok_or_else(|| io::Error::other("damaged header"))
        };
        let before = header()?;
        if before.values_at != self.header.values_at {
            return Err(io::Error::other("there are other engines now; open it again"));
        }
        let mut bytes = vec![0; 8 * self.description.numbers()];
        let copy_at = before.values_at.saturating_add(before.sequence % 2 * bytes.len() as u64);
        self.file.read_exact_at(&mut bytes, copy_at)?;
        if header()? != before {
            return Ok(None);
        }
        let (words, _) = bytes.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_ne_bytes(*word));
        let published = UNIX_EPOCH + Duration::from_nanos(words.next().unwrap_or(0));
        let engines = self.description.engines.iter().map(|engine| {
            let at_ns = words.next().unwrap_or(0);
            let values = words.by_ref().take(self.description.values_of(engine)).collect();
            (at_ns > 0).then_some(Reading { at_ns, values })
        });
        let engines = engines.collect();
        Ok(Some(Numbers { published, engines }))
    }
}

impl Header {
    /// `None` if there is none.
    fn read(file: &File) -> io::Result<Option<Self>> {
        let mut bytes = [0; HEADER_BYTES];
        match file.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let half =
            |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let word =
            |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if bytes[..8] != MAGIC || half(8) != VERSION {
            return Ok(None);
        }
        Ok(Some(Self {
            description_bytes: half(12) as usize,
            process: word(16),
            sequence: word(24),
            started_ns: word(32),
            values_at: word(40),
            description_at: word(56),
        }))
    }
}
