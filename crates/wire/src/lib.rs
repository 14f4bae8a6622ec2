//! Packet formats: for each one a raw *view*, which never panics on any bytes, and a *repr*, which
//! is always valid.
//!
//! A view borrows bytes and checks at construction that its fixed part is there; it says what the
//! bytes say. `Repr::parse(view)` is where a packet is judged: it returns a valid repr or the one
//! reason, a [`Malformed`], why it is dropped. `repr.emit(bytes)` writes it back, and `length()`
//! says how many bytes that takes. Emitting into a buffer that is too short panics: how long the
//! buffer is, is the caller's doing and never a stranger's.
//!
//! Everything is network byte order. Nothing here keeps state, allocates, or asks the operating
//! system for anything.

mod bytes;
pub mod clearway;
mod malformed;

pub use malformed::Malformed;
