//! Work in the device's queue: kernels, streams, graphs, and every wait of the host.

pub mod graph;
pub mod kernel;
pub mod kernels;
pub mod patience;
pub mod pulse;
pub mod ring;
pub mod stream;
pub mod wait;
