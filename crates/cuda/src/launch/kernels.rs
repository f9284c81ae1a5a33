//! The kernels, compiled for one GPU or taken from the disk cache, and loaded into its context.

use std::{
    ffi::CString,
    ptr,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use cudarc::driver::sys::{CUfunction, CUmodule};

use crate::{
    device::DeviceError,
    ffi::{
        Compiler, Context, Driver,
        cache::{self, Entry},
    },
    op::Kind,
};

use super::kernel::allow_shared;

#[path = "../../../../kernels/sources.rs"]
mod sources;

/// The modules of a context, which all its trials use. Each is compiled and loaded when its first kernel is needed: the
/// interpreters take as long to compile as all other kernels together, and most runs need one of the three.
#[derive(Default)]
pub struct Modules {
    ops: Once<Ops>,
    interpret: Once<Alone>,
    interpret_grid: Once<Alone>,
    peer_sum: Once<Alone>,
    steps: Mutex<Vec<(String, Arc<StepModule>)>>,
}

/// The module of a compiled step.
pub struct StepModule {
    module: Once<Module>,
    /// Results of its proofs, for all trials that have it: whether on the smaller batch, and why it is not used, if so.
    pub proofs: Mutex<Vec<(bool, Option<String>)>>,
}

/// The most modules of compiled steps that are kept beside those in use.
const MOST_STEPS: usize = 64;

/// A value that is made at its first use. Those who need the same value wait until it is made; nobody else does.
pub struct Once<T> {
    value: OnceLock<T>,
    making: Mutex<()>,
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self { value: OnceLock::new(), making: Mutex::default() }
    }
}

impl<T> Once<T> {
    fn get<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(known) = self.value.get() {
            return Ok(known);
        }
        let _one = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        match self.value.get() {
            Some(known) => Ok(known),
            None => make().map(|made| self.value.get_or_init(|| made)),
        }
    }
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

/// Names of kernels with modules of their own.
const ALONE: [&str; 3] = ["interpret", "interpret_grid", "peer_sum"];

/// A kernel with a module of its own.
struct Alone {
    module: Module,
    function: CUfunction,
}

/// Machine code loaded into a context, which unloads it.
pub struct Module {
    handle: CUmodule,
}

// SAFETY: the handles are tokens that the driver takes from any thread, here and below.
unsafe impl Send for Module {}
// SAFETY: see above.
unsafe impl Sync for Module {}
// SAFETY: see above.
unsafe impl Send for Ops {}
// SAFETY: see above.
unsafe impl Sync for Ops {}
// SAFETY: see above.
unsafe impl Send for Alone {}
// SAFETY: see above.
unsafe impl Sync for Alone {}

impl Modules {
    /// The module for a source, which may have to be loaded. The oldest that no trial has makes room for it.
    fn step(&self, driver: &Driver, text: String) -> Arc<StepModule> {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = steps.iter().find(|(known, _)| *known == text) {
            return Arc::clone(known);
        }
        if steps.len() >= MOST_STEPS
            && let Some(unused) = steps.iter().position(|(_, own)| Arc::strong_count(own) == 1)
        {
            let (_, step) = steps.remove(unused);
            // SAFETY: loaded by `Module::load`, unloaded once; no trial has it.
            step.module.value.get().map(|module| unsafe { (driver.cuModuleUnload)(module.handle) });
        }
        let step = Arc::new(StepModule { module: Once::default(), proofs: Mutex::default() });
        steps.push((text, Arc::clone(&step)));
        step
    }

    /// Unloads all; the context must be current, and nobody may use them any more.
    pub fn unload(&self, driver: &Driver) {
        let alone = [&self.interpret, &self.interpret_grid, &self.peer_sum];
        let alone = alone.into_iter().filter_map(|cell| Some(cell.value.get()?.module.handle));
        let steps = std::mem::take(&mut *self.steps.lock().unwrap_or_else(PoisonError::into_inner));
        let steps = steps.iter().filter_map(|(_, step)| Some(step.module.value.get()?.handle));
        for handle in self.ops.value.get().map(|ops| ops.module.handle).into_iter().chain(alone).chain(steps)
        {
            // SAFETY: loaded by `Module::load`, unloaded once.
            unsafe { (driver.cuModuleUnload)(handle) };
        }
    }
}

/// The kernels of a context.
impl Context {
    pub fn ops(&self) -> Result<&Ops, DeviceError> {
        self.primary.modules.ops.get(|| {
            let module = Module::of_kernels(self, "op", |name| !ALONE.contains(&name))?;
            let function = |name| module.function(self, name);
            Ok(Ops {
                of_kind: Kind::ALL.iter().map(|kind| function(kind.kernel())).collect::<Result<_, _>>()?,
                advance: function("advance")?,
                digest: function("digest")?,
                copy_bf16: function("copy_bf16")?,
                module,
            })
        })
    }

    /// A kernel that no instruction has.
    pub fn function(&self, name: &str) -> Result<CUfunction, DeviceError> {
        self.ops()?.module.function(self, name)
    }

    /// The interpreter of one block, which may use all shared memory: the limit is the kernel's, which jobs of different
    /// sizes share.
    pub fn interpret(&self) -> Result<CUfunction, DeviceError> {
        self.alone(&self.primary.modules.interpret, "interpret", |function| {
            allow_shared(self, function, self.gpu.job_shared_bytes(), "interpret")
        })
    }

    pub fn interpret_grid(&self) -> Result<CUfunction, DeviceError> {
        self.alone(&self.primary.modules.interpret_grid, "interpret_grid", |_| Ok(()))
    }

    /// The all-reduce over GPUs that can access each other's memory.
    pub fn peer_sum(&self) -> Result<CUfunction, DeviceError> {
        self.alone(&self.primary.modules.peer_sum, "peer_sum", |_| Ok(()))
    }

    fn alone(
        &self,
        cell: &Once<Alone>,
        name: &'static str,
        prepare: impl FnOnce(CUfunction) -> Result<(), DeviceError>,
    ) -> Result<CUfunction, DeviceError> {
        let own = cell.get(|| {
            let module = Module::of_kernels(self, name, |other| other == name)?;
            let function = module.function(self, name)?;
            prepare(function)?;
            Ok(Alone { module, function })
        });
        own.map(|own| own.function)
    }
}

impl Ops {
    /// The kernel of a kind of instruction.
    pub fn get(&self, kind: Kind) -> CUfunction {
        self.of_kind[kind as usize]
    }
}

impl StepModule {
    /// Loads kernels from a separate source, which may call the functions of all kernels. The code comes from
    /// an earlier trial, the cache or the compiler.
    pub fn compiled(context: &Arc<Context>, text: String) -> Result<Arc<Self>, DeviceError> {
        let step = context.primary.modules.step(context.driver, text.clone());
        step.module.get(|| {
            let code = cached(context, "step.cu", &(sources::with_kernels(|_| false) + &text));
            Module::load(context, &code.map_err(|why| context.unusable(why))?.code)
        })?;
        Ok(step)
    }

    pub fn function(&self, context: &Context, name: &str) -> Result<CUfunction, DeviceError> {
        let module = self.module.value.get().ok_or_else(|| context.unusable("it is not loaded"));
        module?.function(context, name)
    }
}

impl Module {
    /// Loads kernels of this project: those whose names are kept, known by `part`.
    fn of_kernels(
        context: &Context,
        part: &'static str,
        keep: impl Fn(&str) -> bool,
    ) -> Result<Self, DeviceError> {
        let code = code(context, part, || sources::with_kernels(keep));
        Self::load(context, &code.map_err(|why| context.unusable(why))?)
    }

    fn load(context: &Context, code: &[u8]) -> Result<Self, DeviceError> {
        let mut handle = ptr::null_mut();
        // SAFETY: the code is a complete image made by the compiler.
        let status = unsafe { (context.driver.cuModuleLoadData)(&raw mut handle, code.as_ptr().cast()) };
        context.check(status, || "loading its kernels".into())?;
        Ok(Self { handle })
    }

    pub fn function(&self, context: &Context, name: &str) -> Result<CUfunction, DeviceError> {
        let text = CString::new(name).unwrap_or_default();
        let mut function = ptr::null_mut();
        let get = context.driver.cuModuleGetFunction;
        // SAFETY: the module is loaded, the name alive.
        let status = unsafe { get(&raw mut function, self.handle, text.as_ptr()) };
        context.check(status, || format!("looking up its kernel `{name}`"))?;
        Ok(function)
    }
}

/// The code of a part of the kernels for an architecture, once this process has used it.
type Code = ((i32, &'static str), Arc<Once<Vec<u8>>>);
static CODE: Mutex<Vec<Code>> = Mutex::new(Vec::new());

/// Why the next process has to compile again what this one has compiled.
static CACHE_TROUBLE: Mutex<Option<String>> = Mutex::new(None);

/// The reason, if this process found that every process has to compile the kernels, which takes seconds. Returned only once.
pub fn cache_trouble() -> Option<String> {
    CACHE_TROUBLE.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The machine code of a part of the kernels: from this process, the disk cache or the compiler.
fn code(context: &Context, part: &'static str, source: impl FnOnce() -> String) -> Result<Vec<u8>, String> {
    let key = (context.gpu.architecture(), part);
    let mut all = CODE.lock().unwrap_or_else(PoisonError::into_inner);
    let known = all.iter().find(|(own, _)| *own == key).map(|(_, code)| Arc::clone(code));
    let code = known.unwrap_or_else(|| {
        all.push((key, Arc::default()));
        Arc::clone(&all[all.len() - 1].1)
    });
    drop(all);
    let made = code.get(|| {
        let Entry { code, trouble } = cached(context, "kernels.cu", &source())?;
        if trouble.is_some() {
            *CACHE_TROUBLE.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
        }
        Ok::<_, String>(code)
    });
    made.cloned()
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
