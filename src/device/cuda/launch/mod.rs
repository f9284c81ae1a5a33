//! Work in the device's queue: kernels, streams, graphs, and every wait of the host.

mod graph;
mod kernel;
mod kernels;
pub mod patience;
mod pulse;
mod ring;
mod stream;
pub mod wait;

pub use graph::Graph;
pub use kernel::{Shape, argument, is_large_product, launch, shape};
pub use kernels::Kernels;
pub use patience::Patience;
pub use pulse::{Inside, Pulse, Watch};
pub use ring::{Done, Queued, Ring};
pub use stream::{Event, Stream};
