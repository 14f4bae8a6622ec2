use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

struct Case {
    opening: Opening,
    directory: PathBuf,
}

impl Case {
    fn new(name: &str) -> Self {
        let directory = format!("clearway-opener-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(directory);
        fs::create_dir_all(&directory).expect("a directory");
        let writer = rustix::process::geteuid().as_raw();
        let path = directory.join("clearway.toml").into();
        let case = Self { opening: Opening { path, writer, last: None }, directory };
        case.write("a", "server");
        case
    }

    /// A configuration with one memif.
    fn write(&self, name: &str, role: &str) {
        let socket = self.socket();
        let text = format!(
            "[[nic]]\nname = \"{name}\"\ndriver = \"memif\"\nsocket = {socket:?}\n\
             role = \"{role}\"\naddresses = [\"10.0.0.1/24\"]\n\
             [policy]\nusers = [\"nobody-here\"]\n"
        );
        fs::write(&self.opening.path, text).expect("written");
        self.set_mode(0o640);
    }

    fn set_mode(&self, mode: u32) {
        fs::set_permissions(&self.opening.path, Permissions::from_mode(mode)).expect("its own");
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("m.sock")
    }

    fn ask(&mut self, nic: &str, thing: Thing) -> Result<usize, String> {
        let question = Question { number: 1, nic: nic.to_owned(), thing };
        match self.opening.answer(&question) {
            Ok(descriptors) => Ok(descriptors.len()),
            Err(Answer::Refused(text)) => Err(text),
            Err(other) => panic!("{other:?}"),
        }
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn only_nics_of_the_configuration_are_opened() {
    let mut case = Case::new("nics");
    let unknown = case.ask("eth0", Thing::Hide).expect_err("there is none");
    assert!(unknown.contains("names no NIC \"eth0\""), "{unknown}");
    for thing in [
        Thing::Hide,
        Thing::XdpSocket { bytes: 2048, chunk_bytes: 2048 },
        Thing::Connector,
        Thing::Tap,
    ] {
        let other = case.ask("a", thing).expect_err("it is a memif server");
        assert!(other.contains("of another kind"), "{other}");
    }
    assert_eq!(case.ask("a", Thing::Listening), Ok(1));
    assert!(case.socket().exists(), "where the configuration says");
    // What it says now counts, and what it said last if it says nothing.
    case.write("b", "client");
    assert!(case.ask("a", Thing::Listening).is_err());
    fs::write(&case.opening.path, "nonsense = 1").expect("written");
    assert_eq!(case.ask("b", Thing::Connector), Ok(1));
}

#[test]
fn a_configuration_that_others_can_write_opens_nothing() {
    let mut case = Case::new("modes");
    for mode in [0o660, 0o646] {
        case.set_mode(mode);
        let refused = case.ask("a", Thing::Listening).expect_err("anybody may have written it");
        assert!(refused.contains("chmod go-w"), "{refused}");
    }
    case.set_mode(0o644);
    case.opening.writer = 1;
    let own = fs::metadata(&case.opening.path).expect("it is there").uid();
    assert_eq!(case.ask("a", Thing::Listening).is_ok(), own == 0, "root's, or the starter's");
}

/// A pipe that nobody writes into.
#[test]
fn what_is_no_file_is_not_waited_for() {
    let mut case = Case::new("pipe");
    fs::remove_file(&case.opening.path).expect("its own");
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, &*case.opening.path, FileType::Fifo, mode, 0).expect("a pipe");
    let refused = case.ask("a", Thing::Listening).expect_err("there is nothing to read");
    assert!(refused.contains("it is no file; put a file there"), "{refused}");
}
