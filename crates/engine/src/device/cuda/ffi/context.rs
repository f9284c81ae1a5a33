//! A GPU that this process uses: its context, and how the driver's errors become the run's.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cudarc::driver::sys::CUcontext;

use super::{
    driver::{Driver, OUT_OF_MEMORY, Status},
    gpu::Gpu,
};
use crate::device::{
    DeviceError,
    cuda::launch::{Heartbeat, hang_timeout},
};

/// UUIDs of GPUs that this process has given up because work queued there never ends.
static GIVEN_UP: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Whether this process has given up the GPU with this UUID, which may have a prefix such as `GPU-`.
pub fn is_given_up(uuid: &str) -> bool {
    GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|own| uuid.ends_with(own.as_str()))
}

/// The primary context of a GPU; released when its last user is dropped.
pub struct Context {
    pub driver: &'static Driver,
    pub gpu: Gpu,
    /// As `gpu:0`, or `rank:1@h2` where each of several processes has one.
    pub name: String,
    /// The minimum time before the GPU counts as hanging.
    pub least_wait: Duration,
    /// Shows whether driver calls return.
    pub heartbeat: Arc<Heartbeat>,
    device: i32,
    handle: CUcontext,
    /// The GPU hangs, so calls that free its memory would never return.
    given_up: AtomicBool,
}

// SAFETY: the handle is a token that the driver accepts from any thread.
unsafe impl Send for Context {}
// SAFETY: as above; nothing here changes after construction.
unsafe impl Sync for Context {}

impl Context {
    pub fn open(gpu: Gpu) -> Result<Arc<Self>, DeviceError> {
        let name = format!("gpu:{}", gpu.ordinal);
        Self::open_as(gpu, name)
    }

    /// Takes a GPU that errors call `name`.
    pub fn open_as(gpu: Gpu, name: String) -> Result<Arc<Self>, DeviceError> {
        let unusable = |why: String| DeviceError::Unusable { device: name.clone(), why };
        let driver = Driver::get().map_err(|why| unusable(why.to_owned()))?;
        let least_wait = hang_timeout::least_set().map_err(unusable)?.unwrap_or(hang_timeout::LEAST);
        if GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner).contains(&gpu.uuid) {
            return Err(unusable(
                "it hangs since it was used before: end this process, and look at `dmesg`".into(),
            ));
        }
        let (mut device, mut handle) = (0, std::ptr::null_mut());
        let failed = |status: Status| unusable(format!("{} ({})", status.name, status.text));
        // SAFETY: the pointers are to live locals, here and below.
        driver.check(unsafe { (driver.cuDeviceGet)(&raw mut device, gpu.ordinal as i32) }).map_err(failed)?;
        // SAFETY: see above.
        let taken = unsafe { (driver.cuDevicePrimaryCtxRetain)(&raw mut handle, device) };
        driver.check(taken).map_err(failed)?;
        let given_up = AtomicBool::new(false);
        let heartbeat = Arc::default();
        let context = Arc::new(Self { driver, gpu, name, least_wait, heartbeat, device, handle, given_up });
        context.enter()?;
        Ok(context)
    }

    /// Keeps a GPU's context until the process ends.
    pub fn keep(gpu: Gpu) -> Result<(), DeviceError> {
        Self::open(gpu).map(std::mem::forget)
    }

    /// Makes it the calling thread's current context.
    pub fn enter(&self) -> Result<(), DeviceError> {
        // SAFETY: the handle is alive until `self` is dropped.
        let status = unsafe { (self.driver.cuCtxSetCurrent)(self.handle) };
        self.check(status, || "taking it".into())
    }

    /// Like [`Self::enter`], before freeing something. Returns false if freeing must be left to the end of
    /// the process.
    pub fn enter_to_free(&self) -> bool {
        !self.is_given_up() && self.enter().is_ok()
    }

    /// Gives the GPU up: nothing is freed any more, and no later trial may use it.
    pub fn give_up(&self) {
        if !self.given_up.swap(true, Ordering::AcqRel) {
            GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner).push(self.gpu.uuid.clone());
        }
    }

    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Turns a status into an error that says what failed. Also counts as a heartbeat.
    pub fn check(&self, status: i32, doing: impl FnOnce() -> String) -> Result<(), DeviceError> {
        self.heartbeat.beat();
        self.driver.check(status).map_err(|status| {
            let way_out = way_out(status.code);
            let Status { name, text, .. } = status;
            DeviceError::Cuda { device: self.name.clone(), doing: doing(), name, text, way_out }
        })
    }

    pub fn handle(&self) -> CUcontext {
        self.handle
    }

    /// Free and total bytes of its memory.
    pub fn memory(&self) -> Result<(u64, u64), DeviceError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: pointers to live locals.
        let status = unsafe { (self.driver.cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
        self.check(status, || "asking for its free memory".into())?;
        Ok((free as u64, total as u64))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.is_given_up() {
            return;
        }
        // SAFETY: `open` retained it once. An error could not be handled.
        unsafe { (self.driver.cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}

/// What a user can do about a status of the driver (cuda.h).
fn way_out(code: i32) -> &'static str {
    match code {
        OUT_OF_MEMORY => {
            "lower `data.batch_size`, set `data.placement = \"streamed\"`, or end what else uses the GPU"
        }
        // Invalid image, no binary for the GPU, unsupported PTX.
        200 | 209 | 218 | 222 => {
            "remove the folder of compiled kernels that `runner devices` names, and try again"
        }
        // ECC, launch failed, illegal address, assert, timeout, hardware and instruction faults.
        214 | 700 | 702 | 710 | 714..=719 => {
            "the GPU is lost to this process; look at `dmesg` and `nvidia-smi -q`, and try `devices.engine = \"launch\"`"
        }
        // Driver mismatch, system not ready.
        802..=804 => "the driver was changed while it was loaded: restart the machine",
        _ => "look at `nvidia-smi` and `dmesg`, or run on the CPU by `devices.num_gpus = 0`",
    }
}
