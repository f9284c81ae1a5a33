//! Arithmetic on one core: vector instructions, matrix products, elementwise functions.
//!
//! Plain slices in, plain slices out; nothing here knows of ops, threads or memory plans.

pub mod functions;
pub mod matmul;
#[allow(unsafe_code)]
mod simd;

pub use simd::{Flushed, denormals_flushed, flush_denormals, prefetch};

/// Runs a loop compiled for the best instruction set of this processor. The loop must be `#[inline(always)]`
/// down to its arithmetic; nothing in it may depend on the instruction set for its result (no fused
/// multiply-add), so that elementwise operations have the same bits everywhere.
#[inline(always)]
pub fn vectorized<R>(work: impl FnOnce() -> R) -> R {
    simd::InstructionSet::detect().run(work)
}
