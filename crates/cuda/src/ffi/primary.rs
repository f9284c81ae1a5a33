//! A GPU's primary context, one for all trials of this process, and what ended trials leave in it for the next: memory,
//! streams, events, kernels, rows. Each of these takes the driver up to milliseconds, and to free memory waits for the
//! whole GPU.
//!
//! Nothing is taken over from a context in which a call has failed: the next trial begins with a new one.

use std::{
    ffi::c_void,
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cudarc::driver::sys::{CUcontext, CUevent, CUstream};

use super::{
    driver::{Driver, NOT_READY, OUT_OF_MEMORY, Status},
    gpu::Gpu,
    resource::{Kind, Left, Resource},
};
use crate::{
    collective::give_way,
    launch::{Modules, wait::within},
    memory::ResidentRows,
};

/// `CU_STREAM_NON_BLOCKING`: no implicit order with the default stream.
const NON_BLOCKING: u32 = 1;
/// The driver's `CU_EVENT_DISABLE_TIMING`.
const WITHOUT_TIME: u32 = 2;

/// How long a trial waits for others to let go of a context in which a call has failed.
const GRACE: Duration = Duration::from_secs(2);

/// The contexts that trials or sessions hold, and those that are being released, with the UUIDs of their GPUs.
static OPEN: Mutex<Vec<(String, Weak<Primary>)>> = Mutex::new(Vec::new());

fn open() -> MutexGuard<'static, Vec<(String, Weak<Primary>)>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// UUIDs of GPUs that this process has given up because work queued there never ends.
static GIVEN_UP: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Whether this process has given up the GPU with this UUID, which may have a prefix such as `GPU-`.
pub fn is_given_up(uuid: &str) -> bool {
    GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|own| uuid.ends_with(own.as_str()))
}

/// Released when the last trial or session that holds it is dropped.
pub struct Primary {
    pub driver: &'static Driver,
    pub modules: Modules,
    pub rows: Mutex<ResidentRows>,
    pub uuid: String,
    device: i32,
    handle: CUcontext,
    left: Mutex<Left>,
    /// The GPU hangs, so calls that free its memory would never return.
    given_up: AtomicBool,
    failed: AtomicBool,
    /// See [`Self::stay`].
    stays: AtomicBool,
}

// SAFETY: the handle is a token that the driver accepts from any thread.
unsafe impl Send for Primary {}
// SAFETY: as above; what changes is locked or atomic.
unsafe impl Sync for Primary {}

impl Primary {
    /// The context that this process has of the GPU, or a new one.
    pub fn open(driver: &'static Driver, gpu: &Gpu) -> Result<Arc<Self>, Status> {
        let is_its = |(uuid, _): &&(String, Weak<Self>)| *uuid == gpu.uuid;
        // Dropped after the list is unlocked: the last to drop a context locks it.
        let mut all: Vec<Arc<Self>>;
        // The driver begins anew once nobody has a context in which a call has failed. Where that call did no harm, the others
        // may go on with it for long.
        within(GRACE, || {
            let own: Vec<_> = open().iter().filter(is_its).map(|(_, own)| own.clone()).collect();
            own.is_empty() || own.iter().filter_map(Weak::upgrade).any(|own| !own.has_failed())
        });
        let mut open = open();
        all = open.iter().filter(is_its).filter_map(|(_, own)| own.upgrade()).collect();
        if let Some(sound) = all.iter().position(|own| !own.has_failed()) {
            return Ok(all.swap_remove(sound));
        }
        let (mut device, mut handle) = (0, ptr::null_mut());
        // SAFETY: the pointers are to live locals, here and below.
        driver.check(unsafe { (driver.cuDeviceGet)(&raw mut device, gpu.ordinal as i32) })?;
        // SAFETY: see above.
        driver.check(unsafe { (driver.cuDevicePrimaryCtxRetain)(&raw mut handle, device) })?;
        let own = Arc::new(Self {
            driver,
            modules: Modules::default(),
            rows: Mutex::default(),
            uuid: gpu.uuid.clone(),
            device,
            handle,
            left: Mutex::default(),
            given_up: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            stays: AtomicBool::new(false),
        });
        open.push((gpu.uuid.clone(), Arc::downgrade(&own)));
        Ok(own)
    }

    pub fn handle(&self) -> CUcontext {
        self.handle
    }

    /// Makes it the calling thread's current context; returns the driver's status.
    pub fn enter(&self) -> i32 {
        // SAFETY: the handle is alive until `self` is dropped.
        unsafe { (self.driver.cuCtxSetCurrent)(self.handle) }
    }

    /// Notes that a call failed. After some failures all later calls fail too, so nothing is taken over.
    pub fn note(&self, status: i32) {
        if status != OUT_OF_MEMORY {
            self.failed.store(true, Ordering::Release);
        }
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire) || self.is_given_up()
    }

    /// Gives the GPU up: nothing is freed any more, and no later trial may use it.
    pub fn give_up(&self) {
        if !self.given_up.swap(true, Ordering::AcqRel) {
            GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner).push(self.uuid.clone());
        }
    }

    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has been left, for this many bytes.
    pub fn take(&self, kind: Kind, bytes: usize) -> Option<Resource> {
        self.left().take(kind, bytes)
    }

    /// Whether [`Self::take`] has device memory of this size.
    pub fn has_memory(&self, bytes: usize) -> bool {
        self.left().has(Kind::Device, bytes)
    }

    /// Leaves it for the next trial; false if it is to be freed.
    pub fn leave(&self, resource: Resource) -> bool {
        !self.has_failed() && self.left().leave(resource)
    }

    /// Takes it from the driver; the error is the driver's status. The context must be current.
    pub fn make(&self, kind: Kind, bytes: usize) -> Result<Resource, i32> {
        let (driver, mut address, mut pointer) = (self.driver, 0, ptr::null_mut::<c_void>());
        let handle = &raw mut pointer;
        // SAFETY: the pointers are to live locals. No flags for pinned memory: write-combined memory is slow to read.
        let status = unsafe {
            match kind {
                Kind::Device => (driver.cuMemAlloc_v2)(&raw mut address, bytes),
                Kind::Pinned => (driver.cuMemHostAlloc)(handle, bytes, 0),
                Kind::Stream => (driver.cuStreamCreate)(handle.cast(), NON_BLOCKING),
                Kind::Timed => (driver.cuEventCreate)(handle.cast(), 0),
                Kind::Plain => (driver.cuEventCreate)(handle.cast(), WITHOUT_TIME),
            }
        };
        let at = if kind == Kind::Device { address } else { pointer as u64 };
        if status == 0 { Ok(Resource { kind, at, bytes }) } else { Err(status) }
    }

    /// Returns it to the driver; the context must be current. A GPU that hangs would never let go of it.
    pub fn free(&self, Resource { kind, at, .. }: Resource) {
        if self.is_given_up() {
            return;
        }
        let driver = self.driver;
        // SAFETY: made in this context, freed once. The driver waits for work that uses memory; work in a stream completes.
        unsafe {
            match kind {
                Kind::Device => (driver.cuMemFree_v2)(at),
                Kind::Pinned => (driver.cuMemFreeHost)(at as *mut c_void),
                Kind::Stream => (driver.cuStreamDestroy_v2)(at as CUstream),
                Kind::Timed | Kind::Plain => (driver.cuEventDestroy_v2)(at as CUevent),
            }
        };
    }

    /// Makes device memory that an earlier trial wrote NaN, so that tests notice who reads it; returns the driver's status.
    pub fn poison(&self, Resource { kind, at, bytes }: Resource) -> i32 {
        if kind != Kind::Device {
            return 0;
        }
        let (driver, stream) = (self.driver, ptr::null_mut());
        // SAFETY: the caller owns the block, and nothing is queued that uses it.
        let status = unsafe { (driver.cuMemsetD8Async)(at, 0xff, bytes, stream) };
        // SAFETY: the default stream is always there.
        while status == 0 && unsafe { (driver.cuStreamQuery)(stream) } == NOT_READY {
            give_way();
        }
        status
    }

    /// Frees what trials left of this kind; the context must be current. Returns whether there was any.
    pub fn free_left(&self, kind: Kind) -> bool {
        let left = self.left().take_all(|own| own == kind);
        left.iter().for_each(|own| self.free(*own));
        !left.is_empty()
    }

    /// Frees all that is left; the context must be current.
    fn free_all(&mut self) {
        std::mem::take(&mut self.rows).into_inner().unwrap_or_else(PoisonError::into_inner).free_unused(self);
        let left = self.left().take_all(|_| true);
        left.into_iter().for_each(|own| self.free(own));
        self.modules.unload(self.driver);
    }

    /// Leaves it to the driver to release the context: the process ends soon, and the driver is then faster than if asked to.
    pub fn stay(&self) {
        self.stays.store(true, Ordering::Release);
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        if !self.is_given_up() {
            // The thread may work with another GPU.
            let mut current = ptr::null_mut();
            // SAFETY: the pointer is to a live local.
            unsafe { (self.driver.cuCtxGetCurrent)(&raw mut current) };
            if self.enter() == 0 {
                self.free_all();
            }
            if !self.stays.load(Ordering::Acquire) || self.has_failed() {
                // SAFETY: `open` retained it once. An error could not be handled.
                unsafe { (self.driver.cuDevicePrimaryCtxRelease_v2)(self.device) };
            }
            let other = if current == self.handle { ptr::null_mut() } else { current };
            // SAFETY: null, or what the thread had.
            unsafe { (self.driver.cuCtxSetCurrent)(other) };
        }
        open().retain(|(_, own)| !ptr::eq(own.as_ptr(), self));
    }
}
