//! Large matrix products by cuBLASLt: planned once, with the epilogue fused where the library can.
//!
//! This project's matrices are row-major and the library's column-major, so it computes C' = B' A', where a
//! prime means the same memory read by columns. A bias uses the library's epilogue. Activations use a kernel
//! of this project, because the library has no tanh and no sigmoid, its GELU is the tanh approximation, its
//! backward epilogues need masks in a format of their own, and its ReLU turns NaN into 0 (NVIDIA's forum,
//! t/329783, "Incorrect result of cublasLtMatmul with CUBLASLT_EPILOGUE_RELU when input is NaN"). PyTorch,
//! the CPU and our kernels keep NaN, so that a diverged run is noticed.

use std::{collections::HashMap, ffi::c_void, ptr, sync::Arc};

use crate::{
    device::{
        DeviceError,
        cuda::{
            ffi::{Blas, Context},
            launch::{Shape, Stream, is_large_product, shape},
            memory::DeviceMemory,
        },
    },
    op::{FLAG_BF16, FLAG_TF32, Kind, NONE, Record},
};

/// Constants of cublasLt.h and library_types.h.
mod number {
    pub const R_32F: i32 = 0;
    pub const COMPUTE_32F: i32 = 68;
    pub const COMPUTE_32F_FAST_16BF: i32 = 75;
    pub const COMPUTE_32F_FAST_TF32: i32 = 77;
    pub const DESC_TRANSA: i32 = 3;
    pub const DESC_TRANSB: i32 = 4;
    pub const DESC_EPILOGUE: i32 = 7;
    pub const DESC_BIAS_POINTER: i32 = 8;
    pub const PREF_MAX_WORKSPACE_BYTES: i32 = 1;
    pub const PREF_MIN_ALIGNMENT_BYTES: [i32; 4] = [5, 6, 7, 8];
    pub const EPILOGUE_DEFAULT: u32 = 1;
    pub const EPILOGUE_BIAS: u32 = 4;
}

/// Every buffer of the arena is aligned to this many bytes.
const ALIGNMENT: u32 = 64;

#[derive(Clone, Copy)]
#[repr(C)]
struct Heuristic {
    algorithm: [u64; 8],
    workspace_bytes: usize,
    state: i32,
    waves: f32,
    reserved: [i32; 4],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    m: u64,
    n: u64,
    k: u64,
    transposed: [bool; 2],
    compute: i32,
    epilogue: u32,
}

/// The library, opened when the first product needs it, and the plans made so far.
pub struct Products {
    context: Arc<Context>,
    /// `None`: not tried yet; `Some(None)`: not available.
    library: Option<Option<Arc<Library>>>,
    arena: u64,
    found: HashMap<Key, Option<[u64; 8]>>,
}

struct Library {
    blas: Blas,
    handle: *mut c_void,
    workspace: DeviceMemory,
}

// SAFETY: only one thread at a time uses the handle, that of its executor.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Drop for Library {
    fn drop(&mut self) {
        if self.workspace.may_be_freed() {
            // SAFETY: made by `cublasLtCreate`, destroyed once.
            unsafe { (self.blas.functions.cublasLtDestroy)(self.handle) };
        }
    }
}

impl Library {
    fn open(context: &Arc<Context>) -> Result<Option<Self>, DeviceError> {
        let Ok(blas) = Blas::open(context.driver.version / 1000) else { return Ok(None) };
        // NVIDIA's advice (cuBLAS guide, cublasSetWorkspace): 32 MiB for Hopper and later, 4 MiB before.
        let bytes = if context.gpu.capability.0 >= 9 { 32 << 20 } else { 4 << 20 };
        let workspace = DeviceMemory::new(context, bytes, "the working memory of products")?;
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is to a live local, and the context is the thread's.
        let made = unsafe { (blas.functions.cublasLtCreate)(&raw mut handle) };
        Ok((made == 0).then_some(Self { blas, handle, workspace }))
    }
}

impl Products {
    /// Without any plan so far; `arena` is the base address of all offsets.
    pub fn new(context: &Arc<Context>, arena: u64) -> Self {
        Self { context: Arc::clone(context), library: None, arena, found: HashMap::new() }
    }

    pub fn bytes(&self) -> usize {
        self.library.iter().flatten().map(|library| library.workspace.bytes).sum()
    }

    pub fn any(&self) -> bool {
        self.found.values().any(Option::is_some)
    }

    /// Plans an instruction and runs it once on the memory at its offsets. The first call of a product loads
    /// code and may allocate, which must not happen during a capture or a timed step. Returns `None` if a
    /// kernel of this project should do the product.
    pub fn plan(&mut self, op: &Record, stream: &Stream) -> Result<Option<Product>, DeviceError> {
        if !is_large_product(op) {
            return Ok(None);
        }
        let Some(form) = Form::new(op, self.context.gpu.multiprocessors) else { return Ok(None) };
        let library = match &self.library {
            Some(library) => library,
            None => self.library.insert(Library::open(&self.context)?.map(Arc::new)),
        };
        let Some(library) = library else { return Ok(None) };
        let compute = match op.flags & (FLAG_TF32 | FLAG_BF16) {
            0 => number::COMPUTE_32F,
            FLAG_TF32 => number::COMPUTE_32F_FAST_TF32,
            _ => number::COMPUTE_32F_FAST_16BF,
        };
        let at = |place: u64| self.arena + 4 * place;
        let bias = form.bias.map(at);
        let Some(plan) = Plan::new(library, &form, compute, bias) else { return Ok(None) };
        let Form { m, n, k, transposed, epilogue, .. } = form;
        let key = Key { m, n, k, transposed, compute, epilogue };
        let algorithm = *self.found.entry(key).or_insert_with(|| plan.search());
        let Some(algorithm) = algorithm else { return Ok(None) };
        let (left, right, to) = (at(form.left), at(form.right), at(form.to));
        let library = Arc::clone(library);
        let product = Product { library, plan, algorithm, left, right, to, follow: form.follow };
        product.queue(&self.context, stream)?;
        Ok(Some(product))
    }
}

/// A product as the library sees it: C'[m, n] = left[m, k] right[k, n] by columns.
struct Form {
    m: u64,
    n: u64,
    k: u64,
    transposed: [bool; 2],
    left: u64,
    right: u64,
    to: u64,
    epilogue: u32,
    bias: Option<u64>,
    follow: Option<(Record, Shape)>,
}

impl Form {
    fn new(op: &Record, multiprocessors: u32) -> Option<Self> {
        let size = |n: i32| u64::try_from(n).unwrap_or(0);
        let (rows, inputs, outputs) = (size(op.rows), size(op.inputs), size(op.outputs));
        let follow = |kind: Kind, at: [u64; 2], n: i32| {
            let mut next = Record { activation: op.activation, n, ..Record::new(kind) };
            next.at[..2].copy_from_slice(&at);
            (next, shape(&next, multiprocessors))
        };
        let plain = |m, n, k, transposed, left, right, to| Self {
            m,
            n,
            k,
            transposed,
            left,
            right,
            to,
            epilogue: number::EPILOGUE_DEFAULT,
            bias: None,
            follow: None,
        };
        match op.kind() {
            Kind::Linear => {
                let [x, weight, bias, pre, y, ..] = op.at;
                let to = if pre == NONE { y } else { pre };
                let mut form = plain(outputs, rows, inputs, [false, false], weight, x, to);
                form.bias = Some(bias).filter(|bias| *bias != NONE);
                if form.bias.is_some() {
                    form.epilogue = number::EPILOGUE_BIAS;
                }
                if op.activation > 0 {
                    form.follow = Some(follow(Kind::Activate, [to, y], op.rows * op.outputs));
                }
                Some(form)
            }
            Kind::InputGradient => {
                let [dy, weight, dx, saved, ..] = op.at;
                let mut form = plain(inputs, rows, outputs, [true, false], weight, dy, dx);
                if saved != NONE {
                    form.follow = Some(follow(Kind::ActivateBackward, [saved, dx], op.rows * op.inputs));
                }
                Some(form)
            }
            Kind::WeightGradient => {
                let [x, dy, to, ..] = op.at;
                Some(plain(outputs, inputs, rows, [false, true], dy, x, to))
            }
            _ => None,
        }
    }
}

struct Plan {
    library: Arc<Library>,
    description: *mut c_void,
    layouts: [*mut c_void; 3],
}

// SAFETY: as for the library.
unsafe impl Send for Plan {}

impl Plan {
    fn new(library: &Arc<Library>, form: &Form, compute: i32, bias: Option<u64>) -> Option<Self> {
        let f = &library.blas.functions;
        let none = ptr::null_mut();
        let mut plan = Self { library: Arc::clone(library), description: none, layouts: [none; 3] };
        // SAFETY: the pointers are to live locals and fields, here and below; `drop` destroys what is
        // created.
        let made = unsafe { (f.cublasLtMatmulDescCreate)(&raw mut plan.description, compute, number::R_32F) };
        if made != 0 {
            return None;
        }
        plan.set(number::DESC_TRANSA, i32::from(form.transposed[0]))?;
        plan.set(number::DESC_TRANSB, i32::from(form.transposed[1]))?;
        plan.set(number::DESC_EPILOGUE, form.epilogue)?;
        if let Some(bias) = bias {
            plan.set(number::DESC_BIAS_POINTER, bias)?;
        }
        let turned = |rows, columns, turn| if turn { (columns, rows) } else { (rows, columns) };
        let shapes = [
            turned(form.m, form.k, form.transposed[0]),
            turned(form.k, form.n, form.transposed[1]),
            (form.m, form.n),
        ];
        for (layout, (rows, columns)) in plan.layouts.iter_mut().zip(shapes) {
            let ld = i64::try_from(rows).ok()?;
            // SAFETY: see above. The matrix is contiguous, so the distance of columns is their length.
            let made = unsafe { (f.cublasLtMatrixLayoutCreate)(layout, number::R_32F, rows, columns, ld) };
            if made != 0 {
                return None;
            }
        }
        Some(plan)
    }

    fn set<T>(&self, attribute: i32, value: T) -> Option<()> {
        let set = self.library.blas.functions.cublasLtMatmulDescSetAttribute;
        // SAFETY: the value is alive and has the size given.
        let status =
            unsafe { set(self.description, attribute, ptr::from_ref(&value).cast(), size_of::<T>()) };
        (status == 0).then_some(())
    }

    /// The algorithm that the library expects to be fastest; `None` if it has none.
    fn search(&self) -> Option<[u64; 8]> {
        let f = &self.library.blas.functions;
        let mut wish = ptr::null_mut();
        // SAFETY: pointers to live locals, here and below.
        if unsafe { (f.cublasLtMatmulPreferenceCreate)(&raw mut wish) } != 0 {
            return None;
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
        let mut best =
            Heuristic { algorithm: [0; 8], workspace_bytes: 0, state: 0, waves: 0.0, reserved: [0; 4] };
        let mut count = 0;
        let [left, right, to] = self.layouts;
        // SAFETY: all descriptors are alive; there is room for the one result requested.
        let status = unsafe {
            (f.cublasLtMatmulAlgoGetHeuristic)(
                self.library.handle,
                self.description,
                left,
                right,
                to,
                to,
                wish,
                1,
                ptr::from_mut(&mut best).cast(),
                &raw mut count,
            )
        };
        // SAFETY: made above, destroyed once.
        unsafe { (f.cublasLtMatmulPreferenceDestroy)(wish) };
        (status == 0 && count > 0 && best.state == 0).then_some(best.algorithm)
    }
}

impl Drop for Plan {
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

pub struct Product {
    library: Arc<Library>,
    plan: Plan,
    algorithm: [u64; 8],
    left: u64,
    right: u64,
    to: u64,
    /// A kernel of this project that runs after the product.
    pub follow: Option<(Record, Shape)>,
}

impl Product {
    /// Queues the product, without the kernel that follows.
    pub fn queue(&self, context: &Context, stream: &Stream) -> Result<(), DeviceError> {
        let (one, zero) = (1.0f32, 0.0f32);
        let [left, right, to] = self.plan.layouts;
        let workspace = &self.library.workspace;
        // SAFETY: the descriptors are alive and describe matrices within the arena; the two factors are read
        // before this returns.
        let status = unsafe {
            (self.library.blas.functions.cublasLtMatmul)(
                self.library.handle,
                self.plan.description,
                ptr::from_ref(&one).cast(),
                self.left as *const c_void,
                left,
                self.right as *const c_void,
                right,
                ptr::from_ref(&zero).cast(),
                self.to as *const c_void,
                to,
                self.to as *mut c_void,
                to,
                self.algorithm.as_ptr().cast(),
                workspace.at as *mut c_void,
                workspace.bytes,
                stream.handle.cast(),
            )
        };
        if status == 0 {
            return Ok(());
        }
        let (name, text) = words(status);
        Err(DeviceError::Cuda {
            device: context.name.clone(),
            doing: "multiplying matrices by cuBLASLt".into(),
            name: name.to_owned(),
            text: text.to_owned(),
            way_out: "look at `nvidia-smi` and `dmesg`, or run on the CPU by `devices.num_gpus = 0`",
        })
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
