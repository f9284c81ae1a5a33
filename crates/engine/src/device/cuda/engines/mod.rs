//! Programs as records, and the four ways to run them.

mod engine;
mod gpu_context;
mod loaded;
mod product;
mod steps;

pub use gpu_context::{GpuContext, QueuedSums};
pub use loaded::{Loaded, MOST_LAUNCHED, MOST_STEPS};
pub use product::Products;
pub use steps::{LaunchKind, Steps};
