//! What sessions are refused with.

use clearway_channel::Code;
use clearway_channel::control::Refusal;

pub(crate) fn refusal(code: Code, message: impl Into<String>) -> Refusal {
    Refusal { code, message: message.into() }
}

pub(crate) fn not_attached() -> Refusal {
    refusal(Code::Invalid, "this connection has no channel; send `attach` first")
}
