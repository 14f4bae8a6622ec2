//! The run loop that joins channels, transport and NIC queues
