//! Kernel launches: their size, and the call.

use std::{ffi::c_void, ptr};

use cudarc::driver::sys::CUfunction;

use super::stream::Stream;
use crate::{
    device::DeviceError,
    ffi::Context,
    op::{FLAG_UPDATE, Kind, NONE, Record, Size, is_large, product::is_slim},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub blocks: u32,
    pub threads: u32,
    pub shared_bytes: u32,
    /// Whether the launch is cooperative: all blocks run at the same time and may wait for each other.
    pub together: bool,
}

impl Shape {
    pub const WARP: Self = Self { blocks: 1, threads: 32, shared_bytes: 0, together: false };
}

impl Shape {
    /// As many blocks as the work needs, but at most `most`.
    pub fn new(blocks: u64, most: u32) -> Self {
        Size::new(blocks, most).into()
    }
}

impl From<Size> for Shape {
    fn from(Size { blocks, threads }: Size) -> Self {
        Self { blocks, threads, ..Self::WARP }
    }
}

/// How the stand-alone kernel of an op is launched.
pub fn shape(record: &Record, multiprocessors: u32) -> Shape {
    record.kind().size(record, multiprocessors).into()
}

/// Whether an op is a product that the library does faster than this project's kernels: large, and without a fused update.
pub fn is_large_product(record: &Record) -> bool {
    let shape = [record.rows, record.inputs, record.outputs].map(|n| usize::try_from(n).unwrap_or(0));
    matches!(record.kind(), Kind::Linear | Kind::InputGradient | Kind::WeightGradient)
        && record.flags & FLAG_UPDATE == 0
        && !is_slim(record.kind(), [record.rows, record.inputs, record.outputs])
        && is_large(shape)
        && record.at[0] != NONE
}

/// The driver's `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MOST_DYNAMIC_SHARED: i32 = 8;

/// Allows a kernel to use this much dynamic shared memory.
pub fn allow_shared(
    context: &Context,
    function: CUfunction,
    bytes: u64,
    name: &str,
) -> Result<(), DeviceError> {
    // SAFETY: the kernel belongs to a module of this context, which is current; the attribute is a number.
    let status = unsafe { (context.driver.cuFuncSetAttribute)(function, MOST_DYNAMIC_SHARED, bytes as i32) };
    context.check(status, || format!("giving `{name}` {bytes} bytes of shared memory"))
}

/// How many blocks of a kernel run on the GPU at the same time.
pub fn blocks_at_once(
    context: &Context,
    function: CUfunction,
    threads: u32,
    shared_bytes: u32,
) -> Result<u64, DeviceError> {
    let mut each = 0;
    let ask = context.driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;
    // SAFETY: the kernel is loaded, the pointer to a live local.
    let status = unsafe { ask(&raw mut each, function, threads as i32, shared_bytes as usize, 0) };
    context.check(status, || "asking how many blocks run at once".into())?;
    Ok(u64::from(u32::try_from(each).unwrap_or(0)) * u64::from(context.gpu.multiprocessors))
}

/// Queues a kernel.
///
/// # Safety
/// `arguments` must point to values of the kernel's parameter types, in order; addresses among them must
/// point to device memory as large as the kernel expects.
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
    let stream = stream.handle();
    // SAFETY: guaranteed by the caller, here and below; the handles are alive.
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

/// Pointers to copies of a kernel's arguments. The copies live as long as the array, because a cast extends
/// the lifetime of the temporary that it borrows, which a function call would not do.
macro_rules! arguments {
    ($($value:expr),* $(,)?) => { &mut [$(&mut { $value } as *mut _ as *mut std::ffi::c_void),*] };
}
pub(crate) use arguments;
