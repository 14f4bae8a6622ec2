//! The Clearway app library
