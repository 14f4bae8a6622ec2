//! What client and server say to each other beside the load: JSON behind a mark that no message of
//! the load begins with, since those begin with their number and go on with 8, 9, 10.

use super::path::Path;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// With the version of what follows.
const MARK: &[u8] = b"clearway bench 1";

/// What a client says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Question {
    /// Answer each message of this connection with so many of its first bytes, at most.
    Answer {
        /// The bytes.
        bytes: usize,
    },
    /// How do the packets of this connection travel at your end?
    Path,
}

/// What a server says to that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Answer {
    /// The load may come.
    Ready,
    /// How they travel.
    Path(Path),
    /// It could not find out, for this reason.
    Failed(String),
}

/// The message that says it.
pub(super) fn message(what: &impl Serialize) -> Vec<u8> {
    let mut message = MARK.to_vec();
    serde_json::to_writer(&mut message, what).expect("it is plain data");
    message
}

/// What a message says; `None` if it is one of the load, or of another version.
pub(super) fn parse<T: DeserializeOwned>(message: &[u8]) -> Option<T> {
    serde_json::from_slice(message.strip_prefix(MARK)?).ok()
}
