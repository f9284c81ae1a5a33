//! Sums over the devices of a run: from memory to memory, by NCCL, or through the host.

pub mod access;
pub mod communicator;
pub mod peer;
pub mod sums;
