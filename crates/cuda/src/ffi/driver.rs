//! The CUDA driver: its functions, and its errors as text.

use std::{
    ffi::{CStr, c_char, c_void},
    ptr,
    sync::OnceLock,
};

use cudarc::driver::sys::{
    CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule, CUstream, CUuuid,
};

use super::library::{self, functions};
use crate::host::variable;

functions! {
    /// `libcuda.so.1`. Every function exists in drivers since CUDA 11.4, under the name used here.
    Functions {
        fn cuInit(u32);
        fn cuDriverGetVersion(*mut i32);
        fn cuGetErrorName(i32, *mut *const c_char);
        fn cuGetErrorString(i32, *mut *const c_char);
        fn cuDeviceGetCount(*mut i32);
        fn cuDeviceGet(*mut i32, i32);
        fn cuDeviceGetName(*mut c_char, i32, i32);
        fn cuDeviceGetUuid_v2(*mut CUuuid, i32);
        fn cuDeviceTotalMem_v2(*mut usize, i32);
        fn cuDeviceGetAttribute(*mut i32, i32, i32);
        fn cuDevicePrimaryCtxRetain(*mut CUcontext, i32);
        fn cuDevicePrimaryCtxRelease_v2(i32);
        fn cuCtxSetCurrent(CUcontext);
        fn cuCtxGetCurrent(*mut CUcontext);
        fn cuDeviceCanAccessPeer(*mut i32, i32, i32);
        fn cuCtxEnablePeerAccess(CUcontext, u32);
        fn cuMemGetInfo_v2(*mut usize, *mut usize);
        fn cuMemAlloc_v2(*mut CUdeviceptr, usize);
        fn cuMemFree_v2(CUdeviceptr);
        fn cuMemHostAlloc(*mut *mut c_void, usize, u32);
        fn cuMemFreeHost(*mut c_void);
        fn cuMemsetD8Async(CUdeviceptr, u8, usize, CUstream);
        fn cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
        fn cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
        fn cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, usize, CUstream);
        fn cuStreamCreate(*mut CUstream, u32);
        fn cuStreamDestroy_v2(CUstream);
        fn cuStreamQuery(CUstream);
        fn cuStreamWaitEvent(CUstream, CUevent, u32);
        fn cuStreamBeginCapture_v2(CUstream, i32);
        fn cuStreamEndCapture(CUstream, *mut CUgraph);
        fn cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, u64);
        fn cuGraphUpload(CUgraphExec, CUstream);
        fn cuGraphLaunch(CUgraphExec, CUstream);
        fn cuGraphExecDestroy(CUgraphExec);
        fn cuGraphDestroy(CUgraph);
        fn cuEventCreate(*mut CUevent, u32);
        fn cuEventDestroy_v2(CUevent);
        fn cuEventRecord(CUevent, CUstream);
        fn cuEventQuery(CUevent);
        fn cuEventElapsedTime(*mut f32, CUevent, CUevent);
        fn cuModuleLoadData(*mut CUmodule, *const c_void);
        fn cuModuleUnload(CUmodule);
        fn cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
        fn cuFuncSetAttribute(CUfunction, i32, i32);
        fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(*mut i32, CUfunction, i32, usize, u32);
        fn cuLaunchKernel(
            CUfunction, u32, u32, u32, u32, u32, u32, u32, CUstream, *mut *mut c_void, *mut *mut c_void,
        );
        fn cuLaunchCooperativeKernel(
            CUfunction, u32, u32, u32, u32, u32, u32, u32, CUstream, *mut *mut c_void,
        );
    }
}

/// A status other than success, with the driver's explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub code: i32,
    /// As `CUDA_ERROR_OUT_OF_MEMORY`.
    pub name: String,
    /// As `out of memory`.
    pub text: String,
}

/// The driver's `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: i32 = 2;
/// The driver's `CUDA_ERROR_NO_DEVICE`.
pub const NO_DEVICE: i32 = 100;
/// `CUDA_ERROR_NOT_READY`: the work is not done yet.
pub const NOT_READY: i32 = 600;

/// The work queues of a context; the streams of trials that run side by side wait for each other where they share one. The
/// driver makes 8 unless this says more.
const QUEUES: (&str, &str) = ("CUDA_DEVICE_MAX_CONNECTIONS", "32");

/// Lets the driver run as many streams at a time as it can, unless the user has said how many. Does nothing once the process has
/// other threads, which might read the environment meanwhile.
pub fn allow_many_streams() {
    let (name, most) = QUEUES;
    let is_alone = || std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    if variable(name).is_none() && is_alone() {
        // SAFETY: this is the only thread.
        unsafe { std::env::set_var(name, most) };
    }
}

struct Absent {
    why: String,
    /// Where it was searched for; `None` if a file was found.
    looked_for: Option<String>,
}

impl From<String> for Absent {
    fn from(why: String) -> Self {
        Self { why, looked_for: None }
    }
}

pub struct Driver {
    functions: Functions,
    /// The newest CUDA version that it supports: 12080 means 12.8.
    pub version: i32,
    pub path: Option<std::path::PathBuf>,
}

impl std::ops::Deref for Driver {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}

impl Driver {
    /// The driver: opened and initialized at the first call, and kept until the process ends.
    pub fn get() -> Result<&'static Self, &'static str> {
        Self::opened().as_ref().map_err(|absent| absent.why.as_str())
    }

    /// Where it was searched for, if it is missing.
    pub fn looked_for() -> Option<&'static str> {
        Self::opened().as_ref().err()?.looked_for.as_deref()
    }

    fn opened() -> &'static Result<Self, Absent> {
        static DRIVER: OnceLock<Result<Driver, Absent>> = OnceLock::new();
        DRIVER.get_or_init(Self::open)
    }

    fn open() -> Result<Self, Absent> {
        let opened = library::find(&["libcuda.so.1"], None, |opened| {
            let functions = Functions::from_library(opened.library).map_err(|name| {
                format!("is too old: it has no function {name} (a driver for CUDA 11.4 or newer has)")
            })?;
            Ok((functions, opened.path))
        });
        let (functions, path) = opened.map_err(|missing| match &missing.faults[..] {
            [] => Absent {
                why: "no NVIDIA driver: libcuda.so.1 is not there".to_owned(),
                looked_for: Some(missing.to_string()),
            },
            _ => format!("the NVIDIA driver cannot be used: {missing}").into(),
        })?;
        let mut driver = Self { functions, version: 0, path };
        // SAFETY: this is the first call, as the driver requires; the pointers are to live locals.
        let status = unsafe { (driver.cuInit)(0) };
        driver.check(status).map_err(|status| match status.code {
            NO_DEVICE => "the NVIDIA driver is there, but no GPU that it can use".to_owned(),
            _ => format!("the NVIDIA driver does not start: {} ({})", status.name, status.text),
        })?;
        let mut version = 0;
        // SAFETY: as above.
        let status = unsafe { (driver.cuDriverGetVersion)(&raw mut version) };
        driver
            .check(status)
            .map_err(|s| format!("the NVIDIA driver does not tell its version: {}", s.name))?;
        driver.version = version;
        Ok(driver)
    }

    /// Turns a status into an error that names it.
    pub fn check(&self, code: i32) -> Result<(), Status> {
        if code == 0 { Ok(()) } else { Err(self.status(code)) }
    }

    /// A status with the driver's explanation.
    pub fn status(&self, code: i32) -> Status {
        let words = |get: unsafe extern "C" fn(i32, *mut *const c_char) -> i32| {
            let mut text: *const c_char = ptr::null();
            // SAFETY: the pointer is to a live local; the driver writes null or one of its constants.
            let known = unsafe { get(code, &raw mut text) } == 0 && !text.is_null();
            // SAFETY: not null, so it points to a constant zero-terminated string.
            known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        Status {
            code,
            name: words(self.cuGetErrorName).unwrap_or_else(|| format!("CUDA error {code}")),
            text: words(self.cuGetErrorString).unwrap_or_else(|| "unknown to this driver".into()),
        }
    }
}
