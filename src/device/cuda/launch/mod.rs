//! Work in the device's queue: kernels, streams, graphs, and every wait of the host.

pub mod graph;
pub mod hang_timeout;
pub mod heartbeat;
pub mod in_flight;
pub mod kernel;
pub mod kernels;
pub mod stream;
pub mod wait;
