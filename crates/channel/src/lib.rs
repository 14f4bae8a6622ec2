//! The contract between app and daemon: shared-memory layout, rings, pools, doorbells, control messages
