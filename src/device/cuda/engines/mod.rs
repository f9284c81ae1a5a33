//! Programs as records, and the four ways to run them.

pub mod engine;
pub mod ground;
pub mod loaded;
pub mod product;
pub mod steps;
