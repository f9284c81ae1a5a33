//! Work queued on the device: kernels, streams, graphs; and all waits of the host.

mod graph;
pub mod hang_timeout;
mod heartbeat;
mod in_flight;
mod kernel;
mod kernels;
mod side_stream;
mod stream;
pub mod wait;

pub use graph::Graph;
pub use hang_timeout::HangTimeout;
pub use heartbeat::{CallGuard, Heartbeat, Watch};
pub use in_flight::{Done, InFlightQueue, Queued};
pub(crate) use kernel::arguments;
pub use kernel::{Shape, allow_shared, blocks_at_once, is_large_product, launch, shape};
pub use kernels::{Modules, StepModule, cache_trouble};
pub use side_stream::SideStream;
pub use stream::{Event, Stream};
