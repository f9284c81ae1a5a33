//! Programs as records, and the five engines that run them.

mod compiled;
mod copies;
mod engine;
mod gpu_context;
mod loaded;
mod matmul;
mod product;
mod step_sequence;
mod steps;
mod tuning;

pub use compiled::{Attempt, Compiled, Outcome};
pub use copies::Conversion;
pub use gpu_context::{GpuContext, QueuedSums};
pub use loaded::{Loaded, MOST_LAUNCHED, MOST_STEPS};
pub use product::Products;
pub use step_sequence::StepSequence;
pub use steps::{LaunchKind, Steps};
