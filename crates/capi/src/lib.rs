//! The C ABI of the Clearway app library
