//! What the instructions do, on plain slices: one file per family. Everything here is safe code that the compiler
//! turns into vector code for the instruction set at hand, see [`vectorized`].

pub mod activation;
pub mod dropout;
pub mod gather;
pub mod loss;
pub mod optimizer;
pub mod reduce;

/// Runs a loop compiled for the best instruction set of this processor. The loop must be `#[inline(always)]` down to
/// its arithmetic; nothing in it may depend on the instruction set for its result (no fused multiply-add), so that
/// elementwise operations have the same bits everywhere.
#[inline(always)]
pub fn vectorized<R>(work: impl FnOnce() -> R) -> R {
    struct Dispatch<F>(F);
    impl<R, F: FnOnce() -> R> pulp::NullaryFnOnce for Dispatch<F> {
        type Output = R;
        #[inline(always)]
        fn call(self) -> R {
            (self.0)()
        }
    }
    pulp::Arch::new().dispatch(Dispatch(work))
}
