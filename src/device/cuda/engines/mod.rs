//! Programs as records, and the four ways to run them.

mod engine;
mod ground;
mod loaded;
mod product;
mod steps;

pub use ground::Ground;
pub use loaded::{Loaded, MOST_LAUNCHED, MOST_STEPS};
pub use product::Products;
pub use steps::{Steps, Work};
