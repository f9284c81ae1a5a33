//! Programs as records, and the four ways to run them.

pub mod engine;
pub mod product;
pub mod steps;
