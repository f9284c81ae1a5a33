//! The part of the CUDA driver API that these tests need, on the simulator that `tests/cuda_sim/build` makes.

use std::{
    ffi::{CString, c_void},
    path::PathBuf,
    process::Command,
    sync::OnceLock,
};

use libloading::{Library, Symbol};

/// The folder of the simulated libraries, built on first use; `None` without g++.
pub fn folder() -> Option<&'static PathBuf> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(|| build("cuda_sim", &[])).as_ref()
}

/// Runs the build script. Returns the folder, or `None` (with a printed line) without a compiler; CI must
/// have one.
pub fn build(name: &str, variables: &[(&str, &str)]) -> Option<PathBuf> {
    let compiler = Command::new("g++").arg("--version").output().is_ok_and(|o| o.status.success());
    if !compiler {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI must have g++, which runs the kernels on the processor"
        );
        println!("skipped: g++ is not installed, which runs the kernels on the processor");
        return None;
    }
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda_sim/build");
    let built = Command::new(script).arg(&out).envs(variables.iter().copied()).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(out)
}

/// The simulated GPU has this many.
pub const MULTIPROCESSORS: u32 = 64;

/// The order in which threads and blocks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Order {
    Forward,
    Reverse,
    Shuffled,
}

impl Order {
    pub const ALL: [Self; 3] = [Self::Forward, Self::Reverse, Self::Shuffled];
}

/// The driver, initialized. The first device's context is current on every thread that uses it.
#[derive(Debug)]
pub struct Driver {
    library: Library,
    context: usize,
    module: usize,
}

type Status = i32;

impl Driver {
    /// `None` without a compiler.
    pub fn get() -> Option<&'static Self> {
        static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
        let driver = DRIVER.get_or_init(|| folder().map(|folder| Self::open(&folder.join("libcuda.so.1"))));
        driver.as_ref().inspect(|d| {
            let result = d.function::<unsafe extern "C" fn(usize) -> Status>("cuCtxSetCurrent");
            // SAFETY: the context is the one that `open` retained.
            checked("cuCtxSetCurrent", unsafe { result(d.context) });
        })
    }

    fn open(path: &std::path::Path) -> Self {
        // SAFETY: the library is ours; its initialization only registers kernels.
        let library = unsafe { Library::new(path) }.unwrap();
        let mut driver = Self { library, context: 0, module: 0 };
        type Init = unsafe extern "C" fn(u32) -> Status;
        type Retain = unsafe extern "C" fn(*mut usize, i32) -> Status;
        type Current = unsafe extern "C" fn(usize) -> Status;
        type Load = unsafe extern "C" fn(*mut usize, *const c_void) -> Status;
        let (mut context, mut module) = (0, 0);
        // SAFETY: calls as the driver's documentation has them; both pointers are to live variables.
        unsafe {
            driver.function::<unsafe extern "C" fn(i32)>("cusim_multiprocessors")(MULTIPROCESSORS as i32);
            checked("cuInit", driver.function::<Init>("cuInit")(0));
            let retain = driver.function::<Retain>("cuDevicePrimaryCtxRetain");
            checked("cuDevicePrimaryCtxRetain", retain(&mut context, 0));
            checked("cuCtxSetCurrent", driver.function::<Current>("cuCtxSetCurrent")(context));
            let load = driver.function::<Load>("cuModuleLoadData");
            checked("cuModuleLoadData", load(&mut module, c"image".as_ptr().cast()));
        }
        (driver.context, driver.module) = (context, module);
        driver
    }

    pub fn function<T: Copy>(&self, name: &str) -> T {
        // SAFETY: each caller names the type that the driver's documentation gives this function.
        let symbol: Symbol<'_, T> = unsafe { self.library.get(name.as_bytes()) }.unwrap();
        *symbol
    }

    /// The order of threads for launches of this thread.
    pub fn order(&self, order: Order) {
        let set = self.function::<unsafe extern "C" fn(i32)>("cusim_order");
        // SAFETY: takes any number.
        unsafe { set(order as i32) }
    }

    /// Device memory with these elements.
    pub fn holding<T: Copy>(&self, numbers: &[T]) -> Memory<'_> {
        let bytes = size_of_val(numbers).max(1);
        let mut address = 0;
        let allocate = self.function::<unsafe extern "C" fn(*mut u64, usize) -> Status>("cuMemAlloc_v2");
        // SAFETY: the pointer is to a live variable.
        checked("cuMemAlloc_v2", unsafe { allocate(&mut address, bytes) });
        let memory = Memory { driver: self, address };
        memory.write(numbers);
        memory
    }

    /// Copies four numbers from pinned memory, and changes one before or after the copy is waited for.
    pub fn copy_and_write(&self, is_early: bool) {
        type Take = unsafe extern "C" fn(*mut *mut f32, usize, u32) -> Status;
        type Copy = unsafe extern "C" fn(u64, *const f32, usize, usize) -> Status;
        let (target, mut pinned) = (self.holding(&[0.0_f32; 4]), std::ptr::null_mut());
        // SAFETY: calls as the driver's documentation has them; four numbers are there, on both sides.
        unsafe {
            let copy = self.function::<Copy>("cuMemcpyHtoDAsync_v2");
            let wait = self.function::<unsafe extern "C" fn(usize) -> Status>("cuStreamSynchronize");
            checked("cuMemHostAlloc", self.function::<Take>("cuMemHostAlloc")(&raw mut pinned, 16, 0));
            checked("cuMemcpyHtoDAsync_v2", copy(target.address, pinned, 16, 0));
            *pinned = if is_early { 1.0 } else { *pinned };
            checked("cuStreamSynchronize", wait(0));
            *pinned = 2.0;
        }
    }

    /// Loads a module from its image.
    pub fn load(&self, image: &[u8]) -> Module {
        type Load = unsafe extern "C" fn(*mut usize, *const c_void) -> Status;
        let mut module = 0;
        // SAFETY: the pointer is to a live variable; the image is whole.
        let status = unsafe { self.function::<Load>("cuModuleLoadData")(&mut module, image.as_ptr().cast()) };
        checked("cuModuleLoadData", status);
        Module(module)
    }

    /// Launches a kernel and waits; returns the driver's status.
    pub fn try_launch(&self, name: &str, grid: Grid, arguments: &mut [*mut c_void]) -> Status {
        self.try_launch_of(Module(self.module), name, grid, arguments)
    }

    /// Like [`Self::try_launch`], for a kernel of a loaded module.
    pub fn try_launch_of(
        &self,
        module: Module,
        name: &str,
        grid: Grid,
        arguments: &mut [*mut c_void],
    ) -> Status {
        let mut function = 0;
        let c_name = CString::new(name).unwrap();
        type Get = unsafe extern "C" fn(*mut usize, usize, *const i8) -> Status;
        type Set = unsafe extern "C" fn(usize, i32, i32) -> Status;
        #[rustfmt::skip]
        type Launch = unsafe extern "C" fn(
            usize, u32, u32, u32, u32, u32, u32, u32, usize, *mut *mut c_void, *mut *mut c_void,
        ) -> Status;
        let which = if grid.cooperative { "cuLaunchCooperativeKernel" } else { "cuLaunchKernel" };
        let none = std::ptr::null_mut();
        // SAFETY: `arguments` point to values of the kernel's parameter types. They outlive the call, since
        // the simulator copies them and runs the kernel before it returns.
        unsafe {
            let get = self.function::<Get>("cuModuleGetFunction");
            checked(name, get(&mut function, module.0, c_name.as_ptr().cast()));
            if grid.shared_bytes > 48 << 10 {
                let set = self.function::<Set>("cuFuncSetAttribute");
                checked("cuFuncSetAttribute", set(function, 8, grid.shared_bytes as i32));
            }
            let launch = self.function::<Launch>(which);
            let Grid { blocks, threads, shared_bytes, .. } = grid;
            launch(function, blocks, 1, 1, threads, 1, 1, shared_bytes, 0, arguments.as_mut_ptr(), none)
        }
    }

    /// Launches a kernel and waits.
    pub fn launch(&self, name: &str, grid: Grid, arguments: &mut [*mut c_void]) {
        assert_eq!(self.try_launch(name, grid, arguments), 0, "{name} {grid:?}");
    }
}

#[track_caller]
fn checked(call: &str, status: Status) {
    assert_eq!(status, 0, "{call}");
}

/// A loaded module.
#[derive(Clone, Copy, Debug)]
pub struct Module(usize);

/// The configuration of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    pub blocks: u32,
    pub threads: u32,
    pub shared_bytes: u32,
    pub cooperative: bool,
}

impl Grid {
    pub fn new(blocks: u32, threads: u32) -> Self {
        Self { blocks, threads, shared_bytes: 0, cooperative: false }
    }
}

/// Memory of the device.
#[derive(Debug)]
pub struct Memory<'a> {
    driver: &'a Driver,
    pub address: u64,
}

impl Memory<'_> {
    pub fn write<T: Copy>(&self, numbers: &[T]) {
        type Copy = unsafe extern "C" fn(u64, *const c_void, usize) -> Status;
        let copy = self.driver.function::<Copy>("cuMemcpyHtoD_v2");
        // SAFETY: the length is that of the source; the driver checks the target.
        checked("cuMemcpyHtoD", unsafe { copy(self.address, numbers.as_ptr().cast(), size_of_val(numbers)) });
    }

    pub fn read<T: Copy + Default>(&self, len: usize) -> Vec<T> {
        type Copy = unsafe extern "C" fn(*mut c_void, u64, usize) -> Status;
        let copy = self.driver.function::<Copy>("cuMemcpyDtoH_v2");
        let mut numbers = vec![T::default(); len];
        let bytes = size_of_val(numbers.as_slice());
        // SAFETY: the length is that of the target; the driver checks the source.
        checked("cuMemcpyDtoH", unsafe { copy(numbers.as_mut_ptr().cast(), self.address, bytes) });
        numbers
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        let free = self.driver.function::<unsafe extern "C" fn(u64) -> Status>("cuMemFree_v2");
        // SAFETY: allocated by this driver, freed once.
        unsafe { free(self.address) };
    }
}

/// The pointer by which an argument is passed.
pub fn argument<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}
