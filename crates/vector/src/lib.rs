//! Arithmetic on one core: vector instructions, matrix products, elementwise functions.
//!
//! Functions take and return plain slices; nothing here depends on ops, threads or memory plans.

pub mod functions;
mod gather;
pub mod matmul;
pub mod reference;
#[allow(unsafe_code)]
mod simd;

pub use gather::gather;
pub use simd::{Flushed, denormals_flushed, flush_denormals, prefetch};

/// Runs a loop compiled for the best instruction set of this processor. Everything that the loop calls, down
/// to its arithmetic, must be `#[inline(always)]`, or it is compiled for the baseline. Results must not
/// depend on the instruction set (so no fused multiply-add): elementwise operations have the same bits
/// everywhere.
#[inline(always)]
pub fn vectorized<R>(work: impl FnOnce() -> R) -> R {
    simd::InstructionSet::detect().run(work)
}
