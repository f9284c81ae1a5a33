//! Programs as records, and the four ways to run them.

pub mod engine;
pub mod gpu_context;
pub mod loaded;
pub mod product;
pub mod steps;
