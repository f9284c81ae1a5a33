//! One matrix product as cuBLASLt sees it: its descriptors, the algorithms that the library suggests, the
//! call.

use std::{ffi::c_void, ptr, sync::Arc};

use crate::{
    device::DeviceError,
    ffi::{Blas, Context},
    launch::Stream,
    memory::DeviceMemory,
};

/// Constants of cublasLt.h and library_types.h.
pub mod number {
    pub const R_32F: i32 = 0;
    pub const R_16BF: i32 = 14;
    pub const COMPUTE_32F: i32 = 68;
    pub const COMPUTE_32F_FAST_16BF: i32 = 75;
    pub const COMPUTE_32F_FAST_TF32: i32 = 77;
    pub(super) const DESC_TRANSA: i32 = 3;
    pub(super) const DESC_TRANSB: i32 = 4;
    pub(super) const DESC_EPILOGUE: i32 = 7;
    pub(super) const DESC_BIAS_POINTER: i32 = 8;
    pub(super) const PREF_MAX_WORKSPACE_BYTES: i32 = 1;
    pub(super) const PREF_MIN_ALIGNMENT_BYTES: [i32; 4] = [5, 6, 7, 8];
    pub const EPILOGUE_DEFAULT: u32 = 1;
    pub const EPILOGUE_BIAS: u32 = 4;
}

/// Every operand is aligned to this many bytes.
const ALIGNMENT: u32 = 64;
/// The most algorithms that the library is asked for.
const MOST_SUGGESTED: usize = 8;

/// The library's own description of an algorithm: plain data, valid for one version of the library.
pub type Algorithm = [u64; 8];

#[derive(Clone, Copy)]
#[repr(C)]
struct Suggestion {
    algorithm: Algorithm,
    workspace_bytes: usize,
    state: i32,
    waves: f32,
    reserved: [i32; 4],
}

pub struct Library {
    blas: Blas,
    handle: *mut c_void,
    pub workspace: DeviceMemory,
}

// SAFETY: only one thread at a time uses the handle, that of its executor.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Drop for Library {
    fn drop(&mut self) {
        if self.workspace.own.context.enter_to_free() {
            // SAFETY: made by `cublasLtCreate`, destroyed once.
            unsafe { (self.blas.functions.cublasLtDestroy)(self.handle) };
        }
    }
}

impl Library {
    /// `None` if the library is not there.
    pub fn open(context: &Arc<Context>) -> Result<Option<Self>, DeviceError> {
        let Ok(blas) = Blas::open(context.driver.version / 1000) else { return Ok(None) };
        // NVIDIA's advice (cuBLAS guide, cublasSetWorkspace): 32 MiB for Hopper and later, 4 MiB before.
        let bytes = if context.gpu.capability.0 >= 9 { 32 << 20 } else { 4 << 20 };
        let workspace = DeviceMemory::new(context, bytes, "the working memory of products")?;
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is to a live local, and the context is the thread's.
        let made = unsafe { (blas.functions.cublasLtCreate)(&raw mut handle) };
        Ok((made == 0).then_some(Self { blas, handle, workspace }))
    }

    /// Major, minor and patch.
    pub fn version(&self) -> [i32; 3] {
        let (major, minor) = self.blas.version;
        [major, minor, self.blas.patch]
    }
}

/// C'[m, n] = left[m, k] right[k, n] by columns, and what else an algorithm depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub transposed: [bool; 2],
    /// The operands' type; results and the bias are f32.
    pub operands: i32,
    pub compute: i32,
    pub epilogue: u32,
}

/// Where a product's matrices are.
#[derive(Clone, Copy)]
pub struct Addresses {
    pub left: u64,
    pub right: u64,
    pub bias: Option<u64>,
    pub to: u64,
}

pub struct Matmul {
    library: Arc<Library>,
    description: *mut c_void,
    layouts: [*mut c_void; 3],
    pub key: Key,
    pub at: Addresses,
}

// SAFETY: as for the library.
unsafe impl Send for Matmul {}

impl Matmul {
    /// `None` if the library cannot describe the product.
    pub fn new(library: &Arc<Library>, key: Key, at: Addresses) -> Option<Self> {
        let f = &library.blas.functions;
        let none = ptr::null_mut();
        let mut own = Self { library: Arc::clone(library), description: none, layouts: [none; 3], key, at };
        // SAFETY: the pointers are to live locals and fields, here and below; `drop` destroys what is
        // created.
        let made =
            unsafe { (f.cublasLtMatmulDescCreate)(&raw mut own.description, key.compute, number::R_32F) };
        if made != 0 {
            return None;
        }
        own.set(number::DESC_TRANSA, i32::from(key.transposed[0]))?;
        own.set(number::DESC_TRANSB, i32::from(key.transposed[1]))?;
        own.set(number::DESC_EPILOGUE, key.epilogue)?;
        if let Some(bias) = at.bias {
            own.set(number::DESC_BIAS_POINTER, bias)?;
        }
        let turned = |rows, columns, turn| if turn { (columns, rows) } else { (rows, columns) };
        let shapes = [
            (turned(key.m, key.k, key.transposed[0]), key.operands),
            (turned(key.k, key.n, key.transposed[1]), key.operands),
            ((key.m, key.n), number::R_32F),
        ];
        for (layout, ((rows, columns), of)) in own.layouts.iter_mut().zip(shapes) {
            let ld = i64::try_from(rows).ok()?;
            // SAFETY: see above. The matrix is contiguous, so the distance of columns is their length.
            let made = unsafe { (f.cublasLtMatrixLayoutCreate)(layout, of, rows, columns, ld) };
            if made != 0 {
                return None;
            }
        }
        Some(own)
    }

    fn set<T>(&self, attribute: i32, value: T) -> Option<()> {
        let set = self.library.blas.functions.cublasLtMatmulDescSetAttribute;
        // SAFETY: the value is alive and has the size given.
        let status =
            unsafe { set(self.description, attribute, ptr::from_ref(&value).cast(), size_of::<T>()) };
        (status == 0).then_some(())
    }

    /// The algorithms that the library has for it, the one that it expects to be fastest first.
    pub fn suggestions(&self) -> Vec<Algorithm> {
        let f = &self.library.blas.functions;
        let mut wish = ptr::null_mut();
        // SAFETY: pointers to live locals, here and below.
        if unsafe { (f.cublasLtMatmulPreferenceCreate)(&raw mut wish) } != 0 {
            return Vec::new();
        }
        let set = |attribute, value: *const c_void, bytes| {
            // SAFETY: the value is alive and has the size given.
            unsafe { (f.cublasLtMatmulPreferenceSetAttribute)(wish, attribute, value, bytes) };
        };
        let workspace = self.library.workspace.bytes as u64;
        set(number::PREF_MAX_WORKSPACE_BYTES, ptr::from_ref(&workspace).cast(), size_of::<u64>());
        for attribute in number::PREF_MIN_ALIGNMENT_BYTES {
            set(attribute, ptr::from_ref(&ALIGNMENT).cast(), size_of::<u32>());
        }
        let none =
            Suggestion { algorithm: [0; 8], workspace_bytes: 0, state: 0, waves: 0.0, reserved: [0; 4] };
        let (mut found, mut count) = ([none; MOST_SUGGESTED], 0);
        let [left, right, to] = self.layouts;
        // SAFETY: all descriptors are alive; there is room for as many results as are requested.
        let status = unsafe {
            (f.cublasLtMatmulAlgoGetHeuristic)(
                self.library.handle,
                self.description,
                left,
                right,
                to,
                to,
                wish,
                MOST_SUGGESTED as i32,
                found.as_mut_ptr().cast(),
                &raw mut count,
            )
        };
        // SAFETY: made above, destroyed once.
        unsafe { (f.cublasLtMatmulPreferenceDestroy)(wish) };
        let count = if status == 0 { usize::try_from(count).unwrap_or(0) } else { 0 };
        found.iter().take(count).filter(|found| found.state == 0).map(|found| found.algorithm).collect()
    }

    /// Queues the product; the error is the library's status.
    pub fn queue(&self, algorithm: &Algorithm, stream: &Stream) -> Result<(), i32> {
        let (one, zero) = (1.0f32, 0.0f32);
        let [left, right, to] = self.layouts;
        let (at, workspace) = (self.at, &self.library.workspace);
        // SAFETY: the descriptors are alive and describe matrices within the arena; the two factors are read
        // before this returns.
        let status = unsafe {
            (self.library.blas.functions.cublasLtMatmul)(
                self.library.handle,
                self.description,
                ptr::from_ref(&one).cast(),
                at.left as *const c_void,
                left,
                at.right as *const c_void,
                right,
                ptr::from_ref(&zero).cast(),
                at.to as *const c_void,
                to,
                at.to as *mut c_void,
                to,
                algorithm.as_ptr().cast(),
                workspace.at as *mut c_void,
                workspace.bytes,
                stream.handle().cast(),
            )
        };
        if status == 0 { Ok(()) } else { Err(status) }
    }
}

impl Drop for Matmul {
    fn drop(&mut self) {
        let f = &self.library.blas.functions;
        for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
            // SAFETY: made by `new`, destroyed once.
            unsafe { (f.cublasLtMatrixLayoutDestroy)(layout) };
        }
        if !self.description.is_null() {
            // SAFETY: made by `new`, destroyed once.
            unsafe { (f.cublasLtMatmulDescDestroy)(self.description) };
        }
    }
}

/// Whether a status of [`Matmul::queue`] says that the library does not do this product by this algorithm:
/// nothing ran, and another algorithm may work.
pub fn is_refused(status: i32) -> bool {
    matches!(status, 7 | 8 | 15)
}

/// The error for a status of [`Matmul::queue`].
pub fn failed(context: &Context, status: i32) -> DeviceError {
    let (name, text) = words(status);
    DeviceError::Cuda {
        device: context.name.clone(),
        doing: "multiplying matrices by cuBLASLt".into(),
        name: name.to_owned(),
        text: text.to_owned(),
        way_out: "look at `nvidia-smi` and `dmesg`, or run on the CPU by `devices.num_gpus = 0`",
    }
}

/// The name and meaning of cuBLAS's statuses (cublas_api.h).
fn words(status: i32) -> (&'static str, &'static str) {
    match status {
        1 => ("CUBLAS_STATUS_NOT_INITIALIZED", "the library is not initialized"),
        3 => ("CUBLAS_STATUS_ALLOC_FAILED", "out of memory"),
        7 => ("CUBLAS_STATUS_INVALID_VALUE", "an argument is wrong"),
        8 => ("CUBLAS_STATUS_ARCH_MISMATCH", "the GPU has no such feature"),
        11 => ("CUBLAS_STATUS_MAPPING_ERROR", "memory cannot be reached"),
        13 => ("CUBLAS_STATUS_EXECUTION_FAILED", "the kernel failed"),
        14 => ("CUBLAS_STATUS_INTERNAL_ERROR", "the library failed within"),
        15 => ("CUBLAS_STATUS_NOT_SUPPORTED", "not supported"),
        _ => ("an unknown status of cuBLAS", "see cublas_api.h"),
    }
}
