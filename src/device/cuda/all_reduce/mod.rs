//! Sums over the devices of a run: from memory to memory, by NCCL, or through the host.

mod access;
mod communicator;
mod peer;
mod sums;

pub use access::reaches;
pub use communicator::{Communicator, Lost};
pub use peer::{PeerSums, connect};
pub use sums::{HostSums, Way};
