//! The kernels, compiled for one GPU or taken from the disk cache, and loaded into its context.

use std::{
    cell::OnceCell,
    collections::BTreeMap,
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

/// Modules, each compiled and loaded when its first kernel is needed: the interpreters take as long to compile as
/// all other kernels together, and most runs need one of the three.
pub struct Kernels {
    context: Arc<Context>,
    ops: OnceCell<Ops>,
    interpret: OnceCell<Alone>,
    interpret_grid: OnceCell<Alone>,
    peer_sum: OnceCell<Alone>,
}

/// The kernels that are launched one by one.
pub struct Ops {
    module: Module,
    /// Indexed by kind of instruction.
    of_kind: Vec<CUfunction>,
    /// The kernel that ends a step of single launches.
    pub advance: CUfunction,
    pub digest: CUfunction,
    /// Copies numbers in bfloat16.
    pub copy_bf16: CUfunction,
}

/// A kernel with a module of its own.
struct Alone {
    _module: Module,
    function: CUfunction,
}

/// Names of kernels with modules of their own.
const ALONE: [&str; 3] = ["interpret", "interpret_grid", "peer_sum"];

// SAFETY: the handles are tokens that the driver takes from any thread.
unsafe impl Send for Kernels {}

/// Machine code loaded into the context; unloaded when dropped.
pub struct Module {
    context: Arc<Context>,
    handle: CUmodule,
}

impl Kernels {
    pub fn new(context: &Arc<Context>) -> Self {
        let (ops, interpret, interpret_grid, peer_sum) = Default::default();
        Self { context: Arc::clone(context), ops, interpret, interpret_grid, peer_sum }
    }

    pub fn ops(&self) -> Result<&Ops, DeviceError> {
        loaded(&self.ops, || {
            let module = Module::of_kernels(&self.context, "op", |name| !ALONE.contains(&name))?;
            Ok(Ops {
                of_kind: Kind::ALL
                    .iter()
                    .map(|kind| module.function(kind.kernel()))
                    .collect::<Result<_, _>>()?,
                advance: module.function("advance")?,
                digest: module.function("digest")?,
                copy_bf16: module.function("copy_bf16")?,
                module,
            })
        })
    }

    pub fn interpret(&self) -> Result<CUfunction, DeviceError> {
        self.alone(&self.interpret, "interpret")
    }

    pub fn interpret_grid(&self) -> Result<CUfunction, DeviceError> {
        self.alone(&self.interpret_grid, "interpret_grid")
    }

    /// The all-reduce over GPUs that can access each other's memory.
    pub fn peer_sum(&self) -> Result<CUfunction, DeviceError> {
        self.alone(&self.peer_sum, "peer_sum")
    }

    fn alone(&self, cell: &OnceCell<Alone>, name: &'static str) -> Result<CUfunction, DeviceError> {
        let kernel = loaded(cell, || {
            let module = Module::of_kernels(&self.context, name, |other| other == name)?;
            Ok(Alone { function: module.function(name)?, _module: module })
        });
        Ok(kernel?.function)
    }

    /// How many blocks of a kernel run on the GPU at the same time.
    pub fn at_once(&self, kernel: CUfunction, threads: u32) -> Result<u64, DeviceError> {
        let mut each = 0;
        let context = &self.context;
        let ask = context.driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;
        // SAFETY: the kernel is loaded, the pointer to a live local.
        let status = unsafe { ask(&raw mut each, kernel, threads as i32, 0, 0) };
        context.check(status, || "asking how many blocks run at once".into())?;
        Ok(u64::from(u32::try_from(each).unwrap_or(0)) * u64::from(context.gpu.multiprocessors))
    }
}

impl Ops {
    /// The kernel of a kind of instruction.
    pub fn get(&self, kind: Kind) -> CUfunction {
        self.of_kind[kind as usize]
    }

    pub fn function(&self, name: &str) -> Result<CUfunction, DeviceError> {
        self.module.function(name)
    }
}

/// What the cell holds, made now if it is empty.
fn loaded<T>(cell: &OnceCell<T>, make: impl FnOnce() -> Result<T, DeviceError>) -> Result<&T, DeviceError> {
    match cell.get() {
        Some(known) => Ok(known),
        None => make().map(|made| cell.get_or_init(|| made)),
    }
}

impl Module {
    /// Loads kernels from a separate source, which may call the functions of all kernels. The code comes from
    /// the cache or the compiler.
    pub fn compiled(context: &Arc<Context>, text: &str) -> Result<Self, DeviceError> {
        let source = sources::with_kernels(|_| false) + text;
        let code = cached(context, "step.cu", &source);
        let unusable = |why| DeviceError::Unusable { device: context.name.clone(), why };
        Self::load(context, &code.map_err(unusable)?.code)
    }

    /// Loads kernels of this project: those whose names are kept, known by `part`.
    fn of_kernels(
        context: &Arc<Context>,
        part: &'static str,
        keep: impl Fn(&str) -> bool,
    ) -> Result<Self, DeviceError> {
        let code = code(context, part, || sources::with_kernels(keep));
        Self::load(context, &code.map_err(|why| DeviceError::Unusable { device: context.name.clone(), why })?)
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

/// Machine code that this process has used before, by architecture and part.
static CODE: Mutex<BTreeMap<(i32, &str), Vec<u8>>> = Mutex::new(BTreeMap::new());

/// Why the next process has to compile again what this one has compiled.
static CACHE_TROUBLE: Mutex<Option<String>> = Mutex::new(None);

/// The reason, if this process found that every process has to compile the kernels, which takes seconds.
/// Returned only once.
pub fn cache_trouble() -> Option<String> {
    CACHE_TROUBLE.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The machine code of a part of the kernels: from this process, the disk cache or the compiler.
fn code(context: &Context, part: &'static str, source: impl FnOnce() -> String) -> Result<Vec<u8>, String> {
    let key = (context.gpu.architecture(), part);
    let mut known = CODE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(code) = known.get(&key) {
        return Ok(code.clone());
    }
    let Entry { code, trouble } = cached(context, "kernels.cu", &source())?;
    if trouble.is_some() {
        *CACHE_TROUBLE.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
    known.insert(key, code.clone());
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
