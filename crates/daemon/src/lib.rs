//! Control plane, configuration, policy, and the clearway command
