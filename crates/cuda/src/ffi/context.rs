//! A GPU that this process uses: its context, and how the driver's errors become the run's.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cudarc::driver::sys::CUcontext;

use super::{
    driver::{Driver, OUT_OF_MEMORY, Status},
    gpu::Gpu,
    primary::{Primary, is_given_up},
};
use crate::{
    device::DeviceError,
    launch::{Heartbeat, hang_timeout},
};

/// A GPU's primary context as one trial uses it.
pub struct Context {
    pub driver: &'static Driver,
    pub primary: Arc<Primary>,
    pub gpu: Gpu,
    /// As `gpu:0`, or `rank:1@h2` where each of several processes has one.
    pub name: String,
    /// The minimum time before the GPU counts as hanging.
    pub least_wait: Duration,
    /// Shows whether driver calls return.
    pub heartbeat: Arc<Heartbeat>,
    /// This trial has given the GPU up.
    given_up: AtomicBool,
    /// All work of this trial is complete.
    is_idle: AtomicBool,
}

impl Context {
    pub fn open(gpu: Gpu) -> Result<Arc<Self>, DeviceError> {
        let name = format!("gpu:{}", gpu.ordinal);
        Self::open_as(gpu, name)
    }

    /// Takes a GPU that errors call `name`.
    pub fn open_as(gpu: Gpu, name: String) -> Result<Arc<Self>, DeviceError> {
        let unusable = |why: String| DeviceError::unusable(&name, why);
        let driver = Driver::get().map_err(|why| unusable(why.to_owned()))?;
        let least_wait = hang_timeout::least_set().map_err(unusable)?.unwrap_or(hang_timeout::LEAST);
        if is_given_up(&gpu.uuid) {
            return Err(unusable(
                "it hangs since it was used before: end this process, and look at `dmesg`".into(),
            ));
        }
        let failed = |status: Status| unusable(format!("{} ({})", status.name, status.text));
        let primary = Primary::open(driver, &gpu).map_err(failed)?;
        let (heartbeat, given_up, is_idle) = Default::default();
        let context = Arc::new(Self { driver, primary, gpu, name, least_wait, heartbeat, given_up, is_idle });
        context.enter()?;
        Ok(context)
    }

    /// Makes it the calling thread's current context.
    pub fn enter(&self) -> Result<(), DeviceError> {
        self.check(self.primary.enter(), || "taking it".into())
    }

    /// Like [`Self::enter`], before freeing something. Returns false if freeing must be left to the end of the process.
    pub fn enter_to_free(&self) -> bool {
        !self.primary.is_given_up() && self.enter().is_ok()
    }

    /// Records that all work of this trial is complete, so that the next one may take over what it used.
    pub fn set_idle(&self) {
        self.is_idle.store(true, Ordering::Release);
    }

    pub fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Acquire)
    }

    /// Gives the GPU up: nothing is freed any more, and no later trial may use it.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        self.primary.give_up();
    }

    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Turns a status into an error that says what failed. Also counts as a heartbeat.
    pub fn check(&self, status: i32, doing: impl FnOnce() -> String) -> Result<(), DeviceError> {
        self.heartbeat.beat();
        if status == 0 { Ok(()) } else { Err(self.error(status, doing())) }
    }

    /// The error for a status other than success.
    pub fn error(&self, status: i32, doing: String) -> DeviceError {
        self.primary.note(status);
        let (Status { name, text, .. }, way_out) = (self.driver.status(status), way_out(status));
        DeviceError::Cuda { device: self.name.clone(), doing, name, text, way_out }
    }

    /// The error for what this GPU cannot do.
    pub fn unusable(&self, why: impl Into<String>) -> DeviceError {
        DeviceError::unusable(&self.name, why)
    }

    pub fn handle(&self) -> CUcontext {
        self.primary.handle()
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
