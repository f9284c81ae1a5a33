//! The kernels, compiled for one GPU or taken from the disk cache, and loaded into its context.

use std::{
    ffi::CString,
    ptr,
    sync::{Arc, Mutex, PoisonError},
};

use cudarc::driver::sys::{CUfunction, CUmodule};

use crate::{
    device::{
        DeviceError,
        cuda::ffi::{
            Compiler, Context,
            cache::{self, Entry},
        },
    },
    op::Kind,
};

#[path = "../../../../../../kernels/sources.rs"]
mod sources;

pub struct Kernels {
    module: Module,
    /// Indexed by kind of instruction.
    of_kind: Vec<CUfunction>,
    /// The kernel that ends a step of single launches.
    pub advance: CUfunction,
    pub interpret: CUfunction,
    pub interpret_grid: CUfunction,
    pub digest: CUfunction,
    /// Copies numbers in bfloat16.
    pub copy_bf16: CUfunction,
    /// The all-reduce over GPUs that can access each other's memory.
    pub peer_sum: CUfunction,
}

// SAFETY: the handles are tokens that the driver takes from any thread.
unsafe impl Send for Kernels {}

/// Machine code loaded into the context; unloaded when dropped.
pub struct Module {
    context: Arc<Context>,
    handle: CUmodule,
}

impl Kernels {
    pub fn load(context: &Arc<Context>) -> Result<Self, DeviceError> {
        let unusable = |why: String| DeviceError::Unusable { device: context.name.clone(), why };
        let module = Module::load(context, &code(context).map_err(unusable)?)?;
        Ok(Self {
            of_kind: Kind::ALL.iter().map(|kind| module.function(kind.kernel())).collect::<Result<_, _>>()?,
            advance: module.function("advance")?,
            interpret: module.function("interpret")?,
            interpret_grid: module.function("interpret_grid")?,
            digest: module.function("digest")?,
            copy_bf16: module.function("copy_bf16")?,
            peer_sum: module.function("peer_sum")?,
            module,
        })
    }

    /// The kernel of a kind of instruction.
    pub fn get(&self, kind: Kind) -> CUfunction {
        self.of_kind[kind as usize]
    }

    /// How many blocks of a kernel run on the GPU at the same time.
    pub fn at_once(&self, kernel: CUfunction, threads: u32) -> Result<u64, DeviceError> {
        let mut each = 0;
        let context = &self.module.context;
        let ask = context.driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;
        // SAFETY: the kernel is loaded, the pointer to a live local.
        let status = unsafe { ask(&raw mut each, kernel, threads as i32, 0, 0) };
        context.check(status, || "asking how many blocks run at once".into())?;
        Ok(u64::from(u32::try_from(each).unwrap_or(0)) * u64::from(context.gpu.multiprocessors))
    }

    pub fn function(&self, name: &str) -> Result<CUfunction, DeviceError> {
        self.module.function(name)
    }
}

impl Module {
    /// Loads kernels from a separate source, which may call the functions of all kernels. The code comes from
    /// the cache or the compiler.
    pub fn compiled(context: &Arc<Context>, text: &str) -> Result<Self, DeviceError> {
        let source = sources::functions() + text;
        let code = cached(context, "step.cu", &source);
        let unusable = |why| DeviceError::Unusable { device: context.name.clone(), why };
        Self::load(context, &code.map_err(unusable)?.code)
    }

    fn load(context: &Arc<Context>, code: &[u8]) -> Result<Self, DeviceError> {
        let mut module = Self { context: Arc::clone(context), handle: ptr::null_mut() };
        // SAFETY: the code is a complete image made by the compiler.
        let status =
            unsafe { (context.driver.cuModuleLoadData)(&raw mut module.handle, code.as_ptr().cast()) };
        context.check(status, || "loading its kernels".into())?;
        Ok(module)
    }

    pub fn function(&self, name: &str) -> Result<CUfunction, DeviceError> {
        let text = CString::new(name).unwrap_or_default();
        let mut function = ptr::null_mut();
        let get = self.context.driver.cuModuleGetFunction;
        // SAFETY: the module is loaded, the name alive.
        let status = unsafe { get(&raw mut function, self.handle, text.as_ptr()) };
        self.context.check(status, || format!("looking up its kernel `{name}`"))?;
        Ok(function)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if !self.handle.is_null() && self.context.enter_to_free() {
            // SAFETY: loaded by `load`, unloaded once.
            unsafe { (self.context.driver.cuModuleUnload)(self.handle) };
        }
    }
}

/// Machine code that this process has used before, and its architecture.
static CODE: Mutex<Option<(i32, Vec<u8>)>> = Mutex::new(None);

/// Why the next process has to compile again what this one has compiled.
static CACHE_TROUBLE: Mutex<Option<String>> = Mutex::new(None);

/// The reason, if this process found that every process has to compile the kernels, which takes seconds.
/// Returned only once.
pub fn cache_trouble() -> Option<String> {
    CACHE_TROUBLE.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The machine code of all kernels: from this process, the disk cache or the compiler.
fn code(context: &Context) -> Result<Vec<u8>, String> {
    let architecture = context.gpu.architecture();
    let mut known = CODE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, code)) = known.as_ref().filter(|(own, _)| *own == architecture) {
        return Ok(code.clone());
    }
    let Entry { code, trouble } = cached(context, "kernels.cu", &sources::joined())?;
    *CACHE_TROUBLE.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    *known = Some((architecture, code.clone()));
    Ok(code)
}

/// The machine code of a source, from the cache on disk or from the compiler.
fn cached(context: &Context, name: &str, source: &str) -> Result<Entry, String> {
    let architecture = context.gpu.architecture();
    let compiler = Compiler::open(context.driver.version / 1000, architecture)?;
    let options = [format!("--gpu-architecture=sm_{architecture}"), "--std=c++17".to_owned()];
    let version = format!("{}.{}", compiler.version.0, compiler.version.1);
    let parts = [source.as_bytes(), options[0].as_bytes(), options[1].as_bytes(), version.as_bytes()];
    cache::get(cache::folder().as_deref(), &parts, || compiler.cubin(name, source, &options))
}
