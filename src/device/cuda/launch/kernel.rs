//! Launches: their size, and the call.

use std::{ffi::c_void, ptr};

use cudarc::driver::sys::CUfunction;

use super::stream::Stream;
use crate::{
    device::{
        DeviceError,
        cuda::{
            abi::{Kind, NONE, Op, PARTIALS},
            ffi::Context,
        },
    },
    program::LARGE_PRODUCT,
};

/// Threads of a block; products are written for this number.
const THREADS: u32 = 256;
/// Columns up to which products have special kernels (`SLIM` of kernels/product.cu).
const SLIM: i32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub blocks: u32,
    pub threads: u32,
    pub shared_bytes: u32,
    /// Whether all blocks run at the same time and may wait for each other.
    pub together: bool,
}

impl Shape {
    pub const WARP: Self = Self { blocks: 1, threads: 32, shared_bytes: 0, together: false };

    /// As many blocks as the work fills, at most `most`.
    pub fn new(blocks: u64, most: u32) -> Self {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX).clamp(1, most.max(1));
        Self { blocks, threads: THREADS, ..Self::WARP }
    }
}

/// The launch of an instruction: enough threads for its work, and no more blocks than run at once, since every kernel
/// strides.
pub fn shape(op: &Op, kind: Kind, multiprocessors: u32) -> Shape {
    let size = |a: i32, b: i32| u64::try_from(i64::from(a) * i64::from(b)).unwrap_or(0);
    let blocks_for = |threads: u64| threads.div_ceil(u64::from(THREADS));
    // From compute capability 7 on, a multiprocessor holds at least four blocks of 256 threads.
    let most = multiprocessors.saturating_mul(4);
    let n = u64::try_from(op.n).unwrap_or(0);
    let product = |m: i32, columns: i32, k: i32| {
        if columns > SLIM {
            let tiles =
                u64::try_from(m).unwrap_or(0).div_ceil(32) * u64::try_from(columns).unwrap_or(0).div_ceil(32);
            Shape::new(tiles, multiprocessors.saturating_mul(2))
        } else if k >= 64 {
            // A warp per row.
            Shape::new(u64::try_from(m).unwrap_or(0).div_ceil(8), most)
        } else {
            Shape::new(blocks_for(size(m, columns)), most)
        }
    };
    match kind {
        Kind::Gather => {
            // Four numbers per thread where rows are whole quads.
            let wide = size(op.rows, op.inputs);
            Shape::new(blocks_for((wide / 4).max(size(op.rows, op.outputs))), most)
        }
        Kind::Clip | Kind::Zero => Shape::new(blocks_for(n), most),
        Kind::Dropout | Kind::DropoutBackward => Shape::new(blocks_for(size(op.rows, op.inputs)), most),
        // Four numbers per thread.
        Kind::Update | Kind::Activate | Kind::ActivateBackward => Shape::new(blocks_for(n.div_ceil(4)), most),
        Kind::Loss => {
            // Up to 32 lanes share a row.
            let lanes = u64::try_from(op.inputs / 2).unwrap_or(0).clamp(1, 32).next_power_of_two();
            Shape::new(blocks_for(u64::try_from(op.rows).unwrap_or(0) * lanes), most)
        }
        Kind::Linear => product(op.rows, op.outputs, op.inputs),
        Kind::InputGradient => product(op.rows, op.inputs, op.outputs),
        Kind::WeightGradient if op.inputs > SLIM && op.outputs > SLIM => {
            product(op.inputs, op.outputs, op.rows)
        }
        Kind::WeightGradient => Shape::new(size(op.inputs.max(op.outputs), 1).div_ceil(32), most),
        Kind::BiasGradient => Shape::new(size(op.outputs, 1).div_ceil(32), most),
        // One block sums this many before a second one pays.
        Kind::Norm | Kind::Mean => Shape::new(n.div_ceil(4096), multiprocessors.min(PARTIALS as u32)),
        Kind::LogAppend | Kind::Accumulate | Kind::Watch => Shape::WARP,
    }
}

/// Whether the library multiplies faster than our kernels: a large product whose update is not fused.
pub fn is_large_product(op: &Op, kind: Kind) -> bool {
    let work = f64::from(op.rows) * f64::from(op.inputs) * f64::from(op.outputs);
    matches!(kind, Kind::Linear | Kind::InputGradient | Kind::WeightGradient)
        && op.flags & crate::device::cuda::abi::FLAG_UPDATE == 0
        && work >= LARGE_PRODUCT
        && op.at[0] != NONE
}

/// Queues a kernel.
///
/// # Safety
/// `arguments` must point to values of the kernel's parameter types, in order; addresses among them must be of device
/// memory as large as the kernel expects.
pub unsafe fn launch(
    context: &Context,
    stream: &Stream,
    function: CUfunction,
    shape: Shape,
    arguments: &mut [*mut c_void],
    name: &'static str,
) -> Result<(), DeviceError> {
    let (driver, arguments, none) = (context.driver, arguments.as_mut_ptr(), ptr::null_mut());
    let Shape { blocks, threads, shared_bytes: shared, together } = shape;
    let stream = stream.handle;
    // SAFETY: the caller's, here and below; the handles are alive.
    let status = unsafe {
        if together {
            (driver.cuLaunchCooperativeKernel)(
                function, blocks, 1, 1, threads, 1, 1, shared, stream, arguments,
            )
        } else {
            (driver.cuLaunchKernel)(function, blocks, 1, 1, threads, 1, 1, shared, stream, arguments, none)
        }
    };
    context.check(status, || format!("launching the kernel `{name}`"))
}

pub fn argument<T>(value: &mut T) -> *mut c_void {
    ptr::from_mut(value).cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(kind: Kind, rows: i32, inputs: i32, outputs: i32) -> Op {
        Op { rows, inputs, outputs, n: rows * inputs, ..Op::new(kind) }
    }

    #[test]
    fn launches_are_as_large_as_their_work_and_no_larger_than_the_gpu() {
        let blocks = |kind, rows, inputs, outputs| shape(&op(kind, rows, inputs, outputs), kind, 132).blocks;
        assert_eq!(blocks(Kind::Linear, 256, 784, 256), 64);
        assert_eq!(blocks(Kind::Linear, 4096, 2048, 2048), 264);
        assert_eq!(blocks(Kind::Linear, 256, 784, 10), 32);
        assert_eq!(blocks(Kind::Linear, 32, 2, 1), 1);
        assert_eq!(blocks(Kind::WeightGradient, 256, 784, 10), 25);
        assert_eq!(blocks(Kind::Mean, 256, 1, 1), 1);
        assert_eq!(blocks(Kind::Norm, 1000, 1000, 1), 132);
        assert_eq!(blocks(Kind::Activate, 1 << 14, 1 << 10, 1), 528);
        assert_eq!(blocks(Kind::Zero, 0, 0, 0), 1);
        for kind in Kind::ALL {
            assert_eq!(shape(&op(kind, 100, 100, 100), kind, 108).threads % 32, 0, "{kind:?}");
        }
    }
}
