//! Message flows: reliability, flow control and congestion control, without I/O
