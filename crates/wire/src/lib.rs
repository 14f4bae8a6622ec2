//! Packet formats: a raw view and a valid repr of each, and checksums
